use std::sync::Arc;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde_json::{Value, json};

use super::*;
use crate::message::asked::{Asked, Callback, Flow, Headers, Method};
use crate::message::{Begin, Draft, accept, cancel, public_id};

const NOW: Timestamp = Timestamp::from_micros(1_700_000_100_000_000);

fn message(asked: Asked) -> Message {
    let created = Timestamp::from_micros(1_700_000_000_000_000);
    let (message, _) = accept(Draft {
        id: Uuid::from_u128(0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10),
        asked: Asked { url: "https://a.example/hook".into(), ..asked }.into(),
        body: Arc::from(&b"hello"[..]),
        not_before: None,
        dedup_key: Some("id:k".into()),
        holds: None,
        traceparent: Some("00-trace".into()),
        now: created,
        expires_at: created,
        begin: Begin::Due,
    });
    Message { state: State::Ready, ..message }
}

fn with_retries(retries: u32) -> Asked {
    Asked { retries, ..Asked::default() }
}

fn flow() -> Flow {
    Flow { key: "f".into(), parallelism: Some(1), rate: None, period: Duration::from_secs(1) }
}

fn attempt(came: Came, failures: u32) -> Attempted {
    let reason = match came {
        Came::Delivered => None,
        _ => Some(Reason::new("DESTINATION_REFUSED", "500")),
    };
    Attempted {
        came,
        response: Response { status: 500, body: b"oops".to_vec(), ..Response::default() },
        failures,
        lapses: 0,
        reason,
        in_doubt: false,
        started_at: Timestamp::from_micros(NOW.as_micros() - 1),
        now: NOW,
        id: Uuid::from_u128(99),
        expires_at: NOW,
        reopen: true,
    }
}

const AGAIN: Came = Came::Again { retry_in: None };

/// The message as it is written, if it is.
fn written(concluded: &Concluded) -> Option<Message> {
    concluded.changes.writes().iter().find_map(|write| match write {
        Write::MessageUpdate(message) => Some((**message).clone()),
        _ => None,
    })
}

/// The line of the log that the attempt wrote, if it wrote one.
fn line_of(concluded: &Concluded) -> Option<LogLine> {
    let lines: Vec<&LogLine> = (concluded.changes.writes().iter())
        .filter_map(|write| match write {
            Write::MessageLog(line) => Some(&**line),
            _ => None,
        })
        .collect();
    assert!(lines.len() <= 1, "no attempt is two lines");
    lines.first().map(|line| (*line).clone())
}

fn line(concluded: &Concluded) -> LogLine {
    line_of(concluded).expect("the attempt is on record")
}

/// What an attempt that ended the message wrote into it, instead of a line.
fn last(concluded: &Concluded) -> LastAttempt {
    assert_eq!(line_of(concluded), None, "an attempt is on record once");
    let after = written(concluded).expect("it is written");
    assert_eq!(after.response.as_ref().map(|response| response.status), Some(500));
    after.last.expect("the attempt is on record")
}

/// The messages that are told to others.
fn told(concluded: &Concluded) -> Vec<(Message, Value)> {
    (concluded.changes.writes().iter())
        .filter_map(|write| match write {
            Write::MessageInsert(message) => {
                Some(((**message).clone(), serde_json::from_slice(&message.body).unwrap()))
            }
            _ => None,
        })
        .collect()
}

/// The wait before the next attempt.
fn wait(concluded: &Concluded) -> Duration {
    match &concluded.verdict {
        Verdict::Retry { run_at, .. } => run_at.since(NOW),
        other => panic!("no retry: {other:?}"),
    }
}

