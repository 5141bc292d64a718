//! Messages by their state: the queue's own API knows their log, and dead letters.

use std::sync::Arc;

use axum::extract::{RawQuery, State};
use axum::response::Response;
use serde_json::{Value, json};
use tashika_domain::message::{Message, State as MessageState, parse_id, public_id};
use tashika_store::{MessageFilter, StoreError};

use super::Face;
use crate::http::page::{Page, Query};
use crate::http::problem::Problem;
use crate::http::unavailable;

/// How many messages one page looks through for a filter. What is further back is on the next page.
const LOOK: i64 = 20_000;

pub(super) async fn list(
    State(face): State<Arc<Face>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let names = ["id", "state", "queue", "flowKey", "schedule", "label", "host"];
    let query = Query::read(query.as_deref(), &names)?;
    let page = query.page()?;
    let list = |name: &str| query.text(name).map(str::to_owned).into_iter().collect();
    let filter = MessageFilter {
        ids: query.word("id", parse_id)?.into_iter().collect(),
        states: query.word("state", MessageState::parse)?.into_iter().collect(),
        queues: list("queue"),
        flow_keys: list("flowKey"),
        schedules: list("schedule"),
        labels: list("label"),
        hosts: query.text("host").map(str::to_lowercase).into_iter().collect(),
        after: page.before,
        ..MessageFilter::default()
    };
    face.message_page(filter, page).await.map_err(|error| unavailable(&error))
}

impl Face {
    async fn message_page(
        &self,
        mut filter: MessageFilter,
        page: Page,
    ) -> Result<Response, StoreError> {
        let plain = MessageFilter { after: filter.after, ..MessageFilter::default() };
        if filter != plain && filter.ids.is_empty() {
            filter.since = self.store.message_before(filter.after, LOOK).await?;
        }
        let found = self.store.messages(&filter, page.fetch()).await?;
        let items = found.iter().map(|message| (message.id, shown(message))).collect();
        Ok(page.answer_within(items, filter.since))
    }
}

/// Without headers and body: those are shown, as far as they may be, by the queue's own API.
fn shown(message: &Message) -> Value {
    let asked = &message.asked;
    json!({
        "id": public_id(message.id),
        "state": message.state.as_str(),
        "method": asked.method.as_str(),
        "url": asked.url,
        "queue": asked.queue,
        "flowKey": asked.flow.as_ref().map(|flow| &flow.key),
        "schedule": asked.schedule,
        "labels": asked.labels,
        "dlqId": message.dlq_id,
        "responseStatus": message.response.as_ref().map(|response| response.status),
        "createdAt": message.created_at,
        "notBefore": message.not_before,
        "endedAt": message.ended_at,
    })
}
