use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::message::asked::Asked;
use crate::message::{Begin, Draft, PARKED, accept};

const SECOND: Duration = Duration::from_secs(1);

fn at(millis: i64) -> Timestamp {
    Timestamp::from_micros(1_700_000_000_000_000 + millis * 1000)
}

fn limits(parallelism: Option<u32>, rate: Option<u32>) -> Flow {
    Flow { key: "k".into(), parallelism, rate, period: SECOND }
}

fn control(parallelism: Option<u32>, rate: Option<u32>) -> FlowControl {
    FlowControl::new(Uuid::nil(), &limits(parallelism, rate), at(0))
}

fn waiting(count: u128, queue: Option<&str>, flow: Option<&Flow>) -> Vec<Message> {
    let of = |number: u128| {
        let (message, _) = accept(Draft {
            id: Uuid::from_u128(number),
            asked: Asked { queue: queue.map(Into::into), flow: flow.cloned(), ..Asked::default() }
                .into(),
            body: Arc::from(&b""[..]),
            not_before: None,
            dedup_key: None,
            holds: None,
            traceparent: None,
            now: at(0),
            expires_at: at(0),
            begin: Begin::Due,
        });
        message
    };
    (1..=count).map(of).collect()
}

/// The messages as they are after they were let through, and the effects that got a time.
fn admitted(changes: &Changes) -> (Vec<Message>, Vec<Reschedule>) {
    let mut messages = Vec::new();
    let mut times = Vec::new();
    for write in changes.writes() {
        match write {
            Write::MessageUpdate(message) => messages.push((**message).clone()),
            Write::Reschedule(wish) => times.push(wish.clone()),
            Write::QueueUpdate(_) | Write::FlowUpdate(_) => {}
            other => panic!("not expected: {other:?}"),
        }
    }
    (messages, times)
}

fn control_after(changes: &Changes) -> FlowControl {
    let found = changes.writes().iter().find_map(|write| match write {
        Write::FlowUpdate(control) => Some((**control).clone()),
        _ => None,
    });
    found.expect("the gate is the lock")
}

#[test]
fn a_queue_lets_through_as_many_as_there_is_room_for() {
    let queue = Queue { parallelism: 3, ..Queue::new(Uuid::nil(), "q", at(0)) };
    let waiting = waiting(5, Some("q"), None);
    for active in 0..3_u32 {
        let changes = admit_from_queue(&queue, active, &waiting, at(7)).expect("room");
        let (messages, times) = admitted(&changes);
        assert_eq!(messages.len(), 3 - active as usize);
        assert_eq!(times.len(), messages.len());
        for ((after, before), time) in messages.iter().zip(&waiting).zip(&times) {
            assert_eq!((after.id, after.state), (before.id, State::Ready), "in order");
            assert_eq!((after.version, after.due_at), (before.version + 1, at(7)));
            assert_eq!((time.id, time.run_at), (EffectId(after.id), at(7)));
            assert_ne!(time.run_at, PARKED);
        }
        let Some(Write::QueueUpdate(after)) = changes.writes().last() else { panic!("the lock") };
        assert_eq!(**after, Queue { version: queue.version + 1, ..queue.clone() });
    }
    for active in [3, 4, u32::MAX] {
        assert_eq!(admit_from_queue(&queue, active, &waiting, at(7)), None);
    }
    assert_eq!(admit_from_queue(&queue, 0, &[], at(7)), None, "nobody waits");
    let paused = Queue { paused: true, ..queue };
    assert_eq!(admit_from_queue(&paused, 0, &waiting, at(7)), None);
}

#[test]
fn behind_a_queue_a_flow_control_may_wait() {
    let queue = Queue::new(Uuid::nil(), "q", at(0));
    let waiting = waiting(1, Some("q"), Some(&limits(Some(1), None)));
    let changes = admit_from_queue(&queue, 0, &waiting, at(7)).expect("room");
    let (messages, times) = admitted(&changes);
    assert_eq!((messages[0].state, times), (State::Throttled, vec![]), "no time yet");
    let changes = admit_from_flow(&control(Some(1), None), 0, &messages, at(8)).expect("room");
    let (messages, times) = admitted(&changes);
    assert_eq!((messages[0].state, times.len()), (State::Ready, 1));
}

