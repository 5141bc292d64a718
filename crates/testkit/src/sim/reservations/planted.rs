//! Deliberate mistakes with reservations, made outside of the product. Those of the gateway's pages are
//! with the other bad adapters, in `payments::planted`.

use std::sync::Arc;

use tashika_domain::payment::{self, Payment};
use tashika_domain::render::conclude::{RemoteRender, RemoteState};
use tashika_domain::render::{Render, RenderStatus, State};
use tashika_domain::reservation::Status;
use tashika_domain::{Changes, Timestamp, Write};
use tashika_providers::gateway::{Charge, RefundOrder};
use tashika_store::{ReservationFilter, StoreError};
use uuid::Uuid;

use super::Planted;
use super::process::Process;

/// Money back as somebody in a hurry gives it: whatever was taken, whenever somebody cancels.
pub(crate) async fn refund_again(process: &Process, payment: Option<Payment>) {
    let Some(payment) = payment.filter(|payment| payment.captured_amount > 0) else { return };
    let request = &payment.request;
    let charge = Charge {
        payment_id: payment.id,
        gateway_id: payment.gateway_transaction_id.as_deref(),
        amount: request.amount,
        currency: &request.currency,
        payment_method: &request.payment_method,
        customer: None,
        description: None,
        in_vain: payment.in_vain,
        now: process.clock.now(),
        traceparent: None,
    };
    let number = 1000 + u32::try_from(process.scene.book().number()).unwrap_or(0);
    let (refund_id, amount) = (Uuid::from_u128(number.into()), payment.captured_amount);
    let order = RefundOrder { refund_id, number, amount, reason: None };
    drop(process.bank.till.gateway.refund(charge, order).await);
}

/// A video that came too late, and a render that is done because of it.
pub(crate) fn revived(render: &Render, remote: &RemoteRender, now: Timestamp) -> Option<Render> {
    let RemoteState::Done { url, .. } = &remote.state else { return None };
    (render.state() == State::Closed).then(|| Render {
        version: render.version + 1,
        status: RenderStatus::Done,
        closed: None,
        output_url: Some(url.clone()),
        updated_at: now,
        ..render.clone()
    })
}

/// Somebody who writes on his own.
pub(crate) fn interfere(process: &Arc<Process>) {
    if process.scene.planted != Some(Planted::ConfirmsExpired) {
        return;
    }
    let process = Arc::clone(process);
    tokio::spawn(async move {
        process.fate.alive().await;
        if let Err(error) = confirm_expired(&process).await {
            process.broken("the store answers", "", &error.to_string());
        }
    });
}

/// Whoever has paid is confirmed, also when the hold's time is over.
async fn confirm_expired(process: &Process) -> Result<(), StoreError> {
    let filter = ReservationFilter { status: Some(Status::Expired), ..Default::default() };
    for expired in process.store.reservations(&filter, 50).await? {
        let Some(payment) = expired.payment_id else { continue };
        let paid = process.store.payment(payment).await?.is_some_and(|payment| {
            matches!(payment.status, payment::Status::Captured | payment::Status::Refunded)
        });
        if paid {
            let mut confirmed = expired.clone();
            confirmed.version += 1;
            confirmed.status = Status::Confirmed;
            confirmed.confirmed_at = Some(process.clock.now());
            confirmed.expired_at = None;
            let changes: Changes = Write::ReservationUpdate(Box::new(confirmed)).into();
            // Somebody else has the slot: the index is no part of the mistake.
            process.store.commit(changes).await.ok();
        }
    }
    Ok(())
}
