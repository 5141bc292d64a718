//! The sandbox's side of a checkout: for Tashika, and for whoever plays the customer.

use tashika_domain::payment::session::RemoteSession;
use tashika_domain::{Outcome, Timestamp};

use super::checkout::{PayRefusal, SandboxPage, payment_of, session_id};
use super::rules::{Account, Decision, Say};
use super::{Done, SandboxGateway, busy, replied};
use crate::gateway::{CheckoutOrder, Operation, SessionRef};
use crate::reply::Reply;

impl SandboxGateway {
    fn pages(&self) -> Option<&str> {
        self.pages.get().map(String::as_str)
    }

    pub(super) async fn open_session(&self, order: CheckoutOrder<'_>) -> Reply<RemoteSession> {
        let decide = |before: Option<Account>| {
            let mut account = before.clone().unwrap_or_else(|| Account::ordered(&order));
            account.settle(order.now);
            let say = account.open_checkout(&order);
            let opened = account.checkout.is_some();
            Decision { changed: opened && before.as_ref() != Some(&account), account, say }
        };
        let tell = |account: &Account| account.session(order.now, self.pages());
        self.perform(order.payment_id, Operation::OpenCheckout, decide, tell).await
    }

    pub(super) async fn session(&self, asked: SessionRef<'_>) -> Reply<RemoteSession> {
        let outcome = match self.read(asked.payment_id).await {
            Err(why) => busy(why),
            Ok((_, account)) => {
                let found = account.and_then(|mut account| {
                    account.settle(asked.now);
                    account.session(asked.now, self.pages())
                });
                let found = found.filter(|session| session.id == asked.session_id);
                found.map_or_else(unknown, Outcome::Done)
            }
        };
        replied(Operation::Checkout, outcome)
    }

    pub(super) async fn expire_session(&self, asked: SessionRef<'_>) -> Reply<RemoteSession> {
        if asked.session_id != session_id(asked.payment_id) {
            return replied(Operation::ExpireCheckout, unknown());
        }
        match self.read(asked.payment_id).await {
            Err(why) => replied(Operation::ExpireCheckout, busy(why)),
            Ok((_, None)) => replied(Operation::ExpireCheckout, unknown()),
            Ok((_, Some(first))) => {
                let decide = |before: Option<Account>| {
                    // Records are never taken away, so it is there as it was a moment ago.
                    let mut account = before.clone().unwrap_or_else(|| first.clone());
                    account.settle(asked.now);
                    let say = account.expire_checkout(asked.now);
                    Decision { changed: before.as_ref() != Some(&account), account, say }
                };
                let tell = |account: &Account| account.session(asked.now, self.pages());
                self.perform(asked.payment_id, Operation::ExpireCheckout, decide, tell).await
            }
        }
    }

    /// The page with this id, as a customer would see it.
    pub async fn page_of(
        &self,
        session_id: &str,
        now: Timestamp,
    ) -> Result<SandboxPage, PayRefusal> {
        let payment_id = payment_of(session_id).ok_or(PayRefusal::Unknown)?;
        let (_, account) = self.read(payment_id).await.map_err(PayRefusal::Book)?;
        let mut account = account.ok_or(PayRefusal::Unknown)?;
        account.settle(now);
        account.page(now, self.pages()).ok_or(PayRefusal::Unknown)
    }

    /// A customer pays. Paying twice is paying once.
    pub async fn pay(
        &self,
        session_id: &str,
        method: &str,
        now: Timestamp,
    ) -> Result<SandboxPage, PayRefusal> {
        let payment_id = payment_of(session_id).ok_or(PayRefusal::Unknown)?;
        let (_, first) = self.read(payment_id).await.map_err(PayRefusal::Book)?;
        let first = first.ok_or(PayRefusal::Unknown)?;
        let paid = |before: Option<Account>| {
            let mut account = before.unwrap_or_else(|| first.clone());
            account.settle(now);
            let paid = account.pay(method, now, self.late_after);
            (account, paid)
        };
        let done = self.execute(payment_id, |before| {
            let (account, _) = paid(before.clone());
            Decision { changed: before.as_ref() != Some(&account), account, say: Say::Done }
        });
        match done.await {
            Done::Unread(why) | Done::Unwritten(why) => Err(PayRefusal::Book(why)),
            // A refusal changes nothing, so asking again what was decided says the same.
            Done::Decided(decision) => {
                let (account, answer) = paid(Some(decision.account));
                answer?;
                account.page(now, self.pages()).ok_or(PayRefusal::Unknown)
            }
        }
    }
}

fn unknown<T>() -> Outcome<T> {
    use tashika_domain::outcome::Reason;
    use tashika_domain::payment::remote::code;
    Outcome::Refused(Reason::new(code::INVALID_REQUEST, "there is no such session"))
}
