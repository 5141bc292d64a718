//! Secrets, and what they sign.

use base64::Engine as _;
use base64::alphabet::STANDARD;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, Mac as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha1::Sha1;
use sha2::{Sha256, Sha512};

use super::headers::NO_MATCH;
use super::{Algorithm, Refused, SourceError};

/// Senders disagree about padding; it carries nothing.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_padding_mode(DecodePaddingMode::Indifferent),
);

/// Signatures of one request that are looked at. A sender that rotates its secret sends two or three;
/// without a limit, a header full of them would make us compute for as long as it is.
const SIGNATURES_MAX: usize = 16;

pub(super) fn base64(text: &str) -> Option<Vec<u8>> {
    BASE64.decode(text).ok()
}

/// Prepared once, so that a request does not pay for it.
enum Key {
    Sha1(Hmac<Sha1>),
    Sha256(Hmac<Sha256>),
    Sha512(Box<Hmac<Sha512>>),
}

impl Key {
    fn new(algorithm: Algorithm, secret: &[u8]) -> Self {
        match algorithm {
            Algorithm::Sha1 => Self::Sha1(keyed(secret)),
            Algorithm::Sha256 => Self::Sha256(keyed(secret)),
            Algorithm::Sha512 => Self::Sha512(Box::new(keyed(secret))),
        }
    }

    fn signed(&self, message: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
        match self {
            Self::Sha1(mac) => any(mac.clone(), message, signatures),
            Self::Sha256(mac) => any(mac.clone(), message, signatures),
            Self::Sha512(mac) => any((**mac).clone(), message, signatures),
        }
    }
}

/// Compares in constant time.
fn any<M: hmac::Mac + Clone>(mut mac: M, message: &[&[u8]], signatures: &[Vec<u8>]) -> bool {
    for part in message {
        mac.update(part);
    }
    signatures.iter().any(|signature| mac.clone().verify_slice(signature).is_ok())
}

fn keyed<M: hmac::KeyInit>(secret: &[u8]) -> M {
    M::new_from_slice(secret).expect("HMAC takes keys of every length")
}

/// HMAC-SHA256.
pub(super) fn sign(secret: &[u8], message: &[&[u8]]) -> [u8; 32] {
    let mut mac: Hmac<Sha256> = keyed(secret);
    for part in message {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

/// No provider makes up secrets with white space, so it was copied along.
pub(super) fn solid(secret: &str) -> Result<&str, SourceError> {
    if secret.contains(char::is_whitespace) { Err(SourceError::WhiteSpace) } else { Ok(secret) }
}

/// The keys of a source, each of which will do.
pub(super) struct Keys(Vec<Key>);

impl Keys {
    /// Keys that are the text of secrets which a provider has made up.
    pub(super) fn issued(secrets: &[SecretString]) -> Result<Self, SourceError> {
        Self::new(Algorithm::Sha256, secrets, |text| Ok(solid(text)?.as_bytes().to_vec()))
    }

    /// Keys that are the text of secrets which a person has made up: it may be a sentence.
    pub(super) fn chosen(secrets: &[SecretString]) -> Result<Self, SourceError> {
        Self::new(Algorithm::Sha256, secrets, |text| Ok(text.as_bytes().to_vec()))
    }

    pub(super) fn new(
        algorithm: Algorithm,
        secrets: &[SecretString],
        decode: impl Fn(&str) -> Result<Vec<u8>, SourceError>,
    ) -> Result<Self, SourceError> {
        if secrets.is_empty() {
            return Err(SourceError::NoSecret);
        }
        let key = |secret: &SecretString| {
            let text = secret.expose_secret();
            if text.trim().is_empty() {
                return Err(SourceError::EmptySecret);
            }
            if text.trim().len() != text.len() {
                return Err(SourceError::WhiteSpace);
            }
            let bytes = decode(text)?;
            if bytes.is_empty() {
                return Err(SourceError::EmptySecret);
            }
            Ok(Key::new(algorithm, &bytes))
        };
        Ok(Self(secrets.iter().map(key).collect::<Result<_, _>>()?))
    }

    /// Whether one of `signatures` is one of `message`, whose parts are taken as one.
    pub(super) fn check(
        &self,
        message: &[&[u8]],
        signatures: impl Iterator<Item = Vec<u8>>,
    ) -> Result<(), Refused> {
        let signatures: Vec<_> = signatures.take(SIGNATURES_MAX).collect();
        if self.0.iter().any(|key| key.signed(message, &signatures)) {
            return Ok(());
        }
        Err(Refused::signature(NO_MATCH))
    }
}
