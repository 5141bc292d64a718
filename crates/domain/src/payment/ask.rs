//! What callers want: a new payment, a capture, a void, a refund.

use serde_json::json;
use uuid::Uuid;

use super::draft::{Draft, REFUND_SCOPE, scope_of};
use super::remote::code;
use super::{At, Decided, OperationKind, Payment, PaymentRequest, RequestKey, SCOPE, Status};
use crate::changes::{Changes, Write};
use crate::ledger::{LedgerKey, LedgerSettlement, LedgerStatus, NewLedgerEntry};

/// Who asks for a payment, and how it is traced.
#[derive(Clone, Debug, PartialEq)]
pub struct Origin {
    pub id: Uuid,
    pub key: RequestKey,
    pub gateway: String,
    pub traceparent: Option<String>,
}

/// Accepts a payment: its key, its row and the effect that authorizes it, together.
#[must_use]
pub fn create(request: PaymentRequest, origin: Origin, at: At<'_>) -> Decided {
    let payment = Payment {
        id: origin.id,
        version: 1,
        key: origin.key.clone(),
        gateway: origin.gateway,
        status: Status::Pending,
        captured_amount: 0,
        refunded_amount: 0,
        gateway_transaction_id: None,
        failure: None,
        operation: None,
        checkout: None,
        in_vain: 0,
        refunds: Vec::new(),
        created_at: at.now,
        updated_at: at.now,
        traceparent: origin.traceparent,
        request,
    };
    let mut draft = Draft::birth(payment, at);
    let request = &draft.payment.request;
    let accepted = json!({"amount": request.amount, "currency": request.currency,
        "gateway": draft.payment.gateway, "capture": request.capture.as_str()});
    let amount = request.amount;
    accept_key(&mut draft, SCOPE, 201, &origin.key);
    draft.line("accepted", &accepted);
    draft.audit("payment.created".to_owned(), &accepted);
    draft.publish("PaymentCreated", &json!({}));
    draft.begin(OperationKind::Authorize, amount, Some(origin.key));
    draft.finish()
}

/// What is wanted of a payment that exists.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wish {
    /// Everything that is authorized, if no amount is named.
    Capture {
        amount: Option<i64>,
    },
    Void,
    /// Everything that is left, if no amount is named.
    Refund {
        amount: Option<i64>,
        reason: Option<String>,
    },
}

impl Wish {
    #[must_use]
    pub const fn scope(&self) -> &'static str {
        match self {
            Self::Capture { .. } => scope_of(OperationKind::Capture).0,
            Self::Void => scope_of(OperationKind::Void).0,
            Self::Refund { .. } => REFUND_SCOPE,
        }
    }
}

/// What becomes of a wish.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    Begun(Box<Decided>),
    /// It is so already; the key is remembered.
    Already(Changes),
}

/// Why a wish cannot be granted. Nothing is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("a payment that is {} does not allow this", .0.as_str())]
    WrongState(Status),
    #[error("the amount is higher than the {0} that is left")]
    TooMuch(i64),
    #[error("another operation of this payment is under way")]
    UnderWay,
}

/// Begins an operation on a payment, or says why not.
pub fn ask(
    payment: &Payment,
    wish: Wish,
    key: Option<RequestKey>,
    at: At<'_>,
) -> Result<Asked, Refusal> {
    let scope = wish.scope();
    let Some(amount) = granted(payment, &wish)? else {
        return Ok(Asked::Already(remembered(payment, scope, key, at)));
    };
    let mut draft = Draft::of(payment, at);
    if let Some(key) = &key {
        accept_key(&mut draft, scope, 200, key);
    }
    let asked = json!({"operation": name(&wish), "amount": amount});
    draft.line("asked", &asked);
    draft.audit(format!("payment.{}_asked", name(&wish)), &asked);
    match wish {
        Wish::Capture { .. } => draft.begin(OperationKind::Capture, amount, key),
        Wish::Void => draft.begin(OperationKind::Void, amount, key),
        Wish::Refund { reason, .. } => {
            let key = key.unwrap_or_else(|| RequestKey {
                key: format!("{}:{}", payment.id, payment.version),
                digest: String::new(),
            });
            draft.begin_refund(amount, reason, key);
        }
    }
    Ok(Asked::Begun(Box::new(draft.finish())))
}

/// The amount that an operation begins with; `None` if there is nothing left to do.
fn granted(payment: &Payment, wish: &Wish) -> Result<Option<i64>, Refusal> {
    let authorized = payment.request.amount;
    match (wish, payment.status) {
        (Wish::Capture { amount: Some(amount) }, Status::Authorized | Status::Captured)
            if *amount > authorized =>
        {
            Err(Refusal::TooMuch(authorized))
        }
        (Wish::Capture { .. }, Status::Captured) | (Wish::Refund { .. }, Status::Refunded) => {
            Ok(None)
        }
        (Wish::Capture { .. } | Wish::Void, Status::Authorized) if payment.operation.is_some() => {
            Err(Refusal::UnderWay)
        }
        (Wish::Capture { amount }, Status::Authorized) => Ok(Some(amount.unwrap_or(authorized))),
        (Wish::Void, Status::Authorized) => Ok(Some(authorized)),
        (Wish::Void, Status::Refunded) if payment.captured_amount == 0 => Ok(None),
        (Wish::Refund { amount, .. }, Status::Captured) => {
            let left = payment.refundable();
            match amount.unwrap_or(left) {
                amount if amount > left || left == 0 => Err(Refusal::TooMuch(left)),
                amount => Ok(Some(amount)),
            }
        }
        (_, status) => Err(Refusal::WrongState(status)),
    }
}

fn name(wish: &Wish) -> &'static str {
    match wish {
        Wish::Capture { .. } => "capture",
        Wish::Void => "void",
        Wish::Refund { .. } => "refund",
    }
}

fn accept_key(draft: &mut Draft<'_>, scope: &str, http_status: u16, key: &RequestKey) {
    let write = accepted(&draft.payment, scope, http_status, key, draft.at);
    draft.push(write);
}

fn accepted(
    payment: &Payment,
    scope: &str,
    http_status: u16,
    key: &RequestKey,
    at: At<'_>,
) -> Write {
    Write::LedgerAccept(NewLedgerEntry {
        key: LedgerKey::new(scope, &key.key),
        request_digest: key.digest.clone(),
        http_status,
        response: json!({"paymentId": payment.id}).to_string(),
        now: at.now,
        expires_at: at.now.plus(at.rules.remember),
    })
}

/// The key of a wish that was granted before it was asked.
fn remembered(payment: &Payment, scope: &str, key: Option<RequestKey>, at: At<'_>) -> Changes {
    let Some(key) = key else { return Changes::new() };
    // Accepted first: an entry whose time is over gives way to that, and to nothing else.
    Changes::from(accepted(payment, scope, 200, &key, at)).with(Write::LedgerSettle(
        LedgerSettlement {
            key: LedgerKey::new(scope, key.key),
            request_digest: key.digest,
            status: LedgerStatus::Succeeded,
            http_status: 200,
            response: json!({"paymentId": payment.id}).to_string(),
            result_digest: None,
            now: at.now,
            expires_at: at.now.plus(at.rules.remember),
        },
    ))
}

/// How a failure is told over HTTP: as a decline, or as a request that the gateway found wrong.
#[must_use]
pub fn http_status(reason_code: &str) -> u16 {
    match reason_code {
        code::INVALID_REQUEST | code::UNAUTHORIZED => 400,
        _ => 402,
    }
}
