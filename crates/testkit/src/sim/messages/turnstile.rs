//! What must be true at the moment at which an attempt begins.
//!
//! The engine lets no attempt begin whose lease is in doubt, so at this moment there is nothing to
//! excuse. Later there may be: an attempt goes on when its worker has lost its lease, and when its
//! message was cancelled. Those are attempts that nobody counts any more, and limits do not include
//! them; see [`Line::counts`].

use tashika_domain::Status;
use tashika_domain::effect::EffectId;
use tashika_domain::message::{Flow, Message, State};
use tashika_store::{EffectRow, MessageFilter, StoreError};
use uuid::Uuid;

use super::line::Line;
use super::swarm::{LINES, WIDE, WIDE_PARALLELISM};
use super::tally::Tally;
use super::world::Flight;

const HANDS: &str = "one pair of hands";
const FIFO: &str = "first in, first out";
const FLOW: &str = "flow control";

impl Line {
    /// An attempt begins.
    pub async fn enter(&self, id: Uuid) -> Result<Flight, StoreError> {
        let message = self.store.message(id).await?;
        let effect = self.store.effect(EffectId(id)).await?;
        let (Some(message), Some(effect)) = (message, effect) else {
            self.broken("nothing is lost", id, "it is attempted, and is not there");
            return Ok(Flight { id, fence: 0, queue: None, flow: None });
        };
        let flight = Flight {
            id,
            fence: effect.fence,
            queue: message.asked.queue.clone(),
            flow: message.asked.flow.as_ref().map(|flow| flow.key.clone()),
        };
        self.is_wanted(&message, &effect);
        self.is_in_one_pair_of_hands(&flight);
        self.is_time(&message).await?;
        if message.state == State::Ready {
            if let Some(queue) = &message.asked.queue {
                self.is_its_turn(queue, &message, &effect).await?;
            }
            if let Some(flow) = &message.asked.flow {
                self.keeps_within(flow, &message).await?;
            }
        }
        Ok(flight)
    }

    fn broken(&self, rule: &'static str, id: Uuid, detail: &str) {
        self.scene.broken(self.clock.now(), rule, &id.to_string(), detail);
    }

    /// Only what was let through is attempted. When a message is cancelled, somebody may have its
    /// effect in hand already: that one attempt goes on or begins, and none after it.
    fn is_wanted(&self, message: &Message, effect: &EffectRow) {
        let (state, id) = (message.state, message.id);
        if effect.status != Status::Sending {
            self.broken(HANDS, id, &format!("attempted while {}", effect.status.as_str()));
        }
        let excused = match message.ended_at {
            None => state == State::Ready,
            Some(ended_at) => {
                let last_seen = self.scene.world().truth(id).last_seen;
                state == State::Cancelled && last_seen.is_none_or(|seen| seen < ended_at)
            }
        };
        if !excused {
            let detail = format!("attempted while {}", state.as_str());
            self.broken("over is over", id, &detail);
        } else if state == State::Cancelled {
            self.scene.log.count(Tally::AttemptedAfterCancel);
        }
    }

    /// Not before a delay is over, nor before the wait after the last failure.
    async fn is_time(&self, message: &Message) -> Result<(), StoreError> {
        let (id, now) = (message.id, self.clock.now());
        let mut time = message.not_before;
        if self.scene.world().truth(id).attempts > 0 {
            let filter = MessageFilter { ids: vec![id], ..MessageFilter::default() };
            let last = self.store.message_log(&filter, 1).await?.pop();
            time = time.max(last.and_then(|line| line.next_at).unwrap_or(time));
        }
        // A node whose clock is fast is early by so much, and so is one that was told by it.
        if now.plus(self.scene.process.clock_error()) < time {
            let early = time.since(now).as_millis();
            self.broken("not before its time", id, &format!("{early} ms too early"));
        }
        Ok(())
    }

