//! Reading what the invariants are judged by.

use tashika_domain::payment::status::{self, Event};
use tashika_domain::payment::{EXPIRY_KIND, KIND, Payment, RefundStatus, Status};
use tashika_domain::{Lane, payment};
use tashika_store::{EffectFilter, PaymentFilter, StoreError};
use uuid::Uuid;

use super::invariants::Evidence;
use super::process::Process;
use super::tally::Tally;
use super::webhooks::Mail;

/// Payments that are read at once.
const PAGE: i64 = 500;
/// More rows than any run has.
const ALL: i64 = 1_000_000;

impl Process {
    /// Checks payments by id.
    pub async fn check_these(&self, ids: &[Uuid]) {
        for id in ids {
            let read = self.store.payment(*id).await;
            let judged = match &read {
                Ok(payment) => self.judge(*id, payment.as_ref(), None).await,
                Err(error) => return self.broken("the store answers", "", &error.to_string()),
            };
            if let Err(error) = judged {
                return self.broken("the store answers", "", &error.to_string());
            }
        }
    }

    /// Checks every payment there is, when nothing is under way any more, and writes it down.
    /// Returns what became of the webhooks.
    pub async fn check_all(&self) -> Mail {
        match self.try_check_all().await {
            Ok(mail) => mail,
            Err(error) => {
                self.broken("the store answers", "", &error.to_string());
                Mail::default()
            }
        }
    }

    async fn try_check_all(&self) -> Result<Mail, StoreError> {
        let mail = self.check_webhooks().await?;
        let mut filter = PaymentFilter::default();
        let mut known = Vec::new();
        loop {
            let page = self.store.payments(&filter, PAGE).await?;
            let Some(last) = page.last() else { break };
            filter.before = Some(last.id);
            for payment in &page {
                known.push(payment.id);
                self.judge(payment.id, Some(payment), Some(&mail)).await?;
                self.the_whole_story(payment, &mail).await?;
                self.scene.log.mark(self.clock.now(), &format!("{payment:?}"));
                self.scene.log.count(ended(payment));
            }
        }
        known.sort_unstable();
        let missing = |ids: Vec<Uuid>| -> Vec<Uuid> {
            ids.into_iter().filter(|id| known.binary_search(id).is_err()).collect()
        };
        let lost = missing(self.scene.book().payments().to_vec());
        for id in lost {
            self.broken("nothing is lost", &id.to_string(), "told of, and not there");
        }
        let invented = missing(self.scene.world().known().map(|(id, _)| *id).collect());
        for id in invented.into_iter().filter(|id| !id.is_nil()) {
            self.broken("nothing is invented", &id.to_string(), "only the gateway knows it");
        }
        self.write_down().await?;
        Ok(mail)
    }

    /// `mail` is there when nothing is under way any more.
    async fn judge(
        &self,
        id: Uuid,
        payment: Option<&Payment>,
        mail: Option<&Mail>,
    ) -> Result<(), StoreError> {
        let at_rest = mail.is_some();
        let (scene, now) = (&self.scene, self.clock.now());
        let mut effects = Vec::new();
        let mut cases = Vec::new();
        let mut expires = false;
        if let Some(payment) = payment {
            let pending = payment.refunds.iter().filter(|r| r.status == RefundStatus::Pending);
            let under_way = payment.operation.iter().map(|o| o.effect);
            for effect in under_way.chain(pending.map(|r| r.effect)) {
                effects.extend(self.store.effect(effect).await?);
            }
            if payment.verification_failed() || at_rest {
                cases = self.store.cases_of(KIND, &id.to_string()).await?;
            }
            if at_rest && payment.status == Status::Authorized {
                let timer = self.store.effect_by_key(EXPIRY_KIND, &id.to_string()).await?;
                expires = timer.is_some_and(|timer| !timer.status.is_settled());
            }
        }
        let account = {
            let mut world = scene.world();
            world.flush(now, &scene.log);
            world.account(id)
        };
        let entry = payment.and_then(|p| scene.book().entry(&p.key.key).cloned());
        let evidence = Evidence {
            id,
            payment,
            account: &account,
            entry: entry.as_ref(),
            effects: &effects,
            cases: &cases,
            expires,
            liar: scene.swarm.nature.liar,
            now,
            mail,
        };
        let violations = evidence.judge(&mut scene.memory());
        for violation in violations {
            scene.log.violate(now, violation);
        }
        Ok(())
    }

