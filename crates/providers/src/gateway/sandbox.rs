//! The default gateway: inside the process, moves no money, forgets nothing.
//!
//! For development, demonstrations and the first day with a new installation. The payment method
//! chooses what happens, so that every way a payment can go can be tried by hand; `methods` has the
//! list, and an unknown method is refused with it:
//!
//! | Payment method | Authorization |
//! |---|---|
//! | `ok`, `card_visa`, `visa` | authorized |
//! | `declined`, `insufficient_funds`, `expired` (`expired_card`) | refused |
//! | `charged_but_silent` | authorized, and no answer |
//! | `lost_before_charge` | not authorized, and no answer |
//! | `late_execution` | no answer; authorized later, unless fenced before |
//! | `500_after_effect` | authorized, answered with a failure that says nothing |
//! | `unreachable` | no connection |
//! | `requires_action` | pending: the customer has to authenticate |
//!
//! With `capture_`, `void_` or `refund_` in front the same happens to that operation, and the
//! authorization goes well. `pm_`, `tok_` and `sandbox_` in front of everything are ignored.
//!
//! The rules are a pure function (`rules`) of the record, the request and `now`: a late execution is
//! not a task that waits somewhere, it has happened when somebody looks after its time. Records live
//! in a [`SandboxBook`], so they survive restarts and are the same for every process. Keys are
//! honoured for ever: what was executed is told again, without its fault.
//!
//! A checkout session is a page of Tashika's own, under `/sandbox/checkout/`, where somebody plays the
//! customer; `checkout` has its rules.
//!
//! A fence leaves an authorization alone that came before it, and says so.

mod checkout;
mod methods;
mod pages;
mod rules;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::payment::remote::{Remote, RemoteRefund, code};
use tashika_domain::payment::session::RemoteSession;
use tashika_domain::{Outcome, Timestamp};
use tokio::time::Instant;
use uuid::Uuid;

use super::wire::unasked;
use super::{Charge, CheckoutOrder, Gateway, Operation, Page, RefundOrder, SessionRef, observed};
use crate::reply::{BoxFuture, Reply};
pub use checkout::{MEANS, PayRefusal, SandboxPage};
use rules::{Account, Act, Decision, Say, decide};

/// How long a late execution takes to arrive.
pub const LATE_AFTER: Duration = Duration::from_secs(60);

/// Payments in a page of the list.
const PAGE: i64 = 100;

/// How often a record that others write to at the same time is tried. Each time at least one of them
/// got through, so more than this is no contention but a book that does not work.
const SAVES_MAX: usize = 20;

/// Where the sandbox keeps its records. Somebody else's database, in one row per payment.
pub trait SandboxBook: Send + Sync {
    /// The record and its version.
    fn load(&self, payment_id: Uuid) -> BoxFuture<'_, Result<Option<(i64, String)>, String>>;

    /// Writes the record if its version still is `expected`; 0 means that there is none yet.
    /// `false`: the version has moved, nothing was written.
    fn save<'a>(
        &'a self,
        payment_id: Uuid,
        expected: i64,
        state: &'a str,
        created_at: Timestamp,
    ) -> BoxFuture<'a, Result<bool, String>>;

    /// The records with `created_at` in `[from, until)`, in an order that does not change, beginning
    /// after the record of `after`.
    fn list(
        &self,
        from: Timestamp,
        until: Timestamp,
        after: Option<Uuid>,
        limit: i64,
    ) -> BoxFuture<'_, Result<Vec<(Uuid, String)>, String>>;
}

/// The sandbox.
pub struct SandboxGateway {
    book: Arc<dyn SandboxBook>,
    timeout: Duration,
    late_after: Duration,
    /// Where pages are shown, without a slash at the end.
    pages: OnceLock<String>,
}

/// How an operation went, before it is told.
enum Done {
    Decided(Box<Decision>),
    /// The book failed before anything was written.
    Unread(String),
    /// The book failed, and may have written.
    Unwritten(String),
}

impl SandboxGateway {
    pub const NAME: &'static str = "sandbox";

    /// `timeout` is how long a caller waits for an answer that does not come.
    #[must_use]
    pub fn new(book: Arc<dyn SandboxBook>, timeout: Duration) -> Self {
        Self { book, timeout, late_after: LATE_AFTER, pages: OnceLock::new() }
    }

