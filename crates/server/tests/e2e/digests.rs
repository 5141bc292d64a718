//! The digests in the ledger, computed here once more from what the contract says about them.

use std::fmt::Write as _;

use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use tashika_domain::order::broker_code;
use tashika_testkit::broker::Act;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{Broker, KEY, Request, Setup, order, rows};

on_both!(request_digests_are_those_of_the_contract, result_digests_are_those_of_the_contract);

fn sha256(text: &str) -> String {
    let mut hex = "sha256:".to_owned();
    for byte in Sha256::digest(text) {
        write!(hex, "{byte:02x}").unwrap();
    }
    hex
}

async fn request_digests_are_those_of_the_contract(db: TestDb) {
    let server = Setup::of(&db).start().await;
    // "が" as two characters, an escaped letter, a fraction, fields out of order, white space.
    let body = "{ \"tags\": [\"か\u{3099}\", \"\\u0041\"], \"side\":\"SELL\",\n\"qty\": 0.50, \
                \"trace_id\": \"t-1\", \"risk_constraints\": {\"max_spread\": 2, \"max_dd\": null}, \
                \"idempotency_key\": \"key-0001\", \"instrument\":\"EURUSD\" }";
    let canonical = "{\"instrument\":\"EURUSD\",\"qty\":0.5,\"risk_constraints\":{\"max_dd\":null,\
                     \"max_spread\":2},\"side\":\"SELL\",\"tags\":[\"\u{304c}\",\"A\"]}";
    let answer = server.ask(Request::post(KEY, body)).await;
    assert_eq!(answer.status, 201, "{answer:?}");
    assert_eq!(answer.json()["request_digest"], sha256(canonical));
    server.executed(KEY).await;
    server.stop().await;
    for table in ["idempo_ledger", "outbox", "outbox_orders"] {
        let sql = format!("select request_digest from {table} where idempotency_key = '{KEY}'");
        assert_eq!(rows(&db.url(), &sql).await, [[sha256(canonical)]], "{table}");
    }
}

/// Keys sorted, values as they stand in the answer.
fn stable(result: &Value) -> String {
    let fills: Vec<String> = result["fills"]
        .as_array()
        .unwrap()
        .iter()
        .map(|fill| {
            format!("{{\"px\":{},\"qty\":{},\"ts\":{}}}", fill["px"], fill["qty"], fill["ts"])
        })
        .collect();
    let field = |name: &str| result.get(name).cloned().unwrap_or_default();
    format!(
        "{{\"avg_price\":{},\"executed_qty\":{},\"fills\":[{}],\"instrument\":{},\"order_id\":{},\
         \"reason_code\":{},\"side\":{},\"status\":{}}}",
        field("avg_price"),
        field("executed_qty"),
        fills.join(","),
        field("instrument"),
        field("order_id"),
        field("reason_code"),
        field("side"),
        field("status"),
    )
}

async fn result_digests_are_those_of_the_contract(db: TestDb) {
    let broker = Broker::with_keys().await;
    let server = Setup::of(&db).broker(&broker).start().await;
    broker.scripted.script_for("refused-1", [Act::refuse(broker_code::BAD_REQUEST)]);
    for key in ["executed-1", "refused-1"] {
        let mut body = order(key);
        body["order_id"] = json!("o-1");
        body["qty"] = json!(0.07);
        server.accepted(&body).await;
        server.settled(key).await;
        let replay = server.place(&body).await;
        let sql =
            format!("select result_digest from idempo_ledger where idempotency_key = '{key}'");
        assert_eq!(rows(&db.url(), &sql).await, [[sha256(&stable(&replay.json()))]], "{replay:?}");
    }
    server.stop().await;
}
