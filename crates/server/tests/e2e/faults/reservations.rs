//! Customers who hold slots, pay, are heard of late or never, and cancel. Every slot is wanted by two.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::books::Books;
use super::load::Load;
use crate::reservations::{AMOUNT, hold, to};
use crate::support::rows;
use crate::webhooks::stripe;

pub const CLIENTS: usize = 4;
/// Slots of a day that are used.
const SLOTS: usize = 20;

#[derive(Default)]
pub struct Notes {
    next_slot: AtomicUsize,
    /// Keys of the reservations that were acknowledged.
    keys: Mutex<BTreeSet<String>>,
    paid: AtomicUsize,
}

/// A slot that one other customer will want, too.
fn slot(load: &Load) -> (String, usize) {
    let number = load.reservations.next_slot.fetch_add(1, Ordering::Relaxed) / 2;
    let day = number / SLOTS;
    let date = format!("{}-{:02}-{:02}", 2030 + day / 336, day / 28 % 12 + 1, day % 28 + 1);
    (date, number % SLOTS + 1)
}

pub async fn client(load: Arc<Load>, number: usize) {
    let mut dice = load.dice(3, number);
    let mut count = 0;
    while load.goes_on().await {
        let key = format!("slot-{number}-{count:06}");
        count += 1;
        let (date, slot) = slot(&load);
        let body = json!({"videoId": 7, "projectionDate": date, "slotNumber": slot, "userId": key,
            "userEmail": format!("{key}@example.com"), "amount": AMOUNT, "currency": "JPY"});
        let answer = load.ask(number, &hold(&key, &body)).await;
        match answer.status {
            200 | 201 => {}
            409 => {
                answer.is_problem(409, "SLOT_ALREADY_TAKEN");
                continue;
            }
            _ => panic!("{key}: {answer:?}"),
        }
        load.acknowledged("reservations");
        load.reservations.keys.lock().unwrap().insert(key);
        let id = answer.json()["reservationId"].as_str().unwrap().to_owned();
        let chance = dice.below(8);
        // Goes away, or changes its mind at once.
        if chance == 0 {
            continue;
        }
        if chance > 1 {
            let Some(session) = page(&load, number, &id).await else { continue };
            if !load.town.gateway.world.customer_pays(&session) {
                continue;
            }
            load.reservations.paid.fetch_add(1, Ordering::Relaxed);
        }
        if chance < 4 {
            let answer = load.ask(number, &to(&id, "cancel")).await;
            match answer.status {
                200 => load.acknowledged("cancellations"),
                _ => answer.is_problem(409, "CANNOT_CANCEL"),
            }
        }
    }
}

/// The page on which to pay, if there is one in time.
async fn page(load: &Load, number: usize, id: &str) -> Option<String> {
    loop {
        let answer = load.ask(number, &to(id, "checkout")).await;
        match answer.status {
            200 => return answer.json()["sessionId"].as_str().map(ToOwned::to_owned),
            // The gateway has not answered yet.
            202 => load.breathe().await,
            409 => {
                answer.is_problem(409, "CANNOT_CHECK_OUT");
                return None;
            }
            // The gateway would not.
            502 => return None,
            _ => panic!("{id}: {answer:?}"),
        }
    }
}

/// The gateway's messenger: tells of most payments, of some twice, of some never.
pub async fn messenger(load: Arc<Load>) {
    let mut dice = load.dice(4, 0);
    let mut told = 0;
    while load.goes_on().await {
        let events = load.town.gateway.world.events_from(told);
        told += events.len();
        let paid = |event: &&Value| event["type"] == "checkout.session.completed";
        for event in events.iter().filter(paid) {
            let times = match dice.below(5) {
                0 => 0,
                1 => 2,
                _ => 1,
            };
            for _ in 0..times {
                let answer = load.ask(told, &stripe(&event.to_string())).await;
                assert_eq!(answer.status, 204, "{answer:?}");
            }
        }
    }
}

/// Whoever has paid has the slot or the money back.
pub async fn balance(load: &Load, url: &str, books: &mut Books) {
    let sql = "select r.idempotency_key, r.status, coalesce(p.captured_amount, 0), coalesce(p.refunded_amount, 0),
                      case when p.verification_failed then 1 else 0 end
                 from reservations r left join payments p on p.id = r.payment_id";
    let mut known = BTreeSet::new();
    for row in rows(url, sql).await {
        let (captured, back): (i64, i64) = (row[2].parse().unwrap(), row[3].parse().unwrap());
        let fits = match row[1].as_str() {
            _ if row[4] == "1" => true,
            "confirmed" => (captured, back) == (AMOUNT, 0),
            "expired" | "cancelled" => captured == back,
            _ => false,
        };
        if !fits {
            books.wrong(format!("reservation {row:?}"));
        }
        let refunded = if back > 0 { " and refunded" } else { "" };
        books.count("reservations", &format!("{}{refunded}", row[1]));
        known.insert(row[0].clone());
    }
    let told = load.reservations.keys.lock().unwrap();
    books.lost.extend(told.iter().filter(|key| !known.contains(*key)).cloned());
    books.figure("customers who paid on a page", load.reservations.paid.load(Ordering::Relaxed));
}
