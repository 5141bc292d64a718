//! The books: when everything is at rest, each acknowledgement is compared with what the outside says happened.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

use serde_json::Value;
use tokio::time::Instant;

use super::load::Load;
use super::{mails, messages, orders, payments, reservations, webhooks};
use crate::support::{Server, rows};

/// For so long nothing may move before something is stuck.
const STUCK: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(200);

/// What is not over yet. Timers may be days away; what they stand for is counted itself.
const OPEN: [(&str, &str); 7] = [
    ("effects", "outbox where status in ('pending', 'sending', 'failed') and lane <> 'timers'"),
    (
        "payments",
        "payments where (operation is not null or id in (select payment_id from refunds where status = 'pending'))
            and verification_failed = false",
    ),
    ("reservations", "reservations where status = 'hold'"),
    ("renders", "renders where status in ('queued', 'processing')"),
    ("webhooks", "webhook_events where status = 'pending'"),
    ("mails", "mail_deliveries where status = 'queued'"),
    ("messages", "messages where state in ('queued', 'throttled', 'ready')"),
];

#[derive(Default)]
pub struct Books {
    /// Acknowledged, and nobody knows of it.
    pub lost: Vec<String>,
    /// Happened twice.
    pub twice: Vec<String>,
    /// Told otherwise than it happened.
    wrong: Vec<String>,
    /// Subjects of open cases: a person is asked.
    pub cases: BTreeSet<String>,
    counts: BTreeMap<&'static str, BTreeMap<String, usize>>,
    figures: Vec<(&'static str, String)>,
}

impl Books {
    pub fn count(&mut self, kind: &'static str, ending: &str) {
        *self.counts.entry(kind).or_default().entry(ending.to_owned()).or_default() += 1;
    }

    pub fn wrong(&mut self, story: String) {
        self.wrong.push(story);
    }

    pub fn figure(&mut self, name: &'static str, value: impl Display) {
        self.figures.push((name, value.to_string()));
    }

    /// Prints the figures; then nothing may be lost, double or wrong.
    fn close(&self, load: &Load, title: &str) {
        let tally = load.tally.lock().unwrap();
        println!("{title}");
        println!("  acknowledged {}: {:?}", tally.total(), tally.acknowledged);
        println!("  not answered {}, refused with 503: {:?}", tally.unanswered, tally.refused);
        for (kind, endings) in &self.counts {
            println!("  {kind}: {endings:?}");
        }
        for (name, value) in &self.figures {
            println!("  {name}: {value}");
        }
        println!(
            "  lost {}, twice {}, told wrongly {}, open cases {}",
            self.lost.len(),
            self.twice.len(),
            self.wrong.len(),
            self.cases.len(),
        );
        assert!(self.lost.is_empty(), "acknowledged and lost: {:#?}", self.lost);
        assert!(self.twice.is_empty(), "happened twice: {:#?}", self.twice);
        assert!(self.wrong.is_empty(), "out of balance: {}", self.wrong.join("\n"));
        for kind in ["orders", "payments", "reservations", "messages", "webhooks", "mails"] {
            assert!(self.counts.contains_key(kind), "the load had no {kind}");
        }
    }
}

/// Waits until everything is at rest, for as long as anything moves.
pub async fn rest(url: &str) {
    let mut last = (Vec::new(), Instant::now());
    loop {
        let mut open = Vec::new();
        for (what, from) in OPEN {
            let count = rows(url, &format!("select count(*) from {from}")).await[0][0].clone();
            if count != "0" {
                open.push(format!("{count} {what}"));
            }
        }
        if open.is_empty() {
            return;
        }
        if open != last.0 {
            last = (open, Instant::now());
        }
        if last.1.elapsed() > STUCK {
            let sql = "select kind, lane, status, attempts, coalesce(last_error_code, ''), coalesce(last_error_msg, ''),
                              next_run_at, coalesce(locked_by, '')
                         from outbox where status in ('pending', 'sending', 'failed') limit 50";
            panic!(
                "still open after {STUCK:?} of standstill: {:?}\n{:#?}",
                last.0,
                rows(url, sql).await
            );
        }
        tokio::time::sleep(LOOK_AGAIN).await;
    }
}

/// Ends the bad day, waits for rest and balances the books.
pub async fn balance(title: &str, load: &Load, url: &str, server: &Server) {
    load.town.calm().await;
    rest(url).await;
    let mut books = Books::default();
    let cases = rows(url, "select subject_id from cases where status = 'open'").await;
    books.cases = cases.into_iter().map(|row| row[0].clone()).collect();
    orders::balance(load, &mut books).await;
    payments::balance(load, server, &mut books).await;
    reservations::balance(load, url, &mut books).await;
    messages::balance(load, server, &mut books).await;
    webhooks::balance(load, url, &mut books).await;
    mails::balance(load, &mut books).await;
    events(load, url, &mut books).await;
    books.close(load, title);
}

/// Every event that was written was heard by the sink, or is a dead letter that says so.
async fn events(load: &Load, url: &str, books: &mut Books) {
    let heard = load.town.sink.heard.events.lock().unwrap().clone();
    let given_up = "select count(*) from outbox where lane = 'events' and status = 'aborted'";
    let given_up = rows(url, given_up).await[0][0].clone();
    books.figure("events heard by the sink", heard.len());
    books.figure("of these more than once", heard.values().filter(|times| **times > 1).count());
    books.figure("events given up", given_up);
}

impl Server {
    /// Page by page, as a caller would.
    pub async fn every(&self, path: &str) -> Vec<Value> {
        let (mut all, mut cursor) = (Vec::new(), String::new());
        loop {
            let answer = self.get(&format!("{path}?limit=100&cursor={cursor}")).await;
            assert_eq!(answer.status, 200, "{answer:?}");
            let page = answer.json();
            all.extend(page["items"].as_array().unwrap().iter().cloned());
            match page["nextCursor"].as_str() {
                Some(next) => next.clone_into(&mut cursor),
                None => return all,
            }
        }
    }
}
