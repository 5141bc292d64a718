//! What the clients remember: what they asked for, and what they were told.
//!
//! Only what was told counts as promised. Whoever has a key and has not heard an answer asks again.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use uuid::Uuid;

/// What a client wants sent under a key, or without one.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wish {
    pub key: Option<String>,
    pub what: What,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum What {
    Mail(Value),
    Batch(Vec<String>),
    /// Notifications that are due now, or later.
    Deadlines(Value),
}

/// What a client was told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Heard {
    Taken {
        id: Uuid,
        replayed: bool,
    },
    Conflict,
    /// Somebody else is at it: later.
    InProgress,
    Nothing,
}

#[derive(Default)]
pub(crate) struct Book {
    numbers: u64,
    /// What was sent under a key, the first that was taken and its id.
    keys: BTreeMap<String, Entry>,
    mails: Vec<Uuid>,
    batches: Vec<Uuid>,
    taken_as_new: BTreeSet<Uuid>,
    /// Effects of mails that a person has had tried again, whatever had become of their batch.
    requeued: BTreeSet<Uuid>,
    flights: BTreeMap<u64, Wish>,
    todo: Vec<Wish>,
    acting: u32,
}

#[derive(Clone, Debug, Default)]
struct Entry {
    wishes: Vec<What>,
    taken: Option<(usize, Uuid)>,
}

impl Book {
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub fn keys(&self) -> Vec<String> {
        self.keys.keys().cloned().collect()
    }

    /// The first thing that was sent under a key.
    pub fn first(&self, key: &str) -> Option<Wish> {
        let what = self.keys.get(key)?.wishes.first()?.clone();
        Some(Wish { key: Some(key.to_owned()), what })
    }

    pub fn mails(&self) -> &[Uuid] {
        &self.mails
    }

    pub fn batches(&self) -> &[Uuid] {
        &self.batches
    }

    /// A person is about to requeue the effect of a mail.
    pub fn requeues(&mut self, effect: Uuid) {
        self.requeued.insert(effect);
    }

    pub fn was_requeued(&self, effect: Uuid) -> bool {
        self.requeued.contains(&effect)
    }

    pub fn begin(&mut self, wish: &Wish) -> u64 {
        let number = self.number();
        if let Some(key) = &wish.key {
            let wishes = &mut self.keys.entry(key.clone()).or_default().wishes;
            if !wishes.contains(&wish.what) {
                wishes.push(wish.what.clone());
            }
        }
        self.flights.insert(number, wish.clone());
        number
    }

    /// A client hears what became of its wish. An error is an answer that it must not get.
    pub fn end(&mut self, number: u64, heard: Heard) -> Result<(), String> {
        let Some(wish) = self.flights.remove(&number) else { return Ok(()) };
        match heard {
            Heard::Nothing | Heard::InProgress => {
                // Without a key nobody could tell a repeat from a second wish.
                if wish.key.is_some() {
                    self.todo.push(wish);
                }
                Ok(())
            }
            Heard::Conflict => {
                let entry = wish.key.as_ref().and_then(|key| self.keys.get(key));
                let alone = entry.is_none_or(|entry| entry.wishes.len() == 1);
                if alone {
                    Err("a conflict, but there is no other wish".to_owned())
                } else {
                    Ok(())
                }
            }
            Heard::Taken { id, replayed } => self.taken(&wish, id, replayed),
        }
    }

    fn taken(&mut self, wish: &Wish, id: Uuid, replayed: bool) -> Result<(), String> {
        let list = match wish.what {
            What::Mail(_) => &mut self.mails,
            What::Batch(_) | What::Deadlines(_) => &mut self.batches,
        };
        if !list.contains(&id) {
            list.push(id);
        }
        // Of two who asked at the same moment, the one who was told of a repeat may hear it first.
        if !replayed && !self.taken_as_new.insert(id) {
            return Err(format!("{id} was taken as new twice"));
        }
        let Some(entry) = wish.key.as_ref().and_then(|key| self.keys.get_mut(key)) else {
            return Ok(());
        };
        let which = entry.wishes.iter().position(|what| *what == wish.what).unwrap_or(0);
        match *entry.taken.get_or_insert((which, id)) {
            (first, known) if first == which && known == id => Ok(()),
            (_, known) => Err(format!("{known} has the key, and now {id}")),
        }
    }

    pub fn take_todo(&mut self) -> Option<Wish> {
        self.todo.pop()
    }

    /// The process has ended: nobody will hear anything from it any more.
    pub fn process_ended(&mut self) -> usize {
        let unheard: Vec<u64> = self.flights.keys().copied().collect();
        for number in &unheard {
            // An answer that was not heard breaks no promise.
            self.end(*number, Heard::Nothing).ok();
        }
        self.acting = 0;
        unheard.len()
    }

    /// Somebody with another wish begins or has done.
    pub fn act(&mut self, begins: bool) {
        self.acting = if begins { self.acting + 1 } else { self.acting.saturating_sub(1) };
    }

    pub fn waiting(&self) -> usize {
        self.flights.len()
    }

    /// What is still to be done or heard, in words.
    pub fn outstanding(&self) -> String {
        let Self { todo, flights, acting, .. } = self;
        let (todo, flights) = (todo.len(), flights.len());
        format!("{todo} to try again, {flights} wait for an answer, {acting} act")
    }

    /// Every client knows where it stands.
    pub fn is_quiet(&self) -> bool {
        self.todo.is_empty() && self.flights.is_empty() && self.acting == 0
    }
}
