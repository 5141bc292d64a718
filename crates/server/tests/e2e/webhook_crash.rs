//! `kill -9`, again and again, in a stream of signed events.
//!
//! Every event that was answered 204 is processed exactly once in effect, or is a dead letter. The
//! oracle is the audit log, which is written together with each effect, and the billings' versions.
//! `TASHIKA_CRASH_EVENTS=50000` makes the stream as long as the contract has it.

use std::collections::BTreeSet;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use secrecy::SecretString;
use serde_json::json;
use tashika_engine::Clock;
use tashika_providers::webhook::stripe_header;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::task::JoinSet;

use crate::support::{Request, Setup, rows};

on_both!(killed_again_and_again_in_a_stream_of_events);

const SECRET: &str = "whsec_test";
const ROUNDS: usize = 10;
const CONNECTIONS: usize = 16;
/// Each has a billing of its own.
const CUSTOMERS: usize = 50;
/// As many as a debug build gets done in a minute on two cores.
const EVENTS: usize = 10_000;

/// What the senders know.
#[derive(Default)]
struct Senders {
    /// Events that were not answered 204: they are sent again, like any sender would do.
    unanswered: Mutex<BTreeSet<usize>>,
    next: AtomicUsize,
    acknowledged: AtomicUsize,
    sent: AtomicUsize,
}

impl Senders {
    fn take(&self, until: usize) -> Option<usize> {
        if let Some(open) = self.unanswered.lock().unwrap().pop_first() {
            return Some(open);
        }
        let next = self.next.fetch_add(1, Ordering::Relaxed);
        if next >= until {
            self.next.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        Some(next)
    }

    /// One connection: event after event, until there are no more or the server is gone.
    async fn send_until_gone(self: Arc<Self>, server: SocketAddr, until: usize) {
        let Ok(mut stream) = TcpStream::connect(server).await else { return };
        while let Some(number) = self.take(until) {
            self.sent.fetch_add(1, Ordering::Relaxed);
            match exchange(&mut stream, number).await {
                Ok(204) => {
                    self.acknowledged.fetch_add(1, Ordering::Relaxed);
                }
                Ok(status) => panic!("event {number} was answered {status}"),
                Err(_) => {
                    self.unanswered.lock().unwrap().insert(number);
                    return;
                }
            }
        }
    }
}

/// One event on a connection that stays open.
async fn exchange(stream: &mut TcpStream, number: usize) -> io::Result<u16> {
    let body = json!({"id": format!("evt_{number}"), "type": "invoice.payment_succeeded",
        "created": 1_700_000_000 + number,
        "data": {"object": {"customer": format!("cus_{}", number % CUSTOMERS)}}})
    .to_string();
    let signature =
        stripe_header(&SecretString::from(SECRET), body.as_bytes(), Clock::System.now());
    let length = body.len();
    let request = format!(
        "POST /webhooks/stripe HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
         stripe-signature: {signature}\r\ncontent-length: {length}\r\n\r\n{body}"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut answer = Vec::with_capacity(512);
    while !answer.ends_with(b"\r\n\r\n") {
        if stream.read_buf(&mut answer).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    let status = std::str::from_utf8(&answer[9..12]).ok().and_then(|text| text.parse().ok());
    status.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

async fn number(db: &TestDb, sql: &str) -> usize {
    rows(&db.url(), sql).await[0][0].parse().unwrap()
}

async fn killed_again_and_again_in_a_stream_of_events(db: TestDb) {
    let wanted = std::env::var("TASHIKA_CRASH_EVENTS").ok();
    let events: usize = wanted.map_or(EVENTS, |text| text.parse().unwrap());
    let setup = Setup::of(&db)
        .set("STRIPE_WEBHOOK_SECRET", SECRET)
        .set("TASHIKA_LOG", "warn,tashika_server=info")
        .set("OUTBOX_LOCK_LEASE_SEC", 3)
        .set("AUDIT_SEAL_INTERVAL_SEC", "0.5");
    let began = tokio::time::Instant::now();
    let server = setup.start().await;
    for n in 0..CUSTOMERS {
        let wish = json!({"officeId": format!("o-{n}"), "stripeCustomerId": format!("cus_{n}")});
        let request = Request::new("POST", "/billings").header("content-type", "application/json");
        assert_eq!(server.ask(request.body(wish.to_string())).await.status, 201);
    }
    server.stop().await;

    let senders = Arc::new(Senders::default());
    for round in 1..=ROUNDS {
        let server = setup.start().await;
        let mut sending = JoinSet::new();
        for _ in 0..CONNECTIONS {
            sending.spawn(Arc::clone(&senders).send_until_gone(server.address, events));
        }
        // In the middle of the stream; the last round goes to its end.
        let enough = events * round / (ROUNDS + 1);
        while senders.acknowledged.load(Ordering::Relaxed) < enough {
            tokio::time::sleep(Duration::from_millis(1)).await;
            let refused = sending.try_join_next().is_some_and(|ended| ended.is_err());
            assert!(!refused, "a sender was not answered 204");
        }
        server.kill().await;
        sending.join_all().await;
    }
    let server = setup.start().await;
    let mut sending = JoinSet::new();
    for _ in 0..CONNECTIONS {
        sending.spawn(Arc::clone(&senders).send_until_gone(server.address, events));
    }
    sending.join_all().await;
    let accepted_after = began.elapsed();
    let acknowledged = senders.acknowledged.load(Ordering::Relaxed);
    assert_eq!(acknowledged, events, "in the end every event was answered 204");

    let open = "select count(*) from webhook_events where status = 'pending'";
    let unsettled = "select count(*) from outbox
         where lane = 'webhooks' and status not in ('succeeded', 'aborted')";
    loop {
        // In this order: an effect ends together with its event.
        let working = number(&db, unsettled).await;
        let waiting = number(&db, open).await;
        if waiting == 0 {
            break;
        }
        assert!(working > 0, "{waiting} events wait for nothing");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    let processed_after = began.elapsed();
    server.stop().await;

    let kept = number(&db, "select count(*) from webhook_events").await;
    let success = number(&db, "select count(*) from webhook_events where status = 'success'").await;
    let failed = number(&db, "select count(*) from failed_webhook_events").await;
    let details = if db.url().starts_with("sqlite:") {
        "json_extract(details, '$.event_id')"
    } else {
        "details ->> 'event_id'"
    };
    let paid = "from audit_logs where action = 'billing.payment_succeeded'";
    let lines = number(&db, &format!("select count(*) {paid}")).await;
    let different = number(&db, &format!("select count(distinct {details}) {paid}")).await;
    let changes = number(&db, "select sum(version - 1) from billings").await;
    let dead = number(&db, "select count(*) from outbox where status = 'aborted'").await;
    let sent = senders.sent.load(Ordering::Relaxed);
    println!(
        "{ROUNDS} kills, {sent} requests, {acknowledged} answered 204 after {accepted_after:.0?}: \
         {success} processed, {failed} failed, {lines} audit lines about {different} events, \
         {changes} changes of billings, {dead} dead letters; all over after {processed_after:.0?}"
    );
    assert_eq!((kept, success + failed), (events, events), "none is missing, none is double");
    assert_eq!((lines, different, changes), (success, success, success), "each once in effect");
    assert_eq!(failed, dead);
    let verdict = setup.print(&["audit", "verify"]).await;
    assert!(verdict.starts_with("intact"), "{verdict}");
}
