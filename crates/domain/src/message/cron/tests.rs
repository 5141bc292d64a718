use super::*;
use proptest::prelude::*;

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// The moments after `start` at which an expression fires.
fn fires(expression: &str, start: &str, count: usize) -> Vec<String> {
    let cron = Cron::parse(expression).unwrap();
    let mut after = at(start);
    let mut found = Vec::new();
    for _ in 0..count {
        after = cron.next_after(after).unwrap();
        found.push(after.to_string().replace(":00.000000Z", "Z"));
    }
    found
}

#[test]
fn fires_when_the_fields_say() {
    for (expression, start, expected) in [
        ("* * * * *", "2026-11-15T09:30:00Z", "2026-11-15T09:31Z"),
        ("* * * * *", "2026-11-15T09:30:59.999999Z", "2026-11-15T09:31Z"),
        ("*/15 * * * *", "2026-11-15T09:30:00.5Z", "2026-11-15T09:45Z"),
        ("5/15 * * * *", "2026-11-15T09:30:00Z", "2026-11-15T09:35Z"),
        ("0 9-17/4 * * *", "2026-11-15T09:30:00Z", "2026-11-15T13:00Z"),
        ("0 0 29 2 *", "2026-11-15T09:30:00Z", "2028-02-29T00:00Z"),
        ("0 0 31 * *", "2026-11-15T09:30:00Z", "2026-12-31T00:00Z"),
        ("0 0 * * MON", "2026-11-15T09:30:00Z", "2026-11-16T00:00Z"),
        ("0 0 * * 7", "2026-11-16T00:00:00Z", "2026-11-22T00:00Z"),
        ("0 0 * * 0", "2026-11-16T00:00:00Z", "2026-11-22T00:00Z"),
        ("0 0 * * fri-sun", "2026-11-14T00:00:00Z", "2026-11-15T00:00Z"),
        ("0 0 ? jan ?", "2026-11-14T00:00:00Z", "2027-01-01T00:00Z"),
        // Either day is enough, if both are given; a `*` with a step of one is no day.
        ("0 0 13 * 5", "2026-11-13T00:00:00Z", "2026-11-20T00:00Z"),
        ("0 0 13 * */1", "2026-11-13T00:00:00Z", "2026-12-13T00:00Z"),
        ("0 0 30 2 1", "2026-11-15T00:00:00Z", "2027-02-01T00:00Z"),
        ("@daily", "2026-11-15T09:30:00Z", "2026-11-16T00:00Z"),
        ("@Weekly", "2026-11-15T09:30:00Z", "2026-11-22T00:00Z"),
        ("CRON_TZ=Asia/Tokyo 0 9 * * *", "2026-11-15T09:30:00Z", "2026-11-16T00:00Z"),
        ("  TZ=Asia/Kolkata   30 9 * * *  ", "2026-11-15T09:30:00Z", "2026-11-16T04:00Z"),
        ("0 0 1 1 *", "1969-12-31T23:59:59.999999Z", "1970-01-01T00:00Z"),
    ] {
        assert_eq!(fires(expression, start, 1), [expected], "{expression}");
    }
}

#[test]
fn a_skipped_local_time_fires_at_the_change() {
    // 2026-03-29: in Berlin, 02:00 is 03:00, which is 01:00 UTC.
    let berlin = |fields: &str| format!("CRON_TZ=Europe/Berlin {fields}");
    let (before, during) = ("2026-03-28T12:00:00Z", "2026-03-29T00:59:59.999999Z");
    for start in [before, during] {
        assert_eq!(
            fires(&berlin("30 2 * * *"), start, 2),
            ["2026-03-29T01:00Z", "2026-03-30T00:30Z"]
        );
    }
    // Several of them fire together, and with the one that is there anyway.
    assert_eq!(
        fires(&berlin("0,30 2,3 * * *"), before, 3),
        ["2026-03-29T01:00Z", "2026-03-29T01:30Z", "2026-03-30T00:00Z"]
    );
    // 2026-03-08: in New York, 02:00 is 03:00, which is 07:00 UTC.
    assert_eq!(
        fires("CRON_TZ=America/New_York 15 2 * * *", "2026-03-07T12:00:00Z", 2),
        ["2026-03-08T07:00Z", "2026-03-09T06:15Z"]
    );
    // Every hour is every hour: nothing is missing.
    assert_eq!(
        fires(&berlin("30 * * * *"), "2026-03-29T00:00:00Z", 3),
        ["2026-03-29T00:30Z", "2026-03-29T01:30Z", "2026-03-29T02:30Z"]
    );
}

