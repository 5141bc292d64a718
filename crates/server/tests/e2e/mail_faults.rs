//! Many recipients, and every fault that a mail server can have: what the server took is compared with what we say.
//!
//! `TASHIKA_MAIL_RECIPIENTS` sets how many; each fault gets one in twenty of them.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::support::mail::{Post, batch};
use crate::support::{Request, Setup};

on_both!(every_fault_ends_as_the_table_says);

const RECIPIENTS: usize = 200;
/// Above what we are set to, as 14 is above 12; a server that counts strictly.
const SERVER_RATE: usize = 140;
const OUR_RATE: usize = 120;

/// What happens at the server, how the mail ends, and how many copies of it the server has then.
const FAULTS: [(&str, &str, std::ops::RangeInclusive<usize>); 16] = [
    ("nouser", "failed", 0..=0),
    ("unverified", "failed", 0..=0),
    ("denied", "failed", 0..=0),
    ("toolong", "failed", 0..=0),
    ("tempfail", "failed", 0..=0),
    ("outoforder", "failed", 0..=0),
    ("shutdown", "failed", 0..=0),
    ("hangbefore", "failed", 0..=0),
    ("dropbefore", "failed", 0..=0),
    ("greylist", "sent", 1..=1),
    ("throttled", "sent", 1..=1),
    ("quota", "sent", 1..=1),
    ("closeafter", "sent", 1..=1),
    // No answer, or one that says nothing: it may be there, and each attempt may have left a copy.
    ("hangafter", "possiblySent", 0..=0),
    ("hangaccepted", "possiblySent", 1..=3),
    ("drop", "possiblySent", 1..=3),
];

fn fault_of(to: &str) -> &str {
    to.split(['+', '@']).next().unwrap()
}

async fn every_fault_ends_as_the_table_says(db: TestDb) {
    let wanted = std::env::var("TASHIKA_MAIL_RECIPIENTS").ok();
    let total: usize = wanted.map_or(RECIPIENTS, |text| text.parse().unwrap());
    let office = Post::start(json!({"rate": SERVER_RATE})).await;
    let setup = office
        .setup(Setup::of(&db))
        .set("MAIL_RATE_PER_SEC", OUR_RATE)
        .set("MAIL_TIMEOUT_MS", 2000)
        .set("MAIL_PARK_SEC", 3600)
        .set("TASHIKA_LOG", "warn,tashika_server=info");
    let server = setup.start().await;
    let to: Vec<String> = (0..total)
        .map(|n| match FAULTS.get(n % 20) {
            Some((fault, _, _)) => format!("{fault}+{n}@example.com"),
            None => format!("fine+{n}@example.com"),
        })
        .collect();
    let began = tokio::time::Instant::now();
    let id = server.send_batch(&batch(&to)).await;
    // The first mail over the quota parks the lane; then there is more quota, and somebody says so.
    until("a parked lane", async || {
        (server.get("/mail/lane").await.json()["state"] == "parked").then_some(())
    })
    .await;
    office.server.set(json!({"quota": "off"})).await;
    let resumed = server.ask(Request::new("POST", "/mail/resume")).await;
    assert_eq!(resumed.status, 200, "{resumed:?}");
    let end = server.until_batch(&id, "the end", |batch| batch["status"] == "finished").await;
    let took = began.elapsed();

    let mails = server.mails_of(&id).await;
    assert_eq!(mails.len(), total, "everybody is accounted for");
    let (copies, stats) = (office.copies().await, office.server.stats().await);
    let mut table: BTreeMap<&str, (usize, usize)> = BTreeMap::new();
    let mut stood_still = 0;
    for mail in &mails {
        let to = mail["to"].as_str().unwrap();
        let taken = copies.get(to).copied().unwrap_or(0);
        check(mail, fault_of(to), taken);
        stood_still += usize::from(has_stood_still(mail, fault_of(to)));
        let row = table.entry(fault_of(to)).or_default();
        *row = (row.0 + 1, row.1 + taken);
    }
    let accepted: usize = copies.values().sum();
    println!(
        "{:?}: {total} recipients after {took:.0?}; ours: {} sent, {} failed, {} possibly sent; the server's: {accepted} \
         taken for {} recipients, busiest second {}, most at once {}, most connections {}; {stood_still} mails met a machine that stood still",
        db.dialect(),
        end["sent"],
        end["failed"],
        end["possiblySent"],
        copies.len(),
        stats.busiest_second,
        stats.sending_max,
        stats.connections_max,
    );
    for (fault, (mails, taken)) in table {
        println!("  {fault}: {mails} mails, {taken} copies at the server");
    }
    assert!(stats.busiest_second <= OUR_RATE, "{stats:?}");
    assert!(stats.sending_max <= 5, "{stats:?}");
    server.stop().await;
}

/// Whether a server that answers at once did not: the machine has stood still for two seconds.
fn has_stood_still(mail: &Value, fault: &str) -> bool {
    let hangs = fault.starts_with("hang");
    let history = mail["history"].as_array().unwrap();
    let silent = |tried: &Value| tried["text"].as_str().unwrap().starts_with("no answer within");
    !hangs && history.iter().any(silent)
}

/// One mail against the table: where it ended, and what the server has of it.
fn check(mail: &Value, fault: &str, taken: usize) {
    let expected = FAULTS.iter().find(|(known, _, _)| *known == fault);
    let (status, copies) =
        expected.map_or(("sent", 1..=1), |(_, status, copies)| (*status, copies.clone()));
    let duplicate = mail["possiblyDuplicate"].as_bool().unwrap();
    if has_stood_still(mail, fault) {
        // What we say must be true nevertheless.
        match mail["status"].as_str() {
            Some("sent") => assert!(taken >= 1, "{mail}"),
            Some("failed") => assert_eq!(taken, 0, "{mail}"),
            other => assert!(other == Some("possiblySent") && duplicate, "{mail}"),
        }
        assert!(taken <= 1 || duplicate, "{taken} copies: {mail}");
        return;
    }
    assert_eq!(mail["status"], status, "{mail}");
    assert!(copies.contains(&taken), "{taken} copies: {mail}");
    // Whoever is within the rate is not throttled: only the script does that, once for each.
    let history = mail["history"].as_array().unwrap();
    let throttled = history.iter().filter(|tried| tried["outcome"] == "throttled").count();
    assert_eq!(throttled, usize::from(fault == "throttled"), "{mail}");
}
