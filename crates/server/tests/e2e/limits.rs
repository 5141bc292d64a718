//! How much a client may ask for.

use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;

use crate::support::{Request, Server, Setup, order};

on_both!(
    the_rate_is_limited_per_token_and_replays_are_free,
    the_daily_quota_is_counted_per_token_across_restarts,
);

const TOKENS: [&str; 2] = ["first-token-of-the-test", "second-token-of-the-test"];

/// Places an order as one of the clients; the status.
async fn place(server: &Server, client: usize, n: usize) -> u16 {
    let request = Request::order(&order(&format!("order-{n:04}"))).token(TOKENS[client]);
    let answer = server.ask(request).await;
    if answer.status == 429 {
        answer.is_problem(429, "RATE_LIMITED");
        assert!(answer.retry_after() >= 1);
    }
    answer.status
}

async fn the_rate_is_limited_per_token_and_replays_are_free(db: TestDb) {
    // The rate is so low that nothing comes back while the test runs.
    let setup = Setup::of(&db).set("TASHIKA_API_TOKENS", TOKENS.join(","));
    let server = setup.set("RL_RATE_PER_MIN", "0.01").set("RL_BURST", 3).start().await;
    for n in 0..3 {
        assert_eq!(place(&server, 0, n).await, 201);
        assert_eq!(place(&server, 0, n).await, 200, "replays are not counted");
    }
    assert_eq!(place(&server, 0, 3).await, 429);
    assert_eq!(place(&server, 0, 0).await, 200, "replays pass the limit");
    let invalid = order("order-0004").to_string().replace("BUY", "HOLD");
    let invalid = Request::post("order-0004", invalid).token(TOKENS[1]);
    server.ask(invalid).await.is_problem(422, "VALIDATION_ERROR");
    for n in 3..6 {
        assert_eq!(place(&server, 1, n).await, 201, "another client, and what is invalid is free");
    }
    assert_eq!(place(&server, 1, 6).await, 429);
    server.stop().await;
}

async fn the_daily_quota_is_counted_per_token_across_restarts(db: TestDb) {
    let setup = Setup::of(&db).set("TASHIKA_API_TOKENS", TOKENS.join(",")).set("DAILY_QUOTA", 3);
    let server = setup.start().await;
    for n in 0..2 {
        assert_eq!(place(&server, 0, n).await, 201);
    }
    server.stop().await;
    let server = setup.start().await;
    assert_eq!(place(&server, 0, 2).await, 201);
    assert_eq!(place(&server, 0, 3).await, 429);
    assert_eq!(place(&server, 0, 1).await, 200);
    assert_eq!(place(&server, 1, 3).await, 201, "another client");
    server.stop().await;
}