    /// How long a late execution takes to arrive, instead of [`LATE_AFTER`].
    #[must_use]
    pub fn with_late_after(self, late_after: Duration) -> Self {
        Self { late_after, ..self }
    }

    /// Where this server's pages are, e.g. `http://127.0.0.1:8080`: known once it listens, and then
    /// for good. Without, sessions have no address.
    pub fn show_pages_at(&self, base: &str) {
        self.pages.get_or_init(|| base.trim_end_matches('/').to_owned());
    }

    async fn read(&self, payment_id: Uuid) -> Result<(i64, Option<Account>), String> {
        match self.book.load(payment_id).await? {
            None => Ok((0, None)),
            Some((version, state)) => {
                let account = serde_json::from_str(&state)
                    .map_err(|error| format!("the record cannot be read: {error}"))?;
                Ok((version, Some(account)))
            }
        }
    }

    /// Reads, decides and writes, again if somebody else was faster.
    async fn execute(
        &self,
        payment_id: Uuid,
        decide: impl Fn(Option<Account>) -> Decision,
    ) -> Done {
        for _ in 0..SAVES_MAX {
            let (version, before) = match self.read(payment_id).await {
                Ok(read) => read,
                Err(why) => return Done::Unread(why),
            };
            let decision = Box::new(decide(before));
            if !decision.changed {
                return Done::Decided(decision);
            }
            let account = &decision.account;
            let state = match serde_json::to_string(account) {
                Ok(state) => state,
                Err(error) => return Done::Unread(error.to_string()),
            };
            match self.book.save(payment_id, version, &state, account.created_at).await {
                Ok(true) => return Done::Decided(decision),
                Ok(false) => {}
                Err(why) => return Done::Unwritten(why),
            }
        }
        Done::Unread("the record changes faster than it can be written".to_owned())
    }

    /// One operation, told by `tell` if it is done.
    async fn act<T>(
        &self,
        charge: Charge<'_>,
        operation: Operation,
        act: Act,
        tell: impl FnOnce(&Account) -> Option<T>,
    ) -> Reply<T> {
        let decide = |before| decide(before, &charge, &act, self.late_after);
        self.perform(charge.payment_id, operation, decide, tell).await
    }

    async fn perform<T>(
        &self,
        payment_id: Uuid,
        operation: Operation,
        decide: impl Fn(Option<Account>) -> Decision,
        tell: impl FnOnce(&Account) -> Option<T>,
    ) -> Reply<T> {
        let started = Instant::now();
        let outcome = match self.execute(payment_id, decide).await {
            Done::Unread(why) => busy(why),
            Done::Unwritten(why) => Outcome::Lost(Reason::new(code::UNKNOWN, why)),
            Done::Decided(decision) => match decision.say {
                Say::Done => tell(&decision.account).map_or_else(
                    || Outcome::Lost(Reason::new(code::UNKNOWN, "the record contradicts itself")),
                    Outcome::Done,
                ),
                Say::Refused(reason) => Outcome::Refused(reason),
                Say::Failure => {
                    Outcome::Lost(Reason::new(code::UNKNOWN, "the sandbox answered 500"))
                }
                Say::Unreachable => busy("connection refused".to_owned()),
                Say::Nothing => {
                    tokio::time::sleep(self.timeout).await;
                    let waited = self.timeout.as_millis();
                    let words = format!("no answer within {waited} ms");
                    Outcome::Lost(Reason::new(code::TIMEOUT, words))
                }
            },
        };
        Reply { rtt: started.elapsed(), ..replied(operation, outcome) }
    }

    async fn look(&self, charge: Charge<'_>) -> Reply<Remote> {
        let outcome = match self.read(charge.payment_id).await {
            Err(why) => busy(why),
            Ok((_, None)) => Outcome::Done(Remote::not_found()),
            Ok((_, Some(mut account))) => {
                account.settle(charge.now);
                Outcome::Done(account.remote())
            }
        };
        replied(Operation::Status, outcome)
    }

    async fn page(&self, from: Timestamp, until: Timestamp, after: Option<&str>) -> Reply<Page> {
        let outcome = match after.map(str::parse::<Uuid>).transpose() {
            Err(_) => Outcome::Refused(Reason::new(code::INVALID_REQUEST, "no such page")),
            Ok(after) => match self.book.list(from, until, after, PAGE).await {
                Err(why) => busy(why),
                Ok(records) => match listed(&records) {
                    Ok(page) => Outcome::Done(page),
                    Err(why) => Outcome::Lost(Reason::new(code::UNKNOWN, why)),
                },
            },
        };
        replied(Operation::List, outcome)
    }
}

