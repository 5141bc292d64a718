//! The console as people meet it: in a real browser.
//!
//! The stories are programs in `console/`, which drive a headless Chromium. A page that asks another
//! origin, writes to the browser's console or shuts somebody out fails its story. Here they get a
//! server. The packages come through `scripts/console-packages`; screenshots stay in
//! `target/screenshots`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tashika_server::password::PasswordHash;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::{on_both, packages};
use tokio::process::Command;

use crate::support::payments::Gateway;
use crate::support::{Request, Server, Setup};

on_both!(
    an_operator_settles_replays_looks_up_and_verifies,
    sessions_are_refused_what_they_may_not_do,
    the_console_is_told_what_it_asks,
    a_day_at_the_shop_is_drawn_from_real_data,
);

const TOKEN: &str = "the-token-of-these-programs";
const PASSWORD: &str = "correct horse battery";
const WEBHOOK_SECRET: &str = "whsec_of_these_programs";
/// Far longer than any story takes.
const PATIENCE: Duration = Duration::from_secs(900);

async fn an_operator_settles_replays_looks_up_and_verifies(db: TestDb) {
    let gateway = silent_once().await;
    let server = impatient(guarded(&db)).stripe(&gateway).start().await;
    tells(&server, &db, "flow.mjs").await;
    server.stop().await;
}

async fn sessions_are_refused_what_they_may_not_do(db: TestDb) {
    let server = impatient(guarded(&db)).start().await;
    tells(&server, &db, "refusals.mjs").await;
    server.stop().await;
}

/// Reservations, renders, races, mail and alerts, made over the API and looked at in every look.
async fn a_day_at_the_shop_is_drawn_from_real_data(db: TestDb) {
    let setup = impatient(Setup::of(&db))
        .set("ALERT_INTERVAL_SEC", "0.5")
        .set("RENDER_ATTEMPTS", 1)
        .set("RENDER_RETRY_SEC", 0)
        .set("RENDER_POLL_SEC", "0.2")
        // So slowly that somebody can watch.
        .set("MAIL_RATE_PER_SEC", 6)
        .set("MAIL_BACKOFF_SEC", "0.1");
    let server = setup.start().await;
    tells(&server, &db, "shop.mjs").await;
    server.stop().await;
}

/// Starts and stops servers of its own.
#[tokio::test]
async fn pages_go_on_after_a_restart_sqlite() {
    let db = TestDb::sqlite();
    let mut story = story("restart.mjs", &db).await;
    story
        .env("TASHIKA_BINARY", env!("CARGO_BIN_EXE_tashika"))
        .env("TASHIKA_DATABASE_URL", db.url());
    told(story, "restart.mjs", String::new).await;
}

/// On one database: what is drawn does not depend on it.
#[tokio::test]
async fn every_page_is_for_everybody_sqlite() {
    let db = TestDb::sqlite();
    // Without tokens and users, as on the first day.
    let gateway = silent_once().await;
    let server = impatient(Setup::of(&db)).stripe(&gateway).start().await;
    tells(&server, &db, "pages.mjs").await;
    server.stop().await;
}

/// Sessions are signed by what is configured, and not kept: another process knows them, too.
#[tokio::test]
async fn two_processes_know_the_same_session_postgres() {
    let db = TestDb::postgres();
    let setup = guarded(&db);
    let (one, other) = (setup.start().await, setup.start().await);
    let login = Request::json(
        "/console/api/login",
        &serde_json::json!({"name": "aiko", "password": PASSWORD}),
    );
    let answer = one.ask(login).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    let cookie = answer.header("set-cookie").unwrap().split(';').next().unwrap().to_owned();
    let csrf = answer.json()["csrf"].as_str().unwrap().to_owned();
    let looks = Request::get("/payments").header("cookie", &cookie);
    let acts = Request::new("POST", "/outbox/release").header("cookie", &cookie);
    for server in [&one, &other] {
        assert_eq!(server.ask(looks.clone()).await.status, 200);
        server.ask(acts.clone()).await.is_problem(403, "CSRF_TOKEN_INVALID");
        assert_eq!(server.ask(acts.clone().header("x-csrf-token", &csrf)).await.status, 200);
    }
    one.stop().await;
    other.stop().await;
}