#[test]
fn a_rate_counts_in_periods() {
    let (mut control, waiting) =
        (control(None, Some(3)), waiting(2, None, Some(&limits(None, Some(3)))));
    control = control_after(&admit_from_flow(&control, 0, &waiting, at(0)).expect("room"));
    assert_eq!((control.period_count, control.room(99)), (2, 1));
    assert_eq!(control.opens_at(), None);
    control = control_after(&admit_from_flow(&control, 2, &waiting, at(999)).expect("room"));
    assert_eq!((control.period_count, control.room(0)), (3, 0), "one of the two");
    assert_eq!(control.opens_at(), Some(at(1000)));
    assert_eq!(admit_from_flow(&control, 0, &waiting, at(999)), None);
    // Long after, a new period has begun; periods follow each other without a gap.
    control = control_after(&admit_from_flow(&control, 3, &waiting, at(5500)).expect("room"));
    assert_eq!((control.period_start, control.period_count), (at(5000), 2));
}

#[test]
fn nobody_passes_before_the_period_in_which_it_is_counted() {
    let waiting = waiting(1, None, Some(&limits(None, Some(3))));
    let begun = FlowControl { period_start: at(1000), ..control(None, Some(3)) };
    // A process whose clock is behind finds a period that has not begun for it.
    for behind in [60, 1600] {
        let changes = admit_from_flow(&begun, 0, &waiting, at(1000 - behind)).expect("room");
        let (messages, times) = admitted(&changes);
        assert_eq!((messages[0].due_at, times[0].run_at), (at(1000), at(1000)));
        let after = control_after(&changes);
        assert_eq!((after.period_start, after.period_count), (at(1000), 1));
    }
}

#[test]
fn a_clock_that_was_put_back_begins_a_new_period() {
    let waiting = waiting(1, None, Some(&limits(None, Some(3))));
    let spent =
        FlowControl { period_start: at(3_600_000), period_count: 3, ..control(None, Some(3)) };
    assert_eq!(spent.at(at(0)).opens_at(), None);
    let after = control_after(&admit_from_flow(&spent, 0, &waiting, at(0)).expect("room"));
    assert_eq!((after.period_start, after.period_count), (at(0), 1));
}

#[test]
fn a_pause_stops_and_lets_the_period_elapse() {
    let paused = FlowControl { paused: true, ..control(Some(5), Some(5)) };
    let waiting = waiting(1, None, Some(&limits(Some(5), Some(5))));
    assert_eq!(admit_from_flow(&paused, 0, &waiting, at(0)), None);
    assert_eq!((paused.opens_at(), paused.at(at(1500)).period_start), (None, at(1000)));
}

#[test]
fn the_newest_limits_count_unless_they_are_pinned() {
    let before = control(Some(1), Some(2));
    assert_eq!(before.configured(&limits(Some(1), Some(2)), at(1)), None, "nothing changes");
    let newest = limits(Some(9), None);
    let after = before.configured(&newest, at(1)).expect("a change");
    assert_eq!((after.parallelism, after.rate, after.version), (Some(9), None, 2));
    let pinned = FlowControl { pinned_parallelism: true, ..before.clone() };
    let after = pinned.configured(&newest, at(1)).expect("a change");
    assert_eq!((after.parallelism, after.rate), (Some(1), None));
    let pinned = FlowControl { pinned_parallelism: true, pinned_rate: true, ..before };
    assert_eq!(pinned.configured(&newest, at(1)), None);
}

proptest! {
    /// Whatever the moments, no period sees more than the rate, and no moment more than fits.
    #[test]
    fn room_is_never_exceeded(
        parallelism in proptest::option::of(1_u32..6),
        rate in proptest::option::of(1_u32..6),
        steps in proptest::collection::vec((0_i64..700, 0_u32..6), 1..60),
    ) {
        let mut control = control(parallelism, rate);
        let waiting = waiting(10, None, Some(&limits(parallelism, rate)));
        let (mut now, mut active) = (0, 0_u32);
        let mut periods = std::collections::BTreeMap::<i64, u32>::new();
        for (passes, end) in steps {
            now += passes;
            active = active.saturating_sub(end);
            if let Some(changes) = admit_from_flow(&control, active, &waiting, at(now)) {
                let count = u32::try_from(admitted(&changes).0.len()).unwrap();
                prop_assert!(count > 0);
                active += count;
                *periods.entry(now / 1000).or_default() += count;
                control = control_after(&changes);
            }
            prop_assert!(parallelism.is_none_or(|most| active <= most));
            prop_assert!(rate.is_none_or(|most| periods.values().all(|count| *count <= most)));
        }
    }
}
