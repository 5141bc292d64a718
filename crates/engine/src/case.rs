//! Cases about what Tashika itself has given up.

use serde_json::json;
use tashika_domain::case::dead_letter;
use tashika_domain::effect::{Effect, Verdict};
use tashika_domain::{Changes, Timestamp, Write, alert, event, webhook};

/// The kinds of effects whose end nobody else tells a person about: callers are told what became of their
/// orders and payments, and messages have a list of dead letters.
const OWN: [&str; 3] = [webhook::KIND, event::KIND, alert::notify::KIND];

/// Opens a case for an effect of ours that was given up.
pub(crate) fn given_up(effect: &Effect, verdict: &Verdict, now: Timestamp) -> Changes {
    let (Verdict::Aborted { reason, .. }, Some(kind)) =
        (verdict, OWN.into_iter().find(|kind| *kind == effect.kind))
    else {
        return Changes::new();
    };
    let what = match kind {
        webhook::KIND => "A webhook could not be processed",
        event::KIND => "An event could not be delivered to its sink",
        _ => "A notification about an alert could not be delivered",
    };
    let details = json!({
        "outboxId": effect.id,
        "attempts": effect.attempts + 1,
        "code": reason.code,
        "error": reason.message,
    });
    let summary = format!("{what}: {} ({}).", reason.message, reason.code);
    let case = dead_letter(kind, effect.id.to_string(), summary, &details, now);
    Changes::from(Write::OpenCase(case))
}
