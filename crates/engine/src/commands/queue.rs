//! Queues and flow controls, as callers set them up and look at them.

use std::time::Duration;

use tashika_domain::message::State;
use tashika_domain::message::gate::{FlowControl, Queue};
use tashika_domain::{Changes, Timestamp, Write};
use tashika_store::{CommitError, MessageFilter, StoreError};

use super::DECISIONS;
use super::message::{Messages, QueueError};
use crate::gatekeeper::Gate;

/// A queue and how many wait in it.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueView {
    pub queue: Queue,
    pub lag: i64,
}

/// A flow control and how many it holds back or has let through.
#[derive(Clone, Debug, PartialEq)]
pub struct FlowView {
    pub control: FlowControl,
    pub waiting: i64,
    pub active: i64,
}

/// A change of pinned limits; what is `None` stays as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Pin {
    pub parallelism: Option<u32>,
    pub rate: Option<u32>,
    pub period: Option<Duration>,
}

fn no_queue(name: &str) -> QueueError {
    QueueError::NotFound(format!("queue {name} not found"))
}

fn no_flow(key: &str) -> QueueError {
    QueueError::NotFound(format!("flow control {key} not found"))
}

impl Messages {
    /// Makes a queue, or changes what is given.
    pub async fn set_queue(
        &self,
        name: &str,
        parallelism: Option<u32>,
        paused: Option<bool>,
    ) -> Result<(), QueueError> {
        let change = |queue: &mut Queue| {
            queue.parallelism = parallelism.unwrap_or(queue.parallelism);
            queue.paused = paused.unwrap_or(queue.paused);
        };
        self.change_queue(name, true, change).await
    }

    pub async fn pause_queue(&self, name: &str, paused: bool) -> Result<(), QueueError> {
        self.change_queue(name, false, |queue| queue.paused = paused).await
    }

    /// Removes a queue, and cancels what waits in it. What is being delivered is delivered.
    pub async fn delete_queue(&self, name: &str) -> Result<(), QueueError> {
        if self.store.queue(name).await?.is_none() {
            return Ok(());
        }
        let waiting = MessageFilter {
            queues: vec![name.to_owned()],
            states: vec![State::Queued],
            ..MessageFilter::default()
        };
        loop {
            let page = self.store.messages(&waiting, 100).await?;
            if page.is_empty() {
                break;
            }
            for message in page {
                self.cancel(message.id).await?;
            }
        }
        let now = self.clock.now();
        match self.change_queue(name, false, |queue| queue.deleted_at = Some(now)).await {
            // Somebody else has deleted it meanwhile.
            Err(QueueError::NotFound(_)) => Ok(()),
            result => result,
        }
    }

    pub async fn queue(&self, name: &str) -> Result<QueueView, QueueError> {
        let queue = self.store.queue(name).await?.ok_or_else(|| no_queue(name))?;
        Ok(self.queue_view(queue).await?)
    }

    pub async fn queues(&self) -> Result<Vec<QueueView>, QueueError> {
        let mut views = Vec::new();
        for queue in self.store.queues().await? {
            views.push(self.queue_view(queue).await?);
        }
        Ok(views)
    }

    async fn queue_view(&self, queue: Queue) -> Result<QueueView, StoreError> {
        let lag = self.store.waiting_in_queue(&queue.name).await?;
        Ok(QueueView { queue, lag })
    }

    async fn change_queue(
        &self,
        name: &str,
        may_be_new: bool,
        change: impl Fn(&mut Queue),
    ) -> Result<(), QueueError> {
        for _ in 0..DECISIONS {
            let now = self.clock.now();
            let write = match self.store.queue(name).await? {
                Some(mut queue) => {
                    change(&mut queue);
                    queue.version += 1;
                    queue.updated_at = now;
                    Write::QueueUpdate(Box::new(queue))
                }
                None if may_be_new => {
                    let mut queue = Queue::new(self.ids.uuid(), name, now);
                    change(&mut queue);
                    Write::QueueInsert(Box::new(queue))
                }
                None => return Err(no_queue(name)),
            };
            if self.committed(write.into()).await? {
                self.gates.stir(Gate::Queue(name.to_owned()));
                return Ok(());
            }
        }
        Err(crowded().into())
    }

    pub async fn flow(&self, key: &str) -> Result<FlowView, QueueError> {
        let control = self.store.flow_control(key).await?.ok_or_else(|| no_flow(key))?;
        Ok(self.flow_view(control).await?)
    }

    /// All flow controls whose key contains a text.
    pub async fn flows(&self, search: &str) -> Result<Vec<FlowView>, QueueError> {
        let mut views = Vec::new();
        for control in self.store.flow_controls().await? {
            if control.key.contains(search) {
                views.push(self.flow_view(control).await?);
            }
        }
        Ok(views)
    }

    async fn flow_view(&self, control: FlowControl) -> Result<FlowView, StoreError> {
        let waiting = self.store.waiting_in_flow(&control.key).await?;
        let active = self.store.active_in_flow(&control.key).await?;
        Ok(FlowView { control: control.at(self.clock.now()), waiting, active })
    }

    pub async fn pause_flow(&self, key: &str, paused: bool) -> Result<(), QueueError> {
        self.change_flow(key, |control, _| control.paused = paused).await
    }

    /// Sets limits that messages do not change, and begins a new period.
    pub async fn pin_flow(&self, key: &str, pin: Pin) -> Result<(), QueueError> {
        self.change_flow(key, |control, now| {
            if let Some(parallelism) = pin.parallelism {
                control.parallelism = Some(parallelism);
                control.pinned_parallelism = true;
            }
            if let Some(rate) = pin.rate {
                control.rate = Some(rate);
                control.pinned_rate = true;
                control.period = pin.period.unwrap_or(control.period);
                begin_period(control, now);
            } else if let Some(period) = pin.period {
                control.period = period;
            }
        })
        .await
    }

    /// The next message sets the limits again.
    pub async fn unpin_flow(
        &self,
        key: &str,
        parallelism: bool,
        rate: bool,
    ) -> Result<(), QueueError> {
        self.change_flow(key, |control, _| {
            control.pinned_parallelism &= !parallelism;
            control.pinned_rate &= !rate;
        })
        .await
    }

    /// Begins a new period.
    pub async fn reset_flow_rate(&self, key: &str) -> Result<(), QueueError> {
        self.change_flow(key, begin_period).await
    }

    async fn change_flow(
        &self,
        key: &str,
        change: impl Fn(&mut FlowControl, Timestamp),
    ) -> Result<(), QueueError> {
        for _ in 0..DECISIONS {
            let now = self.clock.now();
            let found = self.store.flow_control(key).await?;
            let mut control = found.ok_or_else(|| no_flow(key))?.at(now);
            change(&mut control, now);
            control.version += 1;
            control.updated_at = now;
            if self.committed(Write::FlowUpdate(Box::new(control)).into()).await? {
                self.gates.stir(Gate::Flow(key.to_owned()));
                return Ok(());
            }
        }
        Err(crowded().into())
    }

    /// Writes; false if somebody else was faster and the decision has to be taken again.
    pub(crate) async fn committed(&self, changes: Changes) -> Result<bool, StoreError> {
        match self.store.commit(changes).await {
            Ok(()) => Ok(true),
            Err(CommitError::Store(error)) => Err(error),
            Err(_) => Ok(false),
        }
    }
}

fn begin_period(control: &mut FlowControl, now: Timestamp) {
    control.period_start = now;
    control.period_count = 0;
}

pub(crate) fn crowded() -> StoreError {
    StoreError::Rejected("others were faster again and again".into())
}
