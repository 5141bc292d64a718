//! What the clients remember: what they gave to the queue, and what they were told.
//!
//! Only what was told counts as promised. An answer that died with the process, or came after the
//! client had left, leaves a publication unheard; the client sends it again.

use std::collections::{BTreeMap, BTreeSet};

use tashika_domain::Timestamp;
use tashika_domain::message::Message;
use tashika_engine::commands::message::{Publish, Receipt};
use uuid::Uuid;

/// One thing that a client wants delivered. Known everywhere by its number, which is a label.
#[derive(Clone, Debug)]
pub(crate) struct Publication {
    pub publish: Publish,
    /// What keeps others out, in words of the clients.
    pub key: Option<String>,
    /// How often it was sent.
    pub tries: u32,
    /// Counts everything that clients do and hear: what was heard before something began came first.
    begun: u64,
    heard: Option<u64>,
}

/// A request whose answer is outstanding.
type Numbers = Vec<usize>;

#[derive(Default)]
pub(crate) struct Book {
    publications: Vec<Publication>,
    /// Messages that clients were told of, oldest first.
    ids: Vec<Uuid>,
    /// Those that wait in a queue, as far as anybody knows.
    lines: BTreeMap<String, Vec<(Uuid, usize, u64)>>,
    flights: BTreeMap<u64, Numbers>,
    todo: Vec<Numbers>,
    acting: u32,
    ticks: u64,
    cancels_asked: BTreeSet<Uuid>,
    cancelled: BTreeSet<Uuid>,
    queues_deleted: BTreeSet<&'static str>,
    /// Dead letters that somebody wanted to send again, and how often; and to bury.
    resends_asked: BTreeMap<Uuid, u32>,
    burials_asked: BTreeSet<Uuid>,
    /// Queues that are paused for certain, and since when.
    paused: BTreeMap<String, Timestamp>,
    /// Gates at which somebody is turning.
    turning: BTreeSet<String>,
}

/// The label of a publication.
pub(crate) fn label(number: usize) -> String {
    format!("n-{number}")
}

/// The number of the publication that a message comes from.
pub(crate) fn number_of(message: &Message) -> Option<usize> {
    message.asked.labels.first()?.strip_prefix("n-")?.parse().ok()
}

impl Book {
    fn tick(&mut self) -> u64 {
        self.ticks += 1;
        self.ticks
    }

    pub fn next_number(&self) -> usize {
        self.publications.len()
    }

    pub fn add(&mut self, publish: Publish, key: Option<String>) -> usize {
        let publication = Publication { publish, key, tries: 0, begun: 0, heard: None };
        self.publications.push(publication);
        self.publications.len() - 1
    }

    pub fn publication(&self, number: usize) -> Option<&Publication> {
        self.publications.get(number)
    }

    pub fn ids(&self) -> &[Uuid] {
        &self.ids
    }

    /// Clients send a batch; returns the request's number and what to send.
    pub fn begin(&mut self, numbers: &[usize]) -> (u64, Vec<Publish>) {
        let flight = self.tick();
        let mut batch = Vec::new();
        for number in numbers {
            let Some(publication) = self.publications.get_mut(*number) else { continue };
            publication.tries += 1;
            if publication.begun == 0 {
                publication.begun = flight;
            }
            batch.push(publication.publish.clone());
        }
        self.flights.insert(flight, numbers.to_vec());
        (flight, batch)
    }

    /// Clients hear what became of their batch: the receipts of each publication.
    pub fn taken(&mut self, flight: u64, receipts: &[Vec<Receipt>]) {
        let Some(numbers) = self.flights.remove(&flight) else { return };
        let heard = self.tick();
        for (number, receipts) in numbers.into_iter().zip(receipts) {
            let Some(publication) = self.publications.get_mut(number) else { continue };
            publication.heard = Some(heard);
            for receipt in receipts.iter().filter(|receipt| !receipt.deduplicated) {
                self.ids.push(receipt.id);
                if let Some(queue) = &publication.publish.queue {
                    let line = self.lines.entry(queue.clone()).or_default();
                    line.push((receipt.id, number, heard));
                }
            }
        }
    }

