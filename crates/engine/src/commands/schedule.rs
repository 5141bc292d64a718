//! Schedules, as callers set them up.

use std::sync::Arc;

use tashika_domain::message::address::Destination;
use tashika_domain::message::asked::Asked;
use tashika_domain::message::schedule::{Schedule, armed};
use tashika_domain::message::spec::Spec;
use tashika_domain::message::{Message, State};
use tashika_domain::{Changes, Timestamp, Write};

use super::DECISIONS;
use super::message::{Messages, QueueError, asked};
use super::queue::crowded;

/// What a schedule is to do.
#[derive(Clone, Debug)]
pub struct NewSchedule {
    pub destination: Destination,
    pub spec: Spec,
    pub body: Arc<[u8]>,
    pub caller_ip: Option<String>,
}

fn missing(name: &str) -> QueueError {
    QueueError::NotFound(format!("schedule {name} not found"))
}

impl Messages {
    /// Makes a schedule, or puts another in the place of the one with the same id. Returns its id.
    pub async fn set_schedule(&self, new: NewSchedule) -> Result<String, QueueError> {
        let NewSchedule { destination, mut spec, body, caller_ip } = new;
        let cron = spec.cron.as_ref().map(|cron| cron.as_str().to_owned());
        let cron = cron.ok_or_else(|| QueueError::Bad("Upstash-Cron is required".into()))?;
        let destination = match destination {
            Destination::Url(url) => {
                self.check_destination(&url)?;
                url
            }
            Destination::Group(name) => name,
            Destination::Unsupported(name) => {
                return Err(QueueError::NotFound(format!("{name} is not part of this queue")));
            }
        };
        let generated = || format!("scd_{}", self.ids.uuid().simple());
        let name = spec.schedule_id.take().unwrap_or_else(generated);
        let (delay, queue) = (spec.delay, spec.queue.take());
        let asked = Asked { schedule: Some(name.clone()), queue, caller_ip, ..asked(spec) };
        self.check_callbacks(&asked)?;
        for _ in 0..DECISIONS {
            let now = self.clock.now();
            let known = self.store.schedule(&name).await?;
            let fresh = known.is_none();
            let schedule = Schedule {
                id: known.as_ref().map_or_else(|| self.ids.uuid(), |known| known.id),
                version: known.as_ref().map_or(1, |known| known.version + 1),
                name: name.clone(),
                cron: cron.clone(),
                destination: destination.clone(),
                asked: asked.clone(),
                body: Arc::clone(&body),
                delay,
                paused: known.as_ref().is_some_and(|known| known.paused),
                created_at: known.as_ref().map_or(now, |known| known.created_at),
                updated_at: now,
                last_at: known.as_ref().and_then(|known| known.last_at),
                next_at: None,
                last_messages: known.map_or_else(Vec::new, |known| known.last_messages),
                error: None,
                deleted_at: None,
            };
            if self.committed(self.arm(schedule, fresh, now)).await? {
                return Ok(name);
            }
        }
        Err(crowded().into())
    }

    fn arm(&self, schedule: Schedule, fresh: bool, now: Timestamp) -> Changes {
        let (schedule, effect) = armed(schedule, now, now.plus(self.rules.keep));
        let schedule = Box::new(schedule);
        let write =
            if fresh { Write::ScheduleInsert(schedule) } else { Write::ScheduleUpdate(schedule) };
        let mut changes = Changes::from(write);
        if let Some(effect) = effect {
            changes.push(Write::Enqueue(effect));
        }
        changes
    }

    pub async fn pause_schedule(&self, name: &str, paused: bool) -> Result<(), QueueError> {
        self.change_schedule(name, |schedule| schedule.paused = paused).await
    }

    pub async fn delete_schedule(&self, name: &str) -> Result<(), QueueError> {
        let now = self.clock.now();
        self.change_schedule(name, |schedule| schedule.deleted_at = Some(now)).await
    }

    async fn change_schedule(
        &self,
        name: &str,
        change: impl Fn(&mut Schedule),
    ) -> Result<(), QueueError> {
        for _ in 0..DECISIONS {
            let now = self.clock.now();
            let mut schedule = self.schedule(name).await?;
            change(&mut schedule);
            schedule.version += 1;
            schedule.updated_at = now;
            if self.committed(self.arm(schedule, false, now)).await? {
                return Ok(());
            }
        }
        Err(crowded().into())
    }

    pub async fn schedule(&self, name: &str) -> Result<Schedule, QueueError> {
        self.store.schedule(name).await?.ok_or_else(|| missing(name))
    }

    pub async fn schedules(&self) -> Result<Vec<Schedule>, QueueError> {
        Ok(self.store.schedules().await?)
    }

    /// How the messages of a schedule's last firing stand.
    pub async fn last_states(
        &self,
        schedule: &Schedule,
    ) -> Result<Vec<(uuid::Uuid, State)>, QueueError> {
        let found = self.by_ids(schedule.last_messages.clone()).await?;
        Ok(found.iter().map(|Message { id, state, .. }| (*id, *state)).collect())
    }
}
