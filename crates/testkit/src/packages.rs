//! What others have published for Python and Node, for tests that drive us with it: where it is.
//!
//! A script installs the packages into the target folder, in pinned versions, when they are not there yet.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The folder with Stripe's and Standard Webhooks' packages (`venv/`, `node_modules/`).
///
/// # Panics
///
/// When they cannot be installed.
#[must_use]
pub fn stripe() -> PathBuf {
    installed("stripe-packages")
}

/// The folder with the clients of QStash (`venv/`, `node_modules/`).
///
/// # Panics
///
/// When they cannot be installed.
#[must_use]
pub fn qstash() -> PathBuf {
    installed("qstash-packages")
}

/// The folder with what drives the console's tests (`node_modules/`); Chromium is the system's.
///
/// # Panics
///
/// When they cannot be installed.
#[must_use]
pub fn console() -> PathBuf {
    installed("console-packages")
}

/// The folder with the mail server (`venv/`).
///
/// # Panics
///
/// When it cannot be installed.
#[must_use]
pub fn smtp() -> PathBuf {
    installed("smtp-packages")
}

/// The folder with schemathesis (`venv/`).
///
/// # Panics
///
/// When it cannot be installed.
#[must_use]
pub fn schemathesis() -> PathBuf {
    installed("schemathesis-packages")
}

fn installed(script: &str) -> PathBuf {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../scripts").join(script);
    let output = Command::new(&script).stderr(Stdio::inherit()).output();
    let output = output.unwrap_or_else(|error| panic!("{}: {error}", script.display()));
    assert!(output.status.success(), "{} failed", script.display());
    let said = String::from_utf8_lossy(&output.stdout);
    PathBuf::from(said.lines().last().expect("the script prints the folder"))
}
