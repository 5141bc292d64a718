//! A folder instead of a mail server: one `.eml` per mail, as it would have travelled.
//!
//! A file is complete or not there: it is written under another name, synced, renamed, and the
//! folder synced. Its name is the Message-ID, so a repeated mail is one file. Mail programs open it.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use tashika_domain::digest::sha256;
use tashika_domain::mail::MailResult;
use tashika_domain::mail::verdict::classify_machine;
use tashika_domain::outcome::Exchange;
use tokio::time::Instant;

use super::mime::Message;
use super::{Parcel, Posted, Postman, observed, unsent};
use crate::reply::BoxFuture;

/// Writes mail into a folder.
#[derive(Clone, Debug)]
pub struct FilePostman {
    folder: PathBuf,
}

impl FilePostman {
    pub const NAME: &'static str = "file";

    /// Creates the folder if it is not there.
    pub fn new(folder: impl Into<PathBuf>) -> io::Result<Self> {
        let folder = folder.into();
        fs::create_dir_all(&folder)?;
        Ok(Self { folder })
    }

    async fn post(&self, parcel: &Parcel) -> Posted {
        let started = Instant::now();
        let message = match Message::of(parcel) {
            Ok(message) => message,
            Err(unfit) => return unsent("file".to_owned(), unfit.class, unfit.why),
        };
        let name = file_name(&parcel.message_id);
        let request = format!("file {name} for {}", message.to.masked());
        let folder = self.folder.clone();
        let to_write = name.clone();
        let work = move || write(&folder, &to_write, &message.bytes);
        let written = tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
            // The blocking task panicked or the runtime is going down.
            Err(io::Error::other(error))
        });
        let (result, reply) = match written {
            Ok(()) => (MailResult::Sent { response: name.clone() }, "written".to_owned()),
            Err(error) => {
                let text = error.to_string();
                let class = classify_machine(error.kind());
                let reply = format!("not written: {text}");
                (MailResult::Refused { class, code: None, text }, reply)
            }
        };
        let sent = matches!(result, MailResult::Sent { .. });
        let exchange = Exchange { request, reply, reference: sent.then_some(name), sent };
        Posted { result, exchange, rtt: started.elapsed() }
    }
}

/// A Message-ID as a file name. What a file name should not have becomes `_`, and then a digest
/// keeps names apart that would be the same.
fn file_name(message_id: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.@".contains(c);
    let mut name: String = message_id.chars().map(|c| if plain(c) { c } else { '_' }).collect();
    if name != message_id || name.starts_with('.') {
        let digest = sha256(message_id.as_bytes());
        name = format!("_{name}-{}", digest.trim_start_matches("sha256:"));
    }
    format!("{name}.eml")
}

fn write(folder: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    // One attempt at a time per mail, so nobody else writes under this name.
    let unfinished = folder.join(format!(".{name}.part"));
    let mut file = File::create(&unfinished)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&unfinished, folder.join(name))?;
    // The rename is durable when the folder is.
    File::open(folder)?.sync_all()
}

impl Postman for FilePostman {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn send<'a>(&'a self, parcel: &'a Parcel) -> BoxFuture<'a, Posted> {
        Box::pin(observed(Self::NAME, self.post(parcel)))
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        let folder = self.folder.clone();
        Box::pin(async move {
            let probe = move || {
                let file = folder.join(format!(".probe-{}", std::process::id()));
                File::create(&file)?.sync_all()?;
                fs::remove_file(&file)
            };
            let tried = tokio::task::spawn_blocking(probe).await;
            let tried = tried.unwrap_or_else(|error| Err(io::Error::other(error)));
            tried.map_err(|error| format!("the folder for mail cannot be written to: {error}"))
        })
    }
}
