//! `tashika doctor`: every finding appears where it should.

use serde_json::{Value, json};
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use super::text;
use crate::support::mail::Post;
use crate::support::payments::{Gateway, STRIPE_KEY};
use crate::support::{Broker, KEY, Setup, order};

on_both!(
    everybody_we_speak_to_is_asked,
    what_the_dead_hold_is_named,
    settings_that_do_not_fit_are_found,
    what_waits_for_people_is_found,
);

async fn report(setup: &Setup) -> (bool, Vec<Value>) {
    let output = setup.run(&["doctor", "--json"]).await;
    let found: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|error| panic!("{error}: {output:?}"));
    let healthy = found["ok"].as_bool().unwrap();
    assert_eq!(output.status.code(), Some(i32::from(!healthy)), "{found}");
    (healthy, found["items"].as_array().unwrap().clone())
}

/// What a check found; every alert says what to do.
#[track_caller]
fn level<'a>(items: &'a [Value], check: &str) -> (&'a str, &'a str) {
    let of_check = items.iter().filter(|item| item["check"] == check);
    let worst = of_check.max_by_key(|item| match text(&item["level"]) {
        "alert" => 2,
        "note" => 1,
        _ => 0,
    });
    let found = worst.unwrap_or_else(|| panic!("{check}: {items:?}"));
    assert!(found["level"] == "ok" || found["advice"].is_string(), "{found}");
    (text(&found["level"]), text(&found["text"]))
}

fn nobody() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    free.local_addr().unwrap().to_string()
}

async fn everybody_we_speak_to_is_asked(db: TestDb) {
    let (gateway, office) = (Gateway::start().await, Post::start(json!({})).await);
    let broker = Broker::with_keys().await;
    let setup = office.setup(Setup::of(&db).stripe(&gateway).broker(&broker));
    let server = setup.start().await;
    let (healthy, items) = report(&setup).await;
    assert!(healthy, "{items:?}");
    for check in
        ["database", "commit", "clock", "workers", "leases", "broker", "gateway", "renders", "mail"]
    {
        assert_eq!(level(&items, check).0, "ok", "{check}: {items:?}");
    }
    let clock = level(&items, "clock").1;
    let here = db.url().starts_with("sqlite:");
    assert_eq!(clock.contains("this machine's"), here, "{clock}");
    assert_eq!(office.copies().await.len(), 0, "nothing was sent");

    let away = nobody();
    for (setup, check) in [
        (setup.clone().set("STRIPE_API_BASE", format!("http://{away}")), "gateway"),
        (setup.clone().set("SMTP_URL", format!("smtp://{away}")), "mail"),
        (
            setup
                .clone()
                .set("RENDER_PROVIDER", "http")
                .set("RENDER_URL", format!("http://{away}")),
            "renders",
        ),
        (setup.clone().set("BROKER_URL", format!("http://{away}")), "broker"),
    ] {
        let (healthy, items) = report(&setup).await;
        assert_eq!((healthy, level(&items, check).0), (false, "alert"), "{check}: {items:?}");
        let all = format!("{items:?}");
        assert!(!all.contains(STRIPE_KEY) && !all.contains(&Broker::secret()), "{all}");
    }
    gateway.world.usually(Operation::List, Fault::DropBefore);
    let (_, items) = report(&setup).await;
    assert_eq!(level(&items, "gateway").0, "alert", "{items:?}");
    server.stop().await;
}