#[test]
fn an_answer_that_is_fine_ends_it() {
    let before = message(with_retries(3));
    let concluded = conclude(&before, &attempt(Came::Delivered, 2));
    assert_eq!(concluded.verdict, Verdict::Succeeded);
    let after = written(&concluded).expect("it is written");
    assert_eq!((after.state, after.version), (State::Delivered, before.version + 1));
    assert_eq!((after.ended_at, after.dlq_id), (Some(NOW), None));
    assert_eq!(after.dedup_key, before.dedup_key, "it keeps others out");
    let began = Timestamp::from_micros(NOW.as_micros() - 1);
    let expected = LastAttempt { id: Uuid::from_u128(99), started_at: began, retried: 2 };
    assert_eq!(last(&concluded), expected);
}

#[test]
fn retries_wait_longer_and_longer_unless_told_otherwise() {
    let plain = message(with_retries(10));
    for (failures, seconds) in [(0, 12), (1, 148), (2, 1808), (3, 22_026), (4, 86_400)] {
        let concluded = conclude(&plain, &attempt(AGAIN, failures));
        assert_eq!(wait(&concluded), Duration::from_secs(seconds));
        assert_eq!(line(&concluded).next_at, Some(NOW.plus(Duration::from_secs(seconds))));
    }
    let own = Asked { retry_delay: Some("1000 * (1 + retried)".into()), ..with_retries(10) };
    for failures in 0..3 {
        let concluded = conclude(&message(own.clone()), &attempt(AGAIN, failures));
        assert_eq!(wait(&concluded), Duration::from_secs(u64::from(failures) + 1));
    }
    // What the destination says comes first.
    for said in [Duration::ZERO, Duration::from_secs(7)] {
        let came = Came::Again { retry_in: Some(said) };
        assert_eq!(wait(&conclude(&message(own.clone()), &attempt(came, 0))), said);
    }
    let unreadable = Asked { retry_delay: Some("(".into()), ..with_retries(10) };
    let concluded = conclude(&message(unreadable), &attempt(AGAIN, 0));
    assert_eq!(wait(&concluded), Duration::from_secs(12), "from a newer process, perhaps");
}

/// Nobody may miss that the message was cancelled during the attempt: the version tells.
#[test]
fn a_retry_is_a_new_version_of_the_message() {
    let before = message(with_retries(3));
    let mut lapsed = attempt(Came::Lapsed, 0);
    lapsed.in_doubt = true;
    for (attempt, what) in [(attempt(AGAIN, 0), Logged::Error), (lapsed, Logged::Lapsed)] {
        let concluded = conclude(&before, &attempt);
        let after = written(&concluded).expect("it is written");
        assert_eq!((after.state, after.version), (State::Ready, before.version + 1));
        assert_eq!(Some(after.due_at), line(&concluded).next_at);
        assert_eq!(line(&concluded).what, what);
    }
}

#[test]
fn a_retry_under_flow_control_waits_at_its_gate() {
    let before = message(Asked { flow: Some(flow()), ..with_retries(3) });
    let concluded = conclude(&before, &attempt(AGAIN, 0));
    assert!(matches!(concluded.verdict, Verdict::Retry { run_at: PARKED, .. }));
    let after = written(&concluded).expect("it is written");
    assert_eq!(after.state, State::Throttled);
    assert_eq!(after.due_at, NOW.plus(Duration::from_secs(12)));
    assert_eq!(line(&concluded).next_at, Some(after.due_at), "and not in the year 9999");
}

#[test]
fn it_is_given_up_when_retries_run_out() {
    for (retries, failures, over) in [(0, 0, true), (3, 2, false), (3, 3, true), (3, 9, true)] {
        let concluded = conclude(&message(with_retries(retries)), &attempt(AGAIN, failures));
        assert_eq!(matches!(concluded.verdict, Verdict::Aborted { .. }), over);
        let after = written(&concluded).expect("it is written");
        assert_eq!(after.state == State::Failed, over);
        assert_eq!(after.dlq_id.is_some(), over);
        assert_eq!((after.response.is_some(), after.last.is_some()), (over, over));
        assert_eq!(line_of(&concluded).is_none(), over, "an attempt is on record once");
    }
    let never = conclude(&message(with_retries(3)), &attempt(Came::Never, 0));
    let after = written(&never).expect("it is written");
    assert_eq!((after.state, after.ended_at), (State::Failed, Some(NOW)));
    assert_eq!(last(&never).retried, 0);
}

