//! A destination, taken apart without touching it.
//!
//! The path and query go onto the wire byte for byte: the receiver may have signed, hashed or routed
//! by them, and the delivery's own signature names the URL as it was given. URL libraries tidy up
//! (`/a/../b` becomes `/b`, a space becomes `%20`), so one is asked only about the host, where tidying
//! is the point: the guard has to see the address that is dialled.

use std::cell::RefCell;
use std::collections::HashMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::uri::{Authority, PathAndQuery, Scheme};
use http::{HeaderValue, Uri};
use url::{Host, Url};

/// Where a request goes.
#[derive(Clone, Debug)]
pub struct Target {
    /// Scheme, host and port as they are dialled; path and query as they were given.
    pub uri: Uri,
    pub host: Host<String>,
    /// Of `user:password@`, which is not sent in any other way.
    pub authorization: Option<HeaderValue>,
}

/// Why a text is not a destination. Says nothing of the text, which may hold secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadUrl {
    #[error("invalid destination url: endpoint has invalid scheme, add http:// or https://")]
    Scheme,
    #[error("invalid destination url: endpoint has invalid host or port")]
    Host,
    #[error(
        "invalid destination url: endpoint has characters in its path or query that HTTP lacks"
    )]
    Target,
}

impl Target {
    /// Reads a destination.
    pub fn parse(url: &str) -> Result<Self, BadUrl> {
        let (scheme, rest) = url.split_once("://").ok_or(BadUrl::Scheme)?;
        let scheme = match scheme {
            text if text.eq_ignore_ascii_case("http") => Scheme::HTTP,
            text if text.eq_ignore_ascii_case("https") => Scheme::HTTPS,
            _ => return Err(BadUrl::Scheme),
        };
        let (rest, _fragment) = rest.split_once('#').unwrap_or((rest, ""));
        let (authority, target) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        // The library below drops tabs and line ends, and takes a backslash for the start of the
        // path; nobody who means well writes them here.
        if authority.bytes().any(|byte| byte <= b' ' || byte == b'\\' || byte == 0x7f) {
            return Err(BadUrl::Host);
        }
        let (user, place) = match authority.rsplit_once('@') {
            Some((user, place)) => (Some(user), place),
            None => (None, authority),
        };
        let Place { host, authority } = Place::read(format!("{scheme}://{place}/"))?;
        Ok(Self {
            uri: uri(scheme, authority, target)?,
            host,
            authorization: user.filter(|user| !user.is_empty()).map(basic).transpose()?,
        })
    }
}

thread_local! {
    /// Places that were read before: messages go to few of them, and reading one takes longer than all
    /// the rest of a URL.
    static READ: RefCell<HashMap<String, Place>> = RefCell::default();
}
/// Places that a thread remembers, at most, and how long they may be.
const REMEMBERED: usize = 256;
const REMEMBERED_LENGTH: usize = 512;

/// Host and port, as they are dialled.
#[derive(Clone)]
struct Place {
    host: Host<String>,
    authority: Authority,
}

impl Place {
    /// Reads a URL that has no path.
    fn read(root: String) -> Result<Self, BadUrl> {
        if let Some(known) = READ.with_borrow(|known| known.get(&root).cloned()) {
            return Ok(known);
        }
        let read = Url::parse(&root).map_err(|_| BadUrl::Host)?;
        let host = read.host().ok_or(BadUrl::Host)?.to_owned();
        let authority = match read.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.to_string(),
        };
        let authority = Authority::try_from(authority).map_err(|_| BadUrl::Host)?;
        let place = Self { host, authority };
        if root.len() <= REMEMBERED_LENGTH {
            READ.with_borrow_mut(|known| {
                if known.len() >= REMEMBERED {
                    known.clear();
                }
                known.insert(root, place.clone());
            });
        }
        Ok(place)
    }
}

fn uri(scheme: Scheme, authority: Authority, target: &str) -> Result<Uri, BadUrl> {
    let target = if target.starts_with('/') { target.to_owned() } else { format!("/{target}") };
    let mut parts = http::uri::Parts::default();
    parts.scheme = Some(scheme);
    parts.authority = Some(authority);
    parts.path_and_query = Some(PathAndQuery::try_from(target).map_err(|_| BadUrl::Target)?);
    Uri::from_parts(parts).map_err(|_| BadUrl::Target)
}

