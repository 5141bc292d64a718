//! Reading a body that is larger than memory should hold, piece by piece.

use std::io;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use url::Url;

use super::{Client, Known, NoAnswer, classify};
use crate::reply::BoxFuture;

/// Why there is no complete body. A read: repeating it is harmless.
#[derive(Debug, thiserror::Error)]
pub enum StreamError {
    #[error("{0}")]
    NotHeard(String),
    #[error("answered {0}")]
    Status(u16),
    #[error("larger than {0} bytes")]
    TooLarge(u64),
    #[error("shorter than announced: {got} of {announced} bytes")]
    Short { got: u64, announced: u64 },
    #[error("could not be written: {0}")]
    Write(#[from] io::Error),
}

impl Client {
    /// Reads `url` and hands its pieces to `write`; returns how many bytes there were. The client's
    /// timeout is for the time until the head and then for each piece; `longest` for everything.
    pub async fn stream(
        &self,
        url: Url,
        max: u64,
        longest: Duration,
        write: &(dyn Fn(Bytes) -> BoxFuture<'static, io::Result<()>> + Sync),
    ) -> Result<u64, StreamError> {
        let end = Instant::now() + longest;
        let patience = || end.min(Instant::now() + self.timeout);
        let late = || StreamError::NotHeard(NoAnswer::Timeout(self.timeout).to_string());
        let sending = self.inner.get(url).send();
        let mut response = match timeout_at(patience(), sending).await {
            Ok(Ok(response)) => response,
            Ok(Err(error)) => {
                let why = match classify::failure(&error, self.connect_timeout) {
                    Known::NotSent(why) => why.to_string(),
                    Known::NoAnswer(why) => why.to_string(),
                    Known::Answered(answer) => answer.status.to_string(),
                };
                return Err(StreamError::NotHeard(why));
            }
            Err(_) => return Err(late()),
        };
        if response.status() != ::http::StatusCode::OK {
            return Err(StreamError::Status(response.status().as_u16()));
        }
        let announced = response.content_length();
        if announced.is_some_and(|length| length > max) {
            return Err(StreamError::TooLarge(max));
        }
        let mut got = 0_u64;
        loop {
            let chunk = match timeout_at(patience(), response.chunk()).await {
                Ok(Ok(Some(chunk))) => chunk,
                Ok(Ok(None)) => break,
                Ok(Err(error)) => {
                    return Err(StreamError::NotHeard(classify::innermost(&error)));
                }
                Err(_) => return Err(late()),
            };
            got += chunk.len() as u64;
            if got > max {
                return Err(StreamError::TooLarge(max));
            }
            write(chunk).await?;
        }
        match announced {
            Some(announced) if announced != got => Err(StreamError::Short { got, announced }),
            _ => Ok(got),
        }
    }
}
