//! `idempo_ledger`: what was asked under a key, and how it ended.

use tashika_domain::Write;
use tashika_domain::changes::LedgerTouch;
use tashika_domain::ledger::{
    Clearance, LedgerEntry, LedgerKey, LedgerStatus, NewLedgerEntry, Recall, before_sending, recall,
};
use tashika_store::{Key, Store};

use crate::support::*;

on_both!(
    an_accepted_entry_reads_back,
    a_key_is_accepted_once,
    scopes_keep_keys_apart,
    a_settled_entry_is_reusable_when_its_time_is_over,
    an_open_entry_is_never_reusable,
    settling_writes_the_answer,
    settling_creates_a_missing_entry,
    what_succeeded_stays,
    what_failed_may_be_settled_again,
    another_digest_is_not_touched,
    reopening_opens_what_failed_and_nothing_else,
    seen_only_moves_forward,
    entries_are_read_by_their_keys,
    pruning_takes_what_is_settled_and_over,
);

const TAKEN: Said = Said::Taken(Key::Ledger);

async fn entry(store: &Store, key: &str) -> Option<LedgerEntry> {
    store.ledger_entry(&ledger_key(key)).await.expect("the read succeeds")
}

async fn present(store: &Store, key: &str) -> LedgerEntry {
    entry(store, key).await.expect("the entry exists")
}

fn until(key: &str, status: LedgerStatus, expires: i64) -> Write {
    let mut end = ended(key, status, at(1));
    end.expires_at = at(expires);
    Write::LedgerSettle(end)
}

async fn an_accepted_entry_reads_back(db: Db) {
    let store = db.open().await;
    assert_eq!(entry(&store, "k").await, None);
    let mut new = accept("k");
    new.now = tashika_domain::Timestamp::from_micros(1_700_000_000_123_456);
    new.response = r#"{"symbol":"確か","qty":"0.10"}"#.into();
    done(&store, [Write::LedgerAccept(new.clone())]).await;
    let found = present(&store, "k").await;
    assert_eq!(json(&found.response), json(&new.response));
    assert_eq!(
        LedgerEntry { response: String::new(), ..found.clone() },
        LedgerEntry {
            key: new.key,
            request_digest: new.request_digest,
            result_digest: None,
            status: LedgerStatus::Accepted,
            http_status: 201,
            response: String::new(),
            first_seen_at: new.now,
            last_seen_at: new.now,
            expires_at: new.expires_at,
        }
    );
    assert_eq!(recall(Some(&found), "sha256:k", at(5)), Recall::Replay(&found));
    assert_eq!(recall(Some(&found), "sha256:other", at(5)), Recall::Conflict);
    assert_eq!(before_sending(Some(&found), "sha256:k"), Clearance::Send);
}

fn json(text: &str) -> serde_json::Value {
    serde_json::from_str(text).expect("JSON")
}

async fn a_key_is_accepted_once(db: Db) {
    let store = db.open().await;
    done(&store, [Write::LedgerAccept(accept("k"))]).await;
    let first = present(&store, "k").await;
    let mut again = accept("k");
    again.now = at(5);
    assert_eq!(commit(&store, [Write::LedgerAccept(again)]).await, TAKEN);
    assert_eq!(present(&store, "k").await, first);
}

async fn scopes_keep_keys_apart(db: Db) {
    let store = db.open().await;
    let payment = NewLedgerEntry { key: LedgerKey::new("payment", "k"), ..accept("k") };
    done(&store, [Write::LedgerAccept(accept("k")), Write::LedgerAccept(payment)]).await;
    done(&store, [until("k", LedgerStatus::Succeeded, 10)]).await;
    let payment = store.ledger_entry(&LedgerKey::new("payment", "k")).await.unwrap().unwrap();
    assert_eq!(payment.status, LedgerStatus::Accepted);
    assert_eq!(store.ledger_rows().await.unwrap(), 2);
}

