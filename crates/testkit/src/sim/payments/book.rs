//! What the clients remember: what they asked for under which key, and what they were told.
//!
//! Only what was told counts as promised. An answer that died with the process, or came after the
//! client had left, leaves an attempt unheard; the client tries again with the same key.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;
use tashika_domain::Timestamp;
use tashika_domain::payment::{Payment, RefundStatus, Status};
use uuid::Uuid;

use super::log::Violation;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    Pay,
    Capture,
    Void,
    Refund,
}

/// What is asked for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Request {
    pub want: Want,
    /// Of which payment; `None` for a new one.
    pub payment: Option<Uuid>,
    pub body: Value,
}

/// How a request has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Told {
    Fine,
    Failed(u16),
}

/// One key, and everything that was said about it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Entry {
    /// More than one is a client's mistake.
    pub requests: Vec<Request>,
    /// Which of them was taken.
    pub taken: Option<usize>,
    /// The payment that the client was told of.
    pub payment: Option<Uuid>,
    told: Option<Told>,
}

/// What a client hears.
#[derive(Clone, Debug)]
pub(crate) enum Heard {
    Answer {
        payment: Box<Payment>,
        http: u16,
    },
    Conflict,
    InProgress,
    /// The payment does not allow it; nothing was written.
    Refused,
    /// Nothing: it left, or the process died.
    Nothing,
    /// An answer that it must not get.
    Wrong(String),
}

/// An attempt whose answer is outstanding.
#[derive(Clone, Debug)]
struct Flight {
    key: String,
    request: usize,
    /// What had been told when it began: the answer may be as old as that.
    told: Option<Told>,
    taken: bool,
}

/// An attempt that has to be made again.
#[derive(Clone, Debug)]
pub(crate) struct Todo {
    pub key: String,
    pub request: usize,
    not_before: Timestamp,
}

#[derive(Default)]
pub(crate) struct Book {
    entries: BTreeMap<String, Entry>,
    /// Keys in the order in which they were made.
    order: Vec<String>,
    /// Payments that clients know of, oldest first.
    payments: Vec<Uuid>,
    /// Where they stood when somebody last heard of them.
    statuses: BTreeMap<Uuid, Status>,
    flights: BTreeMap<u64, Flight>,
    todo: Vec<Todo>,
    acting: u32,
    numbers: u64,
}

/// A client that was told to wait asks again after this.
const AGAIN_AFTER: Duration = Duration::from_secs(15);

impl Book {
    pub fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub fn keys(&self) -> &[String] {
        &self.order
    }

    pub fn payments(&self) -> &[Uuid] {
        &self.payments
    }

    pub fn status(&self, id: Uuid) -> Option<Status> {
        self.statuses.get(&id).copied()
    }

    pub fn entry(&self, key: &str) -> Option<&Entry> {
        self.entries.get(key)
    }

    /// A request under `key`; returns which of the key's requests it is.
    pub fn add(&mut self, key: &str, request: Request) -> usize {
        if !self.entries.contains_key(key) {
            self.order.push(key.to_owned());
        }
        let requests = &mut self.entries.entry(key.to_owned()).or_default().requests;
        if let Some(known) = requests.iter().position(|known| *known == request) {
            return known;
        }
        requests.push(request);
        requests.len() - 1
    }

    /// A client sends a request; returns the attempt's number and what to send.
    pub fn begin(&mut self, key: &str, request: usize) -> Option<(u64, Request)> {
        let number = self.number();
        let entry = self.entries.get(key)?;
        let asked = entry.requests.get(request)?.clone();
        let (told, taken) = (entry.told, entry.taken.is_some());
        self.flights.insert(number, Flight { key: key.to_owned(), request, told, taken });
        Some((number, asked))
    }

