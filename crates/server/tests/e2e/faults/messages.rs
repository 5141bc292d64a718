//! Messages, through queues that keep their order and past them. The oracle is the sink.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use serde_json::Value;

use super::books::Books;
use super::load::Load;
use crate::support::{Request, Server};

/// Each of the first has a queue of its own and sends one message after the other, so their order is known.
const QUEUES: usize = 3;
pub const PUBLISHERS: usize = 5;

#[derive(Default)]
pub struct Notes {
    /// By path: the id under which it was acknowledged.
    acknowledged: Mutex<BTreeMap<String, String>>,
}

fn name(number: usize) -> String {
    if number < QUEUES { format!("queue-{number}") } else { format!("direct-{number}") }
}

pub async fn client(load: Arc<Load>, publisher: usize) {
    let name = name(publisher);
    let way = if publisher < QUEUES { format!("/v2/enqueue/{name}") } else { "/v2/publish".into() };
    let mut number = 0;
    while load.goes_on().await {
        let path = format!("/{name}/{number:06}");
        let url = format!("http://{}{path}", load.town.sink.address);
        // Sent again after a crash, it must not be taken twice: that would be another order.
        let request = Request::new("POST", &format!("{way}/{url}"))
            .header("upstash-deduplication-id", format!("{name}-{number}"))
            .header("upstash-retries", "5")
            .header("upstash-retry-delay", "50")
            .body(number.to_string());
        let answer = load.ask(publisher, &request).await;
        assert!([200, 202].contains(&answer.status), "{answer:?}");
        let id = answer.json()["messageId"].as_str().unwrap().to_owned();
        load.messages.acknowledged.lock().unwrap().insert(path, id);
        load.acknowledged("messages");
        number += 1;
    }
}

/// Message ids of all dead letters.
async fn dead(server: &Server) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    let mut query = String::new();
    loop {
        let answer = server.get(&format!("/v2/dlq?count=100{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        let page = answer.json();
        let ids = page["messages"].as_array().unwrap().iter().map(|letter| &letter["messageId"]);
        found.extend(ids.filter_map(Value::as_str).map(ToOwned::to_owned));
        match page["cursor"].as_str() {
            Some(cursor) if !cursor.is_empty() => query = format!("&cursor={cursor}"),
            _ => return found,
        }
    }
}

/// Every message was delivered or is a dead letter, and a queue's were first tried in their order.
pub async fn balance(load: &Load, server: &Server, books: &mut Books) {
    let letters = dead(server).await;
    let heard = &load.town.sink.heard;
    let delivered = heard.delivered.lock().unwrap().clone();
    let acknowledged = load.messages.acknowledged.lock().unwrap().clone();
    let ids: BTreeSet<&String> = acknowledged.values().collect();
    assert_eq!(ids.len(), acknowledged.len(), "each has an id of its own");
    for (path, id) in &acknowledged {
        match (delivered.contains_key(id), letters.contains(id)) {
            (true, false) => books.count("messages", "delivered"),
            (false, true) => books.count("messages", "dead letters"),
            // Its last answer was lost with the worker, and nobody may try again.
            (true, true) => books.count("messages", "delivered, told as dead letters"),
            (false, false) => books.lost.push(format!("message {path}")),
        }
    }
    // Taken twice, it would have been delivered under two ids.
    let strangers = delivered.keys().filter(|id| !ids.contains(id));
    books.twice.extend(strangers.map(|id| format!("message {id}, acknowledged under another id")));
    let first = heard.first.lock().unwrap().clone();
    for queue in 0..QUEUES {
        let prefix = format!("/{}/", name(queue));
        let places =
            first.iter().filter(|(path, _)| path.starts_with(&prefix)).map(|(_, place)| place);
        assert!(places.is_sorted() || !load.in_order, "{} is out of order", name(queue));
    }
    let repeated = delivered.values().filter(|times| **times > 1).count();
    books.figure("messages delivered more than once (at least once is the promise)", repeated);
    books.figure("attempts at the sink", heard.attempts.load(Ordering::Relaxed));
}
