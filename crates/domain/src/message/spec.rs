//! What the headers of a request ask for: publish, enqueue, a batch item, a schedule, and the
//! overrides of a dead letter's retry all speak the same headers.
//!
//! Names come in any case. Of a setting that is given twice, the first counts; an empty one is not
//! given; `Upstash-*` headers that are not known here, telemetry among them, ask for nothing. Every
//! error is a sentence with the name of the header, for whoever sent it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::address;
use super::asked::{Callback, Flow, Headers, Method, Redact};
use super::cron::Cron;
use super::delay::Expression;
use super::flow;
use super::names::{self, canonical};
use super::span::{self, shown};
use crate::time::Timestamp;

/// Retries that a message may ask for. With a delay of zero, more would be an attack.
pub const MOST_RETRIES: u32 = 1000;

/// Bytes of a deduplication id, and of a label.
pub const LONGEST_ID: usize = 512;

/// Labels of a message.
pub const MOST_LABELS: usize = 100;

/// Never forwarded, under whatever name they came: they belong to one connection, or are set by
/// the client that delivers.
const OF_THE_CONNECTION: [&str; 13] = [
    "Connection",
    "Content-Length",
    "Expect",
    "Host",
    "Http2-Settings",
    "Keep-Alive",
    "Proxy-Authenticate",
    "Proxy-Authorization",
    "Proxy-Connection",
    "Te",
    "Trailer",
    "Transfer-Encoding",
    "Upgrade",
];

/// Not forwarded by `Upstash-Header-Forward` either: the caller's token for this queue, and what the
/// caller's client can decode.
const OF_THE_CALLER: [&str; 2] = ["Accept-Encoding", "Authorization"];

const CONTENT_TYPE: &str = "content-type";

/// What was asked for; nothing where nothing was.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Spec {
    pub method: Option<Method>,
    /// What the destination gets: `Content-Type` and what is to be forwarded.
    pub headers: Headers,
    pub retries: Option<u32>,
    /// An expression that can be read, as it was given.
    pub retry_delay: Option<String>,
    pub delay: Option<Duration>,
    /// Wins over the delay.
    pub not_before: Option<Timestamp>,
    /// Longer than zero.
    pub timeout: Option<Duration>,
    pub dedup_id: Option<String>,
    pub content_dedup: bool,
    pub callback: Option<Callback>,
    pub failure_callback: Option<Callback>,
    pub cron: Option<Cron>,
    pub schedule_id: Option<String>,
    pub queue: Option<String>,
    pub flow: Option<Flow>,
    /// Each once, in the order in which they were given.
    pub labels: Vec<String>,
    pub redact: Redact,
}

impl Spec {
    /// Reads the headers of a request, all of them.
    pub fn read<'a>(pairs: impl Iterator<Item = (&'a str, &'a str)>) -> Result<Self, String> {
        let mut reading = Reading::default();
        for (name, value) in pairs {
            reading.take(name, value.trim_matches([' ', '\t']))?;
        }
        reading.done()
    }
}

#[derive(Default)]
struct Reading<'a> {
    spec: Spec,
    callback: Draft,
    failure_callback: Draft,
    content_dedup: Option<bool>,
    flow_key: Option<String>,
    flow_value: Option<String>,
    forward_all: Option<bool>,
    /// Headers without a prefix, as they came: most of them are not asked for.
    incoming: Vec<(&'a str, &'a str)>,
    /// Headers with the prefix `Upstash-Forward-`.
    forwarded: Headers,
}

/// A callback whose URL may be still to come.
#[derive(Default)]
struct Draft {
    url: Option<String>,
    settings: Callback,
}

impl<'a> Reading<'a> {
    fn take(&mut self, name: &'a str, value: &'a str) -> Result<(), String> {
        const PREFIX: &str = "upstash-";
        let is_setting = name.get(..PREFIX.len()).is_some_and(|it| it.eq_ignore_ascii_case(PREFIX));
        if !is_setting {
            // Strange headers are nobody's business, unless they are to be forwarded.
            match check(name, value) {
                Ok(()) => self.incoming.push((name, value)),
                Err(why) if name.eq_ignore_ascii_case(CONTENT_TYPE) => {
                    return Err(invalid(name, &why));
                }
                Err(_) => {}
            }
            return Ok(());
        }
        let lower = name[PREFIX.len()..].to_ascii_lowercase();
        let key = lower.as_str();
        if key == "deduplication-id" && value.contains(':') {
            // To the letter what the hosted service says; callers look for it.
            return Err("DeduplicationId cannot contain ':'".to_owned());
        }
        self.setting(key, value).map_err(|why| invalid(name, &why))
    }

