//! Reading a request's body, within its limits.
//!
//! [`RawBody`] is for handlers that need the bytes exactly as they were sent (signatures are made over
//! them); [`super::JsonBody`] builds on it. It guarantees that no more than the limit is held in
//! memory and that a body which does not come is given up. Nothing is decompressed here.

use std::time::Duration;

use axum::body::Body;
use axum::extract::{FromRequest, Request};
use bytes::Bytes;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use hyper::body::Body as _;

use super::problem::{Code, Problem};

/// What a body may be; a request extension, set by the edge and replaceable per route.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimits {
    pub bytes: usize,
    pub timeout: Duration,
}

impl Default for BodyLimits {
    fn default() -> Self {
        Self { bytes: 1_048_576, timeout: Duration::from_secs(10) }
    }
}

impl BodyLimits {
    pub(super) fn of(request: &Request) -> Self {
        request.extensions().get().copied().unwrap_or_default()
    }
}

/// The body as it was sent.
#[derive(Clone, Debug)]
pub struct RawBody(pub Bytes);

impl<S: Sync> FromRequest<S> for RawBody {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        let limits = BodyLimits::of(&request);
        read(request.into_body(), limits).await.map(Self)
    }
}

/// Reads all of it, or says why not.
pub(super) async fn read(body: Body, limits: BodyLimits) -> Result<Bytes, Problem> {
    // A length that is announced to be too long need not be read first.
    if body.size_hint().lower() > limits.bytes as u64 {
        return Err(too_large(limits.bytes));
    }
    let all = Limited::new(body, limits.bytes).collect();
    match tokio::time::timeout(limits.timeout, all).await {
        Ok(Ok(collected)) => Ok(collected.to_bytes()),
        Ok(Err(error)) if error.is::<LengthLimitError>() => Err(too_large(limits.bytes)),
        Ok(Err(_)) => Err(Problem::new(Code::BadRequest)
            .detail("The body broke off.", "本文が途中で切れました。")),
        Err(_) => Err(Problem::new(Code::RequestTimeout)),
    }
}

pub(super) fn too_large(limit: usize) -> Problem {
    Problem::new(Code::PayloadTooLarge).detail(
        format!("The body is longer than {limit} bytes."),
        format!("本文が {limit} バイトを超えています。"),
    )
}
