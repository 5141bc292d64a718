//! Flow control from a stranger: what is read limits something, and reads back from its own words.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_domain::message::flow;

fuzz_target!(|input: (&str, &str)| {
    let (key, value) = input;
    let Ok(read) = flow::read(key, value) else { return };
    assert_eq!(read.key, key);
    assert!(read.parallelism.is_some() || read.rate.is_some());
    assert!(read.parallelism != Some(0) && read.rate != Some(0));
    assert!((flow::PERIOD..=flow::LONGEST_PERIOD).contains(&read.period));
    let mut words = vec![format!("period={}s", read.period.as_secs())];
    words.extend(read.parallelism.map(|limit| format!("parallelism={limit}")));
    words.extend(read.rate.map(|limit| format!("rate={limit}")));
    assert_eq!(flow::read(key, &words.join(", ")), Ok(read));
});
