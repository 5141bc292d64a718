//! What must be true of webhooks.
//!
//! | Rule | Says |
//! |---|---|
//! | what was taken is kept | an event that was answered is there, as it came, after every crash |
//! | one event, one row | and no row of an event that the gateway did not send |
//! | one event, one effect | one effect in the outbox, and what it led to happened once |
//! | every webhook ends | at rest: success, skipped, or failed and a dead letter |
//! | settled stays settled | what ended well does not change any more |
//!
//! What an event says is not believed: it makes us ask the gateway. So that an event was a success
//! says that the gateway was asked after it came, not that the answer was true; what follows from a
//! lie is for the rules about money to judge.

use std::collections::{BTreeMap, BTreeSet};

use rusqlite::{Connection, OpenFlags};
use tashika_domain::webhook::{KIND, Status, WebhookEvent};
use tashika_domain::{Lane, LanePolicy, Status as EffectStatus};
use tashika_store::{AuditFilter, EffectFilter, StoreError, WebhookFilter};
use uuid::Uuid;

use super::post::About;
use super::process::Process;
use super::tally::Tally;

/// Events that are read at once.
const PAGE: i64 = 500;
/// More rows than any run has.
const ALL: i64 = 1_000_000;
/// Events that are looked at after a recovery.
const CHECK_SOME: usize = 20;

/// What webhooks have led to, when everything is at rest.
#[derive(Default)]
pub(crate) struct Mail {
    /// How many events about a payment were a success.
    pub heard: BTreeMap<Uuid, usize>,
    /// Payments with a dead letter about them.
    pub dead: BTreeSet<Uuid>,
}

impl Process {
    /// What was promised last must have survived.
    pub async fn check_last_webhooks(&self) -> Result<(), StoreError> {
        let last: Vec<(String, Uuid)> = {
            let world = self.scene.world();
            let taken = world.post.taken().take(CHECK_SOME);
            taken.map(|(letter, id)| (letter.id.clone(), id)).collect()
        };
        for (event_id, id) in last {
            match self.store.webhook_event(id).await? {
                Some(event) => self.check_webhook(&event),
                None => self.broken(KEPT, &event_id, "it is gone"),
            }
        }
        Ok(())
    }

    /// Checks every event there is, when nothing is under way any more, and writes it down.
    pub async fn check_webhooks(&self) -> Result<Mail, StoreError> {
        let mut filter = WebhookFilter::default();
        let mut events = BTreeMap::new();
        loop {
            let page = self.store.webhook_events(&filter, PAGE).await?;
            let Some(last) = page.last() else { break };
            filter.before = Some(last.id);
            for event in page {
                self.check_webhook(&event);
                self.scene.log.mark(self.clock.now(), &format!("{event:?}"));
                if let Some(before) = events.insert(event.event_id.clone(), event) {
                    self.broken("one event, one row", &before.event_id, "it has two");
                }
            }
        }
        let lost: Vec<String> = {
            let world = self.scene.world();
            let is_lost = |id: &String| !events.contains_key(id);
            world.post.taken().map(|(letter, _)| letter.id.clone()).filter(is_lost).collect()
        };
        for id in lost {
            self.broken(KEPT, &id, "it is gone");
        }
        self.check_effects(&events).await?;
        self.check_dead_letters(&events);
        self.check_offices(&events).await?;
        Ok(self.sort(&events))
    }

    /// One event as it is at any moment.
    fn check_webhook(&self, event: &WebhookEvent) {
        let id = &event.event_id;
        let world = self.scene.world();
        let Some(letter) = world.post.letter(id).filter(|letter| !letter.forged) else {
            return self.broken("one event, one row", id, "the gateway did not send it");
        };
        if letter.taken.is_some_and(|taken| taken != event.id) || *letter.body != *event.body {
            self.broken(KEPT, id, "it is not as it came");
        }
        let fits = match letter.about {
            About::Payment(_) | About::Office(_) => event.status != Status::Skipped,
            About::Nothing => event.status != Status::Success,
            About::Stranger => matches!(event.status, Status::Pending | Status::Failed),
        };
        if !fits {
            let detail = format!("{:?}, and it is {}", letter.about, event.status.as_str());
            self.broken("every webhook ends", id, &detail);
        }
        let now = (event.version, event.status);
        let seen = self.scene.memory().saw_event(event.id, now);
        if let Some((version, status)) = seen {
            let over = matches!(status, Status::Success | Status::Skipped);
            if event.version < version || (over && now != (version, status)) {
                let detail = format!("was {status:?} in version {version}, is {now:?}");
                self.broken("settled stays settled", id, &detail);
            }
        }
    }

