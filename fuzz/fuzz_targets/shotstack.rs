//! Shotstack has no header to parse: what it sends is let in unproven. Reading it must not break, and what
//! was read must be what was sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_fuzz::{Lazy, Request, check, source};
use tashika_providers::webhook::Scheme;

static SOURCE: Lazy = Lazy::new(|| source(Scheme::Shotstack));

fuzz_target!(|data: &[u8]| {
    let request = Request::parse(data);
    assert!(!SOURCE.is_signed());
    check(&SOURCE, &request, |_| true);
    if let Ok(event) = SOURCE.read(&request.headers, &request.body) {
        let said = event.payload.value(&request.body);
        let text = |name: &str| match &said[name] {
            value if value.is_string() => value.as_str().unwrap_or_default().to_owned(),
            value => value.to_string(),
        };
        assert_eq!(event.id, format!("{}:{}:{}", text("id"), text("type"), text("status")));
        assert_eq!(event.kind, format!("{}.{}", text("action"), text("status")));
    }
});
