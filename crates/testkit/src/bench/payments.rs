//! What Tashika adds to a payment: from a caller's request to the answer, with a gateway that takes no
//! time.
//!
//! The whole way over HTTP, at a fixed rate: requests start when they are due, whether or not earlier
//! ones have been answered, and each is measured from the moment at which it was due. The gateway
//! answers from memory; its two trips over the loopback are in the figures.

use std::sync::Arc;
use std::time::Duration;

use axum::Json;
use axum::routing::post;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use serde_json::{Value, json};
use tashika_engine::{Clock, Ids};
use tashika_providers::http::{Client, ClientConfig, Known, Request};
use tokio::net::TcpListener;
use tokio::time::Instant;

use super::{Figure, Options, World, quantile, server};

const PER_SECOND: u32 = 200;
/// The first payments open connections and fill caches.
const WARM_UP: Duration = Duration::from_secs(2);

pub(crate) async fn measure(world: &World, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let gateway = gateway().await?;
    let settings = [
        ("PAYMENT_GATEWAY", "http"),
        ("PAYMENT_HTTP_URL", gateway.as_str()),
        ("PAYMENT_HTTP_TOKEN", "bench"),
    ];
    let (mut process, _) = server::start(world, &["serve"], &settings).await?;
    let client = Client::new(&ClientConfig::with_timeout(Duration::from_secs(30)))?;
    let measured = Duration::from_secs(options.seconds.max(5));
    let mut figures = Vec::new();
    for (what, mode) in [("authorized", "manual"), ("captured", "automatic")] {
        pay(&client, mode, WARM_UP).await?;
        let mut samples = pay(&client, mode, measured).await?;
        let note = format!("{PER_SECOND}/s over HTTP, a gateway that takes no time");
        for (name, share) in [("p50", 0.50), ("p99", 0.99)] {
            let figure = quantile(&mut samples, share);
            let what = format!("payment {what}, {name}");
            figures.push(Figure::plain(world.name(), what, "ms", figure, note.clone()));
        }
    }
    process.kill().await?;
    Ok(figures)
}

/// Pays at the fixed rate, and returns how long each payment took.
async fn pay(client: &Client, mode: &'static str, span: Duration) -> anyhow::Result<Vec<Duration>> {
    let (client, ids) = (Arc::new(client.clone()), Ids::random(Clock::System));
    let began = Instant::now();
    let mut payments = tokio::task::JoinSet::new();
    let pause = Duration::from_secs(1) / PER_SECOND;
    let mut due = began;
    while due < began + span {
        tokio::time::sleep_until(due).await;
        let (client, ids) = (Arc::clone(&client), ids.clone());
        payments.spawn(async move {
            let status = one(&client, &ids, mode).await?;
            anyhow::ensure!(status == StatusCode::CREATED, "a payment was answered {status}");
            Ok(due.elapsed())
        });
        due += pause;
    }
    payments.join_all().await.into_iter().collect()
}

async fn one(client: &Client, ids: &Ids, mode: &str) -> anyhow::Result<StatusCode> {
    let key = ids.uuid().to_string();
    let mut headers = HeaderMap::new();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert("idempotency-key", HeaderValue::from_str(&key)?);
    let body = json!({"bookingId": key, "userId": "bench", "amount": 5000, "currency": "JPY",
        "paymentMethod": "any", "capture": mode});
    let request = Request {
        method: Method::POST,
        url: format!("http://127.0.0.1:{}/payments", server::PORT).parse()?,
        headers,
        body: Bytes::from(body.to_string()),
    };
    match client.call(request).await.known {
        Known::Answered(answer) => Ok(answer.status),
        other => anyhow::bail!("{other:?}"),
    }
}

/// A gateway that says yes at once; returns its address.
async fn gateway() -> anyhow::Result<String> {
    let authorized = |Json(body): Json<Value>| async move {
        let reference = &body["reference"];
        (StatusCode::CREATED, Json(stands(reference, "authorized", &body["amount"], &json!(0))))
    };
    let captured = |axum::extract::Path(reference): axum::extract::Path<String>,
                    Json(body): Json<Value>| async move {
        Json(stands(&json!(reference), "captured", &body["amount"], &body["amount"]))
    };
    let router = axum::Router::new()
        .route("/payments", post(authorized))
        .route("/payments/{reference}/capture", post(captured));
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    // Ends with the process.
    tokio::spawn(async move { axum::serve(listener, router).await });
    Ok(format!("http://{address}"))
}

fn stands(reference: &Value, status: &str, amount: &Value, captured: &Value) -> Value {
    json!({"id": "bench-1", "reference": reference, "status": status, "amount": amount,
        "currency": "JPY", "capturedAmount": captured, "refunds": [],
        "createdAt": "2026-01-01T00:00:00Z"})
}