    async fn check_effects(
        &self,
        events: &BTreeMap<String, WebhookEvent>,
    ) -> Result<(), StoreError> {
        const RULE: &str = "one event, one effect";
        let filter = EffectFilter { lane: Some(Lane::WEBHOOKS), ..EffectFilter::default() };
        let effects = self.store.effects(&filter, ALL).await?;
        let mut effects: BTreeMap<Uuid, _> = effects.into_iter().map(|e| (e.id.0, e)).collect();
        for event in events.values() {
            let Some(effect) = effects.remove(&event.id) else {
                // The effect of what is over is kept for a while only.
                let keep = LanePolicy::default().keep;
                let over_at = event.processed_at.filter(|_| event.status != Status::Pending);
                if over_at.is_none_or(|at| self.clock.now() < at.plus(keep)) {
                    self.broken(RULE, &event.event_id, "nobody works on it");
                }
                continue;
            };
            let ended = match event.status {
                Status::Pending => false,
                Status::Success | Status::Skipped => effect.status == EffectStatus::Succeeded,
                Status::Failed => effect.status == EffectStatus::Aborted && !effect.in_doubt,
            };
            if !ended {
                let (is, works) = (event.status.as_str(), effect.status);
                let detail = format!("the event is {is}, its effect {works:?}");
                self.broken("every webhook ends", &event.event_id, &detail);
            }
            // Taken, and then ended and opened again by turns: every line is a version.
            let ends = 1 + self.replays(event).await?;
            if event.version != 2 * ends {
                let detail = format!("version {}, ended {ends} times", event.version);
                self.broken(RULE, &event.event_id, &detail);
            }
        }
        for id in effects.keys() {
            self.broken(RULE, &id.to_string(), "its event is not there");
        }
        Ok(())
    }

    async fn replays(&self, event: &WebhookEvent) -> Result<i64, StoreError> {
        // Most have ended once.
        if event.version <= 2 {
            return Ok(0);
        }
        let filter = AuditFilter {
            action: Some("webhook.replayed".to_owned()),
            target_type: Some(KIND.to_owned()),
            target_id: Some(event.id.to_string()),
            ..AuditFilter::default()
        };
        let lines = self.store.audit_logs(&filter, ALL).await?;
        Ok(i64::try_from(lines.len()).unwrap_or(i64::MAX))
    }

    /// What failed is where operators look for it.
    fn check_dead_letters(&self, events: &BTreeMap<String, WebhookEvent>) {
        let failed = events.values().filter(|event| event.status == Status::Failed);
        let failed: BTreeSet<String> = failed.map(|event| event.event_id.clone()).collect();
        if failed.is_empty() {
            return;
        }
        match self.read_dead_letters() {
            Ok(letters) if letters == failed => {}
            Ok(letters) => {
                let detail = format!("failed {failed:?}, in the view {letters:?}");
                self.broken("every webhook ends", "", &detail);
            }
            Err(error) => self.broken("the store answers", "", &error.to_string()),
        }
    }

    /// With SQL, as it is documented.
    fn read_dead_letters(&self) -> rusqlite::Result<BTreeSet<String>> {
        let sql = "select event_id from failed_webhook_events where error is not null";
        let database = Connection::open_with_flags(&self.file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
        let mut statement = database.prepare(sql)?;
        let letters = statement.query_map([], |row| row.get(0))?;
        letters.collect()
    }

    fn sort(&self, events: &BTreeMap<String, WebhookEvent>) -> Mail {
        let world = self.scene.world();
        let mut mail = Mail::default();
        for event in events.values() {
            self.scene.log.count(match event.status {
                Status::Pending => Tally::WebhookPending,
                Status::Success => Tally::WebhookSucceeded,
                Status::Skipped => Tally::WebhookSkipped,
                Status::Failed => Tally::WebhookFailed,
            });
            let Some(About::Payment(id)) = world.post.letter(&event.event_id).map(|l| l.about)
            else {
                continue;
            };
            match event.status {
                Status::Success => *mail.heard.entry(id).or_default() += 1,
                Status::Failed => drop(mail.dead.insert(id)),
                Status::Pending | Status::Skipped => {}
            }
        }
        mail
    }
}

const KEPT: &str = "what was taken is kept";
