//! A request to Stripe as it is put together.

use ::http::Method;
use tashika_domain::Timestamp;

/// One request, before it is written.
pub(super) struct Ask {
    /// As it is told in the evidence.
    pub request: &'static str,
    pub method: Method,
    pub path: String,
    /// The form of a `POST`, the query of a `GET`.
    pub fields: Vec<(&'static str, String)>,
    pub key: Option<String>,
    pub now: Timestamp,
}

impl Ask {
    pub(super) fn get(request: &'static str, path: String, now: Timestamp) -> Self {
        Self { request, method: Method::GET, path, fields: Vec::new(), key: None, now }
    }

    pub(super) fn post(request: &'static str, path: String, key: String, now: Timestamp) -> Self {
        Self { request, method: Method::POST, path, fields: Vec::new(), key: Some(key), now }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    pub(super) fn with_some(self, name: &'static str, value: Option<&str>) -> Self {
        match value {
            Some(value) => self.with(name, value),
            None => self,
        }
    }
}
