//! `/v2/keys`: what deliveries are signed with.

use axum::response::Response;
use http::{Method, StatusCode};
use serde_json::json;
use tashika_domain::message::keys::SigningKeys;
use tashika_engine::RotateError;
use tashika_engine::commands::message::Messages;

use super::call::Call;
use super::fault::Fault;
use super::ok;

pub(super) async fn answer(
    queue: &Messages,
    call: &Call,
    rest: Option<&str>,
) -> Result<Response, Fault> {
    let SigningKeys { current, next, .. } = match rest {
        None => {
            call.only(&Method::GET, "GET")?;
            queue.signing_keys().await?
        }
        Some("rotate") => {
            call.only(&Method::POST, "POST")?;
            queue.rotate_keys().await.map_err(refused)?
        }
        Some(_) => return Err(Fault::nowhere()),
    };
    ok(&json!({ "current": current, "next": next }))
}

fn refused(error: RotateError) -> Fault {
    match error {
        RotateError::Fixed => Fault::Said {
            status: StatusCode::PRECONDITION_FAILED,
            why: format!("{}, and can only be changed there", RotateError::Fixed),
        },
        RotateError::Store(error) => error.into(),
    }
}