#[test]
fn names_of_dead_letters_differ() {
    let dead = |id: u128| {
        let message = Message { id: Uuid::from_u128(id), ..message(with_retries(0)) };
        let after = written(&conclude(&message, &attempt(Came::Never, 0)));
        after.and_then(|message| message.dlq_id).expect("a dead letter")
    };
    assert!(dead(1).starts_with("1700000100000-"));
    assert_ne!(dead(1), dead(2));
}

#[test]
fn a_failure_opens_the_key_again_if_that_is_wanted() {
    for reopen in [true, false] {
        let attempt = Attempted { reopen, ..attempt(Came::Never, 0) };
        let after = written(&conclude(&message(with_retries(3)), &attempt)).expect("written");
        assert_eq!(after.dedup_key.is_none(), reopen);
    }
}

#[test]
fn a_lapse_is_no_retry_and_too_many_are_the_end() {
    let asked = with_retries(1);
    for lapses in 0..LAPSES_MAX {
        let lapsed = Attempted { lapses, ..attempt(Came::Lapsed, lapses + 1) };
        let concluded = conclude(&message(asked.clone()), &lapsed);
        assert_eq!(wait(&concluded), Duration::ZERO, "at once");
        assert!(told(&concluded).is_empty(), "nobody knows what to tell");
        // After so many lapses the only retry is still there.
        let failed = Attempted { lapses, ..attempt(AGAIN, lapses) };
        let concluded = conclude(&message(asked.clone()), &failed);
        assert_eq!(wait(&concluded), Duration::from_secs(12));
        assert_eq!(line(&concluded).retried, 0);
        let failed_again = Attempted { lapses, ..attempt(AGAIN, lapses + 1) };
        let concluded = conclude(&message(asked.clone()), &failed_again);
        assert!(matches!(concluded.verdict, Verdict::Aborted { .. }));
        assert_eq!(last(&concluded).retried, 1);
    }
    let last = Attempted { lapses: LAPSES_MAX, ..attempt(Came::Lapsed, LAPSES_MAX) };
    let after = written(&conclude(&message(asked), &last)).expect("written");
    assert_eq!(after.state, State::Failed);
}

#[test]
fn what_was_cancelled_meanwhile_stays_cancelled() {
    let asked = Asked {
        callback: Some(Callback { url: "https://c.example/".into(), ..Callback::default() }),
        ..with_retries(3)
    };
    let changes = cancel(&message(asked), NOW).expect("it can be cancelled");
    let Some(Write::MessageUpdate(cancelled)) = changes.writes().first() else { panic!("written") };
    assert_eq!((cancelled.state, &cancelled.dedup_key), (State::Cancelled, &None));
    for (came, what) in [
        (Came::Delivered, Logged::Delivered),
        (AGAIN, Logged::Error),
        (Came::Never, Logged::Error),
        (Came::Lapsed, Logged::Lapsed),
    ] {
        let concluded = conclude(cancelled, &attempt(came, 0));
        assert_eq!(line(&concluded).what, what, "what came of it is on record");
        assert_eq!(concluded.changes.writes().len(), 1, "and nothing else happens");
        assert!(!matches!(concluded.verdict, Verdict::Retry { .. }));
        assert_eq!(concluded.verdict == Verdict::Succeeded, came == Came::Delivered);
    }
}

/// A worker that was thought dead answers for a message that waits at its gate again.
#[test]
fn what_waits_again_is_left_alone() {
    for state in [State::Queued, State::Throttled] {
        let waiting = Message { state, ..message(with_retries(3)) };
        for came in [Came::Delivered, AGAIN, Came::Never, Came::Lapsed] {
            let concluded = conclude(&waiting, &attempt(came, 0));
            assert!(matches!(concluded.verdict, Verdict::Retry { run_at: PARKED, .. }));
            assert_eq!(written(&concluded), None);
        }
    }
}

