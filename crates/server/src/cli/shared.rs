//! What the arguments of several commands have in common.

use clap::Args;
use tashika_domain::{Lane, Timestamp};
use uuid::Uuid;

use crate::http::page::Page;

/// Which part of a list.
#[derive(Clone, Copy, Debug, Args)]
pub struct PageArgs {
    /// Most items to list
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=500))]
    pub limit: u32,

    /// Continue after the last page (the `nextCursor` it ended with)
    #[arg(long, value_parser = id)]
    pub cursor: Option<Uuid>,
}

impl PageArgs {
    #[must_use]
    pub fn page(self) -> Page {
        Page { limit: i64::from(self.limit), before: self.cursor }
    }
}

/// Who asks.
#[derive(Clone, Debug, Args)]
pub struct ByArgs {
    /// Who decides, for the audit log; the login name unless given
    #[arg(long, value_name = "NAME", env = "USER", hide_env_values = true, default_value = "cli",
          value_parser = name)]
    pub by: String,
}

/// An id, as lists show it.
pub fn id(text: &str) -> Result<Uuid, String> {
    Uuid::try_parse(text).map_err(|_| "expected an id, as `list` shows it".to_owned())
}

/// Longest name of a person.
const NAME_MAX: usize = 100;

/// Somebody's name, as requests may give it (`X-User-Id`).
fn name(text: &str) -> Result<String, String> {
    let name = text.trim();
    let visible = name.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    if name.is_empty() || name.len() > NAME_MAX || !visible {
        return Err(format!("expected 1 to {NAME_MAX} visible ASCII characters"));
    }
    Ok(name.to_owned())
}

/// A moment, as RFC 3339 has it.
pub fn moment(text: &str) -> Result<Timestamp, String> {
    text.parse().map_err(|_| "expected a moment such as 2026-11-15T09:30:00Z".to_owned())
}

/// One of a few words.
pub fn word<T>(text: &str, parse: impl Fn(&str) -> Option<T>, known: &[&str]) -> Result<T, String> {
    parse(text).ok_or_else(|| format!("expected one of {}", known.join(", ")))
}

/// A lane's name.
pub fn lane(name: &str) -> Result<Lane, String> {
    Lane::parse(name).ok_or_else(|| {
        let own: Vec<String> = Lane::OWN.iter().map(ToString::to_string).collect();
        format!("not a lane; ours are {}", own.join(", "))
    })
}
