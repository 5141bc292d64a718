//! Events: what the world is told about things that have happened.
//!
//! One effect per event and sink, so that a sink that is down holds up nobody else.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use uuid::Uuid;

use crate::effect::{EffectId, NewEffect};
use crate::lane::Lane;
use crate::time::Timestamp;

/// The effect kind of a delivery to a sink.
pub const KIND: &str = "event";

/// Something that has happened.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Event {
    #[serde(rename = "eventId")]
    pub id: Uuid,
    /// E.g. `PaymentCaptured`.
    #[serde(rename = "type")]
    pub kind: String,
    pub aggregate_id: String,
    pub occurred_at: Timestamp,
    pub payload: Value,
}

impl Event {
    /// The effect that tells one sink.
    #[must_use]
    pub fn delivery(
        &self,
        id: EffectId,
        sink: &str,
        expires_at: Timestamp,
        traceparent: Option<String>,
    ) -> NewEffect {
        NewEffect {
            id,
            lane: Lane::EVENTS,
            kind: KIND.into(),
            key: Some(format!("{}:{sink}", self.id)),
            digest: None,
            payload: json!({"sink": sink, "event": self}).to_string(),
            run_at: self.occurred_at,
            created_at: self.occurred_at,
            expires_at,
            traceparent,
            held_by: None,
        }
    }
}
