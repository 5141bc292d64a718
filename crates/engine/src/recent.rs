//! Messages that this process has just written or read, so that it need not read them again.
//!
//! What was asked of a message never changes, and where it stands is checked by its version when it is
//! written: an entry that is out of date costs one more read and nothing else.

use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tashika_domain::message::Message;
use uuid::Uuid;

/// Bytes of bodies that are kept at most.
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
        kept.bytes += message.body.len();
        match kept.messages.insert(id, message) {
            Some(old) => kept.bytes -= old.body.len(),
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
        self.bytes -= message.body.len();
        Some(message)
    }
}