/// A page of the list. What is on its way is told as arrived: a list is made of days that are over.
fn listed(records: &[(Uuid, String)]) -> Result<Page, String> {
    let mut items = Vec::with_capacity(records.len());
    for (id, state) in records {
        let mut account: Account = serde_json::from_str(state)
            .map_err(|error| format!("the record of {id} cannot be read: {error}"))?;
        account.settle(Timestamp::from_micros(i64::MAX));
        items.extend(account.listed());
    }
    let full = i64::try_from(records.len()).is_ok_and(|count| count >= PAGE);
    let next = records.last().filter(|_| full).map(|(id, _)| id.to_string());
    Ok(Page { items, next })
}

fn busy<T>(why: String) -> Outcome<T> {
    Outcome::Busy { reason: Reason::new(code::NETWORK_ERROR, why), retry_in: None }
}

fn replied<T>(operation: Operation, outcome: Outcome<T>) -> Reply<T> {
    let said = match &outcome {
        Outcome::Done(_) => "ok".to_owned(),
        Outcome::Refused(reason) => reason.code.clone(),
        Outcome::Busy { reason, .. } => format!("not sent: {}", reason.message),
        Outcome::Lost(reason) => reason.message.clone(),
    };
    let exchange = Exchange {
        request: format!("sandbox {}", operation.as_str()),
        reply: said,
        reference: None,
        sent: !matches!(outcome, Outcome::Busy { .. }),
    };
    Reply { outcome, exchange, rtt: Duration::ZERO }
}

impl Gateway for SandboxGateway {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn prepare<'a>(&'a self, _charge: Charge<'a>) -> BoxFuture<'a, Reply<Option<String>>> {
        let work = async { unasked("the sandbox is asked by our id", Outcome::Done(None)) };
        Box::pin(observed(Self::NAME, Operation::Prepare, work))
    }

    fn authorize<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        let told = |account: &Account| Some(account.remote());
        let work = self.act(charge, Operation::Authorize, Act::Authorize, told);
        Box::pin(observed(Self::NAME, Operation::Authorize, work))
    }

    fn capture<'a>(&'a self, charge: Charge<'a>, amount: i64) -> BoxFuture<'a, Reply<Remote>> {
        let told = |account: &Account| Some(account.remote());
        let work = self.act(charge, Operation::Capture, Act::Capture { amount }, told);
        Box::pin(observed(Self::NAME, Operation::Capture, work))
    }

    fn void<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        let told = |account: &Account| Some(account.remote());
        Box::pin(observed(
            Self::NAME,
            Operation::Void,
            self.act(charge, Operation::Void, Act::Void, told),
        ))
    }

    fn refund<'a>(
        &'a self,
        charge: Charge<'a>,
        refund: RefundOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteRefund>> {
        let RefundOrder { number, refund_id, amount, .. } = refund;
        let act = Act::Refund { number, refund_id, amount };
        let told = move |account: &Account| account.refund(number);
        let work = self.act(charge, Operation::Refund, act, told);
        Box::pin(observed(Self::NAME, Operation::Refund, work))
    }

    fn status<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(observed(Self::NAME, Operation::Status, self.look(charge)))
    }

    fn fence<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        let told = |account: &Account| Some(account.remote());
        let work = self.act(charge, Operation::Fence, Act::Fence, told);
        Box::pin(observed(Self::NAME, Operation::Fence, work))
    }

    fn list<'a>(
        &'a self,
        from: Timestamp,
        until: Timestamp,
        after: Option<&'a str>,
    ) -> BoxFuture<'a, Reply<Page>> {
        Box::pin(observed(Self::NAME, Operation::List, self.page(from, until, after)))
    }

    fn open_checkout<'a>(
        &'a self,
        order: CheckoutOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        Box::pin(observed(Self::NAME, Operation::OpenCheckout, self.open_session(order)))
    }

    fn checkout<'a>(&'a self, session: SessionRef<'a>) -> BoxFuture<'a, Reply<RemoteSession>> {
        Box::pin(observed(Self::NAME, Operation::Checkout, self.session(session)))
    }

    fn expire_checkout<'a>(
        &'a self,
        session: SessionRef<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        Box::pin(observed(Self::NAME, Operation::ExpireCheckout, self.expire_session(session)))
    }
}
