//! What callers may send.

use serde_json::Value;

use super::ReservationRequest;
use crate::check::{Check, Violation};
use crate::digest;
use crate::mail::Locale;
use crate::payment::request as payment;
use crate::time::Timestamp;

/// Longest address of a mailbox.
const EMAIL_MAX: usize = 254;
/// Longest idempotency key, in characters.
pub const KEY_MAX: usize = 64;
/// A day is over everywhere on earth twelve hours after it is over in UTC.
const LAST_ZONE_MICROS: i64 = 12 * 3600 * 1_000_000;

/// Checks a new reservation, and says everything that is wrong with it.
pub fn parse(
    body: &Value,
    slots_per_day: i64,
    now: Timestamp,
) -> Result<ReservationRequest, Vec<Violation>> {
    let mut check = Check::of(body)?;
    payment::no_card_data(body, "", &mut check.violations);
    let request = ReservationRequest {
        video_id: whole(&mut check, "videoId", 1, i64::MAX).unwrap_or_default(),
        projection_date: date(&mut check, now),
        slot_number: whole(&mut check, "slotNumber", 1, slots_per_day).unwrap_or_default(),
        user_id: check.text("userId", 1..=100, true).unwrap_or_default(),
        user_email: email(&mut check),
        locale: locale(&mut check),
        amount: payment::amount(&mut check, true).unwrap_or_default(),
        currency: payment::currency(&mut check),
    };
    check.finish(request)
}

/// The digest under which a request is remembered. The key itself is no part of what is asked for.
#[must_use]
pub fn request_digest(body: &Value) -> String {
    digest::digest(body, &["idempotencyKey"])
}

/// Whether a text is a day of the calendar, as `YYYY-MM-DD`.
#[must_use]
pub fn is_date(text: &str) -> bool {
    parse_date(text).is_some()
}

fn parse_date(text: &str) -> Option<jiff::civil::Date> {
    let shape = text.len() == 10
        && text.bytes().enumerate().all(|(place, byte)| match place {
            4 | 7 => byte == b'-',
            _ => byte.is_ascii_digit(),
        });
    if shape { text.parse().ok() } else { None }
}

fn whole(check: &mut Check<'_>, field: &str, least: i64, most: i64) -> Option<i64> {
    match check.map.get(field) {
        None => check.wrong(field, "is required"),
        Some(value) => match crate::check::whole(value) {
            Some(number) if (least..=most).contains(&number) => return Some(number),
            Some(_) if most < i64::MAX => {
                check.wrong(field, format!("must be {least} to {most}"));
            }
            Some(_) => check.wrong(field, format!("must be {least} or more")),
            None => check.wrong(field, "must be a whole number"),
        },
    }
    None
}

fn date(check: &mut Check<'_>, now: Timestamp) -> String {
    let Some(text) = check.text("projectionDate", 10..=10, true) else { return String::new() };
    let Some(date) = parse_date(&text) else {
        check.wrong("projectionDate", "must be a day of the calendar as YYYY-MM-DD");
        return String::new();
    };
    let earliest = Timestamp::from_micros(now.as_micros().saturating_sub(LAST_ZONE_MICROS));
    if date.to_string().as_str() < &earliest.to_string()[..10] {
        check.wrong("projectionDate", "is over");
    }
    text
}

fn email(check: &mut Check<'_>) -> String {
    let Some(text) = check.text("userEmail", 3..=EMAIL_MAX, true) else { return String::new() };
    let plain =
        text.bytes().all(|byte| (b'!'..=b'~').contains(&byte) && !b"<>,;\"".contains(&byte));
    let halves = text.split_once('@');
    let fits = halves.is_some_and(|(local, host)| {
        let labels = host.split('.').all(|label| !label.is_empty());
        !local.is_empty() && !host.contains('@') && host.contains('.') && labels
    });
    if !plain || !fits {
        check.wrong("userEmail", "must be the address of a mailbox");
    }
    text
}

fn locale(check: &mut Check<'_>) -> Locale {
    let Some(text) = check.text("locale", 1..=10, false) else { return Locale::Ja };
    text.parse().unwrap_or_else(|_| {
        check.wrong("locale", "must be ja or en");
        Locale::Ja
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// 2026-11-15, noon.
    const NOW: Timestamp = Timestamp::from_micros(1_794_744_000_000_000);

    fn body() -> Value {
        json!({"videoId": 7, "projectionDate": "2026-12-24", "slotNumber": 3, "userId": "u-1",
            "userEmail": "a@example.com", "amount": 1500, "currency": "jpy"})
    }

    fn wrong(field: &str, value: Value) -> Vec<String> {
        let mut body = body();
        body[field] = value;
        let violations = parse(&body, 20, NOW).unwrap_err();
        violations.into_iter().map(|violation| violation.field).collect()
    }

    #[test]
    fn what_is_right_is_taken() {
        let request = parse(&body(), 20, NOW).unwrap();
        assert_eq!((request.video_id, request.slot_number), (7, 3));
        assert_eq!((request.currency.as_str(), request.locale), ("JPY", Locale::Ja));
        let mut english = body();
        english["locale"] = json!("en");
        english["slotNumber"] = json!(20);
        english["projectionDate"] = json!("2026-11-15");
        assert_eq!(parse(&english, 20, NOW).unwrap().locale, Locale::En);
    }

    #[test]
    fn what_is_wrong_is_named() {
        for date in [
            json!("2026-02-30"),
            json!("2026-13-01"),
            json!("24.12.2026"),
            json!("2026-1-01"),
            json!("20261224"),
            json!("2026-11-14"),
            json!("1999-01-01"),
            json!(20_261_224),
            json!("２０２６-12-24"),
            Value::Null,
        ] {
            assert_eq!(wrong("projectionDate", date.clone()), ["projectionDate"], "{date}");
        }
        for slot in [json!(0), json!(-1), json!(21), json!(1.5), json!("3"), json!(1e30)] {
            assert_eq!(wrong("slotNumber", slot.clone()), ["slotNumber"], "{slot}");
        }
        for email in ["", "a", "a@b", "@b.c", "a@b.", "a@b@c.d", "a b@c.d", "<a@b.c>", "ä@b.c"] {
            assert_eq!(wrong("userEmail", json!(email)), ["userEmail"], "{email}");
        }
        assert_eq!(wrong("videoId", json!("7")), ["videoId"]);
        assert_eq!(wrong("locale", json!("de")), ["locale"]);
        assert_eq!(wrong("amount", json!(0)), ["amount"]);
        assert_eq!(wrong("currency", json!("XXX")), ["currency"]);
        assert_eq!(wrong("userId", json!("4242 4242 4242 4242")), ["userId"]);
    }

    #[test]
    fn a_day_that_is_not_over_somewhere_can_be_booked() {
        let morning = Timestamp::from_micros(1_794_744_000_000_000 - 6 * 3600 * 1_000_000);
        let mut yesterday = body();
        yesterday["projectionDate"] = json!("2026-11-14");
        assert!(parse(&yesterday, 20, morning).is_ok());
    }

    #[test]
    fn the_key_is_no_part_of_what_is_asked_for() {
        let mut keyed = body();
        keyed["idempotencyKey"] = json!("k");
        assert_eq!(request_digest(&keyed), request_digest(&body()));
    }
}