    fn is_in_one_pair_of_hands(&self, flight: &Flight) {
        let others: Vec<i64> = {
            let world = self.scene.world();
            world.flights().filter(|other| other.id == flight.id).map(|o| o.fence).collect()
        };
        for fence in others {
            if fence >= flight.fence {
                self.broken(HANDS, flight.id, &format!("{fence} has it, and {}", flight.fence));
            }
            self.scene.log.count(Tally::Zombie);
        }
    }

    /// Whether an attempt under way is still somebody's.
    async fn counts(&self, flight: &Flight) -> Result<bool, StoreError> {
        let message = self.store.message(flight.id).await?;
        let effect = self.store.effect(EffectId(flight.id)).await?;
        let held = effect.is_some_and(|e| e.status == Status::Sending && e.fence == flight.fence);
        Ok(held && message.is_some_and(|message| message.state == State::Ready))
    }

    /// How many attempts count, this one among them.
    async fn under_way(&self, id: Uuid, of: impl Fn(&Flight) -> bool) -> Result<usize, StoreError> {
        let flights: Vec<Flight> = {
            let world = self.scene.world();
            world.flights().filter(|flight| flight.id != id && of(flight)).cloned().collect()
        };
        let mut count = 1;
        for flight in flights {
            count += usize::from(self.counts(&flight).await?);
        }
        Ok(count)
    }

    async fn is_its_turn(
        &self,
        queue: &str,
        message: &Message,
        effect: &EffectRow,
    ) -> Result<(), StoreError> {
        let id = message.id;
        let limit = if queue == WIDE { WIDE_PARALLELISM as usize } else { 1 };
        let count = self.under_way(id, |flight| flight.queue.as_deref() == Some(queue)).await?;
        if count > limit {
            self.broken(FIFO, id, &format!("{count} at once in {queue}"));
        }
        // Its first attempt: whoever tries again was let through before.
        if effect.attempts > 0 || self.scene.world().truth(id).attempts > 0 {
            return Ok(());
        }
        // By the clock of whoever let it through.
        let error = self.scene.process.clock_error();
        let paused = self.scene.book().paused_since(queue).map(|since| since.plus(error));
        if let Some(since) = paused.filter(|since| message.due_at > *since)
            && message.asked.flow.is_none()
        {
            let ago = message.due_at.since(since).as_millis();
            self.broken("a pause is a pause", id, &format!("let through {queue} after {ago} ms"));
        }
        if !LINES.contains(&queue) {
            return Ok(());
        }
        let active = self.store.active_in_queue(queue).await?;
        if active != 1 {
            self.broken(FIFO, id, &format!("{active} have a place in {queue}"));
        }
        let before = self.scene.book().before(queue, message);
        for earlier in before {
            let Some(row) = self.store.message(earlier).await? else { continue };
            if row.state.is_over() {
                self.scene.book().left(queue, earlier);
            } else if row.not_before <= message.not_before {
                let detail = format!("{earlier} came before it, and is {}", row.state.as_str());
                self.broken(FIFO, id, &detail);
            }
        }
        Ok(())
    }

    async fn keeps_within(&self, flow: &Flow, message: &Message) -> Result<(), StoreError> {
        let id = message.id;
        let count =
            self.under_way(id, |flight| flight.flow.as_deref() == Some(flow.key.as_str())).await?;
        if flow.parallelism.is_some_and(|limit| count > limit as usize) {
            self.broken(FLOW, id, &format!("{count} at once under {}", flow.key));
        }
        let Some(control) = self.store.flow_control(&flow.key).await? else {
            self.broken(FLOW, id, "there is no such flow control");
            return Ok(());
        };
        // Periods follow each other without a gap, so any of them tells where all of them begin.
        let (at, length) = (message.due_at.as_micros(), flow.period.as_micros());
        let length = i64::try_from(length).unwrap_or(i64::MAX);
        let start = control.period_start.as_micros();
        let period = start + (at - start).div_euclid(length) * length;
        let passed = self.scene.world().pass(&flow.key, period, id, message.due_at);
        if flow.rate.is_some_and(|limit| passed > limit as usize) {
            self.broken(FLOW, id, &format!("{passed} in one period of {}", flow.key));
        }
        Ok(())
    }
}
