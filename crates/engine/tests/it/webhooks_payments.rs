//! Webhooks about payments: they make us ask the gateway, and what it says then is taken over.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::outcome::Outcome;
use tashika_domain::payment::{self, Payment};
use tashika_domain::webhook::{KIND, Status};
use tashika_domain::{LanePolicy, Status as EffectStatus};
use tashika_engine::commands::payment::{Caller, Payments};
use tashika_engine::{
    BoxFuture, Clock, Ending, Handler, Job, Settled, Till, Tried, WebhookHandler,
};
use tashika_providers::gateway::Charge;
use tashika_store::StoreError;
use tashika_testkit::database::TestDb;
use tashika_testkit::on_both;
use uuid::Uuid;

use crate::support::{patience, policy, stop};
use crate::webhook_rig::{Rig, told_about};

on_both!(
    a_payment_event_makes_tashika_ask_the_gateway,
    an_event_that_is_outrun_is_decided_again,
    a_gateway_that_contradicts_itself_is_asked_again,
);

fn body(method: &str) -> Value {
    json!({"bookingId": "b", "userId": "u", "amount": 500, "currency": "JPY",
        "paymentMethod": method, "capture": "manual"})
}

fn caller() -> Caller<'static> {
    let key = Some("8e03978e-40d5-43e8-bc93-6894a57f9324");
    Caller { key, user: None, traceparent: None }
}

fn charge(payment: &Payment) -> Charge<'_> {
    Charge {
        payment_id: payment.id,
        gateway_id: payment.gateway_transaction_id.as_deref(),
        amount: 500,
        currency: "JPY",
        payment_method: "ok",
        customer: None,
        in_vain: 0,
        description: None,
        now: Clock::System.now(),
        traceparent: None,
    }
}

const MOVED: &str = "payment_intent.amount_capturable_updated";

/// The object of an event that says: the money is reserved.
fn moved(payment: &Payment) -> Value {
    json!({"id": "pi_1", "object": "payment_intent", "status": "requires_capture",
        "metadata": {"payment_id": payment.id}})
}

async fn a_payment_event_makes_tashika_ask_the_gateway(db: TestDb) {
    let rig = Rig::new(db).await;
    let running = rig.start();
    let till = Arc::clone(&rig.till);
    let payments = Payments::new(Arc::clone(running.engine()), till, Duration::from_secs(30));
    let payment = payments.create(caller(), &body("ok")).await.unwrap().payment;
    assert_eq!(payment.status, payment::Status::Authorized);
    let tell = async |id: &str, kind: &str| {
        let object = json!({"id": "pi_1", "metadata": {"payment_id": payment.id}});
        let accepted = rig.send(&told_about(id, kind, 0, &object)).await;
        rig.ended(&accepted, Status::Success).await;
        rig.store.payment(payment.id).await.unwrap().unwrap()
    };
    let heard = tell("evt_1", "payment_intent.succeeded").await;
    assert_eq!(heard.status, payment::Status::Authorized, "the gateway says otherwise");

    // Captured behind our back, at the gateway's own desk.
    let captured = rig.till.gateway.capture(charge(&payment), 500).await;
    assert!(matches!(captured.outcome, Outcome::Done(_)), "{captured:?}");
    let heard = tell("evt_2", "payment_intent.canceled").await;
    assert_eq!(heard.status, payment::Status::Captured, "what the gateway says, not the message");
    assert_eq!(heard.captured_amount, 500);
    let line = &rig.audit("payment.captured").await[0];
    let details: Value = serde_json::from_str(&line.details).unwrap();
    assert_eq!((line.actor_id.as_deref(), line.actor_role.as_str()), (None, "system"));
    assert_eq!((&details["event_id"], &details["to"]), (&json!("evt_2"), &json!("CAPTURED")));
    assert_eq!(details["event_type"], "payment_intent.canceled");
    assert_eq!(details["source"], "stripe_webhook");
    let unknown = json!({"metadata": {"payment_id": "8e03978e-40d5-43e8-bc93-6894a57f9324"}});
    let accepted = rig.send(&told_about("evt_3", "charge.captured", 0, &unknown)).await;
    rig.ended(&accepted, Status::Skipped).await;
    stop(running).await;
}

