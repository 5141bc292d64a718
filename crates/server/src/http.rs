//! The HTTP face: how requests come in, how answers go out.
//!
//! | module | what it is |
//! |---|---|
//! | `listener` | the accept loop, with its limits, timeouts and shutdown |
//! | `router` | puts the API's routes behind the layers that every request passes |
//! | `edge` | what happens to every request: id, trace, log line, deadline, problem documents |
//! | `auth` | who is asking |
//! | `body`, `json` | reading what was sent |
//! | `problem` | answering when something is wrong |
//! | `docs`, `home` | the pages for people |
//! | `orders`, `payments`, `reservations`, `webhooks`, `billings`, `audit`, `cases`, `alerts`, `races`, `health`, `renders`, `sandbox` | the handlers; `schema` describes what they take and answer |
//! | `mail`, `mail_batches`, `mail_stream`, `mail_json` | mail: single ones, batches and how they are read, what is shown of them |
//! | `qstash` | the message queue: everything under `/v2`, with errors of its own form |
//! | `outbox` | effects, as operators look at them |
//! | `console` | the operator's console: its pages, logins, and what only it asks |
//! | `idempotency`, `operator`, `page`, `payment_json` | what handlers share |
//!
//! Handlers live in files of their own and are plugged in through [`router::Shell`]. They return
//! [`problem::Problem`] and never render an error themselves.

pub mod alerts;
pub mod audit;
pub mod auth;
pub mod billings;
pub mod body;
pub mod cases;
pub mod console;
pub mod docs;
mod edge;
pub mod health;
mod home;
#[cfg(test)]
mod hostile;
mod idempotency;
pub mod json;
pub mod language;
pub mod listener;
pub mod mail;
pub(crate) mod mail_batches;
pub(crate) mod mail_json;
mod mail_stream;
pub(crate) mod operator;
pub mod orders;
pub mod outbox;
pub(crate) mod page;
pub(crate) mod payment_json;
pub mod payments;
pub mod problem;
pub mod qstash;
pub mod races;
pub mod renders;
pub mod request_id;
pub mod reservations;
pub mod router;
pub mod sandbox;
mod schema;
pub mod webhooks;

pub use auth::Client;
pub use body::RawBody;
pub use json::JsonBody;
pub use problem::{Code, Problem};
pub use request_id::{RequestId, RequestIds};
pub use router::Shell;

use tashika_store::StoreError;

/// Runs to its end even if the client hangs up: what has begun must be written down.
async fn to_its_end<T: Send + 'static>(
    work: impl Future<Output = T> + Send + 'static,
) -> Result<T, Problem> {
    use tracing::Instrument as _;
    let work = tokio::spawn(work.in_current_span());
    work.await.map_err(|_| Problem::new(Code::InternalError))
}

/// The store could not do its part: the caller should repeat the request, and an operator look.
fn unavailable(error: &StoreError) -> Problem {
    tracing::error!(%error, "the store is not available");
    Problem::new(Code::StoreUnavailable)
}
