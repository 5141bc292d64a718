//! The headers by which a message is configured: no panic, and nothing gets into a header of the delivery
//! that would end it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_domain::message::spec::Spec;

fuzz_target!(|text: &str| {
    let lines = text.lines().filter_map(|line| line.split_once(':'));
    let pairs: Vec<(&str, &str)> = lines.collect();
    let Ok(spec) = Spec::read(pairs.iter().copied()) else { return };
    for (name, values) in &spec.headers {
        assert!(name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b':'), "{name:?}");
        // Whatever is to be forwarded is, but nothing that says where the request ends or to whom it goes.
        let framing = ["content-length", "transfer-encoding", "host", "connection"];
        assert!(!framing.contains(&name.to_ascii_lowercase().as_str()), "{name}");
        for value in values {
            assert!(!value.contains(['\r', '\n', '\0']), "{value:?}");
        }
    }
    assert!(spec.timeout.is_none_or(|timeout| !timeout.is_zero()));
    assert!(spec.dedup_id.is_none_or(|id| !id.contains(':')));
    assert_eq!(
        Spec::read(pairs.into_iter()).map_err(drop).map(|spec| spec.headers),
        Ok(spec.headers)
    );
});
