//! Reading what the invariants are judged by.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::Value;
use tashika_domain::effect::EffectId;
use tashika_domain::message::asked::host_of;
use tashika_domain::message::{LogLine, Logged, Message, State, parse_id};
use tashika_store::{MessageFilter, StoreError};
use uuid::Uuid;

use super::book::number_of;
use super::dice::Odds;
use super::invariants::{AtRest, Evidence};
use super::process::Process;
use super::swarm::CALLBACKS;
use super::tally::Tally;

/// More rows than any run has.
const ALL: i64 = 1_000_000;
const TICK: Duration = Duration::from_secs(60);

/// Callbacks about a message, and failure callbacks.
type Told = BTreeMap<Uuid, (usize, usize)>;

impl Process {
    /// Checks messages by id.
    pub async fn check_these(&self, ids: &[Uuid]) {
        for id in ids {
            let read = self.store.message(*id).await;
            let judged = match &read {
                Ok(message) => self.judge(*id, message.as_ref(), None).await,
                Err(error) => return self.broken("the store answers", "", &error.to_string()),
            };
            if let Err(error) = judged {
                return self.broken("the store answers", "", &error.to_string());
            }
        }
    }

    /// Checks every message there is, when nothing is under way any more, and writes it down.
    pub async fn check_all(&self) {
        if let Err(error) = self.try_check_all().await {
            self.broken("the store answers", "", &error.to_string());
        }
    }

    async fn try_check_all(&self) -> Result<(), StoreError> {
        let everything = MessageFilter::default();
        let messages = self.store.messages(&everything, ALL).await?;
        let mut lines: BTreeMap<Uuid, Vec<LogLine>> = BTreeMap::new();
        for line in self.store.message_log(&everything, ALL).await? {
            lines.entry(line.message_id).or_default().push(line);
        }
        let told = self.callbacks(&messages);
        for message in &messages {
            let lines = lines.get(&message.id).map(Vec::as_slice).unwrap_or_default();
            let told = told.get(&message.id).copied().unwrap_or_default();
            let rest = AtRest { lines, told, apart: self.scene.process.clock_error() };
            self.judge(message.id, Some(message), Some(rest)).await?;
            self.write_down(message, lines);
        }
        self.nothing_is_lost_or_invented(&messages);
        self.one_per_key(&messages);
        self.one_per_tick(&messages);
        self.counts_add_up(&messages).await
    }

    async fn judge(
        &self,
        id: Uuid,
        message: Option<&Message>,
        at_rest: Option<AtRest<'_>>,
    ) -> Result<(), StoreError> {
        let (scene, now) = (&self.scene, self.clock.now());
        let effect = self.store.effect(EffectId(id)).await?;
        let truth = scene.world().truth(id);
        let (cancellation, disposed) = {
            let book = scene.book();
            let (asked, told) = book.cancellation(id);
            let asked = asked || message.is_some_and(|message| book.may_be_gone(message));
            ((asked, told), book.disposed(id))
        };
        let consumer = message.and_then(|m| scene.swarm.consumer(&host_of(&m.asked.url)));
        let liar = consumer.is_some_and(|consumer| consumer.lies != Odds::NEVER);
        let effect = effect.as_ref();
        let truth = &truth;
        let evidence =
            Evidence { id, message, effect, truth, cancellation, disposed, liar, at_rest };
        let violations = evidence.judge(&mut scene.memory());
        for violation in violations {
            scene.log.violate(now, violation);
        }
        Ok(())
    }

    /// Who was told of what, by the callbacks' own words.
    fn callbacks(&self, messages: &[Message]) -> Told {
        let known: BTreeSet<Uuid> = messages.iter().map(|message| message.id).collect();
        // A callback may be a dead letter and be sent again.
        let mut copies: BTreeMap<(Uuid, bool, u64), (u32, u32)> = BTreeMap::new();
        for callback in messages.iter().filter(|message| is_callback(message)) {
            let report: Value = serde_json::from_slice(&callback.body).unwrap_or_default();
            let source = report["sourceMessageId"].as_str().and_then(parse_id);
            let Some(source) = source.filter(|id| known.contains(id)) else {
                let id = callback.id.to_string();
                self.broken("nothing is invented", &id, "a callback about nothing");
                continue;
            };
            let attempt = report["retried"].as_u64().unwrap_or(u64::MAX);
            let copies = copies.entry((source, report["dlqId"].is_null(), attempt)).or_default();
            copies.0 += 1;
            copies.1 = copies.1.max(1) + self.scene.book().resends(callback.id);
        }
        let mut told = Told::new();
        for ((source, of_attempt, _), (count, allowed)) in copies {
            let counts = told.entry(source).or_default();
            let times = 1 + count.saturating_sub(allowed) as usize;
            if of_attempt {
                counts.0 += times;
            } else {
                counts.1 += times;
            }
        }
        told
    }

