//! How queues, schedules and groups of URLs may be named, and how header names are spelled.

use super::span::shown;

/// Bytes of a name.
pub const LONGEST: usize = 256;

/// Whether a queue, a schedule or a group of URLs may have this name: letters and digits of ASCII,
/// `-`, `_` and `.`.
#[must_use]
pub fn is_name(name: &str) -> bool {
    // `.` and `..` never arrive as part of a path: clients resolve them.
    (1..=LONGEST).contains(&name.len())
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte))
        && name != "."
        && name != ".."
}

/// The same, with a sentence for whoever gave the name.
pub fn check(name: &str) -> Result<(), String> {
    if is_name(name) {
        return Ok(());
    }
    Err(format!(
        "`{}` is not a name of 1 to {LONGEST} letters, digits, hyphens, underscores and periods",
        shown(name)
    ))
}

/// The spelling of a header name that Go uses, and with it every client of the hosted service:
/// `content-type` is `Content-Type`. What cannot be a header name stays as it is.
#[must_use]
pub fn canonical(name: &str) -> String {
    if !is_header(name) {
        return name.to_owned();
    }
    let mut begins = true;
    name.chars()
        .map(|c| {
            let spelled = if begins { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() };
            begins = c == '-';
            spelled
        })
        .collect()
}

/// Whether a header may have this name: a token of RFC 9110.
#[must_use]
pub fn is_header(name: &str) -> bool {
    (1..=LONGEST).contains(&name.len())
        && name
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_of_few_characters() {
        let longest = "a".repeat(LONGEST);
        for name in ["a", "my-queue", "Q_1.x", "0", "...", longest.as_str()] {
            assert!(is_name(name), "{name}");
        }
        let long = "a".repeat(LONGEST + 1);
        for name in ["", ".", "..", "a b", "a/b", "a:b", "ü", "a%20", long.as_str()] {
            assert!(!is_name(name), "{name}");
        }
        assert_eq!(
            check("a b").unwrap_err(),
            "`a b` is not a name of 1 to 256 letters, digits, hyphens, underscores and periods"
        );
    }

    #[test]
    fn headers_are_spelled_as_go_spells_them() {
        for (given, spelled) in [
            ("content-type", "Content-Type"),
            ("CONTENT-TYPE", "Content-Type"),
            ("x-GitHub-event", "X-Github-Event"),
            ("etag", "Etag"),
            ("-a--b", "-A--B"),
            ("a_b", "A_b"),
            ("no blank", "no blank"),
            ("größe", "größe"),
            ("", ""),
        ] {
            assert_eq!(canonical(given), spelled);
        }
    }

    proptest! {
        #[test]
        fn spelling_twice_changes_nothing(name in "\\PC{0,20}", token in "[A-Za-z0-9_-]{1,20}") {
            for name in [name, token.clone()] {
                prop_assert_eq!(canonical(&canonical(&name)), canonical(&name));
                let _answer = check(&name);
            }
            prop_assert!(canonical(&token).eq_ignore_ascii_case(&token));
        }
    }
}
