//! Shotstack: submitting a render, and what has become of it.
//!
//! Asked by the engine also because Shotstack does not sign its callbacks: anybody who knows our
//! address can send one, so whatever a callback says is asked for again here, with our own key. `GET
//! {base}/render/{id}`, a read: repeating it is harmless, and none that was lost leaves doubt. `POST
//! {base}/render` has no key: one that was lost may have been taken, and nobody can say.
//!
//! It decides nothing but whether an answer is one.

use std::fmt;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::Value;
use tashika_domain::outcome::{Exchange, Outcome, Reason};
use tashika_domain::time::Timestamp;
use url::Url;

use crate::http::{Answer, Client, ClientConfig, ClientError, Known, Request, retry_after};
use crate::reply::Reply;

/// Where Shotstack is, for production; the sandbox is at `…/edit/stage`.
pub const API_BASE: &str = "https://api.shotstack.io/edit/v1";

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");

/// Their ids are UUIDs. What is asked for goes into an address, and comes from strangers.
const ID_MAX: usize = 64;

/// Where to ask, and as whom.
#[derive(Clone, Debug)]
pub struct ShotstackConfig {
    pub api_base: String,
    pub api_key: SecretString,
    pub client: ClientConfig,
}

/// Why Shotstack cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ShotstackError {
    #[error("the base must be an http:// or https:// address without a query")]
    Base,
    #[error("the key is empty, or cannot be sent as a header")]
    Key,
    #[error(transparent)]
    Client(#[from] ClientError),
}

/// A render as Shotstack has it.
#[derive(Clone, Debug, PartialEq)]
pub enum Render {
    /// Its status (`queued`, `fetching`, `rendering`, `saving`, `done`, `failed`), and all that was said.
    Known { status: String, answer: Value },
    /// There is none of this id.
    Unknown,
}

/// Asks Shotstack.
pub struct Shotstack {
    base: Url,
    key: HeaderValue,
    client: Client,
}

impl fmt::Debug for Shotstack {
    /// Without the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shotstack").field("base", &self.base.as_str()).finish_non_exhaustive()
    }
}

impl Shotstack {
    pub fn new(config: &ShotstackConfig) -> Result<Self, ShotstackError> {
        let base: Url = config.api_base.parse().map_err(|_| ShotstackError::Base)?;
        let plain = base.query().is_none() && base.fragment().is_none();
        if !matches!(base.scheme(), "http" | "https") || base.host().is_none() || !plain {
            return Err(ShotstackError::Base);
        }
        let key = config.api_key.expose_secret();
        let mut header = HeaderValue::from_str(key).map_err(|_| ShotstackError::Key)?;
        if key.trim().is_empty() {
            return Err(ShotstackError::Key);
        }
        header.set_sensitive(true);
        Ok(Self { base, key: header, client: Client::new(&config.client)? })
    }

    /// What has become of the render `id`.
    pub async fn render(&self, id: &str, now: Timestamp) -> Reply<Render> {
        let Some(url) = self.address(id) else {
            let reply = "not asked: no render has such an id".to_owned();
            let exchange = Exchange { reply, ..Exchange::default() };
            return Reply {
                outcome: Outcome::Done(Render::Unknown),
                exchange,
                rtt: std::time::Duration::ZERO,
            };
        };
        let mut headers = HeaderMap::new();
        headers.insert(API_KEY, self.key.clone());
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json"));
        let request = Request { method: Method::GET, url, headers, body: Bytes::new() };
        let call = self.client.call(request).await;
        let (outcome, reply, sent) = match call.known {
            Known::Answered(answer) => {
                let told = answer.status.as_u16().to_string();
                (read(&answer, id, now), told, true)
            }
            Known::NotSent(why) => {
                (again("SHOTSTACK_DOWN", why.to_string()), why.to_string(), false)
            }
            Known::NoAnswer(why) => {
                (again("SHOTSTACK_TIMEOUT", why.to_string()), why.to_string(), true)
            }
        };
        let request = format!("GET /render/{id}");
        let reference = Some(id.to_owned());
        Reply { outcome, exchange: Exchange { request, reply, reference, sent }, rtt: call.rtt }
    }

