//! Who may use the API. Nothing here depends on the database.

use tashika_testkit::database::TestDb;

use crate::support::{KEY, Request, Setup, order};

const TOKEN: &str = "the-token-of-this-test";

#[tokio::test]
async fn with_tokens_only_health_checks_are_open_sqlite() {
    let db = TestDb::sqlite();
    let server = Setup::of(&db).set("TASHIKA_API_TOKENS", TOKEN).start().await;
    for open in ["/healthz", "/readyz"] {
        let answer = server.get(open).await;
        assert_eq!(answer.status, 200, "{answer:?}");
    }
    let place = Request::order(&order(KEY));
    for request in [place.clone(), Request::get("/do/order/key-0001"), Request::get("/metrics")] {
        for refused in [
            request.clone(),
            request.clone().token("another-token-altogether"),
            request.clone().header("authorization", format!("Basic {TOKEN}")),
        ] {
            let answer = server.ask(refused).await;
            answer.is_problem(401, "UNAUTHORIZED");
            assert!(answer.header("www-authenticate").is_some(), "{answer:?}");
        }
    }
    assert_eq!(server.ask(place.token(TOKEN)).await.status, 201);
    assert_eq!(server.ask(Request::get("/metrics").token(TOKEN)).await.status, 200);
    let stranger = server.ask(Request::get("/do/order/key-0001").token(TOKEN)).await;
    assert_eq!(stranger.status, 200);
    server.stop().await;
}

#[tokio::test]
async fn without_tokens_only_loopback_is_served_sqlite() {
    let db = TestDb::sqlite();
    let setup = Setup::of(&db);
    let (_, message) = setup.clone().set("TASHIKA_LISTEN", "0.0.0.0:0").fail(&["serve"]).await;
    for name in ["TASHIKA_LISTEN", "TASHIKA_API_TOKENS"] {
        assert!(message.contains(name), "{message}");
    }

    let server = setup.start().await;
    let warned = |event: &serde_json::Value| {
        event["level"] == "WARN" && event["message"].to_string().contains("TASHIKA_API_TOKENS")
    };
    server.log.until("the warning", warned).await;
    server.stop().await;

    let guarded = setup.set("TASHIKA_LISTEN", "0.0.0.0:0").set("TASHIKA_API_TOKENS", TOKEN);
    let server = guarded.start().await;
    assert!(!server.log.events().iter().any(warned), "{}", server.log.text());
    server.stop().await;
}
