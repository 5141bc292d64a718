//! Lengths of time as callers and destinations write them.
//!
//! [`parse`] reads what a caller asks for (`Upstash-Delay: 1d10h30m`). [`go_duration`] reads what a
//! destination answers (`Retry-After: 6m5s`), in the notation of the Go language. Both sum their
//! parts, in any order, and neither overflows.

use std::time::Duration;

/// Ten years. A longer wait is a mistake in a unit, and moments that far away need not be kept
/// exactly.
pub const LONGEST: Duration = Duration::from_secs(3650 * DAY);

const DAY: u64 = 86_400;

/// Reads `5s`, `10d`, `1d10h30m`: whole numbers, each with its unit.
pub fn parse(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{}` is not a duration such as 30s, 10m or 1d10h30m", shown(text));
    let mut total = 0_u64;
    let mut rest = text;
    if rest.is_empty() {
        return Err(wrong());
    }
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let (number, after) = rest.split_at(digits);
        let seconds = match after.bytes().next() {
            Some(b's') => 1,
            Some(b'm') => 60,
            Some(b'h') => 3600,
            Some(b'd') => DAY,
            _ => return Err(wrong()),
        };
        if number.is_empty() {
            return Err(wrong());
        }
        // A number that does not fit is too long, not malformed; the check below says so.
        let number = number.parse::<u64>().unwrap_or(u64::MAX);
        total = total.saturating_add(number.saturating_mul(seconds));
        rest = &after[1..];
    }
    if total > LONGEST.as_secs() {
        return Err(format!("`{}` is longer than {} days", shown(text), LONGEST.as_secs() / DAY));
    }
    Ok(Duration::from_secs(total))
}

/// Writes what [`parse`] reads, in seconds.
#[must_use]
pub fn text(span: Duration) -> String {
    format!("{}s", span.as_secs())
}

/// Reads a Go duration: `6m5s`, `1.5h`, `250ms`. Nothing for a negative one, for one that Go itself
/// could not hold (about 292 years), and for everything else.
#[must_use]
pub fn go_duration(text: &str) -> Option<Duration> {
    let text = text.strip_prefix('+').unwrap_or(text);
    if text == "0" {
        return Some(Duration::ZERO);
    }
    if text.is_empty() {
        return None;
    }
    let mut total = 0_u128;
    let mut rest = text;
    while !rest.is_empty() {
        let (nanos, after) = go_part(rest)?;
        total = total.checked_add(nanos)?;
        rest = after;
    }
    let nanos = i64::try_from(total).ok()?;
    Some(Duration::from_nanos(nanos.unsigned_abs()))
}

/// One number with its unit, in nanoseconds, and what follows.
fn go_part(text: &str) -> Option<(u128, &str)> {
    let (whole, rest) = digits(text);
    let (fraction, rest) = rest.strip_prefix('.').map_or(("", rest), digits);
    if whole.is_empty() && fraction.is_empty() {
        return None;
    }
    let end = rest.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(rest.len());
    let (unit, rest) = rest.split_at(end);
    let unit: u128 = match unit {
        "ns" => 1,
        // The micro sign and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => 1_000,
        "ms" => 1_000_000,
        "s" => 1_000_000_000,
        "m" => 60 * 1_000_000_000,
        "h" => 3600 * 1_000_000_000,
        _ => return None,
    };
    let whole: u128 = if whole.is_empty() { 0 } else { whole.parse().ok()? };
    // Eighteen digits are finer than a nanosecond of an hour, and their product still fits.
    let fraction = &fraction[..fraction.len().min(18)];
    let parts = if fraction.is_empty() { 0 } else { fraction.parse::<u128>().ok()? };
    let scale = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let nanos = whole.checked_mul(unit)?.checked_add(parts * unit / scale)?;
    Some((nanos, rest))
}

fn digits(text: &str) -> (&str, &str) {
    text.split_at(text.bytes().take_while(u8::is_ascii_digit).count())
}

/// The beginning of what somebody sent, for a message about it.
#[must_use]
pub fn shown(text: &str) -> String {
    const MOST: usize = 80;
    match text.char_indices().nth(MOST) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn reads_numbers_with_units() {
        for (text, seconds) in [
            ("0s", 0),
            ("5s", 5),
            ("10m", 600),
            ("2h", 7200),
            ("10d", 864_000),
            ("1d10h30m", 86_400 + 36_000 + 1_800),
            ("30m1d", 88_200),
            ("5s5s", 10),
            ("007s", 7),
            ("3650d", 315_360_000),
        ] {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
    }

    #[test]
    fn refuses_everything_else() {
        for text in
            ["", "5", "s", "5 s", " 5s", "5s ", "-5s", "+5s", "1.5s", "5S", "5w", "5ms", "٣s"]
        {
            let error = parse(text).unwrap_err();
            assert_eq!(error, format!("`{text}` is not a duration such as 30s, 10m or 1d10h30m"));
        }
        for text in ["3651d", "99999999999999999999999s", "18446744073709551615d1s"] {
            assert_eq!(parse(text), Err(format!("`{text}` is longer than 3650 days")));
        }
    }

    #[test]
    fn reads_go_durations() {
        for (text, nanos) in [
            ("0", 0),
            ("0s", 0),
            ("6m5s", 365_000_000_000),
            ("1.5h", 5_400_000_000_000),
            (".5s", 500_000_000),
            ("1.s", 1_000_000_000),
            ("250ms", 250_000_000),
            ("3us", 3_000),
            ("3\u{b5}s", 3_000),
            ("3\u{3bc}s", 3_000),
            ("7ns", 7),
            ("+1s", 1_000_000_000),
            ("1m0.25s", 60_250_000_000),
            ("0.3333333333333333333h", 1_199_999_999_999),
            ("9223372036854775807ns", 9_223_372_036_854_775_807),
        ] {
            assert_eq!(go_duration(text), Some(Duration::from_nanos(nanos)), "{text}");
        }
    }

    #[test]
    fn refuses_what_go_refuses_and_what_is_negative() {
        for text in [
            "",
            "+",
            "5",
            "-5s",
            "s",
            ".s",
            "1d",
            "1 s",
            "5S",
            "9223372036854775808ns",
            "1s ",
            "999999999999999999999999999999999999999999h",
            "1..5s",
            "120, 60",
        ] {
            assert_eq!(go_duration(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn never_panics(text in "\\PC*", near in "[0-9.smhdnuµ+-]{0,40}") {
            for text in [text, near] {
                if let Ok(span) = parse(&text) {
                    prop_assert!(span <= LONGEST);
                }
                let _span = go_duration(&text);
            }
        }

        #[test]
        fn what_is_written_is_read(d in 0_u64..3000, h in 0_u64..99, m in 0_u64..99, s in 0_u64..9999) {
            let seconds = d * DAY + h * 3600 + m * 60 + s;
            let span = Duration::from_secs(seconds);
            prop_assert_eq!(parse(&format!("{d}d{h}h{m}m{s}s")), Ok(span));
            prop_assert_eq!(parse(&super::text(span)), Ok(span));
            prop_assert_eq!(go_duration(&format!("{h}h{m}m{s}s")), Some(Duration::from_secs(seconds - d * DAY)));
        }
    }
}
