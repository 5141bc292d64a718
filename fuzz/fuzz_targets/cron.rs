//! A cron expression from a stranger: it is read or refused, and what is read fires later than it
//! is asked, each time.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_domain::Timestamp;
use tashika_domain::message::cron::Cron;

fuzz_target!(|input: (i64, &str)| {
    let (micros, text) = input;
    let Ok(cron) = Cron::parse(text) else { return };
    assert_eq!(Cron::parse(cron.as_str()).as_ref(), Ok(&cron), "it reads back");
    let mut after = Timestamp::from_micros(micros);
    for _ in 0..3 {
        let Some(next) = cron.next_after(after) else { return };
        assert!(next > after, "time goes forward");
        assert_eq!(next.as_micros() % 1_000_000, 0, "on a whole second");
        after = next;
    }
    // In our time, every expression that was not refused fires: at the latest on the next 29
    // February, eight years away around a century.
    let now = Timestamp::from_micros(1_800_000_000_000_000);
    let next = cron.next_after(now).expect("it fires");
    assert!(next.since(now).as_secs() <= 9 * 366 * 86_400, "within nine years");
});
