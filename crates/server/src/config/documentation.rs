//! The table of settings as documents: `docs/configuration.md` and `config.default.toml`.
//!
//! Written by `tashika config --markdown` and `tashika config --defaults`; tests compare the files
//! with what is rendered here, so a setting cannot be added without being documented.

use std::fmt::Write as _;

use super::keys::{Key, Kind, LANE_DEFAULTS, PER_LANE, keys};
use super::rules::RULES;
use super::value;

const INTRODUCTION: &str = "\
# Configuration

<!-- Written by `tashika config --markdown`; a test compares. Change crates/server/src/config/keys.rs. -->

Every setting has one name. It can stand in the environment or in a file, and the environment wins:

1. the defaults below, compiled in (`tashika config --defaults` prints them as a file to start from);
2. a TOML file, named by `--config PATH` or `TASHIKA_CONFIG`, with the same names as keys:
   `OUTBOX_CONCURRENCY = 8`;
3. environment variables. An empty variable counts as not set, except `ORDER_INSTRUMENTS`.

`tashika config` shows what is in force and where each value came from, secrets hidden. A secret can
also be read from a file: `TASHIKA_API_TOKENS_FILE=/run/secrets/tokens`; the same goes for
`TASHIKA_DATABASE_URL_FILE` and `BROKER_SECRET_FILE`. Names that do not exist are refused in the file
and, where they look like a typing error, warned about in the environment. Names that end in `_SEC` are
seconds (fractions allowed), in `_MS` milliseconds, in `_HOURS` hours (fractions allowed).
";

/// `docs/configuration.md`.
#[must_use]
pub fn markdown() -> String {
    let mut text = INTRODUCTION.to_owned();
    let mut section = "";
    for key in keys() {
        if key.section != section {
            section = key.section;
            push(
                &mut text,
                &format!(
                    "\n## {section}\n\n| Name | Default | Meaning | Form |\n|---|---|---|---|"
                ),
            );
        }
        let default = match key.default {
            "" => "none".to_owned(),
            other => format!("`{other}`"),
        };
        let form = value::expected(key.kind);
        push(&mut text, &format!("| `{}` | {default} | {} | {form} |", key.name, key.about));
    }
    push(&mut text, &lanes());
    push(&mut text, &refused());
    text
}

fn lanes() -> String {
    let lanes: Vec<String> =
        tashika_domain::Lane::OWN.iter().map(|lane| format!("`{lane}`")).collect();
    let own = LANE_DEFAULTS.map(|(lane, suffix, own)| format!("`{suffix}` {own} for `{lane}`"));
    let suffixes: Vec<String> = PER_LANE.iter().map(|suffix| format!("`{suffix}`")).collect();
    format!(
        "
## One lane only

`OUTBOX_<LANE>_<NAME>` overrides `OUTBOX_<NAME>` for one lane: `OUTBOX_ORDERS_CONCURRENCY=16`,
`OUTBOX_MAIL_RATE_PER_SEC=2.5`.

- Lanes: {}.
- Names: {}.
- Defaults of single lanes, where nothing else is set: {}.",
        lanes.join(", "),
        suffixes.join(", "),
        own.join(", "),
    )
}

fn refused() -> String {
    let mut text = String::from(
        "
## Combinations that are refused

The server does not start with these, and the message names both settings.

| Settings | Because |
|---|---|",
    );
    for rule in RULES {
        let [one, other] = rule.keys;
        // Writing to a String cannot fail.
        write!(text, "\n| `{one}`, `{other}` | {} |", rule.why).unwrap_or_default();
    }
    text
}

/// `config.default.toml`.
#[must_use]
pub fn defaults_toml() -> String {
    let mut text = String::from(
        "# Tashika's defaults, as they are compiled in. Copy what you want to change into a file of your own and
# name it with --config or TASHIKA_CONFIG; environment variables of the same names win over it.
# Written by `tashika config --defaults`; a test compares. Settings of lanes can be overridden
# for one of them: OUTBOX_ORDERS_BATCH = 8. docs/configuration.md lists which.
",
    );
    let mut section = "";
    for key in keys() {
        if key.section != section {
            section = key.section;
            push(&mut text, &format!("\n## {section}"));
        }
        push(&mut text, "");
        for line in wrapped(key.about, 96) {
            push(&mut text, &format!("# {line}"));
        }
        push(&mut text, &format!("{} = {}", key.name, toml_default(key)));
    }
    text
}

fn toml_default(key: &Key) -> String {
    match key.kind {
        Kind::Int { .. }
        | Kind::Float { .. }
        | Kind::Bool
        | Kind::Seconds { .. }
        | Kind::Millis { .. }
        | Kind::Hours { .. }
        | Kind::SecondsList => key.default.to_owned(),
        Kind::Words => {
            let words = key.default.split(',').filter(|word| !word.is_empty());
            let words: Vec<String> = words.map(|word| format!("{word:?}")).collect();
            format!("[{}]", words.join(", "))
        }
        _ => format!("{:?}", key.default),
    }
}

fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.len() - 1;
        let line = &mut lines[last];
        if line.is_empty() {
            line.push_str(word);
        } else if line.chars().count() + 1 + word.chars().count() <= width {
            line.push(' ');
            line.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    lines
}

fn push(text: &mut String, line: &str) {
    // Writing to a String cannot fail.
    writeln!(text, "{line}").unwrap_or_default();
}
