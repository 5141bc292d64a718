//! Where a message goes: what stands behind `/v2/publish/`, and the query behind that.
//!
//! A destination is kept exactly as it came: its digest, its signature and its receiver see the same
//! bytes. Whether its host may be called is decided when it is called.

use super::names;
use super::span::shown;

/// Bytes of a URL.
pub const LONGEST_URL: usize = 8 * 1024;

/// Where a message goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Destination {
    Url(String),
    /// A group of URLs, by its name.
    Group(String),
    /// A product of the hosted service that is not part of a queue, such as `api/llm`.
    Unsupported(String),
}

/// Reads a destination: the rest of a path with its query, or the field of a batch item.
pub fn destination(raw: &str) -> Result<Destination, String> {
    if raw.is_empty() {
        return Err("a non-empty destination must be provided".to_owned());
    }
    if has_scheme(raw) {
        check_url(raw).map_err(|why| format!("invalid destination url: {why}"))?;
        return Ok(Destination::Url(raw.to_owned()));
    }
    // A group has no query of its own.
    let name = raw.split_once('?').map_or(raw, |(name, _)| name);
    if name.starts_with("api/") {
        return Ok(Destination::Unsupported(shown(name)));
    }
    if names::is_name(name) {
        return Ok(Destination::Group(name.to_owned()));
    }
    Err(format!("invalid destination url: {NO_SCHEME}"))
}

const NO_SCHEME: &str = "endpoint has invalid scheme, add http:// or https://";

fn has_scheme(url: &str) -> bool {
    after_scheme(url).is_some()
}

fn after_scheme(url: &str) -> Option<&str> {
    ["http://", "https://"].iter().find_map(|scheme| {
        let (start, rest) = url.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme).then_some(rest)
    })
}

/// Whether something is a URL that can be called: http or https, with a host, and nothing in it
/// that a request line cannot carry.
pub fn check_url(url: &str) -> Result<(), String> {
    let rest = after_scheme(url).ok_or(NO_SCHEME)?;
    if url.len() > LONGEST_URL {
        return Err(format!("endpoint is longer than {LONGEST_URL} bytes"));
    }
    if url.chars().any(|c| c.is_control() || c.is_whitespace()) {
        return Err("endpoint contains a blank or a control character".to_owned());
    }
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    // Some readers take a backslash for a slash; then the host is not the one that is checked here.
    if authority.contains('\\') {
        return Err("endpoint has a backslash in its host".to_owned());
    }
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let (host, port) = if host.starts_with('[') {
        let (host, after) = host.split_once(']').ok_or("endpoint has an invalid host")?;
        let port = match after.strip_prefix(':') {
            Some(port) => port,
            None if after.is_empty() => "",
            None => return Err("endpoint has an invalid host".to_owned()),
        };
        (&host[1..], port)
    } else {
        host.split_once(':').unwrap_or((host, ""))
    };
    if host.is_empty() {
        return Err("endpoint has no host".to_owned());
    }
    let digits = port.bytes().all(|byte| byte.is_ascii_digit());
    if !port.is_empty() && (!digits || port.parse::<u16>().is_err()) {
        return Err(format!("endpoint has an invalid port `{}`", shown(port)));
    }
    Ok(())
}

/// Takes the configuration out of a raw query: the `upstash-*` parameters and `qstash_token`,
/// decoded and with names in lower case. The rest, which belongs to the destination, stays as it
/// is, byte for byte.
#[must_use]
pub fn split_query(raw: &str) -> (Vec<(String, String)>, String) {
    let mut taken = Vec::new();
    let mut rest = Vec::new();
    for parameter in raw.split('&') {
        let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
        // Decoded before it is compared: a token must not pass on to a stranger because of the way
        // in which its name is written.
        let name = decoded(name).to_ascii_lowercase();
        if name.starts_with("upstash-") || name == "qstash_token" {
            taken.push((name, decoded(value)));
        } else {
            rest.push(parameter);
        }
    }
    (taken, rest.join("&"))
}

