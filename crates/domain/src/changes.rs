//! One transaction, as data.
//!
//! A decision returns [`Changes`]; the store performs all of them or none. Because it is data, the
//! store may put many callers' changes into one transaction and one flush. Each write states what it
//! expects to find; if it finds something else, the whole `Changes` fails and its neighbours do not.

use uuid::Uuid;

use crate::alert::{Alert, AlertResolution, NewAlert};
use crate::audit::NewAudit;
use crate::billing::Billing;
use crate::case::{CaseClosing, CaseResolution, NewCase};
use crate::effect::{EffectId, NewEffect, Verdict};
use crate::lane::Lane;
use crate::ledger::{LedgerKey, LedgerSettlement, NewLedgerEntry};
use crate::mail::Delivery;
use crate::mail::batch::Batch;
use crate::mail::control::Control;
use crate::message::gate::{FlowControl, Queue};
use crate::message::group::Group;
use crate::message::keys::SigningKeys;
use crate::message::schedule::Schedule;
use crate::message::{LogLine, Message};
use crate::outcome::Exchange;
use crate::payment::{Payment, Refund};
use crate::race::NewRace;
use crate::render::Render;
use crate::reservation::Reservation;
use crate::time::Timestamp;
use crate::webhook::WebhookEvent;

/// Everything that is to be written together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Changes {
    writes: Vec<Write>,
}

impl Changes {
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub fn with(mut self, write: Write) -> Self {
        self.writes.push(write);
        self
    }

    pub fn push(&mut self, write: Write) {
        self.writes.push(write);
    }

    pub fn extend(&mut self, other: Self) {
        self.writes.extend(other.writes);
    }

    #[must_use]
    pub fn writes(&self) -> &[Write] {
        &self.writes
    }

    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.writes.is_empty()
    }
}

impl From<Write> for Changes {
    fn from(write: Write) -> Self {
        Self { writes: vec![write] }
    }
}

/// One write, with what it expects to find.
///
/// The store performs the kinds in the order in which they stand here, whatever their order in the
/// `Changes`: the ledger first, then the outbox, then what explains it.
#[derive(Clone, Debug, PartialEq)]
pub enum Write {
    /// A first request under a key. Expects the key to be new or expired.
    LedgerAccept(NewLedgerEntry),
    /// The end of a request. Expects the entry to be absent, or to have the same digest and not to
    /// have succeeded before.
    LedgerSettle(LedgerSettlement),
    /// A requeue opens a failed entry again. Expects nothing: there may be no entry.
    LedgerReopen(LedgerTouch),
    /// A replay was answered. Expects nothing.
    LedgerSeen(LedgerTouch),
    /// A new payment, without its refunds. Expects its id to be new.
    PaymentInsert(Box<Payment>),
    /// A payment as it is now, without its refunds. Expects the version before this one.
    PaymentUpdate(Box<Payment>),
    /// A new refund. Its payment is updated in the same changes.
    RefundInsert(Box<Refund>),
    /// A refund as it is now. Its payment is updated in the same changes.
    RefundUpdate(Box<Refund>),
    /// A reservation as it is now. Expects the version before this one, and its slot to be free if it is
    /// to have it. Before the inserts: it may set its slot free.
    ReservationUpdate(Box<Reservation>),
    /// A new reservation. Expects its key and its slot to be free.
    ReservationInsert(Box<Reservation>),
    /// An event from outside. Expects its id to be new to its source.
    WebhookInsert(Box<WebhookEvent>),
    /// An event as it is now. Expects the version before this one.
    WebhookUpdate(Box<WebhookEvent>),
    /// A new billing. Expects its office and its customer to be new.
    BillingInsert(Box<Billing>),
    /// A billing as it is now. Expects the version before this one.
    BillingUpdate(Box<Billing>),
    /// A new render. Expects its id to be new.
    RenderInsert(Box<Render>),
    /// A render as it is now. Expects the version before this one.
    RenderUpdate(Box<Render>),
    /// A message leaves the hands of a worker that has not attempted it. Expects it to be in them.
    LetGo(LetGo),
    /// A message as it is now. Expects the version before this one.
    MessageUpdate(Box<Message>),
    /// A new message. Expects its key to be free.
    MessageInsert(Box<Message>),
    /// A new queue. Expects its name to be free; so do the other named things.
    QueueInsert(Box<Queue>),
    QueueUpdate(Box<Queue>),
    FlowInsert(Box<FlowControl>),
    FlowUpdate(Box<FlowControl>),
    GroupInsert(Box<Group>),
    GroupUpdate(Box<Group>),
    ScheduleInsert(Box<Schedule>),
    ScheduleUpdate(Box<Schedule>),
    KeysInsert(Box<SigningKeys>),
    KeysUpdate(Box<SigningKeys>),
    /// A new effect. Expects its key to be free.
    Enqueue(NewEffect),
    /// The end of an attempt. Expects the lease to be held.
    Settle(Settle),
    /// The end of an effect's lease without an attempt. Expects the lease to be held.
    Release(Release),
    /// A person's wish to try again. Expects the effect to be aborted.
    Requeue(Requeue),
    /// Another time for an effect. Expects that it waits for one.
    Reschedule(Reschedule),
    /// The end of an effect that is not wanted any more. Expects nothing: if it is in a worker's hands,
    /// that one decides.
    Withdraw(Withdraw),
    /// The record of one try.
    Attempt(Attempt),
    /// A person's decision. Expects the case to be open.
    CloseCase(CaseClosing),
    OpenCase(NewCase),
    /// Expects nothing: the case may have been closed by somebody else.
    ResolveCase(CaseResolution),
    PaymentLine(PaymentLine),
    MessageLog(Box<LogLine>),
    /// An alert as it is now. Expects the version before this one.
    AlertUpdate(Box<Alert>),
    /// A new alert. Expects that none of its rule and subject is firing.
    AlertInsert(Box<Alert>),
    /// Counts one more, if it is firing already.
    FireAlert(NewAlert),
    /// Expects nothing: it may not have been firing.
    ResolveAlert(AlertResolution),
    Race(NewRace),
    Audit(Box<NewAudit>),
    /// A new mail. Expects its key to be free.
    MailInsert(Box<Delivery>),
    /// A mail as it is now. Expects the version before this one.
    MailUpdate(Box<Delivery>),
    /// A new batch of mails. Expects its key to be free.
    MailBatchInsert(Box<Batch>),
    MailBatchUpdate(Box<Batch>),
    /// The mail lane as it is now. Expects the version before this one.
    MailControlUpdate(Box<Control>),
}

