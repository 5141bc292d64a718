use proptest::prelude::*;

use super::*;

const KEY: &str = "sig_0123456789abcdefghijklmnopqr";

/// Made with Python's `jwt` 2.x: `jwt.encode(claims, key, algorithm="HS256")`.
#[test]
fn signatures_are_those_of_another_implementation() {
    let now = Timestamp::from_micros(1_700_000_000_999_999);
    assert_eq!(
        signature(KEY, "https://example.com/a%20b?x=1&y=2", br#"{"a":1}"#, now, "jwt_1"),
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJVcHN0YXNoIiwic3ViIjoiaHR0cHM6Ly9leGFtcGxlL\
         mNvbS9hJTIwYj94PTEmeT0yIiwiZXhwIjoxNzAwMDAwMzAwLCJuYmYiOjAsImlhdCI6MTcwMDAwMDAwMCwianRpIjo\
         iand0XzEiLCJib2R5IjoiQVZxOWYxekZlaTNaUzNXUThFcllDRUp6a0Y3alBzWE92cTVpSjJxWC1HST0ifQ.VO58IN\
         g5RdCiUHIlIM_Lnl0z21m9I_pwRcXhqIZ3yas"
    );
    assert_eq!(
        signature(KEY, "https://example.com/", b"", now, "jwt_2"),
        "eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJpc3MiOiJVcHN0YXNoIiwic3ViIjoiaHR0cHM6Ly9leGFtcGxlL\
         mNvbS8iLCJleHAiOjE3MDAwMDAzMDAsIm5iZiI6MCwiaWF0IjoxNzAwMDAwMDAwLCJqdGkiOiJqd3RfMiIsImJvZHk\
         iOiI0N0RFUXBqOEhCU2EtX1RJbVctNUpDZXVRZVJrbTVOTXBKV1pHM2hTdUZVPSJ9.gKVZfjpz_LSfpwqvJMzNhGse\
         glbLZqmG1GePoMKVcoU"
    );
}

fn waits(pairs: &[(&str, &str)]) -> Option<Duration> {
    // Sun, 06 Nov 1994 08:49:37 GMT.
    let now = Timestamp::from_micros(784_111_777_000_000);
    let mut headers = Headers::new();
    for (name, value) in pairs {
        headers.entry((*name).to_owned()).or_default().push((*value).to_owned());
    }
    retry_in(&headers, now)
}

#[test]
fn waits_are_read_in_every_form() {
    let ms = Duration::from_millis;
    for (value, expected) in [
        ("0", Some(ms(0))),
        ("120", Some(ms(120_000))),
        (" 7 ", Some(ms(7_000))),
        ("1.5", Some(ms(1_500))),
        ("86400", Some(ms(86_400_000))),
        ("86401", None),
        ("1700000000", None),
        ("99999999999999999999999999", None),
        ("6m5s", Some(ms(365_000))),
        ("1.5s", Some(ms(1_500))),
        ("0s", Some(ms(0))),
        ("20ms", Some(ms(20))),
        ("1h2m3.004s", Some(ms(3_723_004))),
        ("24h", Some(ms(86_400_000))),
        ("24h1ns", None),
        ("2000us", Some(ms(2))),
        ("2000µs", Some(ms(2))),
        ("2000μs", Some(ms(2))),
        ("1000000ns", Some(ms(1))),
        (".5s", Some(ms(500))),
        ("+1s", Some(ms(1_000))),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(ms(60_000))),
        ("Sun, 06 Nov 1994 08:49:36 GMT", Some(ms(0))),
        ("Tue, 08 Nov 1994 08:49:37 GMT", None),
        ("", None),
        ("-1", None),
        ("-1s", None),
        ("1d", None),
        ("s", None),
        (".s", None),
        ("1.2.3s", None),
        ("1s2", None),
        ("5 s", None),
        ("soon", None),
    ] {
        assert_eq!(waits(&[("Retry-After", value)]), expected, "{value:?}");
    }
}

#[test]
fn the_first_header_that_can_be_read_counts() {
    let s = Duration::from_secs;
    for name in ["X-Ratelimit-Reset", "X-Ratelimit-Reset-Requests", "x-ratelimit-reset-tokens"] {
        assert_eq!(waits(&[(name, "6m5s")]), Some(s(365)), "{name}");
    }
    assert_eq!(waits(&[("X-Ratelimit-Reset", "5"), ("Retry-After", "9")]), Some(s(9)));
    assert_eq!(waits(&[("Retry-After", "?"), ("X-Ratelimit-Reset-Tokens", "2")]), Some(s(2)));
    assert_eq!(waits(&[("X-Ratelimit-Reset", "1700000000")]), None);
    assert_eq!(waits(&[("X-Other", "1")]), None);
}

#[test]
fn only_489_with_its_header_is_final() {
    let told = |name: &str, value: &str| Headers::from([(name.into(), vec![value.into()])]);
    for value in ["true", "True", " TRUE "] {
        assert!(is_final(489, &told("Upstash-Nonretryable-Error", value)), "{value}");
        assert!(is_final(489, &told("upstash-nonretryable-error", value)), "{value}");
    }
    assert!(!is_final(489, &told("Upstash-Nonretryable-Error", "false")));
    assert!(!is_final(489, &Headers::new()));
    assert!(!is_final(500, &told("Upstash-Nonretryable-Error", "true")));
}

proptest! {
    #[test]
    fn no_text_makes_the_reader_panic(text in "[0-9.hmsnuµ+-]{0,40}|.*") {
        if let Some(wait) = waits(&[("Retry-After", &text)]) {
            prop_assert!(wait <= RETRY_IN_MAX);
        }
    }
}
