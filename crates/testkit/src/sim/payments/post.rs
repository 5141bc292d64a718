//! The gateway's webhooks: what it says without being asked, as events signed like Stripe's.
//!
//! An event is delivered late, twice, after younger ones, or never. Until the gateway has heard that
//! it was taken it is sent again, under the same id and with a new signature; after that, no more.
//! Some events are about nothing that anybody here cares for, and some are not the gateway's at all.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_domain::payment::remote::{Remote, RemoteRefundState, RemoteState};
use tashika_engine::commands::webhook::Accepted;
use tashika_providers::webhook::TOLERANCE;
use uuid::Uuid;

use super::dice::{Odds, Stream};
use super::office::News;
use super::swarm;
use super::tally::Tally;

/// The latest a webhook arrives after what it is about.
const LATE_MS: u64 = 900_000;
/// The longest pause before an event is sent again.
const AGAIN_MS: u64 = 60_000;
/// How long a delivery takes; a slow one is older than its signature may be when it arrives.
const TRANSIT_MS: u64 = 2000;
const SLOW_MS: (u64, u64) = (310_000, 600_000);

/// What an event is about, and so what must become of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum About {
    Payment(Uuid),
    /// An office's subscription.
    Office(News),
    /// Nobody listens to it.
    Nothing,
    /// A bill of somebody whom nobody knows: nothing can be done about it.
    Stranger,
}

pub(crate) struct Letter {
    /// The gateway's id of the event.
    pub id: String,
    pub about: About,
    pub body: Arc<[u8]>,
    /// Not the gateway's: signed with another secret.
    pub forged: bool,
    /// Our id of the event, once it was promised that it is kept.
    pub taken: Option<Uuid>,
    /// The gateway has heard that it was taken.
    acknowledged: bool,
    dice: Stream,
}

/// One journey of an event.
#[derive(Clone, Debug)]
pub(crate) struct Delivery {
    pub letter: usize,
    /// The network delivers it once more; nobody waits for the answer.
    copy: bool,
    /// How long it has been under way when it arrives: its signature is as old as that.
    transit: Duration,
    /// The gateway does not hear the answer.
    unheard: bool,
    /// The gateway takes the connection with it when its patience ends.
    pub hangs_up: bool,
    /// Our id of the event, if it was promised before this delivery arrived that it is kept.
    known: Option<Uuid>,
}

/// Names a delivery: when it arrives, and its number.
pub(crate) type Number = (Timestamp, u64);

/// What became of a delivery.
#[derive(Debug)]
pub(crate) enum Answer {
    Taken(Accepted),
    Refused,
    Nothing,
}

/// A delivery as it is handed over.
pub(crate) struct Parcel {
    pub body: Arc<[u8]>,
    pub signed_at: Timestamp,
    pub forged: bool,
}

#[derive(Default)]
pub(crate) struct Post {
    letters: Vec<Letter>,
    waiting: BTreeMap<Number, Delivery>,
    reading: BTreeMap<Number, Delivery>,
    numbers: u64,
    /// Nothing goes wrong any more.
    pub calm: bool,
}

