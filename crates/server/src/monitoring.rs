//! The rules as Prometheus and Grafana take them, written from the one table.
//!
//! `tashika alerts rules --prometheus` and `tashika alerts dashboard` print them with the numbers in force;
//! `docs/monitoring` has them with the defaults, compared by a test.

use std::fmt::Write as _;

use serde_json::{Value, json};
use tashika_domain::alert::rules::{Measure, Rule, span};

/// A rules file for Prometheus.
#[must_use]
pub fn prometheus(rules: &[Rule]) -> String {
    let mut text = String::from(
        "# Written by `tashika alerts rules --prometheus`; a test compares.\n\
         groups:\n  - name: tashika\n    rules:\n",
    );
    for rule in rules.iter().filter(|rule| rule.enabled) {
        // Writing to a String cannot fail.
        write!(
            text,
            "      - alert: {}\n        expr: {}\n",
            camel(rule.name),
            quoted(&rule.expression()),
        )
        .unwrap_or_default();
        if !rule.hold.is_zero() {
            writeln!(text, "        for: {}", span(rule.hold)).unwrap_or_default();
        }
        write!(
            text,
            "        labels:\n          severity: {}\n          rule: {}\n        annotations:\n          \
             summary: {}\n          summary_ja: {}\n          description: {}\n          \
             description_ja: {}\n",
            rule.severity.as_str(),
            rule.name,
            quoted(rule.text.en),
            quoted(rule.text.ja),
            quoted(rule.advice.en),
            quoted(rule.advice.ja),
        )
        .unwrap_or_default();
    }
    text
}

/// A text in double quotes: YAML takes what JSON writes.
fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}

/// `manual_case` → `TashikaManualCase`, as alerts are named there.
fn camel(name: &str) -> String {
    let capital = |word: &str| {
        let mut letters = word.chars();
        letters.next().map(|first| first.to_uppercase().collect::<String>() + letters.as_str())
    };
    name.split('_').fold("Tashika".to_owned(), |all, word| all + &capital(word).unwrap_or_default())
}

/// The table for people: `docs/monitoring/rules.md`.
#[must_use]
pub fn markdown(rules: &[Rule]) -> String {
    let mut text = String::from(
        "# Rules\n\n<!-- Written from crates/domain/src/alert/rules/table.rs; a test compares. -->\n\n\
         | Rule | Severity | Fires when | Window | For | Means | What to do |\n\
         |---|---|---|---|---|---|---|\n",
    );
    let or_none = |text: String| if text == "0s" { "–".to_owned() } else { text };
    for rule in rules {
        let condition = match rule.measure {
            Measure::Reported => "it is reported".to_owned(),
            _ => format!("{} {}", rule.comparison.as_str(), rule.threshold),
        };
        let few = match rule.minimum {
            0 | 1 => String::new(),
            minimum => format!(", of at least {minimum}"),
        };
        // Writing to a String cannot fail.
        writeln!(
            text,
            "| `{}` | {} | {condition}{few} | {} | {} | {} | {} |",
            rule.name,
            rule.severity.as_str(),
            or_none(span(rule.window)),
            or_none(span(rule.hold)),
            rule.text.en,
            rule.advice.en,
        )
        .unwrap_or_default();
    }
    text
}

/// Panels in a row, and their size on Grafana's grid of 24 columns.
const COLUMNS: usize = 3;
const WIDTH: usize = 8;
const HEIGHT: usize = 7;

