//! `kill -9`, again and again, while customers hold, pay and cancel through a gateway that has a bad day.
//!
//! The oracle is the gateway's ledger: in the end whoever has paid has the slot or the money, once, and our
//! books say what the ledger says, to the yen.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tashika_store::Dialect;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Mix, World};
use tashika_testkit::on_both;
use tokio::task::JoinSet;

use crate::reservations::{AMOUNT, body, hold, setup, to};
use crate::support::payments::Gateway;
use crate::support::{Answer, Request, Server, rows};
use crate::webhooks::stripe;

on_both!(killed_six_times_while_customers_hold_pay_and_cancel);

const ROUNDS: usize = 6;
const CUSTOMERS: usize = 16;
const SLOTS: i64 = 40;
/// Requests that are answered in a round before the process is killed.
const PER_ROUND: usize = 80;

/// What one customer is doing: how often it has come, and the request that was not answered.
#[derive(Default)]
struct Customer {
    visits: usize,
    open: Option<(String, i64)>,
}

/// What the customers know.
struct Customers {
    everybody: Vec<Mutex<Customer>>,
    /// Reservations that somebody was told of, by key.
    by_key: Mutex<BTreeMap<String, String>>,
    /// Those of which somebody was told that they are cancelled.
    cancelled: Mutex<BTreeSet<String>>,
    told: Mutex<BTreeMap<u16, usize>>,
    answered: AtomicUsize,
    paid: AtomicUsize,
    world: World,
}

/// The server is gone.
struct Gone;

impl Customers {
    fn new(world: World) -> Self {
        Self {
            everybody: (0..CUSTOMERS).map(|_| Mutex::default()).collect(),
            by_key: Mutex::default(),
            cancelled: Mutex::default(),
            told: Mutex::default(),
            answered: AtomicUsize::new(0),
            paid: AtomicUsize::new(0),
            world,
        }
    }

    async fn ask(&self, request: Request, server: SocketAddr) -> Result<Answer, Gone> {
        let answer = request.send(server).await.map_err(|_| Gone)?;
        let allowed = [200, 201, 202, 204, 409, 502, 503];
        assert!(allowed.contains(&answer.status), "{answer:?}");
        *self.told.lock().unwrap().entry(answer.status).or_default() += 1;
        self.answered.fetch_add(1, Ordering::Relaxed);
        Ok(answer)
    }

    /// Comes again and again until the server is gone.
    async fn come(self: Arc<Self>, number: usize, server: SocketAddr) {
        while self.visit(number, server).await.is_ok() {}
    }

    async fn visit(&self, number: usize, server: SocketAddr) -> Result<(), Gone> {
        // What was not answered is asked again, under its key.
        let (key, slot, visit) = {
            let mut me = self.everybody[number].lock().unwrap();
            if me.open.is_none() {
                me.visits += 1;
                let visit = me.visits;
                let slot = i64::try_from(number * 7 + visit * 3).unwrap() % SLOTS + 1;
                me.open = Some((format!("c-{number}-{visit}"), slot));
            }
            let (key, slot) = me.open.clone().unwrap();
            (key, slot, me.visits)
        };
        let answer = self.ask(hold(&key, &body(&format!("u-{number}"), slot)), server).await?;
        self.everybody[number].lock().unwrap().open = None;
        if !matches!(answer.status, 200 | 201) {
            return Ok(());
        }
        let id = answer.json()["reservationId"].as_str().unwrap().to_owned();
        let known = self.by_key.lock().unwrap().entry(key.clone()).or_insert(id.clone()).clone();
        assert_eq!(known, id, "one key, two reservations: {key}");
        let opened = self.ask(to(&id, "checkout"), server).await?;
        if opened.status == 200 && !(number + visit).is_multiple_of(6) {
            let session = opened.json()["sessionId"].as_str().unwrap().to_owned();
            self.pay(&session, visit, server).await?;
        }
        if (number + visit).is_multiple_of(4) {
            // Twice, as impatient people do.
            let (one, two) = (self.cancel(&id, server), self.cancel(&id, server));
            let (one, two) = tokio::join!(one, two);
            return one.and(two);
        }
        Ok(())
    }

    async fn pay(&self, session: &str, visit: usize, server: SocketAddr) -> Result<(), Gone> {
        if !self.world.customer_pays(session) {
            return Ok(());
        }
        self.paid.fetch_add(1, Ordering::Relaxed);
        // Every third message is lost.
        if visit.is_multiple_of(3) {
            return Ok(());
        }
        for event in self.world.events() {
            let about = event["data"]["object"]["id"] == session;
            if about && event["type"] == "checkout.session.completed" {
                self.ask(stripe(&event.to_string()), server).await?;
            }
        }
        Ok(())
    }

    async fn cancel(&self, id: &str, server: SocketAddr) -> Result<(), Gone> {
        let answer = self.ask(to(id, "cancel"), server).await?;
        if answer.status == 200 {
            assert_eq!(answer.json()["status"], "cancelled", "{answer:?}");
            self.cancelled.lock().unwrap().insert(id.to_owned());
        }
        Ok(())
    }
}

