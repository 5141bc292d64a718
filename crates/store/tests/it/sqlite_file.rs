//! What only SQLite has: a disk of its own to be full, and a mode without threads.

use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};

use futures_util::future::join_all;
use tashika_domain::{NewEffect, Status, Write};
use tashika_store::{Gate, Moment, Passing, Store, Written};

use crate::support::*;

const CHILD: &str = "TASHIKA_STORE_TEST_FULL_DISK";

/// A file that may not grow stands for the full disk. What is said about each write must be true
/// afterwards: a "nothing was written" makes callers try again.
#[tokio::test]
async fn a_full_disk_is_told_truthfully() {
    if let Ok(url) = std::env::var(CHILD) {
        return fill(&url).await;
    }
    let db = Db::sqlite();
    drop(db.open().await);
    // The limit is in units of 512 or 1024 bytes. Signal 25 would end the process; ignored, the
    // write fails instead, as on a full disk.
    let mut child = Command::new("sh")
        .args(["-c", "trap '' XFSZ; ulimit -f 12000; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "sqlite_file::a_full_disk_is_told_truthfully", "--nocapture"])
        .env(CHILD, db.url())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut told = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        if let Some((word, number)) = line.strip_prefix("told ").and_then(|l| l.split_once(' ')) {
            told.push((number.parse::<u64>().unwrap(), word.to_owned()));
        }
    }
    assert!(child.wait().unwrap().success());
    assert_eq!(told.len(), 800);
    assert!(told.iter().any(|(_, word)| word != "done"), "the disk was not full");

    let store = db.open().await;
    for (number, word) in told {
        let there = store.effect(id(number)).await.unwrap().is_some();
        match word.as_str() {
            "done" => assert!(there, "{number} was acknowledged and is lost"),
            "nothing" => assert!(!there, "{number} was said not to be written, and is there"),
            other => assert_eq!(other, "unknown"),
        }
    }
    enqueue(&store, [effect(9999)]).await;
}

/// More than the page cache holds, all at once: the disk is full in the middle of a group. Then
/// little by little, until it is full at the end of one.
async fn fill(url: &str) {
    let store = Store::open(url, 1).await.unwrap();
    let payload = format!("\"{}\"", "x".repeat(100_000));
    let write = |n| Write::Enqueue(NewEffect { payload: payload.clone(), ..effect(n) });
    let groups = (0..20).map(|group| 400 + group * 20..420 + group * 20);
    for group in std::iter::once(0..400).chain(groups) {
        // Made beforehand, so that they reach the writer together.
        let writes: Vec<(u64, Write)> = group.map(|n| (n, write(n))).collect();
        join_all(writes.into_iter().map(|(n, write)| tell(&store, n, write))).await;
    }
}

async fn tell(store: &Store, number: u64, write: Write) {
    let word = match commit(store, [write]).await {
        Said::Done => "done".to_owned(),
        Said::Unavailable(Written::No) => "nothing".to_owned(),
        Said::Unavailable(Written::Unknown) => "unknown".to_owned(),
        other => format!("{other:?}"),
    };
    println!("told {word} {number}");
}

/// The first to come makes the file and its log; the others find it half made.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_may_make_the_file_at_once() {
    for round in 0..30 {
        let db = Db::sqlite();
        let starting = (0..8).map(|n| {
            let url = db.url();
            tokio::spawn(async move {
                let store = Store::open(&url, 2).await?;
                enqueue(&store, [effect(n)]).await;
                Ok::<_, tashika_store::StoreError>(())
            })
        });
        for started in join_all(starting).await {
            started.unwrap().unwrap_or_else(|error| panic!("round {round}: {error}"));
        }
        assert_eq!(all(&db.open().await).await.len(), 8);
    }
}

struct Watch(Mutex<Vec<Moment>>);

impl Gate for Watch {
    fn pass(&self, moment: Moment) -> Passing<'_> {
        self.0.lock().unwrap().push(moment);
        Box::pin(std::future::ready(Ok(())))
    }
}

#[tokio::test]
async fn a_simulated_store_passes_its_gate_around_every_write() {
    let db = Db::sqlite();
    let gate = Arc::new(Watch(Mutex::default()));
    let store = Store::open_simulated(&db.file(), Arc::<Watch>::clone(&gate)).unwrap();
    let passed = || std::mem::take(&mut *gate.0.lock().unwrap());
    enqueue(&store, [keyed(1, "k")]).await;
    assert_eq!(passed(), [Moment::BeforeCommit, Moment::AfterCommit]);
    let held = lease(&claim(&store, at(1), 1).await[0]);
    assert_eq!(passed(), [Moment::BeforeUpkeep, Moment::AfterUpkeep]);
    assert_eq!(commit(&store, [Write::Enqueue(keyed(2, "k"))]).await, {
        Said::Taken(tashika_store::Key::Effect)
    });
    assert_eq!(passed(), [Moment::BeforeCommit, Moment::AfterCommit], "also if it loses");
    done(&store, [succeed(held, at(2)), Write::Attempt(attempt(held))]).await;
    passed();
    assert_eq!(row(&store, id(1)).await.status, Status::Succeeded);
    assert_eq!(passed(), [], "reads do not pass");
    drop(store);
    assert_eq!(row(&db.open().await, id(1)).await.status, Status::Succeeded);
}

/// A list of more than two values in a check is a tree in memory for every row that is written.
#[tokio::test]
async fn rows_of_the_queue_are_written_without_building_trees() {
    let db = Db::sqlite();
    db.open().await;
    for table in ["outbox", "idempo_ledger", "messages", "message_log", "webhook_events"] {
        let steps = db.sql(&format!("explain insert into {table} default values")).await.unwrap();
        let step = |name: &str| steps.iter().any(|row| row[1].as_deref() == Some(name));
        assert!(step("Insert") || step("IdxInsert"), "{table}: {steps:?}");
        assert!(!step("OpenEphemeral"), "{table}: {steps:?}");
    }
}
