//! What an operator does at the command line, while the server runs or after it has died.

use serde_json::{Value, json};
use tashika_domain::order::broker_code;
use tashika_testkit::broker::{Account, Act};
use tashika_testkit::database::TestDb;
use tashika_testkit::gate::{Gate, until};
use tashika_testkit::on_both;

use crate::support::{Broker, KEY, Request, Setup, order, rows};

on_both!(
    effects_are_counted_listed_and_shown,
    aborted_effects_are_requeued,
    effects_are_found_and_requeued_over_http,
    lapsed_leases_are_released,
    cases_are_decided,
    the_doctor_says_what_is_wrong,
);

/// The effect of an order, as `outbox list` has it.
async fn effect(setup: &Setup, key: &str) -> Value {
    let list = setup.print_json(&["outbox", "list", "--json"]).await;
    let mut items = list["items"].as_array().unwrap().iter();
    items.find(|item| item["idempotencyKey"] == key).unwrap_or_else(|| panic!("{list}")).clone()
}

fn id(effect: &Value) -> &str {
    effect["id"].as_str().unwrap()
}

async fn effects_are_counted_listed_and_shown(db: TestDb) {
    let broker = Broker::with_keys().await;
    broker.scripted.script_for("refused-01", [Act::refuse(broker_code::BAD_REQUEST)]);
    broker.scripted.script_for("retried-01", [Act::Fail { executed: true }]);
    let setup = Setup::of(&db).broker(&broker);
    setup.print(&["migrate"]).await;
    let empty = setup.print(&["outbox", "stats"]).await;
    assert!(empty.contains("empty"), "{empty}");
    let server = setup.start().await;
    for key in ["refused-01", "retried-01", "executed-1"] {
        server.accepted(&order(key)).await;
        server.settled(key).await;
    }

    let stats = setup.print_json(&["outbox", "stats", "--json"]).await;
    for (status, count) in [("succeeded", 2), ("aborted", 1)] {
        let line = json!({"lane": "orders", "status": status, "count": count});
        assert!(stats["items"].as_array().unwrap().contains(&line), "{stats}");
    }
    let text = setup.print(&["outbox", "stats"]).await;
    assert!(text.contains("LANE") && text.contains("orders  aborted    1"), "{text}");

    let page = setup.print_json(&["outbox", "list", "--json", "--limit", "2"]).await;
    assert_eq!(page["items"].as_array().unwrap().len(), 2);
    let cursor = page["nextCursor"].as_str().unwrap();
    let rest =
        setup.print_json(&["outbox", "list", "--json", "--limit", "2", "--cursor", cursor]).await;
    assert_eq!(rest["items"][0]["idempotencyKey"], "refused-01", "newest first");
    assert!(rest.get("nextCursor").is_none(), "{rest}");
    let aborted = setup.print(&["outbox", "list", "--status", "aborted", "--lane", "orders"]).await;
    assert!(aborted.contains("BROKER_BAD_REQUEST") && !aborted.contains("executed-1"), "{aborted}");

    let retried = effect(&setup, "retried-01").await;
    let shown = setup.print_json(&["outbox", "show", id(&retried), "--json"]).await;
    assert_eq!((&shown["status"], &shown["attempts"]), (&json!("succeeded"), &json!(1)));
    let attempts = shown["attemptLog"].as_array().unwrap();
    let outcomes: Vec<&Value> = attempts.iter().map(|attempt| &attempt["outcome"]).collect();
    assert_eq!(outcomes, ["lost", "done"]);
    assert_eq!(attempts[0]["code"], "BROKER_5XX");
    let text = setup.print(&["outbox", "show", id(&retried)]).await;
    assert!(text.contains("POST /orders") && text.contains("BROKER_5XX"), "{text}");
    let (code, message) =
        setup.fail(&["outbox", "show", "0198a1b2-0000-7000-8000-000000000001"]).await;
    assert!(code == 1 && message.contains("no effect"), "{message}");
    server.stop().await;
}