async fn killed_six_times_while_customers_hold_pay_and_cancel(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = setup(&db, &gateway)
        .set("PAYMENT_GATEWAY_TIMEOUT_MS", 300)
        .set("RESERVATION_HOLD_SEC", "1.5")
        .set("RESERVATION_SLOTS_PER_DAY", SLOTS)
        .set("OUTBOX_PAYMENTS_LOCK_LEASE_SEC", 1)
        .set("OUTBOX_WEBHOOKS_LOCK_LEASE_SEC", 1)
        .set("OUTBOX_TIMERS_LOCK_LEASE_SEC", 1)
        .set("PAYMENT_RECONCILE_INTERVAL_SEC", 0)
        .set("TASHIKA_LOG", "warn,tashika_server::run=info");
    let customers = Arc::new(Customers::new(gateway.world.clone()));
    gateway.world.mix(Mix::bad_day(11));
    for kill in 1..=ROUNDS {
        let server = setup.start().await;
        let mut coming = JoinSet::new();
        for number in 0..CUSTOMERS {
            coming.spawn(Arc::clone(&customers).come(number, server.address));
        }
        let enough = kill * PER_ROUND;
        until("answers", async || {
            (customers.answered.load(Ordering::Relaxed) >= enough).then_some(())
        })
        .await;
        server.kill().await;
        coming.join_all().await;
    }
    gateway.world.mix(None);
    gateway.world.until_nothing_is_late().await;
    let server = setup.start().await;
    check(&db, &server, &customers).await;
    server.stop().await;
}

async fn count(db: &TestDb, sql: &str) -> usize {
    rows(&db.url(), sql).await[0][0].parse().unwrap()
}

async fn check(db: &TestDb, server: &Server, customers: &Customers) {
    until("everything at rest", async || {
        let moving = "select count(*) from outbox where status in ('pending', 'sending', 'failed')
                       and kind in ('payment', 'webhook', 'hold_expiry')";
        let holds = "select count(*) from reservations where status = 'hold'";
        (count(db, moving).await == 0 && count(db, holds).await == 0).then_some(())
    })
    .await;
    let world = &customers.world;
    assert_eq!(world.violations(), [], "somebody was charged twice");
    let open = server.open_cases().await;
    let word = |case: &Value, name: &str| case[name].as_str().unwrap_or_default().to_owned();
    let cases: BTreeSet<String> = open.iter().map(|case| word(case, "subjectId")).collect();
    let mut kinds: BTreeMap<String, usize> = BTreeMap::new();
    for case in &open {
        *kinds.entry(word(case, "kind")).or_default() += 1;
    }
    let all = match db.dialect() {
        // Ids are bytes there.
        Dialect::Sqlite => {
            "select lower(hex(r.id)), r.status, lower(hex(p.id)), p.captured_amount,
                    p.refunded_amount
               from reservations r
               join payments p on replace(p.booking_id, '-', '') = lower(hex(r.id))"
        }
        Dialect::Postgres => {
            "select cast(r.id as text), r.status, cast(p.id as text), p.captured_amount,
                    p.refunded_amount
               from reservations r join payments p on p.booking_id = cast(r.id as text)"
        }
    };
    let (ledger, mut left) = (world.ledger(), 0);
    let (mut kept, mut given_back) = (BTreeSet::new(), 0);
    for row in rows(&db.url(), all).await {
        let uuid = |text: &str| text.parse::<uuid::Uuid>().unwrap().to_string();
        let (reservation, payment) = (uuid(&row[0]), uuid(&row[2]));
        let (captured, back): (i64, i64) = (row[3].parse().unwrap(), row[4].parse().unwrap());
        let total = ledger.total(&payment);
        let told = format!("{row:?} {total:?}");
        if cases.contains(&payment) || cases.contains(&reservation) {
            left += 1;
            continue;
        }
        assert_eq!((captured, back), (total.captured, total.refunded), "{told}");
        if row[1] == "confirmed" && captured > 0 {
            assert_eq!((captured, back), (AMOUNT, 0), "{told}");
            assert!(kept.insert(reservation), "paid twice for one slot: {told}");
        } else {
            assert_eq!(total.charged(), 0, "{told}");
            given_back += usize::from(back > 0);
        }
    }
    let confirmed = count(db, "select count(*) from reservations where status = 'confirmed'").await;
    assert!(kept.len() + left >= confirmed && kept.len() <= confirmed, "kept and not paid for");
    let owners = "select count(*) from (select slot_number from reservations
                   where status = 'confirmed' group by slot_number having count(*) > 1) s";
    assert_eq!(count(db, owners).await, 0, "a slot has two owners");
    let told = customers.by_key.lock().unwrap().clone();
    for (key, id) in told {
        let found = server.get(&format!("/reservations/{id}")).await;
        assert_eq!(found.status, 200, "acknowledged and gone: {key} {found:?}");
        let cancelled = customers.cancelled.lock().unwrap().contains(&id);
        assert!(!cancelled || found.json()["status"] == "cancelled", "{found:?}");
    }
    // One letter for each refund of money that came too late, and no other.
    let letters = count(db, "select count(*) from mail_deliveries").await;
    let late = "select count(*) from race_conditions where resolution = 'REFUNDED'
                 and scenario in ('EXPIRED_AFTER_PAYMENT', 'SLOT_CONFLICT')";
    assert_eq!(letters, count(db, late).await, "everybody is told, once");
    println!(
        "{ROUNDS} kills, answers {:?}, {} reservations, {} paid: {confirmed} confirmed, {given_back} \
         given back, {letters} letters, {left} with a person {kinds:?}",
        customers.told.lock().unwrap(),
        customers.by_key.lock().unwrap().len(),
        customers.paid.load(Ordering::Relaxed),
    );
    assert!(confirmed > 0 && given_back > 0, "every kind of end");
}
