//! Nothing is acknowledged before it is durable: not even `kill -9` takes it back.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use tashika_domain::Write;
use tashika_store::Store;

use crate::support::*;

/// In the environment of a child: the database that it writes to.
const CHILD: &str = "TASHIKA_STORE_TEST_CHILD";
/// In the environment of a child: its first number.
const FIRST: &str = "TASHIKA_STORE_TEST_FIRST";

mod what_was_acknowledged_survives_kill_9 {
    use super::*;

    #[test]
    fn sqlite() {
        test("durability::what_was_acknowledged_survives_kill_9::sqlite", Db::sqlite);
    }

    #[test]
    fn postgres() {
        test("durability::what_was_acknowledged_survives_kill_9::postgres", Db::postgres);
    }
}

/// The test runs itself again as the process that is killed.
fn test(name: &str, db: fn() -> Db) {
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    if let Ok(url) = std::env::var(CHILD) {
        let first = std::env::var(FIRST).expect("the first number").parse().expect("a number");
        runtime.block_on(write_until_killed(&url, first));
        return;
    }
    let db = db();
    let mut acknowledged: Vec<u64> = Vec::new();
    for round in 0..3 {
        acknowledged.extend(kill_a_writer(name, &db.url(), round * 1_000_000));
        runtime.block_on(check(&db, &acknowledged));
    }
}

fn kill_a_writer(name: &str, url: &str, first: u64) -> Vec<u64> {
    let mut child = Command::new(std::env::current_exe().expect("this program"))
        .args(["--exact", name, "--nocapture"])
        .env(CHILD, url)
        .env(FIRST, first.to_string())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the child starts");
    let output = BufReader::new(child.stdout.take().expect("a pipe"));
    let mut acknowledged = Vec::new();
    for line in output.lines() {
        // Whatever it still said before it died counts as well.
        if let Some(number) = line.expect("text").strip_prefix("acknowledged ") {
            acknowledged.push(number.parse().expect("a whole number"));
            if acknowledged.len() == 300 {
                child.kill().expect("kill -9");
            }
        }
    }
    let status = child.wait().expect("the child's end");
    assert!(acknowledged.len() >= 300 && !status.success(), "{} {status}", acknowledged.len());
    acknowledged
}

/// Eight callers, each of whom says what it was told.
async fn write_until_killed(url: &str, first: u64) {
    let store = Store::open(url, 4).await.expect("the store opens");
    let callers = (0..8).map(|caller| {
        let store = store.clone();
        tokio::spawn(async move {
            for n in (first + caller..).step_by(8) {
                let key = format!("k{n}");
                let request = [Write::LedgerAccept(accept(&key)), Write::Enqueue(keyed(n, &key))];
                done(&store, request).await;
                // Ends this process when nobody reads any more.
                println!("acknowledged {n}");
            }
        })
    });
    futures_util::future::join_all(callers).await;
}

async fn check(db: &Db, acknowledged: &[u64]) {
    let store = db.open().await;
    for n in acknowledged {
        assert!(store.effect(id(*n)).await.unwrap().is_some(), "effect {n} is lost");
        let entry = store.ledger_entry(&ledger_key(&format!("k{n}"))).await.unwrap();
        assert!(entry.is_some(), "ledger entry {n} is lost");
    }
    let halves = "select (select count(*) from idempo_ledger where idempotency_key not in
                            (select idempotency_key from outbox))
                       + (select count(*) from outbox where idempotency_key not in
                            (select idempotency_key from idempo_ledger))";
    assert_eq!(db.number(halves).await, 0, "half a transaction");
}
