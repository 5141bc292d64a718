//! Lets messages through queues and flow controls.
//!
//! Woken by whoever changes something at a gate: a message that arrives, one that is done, a gate that
//! is opened. Wake-ups are hints; a regular look at all gates with somebody waiting is the guarantee, and
//! finds what other processes left. Several processes may try at the same gate: the gate's version lets
//! one of them win.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tashika_domain::message::Message;
use tashika_domain::message::gate::{FlowControl, Queue, admit_from_flow, admit_from_queue};
use tashika_domain::{Changes, Timestamp, Write};
use tashika_store::{CommitError, Store, StoreError};
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::clock::{Clock, Ids};

/// Messages let through in one go.
const BATCH: i64 = 100;

/// A place where messages wait.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Gate {
    Queue(String),
    Flow(String),
}

/// Gates at which something has changed.
#[derive(Debug, Default)]
pub struct Gates {
    stirred: Mutex<BTreeSet<Gate>>,
    notify: Notify,
}

impl Gates {
    pub fn stir(&self, gate: Gate) {
        let new = self.stirred.lock().unwrap_or_else(PoisonError::into_inner).insert(gate);
        if new {
            self.notify.notify_one();
        }
    }

    /// Whatever a message waits at, or has left.
    pub fn stir_for(&self, message: &Message) {
        if let Some(slot) = &message.slot {
            self.stir(Gate::Queue(slot.clone()));
        }
        if let Some(flow) = &message.asked.flow {
            self.stir(Gate::Flow(flow.key.clone()));
        }
    }

    fn take(&self) -> BTreeSet<Gate> {
        std::mem::take(&mut self.stirred.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

pub struct Gatekeeper {
    store: Store,
    clock: Clock,
    ids: Ids,
    gates: Arc<Gates>,
    look_every: Duration,
}

impl Gatekeeper {
    #[must_use]
    pub fn new(
        store: Store,
        clock: Clock,
        ids: Ids,
        gates: Arc<Gates>,
        look_every: Duration,
    ) -> Self {
        Self { store, clock, ids, gates, look_every }
    }

    pub async fn run(self, stop: CancellationToken) {
        let mut next_look = self.clock.now();
        let mut opens: Option<Timestamp> = None;
        while !stop.is_cancelled() {
            let now = self.clock.now();
            let mut stirred = self.gates.take();
            if next_look.has_come(now, self.look_every) || opens.is_some_and(|at| now >= at) {
                next_look = now.plus(self.look_every);
                opens = None;
                match self.waiting(now).await {
                    Ok(gates) => stirred.extend(gates),
                    Err(error) => tracing::warn!(%error, "the gates could not be looked at"),
                }
            }
            for gate in stirred {
                match self.serve(&gate).await {
                    Ok(at) => opens = [opens, at].into_iter().flatten().min(),
                    Err(error) => tracing::warn!(%error, ?gate, "a gate could not be served"),
                }
            }
            let wake = opens.map_or(next_look, |at| at.min(next_look));
            let wait = wake.since(self.clock.now());
            tokio::select! {
                () = stop.cancelled() => {}
                () = self.gates.notify.notified() => {}
                () = self.clock.sleep(wait) => {}
            }
        }
    }

    /// All gates at which somebody waits whose time has come.
    async fn waiting(&self, now: Timestamp) -> Result<BTreeSet<Gate>, StoreError> {
        let queues = self.store.queues_waiting(now).await?.into_iter().map(Gate::Queue);
        let flows = self.store.flows_waiting(now).await?.into_iter().map(Gate::Flow);
        Ok(queues.chain(flows).collect())
    }

    /// Lets through whoever may pass now. Returns when the gate opens again, if time opens it.
    pub async fn serve(&self, gate: &Gate) -> Result<Option<Timestamp>, StoreError> {
        loop {
            let now = self.clock.now();
            let (changes, opens) = match gate {
                Gate::Queue(name) => (self.through_queue(name, now).await?, None),
                Gate::Flow(key) => self.through_flow(key, now).await?,
            };
            let Some(changes) = changes else { return Ok(opens) };
            self.stir_behind(gate, &changes);
            match self.store.commit(changes).await {
                // Perhaps there is room for more; perhaps somebody else was faster.
                Ok(()) | Err(CommitError::Outdated { .. } | CommitError::Taken(_)) => {}
                // A message waits whose effect does not. Nobody here can put that right, and the
                // other gates must not wait for it.
                Err(error @ CommitError::Stale(_)) => {
                    tracing::error!(%error, ?gate, "a message could not be let through");
                    return Ok(opens);
                }
                Err(CommitError::Store(error)) => return Err(error),
            }
        }
    }

    /// Behind a queue there may be a flow control.
    fn stir_behind(&self, gate: &Gate, changes: &Changes) {
        if !matches!(gate, Gate::Queue(_)) {
            return;
        }
        for write in changes.writes() {
            if let Write::MessageUpdate(message) = write
                && let Some(flow) = &message.asked.flow
            {
                self.gates.stir(Gate::Flow(flow.key.clone()));
            }
        }
    }

    async fn through_queue(
        &self,
        name: &str,
        now: Timestamp,
    ) -> Result<Option<Changes>, StoreError> {
        let Some(queue) = self.store.queue(name).await? else {
            return self.missing_queue(name, now).await;
        };
        let active = count(self.store.active_in_queue(name).await?);
        let room = i64::from(queue.room(active)).min(BATCH);
        if room == 0 {
            return Ok(None);
        }
        let waiting = self.store.queued(name, now, room).await?;
        Ok(admit_from_queue(&queue, active, &waiting, now))
    }

    /// Somebody may wait in a queue that was deleted while he came in: then it is there again.
    async fn missing_queue(
        &self,
        name: &str,
        now: Timestamp,
    ) -> Result<Option<Changes>, StoreError> {
        if self.store.queued(name, now, 1).await?.is_empty() {
            return Ok(None);
        }
        let queue = Queue::new(self.ids.uuid(), name, now);
        Ok(Some(Write::QueueInsert(Box::new(queue)).into()))
    }

    /// The same for a flow control, with the limits of whoever waits first.
    async fn missing_flow(&self, key: &str, now: Timestamp) -> Result<Option<Changes>, StoreError> {
        let first = self.store.throttled(key, now, 1).await?.pop();
        let flow = first.and_then(|message| message.asked.flow.clone());
        let control = flow.map(|flow| FlowControl::new(self.ids.uuid(), &flow, now));
        Ok(control.map(|control| Write::FlowInsert(Box::new(control)).into()))
    }

    async fn through_flow(
        &self,
        key: &str,
        now: Timestamp,
    ) -> Result<(Option<Changes>, Option<Timestamp>), StoreError> {
        let Some(control) = self.store.flow_control(key).await? else {
            return Ok((self.missing_flow(key, now).await?, None));
        };
        let active = count(self.store.active_in_flow(key).await?);
        let current = control.at(now);
        let room = i64::from(current.room(active)).min(BATCH);
        if room == 0 {
            return Ok((None, current.opens_at()));
        }
        let waiting = self.store.throttled(key, now, room).await?;
        Ok((admit_from_flow(&control, active, &waiting, now), None))
    }
}

fn count(found: i64) -> u32 {
    u32::try_from(found).unwrap_or(u32::MAX)
}
