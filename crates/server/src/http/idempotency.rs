//! The `Idempotency-Key` header, as callers write it and as answers mention it.

use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue};

use super::problem::{Code, Problem};

const IDEMPOTENCY_KEY: HeaderName = HeaderName::from_static("idempotency-key");
const REPLAYED: HeaderName = HeaderName::from_static("idempotent-replayed");

/// The key as the caller meant it: bare, or as a quoted string.
pub fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let mut values = headers.get_all(IDEMPOTENCY_KEY).iter();
    let Some(value) = values.next() else { return Ok(None) };
    // Of two, nobody knows which is meant.
    if values.next().is_some() {
        return Err(Problem::new(Code::IdempotencyKeyInvalid));
    }
    // Bytes that are no text can be equal to no key.
    let text = std::str::from_utf8(value.as_bytes())
        .map_err(|_| Problem::new(Code::IdempotencyMismatch))?
        .trim();
    let quoted = text.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
    let key = quoted.unwrap_or(text);
    Ok((!key.is_empty()).then_some(key))
}

/// Says that nothing was done anew.
pub fn mark_replayed(response: &mut Response) {
    response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_come_bare_or_quoted() {
        let read = |value: &[u8]| {
            let mut headers = HeaderMap::new();
            headers.insert(IDEMPOTENCY_KEY, HeaderValue::from_bytes(value).unwrap());
            key(&headers).map(|key| key.map(str::to_owned))
        };
        assert_eq!(read(b"key-0001"), Ok(Some("key-0001".into())));
        assert_eq!(read(b"\"key-0001\""), Ok(Some("key-0001".into())));
        assert_eq!(read(b" key-0001 "), Ok(Some("key-0001".into())));
        assert_eq!(read(b"\"\""), Ok(None));
        assert_eq!(read(b""), Ok(None));
        assert!(read(b"\xff\xfe").is_err());
        assert_eq!(key(&HeaderMap::new()), Ok(None));
    }
}
