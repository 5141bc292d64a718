//! `X-Slack-Signature: v0=…` over `v0:<X-Slack-Request-Timestamp>:<body>`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_fuzz::{
    Encoding, Lazy, NOW, Request, check, check_signed, hex, holds, mac256, secrets, source,
};
use tashika_providers::webhook::{Scheme, TOLERANCE};

const SIGNATURE: &str = "x-slack-signature";
const TIME: &str = "x-slack-request-timestamp";

static SOURCE: Lazy =
    Lazy::new(|| source(Scheme::Slack { secrets: secrets(), tolerance: TOLERANCE }));

fn signature(stamp: &str, body: &[u8]) -> Vec<u8> {
    mac256(&[b"v0:", stamp.as_bytes(), b":", body])
}

fn proof(request: &Request) -> bool {
    let (Some(header), Some(stamp)) = (request.text(SIGNATURE), request.text(TIME)) else {
        return false;
    };
    let fresh = stamp.parse::<i64>().is_ok_and(|at| (at - NOW).abs() <= 300);
    let signed = holds(header, Encoding::Hex, &signature(stamp, &request.body));
    fresh && signed && header.starts_with("v0=")
}

fuzz_target!(|data: &[u8]| {
    let request = Request::parse(data);
    check(&SOURCE, &request, proof);
    let stamp = NOW.to_string();
    let header = format!("v0={}", hex(&signature(&stamp, &request.body)));
    let signed = request.with(TIME, &stamp).and_then(|request| request.with(SIGNATURE, &header));
    if let Some(signed) = signed {
        check_signed(&SOURCE, &signed);
    }
});
