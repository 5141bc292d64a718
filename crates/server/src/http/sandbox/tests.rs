//! The sandbox's page, over whole requests against a real store.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::Request;
use http::header::CONTENT_TYPE;
use http_body_util::BodyExt as _;
use serde_json::Value;
use tashika_domain::Outcome;
use tashika_domain::payment::session::RemoteSession;
use tashika_domain::webhook::Status;
use tashika_providers::gateway::{CheckoutOrder, SessionRef};
use tashika_store::WebhookFilter;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use tower::ServiceExt as _;
use uuid::Uuid;

use super::{Face, routes};
use crate::app::App;
use crate::config::{Config, Sources};
use crate::http::{RequestIds, Shell};

const PAYMENT: Uuid = Uuid::from_u128(7);

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
        let gateway = app.sandbox.clone().unwrap();
        gateway.show_pages_at("http://127.0.0.1:8080");
        let webhooks = Arc::new(app.webhooks(&config).unwrap());
        let face = Face { gateway, webhooks, clock: app.clock };
        let shell = Shell::new(&config, RequestIds::from_seed(1)).open(routes(Arc::new(face)));
        Self { app, router: shell.build().0, _database: database }
    }

    async fn open(&self) -> RemoteSession {
        let now = self.app.clock.now();
        let order = CheckoutOrder {
            payment_id: PAYMENT,
            reservation_id: Uuid::from_u128(8),
            amount: 1200,
            currency: "JPY",
            title: "<b>Slot</b>",
            customer_email: None,
            locale: None,
            success_url: "https://shop.example/ok",
            cancel_url: "javascript:alert(1)",
            expires_at: now.plus(Duration::from_secs(900)),
            now,
            traceparent: None,
        };
        match self.app.till.gateway.open_checkout(order).await.outcome {
            Outcome::Done(session) => session,
            other => panic!("{other:?}"),
        }
    }

    async fn ask(&self, method: &str, path: &str, kind: &str, body: &str) -> (u16, String) {
        let request = Request::builder().method(method).uri(path).header(CONTENT_TYPE, kind);
        let request = request.body(Body::from(body.to_owned())).unwrap();
        let response = self.router.clone().oneshot(request).await.unwrap();
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.unwrap().to_bytes();
        (status, String::from_utf8(bytes.to_vec()).unwrap())
    }

    async fn pay(&self, session: &str, body: &str) -> (u16, Value) {
        let path = format!("/sandbox/checkout/{session}/pay");
        let (status, text) = self.ask("POST", &path, "application/json", body).await;
        (status, serde_json::from_str(&text).unwrap())
    }

    async fn events(&self) -> Vec<String> {
        let events = self.app.store.webhook_events(&WebhookFilter::default(), 100).await.unwrap();
        assert!(events.iter().all(|event| event.status == Status::Pending));
        let mut kinds: Vec<String> = events.into_iter().map(|event| event.event_type).collect();
        kinds.sort();
        kinds
    }
}

on_both!(
    a_customer_pays_with_curl,
    a_customer_pays_in_a_browser,
    money_that_comes_later_is_told_of_later
);

async fn a_customer_pays_with_curl(db: TestDb) {
    let world = World::new(db).await;
    let id = world.open().await.id;
    let (status, body) = world.pay(&id, r#"{"paymentMethod":"declined"}"#).await;
    assert_eq!((status, &body["code"]), (402, &Value::from("CHECKOUT_DECLINED")));
    for (wrong, expected) in [
        (r#"{"paymentMethod":"shells"}"#, 422),
        (r#"{"paymentMethod":7}"#, 400),
        ("[]", 400),
        ("{", 400),
    ] {
        assert_eq!(world.pay(&id, wrong).await.0, expected, "{wrong}");
    }
    assert_eq!(world.events().await, Vec::<String>::new());
    for body in ["", r#"{"paymentMethod":"ok"}"#] {
        let (status, body) = world.pay(&id, body).await;
        assert_eq!((status, body["paid"].as_bool()), (200, Some(true)), "{body}");
        assert_eq!(body["paymentId"], PAYMENT.to_string());
    }
    assert_eq!(world.events().await, ["checkout.session.completed"], "told of once");
    assert_eq!(world.pay("sandbox_cs_nobody", "").await.0, 404);
}

async fn a_customer_pays_in_a_browser(db: TestDb) {
    let world = World::new(db).await;
    let session = world.open().await;
    let path = session.url.unwrap().replace("http://127.0.0.1:8080", "");
    let (status, page) = world.ask("GET", &path, "text/plain", "").await;
    assert_eq!(status, 200);
    assert!(page.contains("1200") && page.contains("&lt;b&gt;Slot"), "{page}");
    assert!(!page.contains("javascript:"), "{page}");
    let form = "application/x-www-form-urlencoded";
    let (status, page) = world.ask("POST", &format!("{path}/pay"), form, "paymentMethod=ok").await;
    assert_eq!(status, 200);
    assert!(page.contains("Paid.") && page.contains("https://shop.example/ok"), "{page}");
    assert!(!page.contains("<form"), "{page}");

    let now = world.app.clock.now();
    let closed =
        SessionRef { session_id: &session.id, payment_id: PAYMENT, now, traceparent: None };
    let reply = world.app.till.gateway.expire_checkout(closed).await;
    assert!(matches!(reply.outcome, Outcome::Done(RemoteSession { paid: true, .. })));
}

async fn money_that_comes_later_is_told_of_later(db: TestDb) {
    let world = World::new(db).await;
    let id = world.open().await.id;
    for _ in 0..2 {
        let (status, body) = world.pay(&id, r#"{"paymentMethod":"delayed_ok"}"#).await;
        assert_eq!((status, body["paid"].as_bool()), (200, Some(false)), "{body}");
    }
    let expected = ["checkout.session.async_payment_succeeded", "checkout.session.completed"];
    assert_eq!(world.events().await, expected);
    let events = world.app.store.webhook_events(&WebhookFilter::default(), 100).await.unwrap();
    let late = events.iter().find(|event| event.event_type.ends_with("succeeded")).unwrap();
    let effect = world.app.store.effect(tashika_domain::EffectId(late.id)).await.unwrap().unwrap();
    assert!(effect.next_run_at > late.created_at, "not before the money is there");
}
