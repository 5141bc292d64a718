//! `SMTP_URL`: where the mail server is and who we are to it.
//!
//! `smtp://user:password@host:587?tls=starttls|tls|none`. User and password are percent-encoded.
//! `tls` is `starttls` unless it says otherwise: `tls` for TLS from the first byte, `none` for no TLS
//! at all, which is taken for loopback addresses only. Without a port: 587, or 465 with `tls=tls`.
//! The password appears in no error and in no debug output.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use percent_encoding::percent_decode_str;
use rustls::pki_types::ServerName;
use secrecy::SecretString;
use url::{Host, Url};

/// When the connection is encrypted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encryption {
    /// After the command `STARTTLS`, without which nothing is sent.
    StartTls,
    /// From the first byte.
    Tls,
    /// Never: on this machine only.
    None,
}

/// A user and a password.
#[derive(Clone)]
pub struct Login {
    pub user: String,
    pub password: SecretString,
}

/// A mail server.
#[derive(Clone)]
pub struct SmtpUrl {
    /// A name, or an address without brackets.
    pub host: String,
    pub port: u16,
    pub encryption: Encryption,
    pub login: Option<Login>,
}

/// What is wrong with the text. Has nothing of the text in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SmtpUrlError {
    #[error("it is no URL like smtp://user:password@host:587?tls=starttls ({0})")]
    NoUrl(url::ParseError),
    #[error("it must begin with smtp:// (TLS from the first byte is smtp://…?tls=tls)")]
    Scheme,
    #[error("it has no host name that a certificate could be for")]
    Host,
    #[error("it has a path or a fragment; a / or # in the password is written %2F or %23")]
    Path,
    #[error("the only thing after the ? is tls=starttls, tls=tls or tls=none")]
    Query,
    #[error("user and password stand together: user:password@")]
    HalfLogin,
    #[error("user or password are not percent-encoded UTF-8, or have a zero byte in them")]
    Encoding,
    #[error("tls=none is taken for loopback addresses only")]
    Plain,
}

impl FromStr for SmtpUrl {
    type Err = SmtpUrlError;

    fn from_str(text: &str) -> Result<Self, SmtpUrlError> {
        let url = Url::parse(text).map_err(SmtpUrlError::NoUrl)?;
        if url.scheme() != "smtp" {
            return Err(SmtpUrlError::Scheme);
        }
        if !matches!(url.path(), "" | "/") || url.fragment().is_some() {
            return Err(SmtpUrlError::Path);
        }
        let encryption = match url.query() {
            None | Some("tls=starttls") => Encryption::StartTls,
            Some("tls=tls") => Encryption::Tls,
            Some("tls=none") => Encryption::None,
            Some(_) => return Err(SmtpUrlError::Query),
        };
        let host = match url.host() {
            Some(Host::Domain(name)) => name.to_ascii_lowercase(),
            Some(Host::Ipv4(addr)) => addr.to_string(),
            Some(Host::Ipv6(addr)) => addr.to_string(),
            None => return Err(SmtpUrlError::Host),
        };
        if ServerName::try_from(host.as_str()).is_err() {
            return Err(SmtpUrlError::Host);
        }
        if encryption == Encryption::None && !is_loopback(&host) {
            return Err(SmtpUrlError::Plain);
        }
        let usual = if encryption == Encryption::Tls { 465 } else { 587 };
        let port = url.port().unwrap_or(usual);
        Ok(Self { host, port, encryption, login: login(&url)? })
    }
}

/// Addresses of the name are checked again when they are dialled.
fn is_loopback(host: &str) -> bool {
    host == "localhost" || host.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback())
}

fn login(url: &Url) -> Result<Option<Login>, SmtpUrlError> {
    let decoded = |text: &str| {
        let text = percent_decode_str(text).decode_utf8().map_err(|_| SmtpUrlError::Encoding)?;
        // AUTH PLAIN separates with it.
        if text.contains('\0') { Err(SmtpUrlError::Encoding) } else { Ok(text.into_owned()) }
    };
    match (url.username(), url.password()) {
        ("", None) => Ok(None),
        (user, Some(password)) if !user.is_empty() && !password.is_empty() => {
            let password = decoded(password)?.into();
            Ok(Some(Login { user: decoded(user)?, password }))
        }
        _ => Err(SmtpUrlError::HalfLogin),
    }
}