#[test]
fn a_repeated_local_time_fires_once() {
    // 2026-10-25: in Berlin, 03:00 is 02:00 again, which is 01:00 UTC.
    let berlin = |fields: &str| format!("CRON_TZ=Europe/Berlin {fields}");
    assert_eq!(
        fires(&berlin("30 2 * * *"), "2026-10-24T12:00:00Z", 2),
        ["2026-10-25T00:30Z", "2026-10-26T01:30Z"]
    );
    // Asked in the second hour, what had its moment in the first does not come again.
    assert_eq!(fires(&berlin("*/20 2 * * *"), "2026-10-25T01:05:00Z", 1), ["2026-10-26T01:00Z"]);
    assert_eq!(
        fires(&berlin("0 */2 * * *"), "2026-10-24T23:30:00Z", 2),
        ["2026-10-25T00:00Z", "2026-10-25T03:00Z"]
    );
    // 2026-11-01: in New York, 02:00 is 01:00 again, which is 06:00 UTC.
    assert_eq!(
        fires("CRON_TZ=America/New_York 30 1 * * *", "2026-10-31T12:00:00Z", 2),
        ["2026-11-01T05:30Z", "2026-11-02T06:30Z"]
    );
    // Every hour is every hour: both of them.
    assert_eq!(
        fires(&berlin("30 * * * *"), "2026-10-25T00:00:00Z", 3),
        ["2026-10-25T00:30Z", "2026-10-25T01:30Z", "2026-10-25T02:30Z"]
    );
}

#[test]
fn a_day_that_a_zone_skipped_is_survived() {
    // Samoa had no 2011-12-30: it moved across the date line, at 10:00 UTC.
    assert_eq!(
        fires("CRON_TZ=Pacific/Apia 0 12 * * *", "2011-12-29T12:00:00Z", 3),
        ["2011-12-29T22:00Z", "2011-12-30T10:00Z", "2011-12-30T22:00Z"]
    );
}

#[test]
fn mistakes_have_a_sentence() {
    for (expression, error) in [
        ("0 0 30 2 *", "`0 0 30 2 *` never fires, because no month has such a day"),
        (
            "0 0 31 feb,4,6,9,11 *",
            "`0 0 31 feb,4,6,9,11 *` never fires, because no month has such a day",
        ),
        ("60 * * * *", "the minute `60` is invalid: `60` is not between 0 and 59"),
        ("* 24 * * *", "the hour `24` is invalid: `24` is not between 0 and 23"),
        ("* * 0 * *", "the day of the month `0` is invalid: `0` is not between 1 and 31"),
        ("* * L * *", "the day of the month `L` is invalid: `L` is not between 1 and 31"),
        ("* * * 13 *", "the month `13` is invalid: `13` is not between 1 and 12"),
        ("* * * * 8", "the day of the week `8` is invalid: `8` is not between 0 and 7"),
        ("* * * * MON1", "the day of the week `MON1` is invalid: `MON1` is not between 0 and 7"),
        ("MON * * * *", "the minute `MON` is invalid: `MON` is not between 0 and 59"),
        ("*/0 * * * *", "the minute `*/0` is invalid: the step `0` is not between 1 and 59"),
        ("*/60 * * * *", "the minute `*/60` is invalid: the step `60` is not between 1 and 59"),
        ("30-10 * * * *", "the minute `30-10` is invalid: the range `30-10` goes backwards"),
        ("1,,2 * * * *", "the minute `1,,2` is invalid: `` is not between 0 and 59"),
        ("+1 * * * *", "the minute `+1` is invalid: `+1` is not between 0 and 59"),
        (
            "CRON_TZ=Mars/Olympus * * * * *",
            "`Mars/Olympus` is not a time zone such as Europe/Berlin",
        ),
    ] {
        assert_eq!(Cron::parse(expression).unwrap_err(), error, "{expression}");
    }
    for (expression, count) in
        [("", 0), ("* * * *", 4), ("0 * * * * *", 6), ("@every 1h", 2), ("CRON_TZ=UTC", 0)]
    {
        let error = Cron::parse(expression).unwrap_err();
        let wanted = format!("has {count} fields instead of 5");
        assert!(error.contains(&wanted) && error.contains("seconds are not supported"), "{error}");
    }
    assert!(Cron::parse(&"1,".repeat(300)).unwrap_err().contains("at most 512"));
}

