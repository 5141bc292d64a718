//! The post office: what everybody who has to do with mail shares, and the leave to send one.

use std::sync::Arc;
use std::time::Duration;

use metrics::{counter, gauge};
use tashika_domain::audit::Actor;
use tashika_domain::mail::batch::Ahead;
use tashika_domain::mail::conclude::Patience;
use tashika_domain::mail::control::{self, Control, LaneState};
use tashika_domain::mail::pace::{Leave, Limits};
use tashika_domain::{Changes, Lane, Timestamp};
use tashika_providers::mail::Postman;
use tashika_providers::templates::Templates;
use tashika_store::{CommitError, PermitWish, Store, StoreError};
use tokio::sync::Mutex;
use uuid::Uuid;

use crate::clock::{Clock, Ids};
use crate::valve::Valve;

/// A worker waits for a permit for so long before it gives the mail back.
const PATIENCE: Duration = Duration::from_secs(2);
/// Between the bound of an attempt and the moment at which its permit ends by itself.
const PERMIT_MARGIN: Duration = Duration::from_secs(10);
/// Batches are fed so far ahead of what can be sent, and at least so many mails.
const AHEAD: Duration = Duration::from_secs(20);
const AHEAD_LEAST: i64 = 100;
const FEED_EVERY: Duration = Duration::from_secs(5);

/// What the operator has set.
#[derive(Clone, Debug)]
pub struct MailRules {
    /// `MAIL_FROM`.
    pub from: String,
    /// `MAIL_TIMEOUT_MS`.
    pub timeout: Duration,
    pub patience: Patience,
    pub limits: Limits,
    /// How long the lane is parked when the server says that its quota is used up.
    pub park: Duration,
    /// Between two probes of a server that refuses us.
    pub probe_every: Duration,
    /// A closed lane is looked at so often: somebody may have opened it.
    pub look_every: Duration,
    /// How long settled effects are kept.
    pub keep: Duration,
    /// Whether mails stay inside: then there is an inbox to look into.
    pub sandbox: bool,
}

impl MailRules {
    /// Names our machines in Message-IDs.
    pub(crate) fn domain(&self) -> &str {
        self.from.rsplit_once('@').map_or("localhost", |(_, domain)| domain)
    }

    #[expect(clippy::cast_possible_truncation, reason = "a number of mails, far below the limit")]
    pub(crate) fn ahead(&self, waiting: i64) -> Ahead {
        let most = (self.limits.rate_per_sec * AHEAD.as_secs_f64()) as i64;
        Ahead { most: most.max(AHEAD_LEAST), waiting, look_again: FEED_EVERY }
    }
}

pub struct PostOffice {
    pub store: Store,
    pub clock: Clock,
    pub ids: Ids,
    pub postman: Arc<dyn Postman>,
    pub templates: Arc<Templates>,
    pub rules: MailRules,
    /// Closes the lane in this process.
    pub valve: Arc<Valve>,
    /// Names this process where it holds permits.
    pub worker: String,
    /// One asks at a time, in the order in which they came.
    asking: Mutex<()>,
}

/// The right to send one mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Permit {
    id: Uuid,
    taken_at: Timestamp,
}

/// What came of asking for leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    Go(Permit),
    /// Not before this.
    Later(Timestamp),
}

impl PostOffice {
    #[must_use]
    pub fn new(
        store: Store,
        clock: Clock,
        ids: Ids,
        postman: Arc<dyn Postman>,
        templates: Arc<Templates>,
        rules: MailRules,
        worker: String,
    ) -> Self {
        let (valve, asking) = (Arc::default(), Mutex::default());
        Self { store, clock, ids, postman, templates, rules, valve, worker, asking }
    }