impl fmt::Display for SmtpUrl {
    /// `host:port`: how the server is called in evidence and logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.host.parse::<std::net::Ipv6Addr>() {
            Ok(addr) => write!(f, "[{addr}]:{}", self.port),
            Err(_) => write!(f, "{}:{}", self.host, self.port),
        }
    }
}

impl fmt::Debug for SmtpUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let login = if self.login.is_some() { ", with a login" } else { "" };
        write!(f, "SmtpUrl({self}, {:?}{login})", self.encryption)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use secrecy::ExposeSecret as _;

    use super::*;

    #[test]
    fn urls_are_read() {
        for (text, server, encryption) in [
            ("smtp://mail.example.com", "mail.example.com:587", Encryption::StartTls),
            ("smtp://Mail.Example.com/?tls=tls", "mail.example.com:465", Encryption::Tls),
            ("smtp://mail.example.com:2465?tls=tls", "mail.example.com:2465", Encryption::Tls),
            ("smtp://localhost:1025?tls=none", "localhost:1025", Encryption::None),
            ("smtp://[::1]:25?tls=none", "[::1]:25", Encryption::None),
            ("smtp://127.0.0.1?tls=starttls", "127.0.0.1:587", Encryption::StartTls),
        ] {
            let url: SmtpUrl = text.parse().unwrap();
            assert_eq!((url.to_string().as_str(), url.encryption), (server, encryption), "{text}");
            assert!(url.login.is_none());
        }
    }

    #[test]
    fn logins_are_percent_decoded_and_not_shown() {
        let text = "smtp://AKIA%40x:p%2Fa+ss%23w%C3%B6rd@mail.example.com";
        let url: SmtpUrl = text.parse().unwrap();
        let login = url.login.as_ref().unwrap();
        assert_eq!(login.user, "AKIA@x");
        assert_eq!(login.password.expose_secret(), "p/a+ss#wörd");
        let shown = format!("{url} {url:?}");
        assert_eq!(
            shown,
            "mail.example.com:587 SmtpUrl(mail.example.com:587, StartTls, with a login)"
        );
    }

    #[test]
    fn everything_else_is_refused_without_being_repeated() {
        use SmtpUrlError as E;
        for (text, why) in [
            ("hunter2", E::NoUrl(url::ParseError::RelativeUrlWithoutBase)),
            ("smtps://u:hunter2@mail.example.com", E::Scheme),
            ("https://u:hunter2@mail.example.com", E::Scheme),
            ("smtp:hunter2", E::Path),
            ("smtp://", E::Host),
            ("smtp://u:hunter2@mail.example.com/x", E::Path),
            ("smtp://u:hunter2@mail.example.com#x", E::Path),
            ("smtp://u:hunter2@mail.example.com?tls=no", E::Query),
            ("smtp://u:hunter2@mail.example.com?tls=tls&x=y", E::Query),
            ("smtp://hunter2@mail.example.com", E::HalfLogin),
            ("smtp://:hunter2@mail.example.com", E::HalfLogin),
            ("smtp://u:@mail.example.com", E::HalfLogin),
            ("smtp://u:hunter2%FF@mail.example.com", E::Encoding),
            ("smtp://u:hunter2%00@mail.example.com", E::Encoding),
            ("smtp://u:hunter2@mail.example.com?tls=none", E::Plain),
            ("smtp://u:hunter2@10.0.0.1?tls=none", E::Plain),
            ("smtp://u:hunter2@localhost.example.com?tls=none", E::Plain),
        ] {
            let error = text.parse::<SmtpUrl>().err().unwrap_or_else(|| panic!("{text}"));
            assert_eq!(error, why, "{text}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics_and_no_password_is_shown(
            text in ".{0,60}|smtp://.{0,60}",
            rest in "[a-z.:0-9@/?#=%\\[\\]]{0,30}",
        ) {
            let _read = text.parse::<SmtpUrl>().is_ok();
            let text = format!("smtp://user:s3cretWORD@{rest}");
            let shown = match text.parse::<SmtpUrl>() {
                Ok(url) => format!("{url} {url:?}"),
                Err(error) => format!("{error} {error:?}"),
            };
            prop_assert!(!shown.contains("s3cretWORD"), "{}", shown);
        }
    }
}
