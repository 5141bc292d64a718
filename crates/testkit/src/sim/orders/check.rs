//! Reading what the invariants are judged by.

use std::collections::BTreeMap;

use tashika_domain::Status;
use tashika_domain::ledger::LedgerEntry;
use tashika_domain::order::KIND;
use tashika_store::{EffectFilter, EffectRow, StoreError};

use super::invariants::Evidence;
use super::process::Process;
use super::tally::Tally;

/// More rows than any run has.
const ALL: i64 = 1_000_000;

impl Process {
    /// Checks orders by key.
    pub async fn check(&self, keys: Vec<String>, at_rest: bool) {
        if keys.is_empty() {
            return;
        }
        let mut effects = BTreeMap::new();
        for key in &keys {
            match self.store.effect_by_key(KIND, key).await {
                Ok(Some(effect)) => drop(effects.insert(key.clone(), effect)),
                Ok(None) => {}
                Err(error) => return self.broken("the store answers", key, &error.to_string()),
            }
        }
        if let Err(error) = self.judge(keys, &effects, at_rest).await {
            self.broken("the store answers", "", &error.to_string());
        }
    }

    /// Checks every order there is.
    pub async fn check_all(&self, at_rest: bool) {
        if let Err(error) = self.try_check_all(at_rest).await {
            self.broken("the store answers", "", &error.to_string());
        }
    }

    async fn try_check_all(&self, at_rest: bool) -> Result<(), StoreError> {
        let rows = self.store.effects(&EffectFilter::default(), ALL).await?;
        let effects: BTreeMap<String, EffectRow> =
            rows.into_iter().filter_map(|row| Some((row.key.clone()?, row))).collect();
        let keys = self.scene.book().keys();
        for key in effects.keys().filter(|key| keys.binary_search(key).is_err()) {
            self.broken("nothing is invented", key, "an effect that nobody asked for");
        }
        for id in self.scene.world().known_ids().filter(|id| keys.binary_search(id).is_err()) {
            self.broken("nothing is invented", id, "executed, and nobody asked for it");
        }
        self.judge(keys, &effects, at_rest).await
    }

    async fn judge(
        &self,
        keys: Vec<String>,
        effects: &BTreeMap<String, EffectRow>,
        at_rest: bool,
    ) -> Result<(), StoreError> {
        let (scene, now) = (&self.scene, self.clock.now());
        scene.world().flush(now, &scene.log);
        let entries = self.store.ledger_entries(KIND, keys.clone()).await?;
        let ledger: BTreeMap<String, LedgerEntry> =
            entries.into_iter().map(|entry| (entry.key.key.clone(), entry)).collect();
        for key in keys {
            let effect = effects.get(&key);
            let given_up = effect.is_some_and(|effect| effect.status == Status::Aborted);
            let cases = if given_up || at_rest {
                self.store.cases_of(KIND, &key).await?
            } else {
                Vec::new()
            };
            let truth = scene.world().truth(&key);
            let Some(entry) = scene.book().entry(&key).cloned() else { continue };
            let evidence = Evidence {
                key: &key,
                swarm: &scene.swarm,
                entry: &entry,
                truth: &truth,
                ledger: ledger.get(&key),
                effect,
                cases: &cases,
                at_rest,
            };
            let violations = evidence.judge(&mut scene.memory());
            for violation in violations {
                scene.log.violate(now, violation);
            }
        }
        Ok(())
    }

    /// Writes the whole database into the trace, and counts what became of everything.
    pub async fn write_down(&self) {
        if let Err(error) = self.try_write_down().await {
            self.broken("the store answers", "", &error.to_string());
        }
    }

    async fn try_write_down(&self) -> Result<(), StoreError> {
        let (log, now) = (&self.scene.log, self.clock.now());
        for effect in self.store.effects(&EffectFilter::default(), ALL).await? {
            log.mark(now, &format!("{effect:?}"));
            log.count(match effect.status {
                Status::Succeeded => Tally::EndedSucceeded,
                _ => Tally::EndedAborted,
            });
            let attempts = self.store.attempts(effect.id).await?;
            for attempt in &attempts {
                log.mark(now, &format!("{attempt:?}"));
                if attempt.outcome == "lapsed" {
                    let life = |at| self.scene.life_at(at);
                    let alive = life(attempt.started_at) == life(attempt.finished_at);
                    log.count(if alive { Tally::LapseOfTheLiving } else { Tally::Lapse });
                }
            }
            attempts.iter().skip(1).for_each(|_| log.count(Tally::Retry));
            let Some(key) = effect.key else { continue };
            for case in self.store.cases_of(KIND, &key).await? {
                log.mark(now, &format!("{case:?}"));
                log.count(Tally::CaseOpened);
            }
        }
        let keys = self.scene.book().keys();
        let mut entries = self.store.ledger_entries(KIND, keys).await?;
        entries.sort_by(|a, b| a.key.cmp(&b.key));
        for entry in entries {
            log.mark(now, &format!("{entry:?}"));
        }
        Ok(())
    }
}
