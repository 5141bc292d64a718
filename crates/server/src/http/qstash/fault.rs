//! What is wrong, in the words and the form of the hosted service.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use http::header::ALLOW;
use http::{HeaderValue, StatusCode};
use serde_json::json;
use tashika_engine::commands::message::QueueError;
use tashika_store::StoreError;

use crate::http::problem::Problem;
use crate::http::unavailable;

/// Why a request is not done.
#[derive(Debug)]
pub(super) enum Fault {
    Said {
        status: StatusCode,
        why: String,
    },
    /// The path exists, for these methods.
    Method(&'static str),
    /// Something that can happen to every request of the server.
    Problem(Box<Problem>),
}

impl Fault {
    pub fn bad(why: impl Into<String>) -> Self {
        Self::Said { status: StatusCode::BAD_REQUEST, why: why.into() }
    }

    pub fn not_found(why: impl Into<String>) -> Self {
        Self::Said { status: StatusCode::NOT_FOUND, why: why.into() }
    }

    pub fn nowhere() -> Self {
        Self::not_found("there is nothing at this path")
    }

    pub fn into_response(self) -> Response {
        match self {
            Self::Said { status, why } => (status, Json(json!({ "error": why }))).into_response(),
            Self::Method(allowed) => {
                let why = format!("this path takes {allowed}");
                let status = StatusCode::METHOD_NOT_ALLOWED;
                let mut response = (status, Json(json!({ "error": why }))).into_response();
                response.headers_mut().insert(ALLOW, HeaderValue::from_static(allowed));
                response
            }
            Self::Problem(problem) => problem.into_response(),
        }
    }
}

impl From<QueueError> for Fault {
    fn from(error: QueueError) -> Self {
        match error {
            QueueError::Bad(why) => Self::bad(why),
            QueueError::NotFound(why) => Self::not_found(why),
            QueueError::Store(error) => error.into(),
        }
    }
}

impl From<StoreError> for Fault {
    fn from(error: StoreError) -> Self {
        Self::Problem(Box::new(unavailable(&error)))
    }
}
