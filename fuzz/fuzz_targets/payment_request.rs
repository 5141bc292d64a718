//! Payments from strangers: no panic, and no card number gets through, wherever it stands.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tashika_domain::payment::request;

/// Whether a text is nothing but a card number of the commonest kind: sixteen digits from 4 on, with the check digit.
fn card_like(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let luhn = digits.iter().rev().enumerate().map(|(place, digit)| match (place % 2, digit * 2) {
        (0, _) => *digit,
        (_, twice) => twice / 10 + twice % 10,
    });
    digits.len() == text.len()
        && digits.len() == 16
        && digits[0] == 4
        && luhn.sum::<u32>() % 10 == 0
}

fn any_text(value: &Value, test: &impl Fn(&str) -> bool) -> bool {
    match value {
        Value::String(text) => test(text),
        Value::Array(items) => items.iter().any(|item| any_text(item, test)),
        Value::Object(map) => map.values().any(|item| any_text(item, test)),
        _ => false,
    }
}

fuzz_target!(|body: &[u8]| {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return };
    if let Ok(payment) = request::parse(&body) {
        assert!(payment.amount > 0 && payment.currency.len() == 3);
        let whole = |text: &str| card_like(text.trim());
        assert!(!any_text(&body, &whole), "a card number: {body}");
    }
    if let Ok(Some(amount)) = request::parse_amount(&body) {
        assert!(amount > 0);
    }
    if let Ok((Some(amount), _)) = request::parse_refund(&body) {
        assert!(amount > 0);
    }
    drop(request::parse_void(&body));
    assert_eq!(request::request_digest("x", &body), request::request_digest("x", &body));
});
