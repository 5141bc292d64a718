//! What operators send about alerts and cases, checked field by field.

use std::time::Duration;

use serde_json::Value;

use crate::check::{Check, Violation, whole};
use crate::time::Timestamp;

/// The longest note, in characters.
pub const NOTE_MAX: usize = 500;

/// The longest silence: whoever wants more switches the rule off.
const MINUTES_MAX: u64 = 60 * 24 * 30;

/// `{note}`, where a note may be left out.
pub fn parse_note(body: &Value) -> Result<String, Vec<Violation>> {
    let mut check = Check::of(body)?;
    let note = check.text("note", 0..=NOTE_MAX, false).unwrap_or_default();
    check.finish(note)
}

/// `{minutes | until, reason}`. No minutes, or a moment that is over, end a silence.
pub fn parse_silence(body: &Value, now: Timestamp) -> Result<(Timestamp, String), Vec<Violation>> {
    let mut check = Check::of(body)?;
    let reason = check.text("reason", 1..=NOTE_MAX, true).unwrap_or_default();
    let latest = now.plus(Duration::from_secs(MINUTES_MAX * 60));
    let until = match (check.map.get("minutes"), check.map.get("until")) {
        (Some(_), Some(_)) => {
            check.wrong("until", "must not be given beside minutes");
            now
        }
        (None, None) => {
            check.wrong("minutes", "is required, or until");
            now
        }
        (Some(minutes), None) => {
            let minutes = whole(minutes).and_then(|minutes| u64::try_from(minutes).ok());
            let minutes = minutes.filter(|minutes| *minutes <= MINUTES_MAX);
            if minutes.is_none() {
                check.wrong("minutes", format!("must be a whole number from 0 to {MINUTES_MAX}"));
            }
            now.plus(Duration::from_secs(minutes.unwrap_or(0) * 60))
        }
        (None, Some(until)) => match until.as_str().and_then(|text| text.parse().ok()) {
            Some(until) if until <= latest => until,
            Some(_) => {
                check.wrong("until", "must be within 30 days");
                now
            }
            None => {
                check.wrong("until", "must be a moment as RFC 3339 has it");
                now
            }
        },
    };
    check.finish((until, reason))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_571_200_000_000);

    #[test]
    fn a_silence_has_an_end_and_a_reason() {
        let (until, reason) = parse_silence(&json!({"minutes": 30, "reason": "x"}), NOW).unwrap();
        assert_eq!((until, reason.as_str()), (NOW.plus(Duration::from_secs(1800)), "x"));
        let moment = NOW.plus(Duration::from_secs(7));
        let body = json!({"until": moment, "reason": "x"});
        assert_eq!(parse_silence(&body, NOW).unwrap().0, moment);
        assert_eq!(parse_silence(&json!({"minutes": 0, "reason": "x"}), NOW).unwrap().0, NOW);
        for (body, field) in [
            (json!({"minutes": 30}), "reason"),
            (json!({"minutes": 30, "reason": ""}), "reason"),
            (json!({"reason": "x"}), "minutes"),
            (json!({"minutes": 30, "until": NOW, "reason": "x"}), "until"),
            (json!({"minutes": -1, "reason": "x"}), "minutes"),
            (json!({"minutes": 1e9, "reason": "x"}), "minutes"),
            (json!({"until": "tomorrow", "reason": "x"}), "until"),
            (json!({"until": "2999-01-01T00:00:00Z", "reason": "x"}), "until"),
            (json!([]), ""),
        ] {
            let violations = parse_silence(&body, NOW).unwrap_err();
            assert_eq!(violations[0].field, field, "{body}");
        }
    }

    #[test]
    fn a_note_may_be_left_out() {
        assert_eq!(parse_note(&json!({})).unwrap(), "");
        assert_eq!(parse_note(&json!({"note": "why"})).unwrap(), "why");
        assert!(parse_note(&json!({"note": 7})).is_err());
        assert!(parse_note(&json!({"note": "x".repeat(NOTE_MAX + 1)})).is_err());
    }
}