/// A line of a payment's timeline.
#[derive(Clone, Debug, PartialEq)]
pub struct PaymentLine {
    pub payment_id: Uuid,
    /// The version that the payment got with it.
    pub version: i64,
    /// The first, second, … line of that version.
    pub number: u32,
    pub at: Timestamp,
    /// `accepted`, `attempt`, `check`, `transition`, …
    pub kind: &'static str,
    /// JSON text.
    pub entry: String,
}

/// An entry, and when something happened to it.
#[derive(Clone, Debug, PartialEq)]
pub struct LedgerTouch {
    pub key: LedgerKey,
    pub now: Timestamp,
}

/// The proof that an effect is ours to write about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Lease {
    pub id: EffectId,
    pub fence: i64,
}

/// The end of a lease that a message carries itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LetGo {
    pub id: EffectId,
    /// For whoever takes it away: expects that its holder was not heard of after this moment.
    pub unheard_since: Option<Timestamp>,
}

/// The end of a lease without an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Release {
    pub lease: Lease,
    pub now: Timestamp,
    /// Not before.
    pub run_at: Timestamp,
}

/// The end of an attempt.
#[derive(Clone, Debug, PartialEq)]
pub struct Settle {
    pub lease: Lease,
    pub verdict: Verdict,
    pub now: Timestamp,
    /// When the row may be pruned, if this settles it.
    pub expires_at: Timestamp,
    /// For whoever takes a lapsed effect back: expects that its worker was not heard of after this
    /// moment. It may have come back since it was found lapsed.
    pub unheard_since: Option<Timestamp>,
}

/// A person's wish to try an effect again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requeue {
    pub id: EffectId,
    /// The person knows that no earlier attempt took effect.
    pub without_doubt: bool,
    pub now: Timestamp,
}

/// Another time for an effect that waits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reschedule {
    pub id: EffectId,
    pub lane: Lane,
    pub run_at: Timestamp,
}

/// The end of an effect that is not wanted any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Withdraw {
    pub id: EffectId,
    pub now: Timestamp,
    /// Why, for the row.
    pub code: &'static str,
}

/// The record of one try: what was sent, when, what came back.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    pub lease: Lease,
    pub worker: String,
    pub started_at: Timestamp,
    pub finished_at: Timestamp,
    /// `done`, `refused`, `busy`, `lost`, `lapsed`, …
    pub outcome: &'static str,
    pub code: Option<String>,
    pub message: Option<String>,
    pub exchange: Option<Exchange>,
}
