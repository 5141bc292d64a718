use serde_json::Value;

use super::*;

/// On the full minute.
fn minute(minutes: u64) -> Timestamp {
    Timestamp::from_micros(1_800_000_000_000_000).plus(Duration::from_secs(60 * minutes))
}

fn schedule() -> Schedule {
    Schedule {
        id: Uuid::from_u128(7),
        version: 1,
        name: "s".into(),
        cron: "*/5 * * * *".into(),
        destination: "https://a.example/".into(),
        asked: Asked::default(),
        body: Arc::from(&b"tick"[..]),
        delay: None,
        paused: false,
        created_at: minute(0),
        updated_at: minute(0),
        last_at: None,
        next_at: None,
        last_messages: Vec::new(),
        error: None,
        deleted_at: None,
    }
}

#[test]
fn the_next_firing_carries_the_version() {
    let (armed, effect) = armed(schedule(), minute(1), minute(9));
    let effect = effect.expect("a firing");
    assert_eq!((armed.next_at, effect.run_at), (Some(minute(5)), minute(5)));
    assert_eq!((effect.kind.as_str(), effect.lane), (KIND, Lane::TIMERS));
    let payload: Value = serde_json::from_str(&effect.payload).unwrap();
    assert_eq!(payload, json!({"schedule": Uuid::from_u128(7), "version": 1}));
    let (_, again) = super::armed(schedule(), minute(2), minute(9));
    assert_eq!(again.expect("a firing").key, effect.key, "one firing for each version");
    let (_, next) = super::armed(Schedule { version: 2, ..schedule() }, minute(2), minute(9));
    assert_ne!(next.expect("a firing").key, effect.key);
}

#[test]
fn a_tick_that_a_faster_clock_has_fired_does_not_come_again() {
    let next = |last_at: Timestamp, now: Timestamp| {
        armed(Schedule { last_at: Some(last_at), ..schedule() }, now, minute(9)).0.next_at
    };
    let a_little = Duration::from_millis(300);
    assert_eq!(next(minute(5), minute(5).minus(a_little)), Some(minute(10)));
    assert_eq!(next(minute(0), minute(5).minus(a_little)), Some(minute(5)));
    assert_eq!(next(minute(65), minute(4)), Some(minute(5)), "the clock was put back");
}

#[test]
fn what_is_paused_deleted_or_never_due_has_no_firing() {
    for schedule in [
        Schedule { paused: true, ..schedule() },
        Schedule { deleted_at: Some(minute(0)), ..schedule() },
        Schedule { cron: "0 0 30 2 *".into(), ..schedule() },
        Schedule { cron: "from a newer process".into(), ..schedule() },
    ] {
        let before = Schedule { next_at: Some(minute(3)), ..schedule };
        let (armed, effect) = armed(before, minute(1), minute(9));
        assert_eq!((armed.next_at, effect), (None, None));
    }
}

fn after(changes: &Changes) -> (Schedule, Option<NewEffect>) {
    let (mut schedule, mut effect) = (None, None);
    for write in changes.writes() {
        match write {
            Write::ScheduleUpdate(after) => schedule = Some((**after).clone()),
            Write::Enqueue(next) => effect = Some(next.clone()),
            other => panic!("not expected: {other:?}"),
        }
    }
    (schedule.expect("it is written"), effect)
}

#[test]
fn a_firing_leads_to_the_next() {
    let before = Schedule { error: Some("before".into()), ..schedule() };
    let made = vec![Uuid::from_u128(1), Uuid::from_u128(2)];
    let (schedule, effect) = after(&fired(&before, Ok(made.clone()), minute(5), minute(9)));
    assert_eq!((schedule.version, schedule.last_at), (2, Some(minute(5))));
    assert_eq!((schedule.last_messages, schedule.error), (made, None));
    assert_eq!((schedule.next_at, effect.map(|e| e.run_at)), (Some(minute(10)), Some(minute(10))));
}

#[test]
fn missed_ticks_are_not_made_up_for() {
    let (schedule, effect) = after(&fired(&schedule(), Ok(Vec::new()), minute(62), minute(99)));
    assert_eq!((schedule.next_at, effect.map(|e| e.run_at)), (Some(minute(65)), Some(minute(65))));
}

#[test]
fn a_firing_that_brings_nothing_says_why_and_goes_on() {
    let why = "topic t not found";
    let (schedule, effect) = after(&fired(&schedule(), Err(why.into()), minute(5), minute(9)));
    assert_eq!((schedule.error.as_deref(), schedule.last_messages.len()), (Some(why), 0));
    assert!(effect.is_some());
}