async fn what_the_dead_hold_is_named(db: TestDb) {
    let (broker, gate) = (Broker::with_keys().await, Gate::closed());
    broker.scripted.script([Act::Execute.behind(&gate)]);
    let setup = Setup::of(&db)
        .broker(&broker)
        .set("OUTBOX_LOCK_LEASE_SEC", 1)
        .set("BROKER_TIMEOUT_MS", 900);
    let server = setup.start().await;
    server.accepted(&order(KEY)).await;
    broker.scripted.until_sends(1).await;
    let worker = server.pid();
    server.kill().await;
    let items = until("the lease to run out", async || {
        let (_, items) = report(&setup).await;
        (level(&items, "leases").0 == "alert").then_some(items)
    })
    .await;
    let held = level(&items, "leases").1;
    assert!(held.contains(&format!(":{worker}:")) && held.contains("holds 1"), "{held}");
    let silent = level(&items, "workers").1;
    assert!(silent.contains("no sign of life") || silent.contains("0 alive"), "{silent}");
    gate.open();
    setup.print(&["outbox", "release"]).await;
    let (_, items) = report(&setup).await;
    assert_eq!(level(&items, "leases").0, "ok", "{items:?}");
    // It is due again, and nobody is there to do it.
    let due = until("it to be due", async || {
        let (_, items) = report(&setup).await;
        Some(level(&items, "workers").1.to_owned()).filter(|said| said.contains("nobody works"))
    })
    .await;
    assert!(due.contains('1'), "{due}");
}

async fn settings_that_do_not_fit_are_found(db: TestDb) {
    let setup = Setup::of(&db);
    setup.print(&["migrate"]).await;
    let open = setup
        .clone()
        .set("TASHIKA_LISTEN", "0.0.0.0:0")
        .set("TASHIKA_API_TOKENS", "planted-token-of-many-letters")
        .set("TASHIKA_SSRF_GUARD", "off")
        .set("ALERT_MAIL_TO", "ops@example.com")
        .set("OUTBOX_MAIL_ENABLED", false);
    let (healthy, items) = report(&open).await;
    assert!(healthy, "allowed, and said: {items:?}");
    let all = format!("{items:?}");
    for part in ["TASHIKA_SSRF_GUARD is off", "MAIL_PROVIDER is sandbox", "CONSOLE_USERS is empty"]
    {
        assert!(all.contains(part), "{part}: {all}");
    }
    assert_eq!(level(&items, "configuration").0, "note");
    assert_eq!(level(&items, "lanes").0, "note");
    assert!(!all.contains("planted-token"), "{all}");
    let (_, items) = report(&setup).await;
    assert_eq!(level(&items, "alerts").0, "note", "nobody is told: {items:?}");

    // With what cannot work at all nothing starts, and the doctor says why all the same.
    let refused = setup
        .clone()
        .set("MAIL_PROVIDER", "smtp")
        .set("BROKER_TIMEOUT_MS", 200_000)
        .set("TASHIKA_LISTEN", "0.0.0.0:0");
    let (healthy, items) = report(&refused).await;
    assert!(!healthy);
    let all = format!("{items:?}");
    for name in ["SMTP_URL", "OUTBOX_LOCK_LEASE_SEC", "TASHIKA_API_TOKENS"] {
        assert!(all.contains(name), "{name}: {all}");
    }
    assert_eq!(level(&items, "configuration").0, "alert");
    let (code, said) = refused.fail(&["doctor"]).await;
    assert_eq!((code, said.as_str()), (1, ""), "what it found is on standard output");
}

async fn what_waits_for_people_is_found(db: TestDb) {
    let gateway = Gateway::start().await;
    let setup = crate::watch::setup(&db, &gateway);
    let server = setup.start().await;
    crate::watch::stuck(&server, &gateway, "cli-4001").await;
    let letter =
        crate::support::Request::new("POST", &format!("/v2/publish/http://{}/x", nobody()))
            .header("upstash-retries", "0");
    assert_eq!(server.ask(letter).await.status, 200);
    let items = until("the dead letter", async || {
        let (_, items) = report(&setup).await;
        items.iter().any(|item| item["check"] == "messages").then_some(items)
    })
    .await;
    assert_eq!(level(&items, "messages"), ("alert", "1 dead letters"));
    assert_eq!(level(&items, "cases").0, "alert", "{items:?}");
    let said = setup.run(&["doctor"]).await;
    let said = String::from_utf8_lossy(&said.stdout).into_owned();
    assert!(said.contains("tashika cases list") && said.contains("tashika dlq list"), "{said}");
    server.stop().await;
}
