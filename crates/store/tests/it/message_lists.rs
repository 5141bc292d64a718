//! Lists of messages: filters, pages, who waits where, and what is forgotten.

use tashika_domain::message::asked::{Asked, Flow};
use tashika_domain::message::{Draft, LogLine, Logged, Message, State};
use tashika_domain::{Timestamp, Write};
use tashika_store::{MessageFilter, Order, Store};
use uuid::Uuid;

use crate::message_rig::*;
use crate::support::*;

on_both!(
    every_field_filters,
    lists_are_or_and_fields_are_and,
    labels_are_exact,
    messages_of_our_own_are_spared_unless_they_are_named,
    dead_letters_are_listed_by_when_they_died,
    a_status_filters_dead_letters,
    pages_follow_each_other_in_both_orders,
    the_log_is_filtered_by_its_messages,
    the_last_attempt_of_a_message_stands_among_the_lines,
    who_waits_comes_in_order_and_in_time,
    gates_with_somebody_waiting_are_found,
    places_in_queues_and_flows_are_counted,
    pruning_spares_dead_letters_and_what_is_not_over,
);

/// Two messages that differ in everything a list can ask about.
async fn two(store: &Store) -> [Message; 2] {
    let one = accepted(store, draft(1, asked())).await;
    let flow = Flow { key: "K/1".into(), ..flow() };
    let other = Asked {
        url: "https://b.example/".into(),
        topic: Some("Team".into()),
        queue: Some("Q".into()),
        schedule: Some("S".into()),
        caller_ip: None,
        labels: vec!["three".into()],
        flow: Some(flow),
        ..asked()
    };
    let other = accepted(store, Draft { now: at(10), ..draft(2, other) }).await;
    let other = dead(&other, 20, 500);
    assert_eq!(update(store, &other).await, Said::Done);
    [one, other]
}

async fn messages_of_our_own_are_spared_unless_they_are_named(db: Db) {
    let store = db.open().await;
    let theirs = accepted(&store, draft(1, asked())).await;
    let url = "worker:mailer".to_owned();
    let own = Asked { url: url.clone(), labels: vec!["webhook".into()], ..asked() };
    let own = accepted(&store, draft(2, own)).await;
    let all = MessageFilter { spare_own: true, ..MessageFilter::default() };
    assert_eq!(list(&store, &all).await, [theirs.id]);
    for named in [
        MessageFilter { ids: vec![own.id], ..all.clone() },
        MessageFilter { urls: vec![url], ..all.clone() },
        MessageFilter { labels: vec!["webhook".into()], ..all.clone() },
    ] {
        assert_eq!(list(&store, &named).await, [own.id]);
    }
    assert_eq!(list(&store, &MessageFilter::default()).await.len(), 2);
}

async fn every_field_filters(db: Db) {
    let store = db.open().await;
    let [one, other] = two(&store).await;
    let text = |text: &str| vec![text.to_owned()];
    let all = MessageFilter::default;
    let of_one = [
        MessageFilter { ids: vec![one.id], ..all() },
        MessageFilter { states: vec![State::Queued], ..all() },
        MessageFilter { urls: text("https://User@A.example:8443/Hook/x?q=%20&q=2"), ..all() },
        MessageFilter { hosts: text("a.example:8443"), ..all() },
        MessageFilter { paths: text("/Hook/x"), ..all() },
        MessageFilter { topics: text("team"), ..all() },
        MessageFilter { queues: text("q"), ..all() },
        MessageFilter { schedules: text("s"), ..all() },
        MessageFilter { labels: text("one"), ..all() },
        MessageFilter { flow_keys: text("k/1"), ..all() },
        MessageFilter { caller_ips: text("192.0.2.7"), ..all() },
        MessageFilter { to: Some(millis(1)), ..all() },
    ];
    for filter in of_one {
        assert_eq!(list(&store, &filter).await, [one.id], "{filter:?}");
    }
    let of_other = [
        MessageFilter { states: vec![State::Failed], ..all() },
        MessageFilter { paths: text("/"), ..all() },
        MessageFilter { dlq_ids: vec![other.dlq_id.clone().unwrap()], ..all() },
        MessageFilter { response_statuses: text("500"), ..all() },
        MessageFilter { dead: true, ..all() },
        MessageFilter { from: Some(millis(2)), ..all() },
        MessageFilter { from: Some(at(10)), to: Some(at(10)), ..all() },
    ];
    for filter in of_other {
        assert_eq!(list(&store, &filter).await, [other.id], "{filter:?}");
    }
    let of_nobody = [
        MessageFilter { hosts: text("A.example:8443"), ..all() },
        MessageFilter { queues: text("%"), ..all() },
        MessageFilter { urls: text("https://b.example"), ..all() },
        MessageFilter { from: Some(at(11)), ..all() },
        MessageFilter { response_statuses: text("50"), ..all() },
    ];
    for filter in of_nobody {
        assert!(list(&store, &filter).await.is_empty(), "{filter:?}");
    }
}

