//! Reading what the invariants are judged by.

use std::collections::{BTreeMap, BTreeSet};

use tashika_domain::case::CaseStatus;
use tashika_domain::payment::{self, Payment};
use tashika_domain::reservation::{self, Reservation, Status};
use tashika_store::{PaymentFilter, ReservationFilter, StoreError};
use uuid::Uuid;

use super::invariants::Evidence;
use super::payments::account::Account;
use super::payments::webhooks::Mail;
use super::process::Process;
use super::tally::Tally;

/// Rows that are read at once.
const PAGE: i64 = 500;
const STORE: &str = "the store answers";

/// What is known when nothing is under way any more.
struct Rest {
    payments: BTreeMap<Uuid, Vec<Payment>>,
    mail: Mail,
}

impl Process {
    /// Nobody shares a slot, at no moment.
    pub async fn check_slots(&self) {
        for day in 1..=self.scene.swarm.clients.days {
            let day = format!("2026-12-{day:02}");
            let owners = match self.store.reservations_of_day(&day).await {
                Ok(owners) => owners,
                Err(error) => return self.broken(STORE, "", &error.to_string()),
            };
            let mut slots = BTreeSet::new();
            for owner in owners {
                if !slots.insert(owner.request.slot_number) {
                    self.broken("one owner per slot", &owner.id.to_string(), "it has another one");
                }
            }
        }
    }

    /// Checks reservations by id.
    pub async fn check_these(&self, ids: &[Uuid]) {
        for id in ids {
            let judged = match self.store.reservation(*id).await {
                Ok(Some(reservation)) => self.judge(&reservation, None).await,
                Ok(None) => {
                    self.broken("nothing is lost", &id.to_string(), "told of, and not there");
                    Ok(())
                }
                Err(error) => Err(error),
            };
            if let Err(error) = judged {
                return self.broken(STORE, "", &error.to_string());
            }
        }
    }

    /// Checks everything there is, when nothing is under way any more, and writes it down.
    pub async fn check_all(&self) {
        let mail = self.bank.check_all().await;
        self.check_slots().await;
        if let Err(error) = self.try_check_all(mail).await {
            self.broken(STORE, "", &error.to_string());
        }
    }

    async fn try_check_all(&self, mail: Mail) -> Result<(), StoreError> {
        let rest = Rest { payments: self.payments().await?, mail };
        let letters = self.letters().await?;
        let mut filter = ReservationFilter::default();
        let mut known = BTreeSet::new();
        loop {
            let page = self.store.reservations(&filter, PAGE).await?;
            let Some(last) = page.last() else { break };
            filter.before = Some(last.id);
            for reservation in &page {
                known.insert(reservation.id);
                self.judge(reservation, Some(&rest)).await?;
                self.story_of(reservation).await?;
                let payments: Vec<&Payment> =
                    rest.payments.get(&reservation.id).into_iter().flatten().collect();
                self.everybody_is_told(reservation, &payments, &letters).await?;
                self.scene.log.mark(self.clock.now(), &format!("{reservation:?}"));
                self.scene.log.count(ended(reservation.status));
            }
        }
        let told = self.scene.book().known().to_vec();
        for id in told.into_iter().filter(|id| !known.contains(id)) {
            self.broken("nothing is lost", &id.to_string(), "told of, and not there");
        }
        self.balance(&rest).await
    }

    async fn payments(&self) -> Result<BTreeMap<Uuid, Vec<Payment>>, StoreError> {
        let mut filter = PaymentFilter::default();
        let mut all: BTreeMap<Uuid, Vec<Payment>> = BTreeMap::new();
        loop {
            let page = self.store.payments(&filter, PAGE).await?;
            let Some(last) = page.last() else { return Ok(all) };
            filter.before = Some(last.id);
            for payment in page {
                let reservation = payment.request.booking_id.parse().unwrap_or_default();
                all.entry(reservation).or_default().push(payment);
            }
        }
    }

    /// What was paid for a reservation, by the gateway's own books.
    fn accounts_of(&self, reservation: Uuid) -> Vec<(Uuid, Account)> {
        let (bank, now) = (&self.scene.bank, self.clock.now());
        let mut world = bank.world();
        world.flush(now, &bank.log);
        let of = |(id, account): (&Uuid, &Account)| {
            let page = account.page.as_ref()?;
            (page.reservation == reservation).then(|| (*id, account.clone()))
        };
        world.known().filter_map(of).collect()
    }

