//! What commands print: tables and sentences for people, one JSON document for programs.

use std::io::Write;

use serde_json::Value;
use tashika_domain::Timestamp;
use tashika_store::StoreError;

use super::table;
use crate::http::language::Language;
use crate::http::problem::Problem;

/// A document, or the sentence that says the same.
pub fn say(out: &mut impl Write, json: bool, value: &Value, text: &str) -> anyhow::Result<()> {
    if json {
        writeln!(out, "{value}")?;
    } else {
        writeln!(out, "{text}")?;
    }
    Ok(())
}

/// A list as people read it: its rows, what it means that there are none, and how to go on.
pub struct List<'a> {
    pub headings: &'a [&'a str],
    pub rows: Vec<Vec<String>>,
    /// What an empty list says.
    pub empty: &'a str,
    /// Where the next page begins.
    pub cursor: Option<&'a str>,
}

impl List<'_> {
    pub fn print(&self, out: &mut impl Write) -> anyhow::Result<()> {
        if self.rows.is_empty() {
            writeln!(out, "{}", self.empty)?;
        } else {
            table::print(out, self.headings, &self.rows)?;
        }
        if let Some(cursor) = self.cursor {
            writeln!(out, "more: --cursor {cursor}")?;
        }
        Ok(())
    }
}

/// A page as the API answers it: the document itself, or a table made of its items.
pub fn page(
    out: &mut impl Write,
    json: bool,
    document: &Value,
    headings: &[&str],
    empty: &str,
    row: impl Fn(&Value) -> Vec<String>,
) -> anyhow::Result<()> {
    if json {
        return Ok(writeln!(out, "{document}")?);
    }
    let items = document["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let rows = items.iter().map(row).collect();
    List { headings, rows, empty, cursor: document["nextCursor"].as_str() }.print(out)
}

/// A value as a cell or a line shows it.
pub fn text(value: &Value) -> String {
    match value {
        Value::Null => String::new(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}

/// The fields of a document, one to a line. Lists are left out: whoever calls has a table for them.
pub fn fields(out: &mut impl Write, document: &Value) -> anyhow::Result<()> {
    for (name, value) in document.as_object().into_iter().flatten() {
        if !matches!(value, Value::Null | Value::Array(_)) {
            writeln!(out, "{name:<20} {}", table::plain(&text(value)))?;
        }
    }
    Ok(())
}

/// What a line of a timeline has to say beside its moment and its kind.
pub fn brief(line: &Value) -> String {
    let told = line.as_object().into_iter().flatten();
    let told =
        told.filter(|(name, value)| !(["at", "kind"].contains(&name.as_str()) || value.is_null()));
    told.map(|(name, value)| format!("{name}={}", text(value))).collect::<Vec<_>>().join(" ")
}

/// What happened, oldest first.
pub fn timeline(out: &mut impl Write, lines: &Value) -> anyhow::Result<()> {
    let row = |line: &Value| vec![text(&line["at"]), text(&line["kind"]), brief(line)];
    let rows: Vec<Vec<String>> = lines.as_array().into_iter().flatten().map(row).collect();
    if rows.is_empty() {
        return Ok(writeln!(out, "nothing is written down about it")?);
    }
    Ok(table::print(out, &["AT", "WHAT", "DETAILS"], &rows)?)
}

/// A refusal as the API words it, in one line.
pub fn refused(problem: &Problem) -> anyhow::Error {
    let document = problem.document(Language::English, None);
    let mut line = document.detail;
    for error in &document.errors {
        let field = if error.field.is_empty() { "the request" } else { &error.field };
        line = format!("{} {field}: {}.", line.trim_end(), error.problem);
    }
    anyhow::anyhow!("{line} ({})", document.code)
}

/// The store could not do its part: said as it is, because whoever reads it can do something about it.
pub fn away(error: StoreError) -> anyhow::Error {
    anyhow::Error::from(error).context("the store is not available")
}

/// How long ago, in a few characters: `42s`, `7m`, `3h`, `12d`.
pub fn ago(at: Timestamp, now: Timestamp) -> String {
    let seconds = now.since(at).as_secs();
    match seconds {
        0..=119 => format!("{seconds}s"),
        120..=7199 => format!("{}m", seconds / 60),
        7200..=172_799 => format!("{}h", seconds / 3600),
        _ => format!("{}d", seconds / 86_400),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tashika_domain::check::Violation;

    use super::*;
    use crate::http::problem::Code;

    #[test]
    fn refusals_are_one_line_with_their_code() {
        let plain = refused(&Problem::new(Code::CaseNotFound)).to_string();
        assert!(plain.ends_with("(CASE_NOT_FOUND)"), "{plain}");
        let violation = Violation { field: "note".into(), problem: "is required".into() };
        let told = refused(&Problem::violations(vec![violation])).to_string();
        assert!(told.contains("note: is required.") && !told.contains('\n'), "{told}");
    }

    #[test]
    fn empty_lists_say_so_and_pages_go_on() {
        let printed = |document: &Value| {
            let mut out = Vec::new();
            page(&mut out, false, document, &["ID"], "none", |item| vec![text(&item["id"])])
                .unwrap();
            String::from_utf8(out).unwrap()
        };
        assert_eq!(printed(&json!({"items": []})), "none\n");
        let more = json!({"items": [{"id": 7}], "nextCursor": "x"});
        assert_eq!(printed(&more), "ID\n7\nmore: --cursor x\n");
    }

    #[test]
    fn a_while_is_short() {
        let at =
            |seconds: u64| Timestamp::from_micros(0).plus(std::time::Duration::from_secs(seconds));
        for (seconds, shown) in
            [(0, "0s"), (119, "119s"), (120, "2m"), (7200, "2h"), (200_000, "2d")]
        {
            assert_eq!(ago(at(0), at(seconds)), shown);
        }
    }
}
