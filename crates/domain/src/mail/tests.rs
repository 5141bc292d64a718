use super::*;
use serde_json::json;

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

pub(super) fn delivery() -> Delivery {
    Letter {
        id: Uuid::from_u128(7),
        to: "taro@example.com".into(),
        template: "t".into(),
        locale: Locale::Ja,
        data: json!({}),
        batch_id: None,
        key: None,
    }
    .delivery(NOW)
}

#[test]
fn transitions_are_those_of_the_document() {
    let mut lines = Vec::new();
    for state in Status::ALL {
        for event in Event::ALL {
            if let Ok(to) = next(state, event) {
                lines.push(format!("{} --{event:?}--> {}", state.as_str(), to.as_str()));
            }
        }
    }
    for state in batch::BatchStatus::ALL {
        for event in batch::BatchEvent::ALL {
            if let Ok(to) = batch::next(state, event) {
                lines.push(format!("{} --{event:?}--> {}", state.as_str(), to.as_str()));
            }
        }
    }
    let document = include_str!("../../../../docs/states/mail.md");
    let documented: Vec<&str> = document.lines().filter(|line| line.contains("-->")).collect();
    assert_eq!(lines, documented, "docs/states/mail.md and the machines differ");
}

#[test]
fn statuses_are_read_in_both_spellings() {
    for status in Status::ALL {
        assert_eq!(Status::parse(status.as_str()), Some(status));
        assert_eq!(Status::parse_public(status.public()), Some(status));
        assert_eq!(Status::parse_public(status.as_str()), Some(status));
    }
}

#[test]
fn a_letter_is_a_row_and_an_effect_of_the_same_name() {
    let letter = Letter {
        id: Uuid::from_u128(9),
        to: "a@example.com".into(),
        template: "t".into(),
        locale: Locale::En,
        data: json!({"x": 1}),
        batch_id: None,
        key: Some("k".into()),
    };
    let changes = enqueue(letter, NOW);
    let [Write::MailInsert(row), Write::Enqueue(effect)] = changes.writes() else {
        panic!("{changes:?}")
    };
    assert_eq!((row.status, row.effect_id), (Status::Queued, Some(row.id)));
    assert!(row.digest.is_some());
    assert_eq!((effect.id.0, &effect.lane, effect.kind.as_str()), (row.id, &Lane::MAIL, "mail"));
}

#[test]
fn each_life_has_an_effect_of_its_own() {
    let (fed, _) = feed(&delivery(), NOW, NOW);
    assert_eq!(fed.effect_id, Some(fed.id));
    let failed = Delivery { status: Status::Failed, ended_at: Some(NOW), ..fed };
    let opened = reopen(&failed, NOW).unwrap();
    assert_eq!((opened.status, opened.ended_at, opened.effect_id), (Status::Queued, None, None));
    let (again, _) = feed(&opened, NOW, NOW);
    assert!(again.effect_id.is_some() && again.effect_id != Some(again.id));
}

/// Whoever has it in hand belongs to the life before, and will not be heard.
#[test]
fn what_is_reopened_while_it_is_being_sent_may_have_arrived() {
    let (fed, _) = feed(&delivery(), NOW, NOW);
    let marked = Delivery { sending: Some(Sending { since: NOW, fence: 5 }), ..fed };
    let cancelled = cancel(&marked, NOW).unwrap();
    assert_eq!((cancelled.status, cancelled.sending), (Status::Cancelled, marked.sending));
    let opened = reopen(&cancelled, NOW).unwrap();
    assert_eq!((opened.sending, opened.possibly_duplicate), (None, true));
    assert_eq!(cancel(&opened, NOW).unwrap().status, Status::PossiblySent);
}

#[test]
fn what_may_have_arrived_is_not_cancelled_away() {
    let doubtful = Delivery { possibly_duplicate: true, ..delivery() };
    assert_eq!(cancel(&doubtful, NOW).unwrap().status, Status::PossiblySent);
    assert_eq!(cancel(&delivery(), NOW).unwrap().status, Status::Cancelled);
    let sent = Delivery { status: Status::Sent, ..delivery() };
    assert_eq!(cancel(&sent, NOW), None);
    assert_eq!(reopen(&sent, NOW), None);
}

#[test]
fn the_message_id_is_that_of_the_delivery() {
    assert_eq!(
        delivery().message_id("mail.example.com"),
        "00000000000000000000000000000007@mail.example.com"
    );
}