/// `Authorization` for `user:password`, both percent-decoded.
fn basic(user: &str) -> Result<HeaderValue, BadUrl> {
    let (name, password) = user.split_once(':').unwrap_or((user, ""));
    let mut plain = percent_decoded(name);
    plain.push(b':');
    plain.extend(percent_decoded(password));
    let mut value = HeaderValue::from_str(&format!("Basic {}", STANDARD.encode(plain)))
        .map_err(|_| BadUrl::Host)?;
    value.set_sensitive(true);
    Ok(value)
}

/// A `%` that starts no escape stands for itself.
fn percent_decoded(text: &str) -> Vec<u8> {
    let bytes = text.as_bytes();
    let digit = |at: usize| bytes.get(at).and_then(|byte| char::from(*byte).to_digit(16));
    let mut plain = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let escaped = (bytes[at] == b'%')
            .then(|| u8::try_from(digit(at + 1)? * 16 + digit(at + 2)?).ok())
            .flatten();
        plain.push(escaped.unwrap_or(bytes[at]));
        at += if escaped.is_some() { 3 } else { 1 };
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_host_is_tidied() {
        for (url, expected) in [
            ("https://example.com", "https://example.com/"),
            ("HTTPS://Example.COM:443/A", "https://example.com/A"),
            ("http://example.com:80?x=1", "http://example.com/?x=1"),
            ("http://example.com:8080/#top", "http://example.com:8080/"),
            ("http://example.com/a/../b//./c", "http://example.com/a/../b//./c"),
            ("http://example.com/?a=?&b=/", "http://example.com/?a=?&b=/"),
            ("http://u:p@example.com/x@y", "http://example.com/x@y"),
            ("http://example.com?u@v", "http://example.com/?u@v"),
            ("http://確か.example/", "http://xn--u8jz49s.example/"),
            ("http://[2001:DB8::0:1]:8080/", "http://[2001:db8::1]:8080/"),
            ("http://0x7f.1/", "http://127.0.0.1/"),
            ("http://example.com/|{}\"^'", "http://example.com/|{}\"^'"),
            ("http://example.com/確か", "http://example.com/確か"),
        ] {
            assert_eq!(Target::parse(url).unwrap().uri.to_string(), expected, "{url}");
        }
    }

    #[test]
    fn what_cannot_be_sent_is_told_apart() {
        for (url, why) in [
            ("example.com", BadUrl::Scheme),
            ("ftp://example.com/", BadUrl::Scheme),
            ("https:/example.com/", BadUrl::Scheme),
            ("my-topic", BadUrl::Scheme),
            ("http://", BadUrl::Host),
            ("http:///path", BadUrl::Host),
            ("http://?x", BadUrl::Host),
            ("http://a b/", BadUrl::Host),
            ("http://a\\b@127.0.0.1/", BadUrl::Host),
            ("http://exa\tmple.com/", BadUrl::Host),
            ("http://example.com:99999/", BadUrl::Host),
            ("http://[::1/", BadUrl::Host),
            ("http://256.256.256.256/", BadUrl::Host),
            ("http://example.com/a b", BadUrl::Target),
            ("http://example.com/a\r\nHost: b", BadUrl::Target),
            ("http://example.com/?a\0", BadUrl::Target),
            ("http://example.com/<a>", BadUrl::Target),
            ("http://example.com/?a=\"b\"", BadUrl::Target),
        ] {
            assert_eq!(Target::parse(url).map(|target| target.uri), Err(why), "{url}");
        }
    }

    #[test]
    fn passwords_are_decoded_and_never_printed() {
        let target = Target::parse("http://us%65r:p%40%3a%zz@example.com/").unwrap();
        let value = target.authorization.clone().unwrap();
        assert_eq!(value, format!("Basic {}", STANDARD.encode("user:p@:%zz")));
        assert!(!format!("{target:?}").contains("Basic"), "{target:?}");
        let nameless = Target::parse("http://user@example.com/").unwrap();
        assert_eq!(nameless.authorization.unwrap(), format!("Basic {}", STANDARD.encode("user:")));
        assert!(Target::parse("http://@example.com/").unwrap().authorization.is_none());
    }
}
