//! `tashika demo`: a newcomer sees everything, and nothing is left behind.

use std::path::Path;
use std::process::{Command as Plain, Stdio};
use std::time::Duration;

use serde_json::Value;
use tashika_testkit::gate::until;
use tokio::io::{AsyncBufReadExt as _, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::support::Request;

/// Longer than a demonstration needs to come to rest.
const PATIENCE: Duration = Duration::from_secs(240);

struct Demo {
    child: Child,
    lines: Lines<BufReader<ChildStdout>>,
    said: String,
    address: std::net::SocketAddr,
}

impl Demo {
    /// Starts it with a folder of its own for what is temporary, and nothing from the environment.
    async fn start(folder: &Path, arguments: &[&str]) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_tashika"))
            .arg("demo")
            .args(arguments)
            .env_clear()
            .env("TMPDIR", folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = ([127, 0, 0, 1], 0).into();
        let mut demo = Self { child, lines, said: String::new(), address };
        let line = demo.until_line("The console: http://").await;
        let (_, rest) = line.split_once("http://").unwrap();
        demo.address = rest.split('/').next().unwrap().parse().unwrap();
        demo
    }

    async fn until_line(&mut self, wanted: &str) -> String {
        loop {
            let line = tokio::time::timeout(PATIENCE, self.lines.next_line()).await;
            let line = line.unwrap_or_else(|_| panic!("no {wanted:?} in\n{}", self.said)).unwrap();
            let line = line.unwrap_or_else(|| panic!("it ended without {wanted:?}\n{}", self.said));
            self.said.push_str(&line);
            self.said.push('\n');
            if line.contains(wanted) {
                return line;
            }
        }
    }

    async fn get(&self, path: &str) -> Value {
        let answer = Request::get(path).send(self.address).await.unwrap();
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        answer.json()
    }

    /// Whether a list has an item with this field.
    async fn has(&self, path: &str, field: &str, wanted: &str) -> bool {
        let page = self.get(path).await;
        page["items"].as_array().unwrap().iter().any(|item| item[field] == wanted)
    }

    fn signal(&self, name: &str) {
        let pid = self.child.id().expect("it runs");
        let line = format!("kill -{name} {pid}");
        assert!(Plain::new("sh").args(["-c", &line]).status().unwrap().success());
    }

    /// Reads to the end; returns the exit code and everything that was said.
    async fn ended(mut self) -> (Option<i32>, String) {
        let rest = async {
            while let Some(line) = self.lines.next_line().await.unwrap() {
                self.said.push_str(&line);
                self.said.push('\n');
            }
            self.child.wait().await.unwrap()
        };
        let status = tokio::time::timeout(PATIENCE, rest).await.expect("it ends");
        (status.code(), self.said)
    }
}

fn entries(folder: &Path) -> Vec<std::path::PathBuf> {
    std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}

#[tokio::test]
async fn a_newcomer_sees_everything_and_ctrl_c_leaves_nothing_behind_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(folder.path(), &["--port", "0", "--seed", "5"]).await;
    assert_eq!(entries(folder.path()).len(), 1, "the database is in the temporary folder");
    let page = Request::get("/console").send(demo.address).await.unwrap();
    assert_eq!(page.status, 200);

    for (what, path, field, wanted) in [
        ("a payment that was taken", "/payments?status=CAPTURED", "status", "CAPTURED"),
        ("a refund", "/payments?status=REFUNDED", "status", "REFUNDED"),
        ("a payment that failed", "/payments?status=FAILED", "status", "FAILED"),
        ("a case", "/cases?kind=payment_unknown", "kind", "payment_unknown"),
        ("an alert", "/alerts", "rule", "payment_verification_failed"),
        ("a dead letter", "/console/api/messages?state=failed", "state", "failed"),
        ("a delivery", "/console/api/messages?state=delivered", "state", "delivered"),
        ("a confirmed slot", "/reservations?status=confirmed", "status", "confirmed"),
        ("a hold that ended", "/reservations?status=expired", "status", "expired"),
        ("a race", "/races", "scenario", "EXPIRED_AFTER_PAYMENT"),
        ("a render", "/renders", "provider", "sandbox"),
        ("a webhook", "/webhook-events", "source", "stripe"),
        ("a batch", "/mail/batches", "template", "deadline-alert"),
        (
            "a letter about a refund",
            "/mail/deliveries?limit=500",
            "template",
            "reservation-expired-refunded",
        ),
        ("an order", "/outbox?lane=orders", "status", "succeeded"),
    ] {
        until(what, async || demo.has(path, field, wanted).await.then_some(())).await;
    }
    demo.until_line("payments: ").await;

    let pid = demo.child.id().unwrap();
    let children = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    assert_eq!(children.unwrap_or_default(), "", "it has no child processes");
    demo.signal("INT");
    let address = demo.address;
    let (code, said) = demo.ended().await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("The books are balanced."), "{said}");
    assert!(said.contains("Charged twice: 0."), "{said}");
    assert_eq!(entries(folder.path()), [] as [&Path; 0], "{said}");
    assert!(Request::get("/healthz").send(address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn it_ends_by_itself_on_another_port_and_keeps_what_it_is_told_to_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let taken = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let arguments = ["--port", &port, "--seconds", "2", "--keep", "--open"];
    let demo = Demo::start(folder.path(), &arguments).await;
    assert_ne!(demo.address.port().to_string(), port);
    let (code, said) = demo.ended().await;
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("Port {port} is in use")), "{said}");
    assert!(said.contains("There is no xdg-open here"), "{said}");
    let kept = entries(folder.path());
    assert_eq!(kept.len(), 1, "{said}");
    assert!(said.contains(&kept[0].display().to_string()), "{said}");
    assert!(kept[0].join("tashika.db").is_file());
}

/// Who is in a hurry is told that the books were not closed, and still nothing is left.
#[tokio::test]
async fn a_second_signal_ends_it_at_once_sqlite() {
    let folder = tempfile::tempdir().unwrap();
    let mut demo = Demo::start(folder.path(), &["--port", "0"]).await;
    until("a hold", async || {
        demo.has("/reservations?status=hold", "status", "hold").await.then_some(())
    })
    .await;
    demo.signal("TERM");
    demo.until_line("The customers go home").await;
    demo.signal("TERM");
    let (code, said) = demo.ended().await;
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("the books were not closed"), "{said}");
    assert_eq!(entries(folder.path()), [] as [&Path; 0], "{said}");
}
