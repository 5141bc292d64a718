//! What the clients remember: what they asked for, and what they were told.
//!
//! Only what was told counts as promised. An answer that died with the process, or came after the
//! client had left, leaves an attempt unheard; the client tries again with the same key.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tashika_domain::Timestamp;
use tashika_domain::order::request_digest;

use super::Planted;
use super::log::Violation;

/// One key, and everything that was said about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// The orders that were sent under the key. More than one is a client's mistake.
    pub bodies: Vec<Body>,
    /// Counts the beginnings and ends of a person's interventions: with each, answers may change.
    pub acts: u32,
    /// A person is intervening.
    pub acting: bool,
    /// How often it was accepted as new.
    accepted: u32,
    /// The final answer, and how often a person had intervened by then.
    told: Option<(u32, String)>,
}

#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub value: Value,
    pub digest: String,
    /// The client was told that it is taken.
    pub acknowledged: bool,
    /// The client was told that the key belongs to another order.
    conflicted: bool,
}

impl Entry {
    /// The digest of the order that was promised under the key.
    pub fn promised(&self) -> Option<&str> {
        self.bodies.iter().find(|body| body.acknowledged).map(|body| body.digest.as_str())
    }

    /// The final answer that was told and still stands.
    pub fn told(&self) -> Option<&str> {
        self.told.as_ref().filter(|(acts, _)| *acts == self.acts).map(|(_, body)| body.as_str())
    }
}

/// What a client hears.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    Accepted,
    Replayed(String),
    Conflict,
    RateLimited(Duration),
    /// Nothing: it left, or the process died.
    Nothing,
    /// An answer that it must not get.
    Wrong(String),
}

/// What was known about a key when somebody asked. The answer may be as old as that.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    acts: u32,
    /// Somebody had been told the final answer.
    told: bool,
}

/// An attempt whose answer is outstanding.
#[derive(Clone, Debug)]
struct Flight {
    key: String,
    body: usize,
    asked: Asked,
}

/// An attempt that has to be made again.
#[derive(Clone, Debug)]
pub(crate) struct Todo {
    pub key: String,
    pub body: usize,
    not_before: Timestamp,
}

pub(crate) struct Book {
    entries: BTreeMap<String, Entry>,
    flights: BTreeMap<u64, Flight>,
    todo: Vec<Todo>,
    numbers: u64,
    planted: Option<Planted>,
}

