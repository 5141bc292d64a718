//! Keys at the gateway: it remembers them for a day, and nobody counts on more.

use std::time::Duration;

use tashika_domain::payment::resolve::Resolution;
use tashika_domain::payment::{PaymentRules, Status};
use tashika_store::Dialect;
use tashika_testkit::database::TestDb;
use tashika_testkit::gateway::{Fault, Operation};
use tashika_testkit::on_both;

use crate::payments_cases::{CANNOT_ASK, is_with_a_person};
use crate::payments_support::{Town, VISA, rules};
use crate::support::KEY;

on_both!(
    a_key_is_not_used_past_its_time,
    a_key_that_was_never_used_is_not_used_past_its_time,
    a_refund_whose_answer_was_lost_is_found_and_not_sent_again,
);

/// Makes everything that was asked for a day older.
async fn a_day_passes(db: &TestDb) {
    let (day, time) = match db.dialect() {
        Dialect::Sqlite => ("86400000000", "0"),
        Dialect::Postgres => ("interval '1 day'", "now()"),
    };
    db.sql(&format!(
        "update payments set operation_asked_at = operation_asked_at - {day};
         update refunds set created_at = created_at - {day};
         update outbox set next_run_at = {time} where status = 'failed'"
    ))
    .await;
}

/// Nothing happens by itself for an hour: what is changed past the store is not written over.
fn patient() -> PaymentRules {
    let hour = Duration::from_secs(3600);
    PaymentRules { verify_interval: hour, retry_backoff: vec![hour; 3], ..rules() }
}

async fn a_key_is_not_used_past_its_time(db: TestDb) {
    use Operation::{Cancel, Capture, Refund};
    let town = Town::new(db).await;
    let shop = town.shop(patient());
    for operation in [Capture, Cancel, Refund] {
        let key = format!("{operation:?}");
        let id = match operation {
            Refund => shop.captured(&key).await.id,
            _ => shop.authorized(&key).await.id,
        };
        town.world.script(operation, [Fault::DropBefore]);
        match operation {
            Capture => shop.capture(id, "c", None).await.unwrap(),
            Cancel => shop.void(id, "v").await.unwrap(),
            _ => shop.refund(id, "r", None).await.unwrap(),
        };
        a_day_passes(&town.db).await;
        let payment = shop.given_up(id).await;
        is_with_a_person(&shop, &payment, CANNOT_ASK).await;
        let error = shop.alerted(id).await.labels["error"].clone();
        assert!(error.as_str().unwrap().starts_with("KEY_TOO_OLD"), "{error}");
        assert_eq!(town.world.calls_for(&id.to_string(), operation), 1, "{operation:?}");
        assert_eq!(
            shop.payments.resolve(id, Resolution::Charged, "n", "w").await.err().map(drop),
            None
        );
    }
    shop.stop().await;
}

/// Turned away for a day: nothing is in doubt, but the key must not be used any more either.
async fn a_key_that_was_never_used_is_not_used_past_its_time(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(patient());
    let id = shop.authorized(KEY).await.id;
    town.world.script(Operation::Capture, [Fault::rate_limited()]);
    town.world.script(Operation::Confirm, [Fault::rate_limited()]);
    assert_eq!(shop.capture(id, "c", None).await.unwrap().http_status, 202);
    let turned_away = shop.pay("k-2", VISA).await.id;
    a_day_passes(&town.db).await;
    let capture = shop.rest(id).await;
    assert_eq!(capture.status, Status::Authorized);
    assert_eq!(capture.failure.map(|r| r.code).as_deref(), Some("KEY_TOO_OLD"));
    assert_eq!(town.world.calls(Operation::Capture), 1);
    let authorization = shop.rest(turned_away).await;
    assert_eq!(authorization.status, Status::Failed);
    assert_eq!(town.world.calls_for(&turned_away.to_string(), Operation::Confirm), 1);
    town.agrees(&shop, turned_away).await;
    shop.stop().await;
}

/// It is found in the gateway's list by our own id, which is the same in every attempt.
async fn a_refund_whose_answer_was_lost_is_found_and_not_sent_again(db: TestDb) {
    let town = Town::new(db).await;
    let shop = town.shop(rules());
    let id = shop.captured(KEY).await.id;
    town.world.script(Operation::Refund, [Fault::ExecuteThenClose]);
    shop.refund(id, "r", Some(30)).await.unwrap();
    let payment = shop.rest(id).await;
    assert_eq!((payment.refunded_amount, payment.refunds.len()), (30, 1));
    assert_eq!(town.world.refunded(&id.to_string()), 30, "the customer has it once");
    assert_eq!(town.world.calls_for(&id.to_string(), Operation::Refund), 1);
    town.agrees(&shop, id).await;
    shop.stop().await;
}
