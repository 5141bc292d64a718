//! `X-Hub-Signature-256: sha256=…`.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_fuzz::{
    Encoding, Lazy, Request, check, check_signed, hex, holds, mac256, secrets, source,
};
use tashika_providers::webhook::Scheme;

const HEADER: &str = "x-hub-signature-256";

static SOURCE: Lazy = Lazy::new(|| source(Scheme::Github { secrets: secrets() }));

fn proof(request: &Request) -> bool {
    let header = request.text(HEADER).unwrap_or_default();
    header.starts_with("sha256=") && holds(header, Encoding::Hex, &mac256(&[&request.body]))
}

fuzz_target!(|data: &[u8]| {
    let request = Request::parse(data);
    check(&SOURCE, &request, proof);
    let header = format!("sha256={}", hex(&mac256(&[&request.body])));
    let Some(signed) = request.with(HEADER, &header) else { return };
    check_signed(&SOURCE, &signed);
    let (id, kind) = (request.text("x-github-delivery"), request.text("x-github-event"));
    if let Ok(event) = SOURCE.read(&signed.headers, b"{}") {
        assert_eq!((Some(event.id.as_str()), Some(event.kind.as_str())), (id, kind));
    }
});
