//! 500 customers race for 20 slots over HTTP, against a gateway with a true ledger. Some pay at once, some
//! are told of too late (a few of those come first, so that there are always some who have paid and lost),
//! some never pay: in the end every slot has one owner who has paid, and everybody
//! else has been turned away or has the money back, to the yen.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::World;
use tashika_testkit::on_both;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::reservations::{AMOUNT, DAY, body, hold, setup, to};
use crate::support::payments::Gateway;
use crate::support::{Answer, Request, rows};
use crate::webhooks::stripe;

on_both!(five_hundred_customers_race_for_twenty_slots);

const CUSTOMERS: usize = 500;
const SLOTS: usize = 20;
/// Customers who have a slot and have paid before the others come, and are not heard of in time.
const EARLY: usize = 5;
/// Between two looks at the slots.
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What a customer does with a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Prompt,
    /// Pays; the gateway's message comes when the hold is over.
    Unheard,
    /// Leaves the page open and goes away.
    Absent,
}

#[derive(Default)]
struct Tally {
    turned_away: AtomicUsize,
    tries: AtomicUsize,
    paid: AtomicUsize,
    put_off: AtomicUsize,
}

struct Customer {
    number: usize,
    kind: Kind,
    address: SocketAddr,
    world: World,
    tally: Arc<Tally>,
    /// The slots that are free, as everybody sees them; none and closed when all are confirmed.
    board: watch::Receiver<Vec<usize>>,
}

