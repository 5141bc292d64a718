//! Everybody else who signs with HMAC: where the signature stands and what it covers is configured.
//!
//! Twitch, for instance, is `header` `Twitch-Eventsub-Message-Signature`, `prefix` `sha256=`,
//! `timestamp_header` and `id_header` likewise, `template` `{id}{timestamp}{body}` and `type_field`
//! `subscription.type`.

use std::time::Duration;

use http::{HeaderMap, HeaderName};
use secrecy::SecretString;
use serde::Deserialize;
use tashika_domain::time::Timestamp;

use super::headers::{MALFORMED, claimed, fresh, seconds, signed, told};
use super::key::{Keys, base64};
use super::payload::object;
use super::{Event, Provider, Refused, SourceError, TOLERANCE, TYPE_UNKNOWN};
use crate::signature::unhex;

/// The hash under the HMAC. SHA-1 is broken for signatures of documents, but not under HMAC, and older
/// senders have nothing else.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Algorithm {
    Sha1,
    #[default]
    Sha256,
    Sha512,
}

/// How the signature is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Encoding {
    #[default]
    Hex,
    Base64,
}

/// How the secrets are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum SecretEncoding {
    /// The text itself is the key.
    #[default]
    Text,
    Hex,
    Base64,
}

/// How a sender signs.
#[derive(Clone, Debug)]
pub struct GenericHmac {
    pub secrets: Vec<SecretString>,
    pub secret_encoding: SecretEncoding,
    /// The header with the signature.
    pub header: String,
    pub algorithm: Algorithm,
    pub encoding: Encoding,
    /// What stands before the signature, such as `sha256=`. Required if not empty.
    pub prefix: String,
    /// Seconds or milliseconds since 1970, or RFC 3339.
    pub timestamp_header: Option<String>,
    /// In both directions. Zero: any age.
    pub tolerance: Duration,
    /// What is signed, with `{timestamp}`, `{id}` and `{body}`.
    pub template: String,
    /// Where the event's id is; without it, `id_field` is.
    pub id_header: Option<String>,
    pub id_field: String,
    pub type_field: String,
}

impl GenericHmac {
    /// HMAC-SHA256 over the body, in hexadecimal, and fields called `id` and `type`.
    #[must_use]
    pub fn new(header: impl Into<String>, secrets: Vec<SecretString>) -> Self {
        Self {
            secrets,
            secret_encoding: SecretEncoding::default(),
            header: header.into(),
            algorithm: Algorithm::default(),
            encoding: Encoding::default(),
            prefix: String::new(),
            timestamp_header: None,
            tolerance: TOLERANCE,
            template: "{body}".to_owned(),
            id_header: None,
            id_field: "id".to_owned(),
            type_field: "type".to_owned(),
        }
    }
}

/// A piece of what is signed.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Text(String),
    Timestamp,
    Id,
    Body,
}

pub(super) struct Generic {
    keys: Keys,
    template: Vec<Part>,
    settings: GenericHmac,
}

impl Generic {
    pub(super) fn new(settings: GenericHmac) -> Result<Self, SourceError> {
        let decode = |text: &str| {
            match settings.secret_encoding {
                SecretEncoding::Text => Some(text.as_bytes().to_vec()),
                SecretEncoding::Hex => unhex(text),
                SecretEncoding::Base64 => base64(text),
            }
            .ok_or(SourceError::SecretEncoding)
        };
        let keys = Keys::new(settings.algorithm, &settings.secrets, decode)?;
        let named = |header: &str, setting| match HeaderName::try_from(header) {
            Ok(_) => Ok(()),
            Err(_) => Err(SourceError::Header(setting)),
        };
        named(&settings.header, "header")?;
        for (header, setting) in
            [(&settings.timestamp_header, "timestamp_header"), (&settings.id_header, "id_header")]
        {
            header.as_deref().map_or(Ok(()), |header| named(header, setting))?;
        }
        for (path, setting) in
            [(&settings.id_field, "id_field"), (&settings.type_field, "type_field")]
        {
            if path.split('.').any(str::is_empty) {
                return Err(SourceError::Field(setting));
            }
        }
        let template = template(&settings)?;
        Ok(Self { keys, template, settings })
    }

    fn timestamp<'a>(&self, headers: &'a HeaderMap) -> Result<&'a str, Refused> {
        let name = self.settings.timestamp_header.as_deref();
        name.map_or(Ok(""), |name| signed(headers, name))
    }
}

