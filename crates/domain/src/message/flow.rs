//! Flow control as callers write it: `Upstash-Flow-Control-Key` and `Upstash-Flow-Control-Value`.
//!
//! `parallelism=2, rate=1, period=60s`, in any order. What the limits do is decided elsewhere.

use std::time::Duration;

use super::asked::Flow;
use super::span::{self, shown};

/// Bytes of a key.
pub const LONGEST_KEY: usize = 256;

/// The period of a caller who names none.
pub const PERIOD: Duration = Duration::from_secs(1);

pub const LONGEST_PERIOD: Duration = Duration::from_secs(7 * 86_400);

/// Reads a key and the limits of it.
pub fn read(key: &str, value: &str) -> Result<Flow, String> {
    check_key(key).map_err(|why| format!("Upstash-Flow-Control-Key is invalid: {why}"))?;
    limits(key, value).map_err(|why| format!("Upstash-Flow-Control-Value is invalid: {why}"))
}

fn limits(key: &str, value: &str) -> Result<Flow, String> {
    let mut flow = Flow { key: key.to_owned(), parallelism: None, rate: None, period: PERIOD };
    let mut period_given = None;
    for part in value.split(',').map(str::trim).filter(|part| !part.is_empty()) {
        let Some((name, number)) = part.split_once('=') else {
            return Err(format!("`{}` is not of the form name=value", shown(part)));
        };
        let (name, number) = (name.trim(), number.trim());
        let twice = match name {
            "parallelism" => flow.parallelism.replace(limit(name, number)?).is_some(),
            "rate" => flow.rate.replace(limit(name, number)?).is_some(),
            "period" => period_given.replace(period(number)?).is_some(),
            _ => {
                return Err(format!(
                    "`{}` is not one of parallelism, rate and period",
                    shown(name)
                ));
            }
        };
        if twice {
            return Err(format!("`{name}` is given twice"));
        }
    }
    if flow.parallelism.is_none() && flow.rate.is_none() {
        return Err("at least one of parallelism and rate is needed".to_owned());
    }
    flow.period = period_given.unwrap_or(PERIOD);
    Ok(flow)
}

/// A key is any text that can stand in a header. A `/` is allowed, because the hosted service takes
/// such keys; whoever routes `/v2/flowControl/{key}/pause` has to cut at the last `/`.
pub fn check_key(key: &str) -> Result<(), String> {
    if key.is_empty() {
        return Err("the key is empty".to_owned());
    }
    if key.len() > LONGEST_KEY {
        return Err(format!("the key is longer than {LONGEST_KEY} bytes"));
    }
    if key.chars().any(char::is_control) {
        return Err("the key contains a control character".to_owned());
    }
    Ok(())
}

/// A limit: at least 1. Zero would be a key whose messages are never delivered; that is a pause.
pub fn limit(name: &str, text: &str) -> Result<u32, String> {
    match text.parse::<u32>() {
        // `parse` also takes `+1`.
        Ok(number) if number > 0 && !text.starts_with('+') => Ok(number),
        _ => Err(format!("{name} `{}` is not a whole number of at least 1", shown(text))),
    }
}

/// A period: a duration, or a number of seconds, as the SDKs send it when they pin a key.
pub fn period(text: &str) -> Result<Duration, String> {
    let bare = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let period = if bare { span::parse(&format!("{text}s")) } else { span::parse(text) }
        .map_err(|why| format!("period {why}"))?;
    if period < PERIOD || period > LONGEST_PERIOD {
        return Err(format!("period `{}` is not between 1 second and 7 days", shown(text)));
    }
    Ok(period)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn flow(parallelism: Option<u32>, rate: Option<u32>, period: u64) -> Flow {
        Flow { key: "k".to_owned(), parallelism, rate, period: Duration::from_secs(period) }
    }

    #[test]
    fn reads_what_the_sdks_send() {
        for (value, expected) in [
            ("parallelism=2, rate=1, period=60s", flow(Some(2), Some(1), 60)),
            ("parallelism=2,rate=1,period=60s", flow(Some(2), Some(1), 60)),
            ("period=1d , rate = 10", flow(None, Some(10), 86_400)),
            ("parallelism=5", flow(Some(5), None, 1)),
            ("rate=3", flow(None, Some(3), 1)),
            ("rate=3, period=7d", flow(None, Some(3), 604_800)),
            ("rate=3, period=90", flow(None, Some(3), 90)),
            ("parallelism=4294967295,", flow(Some(u32::MAX), None, 1)),
            ("parallelism=1, period=5m", flow(Some(1), None, 300)),
        ] {
            assert_eq!(read("k", value), Ok(expected), "{value}");
        }
        assert_eq!(read("tenant/7 ü:x", "rate=1").unwrap().key, "tenant/7 ü:x");
    }

    #[test]
    fn refuses_limits_that_limit_nothing() {
        for (value, why) in [
            ("", "at least one of parallelism and rate is needed"),
            (" , ", "at least one of parallelism and rate is needed"),
            ("period=60s", "at least one of parallelism and rate is needed"),
            ("rate", "`rate` is not of the form name=value"),
            ("burst=3", "`burst` is not one of parallelism, rate and period"),
            ("Rate=3", "`Rate` is not one of parallelism, rate and period"),
            ("rate=0", "rate `0` is not a whole number of at least 1"),
            ("rate=-1", "rate `-1` is not a whole number of at least 1"),
            ("rate=+1", "rate `+1` is not a whole number of at least 1"),
            ("rate=1.5", "rate `1.5` is not a whole number of at least 1"),
            (
                "parallelism=4294967296",
                "parallelism `4294967296` is not a whole number of at least 1",
            ),
            ("rate=1, rate=2", "`rate` is given twice"),
            ("rate=1, period=1s, period=1s", "`period` is given twice"),
            ("rate=1, period=0s", "period `0s` is not between 1 second and 7 days"),
            ("rate=1, period=8d", "period `8d` is not between 1 second and 7 days"),
            ("rate=1, period=x", "period `x` is not a duration such as 30s, 10m or 1d10h30m"),
        ] {
            let error = format!("Upstash-Flow-Control-Value is invalid: {why}");
            assert_eq!(read("k", value), Err(error), "{value}");
        }
    }

    #[test]
    fn refuses_keys_that_no_header_can_carry() {
        let long = "k".repeat(LONGEST_KEY + 1);
        for (key, why) in [
            ("", "the key is empty"),
            ("a\nb", "the key contains a control character"),
            (long.as_str(), "the key is longer than 256 bytes"),
        ] {
            let error = format!("Upstash-Flow-Control-Key is invalid: {why}");
            assert_eq!(read(key, "rate=1"), Err(error));
        }
    }

    proptest! {
        #[test]
        fn never_panics(key in "\\PC*", value in "\\PC*", near in "[a-z=, 0-9]{0,40}") {
            for value in [value, near] {
                if let Ok(flow) = read(&key, &value) {
                    prop_assert!(flow.parallelism.is_some() || flow.rate.is_some());
                    prop_assert!((PERIOD..=LONGEST_PERIOD).contains(&flow.period));
                }
            }
        }

        #[test]
        fn what_is_written_is_read(
            parallelism in 1_u32.., rate in 1_u32.., period in 1_u64..604_800, swap: bool, gap in " {0,2}"
        ) {
            let mut parts = [format!("parallelism={parallelism}"), format!("rate={gap}{rate}"), format!("period={period}s")];
            if swap {
                parts.reverse();
            }
            let value = parts.join(&format!(",{gap}"));
            prop_assert_eq!(read("k", &value), Ok(flow(Some(parallelism), Some(rate), period)));
        }
    }
}
