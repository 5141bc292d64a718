//! Durations from strangers: no overflow, no panic, and what is read can be written and read again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_domain::message::span;

fuzz_target!(|text: &str| {
    if let Ok(read) = span::parse(text) {
        assert!(read <= span::LONGEST);
        assert_eq!(span::parse(&span::text(read)), Ok(read));
        // Parts add up, in any order: twice the text is twice the time, or too long.
        match span::parse(&format!("{text}{text}")) {
            Ok(twice) => assert_eq!(twice, read * 2),
            Err(_) => assert!(read * 2 > span::LONGEST),
        }
    }
    if let Some(read) = span::go_duration(text) {
        assert!(read.as_nanos() <= i64::MAX.unsigned_abs().into(), "what Go can hold");
        let written = format!("{}ns", read.as_nanos());
        assert_eq!(span::go_duration(&written), Some(read));
    }
});
