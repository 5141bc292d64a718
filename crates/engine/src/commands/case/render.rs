//! Cases about renders that have failed for good.

use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::audit::Actor;
use tashika_domain::case::{Case, Decision};
use tashika_domain::effect::EffectId;
use tashika_domain::render::person::{self, Resolution};
use tashika_domain::render::{KIND, State, choices};
use tashika_store::StoreError;
use uuid::Uuid;

use super::{CaseError, CaseKind, Dossier, Entry, attempt, audit};
use crate::handler::BoxFuture;
use crate::render::{Studio, report};

pub struct RenderCases(pub Arc<Studio>);

impl RenderCases {
    async fn evidence(&self, case: &Case) -> Result<Dossier, StoreError> {
        let store = &self.0.store;
        let Some(render) = store.render(id_of(case)).await? else { return Ok(Dossier::default()) };
        let mut timeline = vec![Entry {
            at: render.created_at,
            kind: "accepted".to_owned(),
            body: json!({"reservationId": render.reservation_id, "videoId": render.video_id}),
        }];
        timeline.extend(store.attempts(EffectId(render.id)).await?.iter().map(attempt));
        timeline.extend(audit(store, KIND, &case.subject_id).await?);
        let failed = render.state() == State::Failed;
        let choices = if failed { choices::of_failed() } else { Vec::new() };
        Ok(Dossier { choices, timeline, ..Dossier::default() })
    }

    async fn decide(
        &self,
        case: &Case,
        decision: &Decision,
        body: &Value,
    ) -> Result<(), CaseError> {
        let Studio { store, clock, rules, .. } = &*self.0;
        let render = store.render(id_of(case)).await?.ok_or(CaseError::Lost)?;
        let (actor, now) = (Actor::operator(decision.who.as_str()), clock.now());
        let decided = if decision.action == "retry" {
            person::retry(&render, actor, rules, now)
        } else {
            let given = json!({"note": decision.note, "outputUrl": body.get("outputUrl")});
            let resolution = Resolution::parse(&given).map_err(CaseError::Invalid)?;
            person::resolve(&render, &resolution, actor, rules, now)
        };
        // It has moved on: there is nothing to decide any more.
        let mut changes = decided.map_err(|_| CaseError::Lost)?;
        changes.extend(decision.closing(case, now));
        let changes = Arc::new(changes);
        store.commit(Arc::clone(&changes)).await?;
        report(&changes);
        Ok(())
    }
}

fn id_of(case: &Case) -> Uuid {
    case.subject_id.parse().unwrap_or_default()
}

impl CaseKind for RenderCases {
    fn look<'a>(&'a self, case: &'a Case) -> BoxFuture<'a, Result<Dossier, StoreError>> {
        Box::pin(self.evidence(case))
    }

    fn act<'a>(
        &'a self,
        case: &'a Case,
        decision: &'a Decision,
        body: &'a Value,
    ) -> BoxFuture<'a, Result<(), CaseError>> {
        Box::pin(self.decide(case, decision, body))
    }
}
