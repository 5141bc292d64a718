//! The sandbox: every payment method, at every operation.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tashika_domain::payment::remote::{Remote, RemoteRefund};
use tashika_domain::{Outcome, Timestamp};
use tashika_providers::gateway::sandbox::{LATE_AFTER, SandboxBook, SandboxGateway};
use tashika_providers::gateway::{Charge, Gateway as _, RefundOrder};
use tashika_providers::reply::{BoxFuture, Reply};
use uuid::Uuid;

use crate::gateway::{NOW, PAYMENT, charge, refund_order, stands, told};

const TIMEOUT: Duration = Duration::from_millis(20);

/// A book in memory that can be told to fail.
#[derive(Default)]
pub struct MemoryBook {
    rows: Mutex<BTreeMap<Uuid, (i64, String, Timestamp)>>,
    unreadable: AtomicBool,
    unwritable: AtomicBool,
    /// How many saves find that somebody else was faster.
    races: AtomicU32,
}

impl SandboxBook for MemoryBook {
    fn load(&self, payment_id: Uuid) -> BoxFuture<'_, Result<Option<(i64, String)>, String>> {
        Box::pin(async move {
            // Others get their turn, as with a real database.
            tokio::task::yield_now().await;
            if self.unreadable.load(Ordering::Relaxed) {
                return Err("no database".to_owned());
            }
            let rows = self.rows.lock().unwrap();
            Ok(rows.get(&payment_id).map(|(version, state, _)| (*version, state.clone())))
        })
    }

    fn save<'a>(
        &'a self,
        payment_id: Uuid,
        expected: i64,
        state: &'a str,
        created_at: Timestamp,
    ) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            tokio::task::yield_now().await;
            if self.unwritable.load(Ordering::Relaxed) {
                return Err("the connection broke".to_owned());
            }
            let less = |races: u32| races.checked_sub(1);
            if self.races.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                return Ok(false);
            }
            let mut rows = self.rows.lock().unwrap();
            let version = rows.get(&payment_id).map_or(0, |row| row.0);
            if version == expected {
                rows.insert(payment_id, (version + 1, state.to_owned(), created_at));
            }
            Ok(version == expected)
        })
    }

    fn list(
        &self,
        from: Timestamp,
        until: Timestamp,
        after: Option<Uuid>,
        limit: i64,
    ) -> BoxFuture<'_, Result<Vec<(Uuid, String)>, String>> {
        Box::pin(async move {
            let rows = self.rows.lock().unwrap();
            let found = rows.iter().filter(|(id, (_, _, at))| {
                from <= *at && *at < until && after.is_none_or(|after| **id > after)
            });
            let limit = usize::try_from(limit).unwrap();
            Ok(found.take(limit).map(|(id, (_, state, _))| (*id, state.clone())).collect())
        })
    }
}

/// A sandbox with an empty book.
fn sandbox() -> (Arc<MemoryBook>, SandboxGateway) {
    let book = Arc::new(MemoryBook::default());
    (Arc::clone(&book), SandboxGateway::new(book, TIMEOUT))
}

