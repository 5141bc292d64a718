//! Reading one value: text in, a typed value or "what was expected" out.
//!
//! Called by the loader for every setting and for the defaults. It guarantees that a value that was
//! read is within its range, so that the rest of the program needs no checks of its own. It does not
//! echo what it could not read: the loader decides whether the value may be shown.

use std::net::SocketAddr;
use std::time::Duration;

use url::Url;

use super::keys::Kind;

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    Int(u64),
    Float(f64),
    Bool(bool),
    Span(Duration),
    Spans(Vec<Duration>),
    Words(Vec<String>),
    Text(String),
    Address(SocketAddr),
    Url(Option<Url>),
}

/// Reads `text` as a value of `kind`.
pub fn read(kind: Kind, text: &str) -> Result<Value, String> {
    let text = text.trim();
    let value = match kind {
        Kind::Int { min, max } => whole(text, min, max).map(Value::Int),
        Kind::Float { min, max } => number(text, min, max).map(Value::Float),
        Kind::Bool => truth(text).map(Value::Bool),
        Kind::Seconds { min, max } => span(text, 1.0, min, max).map(Value::Span),
        Kind::Hours { min, max } => span(text, 3600.0, min, max).map(Value::Span),
        Kind::Millis { min, max } => {
            whole(text, min, max).map(|ms| Value::Span(Duration::from_millis(ms)))
        }
        Kind::SecondsList => spans(text).map(Value::Spans),
        Kind::Words => Some(Value::Words(words(text))),
        Kind::Choice(choices) => choices.contains(&text).then(|| Value::Text(text.to_owned())),
        Kind::Text | Kind::Secret => Some(Value::Text(text.to_owned())),
        Kind::Address => address(text).map(Value::Address),
        Kind::WebUrl if text.is_empty() => Some(Value::Url(None)),
        Kind::WebUrl => web_url(text).map(|url| Value::Url(Some(url))),
        Kind::DatabaseUrl => database_url(text).map(Value::Text),
        Kind::LogFilter => log_filter(text).map(Value::Text),
    };
    value.ok_or_else(|| expected(kind))
}

/// What a value of this kind looks like, for messages and for the documentation.
#[must_use]
pub fn expected(kind: Kind) -> String {
    match kind {
        Kind::Int { min, max } => format!("a whole number from {min} to {max}"),
        Kind::Float { min, max } => format!("a number from {min} to {max}"),
        Kind::Bool => "true or false".into(),
        Kind::Seconds { min, max } => format!("seconds from {min} to {max}, fractions allowed"),
        Kind::Hours { min, max } => format!("hours from {min} to {max}, fractions allowed"),
        Kind::Millis { min, max } => format!("whole milliseconds from {min} to {max}"),
        Kind::SecondsList => "seconds separated by commas, as in 5,10,20 or [5, 10, 20]".into(),
        Kind::Words => "words separated by commas".into(),
        Kind::Choice(choices) => format!("one of {}", choices.join(", ")),
        Kind::Text => "text".into(),
        Kind::Address => "an IP address and a port, as in 127.0.0.1:8080 or [::1]:8080".into(),
        Kind::WebUrl => "an address that starts with http:// or https://".into(),
        Kind::DatabaseUrl => "sqlite:PATH, or postgres://user:password@host/database".into(),
        Kind::LogFilter => "a log filter, as in info or info,tashika_engine=debug".into(),
        Kind::Secret => "a secret".into(),
    }
}

fn whole(text: &str, min: u64, max: u64) -> Option<u64> {
    // Underscores as in TOML, so that both sources take the same spelling.
    let number = text.replace('_', "").parse().ok()?;
    (min..=max).contains(&number).then_some(number)
}

fn number(text: &str, min: f64, max: f64) -> Option<f64> {
    let number: f64 = text.parse().ok()?;
    (min..=max).contains(&number).then_some(number)
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "true" | "1" | "yes" | "on" => Some(true),
        "false" | "0" | "no" | "off" => Some(false),
        _ => None,
    }
}

fn span(text: &str, unit: f64, min: f64, max: f64) -> Option<Duration> {
    Duration::try_from_secs_f64(number(text, min, max)? * unit).ok()
}

fn spans(text: &str) -> Option<Vec<Duration>> {
    let inner = match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?,
        None => text,
    };
    let inner = inner.trim().trim_end_matches(',');
    // No waits at all would hammer a service that is already struggling: 0 must be written out.
    inner.split(',').map(|item| span(item.trim(), 1.0, 0.0, 31_536_000.0)).collect()
}

fn words(text: &str) -> Vec<String> {
    text.split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned).collect()
}

fn address(text: &str) -> Option<SocketAddr> {
    if let Some(port) = text.strip_prefix("localhost:") {
        return format!("127.0.0.1:{port}").parse().ok();
    }
    text.parse().ok()
}

fn web_url(text: &str) -> Option<Url> {
    let url = Url::parse(text).ok()?;
    (matches!(url.scheme(), "http" | "https") && url.has_host()).then_some(url)
}

fn database_url(text: &str) -> Option<String> {
    let sqlite = text.strip_prefix("sqlite:").is_some_and(|path| !path.is_empty());
    let postgres = (text.starts_with("postgres://") || text.starts_with("postgresql://"))
        && Url::parse(text).is_ok();
    (sqlite || postgres).then(|| text.to_owned())
}