    /// Submits a description of a video; done with Shotstack's id of the render.
    pub async fn submit(&self, edit: &Value, now: Timestamp) -> Reply<String> {
        const REQUEST: &str = "POST /render";
        let mut url = self.base.clone();
        if let Ok(mut path) = url.path_segments_mut() {
            path.pop_if_empty().push("render");
        }
        let mut headers = HeaderMap::new();
        headers.insert(API_KEY, self.key.clone());
        for name in [http::header::ACCEPT, http::header::CONTENT_TYPE] {
            headers.insert(name, HeaderValue::from_static("application/json"));
        }
        let body = Bytes::from(edit.to_string());
        let call = self.client.call(Request { method: Method::POST, url, headers, body }).await;
        let (outcome, reply, sent) = match call.known {
            Known::Answered(answer) => {
                let told = answer.status.as_u16().to_string();
                (taken(&answer, now), told, true)
            }
            Known::NotSent(why) => {
                (again("SHOTSTACK_DOWN", why.to_string()), why.to_string(), false)
            }
            Known::NoAnswer(why) => {
                let reason = Reason::new("SHOTSTACK_TIMEOUT", why.to_string());
                (Outcome::Lost(reason), why.to_string(), true)
            }
        };
        let reference = match &outcome {
            Outcome::Done(id) => Some(id.clone()),
            _ => None,
        };
        let exchange = Exchange { request: REQUEST.to_owned(), reply, reference, sent };
        Reply { outcome, exchange, rtt: call.rtt }
    }

    fn address(&self, id: &str) -> Option<Url> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if !(1..=ID_MAX).contains(&id.len()) || !id.bytes().all(allowed) {
            return None;
        }
        let mut url = self.base.clone();
        url.path_segments_mut().ok()?.pop_if_empty().extend(["render", id]);
        Some(url)
    }
}

/// A read that brought nothing can be made again, whatever the reason.
fn again<T>(code: &str, message: String) -> Outcome<T> {
    Outcome::Busy { reason: Reason::new(code, message), retry_in: None }
}

fn read(answer: &Answer, id: &str, now: Timestamp) -> Outcome<Render> {
    let told = answer.status.as_u16();
    match answer.status {
        StatusCode::OK => render(&answer.body, id).map_or_else(
            || again("SHOTSTACK_UNREADABLE", "200, but not the render that was asked for".into()),
            Outcome::Done,
        ),
        StatusCode::NOT_FOUND | StatusCode::GONE => Outcome::Done(Render::Unknown),
        // Somebody will set the right key.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            again("SHOTSTACK_UNAUTHORIZED", format!("Shotstack does not take our key ({told})"))
        }
        status if status.is_server_error() || status == StatusCode::TOO_MANY_REQUESTS => {
            let reason = Reason::new("SHOTSTACK_BUSY", format!("Shotstack answered {told}"));
            Outcome::Busy { reason, retry_in: retry_after(&answer.headers, now) }
        }
        _ => {
            Outcome::Refused(Reason::new("SHOTSTACK_REFUSED", format!("Shotstack answered {told}")))
        }
    }
}

