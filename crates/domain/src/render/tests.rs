use super::conclude::{At, Learned, RemoteRender, RemoteState, conclude, hear};
use super::person::{Resolution, cancelled, given_up, may_give_up, resolve, retry};
use super::*;
use crate::audit::Actor;
use serde_json::json;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn rules() -> RenderRules {
    RenderRules { copies: true, ..RenderRules::default() }
}

fn at(rules: &RenderRules) -> At<'_> {
    At { now: NOW, rules, via: "test" }
}

fn began() -> Render {
    let rules = rules();
    let order = RenderOrder {
        id: Uuid::from_u128(1),
        reservation_id: Uuid::from_u128(2),
        video_id: 42,
        traceparent: None,
        rules: &rules,
    };
    written(&start(order, NOW)).expect("a row")
}

/// The render that changes write.
fn written(changes: &Changes) -> Option<Render> {
    changes.writes().iter().find_map(|write| match write {
        Write::RenderInsert(render) | Write::RenderUpdate(render) => Some((**render).clone()),
        _ => None,
    })
}

fn effects(changes: &Changes) -> Vec<(&str, u64)> {
    let found = changes.writes().iter().filter_map(|write| match write {
        Write::Enqueue(effect) => Some((effect.kind.as_str(), effect.run_at.since(NOW).as_secs())),
        _ => None,
    });
    found.collect()
}

fn done(id: &str) -> Learned {
    let url = "https://cdn.example/v.mp4".to_owned();
    let state = RemoteState::Done { url, expires_at: Some(NOW) };
    Learned::Remote(RemoteRender { id: id.to_owned(), state })
}

fn working(id: &str) -> Learned {
    Learned::Remote(RemoteRender { id: id.to_owned(), state: RemoteState::Working })
}

fn broken() -> Learned {
    Learned::Failed(Reason::new("BROKEN", "it broke"))
}

fn after(render: &Render, learned: &Learned) -> Render {
    written(&conclude(render, learned, at(&rules()))).expect("a next version")
}

fn exhausted() -> Render {
    let mut render = began();
    for _ in 0..3 {
        render = after(&render, &broken());
    }
    render
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
    let document = include_str!("../../../../docs/states/render.md");
    let documented: Vec<&str> = document.lines().filter(|line| line.contains("-->")).collect();
    assert_eq!(lines, documented, "docs/states/render.md and the machine differ");
}

#[test]
fn a_render_that_goes_well_is_submitted_followed_and_copied() {
    let render = began();
    assert_eq!((render.status, render.attempts, render.step), (RenderStatus::Queued, 1, 1));
    let changes = conclude(&render, &working("r-1"), at(&rules()));
    assert_eq!(effects(&changes), [(KIND, 10)]);
    let render = written(&changes).unwrap();
    assert_eq!((render.status, render.step), (RenderStatus::Processing, 2));
    let again = conclude(&render, &working("r-1"), at(&rules()));
    assert!(again.is_empty(), "no news");
    let changes = conclude(&render, &done("r-1"), at(&rules()));
    assert_eq!(effects(&changes), [(COPY_KIND, 0)]);
    let render = written(&changes).unwrap();
    assert_eq!(render.status, RenderStatus::Done);
    for learned in [done("r-1"), broken(), working("r-2")] {
        assert!(conclude(&render, &learned, at(&rules())).is_empty(), "{learned:?}");
    }
}

#[test]
fn the_third_failure_is_the_last_and_starts_the_clock() {
    let mut render = began();
    for attempt in 1..=2 {
        let changes = conclude(&render, &broken(), at(&rules()));
        assert_eq!(effects(&changes), [(KIND, 30)]);
        render = written(&changes).unwrap();
        assert_eq!((render.status, render.attempts), (RenderStatus::Queued, attempt + 1));
    }
    let changes = conclude(&render, &broken(), at(&rules()));
    assert_eq!(effects(&changes), [(GIVE_UP_KIND, 86_400)]);
    let has = |wanted: fn(&Write) -> bool| changes.writes().iter().any(wanted);
    assert!(has(|write| matches!(write, Write::OpenCase(case) if case.kind == CASE_FAILED)));
    let render = written(&changes).unwrap();
    assert_eq!((render.state(), render.attempts), (State::Failed, 3));
    assert!(conclude(&render, &broken(), at(&rules())).is_empty());
}

