//! One request to the queue, whole.

use std::sync::Arc;

use axum::extract::Request;
use bytes::Bytes;
use http::{HeaderMap, Method, Uri};
use serde_json::Value;
use tashika_domain::message::address::{self, Destination};
use tashika_domain::message::spec::Spec;

use super::BASE;
use super::fault::Fault;
use crate::http::auth::Peer;
use crate::http::body;
use crate::http::edge::Known;
use crate::http::json;
use crate::http::language::Language;
use crate::http::problem::{Code, Problem};

pub(super) struct Call {
    pub method: Method,
    uri: Uri,
    headers: HeaderMap,
    pub body: Bytes,
    pub caller_ip: Option<String>,
    pub traceparent: Option<String>,
}

impl Call {
    pub async fn read(request: Request) -> Result<Self, Problem> {
        let (mut parts, body) = request.into_parts();
        // An IPv4 caller at an IPv6 listener is still an IPv4 caller.
        let peer = parts.extensions.get::<Peer>();
        let caller_ip = peer.map(|peer| peer.0.ip().to_canonical().to_string());
        let Known { traceparent, body: limits, .. } =
            parts.extensions.remove().ok_or(Problem::new(Code::InternalError))?;
        let (method, uri, headers) = (parts.method, parts.uri, parts.headers);
        let body = body::read(body, limits).await?;
        Ok(Self { method, uri, headers, body, caller_ip, traceparent: traceparent.0 })
    }

    /// The path behind `/v2/`, as it was sent.
    pub fn path(&self) -> &str {
        self.uri.path().strip_prefix(BASE).unwrap_or_default()
    }

    /// The query, as it was sent.
    pub fn query(&self) -> &str {
        self.uri.query().unwrap_or_default()
    }

    /// A destination: the rest of the path, and what the query holds beside settings.
    pub fn destination(&self, rest: &str) -> Result<Destination, Fault> {
        let raw = match self.uri.query() {
            None => rest.to_owned(),
            Some(query) => match address::split_query(query) {
                (taken, own) if own.is_empty() && !taken.is_empty() => rest.to_owned(),
                (_, own) => format!("{rest}?{own}"),
            },
        };
        address::destination(&raw).map_err(Fault::bad)
    }

    /// What the headers ask for, and the query after them.
    pub fn spec(&self) -> Result<Spec, Fault> {
        self.read_spec(|_| true)
    }

    /// The same for a request whose own headers are not those of a message.
    pub fn overrides(&self) -> Result<Spec, Fault> {
        self.read_spec(|name| name.starts_with("upstash-"))
    }

    fn read_spec(&self, counts: impl Fn(&str) -> bool) -> Result<Spec, Fault> {
        let mut pairs = Vec::with_capacity(self.headers.len());
        for (name, value) in &self.headers {
            let name = name.as_str();
            if !counts(name) {
                continue;
            }
            match std::str::from_utf8(value.as_bytes()) {
                Ok(value) => pairs.push((name, value)),
                Err(_) if name.starts_with("upstash-") || name == "content-type" => {
                    return Err(Fault::bad(format!("the header {name} is not UTF-8")));
                }
                // Nobody asked for it.
                Err(_) => {}
            }
        }
        let (settings, _) = address::split_query(self.query());
        let settings = settings.iter().filter(|(name, _)| name != "qstash_token");
        pairs.extend(settings.map(|(name, value)| (name.as_str(), value.as_str())));
        Spec::read(pairs.into_iter()).map_err(Fault::bad)
    }

    pub fn body(&self) -> Arc<[u8]> {
        Arc::from(&self.body[..])
    }

    /// The body as JSON, whatever type it claims to be of.
    pub fn json(&self) -> Result<Value, Fault> {
        json::parse(&self.body).map_err(|problem| {
            let document = problem.document(Language::English, None);
            Fault::bad(format!("the body is not JSON: {}", document.detail))
        })
    }

    /// For paths that take one method.
    pub fn only(&self, method: &Method, name: &'static str) -> Result<(), Fault> {
        if self.method == *method { Ok(()) } else { Err(Fault::Method(name)) }
    }
}
