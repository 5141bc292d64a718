//! A retry-delay expression from a stranger: every result is a wait, and the same every time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_domain::message::delay::{Expression, LONGEST, MOST_BYTES};

fuzz_target!(|input: (u32, &str)| {
    let (retried, text) = input;
    let Ok(expression) = Expression::parse(text) else { return };
    assert!(text.len() <= MOST_BYTES);
    for retried in [retried, 0, 1, u32::MAX] {
        let wait = expression.wait(retried);
        assert!(wait <= LONGEST);
        assert_eq!(expression.wait(retried), wait);
    }
    // Blanks around it and one more pair of parentheses change nothing.
    if let Ok(wrapped) = Expression::parse(&format!(" ({text}) ")) {
        assert_eq!(wrapped, expression);
    }
});
