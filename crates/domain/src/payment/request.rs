//! What callers may send: new payments, amounts, notes. Card numbers are not accepted, wherever
//! they stand.

use serde_json::Value;

use super::{CaptureMode, PaymentRequest};
use crate::check::{Check, Violation, whole};
use crate::digest;

/// Longest description and longest reason, in characters.
pub const DESCRIPTION_MAX: usize = 200;
pub const REASON_MAX: usize = 500;
/// More than any gateway takes; keeps sums far from the end of the integers.
pub const AMOUNT_MAX: i64 = 999_999_999_999;

/// Currencies of ISO 4217 that money is paid in.
const CURRENCIES: &str = "AED AFN ALL AMD ANG AOA ARS AUD AWG AZN BAM BBD BDT BGN BHD BIF BMD BND \
    BOB BRL BSD BTN BWP BYN BZD CAD CDF CHF CLP CNY COP CRC CUP CVE CZK DJF DKK DOP DZD EGP ERN ETB \
    EUR FJD FKP GBP GEL GHS GIP GMD GNF GTQ GYD HKD HNL HTG HUF IDR ILS INR IQD IRR ISK JMD JOD JPY \
    KES KGS KHR KMF KPW KRW KWD KYD KZT LAK LBP LKR LRD LSL LYD MAD MDL MGA MKD MMK MNT MOP MRU MUR \
    MVR MWK MXN MYR MZN NAD NGN NIO NOK NPR NZD OMR PAB PEN PGK PHP PKR PLN PYG QAR RON RSD RUB RWF \
    SAR SBD SCR SDG SEK SGD SHP SLE SOS SRD SSP STN SVC SYP SZL THB TJS TMT TND TOP TRY TTD TWD TZS \
    UAH UGX USD UYU UZS VED VES VND VUV WST XAF XCD XCG XOF XPF YER ZAR ZMW ZWG";

/// The codes that a payment may be made in; callers may write them in small letters, too.
pub fn currencies() -> impl Iterator<Item = &'static str> {
    CURRENCIES.split_ascii_whitespace()
}

/// Fields that only somebody with a card number in hand would send.
const CARD_FIELDS: [&str; 8] =
    ["card", "cardnumber", "card_number", "number", "pan", "cvc", "cvv", "cvv2"];

/// Checks a new payment, and says everything that is wrong with it.
pub fn parse(body: &Value) -> Result<PaymentRequest, Vec<Violation>> {
    let mut check = Check::of(body)?;
    no_card_data(body, "", &mut check.violations);
    let request = PaymentRequest {
        booking_id: check.text("bookingId", 1..=100, true).unwrap_or_default(),
        user_id: check.text("userId", 1..=100, true).unwrap_or_default(),
        amount: amount(&mut check, true).unwrap_or_default(),
        currency: currency(&mut check),
        payment_method: check.text("paymentMethod", 1..=255, true).unwrap_or_default(),
        customer: check.text("customer", 1..=255, false),
        description: check.text("description", 0..=DESCRIPTION_MAX, false),
        capture: capture(&mut check),
    };
    check.finish(request)
}

/// `{amount?}` of a capture.
pub fn parse_amount(body: &Value) -> Result<Option<i64>, Vec<Violation>> {
    let mut check = Check::of(body)?;
    no_card_data(body, "", &mut check.violations);
    let amount = amount(&mut check, false);
    check.finish(amount)
}

/// `{}` of a void: there is nothing to say, and card data is not accepted here either.
pub fn parse_void(body: &Value) -> Result<(), Vec<Violation>> {
    let mut check = Check::of(body)?;
    no_card_data(body, "", &mut check.violations);
    check.finish(())
}

/// `{amount?, reason?}` of a refund.
pub fn parse_refund(body: &Value) -> Result<(Option<i64>, Option<String>), Vec<Violation>> {
    let mut check = Check::of(body)?;
    no_card_data(body, "", &mut check.violations);
    let amount = amount(&mut check, false);
    let reason = check.text("reason", 0..=REASON_MAX, false);
    check.finish((amount, reason))
}

/// `{outcome, note}` of a person's decision.
pub fn parse_resolution(
    body: &Value,
) -> Result<(super::resolve::Resolution, String), Vec<Violation>> {
    let mut check = Check::of(body)?;
    no_card_data(body, "", &mut check.violations);
    let outcome = check.text("outcome", 1..=20, true).and_then(|text| {
        let known = super::resolve::Resolution::parse(&text);
        if known.is_none() {
            check.wrong("outcome", "must be charged, not_charged or refunded");
        }
        known
    });
    let note = check.text("note", 1..=REASON_MAX, true).unwrap_or_default();
    check.finish((outcome.unwrap_or(super::resolve::Resolution::Charged), note))
}