/// What an answer to a submission says. `{"success": true, "response": {"id": …}}` is a yes.
fn taken(answer: &Answer, now: Timestamp) -> Outcome<String> {
    let told = answer.status.as_u16();
    let lost = |why: String| Outcome::Lost(Reason::new("SHOTSTACK_UNKNOWN", why));
    match answer.status {
        status if status.is_success() => {
            let document: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
            let id = document.pointer("/response/id").and_then(Value::as_str);
            let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
            match id.filter(|id| (1..=ID_MAX).contains(&id.len()) && id.bytes().all(allowed)) {
                Some(id) => Outcome::Done(id.to_owned()),
                None => lost(format!("Shotstack answered {told} without a render's id")),
            }
        }
        // Somebody will set the right key.
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
            again("SHOTSTACK_UNAUTHORIZED", format!("Shotstack does not take our key ({told})"))
        }
        // Turned away at the door.
        StatusCode::TOO_MANY_REQUESTS => {
            let reason = Reason::new("SHOTSTACK_BUSY", format!("Shotstack answered {told}"));
            Outcome::Busy { reason, retry_in: retry_after(&answer.headers, now) }
        }
        status if status.is_client_error() && status != StatusCode::REQUEST_TIMEOUT => {
            let words = serde_json::from_slice::<Value>(&answer.body).unwrap_or_default();
            let words = words.get("message").and_then(Value::as_str).unwrap_or_default();
            let words: String = words.chars().filter(|c| !c.is_control()).take(200).collect();
            let text = format!("Shotstack answered {told}: {words}");
            Outcome::Refused(Reason::new("SHOTSTACK_REFUSED", text))
        }
        _ => lost(format!("Shotstack answered {told}")),
    }
}

/// Reads an answer, for the fuzzer.
#[cfg(fuzzing)]
#[must_use]
pub fn read_all(body: &[u8], id: &str) -> Option<Render> {
    render(body, id)
}

/// `{"success": true, "response": {"id": …, "status": …, "url": …, "error": …}}`
fn render(body: &[u8], id: &str) -> Option<Render> {
    let mut document: Value = serde_json::from_slice(body).ok()?;
    let answer = document.get_mut("response")?.take();
    let status = answer.get("status")?.as_str()?.to_owned();
    (answer.get("id")?.as_str()? == id).then_some(Render::Known { status, answer })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn config(api_base: &str, api_key: &str) -> ShotstackConfig {
        let client = ClientConfig::with_timeout(Duration::from_secs(1));
        ShotstackConfig { api_base: api_base.into(), api_key: api_key.into(), client }
    }

    #[test]
    fn what_cannot_be_asked_is_refused_at_the_start() {
        for base in ["", "api.shotstack.io", "ftp://a/b", "https://a/b?c", "https://a/#b"] {
            let refused = Shotstack::new(&config(base, "k"));
            assert!(matches!(refused, Err(ShotstackError::Base)), "{base}");
        }
        for key in ["", " ", "a\nb"] {
            let refused = Shotstack::new(&config(API_BASE, key));
            assert!(matches!(refused, Err(ShotstackError::Key)), "{key:?}");
        }
        let said = format!("{:?}", Shotstack::new(&config(API_BASE, "hunter2")).unwrap());
        assert!(said.contains("api.shotstack.io") && !said.contains("hunter2"), "{said}");
    }

    #[test]
    fn a_strangers_id_cannot_become_another_address() {
        let asked = |base: &str, id: &str| {
            let url = Shotstack::new(&config(base, "k")).unwrap().address(id);
            url.map(|url| url.to_string())
        };
        let expected = Some("https://a/edit/v1/render/0-a".to_owned());
        assert_eq!(asked("https://a/edit/v1", "0-a"), expected);
        assert_eq!(asked("https://a/edit/v1/", "0-a"), expected);
        for id in ["", "..", ".", "a/b", "a?b", "a#b", "a%2fb", "a b", "é", &"a".repeat(65)] {
            assert_eq!(asked("https://a", id), None, "{id}");
        }
    }

    #[test]
    fn only_the_render_that_was_asked_for_is_an_answer() {
        let good = br#"{"success":true,"response":{"id":"r","status":"done","url":"u"}}"#;
        let Some(Render::Known { status, answer }) = render(good, "r") else { panic!("readable") };
        assert_eq!((status.as_str(), &answer["url"]), ("done", &Value::from("u")));
        assert_eq!(render(good, "s"), None);
        for bad in [&b""[..], b"{}", b"[]", br#"{"response":{"id":"r"}}"#, br#"{"response":null}"#]
        {
            assert_eq!(render(bad, "r"), None);
        }
    }
}