/// A part of a query: `%20` and `+` are blanks. What is not a code stays as it is.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let hex = |offset: usize| bytes.get(at + offset).and_then(|b| (*b as char).to_digit(16));
        let code = match (byte, hex(1), hex(2)) {
            (b'%', Some(high), Some(low)) => u8::try_from(high * 16 + low).ok(),
            _ => None,
        };
        at += if code.is_some() { 3 } else { 1 };
        out.push(code.unwrap_or(if byte == b'+' { b' ' } else { byte }));
    }
    String::from_utf8_lossy(&out).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn urls_are_kept_to_the_byte() {
        for url in [
            "https://a.example",
            "http://localhost:3000/x",
            "HTTPS://A.example/a%20b//c?x=1&y=%2F#z",
            "https://user:p@ss@host:8443/a?b=https://c",
            "https://[::1]/",
            "https://[::1]:80",
            "https://host:/",
            "https://bücher.example/ü",
        ] {
            assert_eq!(destination(url), Ok(Destination::Url(url.to_owned())));
        }
    }

    #[test]
    fn what_cannot_be_called_is_refused() {
        let long = format!("https://a.example/{}", "x".repeat(LONGEST_URL));
        for (url, why) in [
            ("https://", "endpoint has no host"),
            ("https:///path", "endpoint has no host"),
            ("https://user@/path", "endpoint has no host"),
            ("https://:80/path", "endpoint has no host"),
            ("https://?x=1", "endpoint has no host"),
            ("https://a b/", "endpoint contains a blank or a control character"),
            ("https://a/\r\nx", "endpoint contains a blank or a control character"),
            ("https://a:b/", "endpoint has an invalid port `b`"),
            ("https://a:65536/", "endpoint has an invalid port `65536`"),
            ("https://a:+1/", "endpoint has an invalid port `+1`"),
            ("https://[::1/", "endpoint has an invalid host"),
            ("https://[::1]x/", "endpoint has an invalid host"),
            ("https://[]/", "endpoint has no host"),
            ("https://evil\\@a.example/", "endpoint has a backslash in its host"),
            (long.as_str(), "endpoint is longer than 8192 bytes"),
            ("ftp://a.example/", NO_SCHEME),
            ("a.example/path", NO_SCHEME),
            ("localhost:3000", NO_SCHEME),
            ("https:/a.example", NO_SCHEME),
            ("a group", NO_SCHEME),
        ] {
            assert_eq!(destination(url), Err(format!("invalid destination url: {why}")), "{url}");
        }
        assert_eq!(
            destination("x://y").unwrap_err(),
            "invalid destination url: endpoint has invalid scheme, add http:// or https://"
        );
        assert_eq!(destination("").unwrap_err(), "a non-empty destination must be provided");
    }

    #[test]
    fn what_is_no_url_is_a_group() {
        let group = |name: &str| Ok(Destination::Group(name.to_owned()));
        assert_eq!(destination("my-group_1.x"), group("my-group_1.x"));
        assert_eq!(destination("my-group?x=1"), group("my-group"));
        assert_eq!(destination("api"), group("api"));
        assert_eq!(destination("api/llm"), Ok(Destination::Unsupported("api/llm".to_owned())));
    }

    #[test]
    fn configuration_is_taken_out_of_a_query() {
        for (raw, taken, rest) in [
            ("", &[][..], ""),
            ("x=1&y=%20&&z", &[], "x=1&y=%20&&z"),
            ("x=1&upstash-retries=3&y=2", &[("upstash-retries", "3")], "x=1&y=2"),
            (
                "Upstash-Delay=100s&qstash_token=a%2Bb",
                &[("upstash-delay", "100s"), ("qstash_token", "a+b")],
                "",
            ),
            ("upstash-cron=*/5+*+*+*+%2A", &[("upstash-cron", "*/5 * * * *")], ""),
            (
                "upstash%2Ddelay=1s&qstash%5ftoken=t",
                &[("upstash-delay", "1s"), ("qstash_token", "t")],
                "",
            ),
            ("upstash-callback=https://a/?b=c&d", &[("upstash-callback", "https://a/?b=c")], "d"),
            ("upstash-label", &[("upstash-label", "")], ""),
            (
                "upstash=1&xupstash-a=2&qstash_tokens=3",
                &[],
                "upstash=1&xupstash-a=2&qstash_tokens=3",
            ),
            ("upstash-label=%zz%4&a=%zz", &[("upstash-label", "%zz%4")], "a=%zz"),
            ("upstash-label=%ff", &[("upstash-label", "\u{fffd}")], ""),
        ] {
            let owned: Vec<_> = taken
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect();
            assert_eq!(split_query(raw), (owned, rest.to_owned()), "{raw}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*", near in "https?://[\\[\\]a-z0-9:@/?#%&=+.\\\\-]{0,40}") {
            for text in [text, near] {
                if let Ok(Destination::Url(url)) = destination(&text) {
                    prop_assert_eq!(url, text.clone());
                }
                let (taken, rest) = split_query(&text);
                prop_assert!(rest.len() <= text.len());
                prop_assert!(split_query(&rest).0.is_empty());
                if taken.is_empty() {
                    prop_assert_eq!(rest, text);
                }
            }
        }

        #[test]
        fn any_value_survives_a_query(value in "\\PC*", label in "[a-z]{1,8}") {
            let coded: Vec<String> = value.bytes().map(|byte| format!("%{byte:02X}")).collect();
            let coded = coded.concat();
            let raw = format!("a=1&upstash-{label}={coded}&b=2");
            prop_assert_eq!(split_query(&raw), (vec![(format!("upstash-{label}"), value)], "a=1&b=2".to_owned()));
        }
    }
}
