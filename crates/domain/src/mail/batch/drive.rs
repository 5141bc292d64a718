//! The driver of a batch: one step at a time, each with the batch's next version.

use std::time::Duration;

use uuid::Uuid;

use crate::changes::{Changes, Write};
use crate::time::Timestamp;

use super::{Batch, BatchStatus, RECEIVE_PATIENCE, Work, abort, driver};
use crate::mail::{Delivery, Status, cancel, feed, reopen};

/// Deliveries that a driver reads and writes at once.
pub const PAGE: i64 = 500;
/// Of those that workers may be busy with, fewer: each of them may have moved on meanwhile.
pub(super) const BUSY_PAGE: usize = 20;

/// What a driver wants to see before it takes its next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Look {
    /// Deliveries of this status, after this one, at most so many.
    Page {
        status: Status,
        after: Option<Uuid>,
        limit: i64,
    },
    Nothing,
}

/// How far ahead of the lane a driver feeds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Ahead {
    /// Effects that may wait in the lane.
    pub most: i64,
    /// Effects that do wait.
    pub waiting: i64,
    /// Until the next look, when there is enough.
    pub look_again: Duration,
}

#[must_use]
pub fn look(batch: &Batch, ahead: Ahead) -> Look {
    match (&batch.status, &batch.work) {
        (BatchStatus::Receiving | BatchStatus::Scheduled, _) | (_, Work::Nothing) => Look::Nothing,
        (_, Work::Feed { after }) => {
            let room = (ahead.most - ahead.waiting).clamp(0, PAGE);
            match room {
                0 => Look::Nothing,
                limit => Look::Page { status: Status::Queued, after: *after, limit },
            }
        }
        (_, Work::Cancel) => Look::Page { status: Status::Queued, after: None, limit: PAGE },
        (_, Work::Reopen { statuses, after }) => {
            match statuses.first().and_then(|text| Status::parse(text)) {
                Some(status) => Look::Page { status, after: *after, limit: PAGE },
                None => Look::Nothing,
            }
        }
    }
}

/// One step of the driver of run `run`, having seen `page`, and when the next one is due.
#[must_use]
pub fn drive(
    batch: &Batch,
    run: i64,
    page: &[Delivery],
    ahead: Ahead,
    now: Timestamp,
    expires_at: Timestamp,
) -> Changes {
    if run != batch.run {
        return Changes::new();
    }
    if batch.status == BatchStatus::Receiving {
        let patience_ends = batch.updated_at.plus(RECEIVE_PATIENCE);
        if now >= patience_ends {
            return abort(batch, now, expires_at).map_or_else(|_| Changes::new(), |(_, all)| all);
        }
        return driver(batch, patience_ends, now, expires_at).into();
    }
    let mut changes = Changes::new();
    let (work, next_at) = match &batch.work {
        Work::Nothing => return changes,
        Work::Feed { .. } => {
            for delivery in page.iter().filter(|delivery| delivery.effect_id.is_none()) {
                changes.extend(feed(delivery, now, expires_at).1);
            }
            let room = ahead.most - ahead.waiting;
            match page.last() {
                None if room <= 0 => (batch.work.clone(), Some(now.plus(ahead.look_again))),
                None => (Work::Nothing, None),
                Some(last) => {
                    let more = i64::try_from(page.len()).unwrap_or(PAGE) < room;
                    let next = if more { now } else { now.plus(ahead.look_again) };
                    (Work::Feed { after: Some(last.id) }, Some(next))
                }
            }
        }
        Work::Cancel => match cancelling(page, now) {
            writes if writes.is_empty() => (Work::Nothing, None),
            writes => {
                changes.extend(writes);
                (Work::Cancel, Some(now))
            }
        },
        Work::Reopen { statuses, .. } => {
            for opened in page.iter().filter_map(|delivery| reopen(delivery, now)) {
                changes.push(Write::MailUpdate(Box::new(opened)));
            }
            let work = match page.last() {
                Some(last) => Work::Reopen { statuses: statuses.clone(), after: Some(last.id) },
                None if statuses.len() > 1 => {
                    Work::Reopen { statuses: statuses[1..].to_vec(), after: None }
                }
                None => Work::Feed { after: None },
            };
            (work, Some(now))
        }
    };
    let after = Batch { work, version: batch.version + 1, updated_at: now, ..batch.clone() };
    if let Some(next_at) = next_at {
        changes.push(driver(&after, next_at, now, expires_at));
    }
    changes.push(Write::MailBatchUpdate(Box::new(after)));
    changes
}

/// Those whose turn has not come all at once, the others few at a time: workers may be busy with them.
fn cancelling(page: &[Delivery], now: Timestamp) -> Changes {
    let mut changes = Changes::new();
    let untouched = page.iter().filter(|delivery| delivery.effect_id.is_none());
    let busy = page.iter().filter(|delivery| delivery.effect_id.is_some());
    for after in untouched.chain(busy.take(BUSY_PAGE)).filter_map(|found| cancel(found, now)) {
        changes.push(Write::MailUpdate(Box::new(after)));
    }
    changes
}