#[test]
fn a_submission_that_nobody_answered_waits_for_a_callback_and_counts() {
    let lost = Learned::Unanswered(Reason::new("TIMEOUT", ""));
    let changes = conclude(&began(), &lost, at(&rules()));
    assert_eq!(effects(&changes), [(KIND, 3600)]);
    let doubtful = written(&changes).unwrap();
    assert!(doubtful.is_in_doubt());
    let remote = |state| RemoteRender { id: "r-9".into(), state };
    let failure = remote(RemoteState::Failed(Reason::new("X", "")));
    let heard = |attempt| written(&hear(&doubtful, &failure, attempt, at(&rules())));
    assert_eq!(heard(None), None, "nobody says which attempt it is");
    assert_eq!(heard(Some(7)), None, "not this attempt");
    assert_eq!(heard(Some(1)).unwrap().attempts, 2);
    let video = remote(RemoteState::Done { url: "https://a/b".into(), expires_at: None });
    let finished = written(&hear(&doubtful, &video, Some(1), at(&rules()))).unwrap();
    assert_eq!(
        (finished.status, finished.provider_id.as_deref()),
        (RenderStatus::Done, Some("r-9"))
    );
    // Nobody told: it counts, and the next attempt may still be overtaken by the first one's video.
    let second = after(&doubtful, &broken());
    assert_eq!((second.attempts, second.provider_id.clone()), (2, None));
    let finished = written(&hear(&second, &video, Some(1), at(&rules()))).unwrap();
    assert_eq!(finished.status, RenderStatus::Done);
}

#[test]
fn an_old_failure_does_not_end_a_new_attempt() {
    let render = after(&began(), &working("r-2"));
    let old = RemoteRender { id: "r-1".into(), state: RemoteState::Failed(Reason::new("X", "")) };
    assert!(hear(&render, &old, Some(1), at(&rules())).is_empty());
}

#[test]
fn people_may_have_it_tried_again_or_take_care_of_it() {
    let failed = exhausted();
    let changes = retry(&failed, Actor::operator("o"), &rules(), NOW).unwrap();
    assert_eq!(effects(&changes), [(KIND, 0)]);
    let retried = written(&changes).unwrap();
    assert_eq!((retried.status, retried.attempts, retried.allowed), (RenderStatus::Queued, 4, 6));
    assert!(retry(&retried, Actor::operator("o"), &rules(), NOW).unwrap().is_empty());

    let resolution = Resolution::parse(&json!({"note": "by hand"})).unwrap();
    let changes = resolve(&failed, &resolution, Actor::operator("o"), &rules(), NOW).unwrap();
    let resolved = written(&changes).unwrap();
    assert_eq!((resolved.status, resolved.output_url.clone()), (RenderStatus::Done, None));
    assert!(resolve(&resolved, &resolution, Actor::SYSTEM, &rules(), NOW).unwrap().is_empty());
    assert!(resolve(&began(), &resolution, Actor::SYSTEM, &rules(), NOW).is_err());
    assert!(retry(&resolved, Actor::SYSTEM, &rules(), NOW).is_err());
    for wrong in [
        json!({}),
        json!([]),
        json!({"note": " "}),
        json!({"note": "a", "url": "x"}),
        json!({"note": "a", "outputUrl": "ftp://x"}),
        json!({"note": "a", "outputUrl": "https://"}),
        json!({"note": "a", "outputUrl": "https://a b"}),
        json!({"note": "a", "outputUrl": 7}),
    ] {
        assert!(Resolution::parse(&wrong).is_err(), "{wrong}");
    }
}

#[test]
fn a_clock_ends_only_what_it_was_started_for() {
    let failed = exhausted();
    let clock = GiveUpPayload {
        render_id: failed.id,
        reservation_id: failed.reservation_id,
        attempts: failed.attempts,
    };
    assert!(may_give_up(&failed, &clock));
    let retried = written(&retry(&failed, Actor::SYSTEM, &rules(), NOW).unwrap()).unwrap();
    assert!(!may_give_up(&retried, &clock));
    let mut again = retried;
    for _ in 0..3 {
        again = after(&again, &broken());
    }
    assert_eq!(again.state(), State::Failed);
    assert!(!may_give_up(&again, &clock), "its own clock is another one");
    let closed = written(&given_up(&failed, NOW)).unwrap();
    assert!(!may_give_up(&closed, &clock));
}

#[test]
fn nothing_revives_what_is_over() {
    let given_up = written(&given_up(&exhausted(), NOW)).unwrap();
    assert_eq!(given_up.closed, Some((NOW, Why::GivenUp)));
    let cancelled_early = written(&cancelled(&after(&began(), &working("r-1")), NOW)).unwrap();
    assert_eq!(cancelled_early.status, RenderStatus::Failed);
    for over in [given_up, cancelled_early] {
        let changes = conclude(&over, &done("r-1"), at(&rules()));
        assert_eq!(written(&changes), None);
        let line = |write: &Write| matches!(write, Write::Audit(a) if a.action == "render.late");
        assert!(changes.writes().len() == 1 && changes.writes().iter().all(line));
        assert!(retry(&over, Actor::SYSTEM, &rules(), NOW).is_err());
        assert!(cancelled(&over, NOW).is_empty());
        assert!(person::given_up(&over, NOW).is_empty());
    }
    let done = after(&began(), &done("r-1"));
    assert!(cancelled(&done, NOW).is_empty(), "a video that is there stays there");
}

#[test]
fn a_video_that_comes_in_time_needs_nobody_any_more() {
    let changes = conclude(&exhausted(), &done("r-3"), at(&rules()));
    assert_eq!(written(&changes).unwrap().status, RenderStatus::Done);
    assert!(changes.writes().iter().any(|write| matches!(write, Write::ResolveCase(_))));
}
