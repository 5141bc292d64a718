//! Every hash and encoding of `generic-hmac`, with a prefix and a signed id.
#![no_main]

use libfuzzer_sys::fuzz_target;
use std::sync::LazyLock;
use tashika_fuzz::{
    Algorithm, Encoding, Request, SECRET, base64, check, check_signed, generic, hex, holds, mac,
    source,
};
use tashika_providers::webhook::{GenericHmac, Scheme, Source};

const HASHES: [Algorithm; 3] = [Algorithm::Sha1, Algorithm::Sha256, Algorithm::Sha512];
const ENCODINGS: [Encoding; 2] = [Encoding::Hex, Encoding::Base64];

struct Sender {
    algorithm: Algorithm,
    encoding: Encoding,
    source: Source,
}

static SENDERS: LazyLock<Vec<Sender>> = LazyLock::new(|| {
    let pairs = HASHES.iter().flat_map(|hash| ENCODINGS.map(|encoding| (*hash, encoding)));
    let sender = |(algorithm, encoding)| {
        let settings = GenericHmac {
            algorithm,
            encoding,
            prefix: "mac=".to_owned(),
            template: "{id}|{body}".to_owned(),
            id_header: Some("x-id".to_owned()),
            ..generic()
        };
        Sender { algorithm, encoding, source: source(Scheme::GenericHmac(settings)) }
    };
    pairs.map(sender).collect()
});

impl Sender {
    fn mac(&self, id: &str, body: &[u8]) -> Vec<u8> {
        mac(self.algorithm, SECRET.as_bytes(), &[id.as_bytes(), b"|", body])
    }
}

fuzz_target!(|data: &[u8]| {
    let request = Request::parse(data);
    for sender in SENDERS.iter() {
        check(&sender.source, &request, |request| {
            let header = request.text("x-signature").unwrap_or_default();
            let id = request.text("x-id").unwrap_or_default();
            let mac = sender.mac(id, &request.body);
            header.starts_with("mac=") && holds(header, sender.encoding, &mac)
        });
        let id = request.text("x-id").filter(|id| !id.is_empty()).unwrap_or("1");
        let mac = sender.mac(id, &request.body);
        let mac = match sender.encoding {
            Encoding::Hex => hex(&mac),
            Encoding::Base64 => base64(&mac),
        };
        let signed = request
            .with("x-id", id)
            .and_then(|request| request.with("x-signature", &format!("mac={mac}")));
        let Some(signed) = signed else { return };
        check_signed(&sender.source, &signed);
        if let Ok(event) = sender.source.read(&signed.headers, br#"{"type":"t"}"#) {
            assert_eq!((event.id.as_str(), event.kind.as_str()), (id, "t"));
        }
    }
});
