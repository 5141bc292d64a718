//! Renders over whole requests against a real store.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tashika_domain::outcome::Reason;
use tashika_domain::render::conclude::{At, Learned, conclude};
use tashika_domain::render::{RenderOrder, start};
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use tower::ServiceExt as _;
use uuid::Uuid;

use super::routes;
use crate::app::App;
use crate::config::{Config, Sources};
use crate::http::auth::Peer;
use crate::http::{RequestIds, Shell};

struct World {
    app: App,
    router: crate::http::router::Front,
    _database: TestDb,
}

impl World {
    async fn new(database: TestDb) -> Self {
        let environment = [("TASHIKA_DATABASE_URL".to_owned(), database.url())];
        let sources = Sources { file: None, environment: environment.into() };
        let config = Config::from_sources(&sources).unwrap();
        let app = App::open(&config).await.unwrap();
        let shell = Shell::new(&config, RequestIds::from_seed(1));
        let (router, _) = shell.protected(routes(Arc::new(app.renders()))).build();
        Self { app, router, _database: database }
    }

    async fn begin(&self, number: u128) -> Uuid {
        let id = Uuid::from_u128(number);
        let rules = &self.app.studio.rules;
        let reservation_id = Uuid::from_u128(number + 1000);
        let order = RenderOrder { id, reservation_id, video_id: 7, traceparent: None, rules };
        self.app.store.commit(start(order, self.app.clock.now())).await.unwrap();
        id
    }

    /// Uses up every attempt.
    async fn fail(&self, id: Uuid) {
        for _ in 0..3 {
            let render = self.app.store.render(id).await.unwrap().unwrap();
            let now = self.app.clock.now();
            let at = At { now, rules: &self.app.studio.rules, via: "test" };
            let learned = Learned::Failed(Reason::new("BROKEN", "it broke"));
            self.app.store.commit(conclude(&render, &learned, at)).await.unwrap();
        }
    }

    async fn ask(&self, method: &str, path: &str, body: &str) -> (u16, Value) {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(CONTENT_TYPE, "application/json");
        let mut request = request.body(Body::from(body.to_owned())).unwrap();
        request.extensions_mut().insert(Peer(([127, 0, 0, 1], 1).into()));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap())
    }
}

on_both!(renders_are_looked_up_and_listed, people_help_and_only_where_help_is_needed);

async fn renders_are_looked_up_and_listed(db: TestDb) {
    let world = World::new(db).await;
    let (one, two) = (world.begin(1).await, world.begin(2).await);
    world.fail(two).await;
    let (status, body) = world.ask("GET", &format!("/renders/{one}"), "").await;
    assert_eq!((status, &body["status"]), (200, &Value::from("queued")));
    assert_eq!((&body["videoId"], &body["attemptsAllowed"]), (&7.into(), &3.into()));
    assert_eq!(body.get("case"), None);
    let (_, body) = world.ask("GET", &format!("/renders/{two}"), "").await;
    assert_eq!(
        (&body["errorCode"], &body["case"]["kind"]),
        (&"BROKEN".into(), &"render_failed".into())
    );
    for (query, count) in [
        ("", 2),
        ("?status=failed", 1),
        ("?status=done", 0),
        ("?reservationId=00000000-0000-0000-0000-0000000003e9", 1),
        ("?limit=1", 1),
    ] {
        let (status, body) = world.ask("GET", &format!("/renders{query}"), "").await;
        assert_eq!((status, body["items"].as_array().unwrap().len()), (200, count), "{query}");
    }
    for query in ["?status=lost", "?reservationId=x", "?x=1"] {
        assert_eq!(world.ask("GET", &format!("/renders{query}"), "").await.0, 400, "{query}");
    }
    for id in ["x", "00000000-0000-0000-0000-000000000009"] {
        let (status, body) = world.ask("GET", &format!("/renders/{id}"), "").await;
        assert_eq!((status, &body["code"]), (404, &Value::from("RENDER_NOT_FOUND")));
    }
}

async fn people_help_and_only_where_help_is_needed(db: TestDb) {
    let world = World::new(db).await;
    let id = world.begin(1).await;
    let (resolve, retry) = (format!("/renders/{id}/resolve"), format!("/renders/{id}/retry"));
    let note = r#"{"note": "sent by post"}"#;
    let (status, body) = world.ask("POST", &resolve, note).await;
    assert_eq!((status, &body["code"]), (409, &Value::from("RENDER_NOT_FAILED")));
    assert_eq!(world.ask("POST", &retry, "").await.0, 200, "it is under way");
    world.fail(id).await;
    let (status, body) = world.ask("POST", &retry, "").await;
    assert_eq!((status, &body["status"], &body["attempts"]), (200, &"queued".into(), &4.into()));
    world.fail(id).await;
    for wrong in ["{}", r#"{"note": "x", "outputUrl": "file:///etc/passwd"}"#] {
        assert_eq!(world.ask("POST", &resolve, wrong).await.0, 422, "{wrong}");
    }
    for _ in 0..2 {
        let (status, body) = world.ask("POST", &resolve, note).await;
        assert_eq!((status, &body["status"]), (200, &Value::from("done")), "{body}");
    }
    assert_eq!(world.ask("POST", &retry, "").await.0, 409);
}