async fn a_settled_entry_is_reusable_when_its_time_is_over(db: Db) {
    let store = db.open().await;
    for status in [LedgerStatus::Succeeded, LedgerStatus::Failed] {
        let key = status.as_str();
        done(&store, [Write::LedgerAccept(accept(key))]).await;
        done(&store, [until(key, status, 100)]).await;
        let mut again = accept(key);
        again.request_digest = "sha256:second".into();
        again.now = millis(100_000 - 1);
        assert_eq!(commit(&store, [Write::LedgerAccept(again.clone())]).await, TAKEN);
        // The same moment as in `LedgerEntry::is_expired`.
        again.now = at(100);
        assert!(present(&store, key).await.is_expired(again.now));
        done(&store, [Write::LedgerAccept(again)]).await;
        let found = present(&store, key).await;
        assert_eq!(found.status, LedgerStatus::Accepted);
        assert_eq!((found.first_seen_at, found.last_seen_at), (at(100), at(100)));
        assert_eq!((found.request_digest.as_str(), found.result_digest), ("sha256:second", None));
        assert_eq!((found.http_status, found.expires_at), (201, at(FOREVER)));
    }
}

async fn an_open_entry_is_never_reusable(db: Db) {
    let store = db.open().await;
    let mut first = accept("k");
    first.expires_at = at(1);
    done(&store, [Write::LedgerAccept(first)]).await;
    let mut again = accept("k");
    again.now = at(FOREVER);
    assert_eq!(commit(&store, [Write::LedgerAccept(again)]).await, TAKEN);
    assert_eq!(store.prune_ledger(at(FOREVER), 10).await.unwrap(), 0);
}

