//! Reservations from strangers: no panic, and what was taken is within its bounds.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tashika_domain::reservation::request;
use tashika_fuzz::now;

fuzz_target!(|body: &[u8]| {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return };
    match request::parse(&body, 20, now()) {
        Ok(asked) => {
            assert!((1..=20).contains(&asked.slot_number) && asked.video_id >= 1);
            assert!(request::is_date(&asked.projection_date), "{}", asked.projection_date);
            assert!(
                asked.amount > 0 && asked.currency.len() == 3 && asked.user_email.contains('@')
            );
        }
        Err(violations) => assert!(!violations.is_empty(), "it says what is wrong"),
    }
});
