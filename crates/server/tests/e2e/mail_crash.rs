//! `kill -9` in the middle of a batch, and two processes that share one rate and one quota.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use crate::support::Setup;
use crate::support::mail::{Post, batch};

on_both!(killed_in_the_middle_of_a_batch);

const KILLS: usize = 3;
const RECIPIENTS: usize = 120;
/// Mails that a process may be sending at the same moment.
const AT_ONCE: usize = 5;

fn recipients(count: usize) -> Vec<String> {
    (0..count).map(|n| format!("r{n}@example.com")).collect()
}

async fn killed_in_the_middle_of_a_batch(db: TestDb) {
    let office = Post::start(json!({})).await;
    let setup = office
        .setup(Setup::of(&db))
        .set("MAIL_RATE_PER_SEC", 40)
        .set("OUTBOX_LOCK_LEASE_SEC", 3)
        .set("TASHIKA_LOG", "warn,tashika_server=info");
    let mut server = setup.start().await;
    let id = server.send_batch(&batch(&recipients(RECIPIENTS))).await;
    for kill in 1..=KILLS {
        let enough = RECIPIENTS * kill / (KILLS + 2);
        office.server.until("mails at the server", |stats| stats.accepted >= enough).await;
        server.kill().await;
        server = setup.start().await;
    }
    let end = server.until_batch(&id, "the end", |batch| batch["status"] == "finished").await;
    let mails = server.mails_of(&id).await;
    server.stop().await;

    let copies = office.copies().await;
    let doubtful: BTreeSet<&str> = mails
        .iter()
        .filter(|mail| mail["possiblyDuplicate"] == true)
        .map(|mail| mail["to"].as_str().unwrap())
        .collect();
    let twice: Vec<&String> = copies.iter().filter(|(_, n)| **n > 1).map(|(to, _)| to).collect();
    println!(
        "{:?}: {KILLS} kills, {RECIPIENTS} recipients: {} sent, {} possibly sent, {} failed; {} marked as possible duplicates, \
         {} of them at the server twice",
        db.dialect(),
        end["sent"],
        end["possiblySent"],
        end["failed"],
        doubtful.len(),
        twice.len(),
    );
    assert_eq!(copies.len(), RECIPIENTS, "nobody is skipped");
    assert_eq!(end["failed"], 0, "{end}");
    assert!(twice.iter().all(|to| doubtful.contains(to.as_str())), "marked: {twice:?}");
    assert!(twice.len() <= KILLS * AT_ONCE, "no more than were under way: {twice:?}");
    assert!(doubtful.len() <= KILLS * AT_ONCE, "no more than were under way: {doubtful:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_nodes_on_one_postgres_share_the_rate_and_the_quota() {
    const RATE: usize = 24;
    const QUOTA: usize = 100;
    let db = TestDb::postgres();
    // A strict server: 28 is to 24 as 14 is to 12.
    let office = Post::start(json!({"rate": 28})).await;
    let setup = office
        .setup(Setup::of(&db))
        .set("MAIL_RATE_PER_SEC", RATE)
        .set("MAIL_DAILY_QUOTA", QUOTA)
        .set("TASHIKA_LOG", "warn,tashika_server=info");
    let (one, two) = (setup.start().await, setup.start().await);
    let id = one.send_batch(&batch(&recipients(QUOTA + 30))).await;
    one.until_batch(&id, "the whole quota", |batch| batch["sent"] == QUOTA).await;
    for server in [&one, &two] {
        until("a parked lane", async || {
            let lane: Value = server.get("/mail/lane").await.json();
            (lane["state"] == "parked" && lane["quotaLeft"] == 0).then_some(())
        })
        .await;
    }
    let (stats, found) = (office.server.stats().await, two.mail_batch(&id).await);
    println!(
        "two nodes: {} taken of {} asked for, quota {QUOTA}; busiest second {} of {RATE}; most at once {}",
        stats.accepted,
        QUOTA + 30,
        stats.busiest_second,
        stats.sending_max,
    );
    assert_eq!((stats.accepted, &found["queued"]), (QUOTA, &json!(30)));
    assert!(stats.busiest_second <= RATE, "{stats:?}");
    assert_eq!(stats.answers.get("454"), None, "nobody was throttled: {stats:?}");
    assert!(stats.sending_max <= 2 * AT_ONCE, "{stats:?}");
    one.stop().await;
    two.stop().await;
}