async fn settling_writes_the_answer(db: Db) {
    let store = db.open().await;
    done(&store, [Write::LedgerAccept(accept("k"))]).await;
    done(&store, [until("k", LedgerStatus::Succeeded, 500)]).await;
    let found = present(&store, "k").await;
    assert_eq!((found.status, found.http_status), (LedgerStatus::Succeeded, 200));
    assert_eq!(json(&found.response), json(r#"{"status":"filled"}"#));
    assert_eq!(found.result_digest.as_deref(), Some("sha256:result"));
    assert_eq!((found.first_seen_at, found.last_seen_at), (at(0), at(1)));
    assert_eq!(found.expires_at, at(500));
    assert_eq!(before_sending(Some(&found), "sha256:k"), Clearance::AlreadySucceeded);
}

async fn settling_creates_a_missing_entry(db: Db) {
    let store = db.open().await;
    done(&store, [until("k", LedgerStatus::Failed, 500)]).await;
    let found = present(&store, "k").await;
    assert_eq!((found.status, found.first_seen_at), (LedgerStatus::Failed, at(1)));
}

async fn what_succeeded_stays(db: Db) {
    let store = db.open().await;
    done(&store, [until("k", LedgerStatus::Succeeded, 5)]).await;
    let first = present(&store, "k").await;
    for status in [LedgerStatus::Succeeded, LedgerStatus::Failed] {
        let mut again = ended("k", status, at(100));
        again.http_status = 500;
        assert_eq!(commit(&store, [Write::LedgerSettle(again)]).await, TAKEN);
    }
    assert_eq!(present(&store, "k").await, first);
}

async fn what_failed_may_be_settled_again(db: Db) {
    let store = db.open().await;
    done(&store, [until("k", LedgerStatus::Failed, 5)]).await;
    done(&store, [until("k", LedgerStatus::Failed, 6)]).await;
    done(&store, [until("k", LedgerStatus::Succeeded, 7)]).await;
    let found = present(&store, "k").await;
    assert_eq!((found.status, found.expires_at), (LedgerStatus::Succeeded, at(7)));
}

async fn another_digest_is_not_touched(db: Db) {
    let store = db.open().await;
    done(&store, [Write::LedgerAccept(accept("open"))]).await;
    done(&store, [until("failed", LedgerStatus::Failed, 5)]).await;
    for key in ["open", "failed"] {
        let first = present(&store, key).await;
        let mut other = ended(key, LedgerStatus::Succeeded, at(100));
        other.request_digest = "sha256:other".into();
        assert_eq!(commit(&store, [Write::LedgerSettle(other)]).await, TAKEN);
        assert_eq!(present(&store, key).await, first);
        assert_eq!(before_sending(Some(&first), "sha256:other"), Clearance::Conflict);
    }
}

async fn reopening_opens_what_failed_and_nothing_else(db: Db) {
    let store = db.open().await;
    done(&store, [until("failed", LedgerStatus::Failed, 5)]).await;
    done(&store, [until("succeeded", LedgerStatus::Succeeded, 5)]).await;
    done(&store, [Write::LedgerAccept(accept("accepted"))]).await;
    let untouched = [present(&store, "succeeded").await, present(&store, "accepted").await];
    for key in ["failed", "succeeded", "accepted", "missing"] {
        let touch = LedgerTouch { key: ledger_key(key), now: at(9) };
        done(&store, [Write::LedgerReopen(touch)]).await;
    }
    let opened = present(&store, "failed").await;
    assert_eq!((opened.status, opened.last_seen_at), (LedgerStatus::Accepted, at(9)));
    assert_eq!([present(&store, "succeeded").await, present(&store, "accepted").await], untouched);
    assert_eq!(entry(&store, "missing").await, None);
}

async fn seen_only_moves_forward(db: Db) {
    let store = db.open().await;
    done(&store, [Write::LedgerAccept(accept("k"))]).await;
    for (now, expected) in [(5, 5), (3, 5), (7, 7)] {
        let touch = |key| Write::LedgerSeen(LedgerTouch { key: ledger_key(key), now: at(now) });
        done(&store, [touch("k"), touch("missing")]).await;
        assert_eq!(present(&store, "k").await.last_seen_at, at(expected));
    }
    assert_eq!(present(&store, "k").await.first_seen_at, at(0));
    assert_eq!(entry(&store, "missing").await, None);
}

async fn entries_are_read_by_their_keys(db: Db) {
    let store = db.open().await;
    let awkward = ["plain", "with \"quotes\"", "with, comma", "with 'tick'", "確か", "a\\b"];
    done(&store, awkward.map(|key| Write::LedgerAccept(accept(key)))).await;
    let asked = awkward.iter().copied().chain(["missing"]).map(ToOwned::to_owned).collect();
    let mut found: Vec<String> = store
        .ledger_entries("order", asked)
        .await
        .unwrap()
        .into_iter()
        .map(|e| e.key.key)
        .collect();
    found.sort();
    let mut expected = awkward;
    expected.sort_unstable();
    assert_eq!(found, expected);
    assert_eq!(store.ledger_entries("order", vec![]).await.unwrap(), []);
    assert_eq!(store.ledger_entries("payment", vec!["plain".into()]).await.unwrap(), []);
    for key in awkward {
        assert_eq!(present(&store, key).await.key, ledger_key(key));
    }
}

async fn pruning_takes_what_is_settled_and_over(db: Db) {
    let store = db.open().await;
    let mut open = accept("open");
    open.expires_at = at(1);
    done(&store, [Write::LedgerAccept(open)]).await;
    for n in 0..5 {
        let status = if n % 2 == 0 { LedgerStatus::Succeeded } else { LedgerStatus::Failed };
        done(&store, [until(&format!("k{n}"), status, 100 + n)]).await;
    }
    assert_eq!(store.prune_ledger(at(99), 10).await.unwrap(), 0);
    assert_eq!(store.prune_ledger(at(103), 3).await.unwrap(), 3, "the limit");
    assert_eq!(entry(&store, "k2").await, None, "the oldest go first");
    assert!(entry(&store, "k3").await.is_some());
    assert_eq!(store.prune_ledger(at(103), 3).await.unwrap(), 1, "up to the moment itself");
    assert_eq!(store.prune_ledger(at(103), 3).await.unwrap(), 0);
    assert_eq!(store.ledger_rows().await.unwrap(), 2, "the open one, and the one to come");
}
