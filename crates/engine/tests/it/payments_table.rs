//! The product: every fault of the gateway, in every operation, with a crash at every moment of it.
//!
//! Each combination is a payment of its own. One process takes it up to the chosen moment of the chosen
//! operation and is killed there, all of it at once. A second process finds what is left, asks about each
//! payment, and is killed with the answers in its hands. A third goes on. At the end the gateway's true
//! ledger and the payment must say the same, or a person must have been asked.

use std::collections::BTreeMap;
use std::future::{Future, pending};
use std::sync::Arc;
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_domain::payment::remote::{Remote, RemoteRefund};
use tashika_domain::payment::session::RemoteSession;
use tashika_domain::payment::{Payment, Status};
use tashika_engine::Clock;
use tashika_providers::gateway::stripe::StripeGateway;
use tashika_providers::gateway::{Charge, CheckoutOrder, Gateway, Page, RefundOrder, SessionRef};
use tashika_providers::reply::{BoxFuture, Reply};
use tashika_store::Store;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, PATIENCE, until};
use tashika_testkit::gateway::{Fault, Operation, World};
use tashika_testkit::on_both;
use tokio::sync::watch;
use uuid::Uuid;

use crate::payments_support::{
    AMOUNT, DECLINING, Shop, Town, VISA, caller, differs, forsake, request, rules, shop_with,
    stripe,
};

on_both!(every_fault_in_every_operation_survives_a_crash_at_every_moment);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Goes {
    Answers,
    Declines,
    DropsBefore,
    ExecutesThenSilent,
    ExecutesLate,
    FailsAfterEffect,
    /// 409, because the first request under the key takes its time.
    KeyInUse,
    /// 409, because somebody else is at the object.
    LockTimeout,
    RateLimited,
}

const GOES: [Goes; 9] = [
    Goes::Answers,
    Goes::Declines,
    Goes::DropsBefore,
    Goes::ExecutesThenSilent,
    Goes::ExecutesLate,
    Goes::FailsAfterEffect,
    Goes::KeyInUse,
    Goes::LockTimeout,
    Goes::RateLimited,
];

/// An authorization is two requests; both are in the table.
const OPERATIONS: [Operation; 5] = [
    Operation::Create,
    Operation::Confirm,
    Operation::Capture,
    Operation::Cancel,
    Operation::Refund,
];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Crash {
    BeforeSend,
    AfterSend,
    AfterAnswer,
    /// Not in this operation; somewhere, when the others are at their moments.
    Anywhere,
}

const CRASHES: [Crash; 4] =
    [Crash::BeforeSend, Crash::AfterSend, Crash::AfterAnswer, Crash::Anywhere];

#[derive(Clone, Copy, Debug)]
struct Row {
    goes: Goes,
    operation: Operation,
    crash: Crash,
}

fn table() -> Vec<Row> {
    let mut rows = Vec::new();
    for goes in GOES {
        for operation in OPERATIONS {
            rows.extend(CRASHES.map(|crash| Row { goes, operation, crash }));
        }
    }
    rows
}

impl Row {
    fn fault(self, gate: &Gate) -> Option<Fault> {
        Some(match self.goes {
            Goes::Answers | Goes::Declines => return None,
            Goes::DropsBefore => Fault::DropBefore,
            Goes::ExecutesThenSilent => Fault::ExecuteThenSilence,
            Goes::ExecutesLate => Fault::late(),
            Goes::FailsAfterEffect => Fault::fail_after(),
            Goes::KeyInUse => Fault::Slow(gate.clone()),
            Goes::LockTimeout => Fault::LockTimeout { status: 409, should_retry: None },
            Goes::RateLimited => Fault::rate_limited(),
        })
    }

    fn method(self) -> &'static str {
        let decline = matches!(self.operation, Operation::Create | Operation::Confirm);
        if self.goes == Goes::Declines && decline { DECLINING } else { VISA }
    }

    /// What somebody else gave back at the gateway, so that ours was refused.
    fn foreign(self) -> i64 {
        let refused = self.goes == Goes::Declines && self.operation == Operation::Refund;
        if refused { AMOUNT } else { 0 }
    }

    /// Nothing more happens to it until late requests have arrived.
    const fn waits(self) -> bool {
        matches!(self.goes, Goes::KeyInUse | Goes::ExecutesLate)
    }
}

/// Stops for ever at the moment that a payment's row names. The row's number is in the description.
struct Deadly {
    inner: StripeGateway,
    world: World,
    rows: Vec<Row>,
    slow: Gate,
    reached: watch::Sender<BTreeMap<Uuid, usize>>,
    /// In its second life it stops after the first answer of any kind.
    second: bool,
}

