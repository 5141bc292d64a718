//! Renders, as callers look at them and people help them.

use std::sync::Arc;

use serde_json::Value;
use tashika_domain::Changes;
use tashika_domain::audit::Actor;
use tashika_domain::case::Case;
use tashika_domain::check::Violation;
use tashika_domain::render::person::{self, Resolution};
use tashika_domain::render::{Illegal, KIND, Render};
use tashika_store::{CommitError, RenderFilter, StoreError};
use uuid::Uuid;

use super::DECISIONS;
use crate::render::{Studio, report};

/// What callers may do with renders.
pub struct Renders(pub Arc<Studio>);

/// A render, and the case that waits for a person.
#[derive(Clone, Debug, PartialEq)]
pub struct RenderView {
    pub render: Render,
    pub case: Option<Case>,
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum RenderError {
    #[error("the request is not valid")]
    Invalid(Vec<Violation>),
    #[error("no such render")]
    NotFound,
    #[error(transparent)]
    State(#[from] Illegal),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Renders {
    pub async fn find(&self, id: Uuid) -> Result<RenderView, RenderError> {
        let store = &self.0.store;
        let render = store.render(id).await?.ok_or(RenderError::NotFound)?;
        let cases = store.cases_of(KIND, &id.to_string()).await?;
        let case = cases.into_iter().find(|case| case.resolution.is_none());
        Ok(RenderView { render, case })
    }

    pub async fn list(
        &self,
        filter: &RenderFilter,
        limit: i64,
    ) -> Result<Vec<Render>, RenderError> {
        Ok(self.0.store.renders(filter, limit).await?)
    }

    /// Has a failed render tried again. One that is under way is answered as it is.
    pub async fn retry(&self, id: Uuid, who: &str) -> Result<RenderView, RenderError> {
        let studio = &self.0;
        self.change(id, |render| {
            person::retry(render, Actor::operator(who), &studio.rules, studio.clock.now())
        })
        .await
    }

    /// Takes a person's word that a failed render is done. A repeat is answered as it is.
    pub async fn resolve(
        &self,
        id: Uuid,
        who: &str,
        body: &Value,
    ) -> Result<RenderView, RenderError> {
        let resolution = Resolution::parse(body).map_err(RenderError::Invalid)?;
        let studio = &self.0;
        self.change(id, |render| {
            let (actor, now) = (Actor::operator(who), studio.clock.now());
            person::resolve(render, &resolution, actor, &studio.rules, now)
        })
        .await
    }

    async fn change(
        &self,
        id: Uuid,
        decide: impl Fn(&Render) -> Result<Changes, Illegal>,
    ) -> Result<RenderView, RenderError> {
        let store = &self.0.store;
        for _ in 0..DECISIONS {
            let render = store.render(id).await?.ok_or(RenderError::NotFound)?;
            let changes = Arc::new(decide(&render)?);
            match store.commit(Arc::clone(&changes)).await {
                Ok(()) => {
                    report(&changes);
                    return self.find(id).await;
                }
                Err(CommitError::Store(error)) => return Err(error.into()),
                // Somebody was faster: decided again with the render as it is now.
                Err(_) => {}
            }
        }
        let text = format!("render {id} changes faster than it can be decided about");
        Err(StoreError::Rejected(text).into())
    }
}
