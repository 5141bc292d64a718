//! `webhook-id`, `webhook-timestamp`, `webhook-signature: v1,…`, and the same as `svix-*`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_fuzz::{
    Algorithm, Encoding, Lazy, NOW, Request, SECRET, base64, check, check_signed, holds, mac, now,
    source,
};
use tashika_providers::webhook::{Scheme, TOLERANCE};

static SOURCE: Lazy = Lazy::new(|| {
    let secrets = vec!["b2xkZXI=".into(), SECRET.into()];
    source(Scheme::StandardWebhooks { secrets, tolerance: TOLERANCE })
});

fn signature(id: &str, stamp: &str, body: &[u8]) -> Vec<u8> {
    let message = [id.as_bytes(), b".", stamp.as_bytes(), b".", body];
    mac(Algorithm::Sha256, b"the fuzzer's secret", &message)
}

fn proof(request: &Request) -> bool {
    let names = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    let svix = ["svix-id", "svix-timestamp", "svix-signature"];
    let names = if request.headers.contains_key(names[2]) { names } else { svix };
    let [Some(id), Some(stamp), Some(header)] = names.map(|name| request.text(name)) else {
        return false;
    };
    let fresh = stamp.parse::<i64>().is_ok_and(|at| (at - NOW).abs() <= 300);
    fresh && holds(header, Encoding::Base64, &signature(id, stamp, &request.body))
}

fuzz_target!(|data: &[u8]| {
    let request = Request::parse(data);
    check(&SOURCE, &request, proof);
    // Any id will do, if it is the one that was signed, and comes back with the event.
    let id = request.text("webhook-id").filter(|id| !id.is_empty()).unwrap_or("msg_1");
    let stamp = NOW.to_string();
    let junk = request.text("webhook-signature").unwrap_or_default();
    let junk: Vec<&str> = junk.split(' ').take(8).collect();
    let mac = base64(&signature(id, &stamp, &request.body));
    let signed = request
        .with("webhook-id", id)
        .and_then(|request| request.with("webhook-timestamp", &stamp))
        .and_then(|request| {
            request.with("webhook-signature", &format!("{} v1,{mac}", junk.join(" ")))
        });
    let Some(signed) = signed else { return };
    check_signed(&SOURCE, &signed);
    if let Ok(event) = SOURCE.read(&signed.headers, br#"{"type":"a.b"}"#) {
        assert_eq!((event.id.as_str(), event.kind.as_str()), (id, "a.b"));
        assert_eq!(event.occurred_at, Some(now()));
    }
});