#[test]
fn the_text_is_kept_without_blanks_around() {
    let cron = Cron::parse(" CRON_TZ=Europe/Berlin  0 9 * * MON  ").unwrap();
    assert_eq!(cron.as_str(), "CRON_TZ=Europe/Berlin  0 9 * * MON");
    assert_eq!(Cron::parse(cron.as_str()).unwrap(), cron);
}

#[test]
fn the_calendar_ends() {
    let cron = Cron::parse("0 0 1 1 *").unwrap();
    for micros in [i64::MAX, i64::MIN, 95_617_584_000_000_000] {
        assert_eq!(cron.next_after(Timestamp::from_micros(micros)), None);
    }
}

/// Some minutes in a way that a minute-by-minute search can check.
fn matches(cron: &Cron, moment: Timestamp) -> bool {
    let at = jiff::Timestamp::from_microsecond(moment.as_micros()).unwrap();
    let local = at.to_zoned(cron.zone.clone());
    cron.pattern.is_time_matching(&local).unwrap()
}

proptest! {
    #[test]
    fn never_panics(text in "\\PC*", near in "(CRON_TZ=[A-Z][a-z]+/[A-Z][a-z]+ )?([0-9*/,?A-Z-]{1,6} ){4,6}", micros: i64) {
        for text in [text, near] {
            if let Ok(cron) = Cron::parse(&text) {
                let after = Timestamp::from_micros(micros);
                if let Some(next) = cron.next_after(after) {
                    prop_assert!(next > after);
                }
            }
        }
    }

    /// In UTC, where clocks do not change, it is the first minute that matches.
    #[test]
    fn the_next_minute_that_matches(
        minute in 0_u32..60, step in 1_u32..30, hour in 0_u32..24, weekday in 0_u32..8, second in 0_i64..4_000_000_000
    ) {
        let after = Timestamp::from_micros(second * 1_000_000);
        for text in [
            format!("{minute} {hour} * * *"),
            format!("*/{step} * * * {weekday}"),
            format!("{minute}/{step} {hour}-23 * * {weekday}"),
        ] {
            let cron = Cron::parse(&text).unwrap();
            let next = cron.next_after(after).unwrap();
            prop_assert!(matches(&cron, next), "{}", text);
            let mut moment = Timestamp::from_micros((second / 60 + 1) * 60_000_000);
            while moment < next {
                prop_assert!(!matches(&cron, moment), "{} at {}", text, moment);
                moment = moment.plus(std::time::Duration::from_secs(60));
            }
        }
    }

    /// Around the changes of a zone, a daily schedule fires once on every day.
    #[test]
    fn once_a_day_in_every_zone(
        zone in "(Europe/Berlin|America/New_York|Australia/Lord_Howe|America/St_Johns|Africa/Casablanca)",
        minute in 0_u32..60, hour in 0_u32..24, day in 0_i64..20_000
    ) {
        let cron = Cron::parse(&format!("CRON_TZ={zone} {minute} {hour} * * *")).unwrap();
        let mut after = Timestamp::from_micros(day * 86_400_000_000);
        let mut dates = Vec::new();
        for _ in 0..5 {
            after = cron.next_after(after).unwrap();
            let at = jiff::Timestamp::from_microsecond(after.as_micros()).unwrap();
            dates.push(at.to_zoned(cron.zone.clone()).date());
        }
        for pair in dates.windows(2) {
            prop_assert_eq!(pair[0].tomorrow().unwrap(), pair[1]);
        }
    }
}