    fn nothing_is_lost_or_invented(&self, messages: &[Message]) {
        let known: BTreeSet<Uuid> = messages.iter().map(|message| message.id).collect();
        let book = self.scene.book();
        for id in book.ids().iter().filter(|id| !known.contains(*id)) {
            self.broken("nothing is lost", &id.to_string(), "told of, and not there");
        }
        for id in self.scene.world().known().filter(|id| !known.contains(*id)) {
            self.broken("nothing is invented", &id.to_string(), "only a consumer knows it");
        }
        // How often something may be there: as often as it was sent, or sent again.
        let mut copies: BTreeMap<(usize, &str), (u32, u32)> = BTreeMap::new();
        for message in messages.iter().filter(|m| !is_callback(m) && m.asked.schedule.is_none()) {
            let publication = number_of(message).and_then(|n| Some((n, book.publication(n)?)));
            let Some((number, publication)) = publication else {
                self.broken("nothing is invented", &message.id.to_string(), "nobody asked for it");
                continue;
            };
            let copies = copies.entry((number, &message.asked.url)).or_default();
            copies.0 += 1;
            copies.1 = copies.1.max(publication.tries) + book.resends(message.id);
        }
        for ((number, url), (count, _)) in copies.iter().filter(|(_, (is, most))| is > most) {
            let detail = format!("{count} messages to {url}");
            self.broken("nothing is invented", &number.to_string(), &detail);
        }
    }

    fn one_per_key(&self, messages: &[Message]) {
        let mut keys: BTreeMap<(String, Option<&str>), Vec<&Message>> = BTreeMap::new();
        let book = self.scene.book();
        // What is sent again has no key, and nobody may have heard of it.
        let resent: BTreeSet<Option<usize>> =
            messages.iter().filter(|m| book.resends(m.id) > 0).map(number_of).collect();
        let own = |m: &&Message| !is_callback(m) && !resent.contains(&number_of(m));
        for message in messages.iter().filter(own) {
            let publication = number_of(message).and_then(|number| book.publication(number));
            if let Some(key) = publication.and_then(|publication| publication.key.clone()) {
                // A group gets it once at each of its URLs.
                let url = message.asked.topic.as_ref().map(|_| message.asked.url.as_str());
                keys.entry((key, url)).or_default().push(message);
            }
        }
        let swarm = &self.scene.swarm;
        let let_go = |message: &Message| match message.state {
            State::Cancelled => true,
            State::Failed => swarm.reopen,
            _ => false,
        };
        for ((key, _), mut messages) in keys {
            messages.sort_by_key(|message| message.created_at);
            messages.retain(|message| !let_go(message));
            for pair in messages.windows(2) {
                let apart = pair[1].created_at.since(pair[0].created_at);
                if apart < swarm.dedup_window {
                    let detail = format!("{} and {}, {apart:?} apart", pair[0].id, pair[1].id);
                    self.broken("one per key", &key, &detail);
                }
            }
        }
    }

    /// A dead letter that was sent again is another message of the same schedule.
    fn one_per_tick(&self, messages: &[Message]) {
        let (mut fired, mut beyond) = (BTreeSet::new(), BTreeMap::<_, Vec<Uuid>>::new());
        let mut resends = BTreeMap::<_, usize>::new();
        for message in messages {
            let Some(schedule) = message.asked.schedule.as_deref() else { continue };
            self.scene.log.count(Tally::Fired);
            *resends.entry(schedule).or_default() += self.scene.book().resends(message.id) as usize;
            let tick = message.created_at.as_micros().unsigned_abs() / 1_000_000 / TICK.as_secs();
            if !fired.insert((schedule, tick)) {
                beyond.entry(schedule).or_default().push(message.id);
            }
        }
        for (schedule, ids) in beyond {
            if ids.len() > resends[schedule] {
                self.broken("one per tick", schedule, &format!("twice, {ids:?}"));
            }
        }
    }

    /// Accepted = delivered + dead + cancelled, by the store's own count.
    async fn counts_add_up(&self, messages: &[Message]) -> Result<(), StoreError> {
        for state in State::ALL {
            let here = messages.iter().filter(|message| message.state == state).count();
            let counts = self.store.message_counts().await?;
            let there = counts.iter().find(|c| c.state == state).map_or(0, |c| c.count);
            if i64::try_from(here) != Ok(there) {
                let detail = format!("{here} are {}, {there} by the count", state.as_str());
                self.broken("everything ends", "", &detail);
            }
        }
        Ok(())
    }

    /// Writes a message and its story into the trace, and counts what became of it.
    fn write_down(&self, message: &Message, lines: &[LogLine]) {
        let (log, now) = (&self.scene.log, self.clock.now());
        log.mark(now, &format!("{message:?} {lines:?}"));
        log.count(match (message.state, &message.dlq_id) {
            (State::Delivered, _) => Tally::EndedDelivered,
            (State::Failed, Some(_)) => Tally::EndedDead,
            (State::Failed, None) => Tally::EndedDisposed,
            _ => Tally::EndedCancelled,
        });
        if is_callback(message) {
            log.count(Tally::CallbackMade);
        }
        if message.state == State::Failed && self.scene.world().truth(message.id).attempts == 0 {
            log.count(Tally::DeadUnattempted);
        }
        for line in lines {
            let alive = self.scene.life_at(line.started_at) == self.scene.life_at(line.at);
            match line.what {
                Logged::Lapsed if alive => log.count(Tally::LapseOfTheLiving),
                Logged::Lapsed => log.count(Tally::Lapse),
                Logged::Error => log.count(Tally::Retry),
                _ => {}
            }
        }
    }
}

fn is_callback(message: &Message) -> bool {
    message.asked.url == CALLBACKS
}