    fn setting(&mut self, key: &str, value: &str) -> Result<(), String> {
        if let Some(header) = key.strip_prefix("forward-") {
            return add(&mut self.forwarded, header, value);
        }
        if let Some(key) = key.strip_prefix("callback-") {
            return self.callback.setting(key, value);
        }
        if let Some(key) = key.strip_prefix("failure-callback-") {
            return self.failure_callback.setting(key, value);
        }
        check_value(value)?;
        if value.is_empty() {
            return Ok(());
        }
        let spec = &mut self.spec;
        match key {
            "method" => first(&mut spec.method, method(value)?),
            "retries" => first(&mut spec.retries, retries(value)?),
            "retry-delay" => first(&mut spec.retry_delay, expression(value)?),
            "delay" => first(&mut spec.delay, span::parse(value)?),
            "not-before" => first(&mut spec.not_before, not_before(value)?),
            "timeout" => set_timeout(&mut spec.timeout, value)?,
            "deduplication-id" => first(&mut spec.dedup_id, id(value)?),
            "content-based-deduplication" => first(&mut self.content_dedup, truth(value)?),
            "callback" => first(&mut self.callback.url, url(value)?),
            "failure-callback" => first(&mut self.failure_callback.url, url(value)?),
            "cron" => first(&mut spec.cron, Cron::parse(value)?),
            "schedule-id" => first(&mut spec.schedule_id, name(value)?),
            "queue-name" => first(&mut spec.queue, name(value)?),
            "flow-control-key" => first(&mut self.flow_key, value.to_owned()),
            "flow-control-value" => first(&mut self.flow_value, value.to_owned()),
            "label" => add_labels(&mut spec.labels, value)?,
            "redact-fields" => add_redaction(&mut spec.redact, value)?,
            "header-forward" => first(&mut self.forward_all, truth(value)?),
            _ => {}
        }
        Ok(())
    }

    fn done(self) -> Result<Spec, String> {
        let flow = match (&self.flow_key, &self.flow_value) {
            (Some(key), value) => Some(flow::read(key, value.as_deref().unwrap_or_default())?),
            (None, Some(_)) => {
                return Err(invalid("Upstash-Flow-Control-Value", "it comes without a key"));
            }
            (None, None) => None,
        };
        let forward_all = self.forward_all.unwrap_or(false);
        Ok(Spec {
            headers: forwarded(&self.incoming, self.forwarded, forward_all),
            content_dedup: self.content_dedup.unwrap_or(false),
            callback: self.callback.done(),
            failure_callback: self.failure_callback.done(),
            flow,
            ..self.spec
        })
    }
}

impl Draft {
    fn setting(&mut self, key: &str, value: &str) -> Result<(), String> {
        let settings = &mut self.settings;
        if let Some(header) = key.strip_prefix("forward-") {
            add(&mut settings.headers, header, value)?;
            settings.headers.retain(|name, _| !OF_THE_CONNECTION.contains(&name.as_str()));
            return Ok(());
        }
        check_value(value)?;
        if value.is_empty() {
            return Ok(());
        }
        match key {
            "method" => first(&mut settings.method, method(value)?),
            "retries" => first(&mut settings.retries, retries(value)?),
            "retry-delay" => first(&mut settings.retry_delay, expression(value)?),
            "timeout" => set_timeout(&mut settings.timeout, value)?,
            "delay" if !span::parse(value)?.is_zero() => {
                return Err("a callback cannot be delayed".to_owned());
            }
            "not-before" => return Err("a callback cannot be delayed".to_owned()),
            _ => {}
        }
        Ok(())
    }

    /// Settings of a callback that nobody asked for are nothing.
    fn done(self) -> Option<Callback> {
        self.url.map(|url| Callback { url, ..self.settings })
    }
}

/// What the destination gets. A forwarded header takes the place of the request's own.
fn forwarded(incoming: &[(&str, &str)], mut explicit: Headers, all: bool) -> Headers {
    explicit.retain(|name, _| !OF_THE_CONNECTION.contains(&name.as_str()));
    // A connection may name more headers that are its own.
    let named: BTreeSet<String> = incoming
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("connection"))
        .flat_map(|(_, value)| value.split(','))
        .map(|name| name.trim().to_ascii_lowercase())
        .collect();
    let among = |list: &[&str], name: &str| list.iter().any(|it| it.eq_ignore_ascii_case(name));
    let mut headers = Headers::new();
    for (name, value) in incoming {
        let own = || {
            among(&OF_THE_CONNECTION, name)
                || among(&OF_THE_CALLER, name)
                || named.contains(&name.to_ascii_lowercase())
                // The token of the query is given together with the headers.
                || name.eq_ignore_ascii_case("qstash_token")
        };
        if name.eq_ignore_ascii_case(CONTENT_TYPE) || (all && !own()) {
            headers.entry(canonical(name)).or_default().push((*value).to_owned());
        }
    }
    if headers.get("Content-Type").is_some_and(|values| values == &[""]) {
        headers.remove("Content-Type");
    }
    headers.extend(explicit);
    headers
}

