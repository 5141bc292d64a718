use super::*;

fn draft(asked: Asked) -> Draft {
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    Draft {
        id: Uuid::from_u128(7),
        asked: asked.into(),
        body: Arc::from(&b"hello"[..]),
        not_before: None,
        dedup_key: Some("id:k".into()),
        holds: None,
        traceparent: None,
        now,
        expires_at: now,
        begin: Begin::Due,
    }
}

fn run_at(changes: &Changes) -> Timestamp {
    let found = changes.writes().iter().find_map(|write| match write {
        Write::Enqueue(effect) => Some(effect.run_at),
        _ => None,
    });
    found.expect("an effect")
}

#[test]
fn transitions_are_those_of_the_document() {
    let mut lines = Vec::new();
    for state in State::ALL {
        for event in Event::ALL {
            if let Ok(to) = next(state, event) {
                lines.push(format!("{} --{event:?}--> {}", state.as_str(), to.as_str()));
            }
        }
    }
    let document = include_str!("../../../../docs/states/message.md");
    let documented: Vec<&str> = document.lines().filter(|line| line.contains("-->")).collect();
    assert_eq!(lines, documented, "docs/states/message.md and the machine differ");
}

#[test]
fn what_must_wait_is_parked() {
    let flow = Flow {
        key: "f".into(),
        parallelism: Some(1),
        rate: None,
        period: std::time::Duration::from_secs(1),
    };
    let plain = Asked::default();
    let queued = Asked { queue: Some("q".into()), flow: Some(flow.clone()), ..plain.clone() };
    let throttled = Asked { flow: Some(flow), ..plain.clone() };
    for (asked, state) in
        [(plain, State::Ready), (queued, State::Queued), (throttled, State::Throttled)]
    {
        let (message, changes) = accept(draft(asked));
        assert_eq!(message.state, state);
        assert_eq!(run_at(&changes) == PARKED, state != State::Ready);
    }
    let callback =
        Draft { holds: Some("q".into()), ..draft(Asked { queue: None, ..Asked::default() }) };
    let (message, _) = accept(callback);
    assert_eq!((message.state, message.slot.as_deref()), (State::Ready, Some("q")));
}

#[test]
fn a_delay_in_the_past_is_none() {
    let now = Timestamp::from_micros(1_700_000_000_000_000);
    let early = Draft { not_before: Some(Timestamp::from_micros(5)), ..draft(Asked::default()) };
    let (message, changes) = accept(early);
    assert_eq!((message.not_before, run_at(&changes)), (now, now));
}

#[test]
fn what_is_over_stays_over() {
    for state in State::ALL.into_iter().filter(|state| state.is_over()) {
        for event in Event::ALL {
            assert!(next(state, event).is_err(), "{state:?} {event:?}");
        }
    }
    let (message, _) = accept(draft(Asked::default()));
    let now = message.created_at;
    let over = Message { state: State::Delivered, ..message.clone() };
    assert_eq!(cancel(&over, now), None);
    assert!(cancel(&message, now).is_some());
}

#[test]
fn responses_keep_their_bytes_as_text() {
    let response = Response { status: 200, body: vec![0, 159, 255], ..Response::default() };
    let text = serde_json::to_string(&response).expect("json");
    assert_eq!(serde_json::from_str::<Response>(&text).expect("json"), response);
}