async fn lists_are_or_and_fields_are_and(db: Db) {
    let store = db.open().await;
    let [one, other] = two(&store).await;
    let both = |list: &[&str]| list.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
    let or = MessageFilter { queues: both(&["q", "Q", "none"]), ..MessageFilter::default() };
    assert_eq!(list(&store, &or).await, [other.id, one.id], "the newest first");
    let and = MessageFilter { labels: both(&["one", "three"]), topics: both(&["team"]), ..or };
    assert_eq!(list(&store, &and).await, [one.id]);
    let nobody = MessageFilter { states: vec![State::Failed], ..and };
    assert!(list(&store, &nobody).await.is_empty());
}

async fn labels_are_exact(db: Db) {
    let store = db.open().await;
    let [one, _] = two(&store).await;
    for (label, found) in [
        ("one", true),
        ("Two, \"quoted\" %_", true),
        ("One", false),
        ("on", false),
        ("two, \"quoted\" %_", false),
        ("%", false),
        ("", false),
    ] {
        let filter = MessageFilter { labels: vec![label.to_owned()], ..MessageFilter::default() };
        assert_eq!(list(&store, &filter).await.contains(&one.id), found, "{label:?}");
    }
}

async fn dead_letters_are_listed_by_when_they_died(db: Db) {
    let store = db.open().await;
    let [one, other] = two(&store).await;
    let first = dead(&one, 30, 0);
    assert_eq!(update(&store, &first).await, Said::Done);
    assert_eq!(store.dead_letters().await.unwrap(), (2, Some(at(20))));
    let died = |from, to| MessageFilter {
        dead: true,
        from: Some(at(from)),
        to: Some(at(to)),
        ..MessageFilter::default()
    };
    assert_eq!(list(&store, &died(20, 30)).await.len(), 2);
    assert_eq!(list(&store, &died(20, 29)).await, [other.id]);
    assert_eq!(list(&store, &died(21, 30)).await, [one.id]);
    let buried = Message { dlq_id: None, version: first.version + 1, ..first };
    assert_eq!(update(&store, &buried).await, Said::Done);
    assert_eq!(list(&store, &died(0, 99)).await, [other.id]);
}

async fn a_status_filters_dead_letters(db: Db) {
    let store = db.open().await;
    for (number, status) in [(1, 0), (2, 404), (3, 500), (4, 503)] {
        let (message, changes) = plain(number);
        store.commit(changes).await.unwrap();
        assert_eq!(update(&store, &dead(&message, 5, status)).await, Said::Done);
    }
    for (statuses, count) in [(vec!["0"], 1), (vec!["404", "503", "7"], 2), (vec!["40"], 0)] {
        let response_statuses = statuses.iter().map(|text| (*text).to_owned()).collect();
        let filter = MessageFilter { response_statuses, dead: true, ..MessageFilter::default() };
        assert_eq!(list(&store, &filter).await.len(), count, "{statuses:?}");
    }
}