/// The same questions and acts, asked by programs and by the console.
async fn effects_are_found_and_requeued_over_http(db: TestDb) {
    let broker = Broker::with_keys().await;
    for key in ["refused-01", "refused-02"] {
        broker.scripted.script_for(key, [Act::refuse(broker_code::BAD_REQUEST), Act::Execute]);
    }
    let server = Setup::of(&db).broker(&broker).start().await;
    for key in ["executed-1", "refused-01", "refused-02"] {
        server.accepted(&order(key)).await;
        server.settled(key).await;
    }
    let list = async |query: &str| -> Vec<Value> {
        let answer = server.get(&format!("/outbox{query}")).await;
        assert_eq!(answer.status, 200, "{query}: {answer:?}");
        answer.json()["items"].as_array().unwrap().clone()
    };
    let keys = |items: &[Value]| -> Vec<String> {
        items.iter().map(|item| item["idempotencyKey"].as_str().unwrap().to_owned()).collect()
    };
    let aborted = list("?status=aborted").await;
    assert_eq!(keys(&aborted), ["refused-02", "refused-01"], "newest first");
    assert_eq!(keys(&list("?status=succeeded&lane=orders").await), ["executed-1"]);
    assert_eq!(keys(&list("?errorCode=BROKER_BAD_REQUEST&limit=1").await), ["refused-02"]);
    assert_eq!(list("?lane=payments").await, [] as [Value; 0]);
    assert_eq!(keys(&list("?key=refused-01").await), ["refused-01"]);
    assert_eq!(list("?key=nobody-has-it").await, [] as [Value; 0]);
    let page = server.get("/outbox?limit=2").await.json();
    let rest = list(&format!("?limit=2&cursor={}", page["nextCursor"].as_str().unwrap())).await;
    assert_eq!(keys(&rest), ["executed-1"]);
    server.get("/outbox?status=lost").await.is_problem(400, "BAD_REQUEST");
    server.get("/outbox?colour=red").await.is_problem(400, "BAD_REQUEST");

    let one = server.get(&format!("/outbox/{}", id(&aborted[1]))).await.json();
    assert_eq!(one["attemptLog"][0]["outcome"], "refused", "{one}");
    assert_eq!(one["payload"]["instrument"], "USDJPY", "{one}");
    server.get("/outbox/nothing").await.is_problem(404, "EFFECT_NOT_FOUND");
    let nobody = "/outbox/0198a1b2-0000-7000-8000-000000000001";
    server.get(nobody).await.is_problem(404, "EFFECT_NOT_FOUND");
    server
        .ask(Request::new("POST", &format!("{nobody}/requeue")))
        .await
        .is_problem(404, "EFFECT_NOT_FOUND");

    // One by itself; again it is not given up any more, and nothing happens.
    let again = Request::new("POST", &format!("/outbox/{}/requeue", id(&aborted[1])));
    assert_eq!(server.ask(again.clone()).await.status, 200);
    until("its second life", async || {
        let found = list("?key=refused-01").await;
        (found[0]["status"] == "succeeded").then_some(())
    })
    .await;
    server.ask(again).await.is_problem(409, "EFFECT_NOT_ABORTED");
    // Several by name: those that can be.
    let ids: Vec<&str> = aborted.iter().map(id).collect();
    let many = Request::json("/outbox/requeue", &json!({ "ids": ids }));
    let answer = server.ask(many).await;
    assert_eq!((answer.status, answer.json()), (200, json!({"requeued": 1})), "{answer:?}");
    for bad in
        [json!({}), json!({"ids": []}), json!({"ids": ["x"]}), json!({"ids": ids, "all": true})]
    {
        let answer = server.ask(Request::json("/outbox/requeue", &bad)).await;
        answer.is_problem(400, "BAD_REQUEST");
    }
    let released = server.ask(Request::new("POST", "/outbox/release?lane=orders")).await;
    assert_eq!((released.status, released.json()), (200, json!({"released": 0})));
    let who = server.get("/audit-logs?action=outbox.requeued").await.json();
    assert_eq!(who["items"].as_array().unwrap().len(), 2, "{who}");
    assert_eq!(who["items"][0]["actorId"], "anonymous", "{who}");
    server.stop().await;
}

