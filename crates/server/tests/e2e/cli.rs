//! The command line over a store: the same verbs as the API, beside a running server or alone.

mod alerts;
mod cases;
mod dlq;
mod doctor;
mod mail;
mod payments;
mod top;
mod webhooks;

use serde_json::Value;

use crate::support::Setup;

/// An id that nothing has.
const NOBODY: &str = "0198a1b2-0000-7000-8000-000000000001";

impl Setup {
    /// Runs a command that must be refused: status 1, one line, and nothing on standard output.
    async fn refused(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments).await;
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{arguments:?}: {said}");
        assert_eq!(said.trim_end().lines().count(), 1, "{arguments:?}: {said}");
        assert!(said.starts_with("tashika: ") && !said.contains("panicked"), "{said}");
        assert_eq!(output.stdout, b"", "{arguments:?}");
        said
    }
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_else(|| panic!("{value} is no text"))
}
