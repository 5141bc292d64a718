//! What the adapters behind HTTP have in common: addresses, headers, and what is known after a call.

use std::time::Duration;

use ::http::HeaderValue;
use tashika_domain::Outcome;
use tashika_domain::outcome::{Exchange, Reason};
use tashika_domain::payment::remote::code;
use url::{Host, Url};

use crate::http::{Answer, Call, Known, NoAnswer, NotSent};
use crate::reply::Reply;

/// A page of a gateway's list is larger than one payment: a hundred of them, each with all the
/// metadata that its maker put there.
pub(super) const LIST_BODY_MAX: usize = 4 * 1024 * 1024;

/// Longest piece of a gateway's own words that is kept.
const WORDS_MAX: usize = 200;

/// Where gateways put their name for the exchange.
const REFERENCES: [&str; 2] = ["request-id", "x-request-id"];

/// Why a gateway's address cannot be used. Quotes nothing of it: it may be mistyped with a password.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    #[error("the gateway's address is not a URL")]
    NotAUrl(#[source] url::ParseError),
    #[error("the gateway's address must begin with http:// or https:// and name a host")]
    Scheme,
    #[error(
        "the gateway's address must not contain a user name, a password, a query or a fragment"
    )]
    NotPlain,
}

/// An address that requests can be built from.
pub(super) fn address(text: &str) -> Result<Url, AddressError> {
    let url = Url::parse(text).map_err(AddressError::NotAUrl)?;
    if !matches!(url.scheme(), "http" | "https") || !url.has_host() {
        return Err(AddressError::Scheme);
    }
    let plain = url.username().is_empty() && url.password().is_none();
    if !plain || url.query().is_some() || url.fragment().is_some() {
        return Err(AddressError::NotPlain);
    }
    Ok(url)
}

/// Whether nobody can listen on the way: TLS, or the way does not leave the machine.
pub(super) fn is_private(url: &Url) -> bool {
    let loopback = match url.host() {
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    };
    url.scheme() == "https" || loopback
}

/// The text as a header value, if every recipient will read back exactly this text.
pub(super) fn header(text: &str) -> Option<HeaderValue> {
    let printable = text.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
    (printable && !text.is_empty()).then(|| HeaderValue::from_str(text).ok()).flatten()
}

/// `Authorization: Bearer …`, marked so that nothing below us prints it.
pub(super) fn bearer(token: &str) -> Option<HeaderValue> {
    let mut value = header(token)
        .and_then(|token| HeaderValue::from_bytes(&[b"Bearer ", token.as_bytes()].concat()).ok())?;
    value.set_sensitive(true);
    Some(value)
}

/// From a call to a reply: `read` judges the answers, the rest is the same for every gateway.
pub(super) fn judged<T>(
    request: &str,
    call: &Call,
    read: impl FnOnce(&Answer) -> Outcome<T>,
) -> Reply<T> {
    let (outcome, said, reference) = match &call.known {
        Known::Answered(answer) => {
            (read(answer), answer.status.as_u16().to_string(), reference(answer))
        }
        Known::NotSent(why) => {
            let reason = Reason::new(code::NETWORK_ERROR, why.to_string());
            (Outcome::Busy { reason, retry_in: None }, format!("not sent: {why}"), None)
        }
        Known::NoAnswer(why) => {
            let code = match why {
                NoAnswer::Timeout(_) | NoAnswer::BodyTimeout { .. } => code::TIMEOUT,
                _ => code::UNKNOWN,
            };
            (Outcome::Lost(Reason::new(code, why.to_string())), why.to_string(), None)
        }
    };
    let exchange = Exchange {
        request: request.to_owned(),
        reply: said,
        reference,
        sent: !matches!(call.known, Known::NotSent(_)),
    };
    Reply { outcome, exchange, rtt: call.rtt }
}

/// An answer that needed no request.
pub(super) fn unasked<T>(why: &str, outcome: Outcome<T>) -> Reply<T> {
    let exchange = Exchange {
        request: format!("none: {why}"),
        reply: "nothing was asked".to_owned(),
        reference: None,
        sent: false,
    };
    Reply { outcome, exchange, rtt: Duration::ZERO }
}

/// The reply with what it really means, where it was a success.
pub(super) fn settled<T, U>(reply: Reply<T>, then: impl FnOnce(T) -> Outcome<U>) -> Reply<U> {
    let outcome = match reply.outcome {
        Outcome::Done(value) => then(value),
        Outcome::Refused(reason) => Outcome::Refused(reason),
        Outcome::Busy { reason, retry_in } => Outcome::Busy { reason, retry_in },
        Outcome::Lost(reason) => Outcome::Lost(reason),
    };
    Reply { outcome, exchange: reply.exchange, rtt: reply.rtt }
}

pub(super) fn lost<T>(why: String) -> Outcome<T> {
    Outcome::Lost(Reason::new(code::UNKNOWN, why))
}

pub(super) fn unsendable(why: &str) -> Call {
    Call { known: Known::NotSent(NotSent::Unsendable(why.to_owned())), rtt: Duration::ZERO }
}

/// The gateway's name for the exchange, if it gave one that can be shown.
fn reference(answer: &Answer) -> Option<String> {
    let id = REFERENCES.iter().find_map(|name| answer.headers.get(*name))?.to_str().ok()?.trim();
    (!id.is_empty() && id.len() <= 128).then(|| id.to_owned())
}

/// A stranger's words, shortened and without control characters: they are shown to operators.
///
/// `None` if there are none, or if they repeat our secret to us.
pub(super) fn words(said: Option<&str>, secret: &str) -> Option<String> {
    let said = said?.trim();
    if said.is_empty() || said.contains(secret) {
        return None;
    }
    Some(said.chars().filter(|letter| !letter.is_control()).take(WORDS_MAX).collect())
}

/// An id of the gateway's: kept in our rows and written into paths, so it has to be an ordinary word.
pub(super) fn is_id(text: &str) -> bool {
    let ordinary = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=255).contains(&text.len()) && text.bytes().all(ordinary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_plain_and_errors_quote_nothing() {
        for wrong in [
            "gateway.example",
            "ftp://gateway.example",
            "https://user:hunter2@gateway.example",
            "https://gateway.example/?token=hunter2",
            "https://gateway.example/#hunter2",
        ] {
            let error = address(wrong).unwrap_err();
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{wrong}");
        }
        for (url, private) in [
            ("https://gateway.example", true),
            ("http://gateway.example", false),
            ("http://127.0.0.1:8420", true),
            ("http://127.9.9.9", true),
            ("http://[::1]:1", true),
            ("http://localhost:1", true),
            ("http://localhost.example", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_private(&address(url).unwrap()), private, "{url}");
        }
    }

    #[test]
    fn a_strangers_words_are_cut_cleaned_and_never_our_secret() {
        assert_eq!(words(Some(" a\nb\u{1b}[31m "), "key").as_deref(), Some("ab[31m"));
        assert_eq!(words(Some(&"確".repeat(300)), "key").unwrap().chars().count(), WORDS_MAX);
        assert_eq!(words(Some("Invalid API key: sk_live_1"), "sk_live_1"), None);
        assert_eq!(words(Some(" "), "key"), None);
        assert_eq!(words(None, "key"), None);
    }

    #[test]
    fn bearers_do_not_print_themselves() {
        let value = bearer("hunter2").unwrap();
        assert_eq!(value, "Bearer hunter2");
        assert!(!format!("{value:?}").contains("hunter2"));
        for wrong in ["", "a b", "a\n", "鍵"] {
            assert!(bearer(wrong).is_none(), "{wrong:?}");
        }
    }
}