/// W-104, from the outside.
async fn aborted_effects_are_requeued(db: TestDb) {
    let broker = Broker::with_keys().await;
    broker.scripted.usually(Act::busy());
    let setup = Setup::of(&db).broker(&broker).set("OUTBOX_MAX_ATTEMPTS", 2);
    let server = setup.start().await;
    let keys = ["busy-00001", "busy-00002", "busy-00003"];
    for key in keys {
        server.accepted(&order(key)).await;
        assert_eq!(server.settled(key).await["reason_code"], "BROKER_DOWN");
    }
    broker.scripted.usually(Act::Execute);
    let first = effect(&setup, keys[0]).await;
    let said = setup.print_json(&["outbox", "requeue", id(&first), "--json"]).await;
    assert_eq!(said, json!({"requeued": 1}));
    server.executed(keys[0]).await;
    let (_, message) = setup.fail(&["outbox", "requeue", id(&first)]).await;
    assert!(message.contains(id(&first)), "what is not aborted is refused by name: {message}");

    let nothing = setup.print(&["outbox", "requeue", "--all", "--error-code", "BROKER_5XX"]).await;
    assert_eq!(nothing.trim(), "requeued 0");
    let all = setup
        .print(&[
            "outbox",
            "requeue",
            "--all",
            "--lane",
            "orders",
            "--error-code",
            "BROKER_RATE_LIMITED",
        ])
        .await;
    assert_eq!(all.trim(), "requeued 2");
    for key in keys {
        server.executed(key).await;
        assert_eq!(broker.scripted.executed(key), 1, "{key}");
        let replay = server.place(&order(key)).await;
        assert_eq!((replay.status, replay.replayed()), (200, true), "{replay:?}");
    }
    server.stop().await;
}

async fn lapsed_leases_are_released(db: TestDb) {
    let (broker, gate) = (Broker::with_keys().await, Gate::closed());
    broker.scripted.script([Act::Execute.behind(&gate)]);
    let setup = Setup::of(&db)
        .broker(&broker)
        .set("OUTBOX_LOCK_LEASE_SEC", 1)
        .set("BROKER_TIMEOUT_MS", 900);
    let server = setup.start().await;
    server.accepted(&order(KEY)).await;
    broker.scripted.until_sends(1).await;
    server.kill().await;
    assert_eq!(effect(&setup, KEY).await["status"], "sending");
    let not_this_lane = setup.print(&["outbox", "release", "--lane", "mail"]).await;
    assert_eq!(not_this_lane.trim(), "released 0");
    until("the lease to run out", async || {
        let said = setup.print_json(&["outbox", "release", "--json"]).await;
        (said == json!({"released": 1})).then_some(())
    })
    .await;
    let released = effect(&setup, KEY).await;
    assert_ne!(released["status"], "sending", "{released}");
    assert_eq!((&released["lockedBy"], &released["inDoubt"]), (&Value::Null, &json!(true)));
    let server = setup.start().await;
    server.executed(KEY).await;
    gate.open();
    broker.scripted.until("the end of the first send", |seen| seen.in_flight == 0).await;
    assert_eq!(broker.scripted.executed(KEY), 1);
    server.stop().await;
}

