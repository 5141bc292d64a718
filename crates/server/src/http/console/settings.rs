//! What is configured, secrets hidden.

use std::sync::Arc;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse as _, Response};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use super::Face;
use crate::config::Config;
use crate::config::keys::{all_names, keys};

pub(super) async fn settings(State(face): State<Arc<Face>>) -> Response {
    Json(&face.settings).into_response()
}

/// Prepared once: a new configuration takes a restart.
pub(super) fn document(config: &Config, node: &str) -> Value {
    let known = all_names();
    let settings: Vec<Value> = config
        .effective()
        .iter()
        .map(|line| {
            let key = keys().find(|key| key.name == line.name);
            let lane = known.iter().find(|known| known.name == line.name);
            let lane = lane.and_then(|known| known.lane.as_ref());
            json!({
                "name": line.name,
                "value": line.value,
                "origin": line.origin,
                "section": key.map(|key| key.section),
                "about": key.map(|key| key.about),
                "lane": lane.map(|lane| lane.as_str().to_owned()),
            })
        })
        .collect();
    let url = config.database_url.expose_secret();
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "node": node,
        "database": if url.starts_with("sqlite:") { "SQLite" } else { "PostgreSQL" },
        "warnings": config.warnings,
        "settings": settings,
    })
}
