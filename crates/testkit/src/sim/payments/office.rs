//! Offices that pay every month, and what the gateway tells about them.
//!
//! Anything may happen to a subscription at any moment: the gateway's word counts in every state. It goes by the same post as
//! what it tells about payments, so it comes late, twice, after younger news, forged, or never.
//!
//! | Rule | Says |
//! |---|---|
//! | nothing is lost | a billing that somebody was told of is there |
//! | one event, one effect | it was changed once for each event about it that was a success, and has an audit line for each |
//! | the newest word counts | in whatever order events came: what the newest of them says is so |

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::billing::{Billing, KIND, Status};
use tashika_domain::webhook::{self, WebhookEvent};
use tashika_domain::{Changes, Timestamp, Write};
use tashika_engine::commands::billing::BillingError;
use tashika_store::{AuditFilter, StoreError};
use uuid::Uuid;

use super::Planted;
use super::dice::{Odds, Stream};
use super::post::About;
use super::process::Process;
use super::stage::EPOCH;
use super::tally::Tally;
use super::trouble::is_of_the_disk;

/// Something happens to a subscription, per step.
const HAPPENS: Odds = Odds::percent(25);
/// A trial that ends while the run goes on, and one that outlasts it.
const SHORT_TRIAL_MS: (u64, u64) = (2000, 30_000);
const LONG_TRIAL: Duration = Duration::from_secs(30 * 24 * 3600);
/// More audit lines than a billing has.
const ALL: i64 = 1_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Office {
    customer: String,
    trial_end: Option<Timestamp>,
    /// Its billing, once somebody was told of it.
    billing: Option<Uuid>,
}

/// What has happened to a subscription.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum What {
    Paid,
    NotPaid,
    Subscribed,
    WillEnd,
    GoesOn,
    Ended,
}

/// What the gateway tells, by its own clock, which has seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct News {
    office: usize,
    what: What,
    at: Timestamp,
}

impl What {
    const ALL: [Self; 6] =
        [Self::Paid, Self::NotPaid, Self::Subscribed, Self::WillEnd, Self::GoesOn, Self::Ended];

    const fn is_about_payment(self) -> bool {
        matches!(self, Self::Paid | Self::NotPaid)
    }

    /// As the gateway puts it.
    fn told(self, customer: &str) -> (&'static str, Value) {
        let subscription = |ends: bool| {
            json!({"id": format!("sub_of_{customer}"), "customer": customer,
                "cancel_at_period_end": ends})
        };
        let invoice = json!({"customer": customer});
        match self {
            Self::Paid => ("invoice.payment_succeeded", invoice),
            Self::NotPaid => ("invoice.payment_failed", invoice),
            Self::Subscribed => ("customer.subscription.created", subscription(false)),
            Self::WillEnd => ("customer.subscription.updated", subscription(true)),
            Self::GoesOn => ("customer.subscription.updated", subscription(false)),
            Self::Ended => ("customer.subscription.deleted", subscription(false)),
        }
    }
}

/// The offices of a run: without a trial, with one that ends meanwhile, and with one that does not.
pub(crate) fn draw(seed: u64) -> Vec<Office> {
    let (low, high) = SHORT_TRIAL_MS;
    let short = Stream::new(seed, "trial").millis(low, high);
    let trials = [None, Some(short), Some(LONG_TRIAL)];
    let office = |(number, trial): (usize, Option<Duration>)| Office {
        customer: format!("cus_{number}_of_ours"),
        trial_end: trial.map(|span| EPOCH.plus(span)),
        billing: None,
    };
    trials.into_iter().enumerate().map(office).collect()
}

/// Makes the billings that nobody was told of yet. Where the disk fails, the next process tries again.
pub(crate) async fn settle_in(process: &Process) {
    let offices = process.scene.world().offices.clone();
    for (number, office) in offices.iter().enumerate().filter(|(_, o)| o.billing.is_none()) {
        let body = json!({
            "officeId": format!("office-{number}"),
            "stripeCustomerId": office.customer,
            "trialEndDate": office.trial_end.map(|end| end.to_string()),
        });
        let made = match process.billings.create("sim", &body).await {
            // A process before this one did not live to tell of it.
            Err(BillingError::Exists) => {
                process.store.billing_of_customer(&office.customer).await.map_err(Into::into)
            }
            made => made.map(Some),
        };
        match made {
            Ok(Some(billing)) => {
                process.scene.world().offices[number].billing = Some(billing.id);
            }
            Ok(None) => process.broken("answers as agreed", &office.customer, "it does not exist"),
            Err(error) if is_of_the_disk(&error.to_string()) => {}
            Err(error) => {
                process.broken("answers as agreed", &office.customer, &error.to_string());
            }
        }
    }
}

/// Now and then something happens to somebody's subscription, and the gateway tells of it.
pub(crate) fn act(process: &Process) {
    let (scene, now) = (&process.scene, process.clock.now());
    let mut dice = Stream::new(scene.seed, &format!("office/{}", scene.steps_taken()));
    if !dice.hit(HAPPENS) {
        return;
    }
    let mut world = scene.world();
    let office = dice.index(world.offices.len());
    let Some(id) = world.offices[office].billing else { return };
    let what = *dice.pick(&What::ALL);
    let seconds = now.as_micros() / 1_000_000;
    let at = Timestamp::from_micros(seconds * 1_000_000);
    let event = what.told(&world.offices[office].customer);
    let about = About::Office(News { office, what, at });
    scene.log.note(now, &format!("office {office}: {what:?}"));
    world.tell_of(about, event, now, dice);
    drop(world);
    if scene.planted == Some(Planted::RestoresBilling) {
        tokio::spawn(restore(process.store.clone(), id));
    }
}

