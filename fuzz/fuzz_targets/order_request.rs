//! Orders from strangers: no panic, and what was taken is stored and read again as the same order.
#![no_main]

use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tashika_domain::order::{OrderRequest, OrderRules, request_digest};

fuzz_target!(|body: &[u8]| {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return };
    let rules = OrderRules { instruments: None, min_lot: 0.01, lot_step: 0.01 };
    match OrderRequest::parse(&body, &rules) {
        Ok(order) => {
            assert!(!order.idempotency_key.is_empty() && order.idempotency_key.len() <= 64);
            assert!(order.qty.is_finite() && order.qty > 0.0);
            let stored = OrderRequest::from_stored(&body.to_string()).expect("what was taken");
            assert_eq!(stored, order);
        }
        Err(violations) => assert!(!violations.is_empty(), "it says what is wrong"),
    }
    assert_eq!(request_digest(&body), request_digest(&body.clone()));
});
