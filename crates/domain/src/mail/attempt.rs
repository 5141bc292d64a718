//! An attempt begins: the mark that is durable before anything is sent.

use uuid::Uuid;

use crate::changes::{Changes, Write};
use crate::time::Timestamp;

use super::batch::BatchStatus;
use super::{Delivery, Sending, Status, reopen};

/// What a worker may do with the effect that it has.
#[derive(Clone, Debug, PartialEq)]
pub enum Begin {
    /// Send it, once `changes` are written.
    Go { delivery: Box<Delivery>, changes: Changes },
    /// There is nothing to send: it has ended, or another effect has taken over.
    Over,
    /// It was cancelled, or its batch was, and it is not under way; a mark that it still has goes.
    Cancelled,
    /// Somebody else is sending it. Our lease is an old one.
    Elsewhere,
}

/// What a worker has of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MailLease {
    pub effect_id: Uuid,
    pub fence: i64,
    /// The fence of whoever has the delivery's effect now, if anybody has.
    pub held: Option<i64>,
}

/// Whether a delivery may be sent now, under this lease.
///
/// Whoever has slept past the end of his lease finds that another has it, or that the attempts are over: what
/// looks like a mail that a person has requeued may be one that failed in other hands meanwhile.
///
/// What is found marked with an older fence was under way when its worker was lost without a trace:
/// it may have arrived.
#[must_use]
pub fn begin(
    delivery: &Delivery,
    batch: Option<BatchStatus>,
    lease: MailLease,
    now: Timestamp,
) -> Begin {
    let MailLease { effect_id, fence, held } = lease;
    if delivery.effect_id != Some(effect_id) {
        return Begin::Over;
    }
    if held != Some(fence) || delivery.sending.is_some_and(|sending| sending.fence >= fence) {
        return Begin::Elsewhere;
    }
    let stopped = matches!(batch, Some(BatchStatus::Cancelled | BatchStatus::Aborted));
    let opened = match delivery.status {
        Status::Queued if stopped => return Begin::Cancelled,
        Status::Queued => delivery.clone(),
        // Cancelled, and left behind with its mark: what is requeued has none.
        Status::PossiblySent if stopped && delivery.sending.is_some() => return Begin::Cancelled,
        Status::Cancelled if delivery.sending.is_some() => return Begin::Cancelled,
        // An operator has requeued the effect itself.
        Status::Failed | Status::PossiblySent => match reopen(delivery, now) {
            Some(opened) => opened,
            None => return Begin::Over,
        },
        Status::Sent | Status::Cancelled => return Begin::Over,
    };
    let begun = Delivery {
        version: delivery.version + 1,
        effect_id: Some(effect_id),
        possibly_duplicate: opened.possibly_duplicate || delivery.sending.is_some(),
        sending: Some(Sending { since: now, fence }),
        ..opened
    };
    let changes = Write::MailUpdate(Box::new(begun.clone())).into();
    Begin::Go { delivery: Box::new(begun), changes }
}
