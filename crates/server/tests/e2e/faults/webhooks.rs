//! Signed events, half of them sent twice. The oracle is the audit log, which is written together with each effect.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use serde_json::json;

use super::books::Books;
use super::load::Load;
use crate::support::{Request, Server, rows};
use crate::webhooks::stripe;

pub const SENDERS: usize = 2;
/// Each has a billing of its own.
const CUSTOMERS: usize = 20;

#[derive(Default)]
pub struct Notes {
    /// Events that were answered 204.
    acknowledged: Mutex<BTreeSet<String>>,
}

pub async fn prepare(server: &Server) {
    for n in 0..CUSTOMERS {
        let wish = json!({"officeId": format!("o-{n}"), "stripeCustomerId": format!("cus_{n}")});
        let answer = server.ask(Request::json("/billings", &wish)).await;
        assert_eq!(answer.status, 201, "{answer:?}");
    }
}

pub async fn client(load: Arc<Load>, number: usize) {
    let mut dice = load.dice(5, number);
    let mut count = 0;
    while load.goes_on().await {
        let id = format!("evt_{number}_{count:06}");
        let body = json!({"id": id, "type": "invoice.payment_succeeded", "created": 1_700_000_000 + count,
            "data": {"object": {"customer": format!("cus_{}", dice.below(CUSTOMERS as u64))}}});
        count += 1;
        for _ in 0..=dice.below(2) {
            let answer = load.ask(number, &stripe(&body.to_string())).await;
            assert_eq!(answer.status, 204, "{answer:?}");
        }
        load.webhooks.acknowledged.lock().unwrap().insert(id);
        load.acknowledged("webhooks");
    }
}

/// Every event was processed once in effect, or is told as failed.
pub async fn balance(load: &Load, url: &str, books: &mut Books) {
    let event_id = if url.starts_with("sqlite:") {
        "json_extract(details, '$.event_id')"
    } else {
        "details ->> 'event_id'"
    };
    let sql = format!(
        "select {event_id}, count(*) from audit_logs where action = 'billing.payment_succeeded' group by 1"
    );
    let mut processed = BTreeSet::new();
    for row in rows(url, &sql).await {
        if row[1] != "1" {
            books.twice.push(format!("event {row:?}"));
        }
        processed.insert(row[0].clone());
    }
    let failed: BTreeSet<String> = rows(url, "select event_id from failed_webhook_events")
        .await
        .into_iter()
        .map(|row| row[0].clone())
        .collect();
    for id in &*load.webhooks.acknowledged.lock().unwrap() {
        match (processed.contains(id), failed.contains(id)) {
            (true, false) => books.count("webhooks", "processed"),
            (false, true) => books.count("webhooks", "failed"),
            (true, true) => books.wrong(format!("{id} was processed and is told as failed")),
            (false, false) => books.lost.push(format!("event {id}")),
        }
    }
    // The billings' versions say the same as the audit log.
    let changes = rows(url, "select sum(version - 1) from billings").await[0][0].clone();
    assert_eq!(changes, processed.len().to_string(), "changes of billings");
}
