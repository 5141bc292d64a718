//! What gateways, brokers and renderers answer: no panic, our own secret is not repeated, and no number of
//! theirs turns into another one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_domain::payment::still_taken;
use tashika_providers::{broker, gateway, render, shotstack};
use uuid::Uuid;

const SECRET: &str = "sk_live_s3cretWORD";

fuzz_target!(|body: &[u8]| {
    let mut found = gateway::stripe::read_all(body, "pi_1", SECRET);
    let (others, reasons) = gateway::http::read_all(body, Uuid::from_u128(1), SECRET);
    found.extend(others);
    for remote in &found {
        assert!(remote.captured >= 0, "{remote:?}");
        let refunds = remote.refunds.iter().flatten();
        assert!(refunds.clone().all(|refund| refund.amount > 0), "{remote:?}");
        assert!(still_taken(remote) <= remote.captured, "{remote:?}");
        let reason = remote.reason.as_ref().map(|reason| reason.message.as_str());
        assert!(!reason.unwrap_or_default().contains(SECRET), "{remote:?}");
    }
    for reason in reasons {
        assert!(!reason.message.contains(SECRET) && reason.message.chars().count() <= 512);
    }
    drop(broker::http::read_all(body, "key-0001"));
    drop(shotstack::read_all(body, "r-1"));
    drop(render::http::read_all(body));
});