fn with_callbacks() -> Asked {
    let callback = |url: &str| Callback { url: url.into(), ..Callback::default() };
    Asked {
        callback: Some(Callback {
            method: Some(Method::Put),
            retries: Some(9),
            headers: Headers::from([("X-Own".into(), vec!["1".into()])]),
            ..callback("https://c.example/told")
        }),
        failure_callback: Some(callback("https://c.example/failed")),
        headers: Headers::from([("X-Sent".into(), vec!["a".into(), "b".into()])]),
        topic: Some("team".into()),
        endpoint: Some("first".into()),
        schedule: Some("s".into()),
        caller_ip: Some("192.0.2.7".into()),
        labels: vec!["l".into()],
        ..with_retries(1)
    }
}

#[test]
fn every_attempt_is_told() {
    let message = message(with_callbacks());
    for (came, failures) in [(AGAIN, 0), (Came::Delivered, 1), (Came::Delivered, 0)] {
        let concluded = conclude(&message, &attempt(came, failures));
        let told = told(&concluded);
        assert_eq!(told.len(), 1, "{came:?}");
        let (callback, report) = &told[0];
        assert_eq!(callback.asked.url, "https://c.example/told");
        assert_eq!((callback.asked.method, callback.asked.retries), (Method::Put, 9));
        assert_eq!(callback.asked.headers["X-Own"], ["1"]);
        assert_eq!(callback.asked.headers["Content-Type"], ["application/json"]);
        assert!(callback.asked.callback.is_none() && callback.asked.failure_callback.is_none());
        assert_eq!(callback.traceparent, message.traceparent, "one trace");
        let expected = json!({
            "status": 500, "header": {}, "body": BASE64_STANDARD.encode("oops"),
            "retried": failures, "maxRetries": 1, "sourceMessageId": public_id(message.id),
            "topicName": "team", "endpointName": "first", "url": "https://a.example/hook",
            "method": "POST", "sourceHeader": {"X-Sent": ["a", "b"]},
            "sourceBody": BASE64_STANDARD.encode("hello"),
            "notBefore": 1_700_000_000_000_i64, "createdAt": 1_700_000_000_000_i64,
            "scheduleId": "s", "callerIP": "192.0.2.7",
        });
        assert_eq!(report, &expected);
    }
}

#[test]
fn the_end_is_told_with_the_name_of_the_dead_letter() {
    let message = message(with_callbacks());
    let concluded = conclude(&message, &attempt(AGAIN, 1));
    let dlq_id = written(&concluded).and_then(|after| after.dlq_id).expect("a dead letter");
    let told = told(&concluded);
    let urls: Vec<&str> = told.iter().map(|(message, _)| message.asked.url.as_str()).collect();
    assert_eq!(urls, ["https://c.example/told", "https://c.example/failed"]);
    assert_ne!(told[0].0.id, told[1].0.id);
    assert_eq!((told[0].1.get("dlqId"), &told[1].1["dlqId"]), (None, &json!(dlq_id)));
    assert_eq!(told[1].0.asked.retries, 1, "as many as the original, if it does not say");
}

#[test]
fn a_callback_takes_the_place_of_its_original_in_the_queue() {
    let mut message = message(Asked { queue: Some("q".into()), ..with_callbacks() });
    assert_eq!(message.slot.as_deref(), Some("q"));
    for (callback, _) in told(&conclude(&message, &attempt(AGAIN, 1))) {
        assert_eq!((callback.slot.as_deref(), callback.state), (Some("q"), State::Ready));
        assert_eq!(callback.asked.queue, None, "it does not wait in it");
    }
    message.slot = None;
    for (callback, _) in told(&conclude(&message, &attempt(AGAIN, 1))) {
        assert_eq!(callback.slot, None);
    }
}
