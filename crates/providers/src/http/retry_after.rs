//! `Retry-After`: seconds, or one of the three date forms of HTTP.
//!
//! The header is a stranger's wish. It is read generously, and capped: a server that says "in a
//! hundred years" must not park an effect for ever.

use std::time::Duration;

use ::http::HeaderMap;
use ::http::header::RETRY_AFTER;
use jiff::fmt::strtime;
use jiff::tz::TimeZone;
use tashika_domain::Timestamp;

/// Longest wait that is honoured.
pub const RETRY_AFTER_MAX: Duration = Duration::from_hours(24);

/// The forms of RFC 9110 §5.6.7; a recipient must take all three.
const DATE_FORMS: [&str; 3] =
    ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"];

/// How long the other side asks us to wait, counted from `now`.
///
/// `None` if the header is absent or cannot be read; a date in the past is no wait at all.
#[must_use]
pub fn retry_after(headers: &HeaderMap, now: Timestamp) -> Option<Duration> {
    let text = headers.get(RETRY_AFTER)?.to_str().ok()?.trim();
    let wait = if text.is_empty() {
        return None;
    } else if text.bytes().all(|byte| byte.is_ascii_digit()) {
        // Only an overflow can fail here, and that is a very long time.
        text.parse().map_or(RETRY_AFTER_MAX, Duration::from_secs)
    } else {
        http_date(text)?.since(now)
    };
    Some(wait.min(RETRY_AFTER_MAX))
}

pub(crate) fn http_date(text: &str) -> Option<Timestamp> {
    let date =
        DATE_FORMS.iter().find_map(|form| strtime::parse(form, text).ok()?.to_datetime().ok())?;
    // Only the last day of the year 9999 does not fit, and servers do write it to say "never".
    let micros =
        date.to_zoned(TimeZone::UTC).map_or(i64::MAX, |at| at.timestamp().as_microsecond());
    Some(Timestamp::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waits(value: &str) -> Option<u64> {
        // Sun, 06 Nov 1994 08:49:37 GMT, the example of the RFC.
        let now = Timestamp::from_micros(784_111_777_000_000);
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, value.parse().unwrap());
        retry_after(&headers, now).map(|wait| wait.as_secs())
    }

    #[test]
    fn each_form_is_read_and_capped() {
        for (value, expected) in [
            ("0", Some(0)),
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("86401", Some(86_400)),
            ("99999999999999999999999999", Some(86_400)),
            ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60)),
            ("Sunday, 06-Nov-94 08:50:37 GMT", Some(60)),
            ("Sun Nov  6 08:50:37 1994", Some(60)),
            ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(86_400)),
            ("", None),
            ("-1", None),
            ("1.5", None),
            ("soon", None),
            ("Sun, 06 Nov 1994 08:50:37 JST", None),
            ("Sun, 99 Nov 1994 08:50:37 GMT", None),
        ] {
            assert_eq!(waits(value), expected, "{value:?}");
        }
    }

    #[test]
    fn bytes_that_are_not_text_are_no_answer() {
        let mut headers = HeaderMap::new();
        headers.insert(RETRY_AFTER, ::http::HeaderValue::from_bytes(b"\xff1").unwrap());
        assert_eq!(retry_after(&headers, Timestamp::from_micros(0)), None);
        assert_eq!(retry_after(&HeaderMap::new(), Timestamp::from_micros(0)), None);
    }
}
