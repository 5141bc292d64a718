//! Webhooks that others send: is it theirs, is it fresh, and what does it say?
//!
//! Called by `server` and `engine` with the request as it arrived, in two steps. [`Source::verify`]
//! looks at raw bytes only: the signature first, in constant time, then the age. [`Source::read`]
//! parses, and is for requests that were verified. Both are pure: no I/O, and `now` is an argument.
//!
//! Guarantees: a header that counts and was sent twice is refused, never chosen from; of several
//! secrets (rotation) each will do; a [`Refused`] holds nothing that was in the request, so it can be
//! logged; an [`Event`] has an id and a type that fit into a header and a column.
//!
//! It does not remember: a second delivery of an event verifies again, and is told by its id. What a
//! scheme leaves unsigned stays unsigned: GitHub and Shopify sign the body alone, not id, type or
//! time, so whoever recorded one of their deliveries could send it again under another id. Shotstack
//! signs nothing; what its events say has to be confirmed by asking it.

mod generic;
mod github;
mod headers;
mod key;
mod payload;
mod shopify;
mod shotstack;
mod slack;
pub(crate) mod standard;
mod stripe;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use http::HeaderMap;
use secrecy::SecretString;
use tashika_domain::mutant::{self, Mutant};
use tashika_domain::time::Timestamp;
use tashika_domain::webhook::Payload;

pub use generic::{Algorithm, Encoding, GenericHmac, SecretEncoding};
pub use standard::{key as standard_key, standard_headers};
pub use stripe::stripe_header;

/// How far a sender's clock and ours may be apart, delivery included: what Stripe, Slack and the
/// libraries of Standard Webhooks use.
pub const TOLERANCE: Duration = Duration::from_secs(300);

/// Longest id of an event: what an index and a header take without a thought.
pub const ID_MAX: usize = 255;
/// Longest type of an event.
pub const TYPE_MAX: usize = 100;
/// Deeper documents are attacks: no provider's event has more than a dozen levels.
pub const DEPTH_MAX: usize = 32;

/// The type of an event that does not say one, where the scheme does not ask for it.
pub const TYPE_UNKNOWN: &str = "unknown";

/// How a sender proves who it is.
///
/// Each of several secrets will do. A `tolerance` of zero switches the check of the age off, as in
/// Stripe's libraries.
#[derive(Clone, Debug)]
pub enum Scheme {
    Stripe { secrets: Vec<SecretString>, tolerance: Duration },
    StandardWebhooks { secrets: Vec<SecretString>, tolerance: Duration },
    Github { secrets: Vec<SecretString> },
    Shopify { secrets: Vec<SecretString> },
    Slack { secrets: Vec<SecretString>, tolerance: Duration },
    Shotstack,
    GenericHmac(GenericHmac),
}

/// Why a source cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    #[error("the name must be 1 to 64 letters, digits, `-` and `_`")]
    Name,
    #[error("needs a secret")]
    NoSecret,
    #[error("a secret is empty")]
    EmptySecret,
    #[error("a secret contains white space; was something copied along with it?")]
    WhiteSpace,
    #[error("a secret must be base64, usually after `whsec_`, as Standard Webhooks has it")]
    NotWhsec,
    #[error("a secret is not written as `secret_encoding` says")]
    SecretEncoding,
    #[error("`{0}` is not the name of a header")]
    Header(&'static str),
    #[error("`{0}` must be names of fields with dots between them, such as `data.id`")]
    Field(&'static str),
    #[error("`template` must contain `{{body}}` once")]
    TemplateBody,
    #[error("`template` may have braces only in `{{body}}`, `{{timestamp}}` and `{{id}}`")]
    TemplateBraces,
    #[error("`template` contains `{{timestamp}}`, but there is no `timestamp_header`")]
    NoTimestampHeader,
    #[error(
        "`timestamp_header` is set, but `template` lacks `{{timestamp}}`: an unsigned time proves nothing"
    )]
    UnsignedTimestamp,
    #[error("`template` contains `{{id}}`, but there is no `id_header`")]
    NoIdHeader,
}

/// What an event says, as far as every source has it.
#[derive(Clone, PartialEq)]
pub struct Event {
    /// The sender's, the same in every delivery: 1 to [`ID_MAX`] printable ASCII characters.
    pub id: String,
    /// The sender's type, such as `invoice.paid`: 1 to [`TYPE_MAX`] printable ASCII characters.
    pub kind: String,
    /// By the sender's clock.
    pub occurred_at: Option<Timestamp>,
    /// Always an object.
    pub payload: Payload,
}

