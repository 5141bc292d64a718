//! The deadline of a failed render: when it comes and nobody has helped, the money goes back.

use std::sync::Arc;

use serde_json::Value;
use tashika_domain::Changes;
use tashika_domain::effect::Verdict;
use tashika_domain::payment::checkout::Going;
use tashika_domain::render::GiveUpPayload;
use tashika_domain::render::person::{given_up, may_give_up};
use tashika_domain::reservation::decide::happen;
use tashika_domain::reservation::status::Event;
use tashika_store::StoreError;

use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};
use crate::payment::Till;
use crate::reservation::report;

/// Gives a render up that failed for good and that nobody helped in time: it is over, its reservation is
/// cancelled, the money goes back and the customer is told, in one commit.
pub struct GiveUpHandler {
    till: Arc<Till>,
}

impl GiveUpHandler {
    #[must_use]
    pub const fn new(till: Arc<Till>) -> Self {
        Self { till }
    }

    async fn decide(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let over = || Settled::new(Verdict::Succeeded, Changes::new());
        let clock: GiveUpPayload = match serde_json::from_str(&ending.effect.payload) {
            Ok(clock) => clock,
            Err(_) => return Ok(over()),
        };
        let store = &self.till.store;
        let Some(render) = store.render(clock.render_id).await? else { return Ok(over()) };
        // A person has resolved it or has it tried again, or the video came after all.
        if !may_give_up(&render, &clock) {
            return Ok(over());
        }
        let mut settled = Settled::new(Verdict::Succeeded, given_up(&render, ending.now));
        let Some(reservation) = store.reservation(clock.reservation_id).await? else {
            return Ok(settled);
        };
        let payment = match reservation.payment_id {
            Some(id) => store.payment(id).await?,
            None => None,
        };
        let going = payment.as_ref().map(Going::of);
        // There is a render only where there was a confirmed reservation.
        if let Ok(decided) = happen(&reservation, Event::GiveUp, going, self.till.at(ending.now)) {
            settled.after = Some(report(&reservation, &decided));
            settled.changes.extend(decided.changes);
        }
        Ok(settled)
    }
}

impl Handler for GiveUpHandler {
    /// A timer: there is nothing to attempt, only to decide.
    fn attempt<'a>(&'a self, _job: Job<'a>) -> BoxFuture<'a, Tried> {
        Box::pin(async { Tried::done(Value::Null) })
    }

    fn conclude<'a>(
        &'a self,
        ending: &'a Ending<'a>,
    ) -> BoxFuture<'a, Result<Settled, StoreError>> {
        Box::pin(self.decide(ending))
    }
}
