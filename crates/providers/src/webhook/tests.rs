//! Every scheme, with vectors from its specification where it has some.

use http::{HeaderMap, HeaderName, HeaderValue};
use serde_json::json;

use super::headers::{MALFORMED, MISSING, NO_MATCH, TOO_NEW, TOO_OLD, TWICE};
use super::*;
use crate::signature::hex;

mod generic;
mod plain;
mod standard_webhooks;
mod stripe;

/// When the requests of these tests were signed.
const SIGNED_AT: i64 = 1_614_265_330;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_micros(seconds * 1_000_000)
}

fn now() -> Timestamp {
    at(SIGNED_AT)
}

fn secrets(texts: &[&str]) -> Vec<SecretString> {
    texts.iter().map(|text| SecretString::from(*text)).collect()
}

fn headers<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in pairs {
        let name = HeaderName::try_from(name).expect("a header's name");
        headers.append(name, HeaderValue::from_str(value).expect("a header's value"));
    }
    headers
}

/// `headers` with another value of `name`; `None` takes it away.
fn with(headers: &HeaderMap, name: &'static str, value: Option<&str>) -> HeaderMap {
    let mut headers = headers.clone();
    headers.remove(name);
    if let Some(value) = value {
        headers.insert(name, HeaderValue::from_str(value).expect("a header's value"));
    }
    headers
}

/// `headers` with the same value of `name` once more.
fn twice(headers: &HeaderMap, name: &'static str) -> HeaderMap {
    let mut headers = headers.clone();
    headers.append(name, headers[name].clone());
    headers
}

const fn signature(reason: &'static str) -> Result<(), Refused> {
    Err(Refused::signature(reason))
}

fn payload(reason: &'static str) -> Refused {
    Refused::payload(reason)
}

/// No single changed bit of `body` is taken.
fn every_bit_counts(source: &Source, headers: &HeaderMap, body: &[u8]) {
    assert_eq!(source.verify(headers, body, now()), Ok(()));
    for bit in 0..body.len() * 8 {
        let mut changed = body.to_vec();
        changed[bit / 8] ^= 1 << (bit % 8);
        assert_eq!(source.verify(headers, &changed, now()), signature(NO_MATCH), "bit {bit}");
    }
    let longer = [body, b"\n"].concat();
    assert_eq!(source.verify(headers, &longer, now()), signature(NO_MATCH));
    assert_eq!(source.verify(headers, b"", now()), signature(NO_MATCH));
}

fn refused(scheme: Scheme) -> SourceError {
    Source::new("source", scheme).expect_err("the source is refused")
}

#[test]
fn what_cannot_be_a_secret_is_refused() {
    let schemes: [fn(Vec<SecretString>) -> Scheme; 6] = [
        |secrets| Scheme::Stripe { secrets, tolerance: TOLERANCE },
        |secrets| Scheme::StandardWebhooks { secrets, tolerance: TOLERANCE },
        |secrets| Scheme::Slack { secrets, tolerance: TOLERANCE },
        |secrets| Scheme::Shopify { secrets },
        |secrets| Scheme::Github { secrets },
        |secrets| Scheme::GenericHmac(GenericHmac::new("x-signature", secrets)),
    ];
    for (number, scheme) in schemes.into_iter().enumerate() {
        let refused = |texts: &[&str]| refused(scheme(secrets(texts)));
        assert_eq!(refused(&[]), SourceError::NoSecret);
        assert_eq!(refused(&[""]), SourceError::EmptySecret);
        assert_eq!(refused(&[" \t\n"]), SourceError::EmptySecret);
        assert_eq!(refused(&["c2VjcmV0\n"]), SourceError::WhiteSpace);
        assert_eq!(refused(&[" c2VjcmV0"]), SourceError::WhiteSpace);
        // A good one does not excuse a bad one.
        assert_eq!(refused(&["c2VjcmV0", ""]), SourceError::EmptySecret);
        // What a person has made up may be a sentence; what a provider has made up may not.
        let sentence = Source::new("source", scheme(secrets(&["a secret"])));
        assert_eq!(sentence.err(), (number < 4).then_some(SourceError::WhiteSpace), "{number}");
    }
}

#[test]
fn names_fit_into_an_address() {
    for name in ["", "a/b", "a b", "確か", "..", &"x".repeat(65)] {
        let refused = Source::new(name, Scheme::Shotstack).err();
        assert_eq!(refused, Some(SourceError::Name), "{name}");
    }
    let source = Source::new("my-renders_2", Scheme::Shotstack).unwrap();
    assert_eq!((source.name(), source.kind()), ("my-renders_2", "shotstack"));
}