impl Customer {
    async fn ask(&self, request: Request) -> Answer {
        loop {
            let answer = request.send(self.address).await.unwrap();
            // A server with too much to do says so, and when to come back.
            if answer.status != 503 {
                return answer;
            }
            self.tally.put_off.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    async fn status(&self, id: &str) -> String {
        let found = self.ask(Request::get(&format!("/reservations/{id}"))).await.json();
        found["status"].as_str().unwrap().to_owned()
    }

    async fn tell(&self, session: &str) {
        for event in self.world.events() {
            let about = event["data"]["object"]["id"] == session;
            if about && event["type"] == "checkout.session.completed" {
                let answer = self.ask(stripe(&event.to_string())).await;
                assert_eq!(answer.status, 204, "{answer:?}");
            }
        }
    }

    /// Tries until it has had a slot, or until there is none left to try for. Whenever a slot is shown as
    /// free, everybody who waits goes for it.
    async fn come(mut self) {
        let user = format!("u-{}", self.number);
        for attempt in 0.. {
            let free = match self.board.wait_for(|free| !free.is_empty()).await {
                Ok(free) => free.clone(),
                Err(_) => break,
            };
            let slot = free[(self.number + attempt) % free.len()];
            self.tally.tries.fetch_add(1, Ordering::Relaxed);
            let key = format!("{user}-{attempt}");
            let answer = self.ask(hold(&key, &body(&user, slot.try_into().unwrap()))).await;
            match answer.status {
                // 200: the answer to the first try was lost on a busy server.
                201 | 200 => {
                    return self.has(answer.json()["reservationId"].as_str().unwrap()).await;
                }
                409 => answer.is_problem(409, "SLOT_ALREADY_TAKEN"),
                _ => panic!("{answer:?}"),
            }
            // What the board shows is what was free before that.
            if self.board.changed().await.is_err() {
                break;
            }
        }
        self.tally.turned_away.fetch_add(1, Ordering::Relaxed);
    }

    async fn has(&self, id: &str) {
        let opened = self.ask(to(id, "checkout")).await;
        match opened.status {
            200 => {}
            // Too slow, or the gateway is.
            202 | 409 => return,
            _ => panic!("{opened:?}"),
        }
        let session = opened.json()["sessionId"].as_str().unwrap().to_owned();
        if self.kind == Kind::Absent {
            return;
        }
        if !self.world.customer_pays(&session) {
            return;
        }
        self.tally.paid.fetch_add(1, Ordering::Relaxed);
        if self.kind == Kind::Unheard {
            while self.status(id).await == "hold" {
                tokio::time::sleep(LOOK_AGAIN).await;
            }
        }
        // Twice, as gateways do.
        self.tell(&session).await;
        self.tell(&session).await;
    }
}

/// Shows which slots are free, until all are confirmed.
async fn show(address: SocketAddr, board: watch::Sender<Vec<usize>>) {
    loop {
        let shown = Request::get(&format!("/slots?date={DAY}")).send(address).await.unwrap();
        if shown.status == 200 {
            let slots = shown.json();
            let slots = slots["items"].as_array().unwrap().iter();
            let status = |slot: &Value| slot["status"].as_str().unwrap_or_default().to_owned();
            let all: Vec<String> = slots.map(status).collect();
            if all.iter().all(|status| status == "confirmed") {
                return;
            }
            let free = all.iter().enumerate().filter(|(_, status)| *status == "free");
            let free: Vec<usize> = free.map(|(index, _)| index + 1).collect();
            board.send_replace(free);
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

async fn five_hundred_customers_race_for_twenty_slots(db: TestDb) {
    let gateway = Gateway::start().await;
    let server = setup(&db, &gateway)
        .set("RESERVATION_HOLD_SEC", 15)
        .set("RESERVATION_SLOTS_PER_DAY", SLOTS)
        .start()
        .await;
    let tally = Arc::new(Tally::default());
    let (board, shown) = watch::channel((1..=SLOTS).collect());
    let showing = tokio::spawn(show(server.address, board));
    let mut customers = JoinSet::new();
    for number in 0..CUSTOMERS {
        let kind = match number % 10 {
            _ if number < EARLY => Kind::Unheard,
            0 => Kind::Unheard,
            1 => Kind::Absent,
            _ => Kind::Prompt,
        };
        let (address, world) = (server.address, gateway.world.clone());
        let (its_tally, board) = (Arc::clone(&tally), shown.clone());
        let customer = Customer { number, kind, address, world, tally: its_tally, board };
        customers.spawn(customer.come());
        if number + 1 == EARLY {
            until("the early ones", async || {
                (tally.paid.load(Ordering::Relaxed) == EARLY).then_some(())
            })
            .await;
        }
    }
    customers.join_all().await;
    showing.abort();
    let open = "select count(*) from outbox where status in ('pending', 'sending', 'failed')
                 and kind in ('payment', 'webhook')";
    until("rest", async || (rows(&db.url(), open).await == [["0"]]).then_some(())).await;

    let statuses =
        "select r.status, coalesce(p.captured_amount, 0), coalesce(p.refunded_amount, 0),
                           coalesce(cast(p.status as text), '-')
                      from reservations r left join payments p on p.id = r.payment_id";
    let (mut confirmed, mut refunded, mut kept) = (0, 0, 0_i64);
    for row in rows(&db.url(), statuses).await {
        let (captured, back): (i64, i64) = (row[1].parse().unwrap(), row[2].parse().unwrap());
        kept += captured - back;
        if row[0] == "confirmed" {
            confirmed += 1;
            assert_eq!((captured, back), (AMOUNT, 0), "{row:?}");
        } else {
            assert_eq!(captured, back, "{row:?}");
            refunded += usize::from(back > 0);
        }
    }
    let owners = "select count(*), count(distinct slot_number) from reservations
                   where status = 'confirmed'";
    let all = SLOTS.to_string();
    assert_eq!(rows(&db.url(), owners).await, [[all.clone(), all]]);
    assert_eq!(confirmed, SLOTS);
    assert!(refunded >= EARLY, "{refunded} refunds: whoever paid and lost has the money back");
    let world = &gateway.world;
    let charged: i64 = world
        .sessions()
        .iter()
        .map(|session| {
            let payment = session["metadata"]["payment_id"].as_str().unwrap();
            world.charged(payment)
        })
        .sum();
    assert_eq!(charged, AMOUNT * i64::try_from(SLOTS).unwrap(), "the gateway's ledger");
    assert_eq!((kept, world.violations()), (charged, vec![]));
    let count = |counter: &AtomicUsize| counter.load(Ordering::Relaxed);
    assert_eq!(count(&tally.paid), confirmed + refunded, "paid is confirmed or given back");
    println!(
        "{CUSTOMERS} customers, {SLOTS} slots, {} tries: {confirmed} confirmed, {refunded} refunded, \
         {} turned away, {} answers of a busy server; the gateway has charged {charged} yen",
        count(&tally.tries),
        count(&tally.turned_away),
        count(&tally.put_off),
    );
    server.stop().await;
}
