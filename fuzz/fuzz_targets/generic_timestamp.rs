//! The timestamp of `generic-hmac`: seconds, milliseconds or RFC 3339. The first line is the timestamp.
//! It is signed as it should be, so that what is accepted depends on the timestamp alone.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_fuzz::{Lazy, NOW, Request, generic, hex, mac256, now, source};
use tashika_providers::webhook::{GenericHmac, Scheme};

static SOURCE: Lazy = Lazy::new(|| {
    source(Scheme::GenericHmac(GenericHmac {
        timestamp_header: Some("x-time".to_owned()),
        template: "{timestamp}.{body}".to_owned(),
        ..generic()
    }))
});

/// Microseconds from the time to now, by other means than the product's; `None` if it is not a number.
fn age(stamp: &str) -> Option<i128> {
    let digits = !stamp.is_empty() && stamp.bytes().all(|byte| byte.is_ascii_digit());
    let number: i128 = digits.then(|| stamp.parse().ok())??;
    let unit = if number >= 100_000_000_000 { 1000 } else { 1_000_000 };
    let micros = number.saturating_mul(unit).min(i128::from(i64::MAX) * 2);
    Some(i128::from(NOW) * 1_000_000 - micros)
}

/// Whole seconds from a time as RFC 3339 writes it to now.
fn rfc3339_age(stamp: &str) -> Option<i64> {
    let number = |from: usize, to: usize| -> Option<i64> {
        let digits = stamp.get(from..to)?;
        digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok())?
    };
    let marks = [(4, '-'), (7, '-'), (10, 'T'), (13, ':'), (16, ':')];
    let marked = |at: usize, mark: char| stamp.get(at..).is_some_and(|rest| rest.starts_with(mark));
    if !marks.iter().all(|(at, mark)| marked(*at, *mark)) {
        return None;
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    // Days since 1970, with years that begin in March.
    let (years, months) = if month > 2 { (year, month - 3) } else { (year - 1, month + 9) };
    let days = 365 * years + years / 4 - years / 100 + years / 400 + (153 * months + 2) / 5 + day
        - 719_469;
    let time = number(11, 13)? * 3600 + number(14, 16)? * 60 + number(17, 19)?;
    let zone = stamp
        .get(19..)?
        .trim_start_matches(['.', '0', '1', '2', '3', '4', '5', '6', '7', '8', '9']);
    let zone = if zone == "Z" {
        0
    } else {
        let from = stamp.len() - zone.len();
        let minutes = number(from + 1, from + 3)? * 60 + number(from + 4, from + 6)?;
        if zone.starts_with('-') { -minutes } else { minutes }
    };
    Some(NOW - (days * 86_400 + time - zone * 60))
}

fuzz_target!(|data: &[u8]| {
    let (stamp, body) = data.split_at(data.iter().position(|b| *b == b'\n').unwrap_or(data.len()));
    let Ok(stamp) = std::str::from_utf8(stamp) else { return };
    let stamp = stamp.trim_matches([' ', '\t']);
    let mac = hex(&mac256(&[stamp.as_bytes(), b".", body]));
    let request = Request { body: body.to_vec(), ..Request::default() };
    let signed =
        request.with("x-time", stamp).and_then(|request| request.with("x-signature", &mac));
    let Some(signed) = signed else { return };
    let accepted = SOURCE.verify(&signed.headers, &signed.body, now()).is_ok();
    match age(stamp) {
        Some(age) => assert_eq!(accepted, age.abs() <= 300_000_000, "{stamp}"),
        None if accepted => {
            assert!(rfc3339_age(stamp).is_some_and(|age| age.abs() <= 300), "{stamp}")
        }
        None => {}
    }
    let event = SOURCE.read(&signed.headers, br#"{"id":"1"}"#);
    let at = event.expect("the timestamp is no reason to refuse to read").occurred_at;
    assert!(
        !accepted || at.is_some_and(|at| at.since(now()).max(now().since(at)).as_secs() <= 300)
    );
});
