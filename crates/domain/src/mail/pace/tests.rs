use super::*;
use crate::mail::control::LaneState;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);
const LIMITS: Limits = Limits { rate_per_sec: 12.0, daily_quota: 100 };

fn control() -> Control {
    Control {
        version: 1,
        state: LaneState::Open,
        until: None,
        reason: None,
        slow_until: None,
        updated_at: NOW,
    }
}

fn found() -> Found {
    Found { control: control(), permits: 0, first_back_in: None, used: 0, oldest: None }
}

#[test]
fn permits_are_as_many_as_the_rate_and_half_when_slowed() {
    let at = |rate_per_sec| Limits { rate_per_sec, daily_quota: 0 };
    assert_eq!((at(12.0).permits(false), at(12.0).permits(true)), (12, 6));
    assert_eq!((at(12.9).permits(false), at(12.9).rest().as_secs()), (12, 1));
    assert_eq!((at(1.0).permits(true), at(0.5).permits(false)), (1, 1));
    assert_eq!(at(0.5).rest(), Duration::from_secs(2));
}

#[test]
fn leave_is_given_while_there_are_permits_and_quota() {
    assert_eq!(decide(&found(), &LIMITS, NOW), Leave::Granted);
    let busy = Found { permits: 12, first_back_in: Some(Duration::from_millis(70)), ..found() };
    assert_eq!(decide(&busy, &LIMITS, NOW), Leave::Wait(Duration::from_millis(70)));
    let hanging = Found { first_back_in: Some(Duration::from_secs(30)), ..busy.clone() };
    assert_eq!(decide(&hanging, &LIMITS, NOW), Leave::Wait(ASK_AGAIN));
    let slowed = Control { slow_until: Some(NOW.plus(ASK_AGAIN)), ..control() };
    let slowed = Found { control: slowed, permits: 6, ..busy };
    assert!(matches!(decide(&slowed, &LIMITS, NOW), Leave::Wait(_)));
}

#[test]
fn the_quota_frees_when_its_oldest_minute_leaves_the_window() {
    let oldest = minute(NOW) - 600;
    let used = Found { used: 100, oldest: Some(oldest), ..found() };
    let Leave::UsedUp { until } = decide(&used, &LIMITS, NOW) else { panic!("used up") };
    assert_eq!(until, frees_at(oldest));
    assert!(first_counted(until) > oldest, "by then it counts no more");
    let a_moment_before = Timestamp::from_micros(until.as_micros() - 1);
    assert_eq!(first_counted(a_moment_before), oldest);
    let unlimited = Limits { daily_quota: 0, ..LIMITS };
    assert_eq!(decide(&used, &unlimited, NOW), Leave::Granted);
}

/// A mail that was counted by a clock that is behind must not be forgotten early by one that is ahead.
#[test]
fn a_day_of_the_quota_is_whole_although_clocks_differ() {
    let (day, off) = (Duration::from_secs(24 * 3600), Duration::from_secs(20));
    for micros in [0, 1, 59_999_999, 60_000_000] {
        let sent = Timestamp::from_micros(1_767_571_200_000_000 + micros);
        let counted = minute(sent.minus(off));
        let almost_a_day_later = sent.plus(day).minus(Duration::from_micros(1));
        assert!(first_counted(almost_a_day_later.plus(off)) <= counted, "{micros}");
    }
}

#[test]
fn a_closed_lane_gives_no_leave_until_it_opens() {
    let until = Some(NOW.plus(Duration::from_secs(60)));
    let parked = Control { state: LaneState::Parked, until, ..control() };
    let at = |control: &Control, now| {
        decide(&Found { control: control.clone(), ..found() }, &LIMITS, now)
    };
    assert_eq!(at(&parked, NOW), Leave::Closed);
    assert_eq!(at(&parked, NOW.plus(Duration::from_secs(60))), Leave::Granted);
    let stopped = Control { state: LaneState::Stopped, ..parked };
    assert_eq!(at(&stopped, NOW.plus(Duration::from_secs(3600))), Leave::Closed);
    assert!(!stopped.wants_probe(NOW));
    assert!(stopped.wants_probe(NOW.plus(Duration::from_secs(60))));
}
