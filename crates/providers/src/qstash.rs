//! The hosted QStash, for operators who publish there first.
//!
//! Called by the queue when `QUEUE_PROVIDER=qstash`. Whoever publishes sends a deduplication id, so
//! that a publish whose answer was lost can be repeated; nothing in here repeats it.

use bytes::Bytes;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use tashika_domain::message::asked::Headers;
use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::{Outcome, Timestamp};
use url::Url;

use crate::http::{Answer, Call, Client, ClientConfig, ClientError, Known, Request, retry_after};
use crate::reply::Reply;

/// A client of one account.
#[derive(Clone, Debug)]
pub struct QstashClient {
    /// Up to and without `/v2`.
    base: String,
    authorization: HeaderValue,
    client: Client,
}

/// Why there can be no client.
#[derive(Debug, thiserror::Error)]
pub enum QstashError {
    #[error("must be an http:// or https:// address")]
    Url,
    #[error("the token has characters that HTTP lacks")]
    Token,
    #[error(transparent)]
    Client(#[from] ClientError),
}

impl QstashClient {
    pub fn new(
        url: &str,
        token: &SecretString,
        config: &ClientConfig,
    ) -> Result<Self, QstashError> {
        let read: Url = url.parse().map_err(|_| QstashError::Url)?;
        let plain = read.query().is_none() && read.fragment().is_none();
        if !matches!(read.scheme(), "http" | "https") || !read.has_host() || !plain {
            return Err(QstashError::Url);
        }
        let bearer = format!("Bearer {}", token.expose_secret());
        let mut authorization = HeaderValue::from_str(&bearer).map_err(|_| QstashError::Token)?;
        authorization.set_sensitive(true);
        let base = read.as_str().trim_end_matches('/').to_owned();
        Ok(Self { base, authorization, client: Client::new(config)? })
    }

    /// Publishes once; `headers` are the `Upstash-*` ones and `Content-Type`. Done with the id that
    /// the service gave the message.
    pub async fn publish(
        &self,
        destination: &str,
        body: Bytes,
        headers: &Headers,
        now: Timestamp,
    ) -> Reply<String> {
        let (url, headers) = match (self.url(destination), self.headers(headers)) {
            (Some(url), Some(headers)) => (url, headers),
            (None, _) => return unsendable("the destination cannot be sent unchanged"),
            (_, None) => return unsendable("a header cannot be written as HTTP"),
        };
        let call = self.client.call(Request { method: Method::POST, url, headers, body }).await;
        reply(call, now)
    }

    /// The service takes the destination from the raw path. `Url` tidies paths up, so what would not
    /// survive that is not sent: it would arrive somewhere else.
    fn url(&self, destination: &str) -> Option<Url> {
        let text = format!("{}/v2/publish/{destination}", self.base);
        let url: Url = text.parse().ok()?;
        (url.as_str() == text && url.fragment().is_none()).then_some(url)
    }

    fn headers(&self, given: &Headers) -> Option<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, values) in given {
            let name = HeaderName::try_from(name).ok()?;
            for value in values {
                headers.append(&name, HeaderValue::from_bytes(value.as_bytes()).ok()?);
            }
        }
        headers.insert(AUTHORIZATION, self.authorization.clone());
        Some(headers)
    }
}

const REQUEST: &str = "POST /v2/publish";

fn unsendable(why: &str) -> Reply<String> {
    Reply {
        outcome: Outcome::Refused(Reason::new("QSTASH_UNSENDABLE", why)),
        exchange: Exchange {
            request: REQUEST.to_owned(),
            reply: why.to_owned(),
            reference: None,
            sent: false,
        },
        rtt: std::time::Duration::ZERO,
    }
}

