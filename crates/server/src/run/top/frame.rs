//! What `tashika top` shows, as lines.

use serde_json::Value;
use tashika_domain::Timestamp;

use crate::run::output::{ago, text};
use crate::run::table;

/// A line, and whether it stands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Line {
    pub text: String,
    pub strong: bool,
}

impl Line {
    pub fn plain(text: impl Into<String>) -> Self {
        Self { text: text.into(), strong: false }
    }

    fn strong(text: impl Into<String>) -> Self {
        Self { text: text.into(), strong: true }
    }
}

/// The numbers of the first line, as the document names them.
const COUNTS: [(&str, &str); 6] = [
    ("openCases", "open cases"),
    ("firingAlerts", "alerts firing"),
    ("paymentsInDoubt", "payments in doubt"),
    ("deadLetters", "dead letters"),
    ("abortedEffects", "given up"),
    ("failedWebhooks", "webhooks failed"),
];

pub fn frame(reading: &Value, now: Timestamp) -> Vec<Line> {
    let mut lines = vec![
        Line::strong(format!("tashika top   {now}   q ends")),
        Line::plain(String::new()),
        Line::plain(counts(reading)),
    ];
    if let Some(lane) = reading.get("mailLane") {
        let why = table::plain(&text(&lane["reason"]));
        lines.push(Line::strong(format!("the mail lane is {}: {why}", text(&lane["state"]))));
    }
    section(&mut lines, "LANE", &lane_table(reading, now));
    let since = |item: &Value, name: &str| {
        item[name]
            .as_str()
            .and_then(|at| at.parse().ok())
            .map_or_else(String::new, |at| ago(at, now))
    };
    let cells = |item: &Value, names: &[&str]| names.iter().map(|n| text(&item[*n])).collect();
    list(
        &mut lines,
        reading,
        "alerts",
        &["ALERT", "SEVERITY", "COUNT", "FOR", "MESSAGE"],
        |item| {
            let mut row: Vec<String> = cells(item, &["rule", "severity", "count"]);
            row.extend([since(item, "firedAt"), text(&item["message"])]);
            row
        },
    );
    list(&mut lines, reading, "cases", &["CASE", "KIND", "OPEN FOR", "SUMMARY"], |item| {
        let mut row: Vec<String> = cells(item, &["id", "kind"]);
        row.extend([since(item, "openedAt"), text(&item["summary"])]);
        row
    });
    list(&mut lines, reading, "races", &["RACE", "ENDED", "AGO", "ABOUT"], |item| {
        let mut row: Vec<String> = cells(item, &["scenario", "resolution"]);
        let about = format!("{} {}", text(&item["subjectType"]), text(&item["subjectId"]));
        row.extend([since(item, "detectedAt"), about]);
        row
    });
    list(&mut lines, reading, "processes", &["PROCESS", "STATE", "UP", "SEEN"], |item| {
        let state = if item["alive"] == true { "alive" } else { "SILENT: its lease has run out" };
        vec![
            text(&item["id"]),
            state.to_owned(),
            since(item, "startedAt"),
            since(item, "heartbeatAt"),
        ]
    });
    if reading["processes"].as_array().is_none_or(Vec::is_empty) {
        lines.push(Line::plain(String::new()));
        lines.push(Line::strong("no process works on this database"));
    }
    lines
}

fn counts(reading: &Value) -> String {
    let most = reading["countMax"].as_i64().unwrap_or(i64::MAX);
    let shown = COUNTS.map(|(field, name)| {
        let count = reading["counts"][field].as_i64().unwrap_or(0);
        // Counting ends there.
        let more = if count >= most { "+" } else { "" };
        format!("{count}{more} {name}")
    });
    shown.join(" · ")
}

