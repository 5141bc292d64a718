//! The template of `generic-hmac`: what is signed. The first line is the template.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_fuzz::{NOW, Request, check_signed, generic, hex, mac256};
use tashika_providers::webhook::{GenericHmac, Scheme, Source};

const PLACES: [&str; 3] = ["{timestamp}", "{id}", "{body}"];

/// Whether a template can be used, by other means than the product's: no brace is left over when the places
/// are taken out, the body stands in it once, and the time at least once.
fn usable(template: &str) -> bool {
    let mut rest = template.to_owned();
    for place in PLACES {
        // Something that no place contains, so that nothing new comes together.
        rest = rest.replace(place, "\u{1}");
    }
    !rest.contains(['{', '}'])
        && template.matches("{body}").count() == 1
        && template.contains("{timestamp}")
}

fuzz_target!(|data: &[u8]| {
    let end = data.iter().position(|byte| *byte == b'\n').unwrap_or(data.len());
    let (template, body) = (&data[..end], data.get(end + 1..).unwrap_or_default());
    let Ok(template) = std::str::from_utf8(template) else { return };
    let settings = GenericHmac {
        timestamp_header: Some("x-time".to_owned()),
        id_header: Some("x-id".to_owned()),
        template: template.to_owned(),
        ..generic()
    };
    let source = Source::new("fuzz", Scheme::GenericHmac(settings));
    assert_eq!(source.is_ok(), usable(template), "{template}");
    let Ok(source) = source else { return };
    // The body is put in last: what looks like a place in it is none.
    let stamp = NOW.to_string();
    let filled = template.replace("{timestamp}", &stamp).replace("{id}", "evt_1");
    let (before, after) = filled.split_once("{body}").expect("it stands there once");
    let mac = hex(&mac256(&[before.as_bytes(), body, after.as_bytes()]));
    let signed = Request { body: body.to_vec(), ..Request::default() }
        .with("x-time", &stamp)
        .and_then(|request| request.with("x-id", "evt_1"))
        .and_then(|request| request.with("x-signature", &mac))
        .expect("these are headers");
    check_signed(&source, &signed);
});
