//! Whole requests against a real store. What a delivery would bring is concluded by hand.

mod bulk;
mod destinations;
mod events;
mod redaction;
mod surface;

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;
use serde_json::Value;
use tashika_domain::message::conclude::{Attempted, Came, conclude};
use tashika_domain::message::{Response, parse_id};
use tashika_testkit::database::TestDb;
use tower::ServiceExt as _;

use super::{Face, shape};
use crate::app::App;
use crate::config::{Config, Sources};
use crate::http::auth::Peer;
use crate::http::router::Front;
use crate::http::{RequestIds, Shell};

struct World {
    app: App,
    router: Front,
    database: TestDb,
}

struct Answer {
    status: u16,
    headers: HeaderMap,
    text: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.text).unwrap_or_else(|_| panic!("not JSON: {}", self.text))
    }

    /// The sentence of a refusal, which is all there is in it.
    #[track_caller]
    fn error(&self) -> String {
        let body = self.json();
        assert_eq!(self.headers["content-type"], "application/json");
        assert_eq!(body.as_object().map(serde_json::Map::len), Some(1), "{body}");
        body["error"].as_str().unwrap().to_owned()
    }
}

impl World {
    async fn new() -> Self {
        Self::with(&[]).await
    }

    async fn with(settings: &[(&str, &str)]) -> Self {
        Self::on(TestDb::sqlite(), settings).await
    }

    async fn on(database: TestDb, settings: &[(&str, &str)]) -> Self {
        let mut environment = vec![("TASHIKA_DATABASE_URL".to_owned(), database.url())];
        environment.extend(settings.iter().map(|(name, value)| ((*name).into(), (*value).into())));
        let sources = Sources { file: None, environment: environment.into_iter().collect() };
        let config = Config::from_sources(&sources).unwrap();
        let app = App::open(&config).await.unwrap();
        let face = Face { messages: Arc::clone(&app.messages), parallelism: 7 };
        let (router, _) =
            Shell::new(&config, RequestIds::from_seed(1)).queue(Arc::new(face)).build();
        Self { app, router, database }
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Answer {
        let mut request = Request::builder().method(method).uri(path);
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        let mut request = request.body(Body::from(body.to_owned())).unwrap();
        request.extensions_mut().insert(Peer(([10, 1, 2, 3], 4567).into()));
        let response = self.router.clone().oneshot(request).await.unwrap();
        let (parts, body) = response.into_parts();
        let bytes = body.collect().await.unwrap().to_bytes();
        let text = String::from_utf8(bytes.to_vec()).unwrap();
        Answer { status: parts.status.as_u16(), headers: parts.headers, text }
    }

    async fn get(&self, path: &str) -> Answer {
        self.ask(Method::GET, path, &[], "").await
    }

    async fn post(&self, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        self.ask(Method::POST, path, headers, body).await
    }

    async fn delete(&self, path: &str, body: &str) -> Answer {
        self.ask(Method::DELETE, path, &[], body).await
    }

    /// Publishes a message, and returns its id.
    async fn publish(&self, destination: &str, headers: &[(&str, &str)]) -> String {
        let answer = self.post(&format!("/v2/publish/{destination}"), headers, "hello").await;
        assert_eq!(answer.status, 200, "{}", answer.text);
        answer.json()["messageId"].as_str().unwrap().to_owned()
    }

    /// An attempt at a message is over.
    async fn attempted(&self, name: &str, came: Came, status: u16) {
        let id = parse_id(name).unwrap();
        let message = self.app.messages.message(id).await.unwrap();
        let now = self.app.clock.now();
        let concluded = conclude(
            &message,
            &Attempted {
                came,
                response: Response { status, body: b"answer".to_vec(), ..Response::default() },
                failures: 0,
                lapses: 0,
                reason: None,
                in_doubt: false,
                started_at: now,
                now,
                id: self.app.ids.uuid(),
                expires_at: now,
                reopen: true,
            },
        );
        self.app.store.commit(concluded.changes).await.unwrap();
    }

    /// Publishes a message that nobody wants, and returns its name among the dead letters.
    async fn dead(&self, destination: &str, headers: &[(&str, &str)]) -> String {
        let id = self.publish(destination, headers).await;
        self.attempted(&id, Came::Never, 489).await;
        let letters = self.get(&format!("/v2/dlq?messageId={id}")).await.json();
        letters["messages"][0]["dlqId"].as_str().unwrap().to_owned()
    }

    /// How many messages can still be cancelled, and how many dead letters there are.
    async fn open_and_dead(&self) -> (usize, usize) {
        let counts = self.app.store.message_counts().await.unwrap();
        let open = counts.iter().filter(|count| !count.state.is_over()).map(|count| count.count);
        let dead = self.app.store.dead_letters().await.unwrap().0;
        (usize::try_from(open.sum::<i64>()).unwrap(), usize::try_from(dead).unwrap())
    }
}