/// Takes the template apart, and refuses what cannot be meant.
fn template(settings: &GenericHmac) -> Result<Vec<Part>, SourceError> {
    let mut parts = Vec::new();
    let mut rest = settings.template.as_str();
    while !rest.is_empty() {
        let (literal, after) = rest.split_at(rest.find('{').unwrap_or(rest.len()));
        if literal.contains('}') {
            return Err(SourceError::TemplateBraces);
        }
        if !literal.is_empty() {
            parts.push(Part::Text(literal.to_owned()));
        }
        rest = "";
        if let Some(inside) = after.strip_prefix('{') {
            let (name, after) = inside.split_once('}').ok_or(SourceError::TemplateBraces)?;
            parts.push(match name {
                "timestamp" => Part::Timestamp,
                "id" => Part::Id,
                "body" => Part::Body,
                _ => return Err(SourceError::TemplateBraces),
            });
            rest = after;
        }
    }
    if parts.iter().filter(|part| **part == Part::Body).count() != 1 {
        return Err(SourceError::TemplateBody);
    }
    match (parts.contains(&Part::Timestamp), settings.timestamp_header.is_some()) {
        (true, false) => return Err(SourceError::NoTimestampHeader),
        (false, true) => return Err(SourceError::UnsignedTimestamp),
        _ => {}
    }
    if parts.contains(&Part::Id) && settings.id_header.is_none() {
        return Err(SourceError::NoIdHeader);
    }
    Ok(parts)
}

/// Nobody sends a second after the year 5138 or a millisecond before 1973, so a number tells its unit.
fn time(text: &str) -> Option<Timestamp> {
    const MILLISECONDS_FROM: i64 = 100_000_000_000;
    // No sign: what one library reads and another does not is not a time that was agreed upon.
    if text.is_empty() || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return is_rfc3339(text).then(|| text.parse().ok())?;
    }
    match text.parse::<i64>().ok()? {
        number if number >= MILLISECONDS_FROM => {
            number.checked_mul(1000).map(Timestamp::from_micros)
        }
        _ => seconds(text),
    }
}

/// The parser knows more of ISO 8601 than the senders are told to use, such as `2021-02-25T15Z`.
fn is_rfc3339(text: &str) -> bool {
    let shape = |text: &[u8], pattern: &[u8]| {
        text.len() == pattern.len()
            && text.iter().zip(pattern).all(|(byte, wanted)| match wanted {
                b'0' => byte.is_ascii_digit(),
                _ => byte == wanted,
            })
    };
    let Some((moment, rest)) = text.as_bytes().split_at_checked(19) else { return false };
    let zone = match rest.strip_prefix(b".") {
        Some(rest) => {
            let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
            if digits == 0 {
                return false;
            }
            &rest[digits..]
        }
        None => rest,
    };
    let zoned = zone == b"Z" || shape(zone, b"+00:00") || shape(zone, b"-00:00");
    zoned && shape(moment, b"0000-00-00T00:00:00")
}

impl Provider for Generic {
    fn kind(&self) -> &'static str {
        "generic-hmac"
    }

    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Refused> {
        let malformed = Refused::signature(MALFORMED);
        let settings = &self.settings;
        let signature = signed(headers, &settings.header)?;
        let signature = signature.strip_prefix(settings.prefix.as_str()).ok_or(malformed)?;
        let signature = match settings.encoding {
            Encoding::Hex => unhex(signature),
            Encoding::Base64 => base64(signature),
        };
        let signature = signature.ok_or(malformed)?;
        let stamp = self.timestamp(headers)?;
        let id = match &settings.id_header {
            Some(name) if self.template.contains(&Part::Id) => signed(headers, name)?,
            _ => "",
        };
        let message: Vec<&[u8]> = self
            .template
            .iter()
            .map(|part| match part {
                Part::Text(text) => text.as_bytes(),
                Part::Timestamp => stamp.as_bytes(),
                Part::Id => id.as_bytes(),
                Part::Body => body,
            })
            .collect();
        self.keys.check(&message, std::iter::once(signature))?;
        if settings.timestamp_header.is_none() {
            return Ok(());
        }
        fresh(time(stamp).ok_or(malformed)?, now, settings.tolerance)
    }

    fn claimed_id<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        claimed(headers, self.settings.id_header.as_deref()?)
    }

    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
        let payload = object(body)?;
        let settings = &self.settings;
        let id = match &settings.id_header {
            Some(name) => told(headers, name)?.map(str::to_owned),
            None => payload.text(&settings.id_field),
        };
        let kind = payload.text(&settings.type_field).unwrap_or_else(|| TYPE_UNKNOWN.to_owned());
        payload.event(id, Some(kind), time(self.timestamp(headers).unwrap_or_default()))
    }
}
