//! Signing requests with a shared secret: HMAC-SHA256 over `method|path|query|body|ts|nonce`.
//!
//! Used by the HTTP broker, and by whoever stands in for a broker and wants to check what it was
//! sent. The string is unambiguous although the body may contain `|`: method, path and query come
//! before it and never do (the signer percent-encodes), timestamp and nonce come after it and never
//! do. Comparison takes the same time for every wrong signature. Freshness of the timestamp and
//! uniqueness of the nonce are for the receiver to check.

use std::sync::atomic::{AtomicU64, Ordering};

use hmac::{Hmac, KeyInit as _, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha2::Sha256;

/// What is signed.
#[derive(Clone, Copy, Debug)]
pub struct Signed<'a> {
    /// Upper case.
    pub method: &'a str,
    /// As written in the request line, percent-encoded.
    pub path: &'a str,
    /// Without the `?`; empty if there is none.
    pub query: &'a str,
    /// As sent, byte for byte.
    pub body: &'a [u8],
    /// Milliseconds since 1970.
    pub timestamp_ms: i64,
    pub nonce: &'a str,
}

/// The signature, in lower-case hexadecimal.
#[must_use]
pub fn sign(secret: &SecretString, signed: &Signed<'_>) -> String {
    hex(&mac(secret, signed).finalize().into_bytes())
}

/// Whether `signature` (hexadecimal) is the signature of `signed`.
#[must_use]
pub fn verify(secret: &SecretString, signed: &Signed<'_>, signature: &str) -> bool {
    unhex(signature).is_some_and(|bytes| mac(secret, signed).verify_slice(&bytes).is_ok())
}

fn mac(secret: &SecretString, signed: &Signed<'_>) -> Hmac<Sha256> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes())
        .expect("HMAC takes keys of every length");
    for part in [signed.method, signed.path, signed.query] {
        mac.update(part.as_bytes());
        mac.update(b"|");
    }
    mac.update(signed.body);
    mac.update(format!("|{}|{}", signed.timestamp_ms, signed.nonce).as_bytes());
    mac
}

/// Numbers used once: a prefix for the process and a counter.
///
/// The prefix is given, not drawn here, so that a run can be repeated exactly. Whoever starts the
/// process draws it at random; two processes with the same prefix would repeat each other's nonces.
#[derive(Debug)]
pub struct Nonces {
    prefix: [u8; 8],
    next: AtomicU64,
}

impl Nonces {
    #[must_use]
    pub const fn new(prefix: [u8; 8]) -> Self {
        Self { prefix, next: AtomicU64::new(0) }
    }

    /// 32 hexadecimal digits, different from all before.
    #[must_use]
    pub fn draw(&self) -> String {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = hex(&self.prefix);
        text.push_str(&hex(&count.to_be_bytes()));
        text
    }
}

pub(crate) fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len() * 2);
    for nibble in bytes.iter().flat_map(|byte| [byte >> 4, byte & 15]) {
        text.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
    }
    text
}

pub(crate) fn unhex(text: &str) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    (0..text.len()).step_by(2).map(|at| u8::from_str_radix(&text[at..at + 2], 16).ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIGNED: Signed<'_> = Signed {
        method: "POST",
        path: "/v1/orders",
        query: "",
        body: br#"{"a":"|"}"#,
        timestamp_ms: 1_700_000_000_123,
        nonce: "00",
    };

    fn secret() -> SecretString {
        SecretString::from("s3cret")
    }

    #[test]
    fn agrees_with_another_implementation() {
        // printf 'POST|/v1/orders||{"a":"|"}|1700000000123|00' | openssl dgst -sha256 -hmac s3cret
        assert_eq!(
            sign(&secret(), &SIGNED),
            "77efa773749d7a3549ffaea55ec713ea2bdc3446f8f78f54785566c287922eab"
        );
    }

    #[test]
    fn every_part_counts() {
        let signature = sign(&secret(), &SIGNED);
        assert!(verify(&secret(), &SIGNED, &signature));
        assert!(verify(&secret(), &SIGNED, &signature.to_uppercase()));
        for other in [
            Signed { method: "GET", ..SIGNED },
            Signed { path: "/v1/order", ..SIGNED },
            Signed { query: "a=1", ..SIGNED },
            Signed { body: b"{}", ..SIGNED },
            Signed { timestamp_ms: 1_700_000_000_124, ..SIGNED },
            Signed { nonce: "01", ..SIGNED },
        ] {
            assert!(!verify(&secret(), &other, &signature), "{other:?}");
        }
        assert!(!verify(&SecretString::from("other"), &SIGNED, &signature));
    }

    #[test]
    fn what_is_not_a_signature_is_refused() {
        let signature = sign(&secret(), &SIGNED);
        for wrong in ["", "zz", "確", &signature[2..], &format!("{signature}00")] {
            assert!(!verify(&secret(), &SIGNED, wrong), "{wrong}");
        }
    }

    #[test]
    fn nonces_do_not_repeat() {
        let nonces = Nonces::new([0xab; 8]);
        assert_eq!(nonces.draw(), "abababababababab0000000000000000");
        assert_eq!(nonces.draw(), "abababababababab0000000000000001");
    }
}