/// Waits, and what became of effects in the last minute.
fn lane_table(reading: &Value, now: Timestamp) -> Vec<String> {
    let headings =
        ["LANE", "WAITING", "OLDEST", "IN HAND", "DONE/MIN", "RETRIED/MIN", "GIVEN UP/MIN"];
    let row = |lane: &Value| {
        let oldest = lane["oldestDueAt"].as_str().and_then(|at| at.parse().ok());
        vec![
            text(&lane["lane"]),
            text(&lane["waiting"]),
            oldest.map_or_else(String::new, |at| ago(at, now)),
            text(&lane["sending"]),
            text(&lane["succeeded"]),
            text(&lane["failed"]),
            text(&lane["aborted"]),
        ]
    };
    let rows: Vec<_> = reading["lanes"].as_array().into_iter().flatten().map(row).collect();
    table::lines(&headings, &rows)
}

/// A part of the page; left out where there is nothing in it.
fn list(
    lines: &mut Vec<Line>,
    reading: &Value,
    name: &str,
    headings: &[&str],
    row: impl Fn(&Value) -> Vec<String>,
) {
    let rows: Vec<_> = reading[name].as_array().into_iter().flatten().map(row).collect();
    if !rows.is_empty() {
        section(lines, headings[0], &table::lines(headings, &rows));
    }
}

/// A blank line, the headings, the rows.
fn section(lines: &mut Vec<Line>, first: &str, table: &[String]) {
    lines.push(Line::plain(String::new()));
    for line in table {
        let strong = line.starts_with(first);
        lines.push(Line { text: line.clone(), strong });
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const NOW: Timestamp = Timestamp::from_micros(1_767_571_200_000_000);

    fn text_of(lines: &[Line]) -> String {
        lines.iter().map(|line| line.text.as_str()).collect::<Vec<_>>().join("\n")
    }

    #[test]
    fn everything_that_is_known_is_shown() {
        let before = NOW.minus(std::time::Duration::from_secs(300));
        let reading = json!({
            "countMax": 1000,
            "counts": {"openCases": 2, "firingAlerts": 1, "abortedEffects": 1000, "deadLetters": 0,
                "failedWebhooks": 0, "paymentsInDoubt": 3},
            "lanes": [{"lane": "orders", "waiting": 7, "oldestDueAt": before, "sending": 2,
                "succeeded": 40, "failed": 1, "aborted": 0}],
            "alerts": [{"rule": "manual_case", "severity": "critical", "count": 2, "firedAt": before,
                "message": "somebody must decide"}],
            "cases": [{"id": "c-1", "kind": "payment_unknown", "openedAt": before, "summary": "\x1b[2Jlost"}],
            "races": [{"scenario": "EXPIRED_AFTER_PAYMENT", "resolution": "REFUNDED",
                "detectedAt": before, "subjectType": "reservation", "subjectId": "r-1"}],
            "processes": [{"id": "host:1:a", "startedAt": before, "heartbeatAt": NOW, "alive": true},
                {"id": "host:2:b", "startedAt": before, "heartbeatAt": before, "alive": false}],
            "mailLane": {"state": "stopped", "reason": "535 no"},
        });
        let shown = text_of(&frame(&reading, NOW));
        for part in [
            "2 open cases · 1 alerts firing · 3 payments in doubt",
            "1000+ given up",
            "the mail lane is stopped: 535 no",
            "orders  7        5m      2        40        1            0",
            "manual_case  critical  2      5m   somebody must decide",
            "payment_unknown  5m         [2Jlost",
            "EXPIRED_AFTER_PAYMENT  REFUNDED  5m   reservation r-1",
            "host:2:b  SILENT",
        ] {
            assert!(shown.contains(part), "{part}:\n{shown}");
        }
        assert!(!shown.contains('\x1b'), "{shown}");
    }

    #[test]
    fn an_empty_store_says_so() {
        let lines = frame(&json!({"counts": {}, "lanes": [], "processes": []}), NOW);
        let shown = text_of(&lines);
        assert!(shown.contains("0 open cases") && shown.contains("no process works"), "{shown}");
        assert!(!shown.contains("ALERT") && lines[0].strong, "{shown}");
    }
}
