//! Confirming events that nobody signed: what they claim is asked for where it must be true.
//!
//! Called by the webhooks' handler before anything is done about such an event. The callback is a hint
//! and no more: what counts from then on is the answer, which is kept with the event. A claim that is
//! denied fails, so that the true callback, if it comes, opens the event again; an event about
//! something that does not exist is passed over.

use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_domain::outcome::{Outcome, Reason};
use tashika_domain::webhook::{WebhookEvent, keepable};
use tashika_providers::shotstack::{Render, Shotstack};

use crate::handler::Tried;

/// Who can be asked.
#[derive(Clone, Debug, Default)]
pub struct Confirmers {
    pub shotstack: Option<Arc<Shotstack>>,
}

/// What came of asking.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Confirmed {
    /// It is true, and this is what the other side says.
    Yes(Value),
    /// There is nothing to it.
    PassOver(String),
}

impl Confirmed {
    fn into_tried(self) -> Tried {
        Tried::done(match self {
            Self::Yes(answer) => json!({ "confirmed": answer }),
            Self::PassOver(why) => json!({ "passOver": why }),
        })
    }

    /// What the attempt has brought; `None` if it did not ask.
    pub fn from_result(result: Option<&Value>) -> Option<Self> {
        let result = result?;
        if let Some(answer) = result.get("confirmed") {
            return Some(Self::Yes(answer.clone()));
        }
        Some(Self::PassOver(result.get("passOver")?.as_str()?.to_owned()))
    }
}

impl Confirmers {
    /// Asks `by`, once.
    pub(crate) async fn ask(&self, by: &str, event: &WebhookEvent, now: Timestamp) -> Tried {
        if let ("shotstack", Some(shotstack)) = (by, &self.shotstack) {
            return render(shotstack, event, now).await;
        }
        // Perhaps a process with a newer configuration can.
        let text = format!("no key is configured to ask {by} whether this is true");
        let reason = Reason::new("CANNOT_CONFIRM", text);
        Tried::new(Outcome::Busy { reason, retry_in: None })
    }
}

/// What a render can be. Only the last two are told about in callbacks, and do not change any more.
const STATUSES: [&str; 6] = ["queued", "fetching", "rendering", "saving", "done", "failed"];
const FINAL: [&str; 2] = ["done", "failed"];

async fn render(shotstack: &Shotstack, event: &WebhookEvent, now: Timestamp) -> Tried {
    let said = event.said();
    let field = |name: &str| said.get(name).and_then(Value::as_str).unwrap_or_default();
    if (field("type"), field("action")) != ("edit", "render") {
        let why = "not confirmed: only callbacks of type edit about renders can be";
        return Confirmed::PassOver(why.to_owned()).into_tried();
    }
    let reply = shotstack.render(field("id"), now).await;
    let tried = match reply.outcome {
        Outcome::Done(Render::Known { status, answer }) => judge(field("status"), &status, answer),
        Outcome::Done(Render::Unknown) => {
            let why = "not confirmed: Shotstack knows no render of this id";
            Confirmed::PassOver(why.to_owned()).into_tried()
        }
        Outcome::Refused(reason) => Tried::new(Outcome::Refused(reason)),
        Outcome::Busy { reason, retry_in } => Tried::new(Outcome::Busy { reason, retry_in }),
        // A read that was lost leaves no doubt.
        Outcome::Lost(reason) => Tried::new(Outcome::Busy { reason, retry_in: None }),
    };
    Tried { exchange: Some(reply.exchange), rtt: reply.rtt, ..tried }
}

fn judge(claimed: &str, status: &str, answer: Value) -> Tried {
    if claimed == status {
        return Confirmed::Yes(keepable(answer)).into_tried();
    }
    // What a stranger wrote is not repeated, unless it is one of the words.
    let said = STATUSES.iter().find(|word| **word == claimed).unwrap_or(&"something else");
    if FINAL.contains(said) && !FINAL.contains(&status) {
        // Forged, or told a moment before it can be read.
        let text = format!("the callback says {said}, Shotstack still {status}");
        let reason = Reason::new("NOT_CONFIRMED_YET", text);
        return Tried::new(Outcome::Busy { reason, retry_in: None });
    }
    Tried::refused("NOT_CONFIRMED", format!("the callback says {said}, Shotstack {status}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_shotstack_says_itself_is_confirmed() {
        let judged = |claimed: &str, status: &str| {
            let tried = judge(claimed, status, json!({"status": status}));
            match tried.outcome {
                Outcome::Done(result) => match Confirmed::from_result(Some(&result)) {
                    Some(Confirmed::Yes(answer)) => {
                        assert_eq!(answer["status"], *status);
                        "yes".to_owned()
                    }
                    other => panic!("{other:?}"),
                },
                Outcome::Refused(reason) | Outcome::Busy { reason, .. } => reason.code,
                Outcome::Lost(reason) => panic!("{reason:?}"),
            }
        };
        for status in STATUSES {
            assert_eq!(judged(status, status), "yes");
        }
        for (claimed, status, expected) in [
            ("done", "failed", "NOT_CONFIRMED"),
            ("failed", "done", "NOT_CONFIRMED"),
            ("done", "saving", "NOT_CONFIRMED_YET"),
            ("failed", "queued", "NOT_CONFIRMED_YET"),
            ("saving", "done", "NOT_CONFIRMED"),
            ("<script>", "done", "NOT_CONFIRMED"),
        ] {
            assert_eq!(judged(claimed, status), expected, "{claimed} {status}");
        }
        assert_eq!(Confirmed::from_result(Some(&Value::Null)), None);
        assert_eq!(Confirmed::from_result(None), None);
    }
}