fn later(charge: Charge<'_>) -> Charge<'_> {
    Charge { now: charge.now.plus(LATE_AFTER), ..charge }
}

fn given_back(reply: &Reply<RemoteRefund>) -> String {
    told(&reply.outcome, |refund| format!("{} {:?}", refund.amount, refund.state))
}

/// No answer takes as long as one waits for it; a sandbox that is quicker would be no sandbox.
fn honest_about_time(reply: &Reply<Remote>) -> bool {
    reply.rtt >= TIMEOUT || stands(reply) != "Lost TIMEOUT"
}

#[tokio::test]
async fn every_method_authorizes_in_its_own_way() {
    // Method; what is heard; where it stands; where it stands later; what a repeat hears.
    for (method, heard, now, then, again) in [
        ("ok", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED"),
        ("pm_card_visa", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED"),
        ("tok_visa", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED"),
        (
            "declined",
            "Refused CARD_DECLINED",
            "DECLINED CARD_DECLINED",
            "DECLINED CARD_DECLINED",
            "Refused CARD_DECLINED",
        ),
        (
            "sandbox_insufficient-funds",
            "Refused INSUFFICIENT_FUNDS",
            "DECLINED INSUFFICIENT_FUNDS",
            "DECLINED INSUFFICIENT_FUNDS",
            "Refused INSUFFICIENT_FUNDS",
        ),
        (
            "EXPIRED",
            "Refused EXPIRED_CARD",
            "DECLINED EXPIRED_CARD",
            "DECLINED EXPIRED_CARD",
            "Refused EXPIRED_CARD",
        ),
        ("charged_but_silent", "Lost TIMEOUT", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED"),
        ("lost_before_charge", "Lost TIMEOUT", "NOT_FOUND", "NOT_FOUND", "Lost TIMEOUT"),
        ("late_execution", "Lost TIMEOUT", "NOT_FOUND", "AUTHORIZED", "Lost TIMEOUT"),
        ("500_after_effect", "Lost UNKNOWN", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED"),
        ("unreachable", "Busy NETWORK_ERROR", "NOT_FOUND", "NOT_FOUND", "Busy NETWORK_ERROR"),
        (
            "requires_action",
            "PENDING ACTION_REQUIRED",
            "PENDING ACTION_REQUIRED",
            "PENDING ACTION_REQUIRED",
            "PENDING ACTION_REQUIRED",
        ),
        // The fault is at another operation.
        ("capture_declined", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED", "AUTHORIZED"),
        (
            "nonsense",
            "Refused INVALID_REQUEST",
            "NOT_FOUND",
            "NOT_FOUND",
            "Refused INVALID_REQUEST",
        ),
    ] {
        let (_, gateway) = sandbox();
        let payment = charge(None, method);
        assert_eq!(gateway.prepare(payment).await.outcome, Outcome::Done(None));
        let reply = gateway.authorize(payment).await;
        assert_eq!(stands(&reply), heard, "{method}");
        assert!(honest_about_time(&reply), "{method}");
        assert_eq!(reply.exchange.sent, method != "unreachable");
        assert_eq!(reply.exchange.request, "sandbox authorize");
        assert_eq!(stands(&gateway.status(payment).await), now, "{method}");
        assert_eq!(stands(&gateway.authorize(payment).await), again, "{method} again");
        assert_eq!(stands(&gateway.status(later(payment)).await), then, "{method} later");
    }
}

#[tokio::test]
async fn every_fault_can_be_at_a_capture() {
    for (fault, heard, now, then, again) in [
        ("declined", "Refused CARD_DECLINED", "AUTHORIZED", "AUTHORIZED", "Refused CARD_DECLINED"),
        ("charged_but_silent", "Lost TIMEOUT", "CAPTURED 3000", "CAPTURED 3000", "CAPTURED 3000"),
        ("lost_before_charge", "Lost TIMEOUT", "AUTHORIZED", "AUTHORIZED", "Lost TIMEOUT"),
        ("late_execution", "Lost TIMEOUT", "AUTHORIZED", "CAPTURED 3000", "Lost TIMEOUT"),
        ("500_after_effect", "Lost UNKNOWN", "CAPTURED 3000", "CAPTURED 3000", "CAPTURED 3000"),
        ("unreachable", "Busy NETWORK_ERROR", "AUTHORIZED", "AUTHORIZED", "Busy NETWORK_ERROR"),
    ] {
        let (_, gateway) = sandbox();
        let method = format!("capture_{fault}");
        let payment = charge(None, &method);
        assert_eq!(stands(&gateway.authorize(payment).await), "AUTHORIZED");
        let reply = gateway.capture(payment, 3000).await;
        assert_eq!(stands(&reply), heard, "{fault}");
        assert!(honest_about_time(&reply), "{fault}");
        assert_eq!(stands(&gateway.status(payment).await), now, "{fault}");
        assert_eq!(stands(&gateway.capture(payment, 3000).await), again, "{fault} again");
        assert_eq!(stands(&gateway.status(later(payment)).await), then, "{fault} later");
    }
}

#[tokio::test]
async fn every_fault_can_be_at_a_void() {
    for (fault, heard, now, then) in [
        ("declined", "Refused CARD_DECLINED", "AUTHORIZED", "AUTHORIZED"),
        ("charged_but_silent", "Lost TIMEOUT", "VOIDED", "VOIDED"),
        ("lost_before_charge", "Lost TIMEOUT", "AUTHORIZED", "AUTHORIZED"),
        ("late_execution", "Lost TIMEOUT", "AUTHORIZED", "VOIDED"),
        ("500_after_effect", "Lost UNKNOWN", "VOIDED", "VOIDED"),
        ("unreachable", "Busy NETWORK_ERROR", "AUTHORIZED", "AUTHORIZED"),
    ] {
        let (_, gateway) = sandbox();
        let method = format!("void_{fault}");
        let payment = charge(None, &method);
        assert_eq!(stands(&gateway.authorize(payment).await), "AUTHORIZED");
        assert_eq!(stands(&gateway.void(payment).await), heard, "{fault}");
        assert_eq!(stands(&gateway.status(payment).await), now, "{fault}");
        assert_eq!(stands(&gateway.status(later(payment)).await), then, "{fault} later");
    }
}

#[tokio::test]
async fn every_fault_can_be_at_a_refund() {
    let (none, made) = ("CAPTURED 3000", "CAPTURED 3000 1000:succeeded");
    for (fault, heard, now, then, again) in [
        ("declined", "Refused CARD_DECLINED", none, none, "Refused CARD_DECLINED"),
        ("charged_but_silent", "Lost TIMEOUT", made, made, "1000 Succeeded"),
        ("lost_before_charge", "Lost TIMEOUT", none, none, "Lost TIMEOUT"),
        ("late_execution", "Lost TIMEOUT", none, made, "Lost TIMEOUT"),
        ("500_after_effect", "Lost UNKNOWN", made, made, "1000 Succeeded"),
        ("unreachable", "Busy NETWORK_ERROR", none, none, "Busy NETWORK_ERROR"),
    ] {
        let (_, gateway) = sandbox();
        let method = format!("refund_{fault}");
        let payment = charge(None, &method);
        gateway.authorize(payment).await;
        assert_eq!(stands(&gateway.capture(payment, 3000).await), "CAPTURED 3000");
        let refund = refund_order(1000);
        assert_eq!(given_back(&gateway.refund(payment, refund).await), heard, "{fault}");
        assert_eq!(stands(&gateway.status(payment).await), now, "{fault}");
        assert_eq!(given_back(&gateway.refund(payment, refund).await), again, "{fault} again");
        assert_eq!(stands(&gateway.status(later(payment)).await), then, "{fault} later");
    }
}

#[tokio::test]
async fn a_fence_beats_an_execution_that_is_late_and_not_one_that_was() {
    let (_, gateway) = sandbox();
    let payment = charge(None, "late_execution");
    assert_eq!(stands(&gateway.authorize(payment).await), "Lost TIMEOUT");
    assert_eq!(stands(&gateway.fence(payment).await), "VOIDED");
    assert_eq!(stands(&gateway.status(later(payment)).await), "VOIDED");
    assert_eq!(stands(&gateway.authorize(later(payment)).await), "VOIDED", "and none after it");

    for method in ["late_execution", "charged_but_silent"] {
        let (_, gateway) = sandbox();
        let payment = charge(None, method);
        gateway.authorize(payment).await;
        assert_eq!(stands(&gateway.fence(later(payment)).await), "AUTHORIZED", "{method}");
    }
    for method in ["lost_before_charge", "ok", "nonsense"] {
        let (_, gateway) = sandbox();
        let payment = charge(None, method);
        assert_eq!(stands(&gateway.fence(payment).await), "VOIDED", "never seen");
        assert_eq!(stands(&gateway.fence(payment).await), "VOIDED", "twice");
        assert_eq!(stands(&gateway.authorize(payment).await), "VOIDED", "{method}");
    }
}

#[tokio::test]
async fn how_late_is_late_can_be_chosen() {
    let book = Arc::new(MemoryBook::default());
    let gateway = SandboxGateway::new(book, TIMEOUT).with_late_after(Duration::from_secs(2));
    let payment = charge(None, "late_execution");
    gateway.authorize(payment).await;
    let at = |seconds| Charge { now: NOW.plus(Duration::from_secs(seconds)), ..payment };
    assert_eq!(stands(&gateway.status(at(1)).await), "NOT_FOUND");
    assert_eq!(stands(&gateway.status(at(2)).await), "AUTHORIZED");
    assert_eq!(stands(&gateway.authorize(at(2)).await), "AUTHORIZED", "a repeat is answered then");
}

#[tokio::test]
async fn a_payment_lives_its_life_and_every_key_acts_once() {
    let (_, gateway) = sandbox();
    let payment = charge(None, "ok");
    assert_eq!(stands(&gateway.capture(payment, 1).await), "Refused INVALID_REQUEST");
    assert_eq!(stands(&gateway.void(payment).await), "Refused INVALID_REQUEST");
    assert_eq!(stands(&gateway.authorize(payment).await), "AUTHORIZED");
    for amount in [0, -1, 5001] {
        assert_eq!(stands(&gateway.capture(payment, amount).await), "Refused INVALID_REQUEST");
    }
    let early = gateway.refund(payment, refund_order(1)).await;
    assert_eq!(given_back(&early), "Refused INVALID_REQUEST");
    assert_eq!(stands(&gateway.capture(payment, 3000).await), "CAPTURED 3000");
    assert_eq!(stands(&gateway.capture(payment, 9).await), "CAPTURED 3000", "the first result");
    assert_eq!(stands(&gateway.void(payment).await), "CAPTURED 3000", "too late");

    let refund = |number, amount| RefundOrder {
        number,
        refund_id: Uuid::from_u128(number.into()),
        ..refund_order(amount)
    };
    assert_eq!(given_back(&gateway.refund(payment, refund(1, 2000)).await), "2000 Succeeded");
    assert_eq!(given_back(&gateway.refund(payment, refund(1, 2000)).await), "2000 Succeeded");
    let too_much = gateway.refund(payment, refund(2, 1001)).await;
    assert_eq!(given_back(&too_much), "Refused INVALID_REQUEST");
    assert_eq!(given_back(&gateway.refund(payment, refund(2, 1000)).await), "1000 Succeeded");
    let expected = "CAPTURED 3000 2000:succeeded 1000:succeeded";
    assert_eq!(stands(&gateway.status(payment).await), expected);

    let Outcome::Refused(reason) = gateway
        .authorize(Charge { payment_id: Uuid::from_u128(9), payment_method: "x", ..payment })
        .await
        .outcome
    else {
        panic!("an unknown method was taken");
    };
    for method in ["charged_but_silent", "500_after_effect", "refund_"] {
        assert!(reason.message.contains(method), "{}", reason.message);
    }
}

#[tokio::test]
async fn a_book_that_fails_is_busy_before_and_lost_after() {
    let (book, gateway) = sandbox();
    let payment = charge(None, "ok");
    book.unreadable.store(true, Ordering::Relaxed);
    for reply in [gateway.authorize(payment).await, gateway.status(payment).await] {
        assert_eq!(stands(&reply), "Busy NETWORK_ERROR");
    }
    assert!(!gateway.authorize(payment).await.exchange.sent);
    book.unreadable.store(false, Ordering::Relaxed);
    book.unwritable.store(true, Ordering::Relaxed);
    let reply = gateway.authorize(payment).await;
    assert_eq!(stands(&reply), "Lost UNKNOWN");
    assert!(reply.exchange.sent);
    book.unwritable.store(false, Ordering::Relaxed);

    book.races.store(3, Ordering::Relaxed);
    assert_eq!(stands(&gateway.authorize(payment).await), "AUTHORIZED", "after others were faster");
    book.races.store(1000, Ordering::Relaxed);
    assert_eq!(stands(&gateway.capture(payment, 1).await), "Busy NETWORK_ERROR");
    book.races.store(0, Ordering::Relaxed);
    assert_eq!(stands(&gateway.status(payment).await), "AUTHORIZED");
    // A record of another version of the program, or of nobody.
    book.rows.lock().unwrap().insert(PAYMENT, (1, "{}".into(), NOW));
    assert_eq!(stands(&gateway.status(payment).await), "Busy NETWORK_ERROR");
}

#[tokio::test]
async fn two_at_once_act_once() {
    let (_, gateway) = sandbox();
    let payment = charge(None, "ok");
    gateway.authorize(payment).await;
    gateway.capture(payment, 3000).await;
    let refund = refund_order(2000);
    let other = RefundOrder { number: 2, refund_id: Uuid::from_u128(2), ..refund };
    let (one, two) = tokio::join!(gateway.refund(payment, refund), gateway.refund(payment, other));
    let mut ends = [given_back(&one), given_back(&two)];
    ends.sort();
    assert_eq!(ends, ["2000 Succeeded", "Refused INVALID_REQUEST"]);
}

#[tokio::test]
async fn the_list_has_what_arrived_and_comes_in_pages() {
    let (_, gateway) = sandbox();
    for number in 0..205_u32 {
        let method = match number {
            0 => "lost_before_charge",
            1 => "late_execution",
            2 => "declined",
            _ => "ok",
        };
        let payment_id = Uuid::from_u128(number.into());
        gateway.authorize(Charge { payment_id, ..charge(None, method) }).await;
    }
    let until = NOW.plus(Duration::from_secs(1));
    let (mut after, mut sizes, mut all) = (None, Vec::new(), Vec::new());
    loop {
        let reply = gateway.list(NOW, until, after.as_deref()).await;
        let Outcome::Done(page) = reply.outcome else {
            panic!("{reply:?}");
        };
        sizes.push(page.items.len());
        all.extend(page.items);
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!(sizes, [100, 100, 4]);
    assert_eq!(all[0].payment_id, Some(Uuid::from_u128(1)), "what is late has arrived in the end");
    assert_eq!(all[0].remote.state.as_str(), "AUTHORIZED");
    assert_eq!(all[1].remote.state.as_str(), "DECLINED");
    assert_eq!((all[2].amount, all[2].currency.as_str(), all[2].created_at), (5000, "EUR", NOW));
    let Outcome::Done(page) = gateway.list(until, until, None).await.outcome else {
        panic!("no page");
    };
    assert!(page.items.is_empty() && page.next.is_none());
    let reply = gateway.list(NOW, until, Some("nonsense")).await;
    assert_eq!(told(&reply.outcome, |_| String::new()), "Refused INVALID_REQUEST");
}