    /// Nobody has heard what became of a batch: it is sent again.
    pub fn unheard(&mut self, flight: u64) {
        if let Some(numbers) = self.flights.remove(&flight) {
            self.todo.push(numbers);
        }
    }

    pub fn take_todo(&mut self) -> Option<Vec<usize>> {
        self.todo.pop()
    }

    /// The messages of a queue that were taken before this one was sent, as far as they may wait.
    pub fn before(&self, queue: &str, message: &Message) -> Vec<Uuid> {
        let Some(number) = number_of(message) else { return Vec::new() };
        let Some(publication) = self.publications.get(number) else { return Vec::new() };
        let Publication { begun, heard, .. } = *publication;
        let line = self.lines.get(queue).map(Vec::as_slice).unwrap_or_default();
        let earlier = line.iter().filter(|(id, other, at)| {
            // In one batch the order is that of the batch.
            let same_batch = heard == Some(*at) && *other < number;
            *id != message.id && (*at < begun || same_batch)
        });
        earlier.map(|(id, ..)| *id).collect()
    }

    /// A message is over, and waits nowhere any more.
    pub fn left(&mut self, queue: &str, id: Uuid) {
        if let Some(line) = self.lines.get_mut(queue) {
            line.retain(|(known, ..)| *known != id);
        }
    }

    pub fn asks_to_cancel(&mut self, id: Uuid) {
        self.cancels_asked.insert(id);
    }

    pub fn asks_to_delete(&mut self, queue: &'static str) {
        self.queues_deleted.insert(queue);
    }

    /// Whether a message went with its queue, or may have.
    pub fn may_be_gone(&self, message: &Message) -> bool {
        let queue = message.asked.queue.as_deref();
        queue.is_some_and(|queue| self.queues_deleted.contains(queue))
    }

    pub fn is_cancelled(&mut self, id: Uuid) {
        self.cancelled.insert(id);
    }

    /// Whether somebody asked for the end of a message, and whether he was told that it has ended.
    pub fn cancellation(&self, id: Uuid) -> (bool, bool) {
        (self.cancels_asked.contains(&id), self.cancelled.contains(&id))
    }

    pub fn asks_to_resend(&mut self, letter: Uuid) {
        *self.resends_asked.entry(letter).or_default() += 1;
    }

    pub fn is_resent(&mut self, id: Uuid) {
        self.ids.push(id);
    }

    pub fn asks_to_bury(&mut self, letter: Uuid) {
        self.burials_asked.insert(letter);
    }

    pub fn resends(&self, letter: Uuid) -> u32 {
        self.resends_asked.get(&letter).copied().unwrap_or(0)
    }

    /// Whether somebody wanted a dead letter to go.
    pub fn disposed(&self, letter: Uuid) -> bool {
        self.burials_asked.contains(&letter) || self.resends_asked.contains_key(&letter)
    }

    /// Somebody turns at a gate; false if somebody else does. From now on nobody knows how it stands.
    pub fn turns(&mut self, gate: &str) -> bool {
        self.paused.remove(gate);
        self.turning.insert(gate.to_owned())
    }

    /// The gate was turned.
    pub fn turned(&mut self, gate: &str, paused: bool, now: Timestamp) {
        self.turning.remove(gate);
        if paused {
            self.paused.insert(gate.to_owned(), now);
        }
    }

    pub fn paused_since(&self, queue: &str) -> Option<Timestamp> {
        self.paused.get(queue).copied()
    }

    /// The process has ended: nobody will hear anything from it any more.
    pub fn process_ended(&mut self) -> usize {
        let unheard = std::mem::take(&mut self.flights);
        let count = unheard.len();
        self.todo.extend(unheard.into_values());
        self.acting = 0;
        self.turning.clear();
        count
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
