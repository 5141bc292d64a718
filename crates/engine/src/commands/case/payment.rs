//! Cases about payments: an outcome that nobody knows, and books that differ.

use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::case::{Case, Decision};
use tashika_domain::payment::resolve::{Resolution, ResolveRefusal};
use tashika_domain::payment::{KIND, Payment, choices};
use tashika_store::{Store, StoreError};
use uuid::Uuid;

use super::{CaseError, CaseKind, Dossier, Entry, audit, close};
use crate::clock::Clock;
use crate::commands::payment::{PaymentError, Payments};
use crate::handler::BoxFuture;

/// What became of a payment is not known.
pub struct PaymentCases {
    pub store: Store,
    pub payments: Arc<Payments>,
}

/// The gateway's books and ours differ.
pub struct DifferenceCases {
    pub store: Store,
    pub clock: Clock,
    pub payments: Arc<Payments>,
}

fn payment_id(case: &Case) -> Option<Uuid> {
    case.subject_id.parse().ok()
}

async fn evidence(store: &Store, id: Uuid) -> Result<Vec<Entry>, StoreError> {
    let mut entries = Vec::new();
    for line in store.payment_timeline(id).await? {
        let body = serde_json::from_str(&line.entry).unwrap_or_default();
        entries.push(Entry { at: line.at, kind: line.kind, body });
    }
    let subject = id.to_string();
    for race in store.races_of(KIND, &subject).await? {
        let body = json!({"scenario": race.scenario, "resolution": race.resolution});
        entries.push(Entry { at: race.detected_at, kind: "race".to_owned(), body });
    }
    entries.extend(audit(store, KIND, &subject).await?);
    Ok(entries)
}

async fn payment(store: &Store, case: &Case) -> Result<Option<Payment>, StoreError> {
    match payment_id(case) {
        Some(id) => store.payment(id).await,
        None => Ok(None),
    }
}

impl PaymentCases {
    async fn decide(&self, case: &Case, decision: &Decision) -> Result<(), CaseError> {
        let id = payment_id(case).ok_or(CaseError::NotFound)?;
        let done = match Resolution::parse(&decision.action) {
            Some(resolution) => {
                self.payments.resolve(id, resolution, &decision.note, &decision.who).await
            }
            None => self.payments.verify(id, None).await,
        };
        match done {
            Ok(_) => Ok(()),
            // Settled since it was offered.
            Err(PaymentError::Unresolvable(
                ResolveRefusal::NoCase | ResolveRefusal::DoesNotFit,
            )) => Err(CaseError::Lost),
            Err(PaymentError::Contradicted) => Err(CaseError::Contradicted),
            Err(PaymentError::Store(error)) => Err(error.into()),
            Err(_) => Err(CaseError::NotFound),
        }
    }
}

impl CaseKind for PaymentCases {
    fn look<'a>(&'a self, case: &'a Case) -> BoxFuture<'a, Result<Dossier, StoreError>> {
        Box::pin(async move {
            let Some(payment) = payment(&self.store, case).await? else {
                return Ok(Dossier::default());
            };
            let timeline = evidence(&self.store, payment.id).await?;
            let choices = self.payments.choices(&payment);
            Ok(Dossier { choices, timeline, ..Dossier::default() })
        })
    }

    fn act<'a>(
        &'a self,
        case: &'a Case,
        decision: &'a Decision,
        _: &'a Value,
    ) -> BoxFuture<'a, Result<(), CaseError>> {
        Box::pin(self.decide(case, decision))
    }
}

/// A refund that came back differs for ever: there is nothing to take over.
fn is_bounced(case: &Case) -> bool {
    let details: Value = serde_json::from_str(&case.details).unwrap_or_default();
    details.get("refundId").is_some()
}

impl CaseKind for DifferenceCases {
    fn look<'a>(&'a self, case: &'a Case) -> BoxFuture<'a, Result<Dossier, StoreError>> {
        Box::pin(async move {
            let payment = payment(&self.store, case).await?;
            let timeline = match &payment {
                Some(payment) => evidence(&self.store, payment.id).await?,
                None => Vec::new(),
            };
            let choices = choices::of_difference(payment.is_some() && !is_bounced(case));
            Ok(Dossier { choices, timeline, ..Dossier::default() })
        })
    }

    fn act<'a>(
        &'a self,
        case: &'a Case,
        decision: &'a Decision,
        _: &'a Value,
    ) -> BoxFuture<'a, Result<(), CaseError>> {
        Box::pin(async move {
            if decision.action == "adopt" {
                let id = payment_id(case).ok_or(CaseError::NotFound)?;
                match self.payments.compare(id).await {
                    Ok(None) => {}
                    Ok(Some(difference)) => return Err(CaseError::StillDiffers(difference)),
                    Err(PaymentError::Store(error)) => return Err(error.into()),
                    Err(_) => return Err(CaseError::NotFound),
                }
            }
            close(&self.store, case, decision, self.clock.now()).await
        })
    }
}