fn reply(call: Call, now: Timestamp) -> Reply<String> {
    let Call { known, rtt } = call;
    let (outcome, reply, sent) = match known {
        Known::Answered(answer) => {
            let status = answer.status.as_u16().to_string();
            (answered(&answer, now), status, true)
        }
        Known::NotSent(why) => {
            let reason = Reason::new("QSTASH_DOWN", why.to_string());
            (Outcome::Busy { reason, retry_in: None }, why.to_string(), false)
        }
        Known::NoAnswer(why) => {
            let reason = Reason::new("QSTASH_TIMEOUT", why.to_string());
            (Outcome::Lost(reason), why.to_string(), true)
        }
    };
    let reference = match &outcome {
        Outcome::Done(id) => Some(id.clone()),
        _ => None,
    };
    Reply {
        outcome,
        exchange: Exchange { request: REQUEST.to_owned(), reply, reference, sent },
        rtt,
    }
}

fn answered(answer: &Answer, now: Timestamp) -> Outcome<String> {
    let status = answer.status.as_u16();
    let told = |code: &str| Reason::new(code, format!("QStash answered {status}{}", said(answer)));
    match status {
        200..=299 => match message_id(&answer.body) {
            Some(id) => Outcome::Done(id),
            None => Outcome::Lost(Reason::new("QSTASH_UNREADABLE", "no message id in the answer")),
        },
        401 | 403 => Outcome::Refused(told("QSTASH_UNAUTHORIZED")),
        408 | 429 | 500..=599 => Outcome::Busy {
            reason: told("QSTASH_BUSY"),
            retry_in: retry_after(&answer.headers, now),
        },
        _ => Outcome::Refused(told("QSTASH_REFUSED")),
    }
}

/// `: ` and the service's own words, if it has any.
fn said(answer: &Answer) -> String {
    #[derive(Deserialize)]
    struct Problem {
        error: String,
    }
    let problem = serde_json::from_slice::<Problem>(&answer.body);
    problem.map_or_else(|_| String::new(), |problem| format!(": {}", problem.error))
}

/// One id, or the first of those that a group of URLs gets.
fn message_id(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Published {
        message_id: String,
    }
    #[derive(Deserialize)]
    #[serde(untagged)]
    enum Answer {
        One(Published),
        Many(Vec<Published>),
    }
    let published = match serde_json::from_slice(body).ok()? {
        Answer::One(published) => published,
        Answer::Many(many) => many.into_iter().next()?,
    };
    Some(published.message_id)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(url: &str, token: &str) -> Result<QstashClient, QstashError> {
        let config = ClientConfig::with_timeout(std::time::Duration::from_secs(1));
        QstashClient::new(url, &SecretString::from(token), &config)
    }

    #[test]
    fn what_cannot_be_used_is_refused_and_tokens_are_not_printed() {
        for url in ["qstash.upstash.io", "ftp://x/", "https://x/?a", "https://x/#a", ""] {
            assert!(matches!(client(url, "t"), Err(QstashError::Url)), "{url}");
        }
        assert!(matches!(client("https://x/", "a\nb"), Err(QstashError::Token)));
        let client = client("https://x/", "hunter2").unwrap();
        assert!(!format!("{client:?}").contains("hunter2"));
    }

    #[test]
    fn destinations_survive_or_are_not_sent() {
        let client = client("https://qstash.upstash.io/", "t").unwrap();
        let url = |destination: &str| client.url(destination).map(String::from);
        for same in [
            "https://example.com/a%20b//c?x=1&y=2",
            "http://user:pw@example.com:8080/",
            "https://example.com",
            "my-group",
        ] {
            let expected = format!("https://qstash.upstash.io/v2/publish/{same}");
            assert_eq!(url(same), Some(expected));
        }
        for changed in [
            "https://example.com/a/../b",
            "https://example.com/#x",
            "https://例え.jp/",
            "http://a/ b",
        ] {
            assert_eq!(url(changed), None, "{changed}");
        }
    }

    #[test]
    fn ids_are_found_in_both_forms() {
        assert_eq!(message_id(br#"{"messageId":"msg_1","url":"x"}"#).as_deref(), Some("msg_1"));
        assert_eq!(message_id(br#"[{"messageId":"msg_2"}]"#).as_deref(), Some("msg_2"));
        for other in [&b""[..], b"[]", b"{}", b"ok"] {
            assert_eq!(message_id(other), None);
        }
    }
}