/// The digest under which the ledger remembers a request about `subject`.
#[must_use]
pub fn request_digest(subject: &str, body: &Value) -> String {
    digest::digest(&serde_json::json!({"subject": subject, "body": body}), &[])
}

pub(crate) fn amount(check: &mut Check<'_>, required: bool) -> Option<i64> {
    match check.map.get("amount") {
        None | Some(Value::Null) if !required => {}
        None => check.wrong("amount", "is required"),
        Some(value) => match whole(value) {
            Some(amount) if (1..=AMOUNT_MAX).contains(&amount) => return Some(amount),
            Some(amount) if amount < 1 => check.wrong("amount", "must be greater than 0"),
            Some(_) => check.wrong("amount", format!("must be at most {AMOUNT_MAX}")),
            None => check.wrong("amount", "must be a whole number of the smallest unit"),
        },
    }
    None
}

pub(crate) fn currency(check: &mut Check<'_>) -> String {
    let Some(text) = check.text("currency", 3..=3, true) else { return String::new() };
    let upper = text.to_ascii_uppercase();
    if !currencies().any(|known| known == upper) {
        check.wrong("currency", "must be an ISO 4217 code, e.g. JPY");
    }
    upper
}

fn capture(check: &mut Check<'_>) -> CaptureMode {
    let Some(value) = check.map.get("capture").filter(|value| !value.is_null()) else {
        return CaptureMode::Manual;
    };
    value.as_str().and_then(CaptureMode::parse).unwrap_or_else(|| {
        check.wrong("capture", "must be manual or automatic");
        CaptureMode::Manual
    })
}

/// Looks for card data in names and values. What it finds is named by its place, never repeated.
pub(crate) fn no_card_data(value: &Value, place: &str, violations: &mut Vec<Violation>) {
    let mut found = |problem: &str| {
        violations.push(Violation { field: place.to_owned(), problem: problem.to_owned() });
    };
    match value {
        Value::Object(map) => {
            for (name, value) in map {
                let shown: String = name.chars().take(64).collect();
                let place = if place.is_empty() { shown } else { format!("{place}.{shown}") };
                if CARD_FIELDS.contains(&name.to_ascii_lowercase().as_str()) && !value.is_null() {
                    let problem = "card data is not accepted; send the gateway's token".to_owned();
                    violations.push(Violation { field: place, problem });
                } else {
                    no_card_data(value, &place, violations);
                }
            }
        }
        Value::Array(items) => {
            for item in items {
                no_card_data(item, place, violations);
            }
        }
        Value::String(text) if holds_card_number(text) => {
            found("looks like a card number; send the gateway's token");
        }
        Value::Number(number) if holds_card_number(&number.to_string()) => {
            found("looks like a card number; send the gateway's token");
        }
        _ => {}
    }
}

/// Whether a run of digits, single spaces or hyphens allowed between them, is a card number: known
/// beginning, fitting length, correct check digit. Ids are not searched: a UUID of many digits would
/// look like one now and then.
#[must_use]
pub fn holds_card_number(text: &str) -> bool {
    let mut digits: Vec<u8> = Vec::new();
    // A letter right before or after the digits: a part of something else.
    let (mut before, mut attached, mut gap) = (' ', false, false);
    for c in without_uuids(text).chars().chain(['\n']) {
        match c.to_digit(10) {
            Some(digit) => {
                attached |= digits.is_empty() && before.is_ascii_alphabetic();
                digits.push(u8::try_from(digit).unwrap_or(0));
                gap = false;
            }
            None if matches!(c, ' ' | '-') && !gap && !digits.is_empty() => gap = true,
            None => {
                attached |= c.is_ascii_alphabetic() && !gap;
                if !attached && is_card_number(&digits) {
                    return true;
                }
                digits.clear();
                (attached, gap) = (false, false);
            }
        }
        before = c;
    }
    false
}