    /// The answer to an attempt has reached its client.
    pub fn end(&mut self, number: u64, heard: Heard, now: Timestamp) -> Result<(), Violation> {
        let Some(flight) = self.flights.remove(&number) else { return Ok(()) };
        let Flight { key, request, .. } = flight.clone();
        let Some(entry) = self.entries.get_mut(&key) else { return Ok(()) };
        let broken = |rule, detail: &str| {
            Err(Violation { rule, key: key.clone(), detail: detail.to_owned() })
        };
        let mut again = |after| {
            self.todo.push(Todo { key: key.clone(), request, not_before: now.plus(after) });
            Ok(())
        };
        match heard {
            Heard::Answer { payment, http } => {
                self.statuses.insert(payment.id, payment.status);
                if entry.payment.is_none() && entry.requests[request].want == Want::Pay {
                    self.payments.push(payment.id);
                }
                let detail = entry.tell(&flight, &payment, http);
                detail.map_err(|detail| Violation { rule: SAME_ANSWER, key, detail })
            }
            Heard::Conflict if entry.requests.len() == 1 || entry.taken == Some(request) => {
                broken(SAME_ANSWER, "a conflict, but there is no other request")
            }
            Heard::Refused if flight.taken && entry.taken == Some(request) => {
                broken(SAME_ANSWER, "refused, but it had been taken before")
            }
            Heard::InProgress if flight.told.is_some() => {
                broken(SAME_ANSWER, "in progress, but it had ended before")
            }
            Heard::InProgress => again(AGAIN_AFTER),
            Heard::Nothing if entry.taken.is_none() => again(Duration::ZERO),
            Heard::Conflict | Heard::Refused | Heard::Nothing => Ok(()),
            Heard::Wrong(what) => broken("answers as agreed", &what),
        }
    }

    /// The process has ended: nobody will hear anything from it any more.
    pub fn process_ended(&mut self, now: Timestamp) -> usize {
        let unheard: Vec<u64> = self.flights.keys().copied().collect();
        for number in &unheard {
            // An answer that was not heard breaks no promise.
            self.end(*number, Heard::Nothing, now).ok();
        }
        self.acting = 0;
        unheard.len()
    }

    /// Takes an attempt that is to be made again now.
    pub fn take_todo(&mut self, now: Timestamp) -> Option<Todo> {
        let due = self.todo.iter().position(|todo| todo.not_before <= now)?;
        Some(self.todo.remove(due))
    }

    /// A person, or somebody with a question, begins or has done.
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

const SAME_ANSWER: &str = "the same answer for ever";

impl Entry {
    /// A client is told where its request stands.
    fn tell(&mut self, flight: &Flight, payment: &Payment, http: u16) -> Result<(), String> {
        if *self.taken.get_or_insert(flight.request) != flight.request {
            return Err("two different requests were taken".to_owned());
        }
        let known = *self.payment.get_or_insert(payment.id);
        if known != payment.id {
            return Err(format!("was payment {known}, is {}", payment.id));
        }
        let want = self.requests[flight.request].want;
        match ending(want, payment, &flight.key, http) {
            None if flight.told.is_some() => Err("it had ended, and is under way again".to_owned()),
            None => Ok(()),
            Some(ending) => match *self.told.get_or_insert(ending) {
                told if told == ending => Ok(()),
                told => Err(format!("was {told:?}, is {ending:?}")),
            },
        }
    }
}

/// How what was asked for under a key has ended; `None` if it has not.
fn ending(want: Want, payment: &Payment, key: &str, http: u16) -> Option<Told> {
    let open = match want {
        Want::Pay => payment.status == Status::Pending,
        Want::Capture | Want::Void => payment
            .operation
            .as_ref()
            .is_some_and(|o| o.key.as_ref().is_some_and(|known| known.key == key)),
        Want::Refund => {
            payment.refunds.iter().any(|r| r.status == RefundStatus::Pending && r.key.key == key)
        }
    };
    match http {
        _ if open => None,
        400.. => Some(Told::Failed(http)),
        _ => Some(Told::Fine),
    }
}
