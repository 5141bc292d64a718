//! The timer of an authorization: when it rings, what nobody has captured is released.

use std::sync::Arc;

use serde_json::Value;
use tashika_domain::Changes;
use tashika_domain::effect::Verdict;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::At;
use tashika_domain::payment::ask::{Asked, Refusal, Wish, ask};
use tashika_store::StoreError;

use crate::handler::{BoxFuture, Ending, Handler, Job, Settled, Tried};
use crate::payment::{Till, payment_id};

/// Releases an authorization that nobody has captured in time.
pub struct ExpiryHandler {
    till: Arc<Till>,
    worker: String,
}

impl ExpiryHandler {
    #[must_use]
    pub fn new(till: Arc<Till>, worker: &str) -> Self {
        Self { till, worker: worker.to_owned() }
    }

    async fn decide(&self, ending: &Ending<'_>) -> Result<Settled, StoreError> {
        let over = || Settled::new(Verdict::Succeeded, Changes::new());
        let Some(id) = payment_id(ending.effect) else { return Ok(over()) };
        let Some(payment) = self.till.store.payment(id).await? else { return Ok(over()) };
        let worker = (!ending.lapsed).then_some(self.worker.as_str());
        let at = At { now: ending.now, rules: &self.till.rules, worker };
        Ok(match ask(&payment, Wish::Void, None, at) {
            Ok(Asked::Begun(decided)) => {
                let after: Box<dyn FnOnce() + Send> = Box::new(move || {
                    tracing::info!(payment_id = %id, "nobody captured the authorization: it is released");
                });
                let settled = Settled::new(Verdict::Succeeded, decided.changes);
                Settled { next: decided.next, after: Some(after), ..settled }
            }
            // Captured or voided meanwhile.
            Ok(Asked::Already(_)) | Err(Refusal::WrongState(_) | Refusal::TooMuch(_)) => over(),
            Err(Refusal::UnderWay) => {
                let reason = Reason::new("UNDER_WAY", "another operation is under way");
                let run_at = ending.now.plus(self.till.rules.verify_interval);
                let verdict = Verdict::Retry { run_at, reason, in_doubt: false };
                Settled::new(verdict, Changes::new())
            }
        })
    }
}

impl Handler for ExpiryHandler {
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