impl fmt::Debug for Event {
    /// Without the payload, which is other people's and may be logged by mistake.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Event")
            .field("id", &self.id)
            .field("kind", &self.kind)
            .field("occurred_at", &self.occurred_at)
            .finish_non_exhaustive()
    }
}

/// Why a request is not taken. Holds nothing that was in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{what}: {reason}")]
pub struct Refused {
    pub what: RefusedKind,
    /// One of a few fixed texts, so it can be a label of a metric.
    pub reason: &'static str,
}

impl Refused {
    const fn signature(reason: &'static str) -> Self {
        Self { what: RefusedKind::Signature, reason }
    }

    const fn payload(reason: &'static str) -> Self {
        Self { what: RefusedKind::Payload, reason }
    }
}

/// What about the request is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RefusedKind {
    /// Not proven to be the sender's, or too old.
    Signature,
    /// The sender's, but not an event that can be read.
    Payload,
}

impl fmt::Display for RefusedKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Signature => "Invalid signature",
            Self::Payload => "Invalid payload",
        })
    }
}

/// One provider's way to sign and to write events.
trait Provider: Send + Sync {
    fn kind(&self) -> &'static str;
    /// Whether a request proves whose it is.
    fn is_signed(&self) -> bool {
        true
    }
    /// The id that the request claims in its headers, proven or not.
    fn claimed_id<'a>(&self, _: &'a HeaderMap) -> Option<&'a str> {
        None
    }
    fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Refused>;
    fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Event, Refused>;
}

/// Somebody whose webhooks are taken. Cheap to clone.
#[derive(Clone)]
pub struct Source {
    name: String,
    provider: Arc<dyn Provider>,
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Source")
            .field("name", &self.name)
            .field("kind", &self.kind())
            .finish_non_exhaustive()
    }
}

impl Source {
    pub fn new(name: impl Into<String>, scheme: Scheme) -> Result<Self, SourceError> {
        let name = name.into();
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
        if !(1..=64).contains(&name.len()) || !name.bytes().all(allowed) {
            return Err(SourceError::Name);
        }
        let provider: Arc<dyn Provider> = match scheme {
            Scheme::Stripe { secrets, tolerance } => {
                Arc::new(stripe::Stripe::new(&secrets, tolerance)?)
            }
            Scheme::StandardWebhooks { secrets, tolerance } => {
                Arc::new(standard::Standard::new(&secrets, tolerance)?)
            }
            Scheme::Github { secrets } => Arc::new(github::Github::new(&secrets)?),
            Scheme::Shopify { secrets } => Arc::new(shopify::Shopify::new(&secrets)?),
            Scheme::Slack { secrets, tolerance } => {
                Arc::new(slack::Slack::new(&secrets, tolerance)?)
            }
            Scheme::Shotstack => Arc::new(shotstack::Shotstack),
            Scheme::GenericHmac(settings) => Arc::new(generic::Generic::new(settings)?),
        };
        Ok(Self { name, provider })
    }

    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// `stripe`, `standard-webhooks`, `github`, `shopify`, `slack`, `shotstack` or `generic-hmac`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        self.provider.kind()
    }

    /// Whether a request proves whose it is. What an unsigned one says has to be confirmed elsewhere
    /// before anything is done about it.
    #[must_use]
    pub fn is_signed(&self) -> bool {
        self.provider.is_signed()
    }

    /// The event's id as the headers have it, for the log of a request that was refused. Unproven;
    /// nothing but letters, digits and `-_.:`.
    #[must_use]
    pub fn claimed_id<'a>(&self, headers: &'a HeaderMap) -> Option<&'a str> {
        self.provider.claimed_id(headers)
    }

    /// Whether the request is the sender's, byte for byte, and fresh. Parses nothing of the body.
    pub fn verify(&self, headers: &HeaderMap, body: &[u8], now: Timestamp) -> Result<(), Refused> {
        if mutant::on(Mutant::SignatureNotCompared) {
            return Ok(());
        }
        self.provider.verify(headers, body, now)
    }

    /// What a request says that [`verify`](Self::verify) has accepted.
    pub fn read(&self, headers: &HeaderMap, body: &[u8]) -> Result<Event, Refused> {
        self.provider.read(headers, body)
    }
}

#[cfg(test)]
mod tests;
