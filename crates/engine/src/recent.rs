//! Messages that this process has just written or read, so that it need not read them again.
//!
//! What was asked of a message never changes, and where it stands is checked by its version when it is
//! written: an entry that is out of date costs one more read and nothing else.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tashika_domain::message::Message;
use uuid::Uuid;

/// Bytes that are kept at most.
const BUDGET: usize = 64 * 1024 * 1024;
/// Messages that are kept at most.
const MESSAGES: usize = 100_000;

#[derive(Debug, Default)]
pub struct Recent(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    messages: HashMap<Uuid, Message>,
    /// In the order in which they came; also of some that have been taken.
    order: VecDeque<Uuid>,
    bytes: usize,
}

impl Recent {
    pub fn put(&self, message: Message) {
        let mut kept = self.lock();
        let id = message.id;
        kept.bytes += weight(&message);
        match kept.messages.insert(id, message) {
            Some(old) => kept.bytes -= weight(&old),
            None => kept.order.push_back(id),
        }
        while kept.bytes > BUDGET || kept.order.len() > MESSAGES {
            let Some(oldest) = kept.order.pop_front() else { break };
            kept.forget(oldest);
        }
    }

    pub fn take(&self, id: Uuid) -> Option<Message> {
        self.lock().forget(id)
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn forget(&mut self, id: Uuid) -> Option<Message> {
        let message = self.messages.remove(&id)?;
        self.bytes -= weight(&message);
        Some(message)
    }
}

/// About how much memory a message takes: a small body may come with large headers.
fn weight(message: &Message) -> usize {
    let headers = message.asked.headers.iter();
    let headers: usize = headers
        .map(|(name, values)| name.len() + values.iter().map(String::len).sum::<usize>())
        .sum();
    size_of::<Message>() + message.body.len() + message.asked.url.len() + headers
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tashika_domain::Timestamp;
    use tashika_domain::message::asked::{Asked, Headers};
    use tashika_domain::message::{Begin, Draft, accept};

    use super::*;

    fn message(number: u128, body: usize, header: usize) -> Message {
        let now = Timestamp::from_micros(0);
        let headers = Headers::from([("X".into(), vec!["x".repeat(header)])]);
        let (message, _) = accept(Draft {
            id: Uuid::from_u128(number),
            asked: Asked { headers, ..Asked::default() }.into(),
            body: Arc::from(vec![0; body]),
            not_before: None,
            dedup_key: None,
            holds: None,
            traceparent: None,
            now,
            expires_at: now,
            begin: Begin::Due,
        });
        message
    }

    #[test]
    fn what_is_taken_is_gone() {
        let recent = Recent::default();
        let (first, second) = (message(1, 10, 0), message(1, 20, 0));
        recent.put(first);
        recent.put(second.clone());
        assert_eq!(recent.take(second.id), Some(second.clone()), "the newest");
        assert_eq!(recent.take(second.id), None);
        assert_eq!(recent.lock().bytes, 0);
    }

    #[test]
    fn bodies_and_headers_stay_within_the_budget() {
        let recent = Recent::default();
        for number in 0..20 {
            recent.put(message(number, BUDGET / 16, 0));
            recent.put(message(100 + number, 0, BUDGET / 16));
            assert!(recent.lock().bytes <= BUDGET);
        }
        assert_eq!(recent.take(Uuid::from_u128(0)), None, "the oldest goes first");
        assert!(recent.take(Uuid::from_u128(119)).is_some());
    }
}
