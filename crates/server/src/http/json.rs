//! Reading a JSON body, strictly.
//!
//! An extractor for handlers that check the document themselves, field by field. It guarantees valid
//! UTF-8, one value, no repeated keys and bounded nesting, and says where reading failed without
//! repeating what was sent. A content type is required: a form that a browser sends across sites
//! without asking cannot have it.

use std::fmt;
use std::io::Read as _;

use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde::de::{DeserializeSeed, Deserializer, Error as _, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

use super::body::{BodyLimits, RawBody, too_large};
use super::problem::{Code, Problem};

/// Deeper documents are attacks: no contract of ours needs more than a handful of levels.
pub const MAX_DEPTH: usize = 32;

/// A JSON document.
#[derive(Clone, Debug)]
pub struct JsonBody(pub Value);

impl<S: Sync> FromRequest<S> for JsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        check_type(request.headers())?;
        let encoding = Encoding::of(request.headers())?;
        let limits = BodyLimits::of(&request);
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        let bytes = encoding.decode(bytes, limits.bytes)?;
        parse(&bytes).map(Self)
    }
}

/// A JSON document, or an empty object where nothing was sent.
#[derive(Clone, Debug)]
pub struct OptionalJsonBody(pub Value);

impl<S: Sync> FromRequest<S> for OptionalJsonBody {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let headers = request.headers().clone();
        let encoding = Encoding::of(&headers)?;
        let limits = BodyLimits::of(&request);
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        if bytes.is_empty() {
            return Ok(Self(Value::Object(Map::new())));
        }
        check_type(&headers)?;
        let bytes = encoding.decode(bytes, limits.bytes)?;
        parse(&bytes).map(Self)
    }
}

/// `application/json`, or `application/…+json`; in UTF-8, as JSON is.
fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let refused = || Problem::new(Code::UnsupportedMediaType);
    let text = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .ok_or_else(refused)?
        .to_ascii_lowercase();
    let mut parts = text.split(';').map(str::trim);
    let kind = parts.next().unwrap_or_default();
    let json =
        kind == "application/json" || (kind.starts_with("application/") && kind.ends_with("+json"));
    let utf8 = parts
        .filter_map(|part| part.strip_prefix("charset="))
        .all(|charset| matches!(charset.trim_matches('"'), "utf-8" | "utf8"));
    if json && utf8 { Ok(()) } else { Err(refused()) }
}

#[derive(Clone, Copy)]
enum Encoding {
    Identity,
    Gzip,
}

impl Encoding {
    fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let Some(value) = headers.get(CONTENT_ENCODING) else {
            return Ok(Self::Identity);
        };
        let name = value.to_str().unwrap_or_default().to_ascii_lowercase();
        match name.trim() {
            "" | "identity" => Ok(Self::Identity),
            "gzip" | "x-gzip" => Ok(Self::Gzip),
            _ => Err(Problem::new(Code::UnsupportedMediaType).detail(
                "The body's encoding is not supported.",
                "本文の Content-Encoding に対応していません。",
            )),
        }
    }

    /// Never makes more than one byte beyond the limit, whatever the compressed bytes promise.
    fn decode(self, bytes: Bytes, limit: usize) -> Result<Bytes, Problem> {
        match self {
            Self::Identity => Ok(bytes),
            Self::Gzip => {
                let broken = || {
                    Problem::new(Code::BadRequest)
                        .detail("The body is not valid gzip.", "本文が正しい gzip ではありません。")
                };
                let mut decoded = Vec::new();
                let mut decoder =
                    flate2::bufread::GzDecoder::new(&bytes[..]).take(limit as u64 + 1);
                decoder.read_to_end(&mut decoded).map_err(|_| broken())?;
                if decoded.len() > limit {
                    return Err(too_large(limit));
                }
                // Others would read on behind the end, and see another document than we do.
                if !decoder.into_inner().into_inner().is_empty() {
                    return Err(broken());
                }
                Ok(decoded.into())
            }
        }
    }
}

/// Reads one document.
pub fn parse(bytes: &[u8]) -> Result<Value, Problem> {
    let text = std::str::from_utf8(bytes).map_err(|error| {
        let (line, column) = position(&bytes[..error.valid_up_to()]);
        invalid("the body is not UTF-8", "UTF-8 ではありません", line, column)
    })?;
    let mut deserializer = serde_json::Deserializer::from_str(text);
    Strict { depth: 0 }
        .deserialize(&mut deserializer)
        .and_then(|value| deserializer.end().map(|()| value))
        .map_err(|error| {
            let reason = reason(&error);
            invalid(reason.0, reason.1, error.line(), error.column())
        })
}

fn invalid(english: &str, japanese: &str, line: usize, column: usize) -> Problem {
    Problem::new(Code::InvalidJson).detail(
        format!("Line {line}, column {column}: {english}."),
        format!("{line} 行目 {column} 桁目: {japanese}。"),
    )
}

/// Line and column of the byte after `before`, counted from 1.
fn position(before: &[u8]) -> (usize, usize) {
    let lines = before.split(|byte| *byte == b'\n');
    let last = before.rsplit(|byte| *byte == b'\n').next();
    (lines.count(), last.unwrap_or_default().len() + 1)
}

const TWICE: &str = "a key stands twice in one object";
const DEEP: &str = "nested too deeply";

