//! Orders through the real HTTP adapter and a real socket, with every fault a broker can have.

use std::time::Duration;

use serde_json::json;
use tashika_domain::ledger::LedgerStatus;
use tashika_domain::order::broker_code;
use tashika_domain::{LanePolicy, Status};
use tashika_engine::Running;
use tashika_providers::broker::http::{HttpBroker, Profile};
use tashika_providers::http::ClientConfig;
use tashika_providers::signature::Nonces;
use tashika_testkit::broker::server::{BrokerServer, Repeats};
use tashika_testkit::broker::{Account, Act, Heard};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::Gate;

use crate::support::{KEY, Rig, patience, policy, stop};

/// Long for a loopback connection, short for a test that waits for it.
const TIMEOUT: Duration = Duration::from_secs(1);

fn adapter(base_url: String, takes_keys: bool, secret: secrecy::SecretString) -> HttpBroker {
    let profile = Profile {
        name: "http".into(),
        base_url,
        key_id: "k-1".into(),
        secret,
        takes_keys,
        client: ClientConfig::with_timeout(TIMEOUT),
    };
    HttpBroker::new(profile, Nonces::new(*b"testtest")).unwrap()
}

/// A broker, its server, and an engine that has one order for it.
struct Http {
    rig: Rig,
    server: BrokerServer,
    running: Running,
}

impl Http {
    async fn start(rig: Rig, repeats: Repeats, policy: LanePolicy) -> Self {
        let server = BrokerServer::start(&rig.broker, repeats).await;
        let takes_keys = tashika_providers::broker::Broker::takes_keys(&rig.broker);
        let adapter = adapter(server.base_url(), takes_keys, BrokerServer::secret());
        rig.place(KEY).await;
        let running = rig.engine_with(adapter, policy).start();
        Self { rig, server, running }
    }

    async fn end(self) -> Rig {
        stop(self.running).await;
        assert!(self.server.turned_away().is_empty(), "{:?}", self.server.turned_away());
        self.rig
    }
}

async fn with_keys(acts: impl IntoIterator<Item = Act>, repeats: Repeats) -> Http {
    let rig = Rig::with_keys(TestDb::sqlite()).await;
    rig.broker.script(acts);
    Http::start(rig, repeats, policy()).await
}

async fn without_keys(acts: impl IntoIterator<Item = Act>, accounts: &[Account]) -> Http {
    let rig = Rig::without_keys(TestDb::sqlite()).await;
    rig.broker.script(acts);
    rig.broker.account(accounts.iter().cloned());
    Http::start(rig, Repeats::Replay, policy()).await
}