    /// Asks for leave to send a mail: the pace, the quota and the state of the lane, of all processes
    /// together.
    pub(crate) async fn ask(&self) -> Result<Asked, StoreError> {
        let began = self.clock.now();
        let _turn = self.asking.lock().await;
        loop {
            let now = self.clock.now();
            let wish = PermitWish {
                id: self.ids.uuid(),
                worker: self.worker.clone(),
                now,
                limits: self.rules.limits,
                at_most: self.rules.timeout + self.rules.limits.rest() + PERMIT_MARGIN,
            };
            let id = wish.id;
            let answer = self.store.take_mail_permit(wish).await?;
            let control = &answer.found.control;
            let taken = i64::from(answer.leave == Leave::Granted);
            self.gauges(answer.found.used + taken, answer.found.permits + taken);
            match answer.leave {
                Leave::Granted => {
                    if control.has_recovered(now) {
                        self.note(control::reopen(control, Actor::SYSTEM, now)).await?;
                    }
                    return Ok(Asked::Go(Permit { id, taken_at: now }));
                }
                Leave::Wait(wait) if now.since(began) < PATIENCE => self.clock.sleep(wait).await,
                Leave::Wait(wait) => return Ok(Asked::Later(now.plus(wait))),
                Leave::UsedUp { until } => {
                    let why = "MAIL_DAILY_QUOTA is used up";
                    if self.note(control::park(control, until, why, now)).await? {
                        tracing::warn!(%until, "the quota of mails is used up: the lane is parked");
                    }
                    return Ok(Asked::Later(self.closed(until)));
                }
                Leave::Closed => {
                    if let Some(at) = self.wait_or_probe(control, now).await? {
                        return Ok(Asked::Later(at));
                    }
                }
            }
        }
    }

    /// Whether a permit outlasts an attempt that begins now, and that may take longer than its bound
    /// by `grace`.
    pub(crate) fn covers(&self, permit: Permit, grace: Duration) -> bool {
        self.clock.now() <= permit.taken_at.plus(PERMIT_MARGIN.saturating_sub(grace))
    }

    /// The attempt is over. `unsent`: it is certain that the server has not taken the mail.
    pub(crate) async fn end(&self, permit: Permit, unsent: bool) {
        let now = self.clock.now();
        let rest = self.rules.limits.rest();
        let ended = self.store.end_mail_permit(permit.id, permit.taken_at, rest, unsent, now).await;
        if let Err(error) = ended {
            // It ends by itself, only later.
            tracing::warn!(%error, "a permit to send could not be given back");
        }
    }

    /// The lane is closed: until when, or `None` if it has just opened.
    async fn wait_or_probe(
        &self,
        control: &Control,
        now: Timestamp,
    ) -> Result<Option<Timestamp>, StoreError> {
        let until = control.until.unwrap_or(now);
        if !control.wants_probe(now) {
            return Ok(Some(self.closed(until)));
        }
        let next_at = now.plus(self.rules.probe_every);
        if !self.note(control::probing(control, next_at, now)).await? {
            // Somebody else does it.
            return Ok(Some(self.closed(next_at)));
        }
        let probe = self.postman.probe();
        let found = match tokio::time::timeout(self.rules.timeout, probe).await {
            Ok(found) => found,
            Err(_) => Err("no answer in time".to_owned()),
        };
        if let Err(reason) = found {
            counter!("mail_probes_total", "outcome" => "refused").increment(1);
            tracing::warn!(reason, "the mail server still refuses us");
            return Ok(Some(self.closed(next_at)));
        }
        counter!("mail_probes_total", "outcome" => "accepted").increment(1);
        self.resume(Actor::SYSTEM).await?;
        Ok(None)
    }

    /// Opens the lane. False if it was open.
    pub(crate) async fn resume(&self, actor: Actor) -> Result<bool, StoreError> {
        loop {
            let (control, now) = (self.store.mail_control().await?, self.clock.now());
            if control.state == LaneState::Open {
                self.open();
                return Ok(false);
            }
            if self.note(control::reopen(&control, actor.clone(), now)).await? {
                tracing::info!("the mail lane is open again");
                self.open();
                return Ok(true);
            }
        }
    }

    fn open(&self) {
        self.valve.open();
        self.store.wakeups().mark(&Lane::MAIL);
    }

    /// Closes the lane in this process, for a while and at most until `until`.
    pub(crate) fn closed(&self, until: Timestamp) -> Timestamp {
        let at = until.min(self.clock.now().plus(self.rules.look_every));
        self.valve.close_until(at);
        at
    }

    /// Writes about the lane. False if somebody else has written meanwhile.
    async fn note(&self, changes: Changes) -> Result<bool, StoreError> {
        match self.store.commit(changes).await {
            Ok(()) => Ok(true),
            Err(CommitError::Store(error)) => Err(error),
            Err(_) => Ok(false),
        }
    }

    #[expect(clippy::cast_precision_loss, reason = "a gauge shows a magnitude")]
    fn gauges(&self, used: i64, permits: i64) {
        let quota = self.rules.limits.daily_quota;
        if quota > 0 {
            gauge!("mail_quota_left").set((quota - used).max(0) as f64);
        }
        gauge!("mail_rate_in_use").set(permits as f64);
    }
}