/// Our own words: the library's may quote the document.
fn reason(error: &serde_json::Error) -> (&'static str, &'static str) {
    let text = error.to_string();
    match () {
        () if error.is_eof() => ("the document ends too early", "文書が途中で終わっています"),
        () if text.starts_with(TWICE) => (TWICE, "同じオブジェクトにキーが重複しています"),
        () if text.starts_with(DEEP) || text.starts_with("recursion") => {
            (DEEP, "入れ子が深すぎます")
        }
        () if text.starts_with("trailing characters") => {
            ("something follows the document", "文書の後に余分な文字があります")
        }
        () if text.starts_with("number out of range") => {
            ("a number is out of range", "数値が範囲外です")
        }
        () => ("not valid JSON", "正しい JSON ではありません"),
    }
}

/// Builds a value, counting levels and refusing repeated keys.
///
/// `serde_json` itself would keep the last of two equal keys; a caller and an auditor who keep the
/// first would see another order than we do.
#[derive(Clone, Copy)]
struct Strict {
    depth: usize,
}

impl Strict {
    fn deeper<E: serde::de::Error>(self) -> Result<Self, E> {
        if self.depth >= MAX_DEPTH {
            return Err(E::custom(DEEP));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for Strict {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Strict {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_bool<E>(self, truth: bool) -> Result<Value, E> {
        Ok(Value::Bool(truth))
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        Ok(Value::Number(number.into()))
    }

    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        Ok(Number::from_f64(number).map_or(Value::Null, Value::Number))
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(Value::String(text.to_owned()))
    }

    fn visit_string<E>(self, text: String) -> Result<Value, E> {
        Ok(Value::String(text))
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.deeper()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            if object.contains_key(&key) {
                return Err(A::Error::custom(TWICE));
            }
            object.insert(key, entries.next_value_seed(inner)?);
        }
        Ok(Value::Object(object))
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::http::language::Language;

    fn detail(bytes: &[u8]) -> String {
        let problem = parse(bytes).unwrap_err();
        assert_eq!(problem.code(), Code::InvalidJson);
        problem.document(Language::English, None).detail
    }

    #[test]
    fn documents_are_read_as_they_are() {
        let text = r#"{"a":[1,-2,0.5,"x",true,null,{}],"b":{"確":"か"},"n":18446744073709551615}"#;
        let value = parse(text.as_bytes()).unwrap();
        assert_eq!(value, serde_json::from_str::<Value>(text).unwrap());
        assert_eq!(parse(b" 1 ").unwrap(), json!(1));
    }

    #[test]
    fn every_refusal_says_where_and_repeats_nothing() {
        for (bytes, expected) in [
            (&b""[..], "Line 1, column 0: the document ends too early."),
            (b"{\"secret\":", "the document ends too early"),
            (b"{\n  \"secret\": 1,\n  \"secret\": 2\n}", "Line 3"),
            (b"{\"secret\":1,\"secret\":2}", TWICE),
            (b"{\"a\":{\"secret\":1,\"secret\":2}}", TWICE),
            (b"secret", "Line 1, column 1: not valid JSON."),
            (b"{\"a\":1}secret", "something follows the document"),
            (b"{\"a\":1e999}", "a number is out of range"),
            (b"{\"a\":NaN}", "not valid JSON"),
            (b"{'a':1}", "not valid JSON"),
            (b"[1,]", "not valid JSON"),
            (b"{\n\"a\":\"\xff\"}", "Line 2, column 6: the body is not UTF-8."),
            (b"\xef\xbb\xbf{}", "not valid JSON"),
            (b"\"\\ud800\"", "not valid JSON"),
        ] {
            let detail = detail(bytes);
            assert!(detail.contains(expected), "{expected} is not in {detail}");
            assert!(!detail.contains("secret"), "{detail}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        let nested = |depth: usize| format!("{}{}", "[".repeat(depth), "]".repeat(depth));
        assert!(parse(nested(MAX_DEPTH).as_bytes()).is_ok());
        assert!(detail(nested(MAX_DEPTH + 1).as_bytes()).contains(DEEP));
        assert!(detail("[".repeat(100_000).as_bytes()).contains(DEEP));
        assert!(detail("{\"a\":".repeat(100_000).as_bytes()).contains(DEEP));
    }

    #[test]
    fn only_json_types_are_taken() {
        for (value, taken) in [
            ("application/json", true),
            ("Application/JSON; charset=UTF-8", true),
            ("application/json;charset=\"utf-8\"", true),
            ("application/cloudevents+json", true),
            ("application/json; charset=shift_jis", false),
            ("text/plain", false),
            ("text/json", false),
            ("application/x-www-form-urlencoded", false),
            ("application/jsonp", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, value.parse().unwrap());
            assert_eq!(check_type(&headers).is_ok(), taken, "{value}");
        }
        assert!(check_type(&HeaderMap::new()).is_err());
    }

    #[test]
    fn compressed_bodies_count_by_what_comes_out() {
        use std::io::Write as _;
        let pack = |bytes: &[u8]| {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(bytes).unwrap();
            Bytes::from(encoder.finish().unwrap())
        };
        let small = Encoding::Gzip.decode(pack(b"{\"a\":1}"), 1000).unwrap();
        assert_eq!(parse(&small).unwrap(), json!({"a": 1}));
        let bomb = pack(&vec![b' '; 5_000_000]);
        assert!(bomb.len() < 10_000);
        let problem = Encoding::Gzip.decode(bomb, 65_536).unwrap_err();
        assert_eq!(problem.code(), Code::PayloadTooLarge);
        let broken = Encoding::Gzip.decode(Bytes::from_static(b"no gzip"), 1000);
        assert_eq!(broken.unwrap_err().code(), Code::BadRequest);
    }
}