    /// Whether the timeline tells how the payment got where it is.
    async fn the_whole_story(&self, payment: &Payment, mail: &Mail) -> Result<(), StoreError> {
        const RULE: &str = "the whole story";
        let id = payment.id.to_string();
        let mut state = Status::Pending;
        let mut versions = vec![];
        let mut heard = 0;
        for line in self.store.payment_timeline(payment.id).await? {
            versions.push(line.version);
            if line.kind == "race" {
                self.scene.log.count(Tally::Race);
            }
            let entry: serde_json::Value = serde_json::from_str(&line.entry).unwrap_or_default();
            heard += usize::from(line.kind == "heard" && entry["source"] == "webhook");
            if line.kind != "transition" {
                continue;
            }
            let event = Event::ALL.into_iter().find(|event| entry["event"] == format!("{event:?}"));
            let next = event.and_then(|event| status::next(state, event).ok());
            let Some((event, next)) = event.zip(next) else {
                self.broken(RULE, &id, &format!("{} leads nowhere", line.entry));
                return Ok(());
            };
            state = next;
            self.scene.log.count(taken(event));
        }
        if state != payment.status {
            let (told, is) = (state.as_str(), payment.status.as_str());
            self.broken(RULE, &id, &format!("the timeline ends with {told}, it is {is}"));
        }
        let events = mail.heard.get(&payment.id).copied().unwrap_or(0);
        if heard > events {
            let detail = format!("{heard} changes were made by {events} webhooks");
            self.broken("one event, one effect", &id, &detail);
        }
        versions.dedup();
        let contiguous = (1..=payment.version).eq(versions.iter().copied());
        if !contiguous {
            self.broken(RULE, &id, &format!("version {}, lines {versions:?}", payment.version));
        }
        Ok(())
    }

    /// Writes the outbox and the cases into the trace, and counts what became of everything.
    async fn write_down(&self) -> Result<(), StoreError> {
        let (log, now) = (&self.scene.log, self.clock.now());
        let filter = EffectFilter { lane: Some(Lane::PAYMENTS), ..EffectFilter::default() };
        for effect in self.store.effects(&filter, ALL).await? {
            log.mark(now, &format!("{effect:?}"));
            if effect.attempts == 0 && !effect.in_doubt {
                continue;
            }
            let attempts = self.store.attempts(effect.id).await?;
            for attempt in attempts.iter().filter(|attempt| attempt.outcome == "lapsed") {
                let life = |at| self.scene.life_at(at);
                let alive = life(attempt.started_at) == life(attempt.finished_at);
                log.count(if alive { Tally::LapseOfTheLiving } else { Tally::Lapse });
            }
            attempts.iter().skip(1).for_each(|_| log.count(Tally::Retry));
        }
        for case in self.store.cases(&tashika_store::CaseFilter::default(), ALL).await? {
            log.mark(now, &format!("{case:?}"));
            match case.kind.as_str() {
                payment::CASE_UNKNOWN => log.count(Tally::CaseOpened),
                payment::CASE_DIFFERENCE => log.count(Tally::DifferenceFound),
                // Of webhooks that were given up, which are counted as such.
                _ => {}
            }
        }
        Ok(())
    }
}

fn ended(payment: &Payment) -> Tally {
    match payment.status {
        Status::Pending => Tally::EndedPending,
        Status::Authorized => Tally::EndedAuthorized,
        Status::Captured => Tally::EndedCaptured,
        Status::Refunded => Tally::EndedRefunded,
        Status::Failed => Tally::EndedFailed,
    }
}

fn taken(event: Event) -> Tally {
    match event {
        Event::Authorize => Tally::TookAuthorize,
        Event::Fail => Tally::TookFail,
        Event::Capture => Tally::TookCapture,
        Event::Void => Tally::TookVoid,
        Event::RefundPart => Tally::TookRefundPart,
        Event::RefundRest => Tally::TookRefundRest,
    }
}
