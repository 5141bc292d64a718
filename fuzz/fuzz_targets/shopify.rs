//! `X-Shopify-Hmac-Sha256: <base64>`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_fuzz::{
    Encoding, Lazy, Request, base64, check, check_signed, holds, mac256, secrets, source,
};
use tashika_providers::webhook::Scheme;

const HEADER: &str = "x-shopify-hmac-sha256";

static SOURCE: Lazy = Lazy::new(|| source(Scheme::Shopify { secrets: secrets() }));

fn proof(request: &Request) -> bool {
    let header = request.text(HEADER).unwrap_or_default();
    holds(header, Encoding::Base64, &mac256(&[&request.body]))
}

fuzz_target!(|data: &[u8]| {
    let request = Request::parse(data);
    check(&SOURCE, &request, proof);
    let Some(signed) = request.with(HEADER, &base64(&mac256(&[&request.body]))) else { return };
    check_signed(&SOURCE, &signed);
    if let Ok(event) = SOURCE.read(&signed.headers, b"{}") {
        assert_eq!(Some(event.kind.as_str()), request.text("x-shopify-topic"));
    }
});
