//! What the customers remember: what they asked for under which key, and what they were told.
//!
//! Only what was told counts as promised. An answer that died with the process, or came after the
//! customer had left, leaves an attempt unheard; it is made again with the same key.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;
use uuid::Uuid;

use super::log::Violation;

/// One key, and everything that was said about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// More than one is a customer's mistake.
    pub bodies: Vec<Value>,
    /// Which of them was taken, and as which reservation.
    pub taken: Option<(usize, Uuid)>,
}

/// What a customer hears who wants a slot.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    Held(Uuid),
    Conflict,
    SlotTaken,
    /// Nothing: it left, or the process died.
    Nothing,
    /// An answer that it must not get.
    Wrong(String),
}

#[derive(Clone, Debug)]
struct Flight {
    key: String,
    body: usize,
    before: Option<usize>,
}

#[derive(Default)]
pub(crate) struct Book {
    entries: BTreeMap<String, Entry>,
    /// Keys in the order in which they were made.
    order: Vec<String>,
    /// Reservations that customers know of, oldest first.
    known: Vec<Uuid>,
    /// Those of which their owners were told that they are cancelled.
    cancelled: BTreeSet<Uuid>,
    /// Pages whose customer has decided what to do.
    decided: BTreeSet<Uuid>,
    /// Attempts whose answer is outstanding, and what had been taken under their key when they began.
    flights: BTreeMap<u64, Flight>,
    todo: Vec<(String, usize)>,
    acting: u32,
    numbers: u64,
}

impl Book {
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub fn keys(&self) -> &[String] {
        &self.order
    }

    pub fn known(&self) -> &[Uuid] {
        &self.known
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// A request under `key`; returns which of the key's requests it is.
    pub fn add(&mut self, key: &str, body: Value) -> usize {
        if !self.entries.contains_key(key) {
            self.order.push(key.to_owned());
        }
        let bodies = &mut self.entries.entry(key.to_owned()).or_default().bodies;
        bodies.iter().position(|known| *known == body).unwrap_or_else(|| {
            bodies.push(body);
            bodies.len() - 1
        })
    }

    /// A customer sends a request; returns the attempt's number and what to send.
    pub fn begin(&mut self, key: &str, body: usize) -> Option<(u64, Value)> {
        let number = self.number();
        let entry = self.entries.get(key)?;
        let asked = entry.bodies.get(body)?.clone();
        let before = entry.taken.map(|(taken, _)| taken);
        self.flights.insert(number, Flight { key: key.to_owned(), body, before });
        Some((number, asked))
    }

    /// The answer to an attempt has reached its customer.
    pub fn end(&mut self, number: u64, heard: Heard) -> Result<(), Violation> {
        let Some(flight) = self.flights.remove(&number) else { return Ok(()) };
        let Flight { key, body, before } = flight;
        let Some(entry) = self.entries.get_mut(&key) else { return Ok(()) };
        let broken = |rule, detail: &str| {
            Err(Violation { rule, key: key.clone(), detail: detail.to_owned() })
        };
        match heard {
            Heard::Held(id) => {
                let (taken, known) = *entry.taken.get_or_insert((body, id));
                if taken != body {
                    return broken(SAME_ANSWER, "two different requests were taken");
                }
                if known != id {
                    return broken(SAME_ANSWER, &format!("was reservation {known}, is {id}"));
                }
                if !self.known.contains(&id) {
                    self.known.push(id);
                }
                Ok(())
            }
            Heard::Conflict if entry.bodies.len() == 1 => {
                broken(SAME_ANSWER, "a conflict, but there is no other request")
            }
            Heard::Conflict | Heard::SlotTaken if before == Some(body) => {
                broken(SAME_ANSWER, "it was taken before, and now it is not")
            }
            Heard::Nothing if entry.taken.is_none() => {
                self.todo.push((key, body));
                Ok(())
            }
            Heard::Conflict | Heard::SlotTaken | Heard::Nothing => Ok(()),
            Heard::Wrong(what) => broken("answers as agreed", &what),
        }
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

    pub fn take_todo(&mut self) -> Option<(String, usize)> {
        (!self.todo.is_empty()).then(|| self.todo.remove(0))
    }

    /// Somebody begins something, or has done.
    pub fn act(&mut self, begins: bool) {
        self.acting = if begins { self.acting + 1 } else { self.acting.saturating_sub(1) };
    }

    /// Whether the customer of a page has yet to decide; it has now.
    pub fn decides(&mut self, payment: Uuid) -> bool {
        self.decided.insert(payment)
    }

    pub fn told_cancelled(&mut self, id: Uuid) {
        self.cancelled.insert(id);
    }

    pub fn was_told_cancelled(&self, id: Uuid) -> bool {
        self.cancelled.contains(&id)
    }

    pub fn waiting(&self) -> usize {
        self.flights.len() + usize::try_from(self.acting).unwrap_or(0)
    }

    pub fn outstanding(&self) -> String {
        let (todo, flights, acting) = (self.todo.len(), self.flights.len(), self.acting);
        format!("{todo} to try again, {flights} wait for an answer, {acting} act")
    }

    pub fn is_quiet(&self) -> bool {
        self.todo.is_empty() && self.flights.is_empty() && self.acting == 0
    }
}

const SAME_ANSWER: &str = "the same answer for ever";
