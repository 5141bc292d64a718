//! Copying an output to a folder of our own, before its address dies.
//!
//! Streamed into a file beside its place, flushed to the disk, and then moved there in one step:
//! whoever finds the file finds all of it. Copying again replaces it with the same.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tashika_domain::Outcome;
use tashika_domain::outcome::{Exchange, Reason};
use tokio::time::Instant;
use url::Url;
use uuid::Uuid;

use super::counted;
use crate::http::{Client, ClientConfig, ClientError, StreamError, Vetting};
use crate::reply::{BoxFuture, Reply};

/// The endings that a file may get; anything else is `.bin`.
const ENDINGS: [&str; 8] = ["mp4", "mov", "webm", "gif", "mp3", "jpg", "png", "m4v"];

/// A copy that is there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Copied {
    pub path: PathBuf,
    pub bytes: u64,
}

/// Copies outputs.
pub struct Fetcher {
    folder: PathBuf,
    max: u64,
    longest: Duration,
    client: Client,
    /// Where an output is, is the provider's word.
    guard: Option<Vetting>,
}

impl Fetcher {
    /// `longest` is for one copy as a whole; `client`'s timeout for each piece of it.
    pub fn new(
        folder: &Path,
        max: u64,
        longest: Duration,
        client: &ClientConfig,
    ) -> Result<Self, ClientError> {
        let guard = client.guard.clone();
        Ok(Self { folder: folder.to_owned(), max, longest, client: Client::new(client)?, guard })
    }

    /// `turn` tells this try from others that may be under way at the same time.
    pub async fn copy(&self, render_id: Uuid, url: &str, turn: &str) -> Reply<Copied> {
        let started = Instant::now();
        let work = async {
            let outcome = match Url::parse(url) {
                Ok(url) => {
                    match self.guard.as_ref().map_or(Ok(()), |guard| guard.check_url(&url)) {
                        Ok(()) => judged(self.take(render_id, url, turn).await),
                        Err(refusal) => {
                            Outcome::Refused(Reason::new("OUTPUT_FORBIDDEN", refusal.to_string()))
                        }
                    }
                }
                Err(_) => Outcome::Refused(Reason::new("OUTPUT_UNREADABLE", "not an address")),
            };
            let reply = match &outcome {
                Outcome::Done(copied) => format!("{} bytes", copied.bytes),
                Outcome::Refused(reason) | Outcome::Busy { reason, .. } | Outcome::Lost(reason) => {
                    reason.message.clone()
                }
            };
            let request = "GET output".to_owned();
            let exchange = Exchange { request, reply, reference: None, sent: true };
            Reply { outcome, exchange, rtt: started.elapsed() }
        };
        counted("output", "copy", work).await
    }

    async fn take(&self, render_id: Uuid, url: Url, turn: &str) -> Result<Copied, StreamError> {
        let path = self.folder.join(format!("{render_id}.{}", ending(&url)));
        let part = self.folder.join(format!(".{render_id}.{turn}.part"));
        let (folder, opened) = (self.folder.clone(), part.clone());
        let file = blocking(move || {
            fs::create_dir_all(&folder)?;
            File::create(&opened)
        });
        let file = Arc::new(file.await?);
        let shared = Arc::clone(&file);
        let write = move |chunk: bytes::Bytes| -> BoxFuture<'static, io::Result<()>> {
            let file = Arc::clone(&shared);
            Box::pin(blocking(move || (&*file).write_all(&chunk)))
        };
        let bytes = match self.client.stream(url, self.max, self.longest, &write).await {
            Ok(bytes) => bytes,
            Err(error) => {
                // What is left of it helps nobody; that it cannot be removed changes nothing.
                blocking(move || fs::remove_file(part)).await.unwrap_or_default();
                return Err(error);
            }
        };
        let (folder, to) = (self.folder.clone(), path.clone());
        let kept = blocking(move || {
            file.sync_all()?;
            fs::rename(&part, &to)?;
            // A new name is on the disk when its folder is.
            File::open(&folder)?.sync_all()
        });
        kept.await?;
        Ok(Copied { path, bytes })
    }
}

/// Files block, so they are worked on beside the runtime.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| Err(io::Error::other(error)))
}

fn judged(taken: Result<Copied, StreamError>) -> Outcome<Copied> {
    match taken {
        Ok(copied) => Outcome::Done(copied),
        Err(StreamError::TooLarge(max)) => {
            let text = format!("the output is larger than {max} bytes");
            Outcome::Refused(Reason::new("OUTPUT_TOO_LARGE", text))
        }
        // Deleted; it will not come back.
        Err(StreamError::Status(status @ (404 | 410))) => {
            let text = format!("the output is gone: answered {status}");
            Outcome::Refused(Reason::new("OUTPUT_GONE", text))
        }
        Err(error) => {
            let reason = Reason::new("OUTPUT_NOT_COPIED", error.to_string());
            Outcome::Busy { reason, retry_in: None }
        }
    }
}

fn ending(url: &Url) -> &'static str {
    let name = url.path().rsplit('/').next().unwrap_or_default();
    let found = name.rsplit_once('.').map(|(_, ending)| ending.to_ascii_lowercase());
    let known = ENDINGS.iter().find(|known| found.as_deref() == Some(known));
    known.copied().unwrap_or("bin")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_strangers_address_chooses_no_name() {
        for (url, expected) in [
            ("https://a/b/c.MP4?x=.png", "mp4"),
            ("https://a/b/c.sh", "bin"),
            ("https://a/b/..%2fc", "bin"),
            ("https://a", "bin"),
        ] {
            assert_eq!(ending(&Url::parse(url).unwrap()), expected, "{url}");
        }
    }
}