impl Deadly {
    async fn at<T>(
        &self,
        operation: Operation,
        charge: Charge<'_>,
        call: impl Future<Output = Reply<T>>,
    ) -> Reply<T> {
        let number: usize = charge.description.unwrap().parse().unwrap();
        let (row, id) = (self.rows[number], charge.payment_id);
        let here = || {
            self.reached.send_modify(|reached| {
                reached.insert(id, number);
            });
        };
        if self.second {
            drop(call.await);
            here();
            return pending().await;
        }
        if row.operation != operation {
            return call.await;
        }
        if row.goes == Goes::Declines {
            self.meddle(operation, charge).await;
        }
        self.world.script_for(&id.to_string(), operation, row.fault(&self.slow));
        match row.crash {
            Crash::BeforeSend => {}
            Crash::AfterSend => {
                let before = self.world.calls_for(&id.to_string(), operation);
                let heard = self.world.until("the call", |world| {
                    world.calls_for(&id.to_string(), operation) > before
                });
                tokio::select! {
                    () = heard => {}
                    _ = call => {}
                }
            }
            Crash::AfterAnswer => drop(call.await),
            Crash::Anywhere => {
                let reply = call.await;
                here();
                return reply;
            }
        }
        here();
        pending().await
    }

    /// Somebody does something at the gateway that makes it refuse what comes next.
    async fn meddle(&self, operation: Operation, charge: Charge<'_>) {
        match operation {
            Operation::Capture => drop(self.inner.fence(charge).await),
            Operation::Cancel => drop(self.inner.capture(charge, AMOUNT).await),
            Operation::Refund => {
                let refund_id = Uuid::from_u128(9);
                let order = RefundOrder { refund_id, number: 9, amount: AMOUNT, reason: None };
                drop(self.inner.refund(charge, order).await);
            }
            _ => {}
        }
    }
}

impl Gateway for Deadly {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn prepare<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Option<String>>> {
        Box::pin(self.at(Operation::Create, charge, self.inner.prepare(charge)))
    }

    fn authorize<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(self.at(Operation::Confirm, charge, self.inner.authorize(charge)))
    }

    fn capture<'a>(&'a self, charge: Charge<'a>, amount: i64) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(self.at(Operation::Capture, charge, self.inner.capture(charge, amount)))
    }

    fn void<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(self.at(Operation::Cancel, charge, self.inner.void(charge)))
    }

    fn refund<'a>(
        &'a self,
        charge: Charge<'a>,
        refund: RefundOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteRefund>> {
        Box::pin(self.at(Operation::Refund, charge, self.inner.refund(charge, refund)))
    }

    fn status<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(self.at(Operation::Retrieve, charge, self.inner.status(charge)))
    }

    fn fence<'a>(&'a self, charge: Charge<'a>) -> BoxFuture<'a, Reply<Remote>> {
        Box::pin(self.at(Operation::Other, charge, self.inner.fence(charge)))
    }

    fn list<'a>(
        &'a self,
        from: Timestamp,
        until: Timestamp,
        after: Option<&'a str>,
    ) -> BoxFuture<'a, Reply<Page>> {
        self.inner.list(from, until, after)
    }

    fn open_checkout<'a>(
        &'a self,
        order: CheckoutOrder<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        self.inner.open_checkout(order)
    }

    fn checkout<'a>(&'a self, session: SessionRef<'a>) -> BoxFuture<'a, Reply<RemoteSession>> {
        self.inner.checkout(session)
    }

    fn expire_checkout<'a>(
        &'a self,
        session: SessionRef<'a>,
    ) -> BoxFuture<'a, Reply<RemoteSession>> {
        self.inner.expire_checkout(session)
    }
}

