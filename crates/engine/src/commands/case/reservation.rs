//! Cases about money that must go back to a customer and was refused.

use serde_json::{Value, json};
use tashika_domain::case::{Case, Decision};
use tashika_domain::reservation::{KIND, choices};
use tashika_store::{Store, StoreError};

use super::{CaseError, CaseKind, Dossier, Entry, audit, close};
use crate::clock::Clock;
use crate::handler::BoxFuture;

pub struct RefundCases {
    pub store: Store,
    pub clock: Clock,
}

impl RefundCases {
    async fn evidence(&self, case: &Case) -> Result<Dossier, StoreError> {
        let races = self.store.races_of(KIND, &case.subject_id).await?;
        let race = |race: &tashika_store::RaceRow| Entry {
            at: race.detected_at,
            kind: "race".to_owned(),
            body: json!({"scenario": race.scenario, "resolution": race.resolution}),
        };
        let mut timeline: Vec<Entry> = races.iter().map(race).collect();
        timeline.extend(audit(&self.store, KIND, &case.subject_id).await?);
        Ok(Dossier { choices: choices::of_refused_refund(), timeline, ..Dossier::default() })
    }
}

impl CaseKind for RefundCases {
    fn look<'a>(&'a self, case: &'a Case) -> BoxFuture<'a, Result<Dossier, StoreError>> {
        Box::pin(self.evidence(case))
    }

    fn act<'a>(
        &'a self,
        case: &'a Case,
        decision: &'a Decision,
        _: &'a Value,
    ) -> BoxFuture<'a, Result<(), CaseError>> {
        Box::pin(close(&self.store, case, decision, self.clock.now()))
    }
}