impl Book {
    pub fn new(planted: Option<Planted>) -> Self {
        Self {
            entries: BTreeMap::new(),
            flights: BTreeMap::new(),
            todo: Vec::new(),
            numbers: 0,
            planted,
        }
    }

    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    /// Keys of valid orders, in the order in which they were made.
    pub fn keys(&self) -> Vec<String> {
        self.entries.keys().cloned().collect()
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// A person begins to intervene, or has done so.
    pub fn intervene(&mut self, key: &str, acting: bool) {
        if let Some(entry) = self.entries.get_mut(key) {
            entry.acts += 1;
            entry.acting = acting;
        }
    }

    /// The order `value` under `key`; returns which of the key's orders it is.
    pub fn add(&mut self, key: &str, value: Value) -> usize {
        let digest = request_digest(&value);
        let bodies = &mut self.entries.entry(key.to_owned()).or_default().bodies;
        if let Some(known) = bodies.iter().position(|body| body.digest == digest) {
            return known;
        }
        bodies.push(Body { value, digest, acknowledged: false, conflicted: false });
        bodies.len() - 1
    }

    /// A client sends an order; returns the attempt's number and what to send.
    pub fn begin(&mut self, key: &str, body: usize) -> Option<(u64, Value)> {
        let number = self.number();
        let early = self.planted == Some(Planted::AckBeforeCommit);
        let entry = self.entries.get_mut(key)?;
        let asked = entry.bodies.get_mut(body)?;
        asked.acknowledged |= early;
        let value = asked.value.clone();
        let asked = entry.asked();
        self.flights.insert(number, Flight { key: key.to_owned(), body, asked });
        Some((number, value))
    }

    /// The answer to an attempt has reached its client.
    pub fn end(&mut self, number: u64, heard: Heard, now: Timestamp) -> Result<(), Violation> {
        let Some(flight) = self.flights.remove(&number) else { return Ok(()) };
        let Flight { key, body, asked: since } = flight;
        let Some(entry) = self.entries.get_mut(&key) else { return Ok(()) };
        let broken = |rule, detail: &str| {
            Err(Violation { rule, key: key.clone(), detail: detail.to_owned() })
        };
        let other = entry.bodies.iter().enumerate().any(|(i, b)| i != body && b.acknowledged);
        let alone = entry.bodies.len() == 1;
        let asked = &mut entry.bodies[body];
        match heard {
            Heard::Accepted | Heard::Replayed(_) if other => {
                broken("one order per key", "two different orders were taken")
            }
            Heard::Accepted if entry.accepted > 0 => {
                broken("one order per key", "it was accepted as new twice")
            }
            Heard::Accepted => {
                (entry.accepted, asked.acknowledged) = (1, true);
                Ok(())
            }
            Heard::Replayed(answer) => {
                asked.acknowledged = true;
                entry.tell(&key, since, answer)
            }
            Heard::Conflict if alone || asked.acknowledged => {
                broken("one order per key", "a conflict, but there is no other order")
            }
            Heard::Conflict => {
                asked.conflicted = true;
                Ok(())
            }
            Heard::RateLimited(span) => {
                self.todo.push(Todo { key, body, not_before: now.plus(span) });
                Ok(())
            }
            Heard::Nothing => {
                if !asked.acknowledged && !asked.conflicted {
                    self.todo.push(Todo { key, body, not_before: now });
                }
                Ok(())
            }
            Heard::Wrong(what) => broken("answers as agreed", &what),
        }
    }

    /// A client asked about a promised key and got `answer`.
    pub fn found(
        &mut self,
        key: &str,
        since: Asked,
        answer: Option<String>,
    ) -> Result<(), Violation> {
        let Some(entry) = self.entries.get_mut(key) else { return Ok(()) };
        match answer {
            Some(answer) => entry.tell(key, since, answer),
            None => Err(Violation {
                rule: "nothing is lost",
                key: key.to_owned(),
                detail: "an acknowledged order was not found".into(),
            }),
        }
    }

    /// The process has ended: nobody will hear anything from it any more.
    pub fn process_ended(&mut self, now: Timestamp) -> usize {
        let unheard: Vec<u64> = self.flights.keys().copied().collect();
        for number in &unheard {
            // An answer that was not heard breaks no promise.
            self.end(*number, Heard::Nothing, now).ok();
        }
        for entry in self.entries.values_mut().filter(|entry| entry.acting) {
            (entry.acts, entry.acting) = (entry.acts + 1, false);
        }
        unheard.len()
    }

    /// Takes an attempt that is to be made again now.
    pub fn take_todo(&mut self, now: Timestamp) -> Option<Todo> {
        let due = self.todo.iter().position(|todo| todo.not_before <= now)?;
        Some(self.todo.remove(due))
    }

    /// How many clients wait for an answer.
    pub fn waiting(&self) -> usize {
        self.flights.len()
    }

    /// What is still to be done or heard, in words.
    pub fn outstanding(&self) -> String {
        let (todo, flights) = (self.todo.len(), self.flights.len());
        let acting = self.entries.values().filter(|entry| entry.acting).count();
        format!("{todo} to try again, {flights} wait for an answer, {acting} persons act")
    }

    /// Every client knows where it stands.
    pub fn is_quiet(&self) -> bool {
        let nobody_acts = self.entries.values().all(|entry| !entry.acting);
        self.todo.is_empty() && self.flights.is_empty() && nobody_acts
    }
}

impl Entry {
    pub fn asked(&self) -> Asked {
        Asked { acts: self.acts, told: self.told().is_some() }
    }

    /// A client is told where an order stands.
    fn tell(&mut self, key: &str, since: Asked, answer: String) -> Result<(), Violation> {
        if since.acts != self.acts {
            // A person intervened while the question was under way.
            return Ok(());
        }
        let open = is_open(&answer);
        match self.told() {
            // The answer was on its way while another client got the final one.
            Some(_) if open && !since.told => Ok(()),
            Some(told) if told != answer => Err(Violation {
                rule: "the same answer for ever",
                key: key.to_owned(),
                detail: format!("was {told}, is {answer}"),
            }),
            None if !open => {
                self.told = Some((self.acts, answer));
                Ok(())
            }
            _ => Ok(()),
        }
    }
}

/// An answer that says no more than that the order was taken.
fn is_open(answer: &str) -> bool {
    let answer: Option<Value> = serde_json::from_str(answer).ok();
    answer.as_ref().and_then(|answer| answer["status"].as_str()) == Some("accepted")
}
