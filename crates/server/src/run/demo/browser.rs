//! Showing the console in a browser, where there is one.

use std::io::IsTerminal as _;
use std::process::Stdio;

use tokio::process::Command;

use crate::cli::demo::Open;

const OPENER: &str = "xdg-open";

/// Opens the address if that was asked for, or if a person at a terminal with a screen would want it.
/// Returns what there is to say about it.
pub(super) fn show(url: &str, open: Open) -> Option<&'static str> {
    match open {
        Open::Never => None,
        Open::Auto if !(std::io::stdout().is_terminal() && has_screen() && has_opener()) => None,
        Open::Always if !has_opener() => {
            Some("There is no xdg-open here: open the address in your browser.")
        }
        Open::Auto | Open::Always => match start(url) {
            Ok(()) => None,
            Err(_) => Some("The browser could not be started: open the address yourself."),
        },
    }
}

fn start(url: &str) -> std::io::Result<()> {
    let mut child = Command::new(OPENER)
        .arg(url)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()?;
    // It hands the address to the browser and ends; somebody has to notice.
    tokio::spawn(async move { child.wait().await });
    Ok(())
}

fn has_screen() -> bool {
    ["DISPLAY", "WAYLAND_DISPLAY"].iter().any(|name| std::env::var_os(name).is_some())
}

fn has_opener() -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|folder| folder.join(OPENER).is_file())
}
