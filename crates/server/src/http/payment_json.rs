//! A payment as answers show it.

use serde_json::{Value, json};
use tashika_domain::payment::{Payment, Refund, Subject};
use tashika_engine::commands::payment::PaymentView;
use tashika_store::TimelineLine;

use super::cases;

/// Fields without a value are left out.
pub fn payment(payment: &Payment) -> Value {
    let request = &payment.request;
    let mut body = json!({
        "id": payment.id,
        "status": payment.status,
        "bookingId": request.booking_id,
        "userId": request.user_id,
        "amount": request.amount,
        "currency": request.currency,
        "capture": request.capture.as_str(),
        "capturedAmount": payment.captured_amount,
        "refundedAmount": payment.refunded_amount,
        "pendingVerification": payment.pending_verification(),
        "verificationFailed": payment.verification_failed(),
        "gateway": payment.gateway,
        "refunds": payment.refunds.iter().map(refund).collect::<Vec<_>>(),
        "createdAt": payment.created_at,
        "updatedAt": payment.updated_at,
    });
    let mut set = |name: &str, value: Value| body[name] = value;
    if !payment.is_at_rest() {
        set("verificationRequired", json!(true));
    }
    if let Some(reason) = &payment.failure {
        set("reason", json!(reason.message));
        set("reasonCode", json!(reason.code));
    }
    if let Some(id) = &payment.gateway_transaction_id {
        set("gatewayTransactionId", json!(id));
    }
    if let Some(customer) = &request.customer {
        set("customer", json!(customer));
    }
    if let Some(description) = &request.description {
        set("description", json!(description));
    }
    if let Some(operation) = &payment.operation {
        let (kind, asked_at) = (operation.kind.as_str(), operation.asked_at);
        set("operation", json!({"kind": kind, "amount": operation.amount, "askedAt": asked_at}));
    }
    if let Some((subject, doubt)) = payment.doubts().next() {
        let operation = match subject {
            Subject::Operation(kind) => kind.as_str(),
            Subject::Refund(_) => "refund",
        };
        set(
            "verification",
            json!({
                "operation": operation,
                "reason": doubt.reason.message,
                "reasonCode": doubt.reason.code,
                "sentAt": doubt.sent_at,
                "attempts": doubt.checks,
                "lastCheckAt": doubt.last_check_at,
            }),
        );
    }
    body
}

/// A payment with what else is known about it.
pub fn view(view: &PaymentView) -> Value {
    let mut body = payment(&view.payment);
    if let Some(open) = &view.case {
        body["case"] = cases::case(open);
    }
    if !view.races.is_empty() {
        let races = view.races.iter().map(|race| {
            json!({"scenario": race.scenario, "resolution": race.resolution,
                "detectedAt": race.detected_at})
        });
        body["races"] = races.collect();
    }
    body
}

fn refund(refund: &Refund) -> Value {
    let mut body = json!({
        "id": refund.id,
        "amount": refund.amount,
        "status": refund.status.as_str(),
        "pendingVerification": refund.doubt.as_ref().is_some_and(|doubt| !doubt.given_up),
        "createdAt": refund.created_at,
        "updatedAt": refund.updated_at,
    });
    if let Some(reason) = &refund.reason {
        body["reason"] = json!(reason);
    }
    if let Some(id) = &refund.gateway_refund_id {
        body["gatewayRefundId"] = json!(id);
    }
    if let Some(failure) = &refund.failure {
        body["failure"] = json!({"code": failure.code, "message": failure.message});
    }
    body
}

/// A line of the timeline: its moment and kind, and whatever it has to say.
pub fn line(line: &TimelineLine) -> Value {
    let mut body = json!({"at": line.at, "kind": line.kind});
    if let (Some(body), Ok(Value::Object(entry))) =
        (body.as_object_mut(), serde_json::from_str(&line.entry))
    {
        body.extend(entry.into_iter().filter(|(_, value)| !value.is_null()));
    }
    body
}