#[test]
fn nothing_prints_a_secret_or_a_payload() {
    let generic = GenericHmac::new("x-signature", secrets(&["hunter2"]));
    for scheme in [
        Scheme::Stripe { secrets: secrets(&["hunter2"]), tolerance: TOLERANCE },
        Scheme::GenericHmac(generic),
    ] {
        let said = format!("{scheme:?}");
        let source = Source::new("source", scheme).unwrap();
        let said = format!("{said} {source:?}");
        assert!(said.contains("source") && !said.contains("hunter2"), "{said}");
    }
    let source = Source::new("source", Scheme::Shotstack).unwrap();
    let body = br#"{"id":"r","type":"edit","action":"render","status":"done","owner":"hunter2"}"#;
    let said = format!("{:?}", source.read(&HeaderMap::new(), body));
    assert!(said.contains("render.done") && !said.contains("hunter2"), "{said}");
    let refused = source.read(&HeaderMap::new(), b"hunter2").unwrap_err();
    assert_eq!(refused.to_string(), "Invalid payload: not JSON");
}

/// Of a source whose id and type are fields called so.
fn read(body: &[u8]) -> Result<Event, Refused> {
    let settings = GenericHmac::new("x-signature", secrets(&["s"]));
    let source = Source::new("source", Scheme::GenericHmac(settings)).unwrap();
    source.read(&HeaderMap::new(), body)
}

#[test]
fn only_one_object_is_an_event() {
    for (body, reason) in [
        (&b""[..], "not JSON"),
        (b"{", "not JSON"),
        (b"{\"id\":\"\xff\"}", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"\xef\xbb\xbf{}", "not JSON"),
        (b"id=1", "not JSON"),
        (b"[]", "not a JSON object"),
        (b"\"id\"", "not a JSON object"),
        (b"null", "not a JSON object"),
        (b"{}", "no event id"),
        (b"{\"id\":null}", "no event id"),
        (b"{\"id\":\"\"}", "no event id"),
        (b"{\"id\":{}}", "no event id"),
        (b"{\"id\":1.5}", "no event id"),
        (b"{\"id\":\"a\\nb\"}", "event id too long or not printable"),
        ("{\"id\":\"確\"}".as_bytes(), "event id too long or not printable"),
        (b"{\"id\":\"a\",\"type\":\"\\u0000\"}", "event type too long or not printable"),
    ] {
        assert_eq!(read(body).unwrap_err(), payload(reason), "{}", String::from_utf8_lossy(body));
    }
}

#[test]
fn nesting_is_bounded() {
    let nested = |levels: usize| {
        let (open, close) = ("[".repeat(levels - 1), "]".repeat(levels - 1));
        read(format!(r#"{{"id":"a","deep":{open}{close}}}"#).as_bytes())
    };
    assert!(nested(DEPTH_MAX).is_ok());
    assert_eq!(nested(DEPTH_MAX + 1).unwrap_err(), payload("nested too deeply"));
    assert_eq!(nested(100_000).unwrap_err(), payload("not JSON"));
}

#[test]
fn ids_and_types_are_bounded() {
    let sized = |id: usize, kind: usize| {
        read(json!({"id": "i".repeat(id), "type": "t".repeat(kind)}).to_string().as_bytes())
    };
    let event = sized(ID_MAX, TYPE_MAX).unwrap();
    assert_eq!((event.id.len(), event.kind.len()), (ID_MAX, TYPE_MAX));
    let long = sized(ID_MAX + 1, 1).unwrap_err();
    assert_eq!(long, payload("event id too long or not printable"));
    let long = sized(1, TYPE_MAX + 1).unwrap_err();
    assert_eq!(long, payload("event type too long or not printable"));
}

#[test]
fn a_body_is_the_payload_unless_a_database_would_not_keep_it() {
    let of = |fields: &str| {
        let body = format!(r#"{{"id":"a","type":"b",{fields}}}"#);
        (read(body.as_bytes()).map(|event| event.payload), body)
    };
    for plain in [
        r#" "n" : -1, "big": 18446744073709551615"#,
        r#""text":"確か","name":"a\n\u0041\\u0000","list":[[],{},null,true,"x"]"#,
        r#""id":"c","twice":1,"twice":2"#,
    ] {
        assert_eq!(of(plain).0, Ok(Payload::Body), "{plain}");
    }
    // What is read apart is what would have been read anyway, without NUL.
    for apart in [
        r#""n":1.5"#,
        r#""n":1e-20000"#,
        r#""n":-0"#,
        r#""n":18446744073709551616"#,
        r#""text":"a\u0000b""#,
        r#""text":"\u78ba""#,
        r#""list":[{"a\u0000b":1}]"#,
    ] {
        let (payload, body) = of(apart);
        let whole: serde_json::Value = serde_json::from_str(&body).unwrap();
        let expected = Payload::Apart(tashika_domain::webhook::keepable(whole));
        assert_eq!(payload, Ok(expected), "{apart}");
    }
    for no_json in [
        r#""n":1e400"#,
        r#""n":01"#,
        r#""text":"\ud800""#,
        r#""raw":{"$serde_json::private::RawValue":"]"}"#,
    ] {
        assert_eq!(of(no_json).0, Err(payload("not JSON")), "{no_json}");
    }
}

#[test]
fn a_field_counts_as_it_stands_last() {
    let event = read(br#"{"id":"a","type":"b","id":"c","type":7}"#).unwrap();
    assert_eq!((&*event.id, &*event.kind), ("c", "7"));
}