/// The order succeeds, was sent so often, and was executed once.
async fn executed_once(http: Http, sends: usize) {
    http.rig.succeeded(KEY).await;
    let rig = http.end().await;
    assert_eq!((rig.broker.sent(KEY), rig.broker.executed(KEY)), (sends, 1));
    let entry = rig.entry(KEY).await;
    assert_eq!((entry.status, entry.http_status), (LedgerStatus::Succeeded, 200));
    assert!(entry.response.contains(r#""order_ref":"B-1""#), "{}", entry.response);
}

async fn failed_with(http: Http, public: &str, http_status: u16) -> Rig {
    http.rig.aborted(KEY).await;
    let rig = http.end().await;
    let (told_status, told) = rig.replay(KEY).await;
    assert_eq!((told_status, &told["reason_code"]), (http_status, &json!(public)));
    rig
}

#[tokio::test]
async fn an_order_is_executed_sqlite() {
    let http = with_keys([], Repeats::Replay).await;
    http.rig.succeeded(KEY).await;
    let rig = http.end().await;
    let attempt = &rig.attempts(KEY).await[0];
    let exchange = attempt.exchange.clone().unwrap();
    assert_eq!((exchange.request.as_str(), exchange.reply.as_str()), ("POST /orders", "201"));
    assert_eq!(exchange.reference.as_deref(), Some("B-1"));
    assert_eq!(rig.broker.executed(KEY), 1);
}

#[tokio::test]
async fn a_connection_dropped_after_executing_is_repeated_under_the_key_sqlite() {
    executed_once(with_keys([Act::ExecuteThenLose], Repeats::Replay).await, 2).await;
}

#[tokio::test]
async fn a_repeat_answered_with_a_conflict_and_the_execution_succeeds_sqlite() {
    let http = with_keys([Act::ExecuteThenLose], Repeats::ConflictWithExecution).await;
    executed_once(http, 2).await;
}

#[tokio::test]
async fn a_repeat_answered_with_a_bare_conflict_is_asked_about_sqlite() {
    let http = with_keys([Act::ExecuteThenLose], Repeats::Conflict).await;
    let broker = http.rig.broker.clone();
    executed_once(http, 2).await;
    assert_eq!(broker.asked(KEY), 1);
}

#[tokio::test]
async fn a_connection_dropped_before_executing_is_repeated_sqlite() {
    executed_once(with_keys([Act::LoseBefore], Repeats::Replay).await, 2).await;
}

#[tokio::test]
async fn a_500_after_executing_is_repeated_under_the_key_sqlite() {
    executed_once(with_keys([Act::Fail { executed: true }], Repeats::Conflict).await, 2).await;
}

#[tokio::test]
async fn an_answer_after_the_timeout_is_lost_and_the_late_order_executed_once_sqlite() {
    let slow = Gate::closed();
    let http = with_keys([Act::Execute.behind(&slow)], Repeats::Replay).await;
    let broker = http.rig.broker.clone();
    http.rig.succeeded(KEY).await;
    slow.open();
    broker.until("the end of the slow send", |seen| seen.in_flight == 0).await;
    assert_eq!(http.rig.attempts(KEY).await[0].code.as_deref(), Some("BROKER_TIMEOUT"));
    executed_once(http, 2).await;
}

#[tokio::test]
async fn a_429_waits_for_as_long_as_it_says_sqlite() {
    let retry_after = Some(Duration::from_secs(3600));
    let http = with_keys([Act::Busy { retry_after }], Repeats::Replay).await;
    let row = http.rig.until_status(KEY, Status::Failed).await;
    assert_eq!(row.next_run_at, row.updated_at.plus(Duration::from_secs(3600)));
    assert_eq!(row.last_error_code.as_deref(), Some(broker_code::RATE_LIMITED));
    assert!(!row.in_doubt);
    http.end().await;
}

#[tokio::test]
async fn a_refusal_is_final_sqlite() {
    let http = with_keys([Act::refuse(broker_code::BAD_REQUEST)], Repeats::Replay).await;
    let rig = failed_with(http, "BROKER_REJECTED", 400).await;
    assert_eq!(rig.broker.sent(KEY), 1);
    let row = rig.row(KEY).await;
    assert_eq!(
        row.last_error_msg.as_deref(),
        Some("the broker answered 422: BROKER_BAD_REQUEST: the broker does not like it")
    );
}

#[tokio::test]
async fn missing_rights_are_our_fault_sqlite() {
    let http = with_keys([Act::refuse(broker_code::UNAUTHORIZED)], Repeats::Replay).await;
    failed_with(http, "INTERNAL_ERROR", 500).await;
}

#[tokio::test]
async fn a_wrong_secret_executes_nothing_sqlite() {
    let rig = Rig::with_keys(TestDb::sqlite()).await;
    let server = BrokerServer::start(&rig.broker, Repeats::Replay).await;
    let adapter = adapter(server.base_url(), true, "not the secret".into());
    rig.place(KEY).await;
    let running = rig.engine_with(adapter, policy()).start();
    rig.aborted(KEY).await;
    stop(running).await;
    assert_eq!(server.turned_away(), ["BAD_SIGNATURE"]);
    assert_eq!(rig.replay(KEY).await.0, 500);
    assert_eq!(rig.broker.seen().heard, []);
}

#[tokio::test]
async fn a_broker_that_is_not_there_is_down_and_leaves_no_doubt_sqlite() {
    let rig = Rig::without_keys(TestDb::sqlite()).await;
    let address = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap()
    };
    let adapter = adapter(format!("http://{address}/v1"), false, BrokerServer::secret());
    rig.place(KEY).await;
    let running = rig.engine_with(adapter, patience(2)).start();
    let row = rig.aborted(KEY).await;
    assert_eq!((row.attempts, row.in_doubt), (2, false), "nothing was sent");
    assert_eq!(rig.replay(KEY).await.0, 503);
    stop(running).await;
}

#[tokio::test]
async fn without_keys_a_dropped_answer_is_asked_about_sqlite() {
    let http = without_keys([Act::ExecuteThenLose], &[]).await;
    let broker = http.rig.broker.clone();
    executed_once(http, 1).await;
    assert_eq!(broker.seen().heard, [Heard::Send(KEY.into()), Heard::Status(KEY.into())]);
}

#[tokio::test]
async fn without_keys_an_order_the_broker_does_not_know_is_sent_once_more_sqlite() {
    executed_once(without_keys([Act::LoseBefore], &[]).await, 2).await;
}

#[tokio::test]
async fn without_keys_a_500_is_asked_about_until_there_is_an_answer_sqlite() {
    let accounts = [Account::Lose, Account::Busy, Account::Working];
    let http = without_keys([Act::Fail { executed: true }], &accounts).await;
    let broker = http.rig.broker.clone();
    executed_once(http, 1).await;
    assert_eq!(broker.asked(KEY), 4);
}

#[tokio::test]
async fn without_keys_silence_becomes_a_case_sqlite() {
    let rig = Rig::without_keys(TestDb::sqlite()).await;
    rig.broker.script([Act::ExecuteThenLose]);
    rig.broker.usual_account(Account::Lose);
    let http = Http::start(rig, Repeats::Replay, patience(3)).await;
    http.rig.aborted(KEY).await;
    let rig = http.end().await;
    assert_eq!(rig.open_cases(KEY).await.len(), 1);
    assert_eq!(rig.entry(KEY).await.status, LedgerStatus::Accepted);
    assert_eq!((rig.broker.sent(KEY), rig.broker.executed(KEY)), (1, 1));
}
