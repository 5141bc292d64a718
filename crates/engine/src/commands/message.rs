//! Messages, as callers give them to the queue and ask about them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use metrics::counter;
use tashika_domain::message::address::{Destination, destination};
use tashika_domain::message::asked::{Asked, RETRIES};
use tashika_domain::message::dedup::Dedup;
use tashika_domain::message::gate::{FlowControl, Queue};
use tashika_domain::message::group::Endpoint;
use tashika_domain::message::schedule::Schedule;
use tashika_domain::message::spec::Spec;
use tashika_domain::message::{
    self, Begin, Draft, LogLine, Logged, Message, State, accept, public_id,
};
use tashika_domain::{Changes, Timestamp, Write};
use tashika_providers::courier::target::Target;
use tashika_providers::guard::Guard;
use tashika_store::{CommitError, Key, MessageFilter, Store, StoreError};
use uuid::Uuid;

use super::DECISIONS;
use crate::clock::{Clock, Ids};
use crate::gatekeeper::Gates;
use crate::hand::Hand;
use crate::keyring::KeyRing;
use crate::recent::Recent;
use crate::traffic::Traffic;

/// The queue's own rules.
#[derive(Clone, Debug)]
pub struct QueueRules {
    /// How long a deduplication key keeps others out.
    pub dedup_window: Duration,
    /// How long effects are kept, once they are settled.
    pub keep: Duration,
    pub guard: Guard,
}

/// What may be done with the queue.
pub struct Messages {
    pub(crate) store: Store,
    pub(crate) clock: Clock,
    pub(crate) ids: Ids,
    pub(crate) gates: Arc<Gates>,
    pub(crate) recent: Arc<Recent>,
    pub(super) hand: Arc<Hand>,
    pub(super) traffic: Arc<Traffic>,
    pub(crate) rules: QueueRules,
    pub keys: Arc<KeyRing>,
    /// The id of the newest message.
    newest: Mutex<Uuid>,
}