fn add(headers: &mut Headers, name: &str, value: &str) -> Result<(), String> {
    check(name, value)?;
    headers.entry(canonical(name)).or_default().push(value.to_owned());
    Ok(())
}

/// Whether it can be a header.
fn check(name: &str, value: &str) -> Result<(), String> {
    if !names::is_header(name) {
        return Err(format!("`{}` is not the name of a header", shown(name)));
    }
    check_value(value)
}

/// Headers of a batch item come in JSON and settings in a query: there, a value may contain what a
/// header cannot, and would begin a header of its own in the delivery.
fn check_value(value: &str) -> Result<(), String> {
    if value.chars().any(|c| c.is_control() && c != '\t') {
        return Err("it contains a control character".to_owned());
    }
    Ok(())
}

fn invalid(name: &str, why: &str) -> String {
    format!("{} is invalid: {why}", shown(&canonical(name)))
}

fn first<T>(slot: &mut Option<T>, value: T) {
    slot.get_or_insert(value);
}

fn method(value: &str) -> Result<Method, String> {
    Method::parse(value)
        .ok_or_else(|| format!("`{}` is not one of GET, POST, PUT, PATCH and DELETE", shown(value)))
}

fn retries(value: &str) -> Result<u32, String> {
    match value.parse::<u32>() {
        Ok(number) if number <= MOST_RETRIES && !value.starts_with('+') => Ok(number),
        _ => Err(format!("`{}` is not a whole number between 0 and {MOST_RETRIES}", shown(value))),
    }
}

fn expression(value: &str) -> Result<String, String> {
    Expression::parse(value).map(|_| value.to_owned())
}

/// A timeout of zero would fail every attempt; whoever sends it means "none of my own".
fn set_timeout(slot: &mut Option<Duration>, value: &str) -> Result<(), String> {
    let timeout = span::parse(value)?;
    if !timeout.is_zero() {
        first(slot, timeout);
    }
    Ok(())
}

fn not_before(value: &str) -> Result<Timestamp, String> {
    // The end of the year 9999. Milliseconds, a frequent mistake, are far beyond.
    const LAST: i64 = 253_402_300_799;
    match value.parse::<i64>() {
        Ok(seconds) if (0..=LAST).contains(&seconds) && !value.starts_with('+') => {
            Ok(Timestamp::from_micros(seconds * 1_000_000))
        }
        _ => Err(format!("`{}` is not a time in seconds since 1970", shown(value))),
    }
}

fn id(value: &str) -> Result<String, String> {
    if value.len() > LONGEST_ID {
        return Err(format!("it is longer than {LONGEST_ID} bytes"));
    }
    Ok(value.to_owned())
}

/// `true` from one SDK, `True` from the other.
fn truth(value: &str) -> Result<bool, String> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" => Ok(true),
        "false" | "0" => Ok(false),
        _ => Err(format!("`{}` is neither true nor false", shown(value))),
    }
}

fn url(value: &str) -> Result<String, String> {
    address::check_url(value).map(|()| value.to_owned())
}

fn name(value: &str) -> Result<String, String> {
    names::check(value).map(|()| value.to_owned())
}

fn add_labels(labels: &mut Vec<String>, value: &str) -> Result<(), String> {
    for label in value.split(',').map(str::trim).filter(|label| !label.is_empty()) {
        let label = id(label)?;
        if !labels.contains(&label) {
            labels.push(label);
        }
        if labels.len() > MOST_LABELS {
            return Err(format!("there are more than {MOST_LABELS} labels"));
        }
    }
    Ok(())
}

/// `body`, `header` or `headers` for all of them, `header[Name]` for one.
fn add_redaction(redact: &mut Redact, value: &str) -> Result<(), String> {
    for field in value.split(',').map(str::trim).filter(|field| !field.is_empty()) {
        let lower = field.to_ascii_lowercase();
        let named = lower.strip_prefix("header[").and_then(|rest| rest.strip_suffix(']'));
        match (lower.as_str(), named.map(str::trim)) {
            ("body", _) => redact.body = true,
            ("header" | "headers", _) => redact.headers = true,
            (_, Some(header)) if names::is_header(header) => {
                let header = canonical(header);
                if !redact.named.contains(&header) {
                    redact.named.push(header);
                }
            }
            _ => {
                return Err(format!(
                    "`{}` is not one of body, header and header[Name]",
                    shown(field)
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;
