//! The queue as its users meet it: through the clients that are published for QStash, `@upstash/qstash`
//! for Node and `qstash` for Python, with only the address changed.
//!
//! The stories are programs, in `qstash/`, in the language of the client. Each has destinations of its
//! own, which check every delivery with the client's own receiver, and says which of its cases failed.
//! Here they get a server, on either database. The packages come through `scripts/qstash-packages`.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tashika_testkit::database::TestDb;
use tashika_testkit::{on_both, packages};
use tokio::process::Command;

use crate::support::{Request, Server, Setup};

on_both!(
    js_publish,
    js_oddities,
    js_refusals,
    js_groups,
    js_queues,
    js_retries,
    js_dead_letters,
    js_schedules,
    js_flow_control,
    js_keys,
    python_publish,
    python_failures,
    python_control,
    python_alone,
    schedules_fire_with_the_minute,
);

const TOKEN: &str = "the-token-of-these-programs";
/// Far longer than any program takes; one waits for a minute to begin.
const PATIENCE: Duration = Duration::from_secs(300);

async fn js_publish(db: TestDb) {
    tells(&db, "publish.mjs").await;
}

async fn js_oddities(db: TestDb) {
    tells(&db, "oddities.mjs").await;
}

async fn js_refusals(db: TestDb) {
    tells(&db, "refusals.mjs").await;
}

async fn js_groups(db: TestDb) {
    tells(&db, "groups.mjs").await;
}

async fn js_queues(db: TestDb) {
    tells(&db, "queues.mjs").await;
}

async fn js_retries(db: TestDb) {
    tells(&db, "retries.mjs").await;
}

async fn js_dead_letters(db: TestDb) {
    tells(&db, "dead_letters.mjs").await;
}

async fn js_schedules(db: TestDb) {
    tells(&db, "schedules.mjs").await;
}

async fn js_flow_control(db: TestDb) {
    tells(&db, "flow_control.mjs").await;
}

async fn js_keys(db: TestDb) {
    tells(&db, "keys.mjs").await;
}

async fn python_publish(db: TestDb) {
    tells(&db, "publish.py").await;
}

async fn python_failures(db: TestDb) {
    tells(&db, "failures.py").await;
}

async fn python_control(db: TestDb) {
    tells(&db, "control.py").await;
}

async fn python_alone(db: TestDb) {
    tells(&db, "alone.py").await;
}

/// Both wait for the next minute, so they do it together.
async fn schedules_fire_with_the_minute(db: TestDb) {
    let folder = installed().await;
    let server = guarded_by_a_token(&db).start().await;
    tokio::join!(
        succeeds(driving(&server, &folder, "minutes.mjs"), "minutes.mjs", &server),
        succeeds(driving(&server, &folder, "minutes.py"), "minutes.py", &server),
    );
    server.stop().await;
}

/// Two processes share the work: a queue has one order and a key one limit all the same, and a
/// schedule fires once.
#[tokio::test]
async fn two_processes_are_one_queue_postgres() {
    let db = TestDb::postgres();
    let folder = installed().await;
    let setup = guarded_by_a_token(&db);
    let (server, other) = (setup.start().await, setup.start().await);
    let tells = async |name| succeeds(driving(&server, &folder, name), name, &server).await;
    tokio::join!(
        tells("queues.mjs"),
        tells("flow_control.mjs"),
        tells("dead_letters.mjs"),
        tells("minutes.mjs"),
    );
    server.stop().await;
    other.stop().await;
}

/// Without a token or a key of ours: `QSTASH_DEV=true` is all that the SDK is told.
#[tokio::test]
async fn development_mode_finds_the_server_sqlite() {
    let db = TestDb::sqlite();
    let folder = installed().await;
    let server = Setup::of(&db).dev().start().await;
    let home = tempfile::tempdir().unwrap();
    let mut command = program(&folder, "dev.mjs");
    command
        .env_clear()
        .env("PATH", std::env::var_os("PATH").unwrap())
        // The SDK looks there for a server that was downloaded before.
        .env("HOME", home.path())
        .env("QSTASH_PACKAGES", &folder)
        .env("QSTASH_DEV", "true")
        .env("QSTASH_DEV_PORT", server.address.port().to_string());
    succeeds(command, "dev.mjs", &server).await;
    server.stop().await;
}

/// As the hosted service does, unless the server is told otherwise or listens on loopback itself.
#[tokio::test]
async fn guarded_destinations_are_refused_at_once_sqlite() {
    let db = TestDb::sqlite();
    let setup = Setup::of(&db).set("TASHIKA_SSRF_GUARD", "on");
    let server = setup.clone().start().await;
    for refused in [
        "http://127.0.0.1:9/x",
        "http://[::1]/",
        "http://10.1.2.3/",
        "http://169.254.169.254/latest",
    ] {
        let answer = server.ask(Request::new("POST", &format!("/v2/publish/{refused}"))).await;
        assert_eq!(answer.status, 400, "{refused}: {answer:?}");
        let error = answer.json()["error"].as_str().unwrap().to_owned();
        assert!(error.starts_with("invalid destination url: "), "{refused}: {error}");
    }
    server.stop().await;

    let server = setup.set("TASHIKA_ALLOW_LOOPBACK_DESTINATIONS", "true").start().await;
    let answer = server.ask(Request::new("POST", "/v2/publish/http://127.0.0.1:9/x")).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    server.stop().await;
}

/// Runs one program against a server of its own; every case of it must pass.
async fn tells(db: &TestDb, name: &str) {
    let folder = installed().await;
    let server = guarded_by_a_token(db).start().await;
    succeeds(driving(&server, &folder, name), name, &server).await;
    server.stop().await;
}

fn guarded_by_a_token(db: &TestDb) -> Setup {
    let log = "warn,tashika_server=info";
    Setup::of(db).set("TASHIKA_API_TOKENS", TOKEN).set("TASHIKA_LOG", log)
}

/// A program that drives this server.
fn driving(server: &Server, folder: &Path, name: &str) -> Command {
    let mut command = program(folder, name);
    command
        .env("QSTASH_URL", format!("http://{}", server.address))
        .env("QSTASH_TOKEN", TOKEN)
        .env("QSTASH_PACKAGES", folder)
        .env_remove("QSTASH_DEV");
    command
}

async fn installed() -> PathBuf {
    tokio::task::spawn_blocking(packages::qstash).await.expect("the packages")
}

fn program(folder: &Path, name: &str) -> Command {
    let interpreter = match Path::new(name).extension().and_then(|extension| extension.to_str()) {
        Some("py") => folder.join("venv/bin/python"),
        _ => PathBuf::from("node"),
    };
    let mut command = Command::new(interpreter);
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/qstash").join(name));
    // Its cache would lie in the repository.
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    command.stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a program to its end, and shows what it said.
async fn succeeds(mut command: Command, name: &str, server: &Server) {
    let output = tokio::time::timeout(PATIENCE, command.output()).await;
    let output = output.unwrap_or_else(|_| panic!("{name} does not end\n{}", server.log.text()));
    let output = output.expect("it starts");
    let said = String::from_utf8_lossy(&output.stdout);
    let complaints = String::from_utf8_lossy(&output.stderr);
    let log = || server.log.text();
    assert!(output.status.success(), "{name} failed\n{said}\n{complaints}\nThe server:\n{}", log());
    println!("{said}");
}
