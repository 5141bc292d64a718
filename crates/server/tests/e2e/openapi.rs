//! The API against its description: schemathesis asks everything that `/openapi.json` allows and much
//! that it does not, of the whole server with all its parts, and judges every answer.
//!
//! The same questions each time: what it generates follows from the description alone.

use std::path::Path;
use std::process::Stdio;

use tashika_testkit::database::TestDb;
use tashika_testkit::{on_both, packages};
use tokio::process::Command;

use crate::support::{Request, Server, Setup};

const TOKEN: &str = "the-token-of-this-test";

on_both!(every_answer_is_as_described);

async fn every_answer_is_as_described(db: TestDb) {
    let server = everything(&db).start().await;
    // The description does not depend on the database; a smaller number of questions finds what does.
    let examples = if db.url().starts_with("sqlite") { "10" } else { "4" };
    ask(&server, examples).await;
    let events = server.log.events();
    let undocumented: Vec<_> = events
        .iter()
        .filter(|event| event["message"].to_string().contains("description"))
        .collect();
    assert!(undocumented.is_empty(), "{undocumented:?}");
    server.stop().await;
}

/// Every part of the server is there, and nothing leaves the machine.
fn everything(db: &TestDb) -> Setup {
    Setup::of(db)
        .set("TASHIKA_API_TOKENS", TOKEN)
        .set("PAYMENT_GATEWAY_TIMEOUT_MS", 200)
        // Multiples of it are exact, however large.
        .set("ORDER_LOT_STEP", 1)
        .set("ORDER_MIN_LOT", 1)
        .set("STRIPE_WEBHOOK_SECRET", "whsec_dGVzdHRlc3R0ZXN0dGVzdA==")
        .set("WEBHOOK_SOURCES", "github,shotstack")
        .set("WEBHOOK_SECRETS", "github=a-secret-of-this-test")
        .set("SHOTSTACK_API_KEY", "a-key-of-this-test")
        .set("SHOTSTACK_API_BASE", "http://127.0.0.1:9")
        .set("OUTBOX_DELIVERIES_ENABLED", false)
}

async fn ask(server: &Server, examples: &str) {
    let described = server.get("/openapi.json").await;
    assert_eq!(described.status, 200);
    // The token is proven before wrong ones come.
    assert_eq!(server.ask(Request::get("/payments").token(TOKEN)).await.status, 200);
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/e2e/openapi");
    let packages = packages::schemathesis();
    let output = Command::new(packages.join("venv/bin/schemathesis"))
        .arg("--config-file")
        .arg(here.join("schemathesis.toml"))
        .args(["run", "--checks", "all", "--phases", "examples,coverage,fuzzing"])
        .args(["--max-examples", examples, "--no-color"])
        .args(["--header", &format!("Authorization: Bearer {TOKEN}")])
        .arg(format!("http://{}/openapi.json", server.address))
        // It leaves a cache where it runs.
        .current_dir(&packages)
        .env("PYTHONPATH", &here)
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("SCHEMATHESIS_HOOKS", "hooks")
        .stdin(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await
        .expect("schemathesis runs");
    let said = String::from_utf8_lossy(&output.stdout);
    let complained = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}\n{complained}");
}