/// A dashboard for Grafana: what fires, then one panel per rule with its threshold.
#[must_use]
pub fn dashboard(rules: &[Rule]) -> Value {
    let source = json!({"type": "prometheus", "uid": "${datasource}"});
    let mut panels = vec![json!({
        "id": 1,
        "type": "stat",
        "title": "Firing alerts",
        "datasource": source,
        "gridPos": {"x": 0, "y": 0, "w": 24, "h": 4},
        "targets": [{"refId": "A", "expr": "sum by (rule) (max by (rule) (alert_firing)) > 0",
            "legendFormat": "{{rule}}", "datasource": source}],
        "fieldConfig": {"defaults": {"color": {"mode": "fixed", "fixedColor": "red"},
            "noValue": "none"}, "overrides": []},
        "options": {"reduceOptions": {"calcs": ["lastNotNull"]}, "textMode": "value_and_name"},
    })];
    for (place, rule) in rules.iter().filter(|rule| rule.enabled).enumerate() {
        let (row, column) = (place / COLUMNS, place % COLUMNS);
        panels.push(json!({
            "id": place + 2,
            "type": "timeseries",
            "title": format!("{} ({})", rule.name, rule.severity.as_str()),
            "description": format!("{}. {}", rule.text.en, rule.advice.en),
            "datasource": source,
            "gridPos": {"x": column * WIDTH, "y": 4 + row * HEIGHT, "w": WIDTH, "h": HEIGHT},
            "targets": [{
                "refId": "A",
                "expr": rule.measure.expression(rule.name, rule.window),
                "legendFormat": rule.name,
                "datasource": source,
            }],
            "fieldConfig": {
                "defaults": {
                    "custom": {"thresholdsStyle": {"mode": "line"}, "fillOpacity": 10},
                    "thresholds": {"mode": "absolute", "steps": [
                        {"color": "green", "value": null},
                        {"color": "red", "value": rule.threshold},
                    ]},
                },
                "overrides": [],
            },
            "options": {"legend": {"showLegend": false}, "tooltip": {"mode": "single"}},
        }));
    }
    json!({
        "uid": "tashika",
        "title": "Tashika",
        "tags": ["tashika"],
        "schemaVersion": 39,
        "editable": true,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "templating": {"list": [
            {"name": "datasource", "type": "datasource", "query": "prometheus", "label": "Prometheus"},
        ]},
        "panels": panels,
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::process::Command;

    use tashika_domain::alert::rules::{Rule, defaults};

    use super::*;
    use crate::telemetry::metrics::CONTRACT;

    const RULES: &str = "docs/monitoring/tashika.rules.yml";

    #[test]
    fn the_documentation_has_the_rules_and_the_dashboard() {
        crate::testing::same_as_file(RULES, &prometheus(&defaults()));
        crate::testing::same_as_file("docs/monitoring/rules.md", &markdown(&defaults()));
        let dashboard = format!("{:#}\n", dashboard(&defaults()));
        crate::testing::same_as_file("docs/monitoring/tashika.dashboard.json", &dashboard);
    }

    /// Names in an expression that are neither functions, nor words of the language, nor labels.
    fn metrics_in(expression: &str) -> Vec<String> {
        const WORDS: [&str; 13] = [
            "sum",
            "max",
            "by",
            "increase",
            "rate",
            "or",
            "and",
            "vector",
            "histogram_quantile",
            "le",
            "kind",
            "m",
            "h",
        ];
        let mut names = Vec::new();
        let mut rest = String::new();
        let mut inside = 0;
        for letter in expression.chars() {
            match letter {
                '{' => inside += 1,
                '}' => inside -= 1,
                other if inside == 0 => rest.push(other),
                _ => {}
            }
        }
        for word in rest.split(|c: char| !c.is_ascii_alphanumeric() && c != '_') {
            let starts = word.chars().next().is_some_and(|c| c.is_ascii_alphabetic());
            if starts && !WORDS.contains(&word) {
                names.push(word.trim_end_matches("_bucket").to_owned());
            }
        }
        names
    }

    #[test]
    fn every_expression_is_about_metrics_that_there_are() {
        for rule in defaults() {
            let names = metrics_in(&rule.expression());
            assert!(!names.is_empty(), "{}", rule.name);
            for name in names {
                let known = CONTRACT.iter().any(|metric| metric.name == name);
                assert!(known, "{}: {name} in {}", rule.name, rule.expression());
            }
        }
    }

    #[test]
    fn each_rule_has_an_alert_and_a_panel_and_what_is_off_has_none() {
        let mut rules = defaults();
        rules[0].enabled = false;
        let (text, board) = (prometheus(&rules), dashboard(&rules));
        let count = rules.len() - 1;
        assert_eq!(text.matches("- alert: Tashika").count(), count);
        let panels = board["panels"].as_array().unwrap();
        assert_eq!(panels.len(), count + 1);
        let title = |rule: &Rule| format!("{} ({})", rule.name, rule.severity.as_str());
        for rule in &rules {
            assert_eq!(text.contains(&format!("rule: {}\n", rule.name)), rule.enabled);
            assert_eq!(panels.iter().any(|panel| panel["title"] == title(rule)), rule.enabled);
        }
        assert!(text.contains("        for: 15m\n"), "{text}");
    }

    /// Where Prometheus is installed, it has the last word. Elsewhere the tests above look at the structure,
    /// and this one says what it did not do.
    #[test]
    fn prometheus_itself_takes_the_rules_if_it_is_here() {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(RULES);
        match Command::new("promtool").args(["check", "rules"]).arg(&file).output() {
            Ok(checked) => {
                let said = String::from_utf8_lossy(&checked.stderr).into_owned()
                    + &String::from_utf8_lossy(&checked.stdout);
                assert!(checked.status.success(), "{said}");
            }
            Err(error) => {
                eprintln!("promtool is not here ({error}): only the structure was checked");
            }
        }
    }
}