fn log_filter(text: &str) -> Option<String> {
    let filter = text.parse::<tracing_subscriber::EnvFilter>();
    (!text.is_empty() && filter.is_ok()).then(|| text.to_owned())
}

/// The value as it may be shown to people.
#[must_use]
pub fn shown(kind: Kind, text: &str) -> String {
    match kind {
        Kind::Secret if text.trim().is_empty() => String::new(),
        Kind::Secret => "(hidden)".into(),
        Kind::DatabaseUrl | Kind::WebUrl => without_password(text),
        _ => text.trim().to_owned(),
    }
}

fn without_password(text: &str) -> String {
    let Ok(mut url) = Url::parse(text) else {
        return text.to_owned();
    };
    // PostgreSQL addresses may also carry it as a parameter.
    if url.query().is_some_and(|query| query.contains("password")) {
        url.set_query(Some("hidden"));
        return without_password(url.as_str());
    }
    if url.password().is_none() {
        return text.to_owned();
    }
    // Fails only for addresses that cannot carry a password, which this one does.
    if url.set_password(Some("hidden")).is_err() {
        return "(hidden)".into();
    }
    url.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECONDS: Kind = Kind::Seconds { min: 0.05, max: 100.0 };

    #[test]
    fn each_kind_reads_its_own_form() {
        let ms = |ms| Duration::from_millis(ms);
        for (kind, text, value) in [
            (Kind::Int { min: 1, max: 9 }, " 4 ", Value::Int(4)),
            (Kind::Int { min: 1, max: 9999 }, "1_000", Value::Int(1000)),
            (Kind::Float { min: 0.0, max: 9.0 }, "0.5", Value::Float(0.5)),
            (Kind::Bool, "TRUE", Value::Bool(true)),
            (Kind::Bool, "off", Value::Bool(false)),
            (SECONDS, "0.5", Value::Span(ms(500))),
            (Kind::Millis { min: 1, max: 9000 }, "2500", Value::Span(ms(2500))),
            (Kind::Hours { min: 0.0, max: 9.0 }, "0.001", Value::Span(ms(3600))),
            (Kind::SecondsList, "[5, 0.25]", Value::Spans(vec![ms(5000), ms(250)])),
            (Kind::SecondsList, "5,10", Value::Spans(vec![ms(5000), ms(10_000)])),
            (Kind::Words, " A, B,,", Value::Words(vec!["A".into(), "B".into()])),
            (Kind::Words, "", Value::Words(vec![])),
            (Kind::Choice(&["a", "b"]), "b", Value::Text("b".into())),
            (Kind::Address, "localhost:80", Value::Address(([127, 0, 0, 1], 80).into())),
            (Kind::WebUrl, "", Value::Url(None)),
        ] {
            assert_eq!(read(kind, text), Ok(value), "{kind:?} {text:?}");
        }
    }

    #[test]
    fn anything_else_is_refused() {
        for (kind, text) in [
            (Kind::Int { min: 1, max: 9 }, "0"),
            (Kind::Int { min: 1, max: 9 }, "10"),
            (Kind::Int { min: 0, max: 9 }, "-1"),
            (Kind::Int { min: 0, max: 9 }, "1.5"),
            (Kind::Float { min: 0.0, max: 1.0 }, "NaN"),
            (Kind::Float { min: 0.0, max: 1.0 }, "inf"),
            (Kind::Bool, "maybe"),
            (SECONDS, "0"),
            (SECONDS, "1e9"),
            (SECONDS, "5s"),
            (Kind::SecondsList, "[5, 10"),
            (Kind::SecondsList, "5,x"),
            (Kind::SecondsList, "[]"),
            (Kind::SecondsList, ""),
            (Kind::SecondsList, "-5"),
            (Kind::Choice(&["a"]), "c"),
            (Kind::Address, "8080"),
            (Kind::Address, "example.com:80"),
            (Kind::WebUrl, "ftp://host/"),
            (Kind::WebUrl, "broker.example"),
            (Kind::DatabaseUrl, "sqlite:"),
            (Kind::DatabaseUrl, "mysql://host/db"),
            (Kind::LogFilter, "info,a=loud"),
        ] {
            assert!(read(kind, text).is_err(), "{kind:?} {text:?}");
        }
    }

    #[test]
    fn secrets_and_passwords_are_not_shown() {
        assert_eq!(shown(Kind::Secret, "s3cret"), "(hidden)");
        assert_eq!(shown(Kind::Secret, ""), "");
        let url = shown(Kind::DatabaseUrl, "postgres://me:s3cret@db.example/t");
        assert_eq!(url, "postgres://me:hidden@db.example/t");
        let url = shown(Kind::DatabaseUrl, "postgres://me:s3cret@db.example/t?password=s3cret");
        assert!(!url.contains("s3cret"), "{url}");
        assert_eq!(shown(Kind::DatabaseUrl, "sqlite:tashika.db"), "sqlite:tashika.db");
        let broker = shown(Kind::WebUrl, "https://u:s3cret@b.example/");
        assert!(!broker.contains("s3cret"));
    }
}
