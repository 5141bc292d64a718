//! What the targets share: a request as text, an independent opinion about signatures, and the rules that
//! every source of webhooks has to keep.
//!
//! A request is written as it travels: `name: value` lines, an empty line, the body. So seeds can be read,
//! and the fuzzer's mutations are mutations of headers. The MAC here is computed with nothing of the
//! product, so that a mistake there cannot hide itself.

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{KeyInit as _, Mac as _};
use http::{HeaderMap, HeaderName, HeaderValue};
use tashika_domain::time::Timestamp;
use tashika_providers::webhook::{GenericHmac, ID_MAX, Scheme, Source, TYPE_MAX};

pub use tashika_providers::webhook::{Algorithm, Encoding};

/// When all of this happens, in seconds since 1970. The seeds are signed for it.
pub const NOW: i64 = 1_614_265_330;
/// The secret of every source: base64 of `the fuzzer's secret`, as Standard Webhooks wants it.
pub const SECRET: &str = "whsec_dGhlIGZ1enplcidzIHNlY3JldA==";

#[must_use]
pub const fn now() -> Timestamp {
    Timestamp::from_micros(NOW * 1_000_000)
}

/// A source, made once.
pub type Lazy = LazyLock<Source>;

/// # Panics
///
/// If the scheme cannot be used.
#[must_use]
pub fn source(scheme: Scheme) -> Source {
    Source::new("fuzz", scheme).expect("a usable source")
}

#[must_use]
pub fn secrets() -> Vec<secrecy::SecretString> {
    vec!["an older secret".replace(' ', "").into(), SECRET.into()]
}

/// A request as it arrived.
#[derive(Clone, Debug, Default)]
pub struct Request {
    pub headers: HeaderMap,
    pub body: Vec<u8>,
}

impl Request {
    /// Lines that cannot be headers are left out: an HTTP server would not have let them in.
    #[must_use]
    pub fn parse(data: &[u8]) -> Self {
        let end = data.windows(2).position(|two| two == b"\n\n");
        let (head, body) = end.map_or((data, &[][..]), |end| (&data[..end], &data[end + 2..]));
        let mut headers = HeaderMap::new();
        for line in head.split(|byte| *byte == b'\n') {
            let Some(colon) = line.iter().position(|byte| *byte == b':') else { continue };
            let (name, value) = (&line[..colon], line[colon + 1..].trim_ascii());
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name), HeaderValue::from_bytes(value))
            {
                headers.append(name, value);
            }
        }
        Self { headers, body: body.to_vec() }
    }

    /// The header's text, if there is exactly one.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.get_all(name).iter();
        let only = values.next()?;
        if values.next().is_some() { None } else { only.to_str().ok() }
    }

    /// The same request with this header and no other of its name; `None` if HTTP has no such value.
    #[must_use]
    pub fn with(&self, name: &'static str, value: &str) -> Option<Self> {
        let mut changed = self.clone();
        changed.headers.remove(name);
        changed.headers.insert(name, HeaderValue::from_str(value).ok()?);
        Some(changed)
    }
}

/// HMAC over the parts, by other means than the product's.
#[must_use]
pub fn mac(algorithm: Algorithm, key: &[u8], parts: &[&[u8]]) -> Vec<u8> {
    macro_rules! hmac {
        ($hash:ty) => {{
            let mut mac = hmac::Hmac::<$hash>::new_from_slice(key).expect("any length");
            parts.iter().for_each(|part| mac.update(part));
            mac.finalize().into_bytes().to_vec()
        }};
    }
    match algorithm {
        Algorithm::Sha1 => hmac!(sha1::Sha1),
        Algorithm::Sha256 => hmac!(sha2::Sha256),
        Algorithm::Sha512 => hmac!(sha2::Sha512),
    }
}

/// HMAC-SHA256 under the text of [`SECRET`].
#[must_use]
pub fn mac256(parts: &[&[u8]]) -> Vec<u8> {
    mac(Algorithm::Sha256, SECRET.as_bytes(), parts)
}

#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[must_use]
pub fn base64(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Whether a header has the MAC in it, in either case. Padding of base64 carries nothing.
#[must_use]
pub fn holds(header: &str, encoding: Encoding, mac: &[u8]) -> bool {
    match encoding {
        Encoding::Hex => header.to_ascii_lowercase().contains(&hex(mac)),
        Encoding::Base64 => header.contains(base64(mac).trim_end_matches('=')),
    }
}

/// Whatever comes: no panic, no request that is accepted without the true MAC, no event that cannot be kept.
///
/// `proof` says, by other means than the product's, whether the request carries what it has to.
///
/// # Panics
///
/// When a rule is broken: that is what the fuzzer looks for.
pub fn check(source: &Source, request: &Request, proof: impl Fn(&Request) -> bool) {
    let Request { headers, body } = request;
    if source.verify(headers, body, now()).is_ok() {
        assert!(proof(request), "accepted without proof");
    }
    if let Ok(event) = source.read(headers, body) {
        assert!((1..=ID_MAX).contains(&event.id.len()), "an id of {}", event.id.len());
        assert!((1..=TYPE_MAX).contains(&event.kind.len()), "a type of {}", event.kind.len());
        assert!(event.payload.value(body).is_object());
    }
    if let Some(id) = source.claimed_id(headers) {
        assert!(id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'@'), "{id}");
    }
}

/// A request that was signed as it should be is accepted, and not any more when one bit of the body has
/// changed, or a byte was added.
///
/// # Panics
///
/// When it is not so.
pub fn check_signed(source: &Source, signed: &Request) {
    let Request { headers, body } = signed;
    assert_eq!(source.verify(headers, body, now()), Ok(()), "{headers:?}");
    let mut changed = body.clone();
    changed.push(b' ');
    assert!(source.verify(headers, &changed, now()).is_err(), "a longer body was accepted");
    changed.pop();
    if let Some(byte) = changed.last_mut() {
        *byte ^= 1;
        assert!(source.verify(headers, &changed, now()).is_err(), "another body was accepted");
    }
}

/// A generic sender whose header is `x-signature`, signing with the text of [`SECRET`].
#[must_use]
pub fn generic() -> GenericHmac {
    GenericHmac::new("x-signature", secrets())
}
