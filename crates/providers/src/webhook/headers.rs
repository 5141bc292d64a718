//! Headers that count, and the times in them.

use std::time::Duration;

use http::HeaderMap;
use tashika_domain::time::Timestamp;
use tashika_domain::webhook::is_plain_id;

use super::Refused;

pub(super) const MISSING: &str = "missing header";
pub(super) const TWICE: &str = "header sent twice";
pub(super) const MALFORMED: &str = "malformed header";
pub(super) const NO_MATCH: &str = "no matching signature";
pub(super) const TOO_OLD: &str = "timestamp too old";
pub(super) const TOO_NEW: &str = "timestamp in the future";

/// The header's only value; an empty one is none, as the reference libraries have it.
///
/// A second value is refused: a proxy and we might pick different ones.
pub(super) fn only<'a>(
    headers: &'a HeaderMap,
    name: &str,
) -> Result<Option<&'a str>, &'static str> {
    let mut values = headers.get_all(name).iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    if values.next().is_some() {
        return Err(TWICE);
    }
    let text = value.to_str().map_err(|_| MALFORMED)?;
    Ok(Some(text).filter(|text| !text.is_empty()))
}

/// A header that the signature needs.
pub(super) fn signed<'a>(headers: &'a HeaderMap, name: &str) -> Result<&'a str, Refused> {
    only(headers, name).and_then(|value| value.ok_or(MISSING)).map_err(Refused::signature)
}

/// A header that is part of the event.
pub(super) fn told<'a>(headers: &'a HeaderMap, name: &str) -> Result<Option<&'a str>, Refused> {
    only(headers, name).map_err(Refused::payload)
}

/// What a request calls itself, for the log of a request that was refused: nothing has been proven, so
/// only what looks like an id, and nothing that could be an address or a sentence.
pub(super) fn claimed<'a>(headers: &'a HeaderMap, name: &str) -> Option<&'a str> {
    only(headers, name).ok().flatten().filter(|text| is_plain_id(text))
}

/// Digits and nothing else: what other parsers make of signs, spaces and fractions differs.
pub(super) fn seconds(text: &str) -> Option<Timestamp> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds: i64 = digits.then(|| text.parse().ok())??;
    seconds.checked_mul(1_000_000).map(Timestamp::from_micros)
}

pub(super) fn not_too_old(
    at: Timestamp,
    now: Timestamp,
    tolerance: Duration,
) -> Result<(), Refused> {
    if !tolerance.is_zero() && now.since(at) > tolerance {
        return Err(Refused::signature(TOO_OLD));
    }
    Ok(())
}

/// Neither too old nor from the future.
pub(super) fn fresh(at: Timestamp, now: Timestamp, tolerance: Duration) -> Result<(), Refused> {
    not_too_old(at, now, tolerance)?;
    if !tolerance.is_zero() && at.since(now) > tolerance {
        return Err(Refused::signature(TOO_NEW));
    }
    Ok(())
}
