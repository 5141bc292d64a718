//! Settings of the console, typed.

use std::time::Duration;

use super::Reader;
use crate::password::PasswordHash;

/// What somebody in the console may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Looks, and changes nothing.
    Viewer,
    Operator,
}

impl Role {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
        }
    }

    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::Viewer, Self::Operator].into_iter().find(|role| role.as_str() == text)
    }
}

/// Somebody who may log in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct User {
    pub name: String,
    pub role: Role,
    pub password: PasswordHash,
}

#[derive(Clone, Debug)]
pub struct ConsoleConfig {
    pub enabled: bool,
    pub users: Vec<User>,
    pub session: Duration,
}

pub(super) fn console(read: &mut Reader) -> ConsoleConfig {
    let mut users: Vec<User> = Vec::new();
    let list = read.text("CONSOLE_USERS");
    let entries = list.split(',').map(str::trim).filter(|entry| !entry.is_empty());
    for (number, entry) in entries.enumerate() {
        // The entry holds a secret: only its place and its name are shown.
        match user(entry) {
            Ok(user) if users.iter().any(|known| known.name == user.name) => {
                let name = user.name;
                read.problems.push(format!("CONSOLE_USERS: {name:?} stands twice"));
            }
            Ok(user) => users.push(user),
            Err(expected) => {
                read.problems
                    .push(format!("CONSOLE_USERS: entry {}: expected {expected}", number + 1));
            }
        }
    }
    ConsoleConfig {
        enabled: read.bool("CONSOLE_ENABLED"),
        users,
        session: read.span("CONSOLE_SESSION_SEC"),
    }
}

fn user(entry: &str) -> Result<User, &'static str> {
    let mut parts = entry.splitn(3, ':');
    let mut part = || parts.next().map(str::trim).unwrap_or_default();
    let (name, role, hash) = (part(), part(), part());
    let letter = |c: char| c.is_ascii_alphanumeric() || "._@-".contains(c);
    if name.is_empty() || name.len() > 64 || !name.chars().all(letter) {
        return Err(
            "NAME:ROLE:HASH with a name of up to 64 of A-Z, a-z, 0-9, '.', '_', '@' and '-'",
        );
    }
    let role = Role::parse(role).ok_or("NAME:ROLE:HASH with the role viewer or operator")?;
    let password = PasswordHash::parse(hash)
        .ok_or("NAME:ROLE:HASH with a hash that `tashika console hash` has made")?;
    Ok(User { name: name.to_owned(), role, password })
}

#[cfg(test)]
mod tests {
    use super::super::{Config, Sources};
    use super::*;

    fn load(users: &str) -> Result<Vec<User>, Vec<String>> {
        let environment = [("CONSOLE_USERS".to_owned(), users.to_owned())].into();
        Config::from_sources(&Sources { file: None, environment })
            .map(|config| config.console.users)
            .map_err(|error| error.problems)
    }

    #[test]
    fn users_are_names_roles_and_hashes() {
        let hash = PasswordHash::make("correct horse battery").unwrap().text();
        let users = load(&format!("aiko:operator:{hash}, ken@example.com:viewer:{hash}")).unwrap();
        let seen: Vec<_> = users.iter().map(|user| (user.name.as_str(), user.role)).collect();
        assert_eq!(seen, [("aiko", Role::Operator), ("ken@example.com", Role::Viewer)]);
        for (bad, said) in [
            ("aiko".to_owned(), "role"),
            (format!("aiko:root:{hash}"), "viewer or operator"),
            ("aiko:operator:hunter2hunter2".to_owned(), "tashika console hash"),
            (format!("a b:operator:{hash}"), "name"),
            (format!("aiko:viewer:{hash},aiko:operator:{hash}"), "twice"),
        ] {
            let problems = load(&bad).unwrap_err();
            assert!(problems[0].contains(said), "{problems:?}");
            assert!(!problems[0].contains("hunter2") && !problems[0].contains(&hash[12..]));
        }
    }
}
