//! `tashika dlq`.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use serde_json::{Value, json};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::text;
use crate::support::{Request, Server, Setup};

on_both!(dead_letters_are_sent_again_and_removed, a_bulk_touches_what_fits_and_no_more);

/// Somebody who takes deliveries, once he is well.
#[derive(Clone)]
struct Destination {
    address: String,
    well: Arc<AtomicBool>,
    taken: Arc<AtomicUsize>,
}

impl Destination {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let found = Self { address, well: Arc::default(), taken: Arc::default() };
        let (well, taken) = (Arc::clone(&found.well), Arc::clone(&found.taken));
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let (well, taken) = (Arc::clone(&well), Arc::clone(&taken));
                tokio::spawn(async move {
                    let mut bytes = Vec::new();
                    while !bytes.windows(4).any(|four| four == b"\r\n\r\n") {
                        if stream.read_buf(&mut bytes).await.unwrap_or(0) == 0 {
                            return;
                        }
                    }
                    let answer = if well.load(Ordering::SeqCst) {
                        taken.fetch_add(1, Ordering::SeqCst);
                        "HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n"
                    } else {
                        "HTTP/1.1 500 No\r\ncontent-length: 6\r\nconnection: close\r\n\r\nbroken"
                    };
                    stream.write_all(answer.as_bytes()).await.ok();
                });
            }
        });
        found
    }

    /// Publishes a message that dies at the first failure.
    async fn publish(&self, server: &Server, path: &str, label: &str) {
        let to = format!("/v2/publish/http://{}/{path}", self.address);
        let request =
            Request::new("POST", &to).header("upstash-retries", "0").header("upstash-label", label);
        let answer = server.ask(request).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
}

async fn letters(setup: &Setup, count: usize) -> Vec<Value> {
    until(&format!("{count} dead letters"), async || {
        let page = setup.print_json(&["dlq", "list", "--json"]).await;
        let found = page["messages"].as_array().unwrap().clone();
        (found.len() == count).then_some(found)
    })
    .await
}

async fn dead_letters_are_sent_again_and_removed(db: TestDb) {
    let there = Destination::start().await;
    let setup = Setup::of(&db);
    let server = setup.start().await;
    let none = setup.print(&["dlq", "list"]).await;
    assert!(none.contains("no such dead letters"), "{none}");
    for path in ["a", "b", "c"] {
        there.publish(&server, path, "first").await;
    }
    let found = letters(&setup, 3).await;
    assert_eq!(json!({"messages": found}), server.get("/v2/dlq").await.json());
    let ids: Vec<&str> = found.iter().map(|letter| text(&letter["dlqId"])).collect();
    let table = setup.print(&["dlq", "list"]).await;
    assert!(table.contains(ids[0]) && table.contains("500") && table.contains("broken"), "{table}");
    let one = setup.print_json(&["dlq", "show", ids[0], "--json"]).await;
    assert_eq!(one, found[0]);
    assert!(setup.print(&["dlq", "show", ids[0]]).await.contains("broken"));
    let page = setup.print_json(&["dlq", "list", "--limit", "2", "--json"]).await;
    let rest = ["dlq", "list", "--limit", "2", "--json", "--cursor", text(&page["cursor"])];
    let rest = setup.print_json(&rest).await;
    assert_eq!((&rest["messages"][0], rest.get("cursor")), (&found[2], None));

    // One that is there and one that is not: the first is sent, the other named.
    there.well.store(true, Ordering::SeqCst);
    let output = setup.run(&["dlq", "retry", ids[0], "nothing-0", "--json"]).await;
    assert_eq!(output.status.code(), Some(1));
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(
        (&said["responses"][0]["dlqId"], &said["missing"]),
        (&json!(ids[0]), &json!(["nothing-0"]))
    );
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(complaint.contains("nothing-0: there is no such dead letter"), "{complaint}");
    until("the delivery", async || (there.taken.load(Ordering::SeqCst) == 1).then_some(())).await;
    let again = setup.run(&["dlq", "retry", ids[0]]).await;
    assert_eq!(again.status.code(), Some(1), "it is no dead letter any more");
    letters(&setup, 2).await;

    let asked = setup.refused(&["dlq", "delete", ids[1]]).await;
    assert!(asked.contains("--yes"), "{asked}");
    assert_eq!(setup.print(&["dlq", "delete", ids[1], "--yes"]).await, "removed 1\n");
    assert_eq!(setup.print(&["dlq", "retry", "--all"]).await, "sent 1 again\n");
    assert_eq!(setup.print(&["dlq", "retry", "--all"]).await, "sent 0 again\n");
    until("the delivery", async || (there.taken.load(Ordering::SeqCst) == 2).then_some(())).await;
    letters(&setup, 0).await;
    let gone = setup.refused(&["dlq", "show", ids[1]]).await;
    assert!(gone.contains(ids[1]) && gone.contains("not found"), "{gone}");
    assert_eq!(there.taken.load(Ordering::SeqCst), 2, "what was removed is not delivered");
    server.stop().await;
}

async fn a_bulk_touches_what_fits_and_no_more(db: TestDb) {
    let there = Destination::start().await;
    let setup = Setup::of(&db);
    let server = setup.start().await;
    for number in 0..3 {
        there.publish(&server, "blue", &format!("n{number}")).await;
        there.publish(&server, "red", &format!("n{number}")).await;
    }
    letters(&setup, 6).await;
    // Nobody works: what is sent again waits, and does not die again meanwhile.
    server.stop().await;
    let count = async |filter: &[&str]| {
        let page = setup.print_json(&[&["dlq", "list", "--json"], filter].concat()).await;
        page["messages"].as_array().unwrap().len()
    };
    assert_eq!(count(&["--path", "/red"]).await, 3);
    assert_eq!(count(&["--label", "n1", "--label", "n2"]).await, 4);
    assert_eq!(count(&["--response-status", "500"]).await, 6);
    assert_eq!(count(&["--response-status", "404"]).await, 0);
    assert_eq!(count(&["--to", "2001-01-01T00:00:00Z"]).await, 0);
    let sent = setup.print_json(&["dlq", "retry", "--all", "--path", "/red", "--json"]).await;
    assert_eq!(sent["responses"].as_array().unwrap().len(), 3, "{sent}");
    assert_eq!(count(&[]).await, 3);
    assert_eq!(count(&["--path", "/blue"]).await, 3);
    let removed = ["dlq", "delete", "--all", "--label", "n0", "--yes", "--json"];
    assert_eq!(setup.print_json(&removed).await, json!({"deleted": 1}));
    assert_eq!(count(&[]).await, 2);
}
