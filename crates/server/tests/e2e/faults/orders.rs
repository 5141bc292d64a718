//! Orders through a broker that loses, fails and refuses. The oracle is the broker's ledger of executions.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tashika_engine::Dice;
use tashika_testkit::broker::Act;

use super::books::Books;
use super::load::Load;
use crate::support::{Request, order};

pub const CLIENTS: usize = 3;

#[derive(Default)]
pub struct Notes {
    /// Acknowledged orders that nobody has looked at yet.
    open: Mutex<Vec<String>>,
    /// How those ended that somebody has looked at.
    ended: Mutex<BTreeMap<String, &'static str>>,
}

/// What the broker does with an order: about half of them meet a fault.
fn fate(dice: &mut Dice) -> Vec<Act> {
    match dice.below(16) {
        0 | 1 => vec![Act::ExecuteThenLose],
        2 => vec![Act::LoseBefore],
        3 => vec![Act::Fail { executed: true }],
        4 => vec![Act::Fail { executed: false }, Act::busy()],
        5 => vec![Act::busy(), Act::ExecuteThenLose],
        6 => vec![Act::refuse("BROKER_BAD_REQUEST")],
        _ => Vec::new(),
    }
}

pub async fn client(load: Arc<Load>, number: usize) {
    let (mut dice, mut waiting) = (load.dice(1, number), VecDeque::new());
    let mut count = 0;
    while load.goes_on().await {
        let key = format!("order-{number}-{count:06}");
        count += 1;
        load.town.broker.scripted.script_for(&key, fate(&mut dice));
        let answer = load.ask(number, &Request::order(&order(&key))).await;
        // Also what has failed meanwhile was acknowledged before.
        assert!(answer.status == 201 || answer.replayed(), "{key}: {answer:?}");
        load.acknowledged("orders");
        waiting.push_back(key);
        if waiting.len() > load.lag {
            let key = waiting.pop_front().unwrap();
            look(&load, key).await;
        }
    }
    if load.forgets() {
        for key in waiting.drain(..) {
            look(&load, key).await;
        }
    }
    load.orders.open.lock().unwrap().extend(waiting);
}

/// Waits for the end of an order, and notes what we say about it.
async fn look(load: &Load, key: String) {
    let ended = |found: &Value| found["case"].is_object() || found["status"] != "accepted";
    let found = load.look(&format!("/do/order/{key}"), ended).await;
    let told = match found["status"].as_str() {
        _ if found["case"].is_object() => "case",
        Some("ok") => "executed",
        _ => "failed",
    };
    load.orders.ended.lock().unwrap().insert(key, told);
}

pub async fn balance(load: &Load, books: &mut Books) {
    let open = std::mem::take(&mut *load.orders.open.lock().unwrap());
    for key in open {
        look(load, key).await;
    }
    let mut executions = BTreeMap::<String, usize>::new();
    for (key, _) in load.town.broker.scripted.seen().executions {
        *executions.entry(key).or_default() += 1;
    }
    books.twice.extend(executions.iter().filter(|(_, n)| **n > 1).map(|(key, _)| key.clone()));
    for (key, told) in &*load.orders.ended.lock().unwrap() {
        books.count("orders", told);
        let executed = executions.get(key).copied().unwrap_or_default();
        match *told {
            "executed" if executed == 0 => {
                books.wrong(format!("{key} is told as executed and was not"));
            }
            // Told as failed without a case: then it must not have happened.
            "failed" if executed > 0 => {
                books.wrong(format!("{key} is told as failed and was executed"));
            }
            _ => {}
        }
    }
    let strangers = executions
        .keys()
        .filter(|key| !load.orders.ended.lock().unwrap().contains_key(*key))
        .count();
    assert_eq!(
        strangers, 0,
        "every order that was executed was acknowledged to somebody in the end"
    );
    assert!(load.town.broker.server.turned_away().is_empty());
}
