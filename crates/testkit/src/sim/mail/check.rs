//! What must be true of mails.

use std::collections::{BTreeMap, BTreeSet};

use tashika_domain::mail::batch::Work;
use tashika_domain::mail::{Delivery, Status};
use tashika_store::{MailFilter, StoreError};
use uuid::Uuid;

use super::line::delivery_of;
use super::process::Process;
use super::server::Truth;
use super::tally::Tally;

/// Mails that are read at once.
const PAGE: i64 = 500;

impl Process {
    /// Checks every mail there is.
    pub async fn check_all(&self, at_rest: bool) {
        if let Err(error) = self.try_check_all(at_rest).await {
            self.broken("the store answers", "", &error.to_string());
        }
    }

    async fn try_check_all(&self, at_rest: bool) -> Result<(), StoreError> {
        let mails = self.all_mails().await?;
        let mut keys: BTreeMap<&str, Uuid> = BTreeMap::new();
        for mail in &mails {
            let truth = self.scene.world().truth(&mail.message_id("mail.example.com"));
            self.judge(mail, &truth, at_rest);
            let other = mail.key.as_deref().and_then(|key| keys.insert(key, mail.id));
            if let Some(other) = other {
                let detail = format!("{other} and {} have the same key", mail.id);
                self.broken("one per key", &mail.id.to_string(), &detail);
            }
        }
        if at_rest {
            self.nothing_is_lost_or_invented(&mails);
            self.batches_add_up(&mails).await?;
            let (limits, now) = (self.scene.swarm.rules.limits, self.clock.now());
            self.scene.world().keeps_within(&limits, now, &self.scene.log);
        }
        Ok(())
    }

    async fn all_mails(&self) -> Result<Vec<Delivery>, StoreError> {
        let mut filter = MailFilter::default();
        let mut all = Vec::new();
        loop {
            let page = self.store.mails(&filter, PAGE).await?;
            let Some(last) = page.last() else { return Ok(all) };
            filter.before = Some(last.id);
            all.extend(page);
        }
    }

    fn judge(&self, mail: &Delivery, truth: &Truth, at_rest: bool) {
        let id = mail.id.simple().to_string();
        let Truth { arrived, taken, .. } = *truth;
        let untrue = |rule, detail: &str| {
            let status = mail.status.as_str();
            let detail = format!("{status}: {detail}; {truth:?}, {:?}", mail.history);
            self.broken(rule, &id, &detail);
        };
        match mail.status {
            Status::Sent if taken == 0 => untrue("sent is true", "no server has taken it"),
            Status::Failed | Status::Cancelled if arrived > 0 && mail.sending.is_none() => {
                untrue("what arrived is told", "it has arrived");
            }
            Status::Queued if at_rest => untrue("every mail ends", "it is still queued"),
            _ => {}
        }
        // Whoever gets a mail twice was to be told that this may be. While an attempt is under way, it
        // is the mark that says so.
        if arrived > 1 && !mail.possibly_duplicate && mail.sending.is_none() {
            untrue("doubt is told", &format!("it arrived {arrived} times, and nothing says so"));
        }
        if !at_rest {
            return;
        }
        if mail.sending.is_some() {
            untrue("every mail ends", "it is marked as being sent, and nobody sends it");
        }
        let (log, now) = (&self.scene.log, self.clock.now());
        log.mark(now, &format!("{mail:?}"));
        log.count(match mail.status {
            Status::Sent => Tally::EndedSent,
            Status::PossiblySent => Tally::EndedPossiblySent,
            Status::Failed => Tally::EndedFailed,
            Status::Cancelled | Status::Queued => Tally::EndedCancelled,
        });
        if mail.possibly_duplicate {
            log.count(Tally::PossiblyDuplicate);
        }
    }

    fn nothing_is_lost_or_invented(&self, mails: &[Delivery]) {
        let known: BTreeSet<Uuid> = mails.iter().map(|mail| mail.id).collect();
        let told = self.scene.book().mails().to_vec();
        for id in told.iter().filter(|id| !known.contains(*id)) {
            self.broken("nothing is lost", &id.to_string(), "told of, and not there");
        }
        let sent: Vec<String> =
            self.scene.world().known().map(|(message_id, _)| message_id.clone()).collect();
        for message_id in sent.iter().filter(|id| !known.contains(&delivery_of(id))) {
            self.broken("nothing is invented", message_id, "only the server knows it");
        }
    }

    /// Every batch that was promised is there, whole, and its driver has done what was wished.
    async fn batches_add_up(&self, mails: &[Delivery]) -> Result<(), StoreError> {
        const RULE: &str = "batches add up";
        let batches = self.scene.book().batches().to_vec();
        for id in batches {
            let key = id.to_string();
            let Some(batch) = self.store.mail_batch(id).await? else {
                self.broken("nothing is lost", &key, "a batch that was taken is not there");
                continue;
            };
            self.scene.log.mark(self.clock.now(), &format!("{batch:?}"));
            let mine = || mails.iter().filter(|mail| mail.batch_id == Some(id));
            let count = i64::try_from(mine().count()).unwrap_or(i64::MAX);
            if count != batch.total {
                self.broken(RULE, &key, &format!("{count} mails of {}", batch.total));
            }
            if batch.work != Work::Nothing {
                self.broken(RULE, &key, &format!("its driver has left {:?}", batch.work));
            }
        }
        Ok(())
    }
}
