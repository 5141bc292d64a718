//! `kill -9`, again and again, while fifty clients pay through a gateway that has a bad day.
//!
//! The oracle is the gateway's ledger of the money it moved: nobody is charged twice, and in the end every
//! payment says what the ledger says, or waits in an open case for a person.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Mix, World};
use tashika_testkit::on_both;
use tokio::task::JoinSet;

use crate::support::payments::{Gateway, id, payment};
use crate::support::{Answer, Request, Server, Setup, rows};

on_both!(killed_ten_times_while_fifty_clients_pay);

const ROUNDS: usize = 10;
const CLIENTS: usize = 50;
/// Requests that are answered in a round before the process is killed.
const PER_ROUND: usize = 60;

/// One thing that a client wants, under one key for as long as it takes to be told what became of it.
#[derive(Clone, Debug)]
struct Wish {
    path: String,
    key: String,
    body: Value,
}

/// What one client is doing: the wishes that are left for its payment, and how many payments it has made.
#[derive(Default)]
struct Client {
    wishes: Vec<Wish>,
    count: usize,
}

/// What the clients know.
#[derive(Default)]
struct Clients {
    everybody: Vec<Mutex<Client>>,
    /// Payments that somebody was told of.
    ids: Mutex<BTreeSet<String>>,
    told: Mutex<BTreeMap<u16, usize>>,
    answered: AtomicUsize,
    /// By key: the payment that it was told. It must never be another one.
    by_key: Mutex<BTreeMap<String, String>>,
}

impl Clients {
    fn new() -> Self {
        Self { everybody: (0..CLIENTS).map(|_| Mutex::default()).collect(), ..Self::default() }
    }

    /// Goes on with what this client wants until the server is gone. What was not answered is asked again, under its
    /// key, when there is a server again.
    async fn pay_until_gone(self: Arc<Self>, number: usize, server: SocketAddr) {
        loop {
            let wish = self.wish(number);
            let request =
                Request::json(&wish.path, &wish.body).header("idempotency-key", &wish.key);
            match request.send(server).await {
                Ok(answer) => self.heard(number, &wish, &answer),
                Err(_) => return,
            }
        }
    }

    /// What the client wants next: the wish that is still open, or a new payment.
    fn wish(&self, number: usize) -> Wish {
        let mut client = self.everybody[number].lock().unwrap();
        if client.wishes.is_empty() {
            let n = client.count;
            client.count += 1;
            let method = match (number + n) % 9 {
                7 => "pm_card_chargeDeclined",
                8 => "pm_card_chargeDeclinedInsufficientFunds",
                _ => "pm_card_visa",
            };
            let mut body = payment(method);
            body["bookingId"] = json!(format!("b-{number}-{n}"));
            if (number + n).is_multiple_of(3) {
                body["capture"] = json!("automatic");
            }
            let key = format!("client-{number}-{n}");
            client.wishes.push(Wish { path: "/payments".into(), key, body });
        }
        client.wishes[0].clone()
    }

    fn heard(&self, number: usize, wish: &Wish, answer: &Answer) {
        *self.told.lock().unwrap().entry(answer.status).or_default() += 1;
        let allowed = [200, 201, 202, 402, 409, 422, 503];
        assert!(allowed.contains(&answer.status), "{wish:?}: {answer:?}");
        let mut client = self.everybody[number].lock().unwrap();
        let found = answer.json();
        if matches!(answer.status, 409 | 503) {
            let code = found["code"].as_str().unwrap_or_default();
            assert!(
                ["IDEMPOTENCY_IN_PROGRESS", "PAYMENT_BUSY", "STORE_UNAVAILABLE", "SERVER_BUSY"]
                    .contains(&code),
                "{wish:?}: {answer:?}"
            );
            // Later. Another operation may stand in the way for good (a case): then it is dropped.
            if code == "PAYMENT_BUSY" {
                client.wishes.remove(0);
            }
            return;
        }
        self.answered.fetch_add(1, Ordering::Relaxed);
        client.wishes.remove(0);
        if answer.status == 422 {
            let code = found["code"].as_str().unwrap_or_default();
            assert!(
                ["PAYMENT_STATE_CONFLICT", "AMOUNT_TOO_HIGH"].contains(&code),
                "{wish:?}: {answer:?}"
            );
            return;
        }
        let id = id(&found);
        self.ids.lock().unwrap().insert(id.clone());
        let known = self
            .by_key
            .lock()
            .unwrap()
            .entry(wish.key.clone())
            .or_insert_with(|| id.clone())
            .clone();
        assert_eq!(known, id, "one key, two payments: {}", wish.key);
        if wish.path == "/payments" && found["status"] != "FAILED" {
            client.wishes =
                plan(&id, &wish.key, number + client.count, found["capture"] == "automatic");
        }
    }
}