/// A mistake: somebody writes a billing back as it was at first.
async fn restore(store: tashika_store::Store, id: Uuid) {
    if let Ok(Some(now)) = store.billing(id).await {
        let version = now.version + 1;
        let before = Billing { version, status: Status::Free, ..now };
        let written = store.commit(Changes::from(Write::BillingUpdate(Box::new(before)))).await;
        // Whoever loses a race against news has restored nothing.
        drop(written);
    }
}

impl Process {
    /// Checks every billing, when nothing is under way any more, and writes it down.
    pub async fn check_offices(
        &self,
        events: &BTreeMap<String, WebhookEvent>,
    ) -> Result<(), StoreError> {
        let offices = self.scene.world().offices.clone();
        for (number, office) in offices.iter().enumerate() {
            let Some(id) = office.billing else { continue };
            let Some(billing) = self.store.billing(id).await? else {
                self.broken("nothing is lost", &office.customer, "its billing is gone");
                continue;
            };
            self.scene.log.mark(self.clock.now(), &format!("{billing:?}"));
            let news = self.heard_of(number, events);
            self.check_lines(&billing, &news).await?;
            let all: Vec<News> = news.into_values().collect();
            for detail in wrong_with(&billing, office, &all) {
                self.broken("the newest word counts", &office.customer, &detail);
            }
        }
        Ok(())
    }

    /// Events about an office that were a success, by their ids.
    fn heard_of(
        &self,
        office: usize,
        events: &BTreeMap<String, WebhookEvent>,
    ) -> BTreeMap<String, News> {
        let world = self.scene.world();
        let ended_well = events.values().filter(|e| e.status == webhook::Status::Success);
        let heard =
            ended_well.filter_map(|event| match world.post.letter(&event.event_id)?.about {
                About::Office(news) if news.office == office => {
                    Some((event.event_id.clone(), news))
                }
                _ => None,
            });
        heard.collect()
    }

    async fn check_lines(
        &self,
        billing: &Billing,
        news: &BTreeMap<String, News>,
    ) -> Result<(), StoreError> {
        const RULE: &str = "one event, one effect";
        let filter = AuditFilter {
            target_type: Some(KIND.to_owned()),
            target_id: Some(billing.id.to_string()),
            ..AuditFilter::default()
        };
        let mut lines = Vec::new();
        for line in self.store.audit_logs(&filter, ALL).await? {
            let details: Value = serde_json::from_str(&line.details).unwrap_or_default();
            if let Some(event) = details["event_id"].as_str() {
                lines.push(event.to_owned());
                let late = details["out_of_order"] == true;
                self.scene.log.count(if late { Tally::OldNews } else { Tally::News });
            }
        }
        lines.sort_unstable();
        let customer = &billing.stripe_customer_id;
        if !lines.iter().eq(news.keys()) {
            let detail = format!("it has lines of {lines:?}, a success were {:?}", news.keys());
            self.broken(RULE, customer, &detail);
        }
        if usize::try_from(billing.version).ok() != Some(1 + news.len()) {
            let detail = format!("version {} after {} events", billing.version, news.len());
            self.broken(RULE, customer, &detail);
        }
        Ok(())
    }
}

/// What a billing says otherwise than the newest news. Of the same second, any may be the newest.
fn wrong_with(billing: &Billing, office: &Office, news: &[News]) -> Vec<String> {
    let newest = |of: fn(What) -> bool| news.iter().filter(|n| of(n.what)).map(|n| n.at).max();
    let mut wrong = Vec::new();
    for (name, is, must_be) in [
        ("last payment", billing.last_payment_at, newest(|what| what == What::Paid)),
        ("payments as of", billing.payment_as_of, newest(What::is_about_payment)),
        ("subscription as of", billing.subscription_as_of, newest(|w| !w.is_about_payment())),
    ] {
        if is != must_be {
            wrong.push(format!("{name}: {is:?}, and it was {must_be:?}"));
        }
    }
    let subscribed = newest(|what| what == What::Subscribed).is_some();
    if billing.stripe_subscription_id.is_some() != subscribed {
        wrong.push(format!("subscription {:?}", billing.stripe_subscription_id));
    }
    let last = newest(|_| true);
    let mut last = news.iter().filter(|n| Some(n.at) == last);
    let (Some(last), None) = (last.next(), last.next()) else { return wrong };
    let on_trial = office.trial_end.is_some_and(|end| last.at < end);
    let status = billing.status;
    let so = match last.what {
        What::Paid => status != Status::PastDue,
        What::NotPaid => status == Status::PastDue,
        What::Subscribed if on_trial => status == Status::EarlyPayment,
        What::Subscribed => status == Status::Active,
        What::WillEnd => status == Status::Canceling,
        What::GoesOn => status != Status::Canceling,
        What::Ended => status == Status::Canceled,
    };
    if !so {
        wrong.push(format!("{} after {:?}", status.as_str(), last.what));
    }
    wrong
}