async fn pages_follow_each_other_in_both_orders(db: Db) {
    let store = db.open().await;
    for number in 1..=10 {
        store.commit(plain(number).1).await.unwrap();
    }
    for order in [Order::NewestFirst, Order::OldestFirst] {
        let mut seen: Vec<Uuid> = Vec::new();
        loop {
            let after = seen.last().copied();
            let filter = MessageFilter { after, order, ..MessageFilter::default() };
            let page = store.messages(&filter, 3).await.unwrap();
            if page.is_empty() {
                break;
            }
            seen.extend(page.iter().map(|message| message.id));
        }
        let mut expected: Vec<Uuid> = (1..=10).map(|number| id(number).0).collect();
        if order == Order::NewestFirst {
            expected.reverse();
        }
        assert_eq!(seen, expected, "{order:?}");
    }
}

async fn the_log_is_filtered_by_its_messages(db: Db) {
    let store = db.open().await;
    let [one, other] = two(&store).await;
    for (number, message) in [(10, one.id), (11, other.id), (12, one.id), (13, id(99).0)] {
        done(&store, [Write::MessageLog(Box::new(line(number, message)))]).await;
    }
    let numbers = |lines: Vec<LogLine>| lines.iter().map(|line| line.id).collect::<Vec<_>>();
    let all = MessageFilter::default;
    for (filter, expected) in [
        (MessageFilter { queues: vec!["q".into()], ..all() }, vec![12, 10]),
        (MessageFilter { dead: true, ..all() }, vec![11]),
        (MessageFilter { from: Some(millis(11)), ..all() }, vec![12, 11]),
        // The twelfth began by then, and ended later.
        (
            MessageFilter { to: Some(millis(11)), order: Order::OldestFirst, ..all() },
            vec![10, 11, 12],
        ),
        (MessageFilter { to: Some(millis(10)), ..all() }, vec![11, 10]),
        (MessageFilter { after: Some(id(12).0), ..all() }, vec![11, 10]),
    ] {
        let found = numbers(store.message_log(&filter, 10).await.unwrap());
        let expected: Vec<Uuid> = expected.into_iter().map(|number| id(number).0).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    assert_eq!(store.message_log(&all(), 1).await.unwrap().len(), 1);
}

/// Messages that the attempts 14, 12 and 15 have ended, and the lines 10, 11 and 13. The third message ended when
/// each attempt still had a line.
async fn log_with_last_attempts(store: &Store) -> [Message; 3] {
    let one = accepted(store, draft(1, asked())).await;
    let [other, old] = [plain(2), plain(3)];
    for (_, changes) in [&other, &old] {
        store.commit(changes.clone()).await.unwrap();
    }
    let [other, old] = [other.0, old.0];
    for (number, message) in [(10, one.id), (11, other.id), (13, one.id)] {
        done(store, [Write::MessageLog(Box::new(line(number, message)))]).await;
    }
    let end = LogLine { what: Logged::Delivered, ..line(15, old.id) };
    done(store, [Write::MessageLog(Box::new(end))]).await;
    let failed = Message { dlq_id: Some("1-1".into()), ..tried(&other, State::Failed, 12) };
    for ended in [over(&old, State::Delivered, 15), failed, tried(&one, State::Delivered, 14)] {
        assert_eq!(update(store, &ended).await, Said::Done);
    }
    [one, other, old]
}

async fn the_last_attempt_of_a_message_stands_among_the_lines(db: Db) {
    let store = db.open().await;
    let [one, other, old] = log_with_last_attempts(&store).await;
    let all = MessageFilter::default;
    let oldest = || MessageFilter { order: Order::OldestFirst, ..all() };
    for (filter, limit, expected) in [
        (all(), 10, vec![15, 14, 13, 12, 11, 10]),
        (oldest(), 10, vec![10, 11, 12, 13, 14, 15]),
        (all(), 3, vec![15, 14, 13]),
        (oldest(), 4, vec![10, 11, 12, 13]),
        (MessageFilter { after: Some(id(13).0), ..all() }, 2, vec![12, 11]),
        (MessageFilter { after: Some(id(12).0), ..oldest() }, 2, vec![13, 14]),
        (MessageFilter { since: Some(id(12).0), ..all() }, 10, vec![15, 14, 13, 12]),
        (MessageFilter { ids: vec![one.id], ..all() }, 10, vec![14, 13, 10]),
        (MessageFilter { ids: vec![other.id, old.id], ..all() }, 10, vec![15, 12, 11]),
        (MessageFilter { dead: true, ..all() }, 10, vec![12, 11]),
        (MessageFilter { logged: vec![Logged::Delivered], ..all() }, 10, vec![15, 14]),
        (MessageFilter { logged: vec![Logged::Failed], ..all() }, 10, vec![12]),
        (MessageFilter { logged: vec![Logged::Error], ..all() }, 10, vec![13, 11, 10]),
        (MessageFilter { from: Some(millis(14)), ..all() }, 10, vec![15, 14]),
        (MessageFilter { to: Some(millis(11)), ..all() }, 10, vec![12, 11, 10]),
    ] {
        let found = store.message_log(&filter, limit).await.unwrap();
        let found: Vec<Uuid> = found.iter().map(|line| line.id).collect();
        let expected: Vec<Uuid> = expected.into_iter().map(|number| id(number).0).collect();
        assert_eq!(found, expected, "{filter:?}");
    }
    let found = store.message_log(&MessageFilter { after: Some(id(15).0), ..all() }, 1).await;
    let told = LogLine { what: Logged::Delivered, next_at: None, ..line(14, one.id) };
    assert_eq!(found.unwrap(), [told], "all that a line tells");
}

fn queued(number: u64, queue: &str, not_before: Timestamp) -> Draft {
    let asked = Asked { queue: Some(queue.into()), ..Asked::default() };
    Draft { not_before: Some(not_before), ..draft(number, asked) }
}

async fn who_waits_comes_in_order_and_in_time(db: Db) {
    let store = db.open().await;
    // Accepted in another order than due.
    for (number, second) in [(1, 30), (2, 10), (3, 20), (4, 10), (5, 99)] {
        accepted(&store, queued(number, "q", at(second))).await;
    }
    accepted(&store, queued(6, "other", at(10))).await;
    let numbers = |found: Vec<Message>| found.iter().map(|m| m.id).collect::<Vec<_>>();
    let expected = |list: &[u64]| list.iter().map(|n| id(*n).0).collect::<Vec<_>>();
    let found = store.queued("q", at(30), 10).await.unwrap();
    assert_eq!(numbers(found), expected(&[2, 4, 3, 1]));
    assert_eq!(numbers(store.queued("q", at(30), 2).await.unwrap()), expected(&[2, 4]));
    assert_eq!(numbers(store.queued("q", at(9), 10).await.unwrap()), expected(&[]));
    assert_eq!(store.waiting_in_queue("q").await.unwrap(), 5, "with those who are delayed");
    for (number, second) in [(11, 30), (12, 10)] {
        let asked = Asked { flow: Some(flow()), ..Asked::default() };
        accepted(&store, Draft { not_before: Some(at(second)), ..draft(number, asked) }).await;
    }
    let found = store.throttled("k/1", at(30), 10).await.unwrap();
    assert_eq!(numbers(found), expected(&[12, 11]));
    assert_eq!(store.waiting_in_flow("k/1").await.unwrap(), 2);
}

async fn gates_with_somebody_waiting_are_found(db: Db) {
    let store = db.open().await;
    assert!(store.queues_waiting(at(9)).await.unwrap().is_empty());
    let names = ["a", "A", "b-1", "b.1", "b_1", "Ab", "zz"];
    for (number, name) in (1..).zip(names) {
        for copy in 0..3 {
            accepted(&store, queued(number * 10 + copy, name, at(5))).await;
        }
    }
    let late = accepted(&store, queued(900, "late", at(50))).await;
    let (_, changes) = plain(901);
    store.commit(changes).await.unwrap();
    let sorted = |mut names: Vec<String>| {
        names.sort();
        names
    };
    let mut expected: Vec<String> = names.iter().map(|name| (*name).to_owned()).collect();
    expected.sort();
    assert_eq!(sorted(store.queues_waiting(at(5)).await.unwrap()), expected);
    assert!(store.queues_waiting(at(4)).await.unwrap().is_empty());
    assert!(store.flows_waiting(at(5)).await.unwrap().is_empty());
    assert_eq!(update(&store, &over(&late, State::Cancelled, 60)).await, Said::Done);
    assert_eq!(sorted(store.queues_waiting(at(99)).await.unwrap()), expected);
    for (number, key) in (1000..).zip(["k", "k2", "確"]) {
        let flow = Flow { key: key.into(), ..flow() };
        accepted(&store, draft(number, Asked { flow: Some(flow), ..Asked::default() })).await;
    }
    assert_eq!(sorted(store.flows_waiting(at(5)).await.unwrap()), ["k", "k2", "確"]);
}

async fn places_in_queues_and_flows_are_counted(db: Db) {
    let store = db.open().await;
    let both = Asked { queue: Some("q".into()), flow: Some(flow()), ..Asked::default() };
    for (number, state) in (1..).zip(State::ALL) {
        let message = accepted(&store, draft(number, both.clone())).await;
        let after = match state {
            State::Queued => continue,
            state if state.is_over() => over(&message, state, 5),
            state => Message { state, version: 2, ..message },
        };
        assert_eq!(update(&store, &after).await, Said::Done);
    }
    // A callback goes with the place of its original.
    let callback = Draft { holds: Some("q".into()), ..draft(20, Asked::default()) };
    accepted(&store, callback).await;
    assert_eq!(store.active_in_queue("q").await.unwrap(), 3, "throttled, ready, the callback");
    assert_eq!(store.active_in_flow("k/1").await.unwrap(), 1);
    assert_eq!(store.waiting_in_queue("q").await.unwrap(), 1);
    assert_eq!(store.waiting_in_flow("k/1").await.unwrap(), 1);
    assert_eq!(store.active_in_queue("none").await.unwrap(), 0);
}

async fn pruning_spares_dead_letters_and_what_is_not_over(db: Db) {
    let store = db.open().await;
    let states = [
        State::Queued,
        State::Throttled,
        State::Ready,
        State::Delivered,
        State::Cancelled,
        State::Failed,
    ];
    let both = Asked { queue: Some("q".into()), flow: Some(flow()), ..Asked::default() };
    for (number, state) in (1..).zip(states) {
        let message = accepted(&store, draft(number, both.clone())).await;
        let after = match state {
            State::Failed => dead(&message, 5, 500),
            state if state.is_over() => over(&message, state, 5),
            state => Message { state, version: 2, ..message.clone() },
        };
        assert_eq!(update(&store, &after).await, Said::Done);
        done(&store, [Write::MessageLog(Box::new(line(100 + number, message.id)))]).await;
    }
    let (late, changes) = plain(7);
    store.commit(changes).await.unwrap();
    assert_eq!(update(&store, &over(&late, State::Delivered, 50)).await, Said::Done);
    assert_eq!(store.prune_messages(at(5), 100).await.unwrap(), 0, "not yet");
    assert_eq!(store.prune_messages(at(20), 1).await.unwrap(), 1, "no more than asked for");
    assert_eq!(store.prune_messages(at(20), 100).await.unwrap(), 1);
    assert_eq!(store.prune_messages(at(20), 100).await.unwrap(), 0);
    let left = list(&store, &MessageFilter::default()).await;
    let expected: Vec<Uuid> = [7, 6, 3, 2, 1].map(|number| id(number).0).into();
    assert_eq!(left, expected);
    assert_eq!(store.prune_message_log(at(20), 100).await.unwrap(), 2, "lines of who is gone");
    assert_eq!(store.message_log(&MessageFilter::default(), 100).await.unwrap().len(), 4);
}