impl Post {
    /// Something has happened to a payment or a subscription. `certain`: the gateway does not forget to tell.
    pub fn write(
        &mut self,
        (about, event): (About, (&'static str, Value)),
        certain: bool,
        at: Timestamp,
        mut dice: Stream,
        odds: &swarm::Post,
    ) {
        let (never, twice) = (dice.hit(odds.never), dice.hit(odds.twice));
        if !never || certain {
            self.put(about, event.clone(), (twice, false), at, dice.clone(), odds);
        }
        if dice.hit(odds.odd) && !self.calm {
            let stranger = ("invoice.payment_failed", json!({"customer": "cus_1"}));
            let (about, event, forged) = match dice.below(3) {
                0 => (About::Nothing, ("customer.created", json!({"id": "cus_1"})), false),
                1 => (About::Stranger, stranger, false),
                _ => (about, event, true),
            };
            self.put(about, event, (false, forged), at, dice, odds);
        }
    }

    fn put(
        &mut self,
        about: About,
        (kind, object): (&str, Value),
        (twice, forged): (bool, bool),
        at: Timestamp,
        dice: Stream,
        odds: &swarm::Post,
    ) {
        let letter = self.letters.len();
        let id = format!("evt_{letter:06}");
        let created = at.as_micros() / 1_000_000;
        let event = json!({"id": id, "object": "event", "created": created, "type": kind,
            "livemode": false, "data": {"object": object}});
        let body = event.to_string().into_bytes().into();
        let (taken, acknowledged) = (None, false);
        self.letters.push(Letter { id, about, body, forged, taken, acknowledged, dice });
        for copy in [false, true].into_iter().take(1 + usize::from(twice)) {
            let dice = &mut self.letters[letter].dice;
            let late = dice.hit(odds.late);
            let delay = dice.millis(1, if late { LATE_MS } else { 3000 });
            self.send(letter, copy, at, delay, odds);
        }
    }

    /// A delivery that will arrive after `delay`, or after as long as it takes.
    fn send(
        &mut self,
        letter: usize,
        copy: bool,
        now: Timestamp,
        delay: Duration,
        odds: &swarm::Post,
    ) {
        let dice = &mut self.letters[letter].dice;
        let slow = dice.hit(odds.slow) && !self.calm;
        let (low, high) = if slow { SLOW_MS } else { (1, TRANSIT_MS) };
        let transit = dice.millis(low, high);
        let unheard = dice.hit(odds.unheard) && !self.calm;
        let hangs_up = dice.hit(Odds::percent(50));
        let delivery = Delivery { letter, copy, transit, unheard, hangs_up, known: None };
        self.numbers += 1;
        self.waiting.insert((now.plus(delay.max(transit)), self.numbers), delivery);
    }

    /// Deliveries that arrive by `now`; they are in somebody's hands until they are answered.
    pub fn due(&mut self, now: Timestamp) -> Vec<(Number, Delivery)> {
        let later = self.waiting.split_off(&(now, u64::MAX));
        let mut due = std::mem::replace(&mut self.waiting, later);
        for delivery in due.values_mut() {
            delivery.known = self.letters[delivery.letter].taken;
        }
        self.reading.extend(due.clone());
        due.into_iter().collect()
    }

    pub fn parcel(&self, delivery: &Delivery, now: Timestamp) -> Parcel {
        let letter = &self.letters[delivery.letter];
        let signed_at = now.minus(delivery.transit);
        Parcel { body: Arc::clone(&letter.body), signed_at, forged: letter.forged }
    }

    /// A delivery was answered, or not. An error is a promise that was broken.
    pub fn answered(
        &mut self,
        number: Number,
        answer: Answer,
        now: Timestamp,
        odds: &swarm::Post,
    ) -> Result<Tally, String> {
        // Whoever answers after the end of its process is not heard.
        let Some(delivery) = self.reading.remove(&number) else { return Ok(Tally::WebhookUnheard) };
        let letter = &mut self.letters[delivery.letter];
        let too_old = delivery.transit > TOLERANCE;
        let tally = match answer {
            Answer::Refused if letter.forged => return Ok(Tally::WebhookForged),
            Answer::Taken(_) if letter.forged => return Err("a forgery was taken".to_owned()),
            Answer::Taken(_) if too_old => return Err("taken, and too old".to_owned()),
            Answer::Taken(accepted) => letter.promised(&accepted, &delivery)?,
            Answer::Refused if too_old => Tally::WebhookTooOld,
            Answer::Refused => return Err("refused, and it is the gateway's".to_owned()),
            Answer::Nothing => Tally::WebhookUnheard,
        };
        let again = !letter.acknowledged && !delivery.copy && !letter.forged;
        if again {
            let pause = letter.dice.millis(1000, AGAIN_MS);
            self.send(delivery.letter, false, now, pause, odds);
        }
        Ok(tally)
    }

    /// Whoever was reading is gone: what had no answer is sent again.
    pub fn process_ended(&mut self) {
        let reading = std::mem::take(&mut self.reading);
        self.waiting.extend(reading);
    }

    /// When the next delivery arrives, if any will.
    pub fn next(&self) -> Option<Timestamp> {
        self.waiting.first_key_value().map(|((at, _), _)| *at)
    }

    pub fn is_being_read(&self) -> bool {
        !self.reading.is_empty()
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_empty()
    }

    pub fn about(&self, letter: usize) -> About {
        self.letters[letter].about
    }

    pub fn letter(&self, id: &str) -> Option<&Letter> {
        let index: usize = id.strip_prefix("evt_")?.parse().ok()?;
        self.letters.get(index)
    }

    /// Events of which was promised that they are kept, youngest first.
    pub fn taken(&self) -> impl Iterator<Item = (&Letter, Uuid)> {
        self.letters.iter().rev().filter_map(|letter| Some((letter, letter.taken?)))
    }
}

impl Letter {
    fn promised(&mut self, accepted: &Accepted, delivery: &Delivery) -> Result<Tally, String> {
        let Accepted { event_id, message_id, duplicate } = accepted;
        if *event_id != self.id {
            return Err(format!("it was taken as {event_id}"));
        }
        let known = *self.taken.get_or_insert(*message_id);
        if known != *message_id {
            return Err(format!("it is kept as {known} and as {message_id}"));
        }
        if delivery.known.is_some() && !duplicate {
            return Err("it was kept before, and is taken for a new one".to_owned());
        }
        let heard = !delivery.copy && !delivery.unheard;
        self.acknowledged |= heard;
        Ok(match (heard, duplicate) {
            (_, true) => Tally::WebhookDuplicate,
            (true, false) => Tally::WebhookTaken,
            (false, false) => Tally::WebhookTakenUnheard,
        })
    }
}

/// The type of an event, and the object that it shows.
pub(super) fn told(payment: Uuid, remote: &Remote) -> (&'static str, Value) {
    let mut refunds = remote.refunds.iter().flatten();
    let bounced = refunds.any(|refund| refund.state == RemoteRefundState::Failed);
    let (kind, status) = match remote.state {
        RemoteState::Captured if bounced => ("charge.refund.updated", "succeeded"),
        RemoteState::Captured => ("payment_intent.succeeded", "succeeded"),
        RemoteState::Authorized => ("payment_intent.amount_capturable_updated", "requires_capture"),
        RemoteState::Voided => ("payment_intent.canceled", "canceled"),
        _ => ("payment_intent.payment_failed", "requires_payment_method"),
    };
    let object = json!({"id": remote.gateway_id, "object": "payment_intent", "status": status,
        "metadata": {"payment_id": payment}});
    (kind, object)
}