    /// `rest` is there when nothing is under way any more.
    async fn judge(
        &self,
        reservation: &Reservation,
        rest: Option<&Rest>,
    ) -> Result<(), StoreError> {
        let (scene, id) = (&self.scene, reservation.id);
        let renders = self.store.renders_of(id).await?;
        let (paid, accounts): (Vec<Uuid>, Vec<Account>) = self.accounts_of(id).into_iter().unzip();
        for render in &renders {
            let made = render.output_url.as_deref().and_then(|url| url.strip_prefix("sim://"));
            if made.is_some_and(|video| !scene.works().knows(video, render.id)) {
                self.broken("nothing is invented", &id.to_string(), "a video that nobody made");
            }
        }
        let mut somebody_knows = false;
        if let Some(rest) = rest {
            for render in &renders {
                self.story_of_render(render).await?;
                scene.log.mark(self.clock.now(), &format!("{render:?}"));
            }
            somebody_knows = self.somebody_knows(id, &paid, rest).await?;
            let held: i64 = accounts.iter().map(|account| account.held(self.clock.now())).sum();
            if somebody_knows && held > 0 && !reservation.status.has_slot() {
                scene.log.count(Tally::LeftToAPerson);
            }
        }
        let entry = scene.book().entry(&reservation.key.key).cloned();
        let evidence = Evidence {
            reservation,
            renders: &renders,
            accounts: &accounts,
            entry: entry.as_ref(),
            told_cancelled: scene.book().was_told_cancelled(id),
            policy: scene.swarm.rules.late_payment,
            somebody_knows,
            now: self.clock.now(),
            at_rest: rest.is_some(),
        };
        let violations = evidence.judge(&mut scene.memory());
        for violation in violations {
            scene.log.violate(self.clock.now(), violation);
        }
        Ok(())
    }

    /// A case about the money is open, or what told of it is a dead letter.
    async fn somebody_knows(
        &self,
        id: Uuid,
        payments: &[Uuid],
        rest: &Rest,
    ) -> Result<bool, StoreError> {
        let mut cases = self.store.cases_of(reservation::KIND, &id.to_string()).await?;
        for payment in payments {
            cases.extend(self.store.cases_of(payment::KIND, &payment.to_string()).await?);
        }
        let open = cases.iter().any(|case| case.status == CaseStatus::Open);
        Ok(open || payments.iter().any(|payment| rest.mail.dead.contains(payment)))
    }

    /// The gateway's ledger and ours, to the yen.
    async fn balance(&self, rest: &Rest) -> Result<(), StoreError> {
        let now = self.clock.now();
        let mut ours: BTreeMap<Uuid, (i64, i64)> = BTreeMap::new();
        for payment in rest.payments.values().flatten() {
            let failed = payment.status == payment::Status::Failed;
            // What a failed payment had taken was given back by an undoing, which is no refund.
            let sums = (payment.captured_amount, payment.refunded_amount);
            ours.insert(payment.id, if failed { (0, 0) } else { sums });
        }
        let theirs: Vec<(Uuid, Account)> = {
            let world = self.scene.bank.world();
            world.known().map(|(id, account)| (*id, account.clone())).collect()
        };
        for (id, account) in theirs.into_iter().filter(|(id, _)| !id.is_nil()) {
            let (captured, refunded) = ours.get(&id).copied().unwrap_or_default();
            let held = account.held(now);
            if captured - refunded == held {
                continue;
            }
            let reservation = account.page.map(|page| page.reservation).unwrap_or_default();
            if !self.somebody_knows(reservation, &[id], rest).await? {
                let detail = format!("here {captured} - {refunded}, there {held}");
                self.broken("the books balance", &id.to_string(), &detail);
            }
        }
        Ok(())
    }
}

const fn ended(status: Status) -> Tally {
    match status {
        Status::Hold => Tally::EndedHold,
        Status::Confirmed => Tally::EndedConfirmed,
        Status::Expired => Tally::EndedExpired,
        Status::Cancelled => Tally::EndedCancelledReservation,
    }
}
