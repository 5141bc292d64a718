//! How customers reach the server: over HTTP, as everybody does.

use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use serde_json::Value;
use tashika_providers::http::{Client, ClientConfig, Known, Request};
use url::Url;

/// Longer than the server takes for anything here.
const PATIENCE: Duration = Duration::from_secs(10);
/// A page of the longest list.
const ANSWER_MAX: usize = 16 * 1024 * 1024;

/// What came back.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub status: u16,
    pub body: Value,
}

impl Answer {
    pub fn text(&self, field: &str) -> Option<String> {
        self.body[field].as_str().map(ToOwned::to_owned)
    }
}

#[derive(Clone)]
pub(super) struct Caller {
    client: Client,
    base: Url,
}

impl Caller {
    pub fn new(base: &str) -> anyhow::Result<Self> {
        let config = ClientConfig { max_body: ANSWER_MAX, ..ClientConfig::with_timeout(PATIENCE) };
        Ok(Self { client: Client::new(&config)?, base: base.parse()? })
    }

    /// `None` if there was no answer: the demonstration is ending, and a customer shrugs.
    pub async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: String,
    ) -> Option<Answer> {
        let mut all = HeaderMap::new();
        if !body.is_empty() {
            all.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        }
        for (name, value) in headers {
            all.insert(HeaderName::from_static(name), HeaderValue::from_str(value).ok()?);
        }
        let url = self.base.join(path).ok()?;
        let request = Request { method, url, headers: all, body: Bytes::from(body) };
        match self.client.call(request).await.known {
            Known::Answered(answer) => {
                let body = serde_json::from_slice(&answer.body).unwrap_or_default();
                Some(Answer { status: answer.status.as_u16(), body })
            }
            _ => None,
        }
    }

    /// Posts a body under an idempotency key.
    pub async fn post(&self, path: &str, key: &str, body: &Value) -> Option<Answer> {
        self.call(Method::POST, path, &[("idempotency-key", key)], body.to_string()).await
    }

    pub async fn get(&self, path: &str) -> Option<Answer> {
        self.call(Method::GET, path, &[], String::new()).await
    }

    /// Everything on a list, page by page.
    pub async fn all(&self, path: &str) -> anyhow::Result<Vec<Value>> {
        let mut found = Vec::new();
        let mut cursor = String::new();
        loop {
            let mark = if path.contains('?') { '&' } else { '?' };
            let answer = self.get(&format!("{path}{mark}limit=500{cursor}")).await;
            let answer = answer.filter(|answer| answer.status == 200);
            let mut page = answer.with_context(|| format!("no answer to GET {path}"))?.body;
            if let Some(items) = page["items"].as_array_mut() {
                found.append(items);
            }
            match page["nextCursor"].as_str() {
                Some(next) => cursor = format!("&cursor={next}"),
                None => return Ok(found),
            }
        }
    }
}