/// Nobody can say what became of these orders, and each is decided in another way.
async fn cases_are_decided(db: TestDb) {
    let broker = Broker::without_keys().await;
    broker.scripted.usual_account(Account::Lose);
    let (executed, not_executed, resend) = ("executed-1", "notexecut1", "resend-001");
    broker.scripted.script_for(executed, [Act::ExecuteThenLose]);
    broker.scripted.script_for(not_executed, [Act::LoseBefore]);
    broker.scripted.script_for(resend, [Act::LoseBefore]);
    let setup = Setup::of(&db).broker(&broker).set("OUTBOX_MAX_ATTEMPTS", 2);
    let server = setup.start().await;
    for key in [executed, not_executed, resend] {
        server.accepted(&order(key)).await;
        let found = until("the case", async || {
            Some(server.find(key).await).filter(|found| found["case"].is_object())
        })
        .await;
        assert_eq!(found["status"], "accepted", "without keys the ledger does not guess");
        assert_eq!(found["case"]["actions"], json!(["executed", "not_executed", "resend"]));
        let replay = server.place(&order(key)).await;
        assert_eq!((replay.status, replay.replayed()), (200, true));
    }
    let effect = effect(&setup, executed).await;
    let shown = setup.print(&["outbox", "show", id(&effect)]).await;
    assert!(shown.contains("case (open)") && shown.contains("outbox resolve"), "{shown}");

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("execution.json");
    let execution = json!({"order_ref": "desk-7", "cost": 0, "warnings": [],
        "fills": [{"px": 150.25, "qty": 1000, "ts": "2026-11-15T09:30:00Z"}]});
    std::fs::write(&path, execution.to_string()).unwrap();
    let path = path.to_str().unwrap();
    let resolve = |key, action| {
        vec!["outbox", "resolve", key, "--action", action, "--note", "the desk says so"]
    };
    let mut with_execution = resolve(executed, "executed");
    with_execution.extend(["--execution", path, "--json"]);
    let said = setup.print_json(&with_execution).await;
    assert_eq!(said, json!({"resolved": executed, "action": "executed"}));
    let result = server.executed(executed).await;
    assert_eq!(result["broker"]["order_ref"], "desk-7");
    assert_eq!(result["executed_qty"].as_f64(), Some(1000.0));
    assert!(result.get("case").is_none(), "{result}");

    setup.print(&resolve(not_executed, "not_executed")).await;
    assert_eq!(server.settled(not_executed).await["status"], "error");
    assert_eq!(server.place(&order(not_executed)).await.status, 504);
    broker.scripted.usual_account(Account::Truth);
    setup.print(&resolve(resend, "resend")).await;
    server.executed(resend).await;

    let (_, again) = setup.fail(&resolve(resend, "resend")).await;
    assert!(again.contains("no open case"), "{again}");
    let (_, unknown) = setup.fail(&resolve("unknown-01", "resend")).await;
    assert!(unknown.contains("no order is known"), "{unknown}");
    for (key, times) in [(executed, 1), (not_executed, 0), (resend, 1)] {
        assert_eq!(broker.scripted.executed(key), times, "{key}");
    }
    let decided =
        "select count(*) from cases where status = 'resolved' and note = 'the desk says so'";
    assert_eq!(rows(&db.url(), decided).await, [["3"]]);
    server.stop().await;
}

async fn the_doctor_says_what_is_wrong(db: TestDb) {
    let broker = Broker::with_keys().await;
    let setup = Setup::of(&db).broker(&broker);
    let server = setup.start().await;
    let healthy = setup.print_json(&["doctor", "--json"]).await;
    assert_eq!(healthy["ok"], true, "{healthy}");
    let checks: Vec<&str> = healthy["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter_map(|item| item["check"].as_str())
        .collect();
    for check in
        ["configuration", "database", "commit", "workers", "leases", "dead letters", "broker"]
    {
        assert!(checks.contains(&check), "{healthy}");
    }
    let text = setup.print(&["doctor"]).await;
    let alerts = |text: &str| text.lines().any(|line| line.starts_with("ALERT "));
    assert!(!alerts(&text) && text.contains("1 alive"), "{text}");

    broker.scripted.script([Act::refuse(broker_code::BAD_REQUEST)]);
    server.accepted(&order(KEY)).await;
    server.settled(KEY).await;
    server.stop().await;
    let nobody = {
        let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        format!("http://{}", free.local_addr().unwrap())
    };
    let away = match db.url().strip_prefix("sqlite:") {
        Some(path) => format!("sqlite:{path}/no/such/folder"),
        None => "postgres://nobody:secret-4711@127.0.0.1:1/none".to_owned(),
    };
    for (setup, check) in [
        (setup.clone(), "dead letters"),
        (setup.clone().set("BROKER_URL", nobody), "broker"),
        (setup.clone().set("TASHIKA_DATABASE_URL", &away), "database"),
    ] {
        let output = setup.run(&["doctor", "--json"]).await;
        assert_eq!(output.status.code(), Some(1), "{check}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found["ok"], false, "{found}");
        let mut items = found["items"].as_array().unwrap().iter();
        let alert = items.find(|item| item["check"] == check).unwrap_or_else(|| panic!("{found}"));
        assert!(alert["level"] == "alert" && alert["advice"].is_string(), "{found}");
        let told = setup.run(&["doctor"]).await;
        let text = String::from_utf8_lossy(&told.stdout).into_owned();
        assert!(alerts(&text) && text.contains('→'), "{text}");
        assert!(!text.contains("secret-4711"), "{text}");
    }
    let (_, message) = setup.set("TASHIKA_DATABASE_URL", away).fail(&["serve"]).await;
    assert!(!message.contains("secret-4711"), "{message}");
}