/// What only the console asks.
async fn the_console_is_told_what_it_asks(db: TestDb) {
    let server = impatient(Setup::of(&db)).start().await;
    server.accepted(&crate::support::order("console-0001")).await;
    server.executed("console-0001").await;
    let publish = Request::new("POST", "/v2/publish/http://127.0.0.1:9/x")
        .header("upstash-retries", "0")
        .body("{}");
    assert_eq!(server.ask(publish).await.status, 200);
    until("the dead letter on the overview", async || {
        let found = server.get("/console/api/overview").await.json();
        (found["counts"]["deadLetters"] == 1 && found["counts"]["abortedEffects"] == 1)
            .then_some(())
    })
    .await;
    let found = server.get("/console/api/overview").await.json();
    assert_eq!(found["counts"]["openCases"], 0, "{found}");
    assert!(found["steps"].is_array() && found["node"].is_string(), "{found}");

    let list = async |query: &str| {
        let answer = server.get(&format!("/console/api/messages{query}")).await;
        assert_eq!(answer.status, 200, "{answer:?}");
        answer.json()["items"].as_array().unwrap().clone()
    };
    let all = list("").await;
    assert_eq!((all.len(), &all[0]["state"]), (1, &serde_json::json!("failed")));
    assert_eq!(list("?state=failed&host=127.0.0.1:9").await, all);
    assert_eq!(list(&format!("?id={}", all[0]["id"].as_str().unwrap())).await, all);
    assert_eq!(list("?state=queued").await.len(), 0);
    server.get("/console/api/messages?state=lost").await.is_problem(400, "BAD_REQUEST");
    assert_eq!(server.get("/races").await.json()["items"], serde_json::json!([]));

    let settings = server.get("/console/api/settings").await;
    assert!(!settings.body.contains(WEBHOOK_SECRET), "secrets are hidden");
    let settings = settings.json();
    let named = |name: &str| {
        let all = settings["settings"].as_array().unwrap();
        all.iter().find(|one| one["name"] == name).unwrap_or_else(|| panic!("{name}")).clone()
    };
    assert_eq!(named("STRIPE_WEBHOOK_SECRET")["value"], "(hidden)");
    assert!(named("TASHIKA_LISTEN")["about"].is_string());

    let nothing = server.get("/console/api/audit/verification").await.json();
    assert_eq!(nothing["state"], "none");
    let started = server.ask(Request::new("POST", "/console/api/audit/verification")).await;
    assert_eq!(started.status, 202, "{started:?}");
    until("the verdict", async || {
        let walk = server.get("/console/api/audit/verification").await.json();
        (walk["state"] == "intact" && walk["who"] == "anonymous").then_some(())
    })
    .await;
    server.stop().await;
}

/// Whoever listens does not hold up the end of the process.
#[tokio::test]
async fn listeners_are_sent_away_at_the_end_sqlite() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let server = Setup::of(&TestDb::sqlite()).set("TASHIKA_SHUTDOWN_SEC", 60).start().await;
    let mut stream = tokio::net::TcpStream::connect(server.address).await.unwrap();
    stream.write_all(&Request::get("/console/api/live").head(server.address)).await.unwrap();
    let mut heard = String::new();
    while !heard.contains("event: hello") {
        let mut part = [0; 1024];
        let count = stream.read(&mut part).await.unwrap();
        assert!(count > 0, "{heard}");
        heard.push_str(&String::from_utf8_lossy(&part[..count]));
    }
    assert!(heard.to_ascii_lowercase().contains("content-type: text/event-stream"), "{heard}");
    let log = server.stop().await;
    let stopped = log.events().into_iter().find(|line| line["message"] == "tashika has stopped");
    assert_eq!(stopped.unwrap()["cut_off"], 0);
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.unwrap();
}

#[tokio::test]
async fn the_console_can_be_switched_off_sqlite() {
    let server = Setup::of(&TestDb::sqlite()).set("CONSOLE_ENABLED", "false").start().await;
    for path in ["/console", "/console/api/session", "/console/api/overview"] {
        server.get(path).await.is_problem(404, "NOT_FOUND");
    }
    server.stop().await;
}

/// A gateway that executes the first payment, does not answer, and says nothing when it is asked.
async fn silent_once() -> Gateway {
    let gateway = Gateway::start().await;
    gateway.world.script(Operation::Confirm, [Fault::ExecuteThenSilence]);
    for operation in [Operation::Retrieve, Operation::List, Operation::Search] {
        gateway.world.usually(operation, Fault::DropBefore);
    }
    gateway
}

fn guarded(db: &TestDb) -> Setup {
    let hash = PasswordHash::make(PASSWORD).unwrap().text();
    Setup::of(db)
        .set("TASHIKA_API_TOKENS", TOKEN)
        .set("CONSOLE_USERS", format!("aiko:operator:{hash},ken:viewer:{hash}"))
}

fn impatient(setup: Setup) -> Setup {
    setup
        .impatient()
        .set("PAYMENT_VERIFY_MAX_ATTEMPTS", 2)
        .set("STRIPE_WEBHOOK_SECRET", WEBHOOK_SECRET)
        .set("AUDIT_SEAL_INTERVAL_SEC", "0.2")
}

/// Runs a story about a server to its end.
async fn tells(server: &Server, db: &TestDb, name: &str) {
    let mut story = story(name, db).await;
    story
        .env("CONSOLE_PASSWORD", PASSWORD)
        .env("STRIPE_WEBHOOK_SECRET", WEBHOOK_SECRET)
        .env("TASHIKA_URL", format!("http://{}", server.address))
        .env("TASHIKA_TOKEN", TOKEN);
    told(story, name, || server.log.text()).await;
}

async fn story(name: &str, db: &TestDb) -> Command {
    let folder = tokio::task::spawn_blocking(packages::console).await.unwrap();
    let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/console").join(name);
    let mut command = Command::new("node");
    command
        .arg(program)
        .env("CONSOLE_PACKAGES", &folder)
        .env("CONSOLE_SCREENSHOTS", screenshots(&folder, db))
        .stdin(Stdio::null())
        .kill_on_drop(true);
    command
}

async fn told(mut story: Command, name: &str, log: impl Fn() -> String) {
    let output = tokio::time::timeout(PATIENCE, story.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{name} took too long\n{}", log()));
    let output = output.unwrap_or_else(|error| panic!("{name}: node: {error}"));
    assert!(
        output.status.success(),
        "{name}\n{}{}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
        log(),
    );
}

/// Beside the packages, one folder per database.
fn screenshots(packages: &Path, db: &TestDb) -> PathBuf {
    let kind = if db.url().starts_with("sqlite") { "sqlite" } else { "postgres" };
    packages.with_file_name("screenshots").join(kind)
}