/// One thing to publish.
#[derive(Clone, Debug)]
pub struct Publish {
    pub destination: Destination,
    pub spec: Spec,
    pub body: Arc<[u8]>,
    /// The queue that it goes through.
    pub queue: Option<String>,
    pub caller_ip: Option<String>,
    pub traceparent: Option<String>,
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Published {
    One(Receipt),
    /// One per URL of the group.
    Group(Vec<Receipt>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Receipt {
    pub id: Uuid,
    pub url: String,
    /// The message was there already; nothing was added.
    pub deduplicated: bool,
}

/// Why the queue did not do what it was asked.
#[derive(Debug, thiserror::Error)]
pub enum QueueError {
    #[error("{0}")]
    Bad(String),
    #[error("{0}")]
    NotFound(String),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl QueueError {
    /// The same about one item of a batch.
    fn in_batch(self, place: usize) -> Self {
        match self {
            Self::Bad(why) | Self::NotFound(why) => Self::Bad(in_batch(place, &why)),
            Self::Store(error) => Self::Store(error),
        }
    }
}

/// A sentence about one item of a batch, counted from 0.
#[must_use]
pub fn in_batch(place: usize, why: &str) -> String {
    format!("batch item {place}: {why}")
}

impl Messages {
    #[must_use]
    pub fn new(
        store: Store,
        clock: Clock,
        ids: Ids,
        gates: Arc<Gates>,
        recent: Arc<Recent>,
        keys: Arc<KeyRing>,
        rules: QueueRules,
    ) -> Self {
        let (hand, newest) = (Arc::default(), Mutex::default());
        // Nobody has been put off by it.
        let traffic = Arc::new(Traffic::new(1));
        Self { store, clock, ids, gates, recent, hand, traffic, rules, keys, newest }
    }

    /// An id after all those before it, also within a millisecond: among messages of the same moment,
    /// as those of a batch are, it decides who comes first in a queue.
    pub(crate) fn next_id(&self) -> Uuid {
        let mut newest = self.newest.lock().unwrap_or_else(PoisonError::into_inner);
        let fresh = self.ids.uuid();
        *newest = if fresh > *newest { fresh } else { Uuid::from_u128(newest.as_u128() + 1) };
        *newest
    }

    /// Takes one message, or one for each URL of a group. What it returns is on disk.
    pub async fn publish(&self, publish: Publish) -> Result<Published, QueueError> {
        let now = self.clock.now();
        let (is_group, drafts) = self.drafts(publish, now).await?;
        Ok(published(is_group, self.take(drafts, now).await?))
    }

    /// Takes all of them or none. An error names the place of the one it is about.
    pub async fn publish_all(&self, batch: Vec<Publish>) -> Result<Vec<Published>, QueueError> {
        let now = self.clock.now();
        let mut groups = Vec::with_capacity(batch.len());
        let mut drafts = Vec::with_capacity(batch.len());
        for (place, publish) in batch.into_iter().enumerate() {
            let own = self.drafts(publish, now).await;
            let (is_group, made) = own.map_err(|error| error.in_batch(place))?;
            groups.push((is_group, made.len()));
            drafts.extend(made);
        }
        let receipts = self.take(drafts, now).await?;
        let mut receipts = receipts.into_iter();
        let all = groups
            .into_iter()
            .map(|(is_group, count)| published(is_group, receipts.by_ref().take(count).collect()));
        Ok(all.collect())
    }

    /// The messages that one request asks for, and whether it names a group.
    async fn drafts(
        &self,
        publish: Publish,
        now: Timestamp,
    ) -> Result<(bool, Vec<Draft>), QueueError> {
        let Publish { destination, mut spec, body, queue, caller_ip, traceparent } = publish;
        let is_group = matches!(destination, Destination::Group(_));
        let not_before = spec.not_before.or_else(|| spec.delay.map(|delay| now.plus(delay)));
        let dedup = Dedup { id: spec.dedup_id.take(), by_content: spec.content_dedup };
        let queue = queue.or_else(|| spec.queue.take());
        let asked = Asked { queue, caller_ip, ..asked(spec) };
        let addressed = self.addressed(asked, destination).await?;
        let drafts = addressed.into_iter().map(|asked| Draft {
            dedup_key: dedup.key(&asked, &body),
            traceparent: traceparent.clone(),
            ..self.draft(asked, &body, not_before, now)
        });
        Ok((is_group, drafts.collect()))
    }

    fn draft(
        &self,
        asked: Asked,
        body: &Arc<[u8]>,
        not_before: Option<Timestamp>,
        now: Timestamp,
    ) -> Draft {
        Draft {
            id: self.next_id(),
            asked: Arc::new(asked),
            body: Arc::clone(body),
            not_before,
            dedup_key: None,
            holds: None,
            traceparent: None,
            now,
            expires_at: now.plus(self.rules.keep),
            begin: Begin::Due,
        }
    }

    /// What is asked, for each URL that a destination stands for.
    async fn addressed(
        &self,
        asked: Asked,
        destination: Destination,
    ) -> Result<Vec<Asked>, QueueError> {
        self.check_callbacks(&asked)?;
        match destination {
            Destination::Url(url) => {
                self.check_destination(&url)?;
                Ok(vec![Asked { url, ..asked }])
            }
            Destination::Group(name) => {
                let group = self.group(&name).await?;
                let to = |endpoint: &Endpoint| {
                    let mut headers = group.headers.clone();
                    headers.extend(asked.headers.clone());
                    Asked {
                        url: endpoint.url.clone(),
                        headers,
                        topic: Some(name.clone()),
                        endpoint: endpoint.name.clone(),
                        ..asked.clone()
                    }
                };
                Ok(group.endpoints.iter().map(to).collect())
            }
            Destination::Unsupported(name) => {
                Err(QueueError::NotFound(format!("{name} is not part of this queue")))
            }
        }
    }

    /// What one firing of a schedule writes, and the messages in it.
    pub(crate) async fn firing(
        &self,
        schedule: &Schedule,
        now: Timestamp,
    ) -> Result<(Changes, Vec<Message>), QueueError> {
        let destination = destination(&schedule.destination).map_err(QueueError::Bad)?;
        let addressed = self.addressed(schedule.asked.clone(), destination).await?;
        let not_before = schedule.delay.map(|delay| now.plus(delay));
        let drafts: Vec<Draft> = addressed
            .into_iter()
            .map(|asked| self.draft(asked, &schedule.body, not_before, now))
            .collect();
        let plan = self.plan(&drafts, false, now).await?;
        Ok((plan.changes, plan.messages))
    }

    /// Whether a URL can be called, as far as that can be told without asking anybody.
    pub(crate) fn check_destination(&self, url: &str) -> Result<(), QueueError> {
        Target::parse(url).map_err(|problem| QueueError::Bad(problem.to_string()))?;
        self.rules.guard.check_url(url).map_err(|refusal| QueueError::Bad(refusal.to_string()))
    }

    /// Callbacks are destinations like others.
    pub(crate) fn check_callbacks(&self, asked: &Asked) -> Result<(), QueueError> {
        let callbacks = [&asked.callback, &asked.failure_callback];
        callbacks.into_iter().flatten().try_for_each(|told| self.check_destination(&told.url))
    }

    /// Writes messages, except for those whose key is taken.
    async fn take(
        &self,
        mut drafts: Vec<Draft>,
        now: Timestamp,
    ) -> Result<Vec<Receipt>, QueueError> {
        let places = self.places_for(&mut drafts, now);
        // Most keys are new: they are looked up only when one of them turns out not to be.
        let mut look_up = false;
        for _ in 0..DECISIONS {
            let plan = self.plan(&drafts, look_up, now).await?;
            match self.store.commit(plan.changes).await {
                Ok(()) => {
                    let in_hand = plan.messages.iter().filter_map(Message::in_hand).collect();
                    self.taken(plan.messages, now);
                    self.hand_over(in_hand, places).await;
                    return Ok(plan.receipts);
                }
                Err(CommitError::Store(error)) => {
                    counter!("queue_publish_failures_total").increment(drafts.len() as u64);
                    return Err(error.into());
                }
                Err(CommitError::Taken(Key::Message)) => look_up = true,
                // Somebody else has changed a gate at the same moment.
                Err(_) => {}
            }
        }
        Err(StoreError::Rejected("a message could not be written between others".into()).into())
    }

    pub(crate) fn taken(&self, messages: Vec<Message>, now: Timestamp) {
        counter!("queue_published_total").increment(messages.len() as u64);
        for message in messages {
            self.gates.stir_for(&message);
            if message.state == State::Ready && message.not_before <= now {
                self.recent.put(message);
            }
        }
    }

    async fn plan(
        &self,
        drafts: &[Draft],
        look_up: bool,
        now: Timestamp,
    ) -> Result<Plan, StoreError> {
        let mut plan = Plan::default();
        let mut own_keys: BTreeMap<&str, Uuid> = BTreeMap::new();
        for draft in drafts {
            let url = draft.asked.url.clone();
            let known = match &draft.dedup_key {
                None => None,
                Some(key) => match own_keys.get(key.as_str()) {
                    Some(id) => Some(*id),
                    None if look_up => self.keeper_of(key, now, &mut plan.changes).await?,
                    None => None,
                },
            };
            if let Some(id) = known {
                plan.receipts.push(Receipt { id, url, deduplicated: true });
                continue;
            }
            if let Some(key) = &draft.dedup_key {
                own_keys.insert(key, draft.id);
            }
            plan.receipts.push(Receipt { id: draft.id, url, deduplicated: false });
            let (message, changes) = accept(draft.clone());
            plan.changes.extend(changes);
            plan.messages.push(message);
        }
        self.prepare_gates(&plan.messages, &mut plan.changes, now).await?;
        Ok(plan)
    }

    /// The message that keeps others of this key out. One whose time is over lets go of it.
    async fn keeper_of(
        &self,
        key: &str,
        now: Timestamp,
        changes: &mut Changes,
    ) -> Result<Option<Uuid>, StoreError> {
        let Some(known) = self.store.message_of_key(key).await? else { return Ok(None) };
        if now < known.created_at.plus(self.rules.dedup_window) {
            return Ok(Some(known.id));
        }
        changes.push(message::release_key(&known));
        Ok(None)
    }

    /// Queues and flow controls exist from their first message on, and the newest message's limits
    /// count.
    pub(crate) async fn prepare_gates(
        &self,
        messages: &[Message],
        changes: &mut Changes,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut queues = BTreeSet::new();
        let mut flows = BTreeMap::new();
        for message in messages {
            if let Some(queue) = &message.asked.queue {
                queues.insert(queue.clone());
            }
            if let Some(flow) = &message.asked.flow {
                flows.insert(flow.key.clone(), flow.clone());
            }
        }
        for name in queues {
            if self.store.queue(&name).await?.is_none() {
                let queue = Queue::new(self.ids.uuid(), &name, now);
                changes.push(Write::QueueInsert(Box::new(queue)));
            }
        }
        for (key, flow) in flows {
            match self.store.flow_control(&key).await? {
                None => {
                    let control = FlowControl::new(self.ids.uuid(), &flow, now);
                    changes.push(Write::FlowInsert(Box::new(control)));
                }
                Some(control) => {
                    if let Some(after) = control.configured(&flow, now) {
                        changes.push(Write::FlowUpdate(Box::new(after)));
                    }
                }
            }
        }
        Ok(())
    }

    pub async fn message(&self, id: Uuid) -> Result<Message, QueueError> {
        let found = self.store.message(id).await?;
        found.ok_or_else(|| QueueError::NotFound(format!("message {} not found", public_id(id))))
    }

    /// Cancels one message. False if it had ended already.
    pub async fn cancel(&self, id: Uuid) -> Result<bool, QueueError> {
        for _ in 0..DECISIONS {
            let message = self.message(id).await?;
            let Some(changes) = message::cancel(&message, self.clock.now()) else {
                return Ok(false);
            };
            match self.store.commit(changes).await {
                Ok(()) => {
                    // Whoever has claimed it and not begun shall read that it is cancelled.
                    self.recent.take(id);
                    self.gates.stir_for(&message);
                    counter!("queue_cancelled_total").increment(1);
                    return Ok(true);
                }
                Err(CommitError::Store(error)) => return Err(error.into()),
                Err(_) => {}
            }
        }
        Ok(false)
    }

    /// Cancels up to `limit` messages that have not ended; returns how many.
    pub async fn cancel_all(&self, filter: &MessageFilter, limit: i64) -> Result<u64, QueueError> {
        let states = vec![State::Queued, State::Throttled, State::Ready];
        let open = MessageFilter { states, spare_own: true, ..filter.clone() };
        let mut cancelled = 0;
        for message in self.store.messages(&open, limit).await? {
            cancelled += u64::from(self.cancel(message.id).await?);
        }
        Ok(cancelled)
    }

    /// A page of what happened: lines of the log, and messages that were accepted. Only what is
    /// wanted of the two is looked for; `logged` empty means no lines.
    pub async fn events(
        &self,
        filter: &MessageFilter,
        accepted: bool,
        logged: &[Logged],
        limit: i64,
    ) -> Result<(Vec<LogLine>, Vec<Message>), QueueError> {
        let lines = if logged.is_empty() {
            Vec::new()
        } else {
            let filter = MessageFilter { logged: logged.to_vec(), ..filter.clone() };
            self.store.message_log(&filter, limit).await?
        };
        let messages =
            if accepted { self.store.messages(filter, limit).await? } else { Vec::new() };
        Ok((lines, messages))
    }

    /// Messages by id, as far as they are still there.
    pub async fn by_ids(&self, ids: Vec<Uuid>) -> Result<Vec<Message>, QueueError> {
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let limit = i64::try_from(ids.len()).unwrap_or(i64::MAX);
        let filter = MessageFilter { ids, ..MessageFilter::default() };
        Ok(self.store.messages(&filter, limit).await?)
    }
}

fn published(is_group: bool, mut receipts: Vec<Receipt>) -> Published {
    match receipts.pop() {
        Some(receipt) if !is_group => Published::One(receipt),
        last => {
            receipts.extend(last);
            Published::Group(receipts)
        }
    }
}

/// What is to be written for a batch, and answered.
#[derive(Default)]
struct Plan {
    changes: Changes,
    receipts: Vec<Receipt>,
    messages: Vec<Message>,
}

/// What a request asks of every message it leads to.
pub(crate) fn asked(spec: Spec) -> Asked {
    Asked {
        method: spec.method.unwrap_or_default(),
        headers: spec.headers,
        retries: spec.retries.unwrap_or(RETRIES),
        retry_delay: spec.retry_delay,
        timeout: spec.timeout,
        callback: spec.callback,
        failure_callback: spec.failure_callback,
        labels: spec.labels,
        flow: spec.flow,
        redact: spec.redact,
        ..Asked::default()
    }
}