/// The text with every UUID left out.
fn without_uuids(text: &str) -> String {
    const LENGTH: usize = 36;
    let mut rest = text;
    let mut kept = String::with_capacity(text.len());
    while let Some(first) = rest.chars().next() {
        if rest.get(..LENGTH).is_some_and(|head| uuid::Uuid::try_parse(head).is_ok()) {
            kept.push('\n');
            rest = &rest[LENGTH..];
        } else {
            kept.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    kept
}

fn is_card_number(digits: &[u8]) -> bool {
    let length = digits.len();
    let fits = match digits {
        [4, ..] => matches!(length, 13 | 16 | 19),
        [5, 1..=5, ..] | [2, 2..=7, ..] => length == 16,
        [3, 4 | 7, ..] => length == 15,
        [3, 0 | 5 | 6 | 8 | 9, ..] => (14..=19).contains(&length),
        [6, ..] => (16..=19).contains(&length),
        _ => false,
    };
    fits && luhn(digits)
}

fn luhn(digits: &[u8]) -> bool {
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(place, digit)| match (place % 2, u32::from(*digit)) {
            (0, digit) => digit,
            (_, digit) if digit > 4 => digit * 2 - 9,
            (_, digit) => digit * 2,
        })
        .sum();
    sum.is_multiple_of(10)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn valid() -> Value {
        json!({"bookingId": "b-1", "userId": "u-1", "amount": 5000, "currency": "jpy",
            "paymentMethod": "sandbox_ok"})
    }

    fn with(field: &str, value: Value) -> Value {
        let mut body = valid();
        body[field] = value;
        body
    }

    fn wrong(body: &Value) -> Vec<String> {
        parse(body).unwrap_err().into_iter().map(|violation| violation.field).collect()
    }

    #[test]
    fn a_payment_is_read() {
        let request = parse(&valid()).unwrap();
        assert_eq!((request.amount, request.currency.as_str()), (5000, "JPY"));
        assert_eq!(request.capture, CaptureMode::Manual);
        assert_eq!(parse(&with("amount", json!(193.0))).unwrap().amount, 193);
        let automatic = parse(&with("capture", json!("automatic"))).unwrap();
        assert_eq!(automatic.capture, CaptureMode::Automatic);
    }

    #[test]
    fn everything_wrong_is_named() {
        assert_eq!(
            wrong(&json!({})),
            ["bookingId", "userId", "amount", "currency", "paymentMethod"]
        );
        for (field, value) in [
            ("amount", json!(0)),
            ("amount", json!(-1)),
            ("amount", json!(1.5)),
            ("amount", json!(1e300)),
            ("amount", json!("5000")),
            ("amount", json!(AMOUNT_MAX + 1)),
            ("currency", json!("XXX")),
            ("currency", json!("YEN!")),
            ("capture", json!("later")),
            ("description", json!("x".repeat(DESCRIPTION_MAX + 1))),
            ("customer", json!(7)),
            ("userId", json!("a\0b")),
        ] {
            assert_eq!(wrong(&with(field, value.clone())), [field], "{value}");
        }
        assert!(parse(&with("description", json!("確".repeat(DESCRIPTION_MAX)))).is_ok());
    }

    #[test]
    fn card_numbers_are_found_wherever_they_stand() {
        for number in [
            "4242424242424242",
            "4242 4242 4242 4242",
            "please use 5555-5555-5555-4444 thanks",
            "378282246310005",
            "6011111111111117",
            "card-4242424242424242",
            "0a424242-4242-4242-8424-24242424242a 4242424242424242",
        ] {
            assert_eq!(wrong(&with("description", json!(number))), ["description"], "{number}");
            let nested = json!({"a": [{"b": number}]});
            assert_eq!(wrong(&with("extra", nested)), ["extra.a.b"]);
        }
        assert_eq!(wrong(&with("extra", json!(4_242_424_242_424_242_i64))), ["extra"]);
        assert_eq!(wrong(&with("cvc", json!("123"))), ["cvc"]);
        let violations = parse(&with("customer", json!("4242424242424242"))).unwrap_err();
        assert!(violations.iter().all(|v| !v.problem.contains("4242")), "never repeated");
    }

    #[test]
    fn what_is_no_card_number_passes() {
        for harmless in [
            "4242424242424241",
            "1731670000000",
            "0198a1b2-4242-7242-8242-424242424242",
            "order 42 4242",
            "42424242424242424242424242424242",
            "01981111-4242-4242-8242-424242424242",
            "id 0a424242-4242-4242-8424-24242424242a twice 0a424242-4242-4242-8424-24242424242a",
            "a4242424242424242",
            "4242424242424242b",
        ] {
            assert!(parse(&with("description", json!(harmless))).is_ok(), "{harmless}");
        }
    }

    /// Callers name bookings and users by UUIDs: none of them may look like a card.
    #[test]
    fn uuids_are_never_card_numbers() {
        for number in 0..20_000_u128 {
            let parts = number.to_be_bytes();
            let now = crate::time::Timestamp::from_micros(1_763_199_000_000_000);
            let id = crate::ids::derived(now, &[&parts]).to_string();
            assert!(!holds_card_number(&id), "{id}");
            assert!(!holds_card_number(&format!("booking-{id}")), "{id}");
        }
    }

    #[test]
    fn digests_tell_subjects_apart() {
        let body = json!({"amount": 1});
        assert_ne!(request_digest("a", &body), request_digest("b", &body));
    }
}
