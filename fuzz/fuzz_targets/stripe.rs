//! `Stripe-Signature: t=…,v1=…`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_fuzz::{
    Encoding, Lazy, NOW, Request, check, check_signed, hex, holds, mac256, secrets, source,
};
use tashika_providers::webhook::{Scheme, TOLERANCE};

const HEADER: &str = "stripe-signature";

static SOURCE: Lazy =
    Lazy::new(|| source(Scheme::Stripe { secrets: secrets(), tolerance: TOLERANCE }));

/// The only time, and a `v1` of it. Too old is refused, the future is not.
fn proof(request: &Request) -> bool {
    let Some(header) = request.text(HEADER) else { return false };
    let mut times = header.split(',').filter_map(|part| part.strip_prefix("t="));
    let (Some(stamp), None) = (times.next(), times.next()) else { return false };
    let fresh = stamp.parse::<i64>().is_ok_and(|at| at >= NOW - 300);
    let mac = mac256(&[stamp.as_bytes(), b".", &request.body]);
    let parts = header.split(',').filter_map(|part| part.strip_prefix("v1="));
    fresh && parts.into_iter().any(|part| holds(part, Encoding::Hex, &mac))
}

fuzz_target!(|data: &[u8]| {
    let request = Request::parse(data);
    check(&SOURCE, &request, proof);
    // Whatever else stands in the header, as long as it is no time and not too much.
    let junk = request.text(HEADER).unwrap_or_default();
    let junk = junk.split(',').filter(|part| !part.starts_with("t=")).take(8);
    let junk: Vec<&str> = junk.collect();
    let stamp = NOW.to_string();
    let mac = hex(&mac256(&[stamp.as_bytes(), b".", &request.body]));
    let header = format!("{},t={stamp},v1={mac}", junk.join(","));
    if let Some(signed) = request.with(HEADER, &header) {
        check_signed(&SOURCE, &signed);
    }
});