/// Looks until nothing is under way. (`until` takes a closure that cannot be sent to another thread.)
async fn calm(shop: &Shop, id: Uuid) -> Status {
    loop {
        if let Some(payment) = shop.store.payment(id).await.unwrap().filter(Payment::is_at_rest) {
            return payment.status;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

/// Takes a payment up to the operation of its row, from which it does not return.
async fn live(shop: Arc<Shop>, number: usize, row: Row) {
    let mut body = request(row.method());
    body["description"] = number.to_string().into();
    let reached = matches!(row.operation, Operation::Create | Operation::Confirm);
    // On a busy machine what comes before may take too long, be fenced off, and have to be begun again.
    for turn in 0.. {
        let key = format!("k-{number}-{turn}");
        let Ok(answer) = shop.payments.create(caller(&key), &body).await else { return };
        let id = answer.payment.id;
        if reached {
            return;
        }
        if calm(&shop, id).await != Status::Authorized {
            continue;
        }
        match row.operation {
            Operation::Capture => drop(shop.capture(id, &key, None).await),
            Operation::Cancel => drop(shop.void(id, &key).await),
            _ => {
                drop(shop.capture(id, &key, None).await);
                calm(&shop, id).await;
                drop(shop.refund(id, &key, None).await);
            }
        }
        return;
    }
}

/// A process that can be killed.
struct Process {
    runtime: tokio::runtime::Runtime,
    reached: watch::Sender<BTreeMap<Uuid, usize>>,
}

impl Process {
    /// Starts one; in its first life it takes the payments of the table.
    fn start(town: &Town, rows: &[Row], slow: &Gate, second: bool) -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()
            .unwrap();
        let reached = watch::Sender::new(BTreeMap::new());
        let deadly = Arc::new(Deadly {
            inner: stripe(town.server.base_url()),
            world: town.world.clone(),
            rows: rows.to_vec(),
            slow: slow.clone(),
            reached: reached.clone(),
            second,
        });
        let (url, rows) = (town.db.url(), rows.to_vec());
        runtime.spawn(async move {
            let store = Store::open(&url, 4).await.unwrap();
            let worker = if second { "host:2:b" } else { "host:1:a" };
            let shop = Arc::new(shop_with(&store, worker, deadly, rules(), |engine, _| engine));
            for (number, row) in rows.into_iter().enumerate().filter(|_| !second) {
                tokio::spawn(live(Arc::clone(&shop), number, row));
            }
            // Until the end of the process.
            pending::<()>().await;
        });
        Self { runtime, reached }
    }

    /// Ends everything where it stands.
    async fn kill(self, db: &TestDb) {
        let end = move || self.runtime.shutdown_timeout(Duration::from_secs(10));
        tokio::task::spawn_blocking(end).await.unwrap();
        forsake(db).await;
    }
}

/// Takes every payment to its moment. Returns which payment is which row.
async fn first_life(town: &Town, rows: &[Row], slow: &Gate) -> BTreeMap<Uuid, usize> {
    let process = Process::start(town, rows, slow, false);
    let mut watching = process.reached.subscribe();
    let enough = watching.wait_for(|reached| reached.len() == rows.len());
    let waited = tokio::time::timeout(PATIENCE, enough).await.map(drop);
    let known = process.reached.borrow().clone();
    if waited.is_err() {
        let missing = rows.iter().enumerate().filter(|(n, _)| !known.values().any(|k| k == n));
        panic!("never came to their moment: {:?}", missing.collect::<Vec<_>>());
    }
    process.kill(&town.db).await;
    known
}

/// Asks about every payment that has not ended, and never gets to write down what it hears. Returns how
/// many it asked about.
async fn second_life(town: &Town, rows: &[Row], slow: &Gate, ids: &[(Uuid, Row)]) -> usize {
    let process = Process::start(town, rows, slow, true);
    for (id, row) in ids {
        until(&format!("a question about {row:?}"), async || {
            let payment = town.store.payment(*id).await.unwrap().unwrap();
            let asked = process.reached.borrow().contains_key(id);
            (asked || payment.is_at_rest()).then_some(())
        })
        .await;
    }
    let asked = process.reached.borrow().len();
    process.kill(&town.db).await;
    asked
}

/// Waits until nothing is under way in any of the payments that are asked for, or they are with a person.
async fn settled(shop: &Shop, ids: &[(Uuid, Row)]) -> Vec<(Row, Payment)> {
    let mut ended = Vec::new();
    for (id, row) in ids {
        let what = format!("the end of {row:?}");
        let over = |payment: &Payment| payment.is_at_rest() || payment.verification_failed();
        ended.push((*row, shop.until(*id, &what, over).await));
    }
    ended
}

async fn every_fault_in_every_operation_survives_a_crash_at_every_moment(db: TestDb) {
    let started = Clock::System.now();
    let town = Town::new(db).await;
    let (rows, slow) = (table(), Gate::closed());
    let known = first_life(&town, &rows, &slow).await;
    let ids: Vec<(Uuid, Row)> = known.iter().map(|(id, number)| (*id, rows[*number])).collect();
    let asked = second_life(&town, &rows, &slow, &ids).await;

    let shop = town.shop(rules());
    let (waiting, others): (Vec<_>, Vec<_>) = ids.iter().partition(|(_, row)| row.waits());
    settled(&shop, &others).await;
    // Each of the others has been asked about, or has ended: now the late ones may arrive.
    for (id, row) in &waiting {
        let asked = |payment: &Payment| {
            payment.is_at_rest() || payment.doubts().any(|(_, doubt)| doubt.checks > 0)
        };
        shop.until(*id, &format!("a question about {row:?}"), asked).await;
    }
    slow.open();
    let landed = town.world.run_late();
    let ended = settled(&shop, &ids).await;
    until("silence", async || town.world.run_late().is_empty().then_some(())).await;

    let mut wrong = Vec::new();
    let mut cases = 0;
    for (row, payment) in &ended {
        let open = shop.open_cases(payment.id).await;
        cases += open.len();
        let problem = differs(&town.world, payment, row.foreign());
        match (payment.is_at_rest(), problem) {
            (true, None) if open.is_empty() => {}
            (false, _) if payment.verification_failed() && open.len() == 1 => {}
            (_, problem) => wrong.push(format!("{row:?}: {problem:?}, cases {open:?}")),
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), ended.len(), wrong.join("\n"));
    assert_eq!(town.world.violations(), []);
    assert_eq!(town.world.strays(), Vec::<String>::new());
    println!(
        "{} combinations, {asked} crashed again, {} late arrivals, {cases} cases, {:?}",
        ended.len(),
        landed.len(),
        Clock::System.now().since(started)
    );
    shop.stop().await;
}
