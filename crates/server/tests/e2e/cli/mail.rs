//! `tashika mail`.

use serde_json::json;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::until;
use tashika_testkit::on_both;

use super::{NOBODY, text};
use crate::support::Setup;
use crate::support::mail::{Post, batch, letter};

on_both!(mails_and_batches_are_looked_at, a_batch_is_cancelled_and_the_lane_opened);

async fn mails_and_batches_are_looked_at(db: TestDb) {
    let setup = Setup::of(&db).set("MAIL_BACKOFF_SEC", "0.01").set("MAIL_RATE_PER_SEC", 1000);
    let server = setup.start().await;
    for (arguments, said) in [
        (&["mail", "list"][..], "there are no such mails\n"),
        (&["mail", "inbox"], "the inbox is empty: nothing was sent yet\n"),
        (&["mail", "batches", "list"], "no batch was ever sent\n"),
    ] {
        assert_eq!(setup.print(arguments).await, said);
    }
    let fine = server.send_mail(&letter("hanako@example.com")).await;
    server.mail_ended(&fine["id"]).await;
    let found = setup.print_json(&["mail", "list", "--to", "Hanako@example.com", "--json"]).await;
    assert_eq!(found, server.get("/mail/deliveries?to=hanako@example.com").await.json());
    let shown = setup.print(&["mail", "show", text(&fine["id"])]).await;
    assert!(shown.contains("hanako@example.com") && shown.contains("OUTCOME"), "{shown}");
    let inbox = setup.print_json(&["mail", "inbox", "--json"]).await;
    assert_eq!(inbox, server.get("/mail/inbox").await.json());
    let lane = setup.print_json(&["mail", "lane", "--json"]).await;
    assert_eq!((&lane["state"], &lane["sentOrCounted24h"]), (&json!("open"), &json!(1)));

    let to = ["a@example.com", "refused@example.com"].map(str::to_owned);
    let id = server.send_batch(&batch(&to)).await;
    server.until_batch(&id, "the end", |batch| batch["status"] == "finished").await;
    let shown = setup.print_json(&["mail", "batches", "show", &id, "--json"]).await;
    assert_eq!(shown, server.get(&format!("/mail/batches/{id}")).await.json());
    let table = setup.print(&["mail", "batches", "list"]).await;
    assert!(table.contains(&id) && table.contains("finished"), "{table}");
    let failed = setup.print(&["mail", "batches", "failures", &id]).await;
    assert!(failed.contains("refused@example.com") && failed.contains("recipient"), "{failed}");
    let doubt = ["mail", "batches", "failures", &id, "--status", "possiblySent"];
    assert_eq!(setup.print(&doubt).await, "nothing of it ended this way\n");
    let queued = setup.print(&["mail", "batches", "retry", &id, "--by", "aiko"]).await;
    assert_eq!(queued, "it is being queued again\n");
    let audited = setup.print_json(&["audit", "list", "--target-id", &id, "--json"]).await;
    let lines = audited["items"].as_array().unwrap();
    assert!(lines.iter().any(|line| line["actorId"] == "aiko"), "{audited}");
    let missing = setup.refused(&["mail", "batches", "show", NOBODY]).await;
    assert!(missing.contains(NOBODY) && missing.contains("MAIL_NOT_FOUND"), "{missing}");
    assert!(setup.refused(&["mail", "show", NOBODY]).await.contains("MAIL_NOT_FOUND"));
    assert_eq!(setup.print(&["mail", "resume"]).await, "the lane was open\n");
    server.stop().await;
}

async fn a_batch_is_cancelled_and_the_lane_opened(db: TestDb) {
    // A password that is not the server's stops the lane.
    let office = Post::start(json!({"login": "bad"})).await;
    let setup = office.setup(Setup::of(&db)).set("MAIL_PROBE_SEC", 3600);
    let server = setup.start().await;
    let id = server.send_batch(&batch(&["a@example.com".into(), "b@example.com".into()])).await;
    until("a closed lane", async || {
        let lane = setup.print_json(&["mail", "lane", "--json"]).await;
        (lane["state"] == "stopped").then_some(())
    })
    .await;
    server.stop().await;
    let asked = setup.refused(&["mail", "batches", "cancel", &id]).await;
    assert!(asked.contains("--yes"), "{asked}");
    let cancel = ["mail", "batches", "cancel", &id, "--yes", "--by", "aiko", "--json"];
    assert_eq!(setup.print_json(&cancel).await["id"], json!(id));
    let again = setup.refused(&cancel).await;
    assert!(again.contains("MAIL_BATCH_STATE"), "{again}");
    assert_eq!(setup.print(&["mail", "resume", "--by", "aiko"]).await, "the lane is open again\n");
    let inbox = setup.refused(&["mail", "inbox"]).await;
    assert!(inbox.contains("MAIL_NO_INBOX"), "{inbox}");
    let audited = setup.print_json(&["audit", "list", "--json"]).await;
    let by_aiko = audited["items"].as_array().unwrap().iter().filter(|l| l["actorId"] == "aiko");
    assert_eq!(by_aiko.count(), 2, "{audited}");
    assert_eq!(office.copies().await.len(), 0);
}
