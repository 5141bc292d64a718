//! What a delivery says and hears in the language of QStash: signatures, and wishes in answers.
//!
//! Receivers check signatures with Upstash's own libraries, so every detail here is theirs: the
//! claims, their types, and that none of them lies in the receiver's future.

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::{URL_SAFE, URL_SAFE_NO_PAD};
use hmac::{Hmac, KeyInit as _, Mac as _};
use serde::Serialize;
use sha2::{Digest as _, Sha256};
use tashika_domain::Timestamp;
use tashika_domain::message::asked::Headers;

use crate::http::http_date;

/// How long a signature holds.
const VALID_FOR_S: i64 = 300;

/// Longest wait that a receiver can ask for. What is beyond is not shortened but ignored, as QStash
/// has it.
pub const RETRY_IN_MAX: Duration = Duration::from_hours(24);

/// Headers that ask for a wait; the first that can be read counts.
const WAITS: [&str; 4] =
    ["Retry-After", "X-RateLimit-Reset", "X-RateLimit-Reset-Requests", "X-RateLimit-Reset-Tokens"];

/// In the order of the real service, so that tokens can be compared.
#[derive(Serialize)]
struct Claims<'a> {
    iss: &'a str,
    sub: &'a str,
    exp: i64,
    nbf: i64,
    iat: i64,
    jti: &'a str,
    body: &'a str,
}

/// The `Upstash-Signature` of a delivery: a JWT over its URL and the digest of its body.
///
/// `key` is the whole text, `sig_` included. `jti` tells tokens apart (`jwt_…`).
#[must_use]
pub fn signature(key: &str, url: &str, body: &[u8], now: Timestamp, jti: &str) -> String {
    // Rounded down: the Python library refuses a token from the future, be it by a millisecond. For
    // clocks that differ, `nbf` is zero.
    let iat = now.as_micros().div_euclid(1_000_000);
    let claims = Claims {
        iss: "Upstash",
        sub: url,
        exp: iat.saturating_add(VALID_FOR_S),
        nbf: 0,
        iat,
        jti,
        body: &URL_SAFE.encode(Sha256::digest(body)),
    };
    let claims = serde_json::to_vec(&claims).expect("texts and numbers can be written as JSON");
    let head = URL_SAFE_NO_PAD.encode(r#"{"alg":"HS256","typ":"JWT"}"#);
    let signed = format!("{head}.{}", URL_SAFE_NO_PAD.encode(claims));
    let mut mac =
        Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of every length");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", URL_SAFE_NO_PAD.encode(mac.finalize().into_bytes()))
}

/// How long a receiver asks us to wait before the next attempt, counted from `now`.
///
/// Seconds, an HTTP date, or a Go duration (`6m5s`). Zero is "at once". `X-RateLimit-Reset` is read
/// in the same way; where it is a Unix timestamp, as some write it, it is far beyond the limit and
/// thus ignored.
#[must_use]
pub fn retry_in(headers: &Headers, now: Timestamp) -> Option<Duration> {
    WAITS.iter().find_map(|name| {
        let text = header(headers, name)?.trim();
        let wait = seconds(text).or_else(|| go_duration(text)).or_else(|| {
            let at = http_date(text)?;
            Some(at.since(now))
        })?;
        (wait <= RETRY_IN_MAX).then_some(wait)
    })
}

/// Whether a receiver says that the message must not be tried again.
#[must_use]
pub fn is_final(status: u16, headers: &Headers) -> bool {
    let told = header(headers, "Upstash-NonRetryable-Error");
    status == 489 && told.is_some_and(|value| value.trim().eq_ignore_ascii_case("true"))
}

fn header<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
    let (_, values) = headers.iter().find(|(key, _)| key.eq_ignore_ascii_case(name))?;
    values.first().map(String::as_str)
}

fn seconds(text: &str) -> Option<Duration> {
    decimal(text, 1_000_000_000)
}

/// `1h15m30.5s`, as Go reads it; a sign other than `+` would be a wait into the past.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.strip_prefix('+').unwrap_or(text);
    let mut total = Duration::ZERO;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let number = rest.find(|letter: char| !letter.is_ascii_digit() && letter != '.')?;
        let (number, tail) = rest.split_at(number);
        let unit = tail.find(|letter: char| letter.is_ascii_digit() || letter == '.');
        let (unit, tail) = tail.split_at(unit.unwrap_or(tail.len()));
        let nanos = match unit {
            "ns" => 1,
            // Two letters look like this: the micro sign, and the Greek one.
            "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
            "ms" => 1_000_000,
            "s" => 1_000_000_000,
            "m" => 60_000_000_000,
            "h" => 3_600_000_000_000,
            _ => return None,
        };
        total = total.checked_add(decimal(number, nanos)?)?;
        rest = tail;
    }
    Some(total)
}

/// `12`, `1.5`, `.5` or `5.`, in units of so many nanoseconds. Too large is as long as can be said.
fn decimal(text: &str, unit: u64) -> Option<Duration> {
    let (whole, part) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || (whole.is_empty() && part.is_empty()) {
        return None;
    }
    // Twelve digits are finer than a nanosecond for every unit but the hour, where they are as fine.
    let part = &part[..part.len().min(12)];
    let scale = 10_u64.pow(u32::try_from(part.len()).ok()?);
    let fraction = match part {
        "" => 0,
        digits => u128::from(digits.parse::<u64>().ok()?) * u128::from(unit) / u128::from(scale),
    };
    let whole = match whole {
        "" => 0,
        digits => digits.parse::<u64>().unwrap_or(u64::MAX),
    };
    let nanos = u128::from(whole) * u128::from(unit) + fraction;
    Some(u64::try_from(nanos).map_or(Duration::MAX, Duration::from_nanos))
}

#[cfg(test)]
mod tests;
