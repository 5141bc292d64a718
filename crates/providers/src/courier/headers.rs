//! Headers of requests and of answers.

use http::header::{AUTHORIZATION, CONTENT_LENGTH, HOST, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use tashika_domain::message::asked::{Headers, Method};
use tashika_domain::message::names::canonical;

use super::{Parcel, Target};

/// What QStash calls itself; receivers look for it.
const AGENT: HeaderValue = HeaderValue::from_static("Upstash-QStash");

/// About one connection (RFC 9110 §7.6.1) or about how this very request is written. Those of the
/// caller were about another.
const NOT_FORWARDED: [&str; 13] = [
    "connection",
    "content-length",
    "expect",
    "host",
    "http2-settings",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// A header that HTTP cannot carry. Names it, and not its value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the request cannot be written as HTTP: header {0:?}")]
pub(super) struct BadHeader(String);

/// The headers of a delivery.
pub(super) fn outgoing(parcel: &Parcel<'_>, target: &Target) -> Result<HeaderMap, BadHeader> {
    let mut headers = HeaderMap::with_capacity(parcel.headers.len() + parcel.own.len() + 3);
    let hop: Vec<&str> = (parcel.headers.iter())
        .filter(|(name, _)| name.eq_ignore_ascii_case("connection"))
        .flat_map(|(_, values)| values.iter().flat_map(|value| value.split(',')))
        .map(str::trim)
        .collect();
    for (name, values) in parcel.headers {
        let read = header_name(name)?;
        let is_hop = hop.iter().any(|hop| hop.eq_ignore_ascii_case(read.as_str()));
        if is_hop || NOT_FORWARDED.contains(&read.as_str()) {
            continue;
        }
        for value in values {
            headers.append(&read, header_value(name, value)?);
        }
    }
    if let Some(basic) = &target.authorization {
        headers.entry(AUTHORIZATION).or_insert_with(|| basic.clone());
    }
    headers.entry(USER_AGENT).or_insert(AGENT);
    for (name, value) in parcel.own {
        headers.insert(header_name(name)?, header_value(name, value)?);
    }
    // Some servers wait for a body, or answer 411, if a request that usually has one does not say
    // that it has none.
    let usually = matches!(parcel.method, Method::Post | Method::Put | Method::Patch);
    if usually || !parcel.body.is_empty() {
        headers.insert(CONTENT_LENGTH, parcel.body.len().into());
    }
    let place = target.uri.authority().map_or("", |authority| authority.as_str());
    headers.insert(HOST, header_value("host", place)?);
    Ok(headers)
}

fn header_name(name: &str) -> Result<HeaderName, BadHeader> {
    HeaderName::try_from(name).map_err(|_| BadHeader(name.to_owned()))
}

fn header_value(name: &str, value: &str) -> Result<HeaderValue, BadHeader> {
    // `from_str` would refuse what is not ASCII, which HTTP only advises against.
    HeaderValue::from_bytes(value.as_bytes()).map_err(|_| BadHeader(name.to_owned()))
}

/// The headers of an answer, by their spelled names. What is not text becomes `U+FFFD`.
pub(super) fn incoming(map: &HeaderMap) -> Headers {
    let mut headers = Headers::new();
    for (name, value) in map {
        let value = String::from_utf8_lossy(value.as_bytes()).into_owned();
        headers.entry(canonical(name.as_str())).or_default().push(value);
    }
    headers
}