/// What a client does with a payment that it has.
fn plan(id: &str, key: &str, dice: usize, captured: bool) -> Vec<Wish> {
    let wish = |verb: &str, n: usize, body: Value| Wish {
        path: format!("/payments/{id}/{verb}"),
        key: format!("{key}-{verb}-{n}"),
        body,
    };
    let mut plan = Vec::new();
    match dice % 5 {
        0 if !captured => return vec![wish("void", 1, json!({}))],
        1 => return plan,
        2 if !captured => plan.push(wish("capture", 1, json!({"amount": 70}))),
        _ if !captured => plan.push(wish("capture", 1, json!({}))),
        _ => {}
    }
    match dice % 3 {
        0 => plan.push(wish("refund", 1, json!({}))),
        1 => {
            plan.push(wish("refund", 1, json!({"amount": 40, "reason": "half of it"})));
            plan.push(wish("refund", 2, json!({"amount": 40})));
        }
        _ => {}
    }
    plan
}

fn setup(db: &TestDb, gateway: &Gateway) -> Setup {
    Setup::of(db)
        .stripe(gateway)
        .set("OUTBOX_PAYMENTS_LOCK_LEASE_SEC", 1)
        .set("PAYMENT_VERIFY_MAX_ATTEMPTS", 40)
        .set("PAYMENT_RECONCILE_INTERVAL_SEC", 0)
        .set("TASHIKA_LOG", "warn,tashika_server::run=info")
}

/// Lets clients pay until so much was answered.
async fn round(clients: &Arc<Clients>, address: SocketAddr, enough: usize) -> JoinSet<()> {
    let mut paying = JoinSet::new();
    for client in 0..CLIENTS {
        paying.spawn(Arc::clone(clients).pay_until_gone(client, address));
    }
    until("answers", async || (clients.answered.load(Ordering::Relaxed) >= enough).then_some(()))
        .await;
    paying
}

async fn killed_ten_times_while_fifty_clients_pay(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = setup(&db, &gateway);
    let clients = Arc::new(Clients::new());
    gateway.world.mix(Mix::bad_day(7));
    for kill in 1..=ROUNDS {
        let server = setup.start().await;
        let paying = round(&clients, server.address, kill * PER_ROUND).await;
        server.kill().await;
        paying.join_all().await;
    }
    let server = setup.start().await;
    settle(&gateway.world).await;
    check(&db, &server, &gateway.world, &clients, ROUNDS).await;
    server.stop().await;
}

/// Two servers on one database, and one of them is killed again and again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_servers_is_killed_while_fifty_clients_pay_postgres() {
    let db = TestDb::postgres();
    let gateway = Gateway::start().await;
    let setup = setup(&db, &gateway);
    let clients = Arc::new(Clients::new());
    gateway.world.mix(Mix::bad_day(8));
    let living = setup.start().await;
    let rounds = 5;
    for kill in 1..=rounds {
        let dying = setup.start().await;
        // Half of the clients stay with the server that lives: they are stopped, not cut off.
        let mut staying = JoinSet::new();
        for client in CLIENTS / 2..CLIENTS {
            staying.spawn(Arc::clone(&clients).pay_until_gone(client, living.address));
        }
        let mut leaving = JoinSet::new();
        for client in 0..CLIENTS / 2 {
            leaving.spawn(Arc::clone(&clients).pay_until_gone(client, dying.address));
        }
        let enough = kill * 2 * PER_ROUND;
        until("answers", async || {
            (clients.answered.load(Ordering::Relaxed) >= enough).then_some(())
        })
        .await;
        dying.kill().await;
        leaving.join_all().await;
        staying.shutdown().await;
    }
    settle(&gateway.world).await;
    check(&db, &living, &gateway.world, &clients, rounds).await;
    living.stop().await;
}