/// Somebody else hears of the same thing while the handler decides, and writes it down first.
struct Outrun {
    handler: WebhookHandler,
    till: Arc<Till>,
    payment: Uuid,
    decisions: AtomicU32,
}

impl Handler for Outrun {
    fn attempt<'a>(&'a self, job: Job<'a>) -> BoxFuture<'a, Tried> {
        self.handler.attempt(job)
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(async move {
            let settled = self.handler.conclude(ending).await?;
            if self.decisions.fetch_add(1, Ordering::SeqCst) == 0 {
                let found = ending.result().cloned().unwrap_or_default();
                let remote = serde_json::from_value(found).unwrap();
                self.till.hear(self.payment, &remote, "reconciliation").await?;
            }
            Ok(settled)
        })
    }
}

/// Found by the simulator: the event stayed `pending`, and its effect was given up as a conflict.
async fn an_event_that_is_outrun_is_decided_again(db: TestDb) {
    let rig = Rig::new(db).await;
    let till = || Arc::clone(&rig.till);
    let silent = rig.engine(&policy()).start();
    let payments = Payments::new(Arc::clone(silent.engine()), till(), Duration::from_secs(30));
    let payment = payments.create(caller(), &body("sandbox_500_after_effect")).await.unwrap();
    let payment = payment.payment;
    assert!(payment.pending_verification(), "{payment:?}");
    stop(silent).await;

    let handler = WebhookHandler::new(till(), vec![], "host:1:a", &LanePolicy::default());
    let decisions = AtomicU32::new(0);
    let outrun = Outrun { handler, till: till(), payment: payment.id, decisions };
    let running = rig.engine(&policy()).effect(KIND, outrun).start();
    let accepted = rig.send(&told_about("evt_1", MOVED, 0, &moved(&payment))).await;
    rig.ended(&accepted, Status::Success).await;
    let effect = rig.effect(&accepted).await;
    assert_eq!((effect.status, effect.attempts), (EffectStatus::Succeeded, 0));
    let payment = rig.store.payment(payment.id).await.unwrap().unwrap();
    assert!(payment.is_at_rest() && payment.status == payment::Status::Authorized, "{payment:?}");
    stop(running).await;
}

/// Found by the simulator: an event told of money, a status that lagged denied it, and that was that.
async fn a_gateway_that_contradicts_itself_is_asked_again(db: TestDb) {
    let rig = Rig::new(db).await;
    let running = rig.engine(&patience(2)).start();
    let till = Arc::clone(&rig.till);
    let payments = Payments::new(Arc::clone(running.engine()), till, Duration::from_millis(100));
    let created = payments.create(caller(), &body("sandbox_unreachable")).await.unwrap();
    let payment = created.payment;
    let accepted = rig.send(&told_about("evt_1", MOVED, 0, &moved(&payment))).await;
    let failed = rig.ended(&accepted, Status::Failed).await;
    let text = failed.error_message.unwrap_or_default();
    assert!(text.starts_with("GATEWAY_CONTRADICTS_ITSELF"), "{text}");
    assert_eq!(rig.effect(&accepted).await.attempts, 2, "it was asked again");
    // One that says nothing of money contradicts nothing.
    let gone = json!({"status": "canceled", "metadata": {"payment_id": payment.id}});
    let canceled = rig.send(&told_about("evt_2", "payment_intent.canceled", 0, &gone)).await;
    rig.ended(&canceled, Status::Success).await;

    let authorized = rig.till.gateway.authorize(charge(&payment)).await;
    assert!(matches!(authorized.outcome, Outcome::Done(_)), "{authorized:?}");
    rig.webhooks.replay(accepted.message_id, "somebody").await.unwrap();
    rig.ended(&accepted, Status::Success).await;
    let payment = rig.store.payment(payment.id).await.unwrap().unwrap();
    assert_eq!(payment.status, payment::Status::Authorized);
    stop(running).await;
}
