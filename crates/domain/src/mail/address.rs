//! One e-mail address, fit to be put on an SMTP command line and into a header.
//!
//! An address is what stands between the angle brackets: no display name, no comment, no list. The
//! local part is ASCII, unquoted (RFC 5321's dot-string); a server would have to offer SMTPUTF8 for
//! anything else. The domain may be written in any script and is kept in its ASCII form, which is
//! what travels. Nothing that could end a line or begin a second address can be in it, so whoever
//! has an [`Address`] need not escape it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// RFC 5321 §4.5.3.1: a path of 256 characters, of which two are angle brackets.
pub const ADDRESS_MAX: usize = 254;
/// RFC 5321 §4.5.3.1.1.
pub const LOCAL_PART_MAX: usize = 64;
/// RFC 1035 §2.3.4.
const LABEL_MAX: usize = 63;

/// An address; its domain in ASCII and lower case.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Address(String);

/// Why a text is no address. Says nothing of the text: it may be somebody's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AddressError {
    #[error("an address has exactly one @ with something on both sides")]
    NoAddress,
    #[error("the part before the @ has characters that no server without SMTPUTF8 takes")]
    LocalPart,
    #[error("the part after the @ is no domain")]
    Domain,
    #[error("an address has at most {ADDRESS_MAX} characters, {LOCAL_PART_MAX} before the @")]
    TooLong,
}

impl Address {
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    #[must_use]
    pub fn local_part(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(local, _)| local)
    }

    #[must_use]
    pub fn domain(&self) -> &str {
        self.0.rsplit_once('@').map_or("", |(_, domain)| domain)
    }

    /// `t***@example.com`: for logs, and for whoever may not read all of it.
    #[must_use]
    pub fn masked(&self) -> String {
        let first = self.0.chars().next().unwrap_or('*');
        format!("{first}***@{}", self.domain())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (local, domain) = text.rsplit_once('@').ok_or(AddressError::NoAddress)?;
        if local.is_empty() || domain.is_empty() || local.contains('@') {
            return Err(AddressError::NoAddress);
        }
        if local.len() > LOCAL_PART_MAX {
            return Err(AddressError::TooLong);
        }
        if !local.split('.').all(is_atom) {
            return Err(AddressError::LocalPart);
        }
        let domain = ascii_domain(domain)?;
        let address = format!("{local}@{domain}");
        if address.len() > ADDRESS_MAX {
            return Err(AddressError::TooLong);
        }
        Ok(Self(address))
    }
}

/// RFC 5322's `atext`, at least once.
fn is_atom(text: &str) -> bool {
    let is_atext =
        |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-/=?^_`{|}~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_atext)
}

/// The domain as it travels. Of two labels or more, the last one no number: an address to a machine
/// (`root@localhost`, `a@127.0.0.1`) is a mistake in everything that Tashika sends.
fn ascii_domain(domain: &str) -> Result<String, AddressError> {
    let ascii = idna::domain_to_ascii(domain).map_err(|_| AddressError::Domain)?;
    let labels: Vec<&str> = ascii.split('.').collect();
    let is_label = |label: &&str| {
        (1..=LABEL_MAX).contains(&label.len())
            && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let named = labels.last().is_some_and(|last| !last.bytes().all(|byte| byte.is_ascii_digit()));
    if labels.len() < 2 || !named || !labels.iter().all(is_label) {
        return Err(AddressError::Domain);
    }
    Ok(ascii)
}

impl TryFrom<String> for Address {
    type Error = AddressError;

    fn try_from(text: String) -> Result<Self, AddressError> {
        text.parse()
    }
}

impl From<Address> for String {
    fn from(address: Address) -> Self {
        address.0
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Address {
    /// Masked: debug output ends up in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({})", self.masked())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn addresses_are_read() {
        for (text, travels) in [
            ("taro@example.com", "taro@example.com"),
            ("Taro.Yamada+x@Example.CO.JP", "Taro.Yamada+x@example.co.jp"),
            ("o'hara_1@sub.example.org", "o'hara_1@sub.example.org"),
            ("taro@例え.テスト", "taro@xn--r8jz45g.xn--zckzah"),
            ("a@xn--r8jz45g.jp", "a@xn--r8jz45g.jp"),
        ] {
            let address: Address = text.parse().unwrap();
            assert_eq!(address.as_str(), travels);
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn everything_else_is_refused() {
        use AddressError as E;
        let long_local = format!("{}@example.com", "a".repeat(65));
        let long_domain = format!("a@{}.example.com", vec!["b".repeat(60); 5].join("."));
        for (text, why) in [
            ("", E::NoAddress),
            ("taro", E::NoAddress),
            ("@example.com", E::NoAddress),
            ("taro@", E::NoAddress),
            ("a@b@example.com", E::NoAddress),
            ("Taro <taro@example.com>", E::LocalPart),
            ("taro@example.com, hanako@example.com", E::NoAddress),
            ("taro@example.com\r\nRCPT TO:<eve@example.com>", E::NoAddress),
            ("taro\r\n@example.com", E::LocalPart),
            ("taro@example.com\n", E::Domain),
            ("taro@example.com>", E::Domain),
            ("太郎@example.com", E::LocalPart),
            ("a..b@example.com", E::LocalPart),
            (".a@example.com", E::LocalPart),
            ("\"a b\"@example.com", E::LocalPart),
            ("taro@localhost", E::Domain),
            ("taro@127.0.0.1", E::Domain),
            ("taro@[127.0.0.1]", E::Domain),
            ("taro@-example.com", E::Domain),
            ("taro@exa_mple.com", E::Domain),
            ("taro@example.com.", E::Domain),
            (long_local.as_str(), E::TooLong),
            (long_domain.as_str(), E::TooLong),
        ] {
            let read = text.parse::<Address>();
            // An over-long domain may be refused for either reason.
            let also = text == long_domain && read == Err(E::Domain);
            assert!(read == Err(why) || also, "{text:?}: {read:?}");
        }
    }

    #[test]
    fn debug_output_is_masked() {
        let address: Address = "taro@example.com".parse().unwrap();
        assert_eq!(format!("{address:?}"), "Address(t***@example.com)");
        assert_eq!(address.masked(), "t***@example.com");
        let odd: Address = "!taro@example.com".parse().unwrap();
        assert_eq!(odd.masked(), "!***@example.com");
    }

    proptest! {
        #[test]
        fn what_is_taken_fits_on_one_line(text in ".{0,80}|[a-z.+]{1,9}@[a-z.あ-ん\\r\\n>, ]{1,20}") {
            if let Ok(address) = text.parse::<Address>() {
                let fits = |c: char| c.is_ascii_graphic() && !"<>,;:()[]\\\"".contains(c);
                prop_assert!(address.as_str().chars().all(fits), "{:?}", address.as_str());
                prop_assert_eq!(address.as_str().matches('@').count(), 1);
                prop_assert_eq!(address.as_str().parse(), Ok(address.clone()));
            }
        }
    }
}
