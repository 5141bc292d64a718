//! Payments through a gateway that has a bad day. The oracle is the gateway's ledger of the money it moved.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use super::books::Books;
use super::load::Load;
use crate::support::payments::{id, payment};
use crate::support::{Request, Server};

pub const CLIENTS: usize = 6;

#[derive(Default)]
pub struct Notes {
    /// Payments that somebody was told of.
    ids: Mutex<BTreeSet<String>>,
}

pub async fn client(load: Arc<Load>, number: usize) {
    let mut dice = load.dice(2, number);
    let mut count = 0;
    while load.goes_on().await {
        let (key, automatic) = (format!("pay-{number}-{count:06}"), dice.chance(30));
        count += 1;
        let method = match dice.below(10) {
            0 => "pm_card_chargeDeclined",
            1 => "pm_card_chargeDeclinedInsufficientFunds",
            _ => "pm_card_visa",
        };
        let mut body = payment(method);
        body["bookingId"] = json!(key);
        if automatic {
            body["capture"] = json!("automatic");
        }
        let Some(made) = wish(&load, number, "/payments", &key, &body).await else {
            panic!("{key}: nobody else wanted it");
        };
        if made["status"] == "FAILED" {
            continue;
        }
        let acting = Acting { load: &load, number, key: &key, id: id(&made) };
        match dice.below(5) {
            0 if !automatic => {
                acting.wish("void", 1, &json!({})).await;
                continue;
            }
            1 => continue,
            2 if !automatic => acting.wish("capture", 1, &json!({"amount": 70})).await,
            _ if !automatic => acting.wish("capture", 1, &json!({})).await,
            _ => {}
        }
        match dice.below(3) {
            0 => acting.wish("refund", 1, &json!({})).await,
            1 => {
                acting.wish("refund", 1, &json!({"amount": 40, "reason": "part of it"})).await;
                acting.wish("refund", 2, &json!({"amount": 40})).await;
            }
            _ => {}
        }
    }
}

/// What a client does with a payment that it has.
struct Acting<'a> {
    load: &'a Load,
    number: usize,
    key: &'a str,
    id: String,
}

impl Acting<'_> {
    async fn wish(&self, verb: &str, n: usize, body: &Value) {
        let path = format!("/payments/{}/{verb}", self.id);
        let key = format!("{}-{verb}-{n}", self.key);
        wish(self.load, self.number, &path, &key, body).await;
    }
}

/// Asks until told what became of it; `None` when the payment does not allow it any more.
async fn wish(load: &Load, number: usize, path: &str, key: &str, body: &Value) -> Option<Value> {
    let request = Request::json(path, body).header("idempotency-key", key);
    loop {
        let answer = load.ask(number, &request).await;
        let told = answer.json();
        let code = told["code"].as_str().unwrap_or_default();
        match (answer.status, code) {
            (200 | 201 | 202 | 402, _) => {
                load.acknowledged("payments");
                load.payments.ids.lock().unwrap().insert(id(&told));
                return Some(told);
            }
            (409, "IDEMPOTENCY_IN_PROGRESS") => load.breathe().await,
            (409, "PAYMENT_BUSY") | (422, "PAYMENT_STATE_CONFLICT" | "AMOUNT_TOO_HIGH") => {
                return None;
            }
            _ => panic!("{key}: {answer:?}"),
        }
    }
}

/// Every payment at rest and equal to the ledger, or in an open case. Payments of reservations are among them.
pub async fn balance(load: &Load, server: &Server, books: &mut Books) {
    let world = &load.town.gateway.world;
    let ledger = world.ledger();
    let violations = world.violations();
    books.twice.extend(violations.iter().map(|violation| format!("{violation:?}")));
    let totals = ledger.totals();
    let mut known = BTreeSet::new();
    let mut moved = 0;
    for payment in server.every("/payments").await {
        let id = id(&payment);
        let truth = totals.get(&id).cloned().unwrap_or_default();
        moved += truth.charged();
        known.insert(id.clone());
        if payment["verificationFailed"] == true {
            books.count("payments", "CASE");
            if !books.cases.contains(&id) {
                books.wrong(format!("without a case: {payment}"));
            }
            continue;
        }
        let status = payment["status"].as_str().unwrap().to_owned();
        let ours = (payment["capturedAmount"].as_i64(), payment["refundedAmount"].as_i64());
        let held = if status == "AUTHORIZED" { payment["amount"].as_i64().unwrap() } else { 0 };
        let fits = match status.as_str() {
            "AUTHORIZED" => truth.captured == 0,
            "CAPTURED" => truth.charged() > 0,
            "FAILED" | "REFUNDED" => truth.charged() == 0,
            _ => false,
        };
        if !fits || ours != (Some(truth.captured), Some(truth.refunded)) || truth.held() != held {
            let story = server.timeline(&id).await;
            books.wrong(format!("{payment}\n{truth:?}\n{story:#?}"));
        }
        books.count("payments", &status);
    }
    let strangers: Vec<_> = totals.keys().filter(|id| !known.contains(*id)).collect();
    assert!(strangers.is_empty(), "money moved for payments that we do not have: {strangers:?}");
    assert!(world.strays().is_empty(), "{:?}", world.strays());
    let told = load.payments.ids.lock().unwrap();
    books.lost.extend(told.iter().filter(|id| !known.contains(*id)).cloned());
    books.figure("charged in the end", moved);
    books.figure("movements of money", ledger.movements().len());
    books.figure("calls at the gateway", world.heard().len());
}
