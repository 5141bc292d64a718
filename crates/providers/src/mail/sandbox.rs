//! The default postman: inside the process, sends nothing to anybody.
//!
//! For development, demonstrations and the first day with a new installation. What it takes is kept
//! by whoever asked, with the mail; nothing leaves. The part of the address before the `@` chooses
//! what happens, so that every way a mail can go can be tried by hand. `+` and whatever follows is
//! ignored, so `refused+17@example.com` is a recipient of its own:
//!
//! | Recipient | What happens |
//! |---|---|
//! | `refused@…` | 550 at RCPT: no such mailbox |
//! | `toolong@…` | 552 after the mail |
//! | `unverified@…` | 554 after the mail: the sender is not verified |
//! | `greylist@…` | 451 twice for each mail, then taken |
//! | `throttled@…` | 454 once for each mail: the sending rate; then taken |
//! | `quota@…` | 454: the daily quota |
//! | `badlogin@…` | 535: the credentials |
//! | `unreachable@…` | no connection |
//! | `lost@…` | no answer after the mail: possibly sent |
//! | anything else | taken |
//!
//! How often a mail was turned away is remembered in memory, by its Message-ID, for the last
//! [`REMEMBERED_MAX`] mails: a restart begins again, which costs an attempt.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use tashika_domain::mail::{MailResult, Stage, classify};
use tashika_domain::outcome::Exchange;
use tokio::time::Instant;

use super::mime::Message;
use super::{Parcel, Posted, Postman, observed, unsent};
use crate::reply::BoxFuture;

/// Mails whose attempts are counted; more than are under way at once.
const REMEMBERED_MAX: usize = 10_000;

/// What happens to mail for a magic recipient: that often, and at which step with which answer.
struct Fate {
    local_part: &'static str,
    times: u32,
    stage: Stage,
    code: Option<u16>,
    text: &'static str,
}

const fn fate(
    local_part: &'static str,
    times: u32,
    stage: Stage,
    code: Option<u16>,
    text: &'static str,
) -> Fate {
    Fate { local_part, times, stage, code, text }
}

const FATES: &[Fate] = &[
    fate("refused", u32::MAX, Stage::RcptTo, Some(550), "5.1.1 no such mailbox"),
    fate("toolong", u32::MAX, Stage::AfterData, Some(552), "Message is too long"),
    fate(
        "unverified",
        u32::MAX,
        Stage::AfterData,
        Some(554),
        "Message rejected: Email address is not verified",
    ),
    fate("greylist", 2, Stage::RcptTo, Some(451), "4.7.1 come again later"),
    fate(
        "throttled",
        1,
        Stage::AfterData,
        Some(454),
        "Throttling failure: Maximum sending rate exceeded",
    ),
    fate(
        "quota",
        u32::MAX,
        Stage::AfterData,
        Some(454),
        "Throttling failure: Daily message quota exceeded",
    ),
    fate("badlogin", u32::MAX, Stage::Auth, Some(535), "Authentication Credentials Invalid"),
    fate("unreachable", u32::MAX, Stage::Connect, None, "connection refused"),
    fate("lost", u32::MAX, Stage::AfterData, None, "no answer"),
];

/// The sandbox.
#[derive(Debug)]
pub struct SandboxPostman {
    timeout: Duration,
    turned_away: Mutex<HashMap<String, u32>>,
}

impl SandboxPostman {
    pub const NAME: &'static str = "sandbox";

    /// `timeout` is how long a caller waits for an answer that does not come.
    #[must_use]
    pub fn new(timeout: Duration) -> Self {
        Self { timeout, turned_away: Mutex::new(HashMap::new()) }
    }

    async fn post(&self, parcel: &Parcel) -> Posted {
        let started = Instant::now();
        // What no server would get, the sandbox does not get either.
        let message = match Message::of(parcel) {
            Ok(message) => message,
            Err(unfit) => return unsent("sandbox".to_owned(), unfit.class, unfit.why),
        };
        let word = message.to.local_part().split('+').next().unwrap_or_default();
        let fate = FATES.iter().find(|fate| fate.local_part.eq_ignore_ascii_case(word));
        let met = fate.filter(|fate| self.is_turned_away(&parcel.message_id, fate.times));
        let (result, stage) = match met {
            None => {
                let response = format!("Ok {}", parcel.message_id);
                (MailResult::Sent { response }, Stage::AfterData)
            }
            Some(fate) => {
                if fate.code.is_none() && fate.stage == Stage::AfterData {
                    tokio::time::sleep(self.timeout).await;
                }
                let class = classify(fate.stage, fate.code, fate.text);
                let text = fate.text.to_owned();
                (MailResult::Refused { class, code: fate.code, text }, fate.stage)
            }
        };
        let exchange = Exchange {
            request: format!(
                "sandbox RCPT TO:<{}> {} bytes, Message-ID {}",
                message.to.masked(),
                message.bytes.len(),
                parcel.message_id
            ),
            reply: said(&result, stage),
            reference: None,
            sent: stage >= Stage::Data,
        };
        Posted { result, exchange, rtt: started.elapsed() }
    }

    /// Counts, where there is something to count.
    fn is_turned_away(&self, message_id: &str, times: u32) -> bool {
        if times == u32::MAX {
            return true;
        }
        let mut seen = self.turned_away.lock().unwrap_or_else(PoisonError::into_inner);
        if seen.len() >= REMEMBERED_MAX && !seen.contains_key(message_id) {
            seen.clear();
        }
        let count = seen.entry(message_id.to_owned()).or_default();
        *count = count.saturating_add(1);
        *count <= times
    }
}

fn said(result: &MailResult, stage: Stage) -> String {
    match result {
        MailResult::Sent { response } => format!("250 {response}"),
        MailResult::Refused { code: Some(code), text, .. } => {
            format!("at {}: {code} {text}", stage.as_str())
        }
        MailResult::Refused { code: None, text, .. } => format!("at {}: {text}", stage.as_str()),
    }
}

impl Postman for SandboxPostman {
    fn name(&self) -> &str {
        Self::NAME
    }

    fn send<'a>(&'a self, parcel: &'a Parcel) -> BoxFuture<'a, Posted> {
        Box::pin(observed(Self::NAME, self.post(parcel)))
    }

    fn probe(&self) -> BoxFuture<'_, Result<(), String>> {
        Box::pin(std::future::ready(Ok(())))
    }
}