/// The bad day is over, and what was still in the network has arrived.
async fn settle(world: &World) {
    world.mix(None);
    world.until_nothing_is_late().await;
}

/// Every payment at rest and equal to the ledger, or in an open case.
async fn check(db: &TestDb, server: &Server, world: &World, clients: &Clients, kills: usize) {
    until("every payment to be at rest or in a case", async || {
        let sql = "select count(*) from payments where (operation is not null or id in
                     (select payment_id from refunds where status = 'pending'))
                   and verification_failed = false";
        (rows(&db.url(), sql).await == [["0"]]).then_some(())
    })
    .await;
    let cases: BTreeSet<String> = server
        .open_cases()
        .await
        .iter()
        .map(|case| case["subjectId"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(world.violations(), [], "somebody was charged twice");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    let payments = every_payment(server).await;
    let ledger = world.ledger();
    for payment in &payments {
        let id = id(payment);
        let totals = ledger.total(&id);
        if payment["verificationFailed"] == true {
            assert!(cases.contains(&id), "without a case: {payment}");
            *counts.entry("CASE".into()).or_default() += 1;
            continue;
        }
        let status = payment["status"].as_str().unwrap().to_owned();
        let amount = payment["amount"].as_i64().unwrap();
        let (captured, refunded) =
            (payment["capturedAmount"].as_i64(), payment["refundedAmount"].as_i64());
        let truth = format!("{payment}\n{totals:?}\n{:#?}", server.timeline(&id).await);
        assert_eq!((captured, refunded), (Some(totals.captured), Some(totals.refunded)), "{truth}");
        let held = if status == "AUTHORIZED" { amount } else { 0 };
        assert_eq!(totals.held(), held, "{truth}");
        match status.as_str() {
            "AUTHORIZED" => assert_eq!(totals.captured, 0, "{truth}"),
            "CAPTURED" => assert!(totals.charged() > 0, "{truth}"),
            "FAILED" | "REFUNDED" => assert_eq!(totals.charged(), 0, "{truth}"),
            _ => panic!("no end: {truth}"),
        }
        *counts.entry(status).or_default() += 1;
    }
    let known: BTreeSet<String> = payments.iter().map(id).collect();
    let told = clients.ids.lock().unwrap().clone();
    let lost: Vec<&String> = told.iter().filter(|id| !known.contains(*id)).collect();
    assert!(lost.is_empty(), "acknowledged and gone: {lost:?}");
    // One payment per key: a client that asked again was not charged again.
    let keys = rows(&db.url(), "select count(*), count(distinct booking_id) from payments").await;
    assert_eq!(keys[0][0], keys[0][1], "a booking was paid twice");
    let doubted = rows(
        &db.url(),
        "select count(distinct payment_id) from payment_timeline where kind = 'check'",
    )
    .await;
    println!(
        "{kills} kills, {} answers {:?}, {} payments {counts:?}, {} in doubt for a while, {} open cases; the gateway \
         heard {} calls and moved money {} times",
        clients.answered.load(Ordering::Relaxed),
        clients.told.lock().unwrap(),
        payments.len(),
        doubted[0][0],
        cases.len(),
        world.heard().len(),
        ledger.movements().len(),
    );
    assert!(counts.len() >= 4, "every kind of end: {counts:?}");
    assert!(world.strays().is_empty(), "{:?}", world.strays());
}

/// Page by page, as a caller would.
async fn every_payment(server: &Server) -> Vec<Value> {
    let (mut all, mut cursor) = (Vec::new(), String::new());
    loop {
        let page = server.get(&format!("/payments?limit=100&cursor={cursor}")).await.json();
        all.extend(page["items"].as_array().unwrap().iter().cloned());
        match page["nextCursor"].as_str() {
            Some(next) => next.clone_into(&mut cursor),
            None => return all,
        }
    }
}
