//! What can be said about the files without a browser: words, policies, imports.

use std::collections::{BTreeMap, BTreeSet};

use super::*;

fn words(text: &str) -> BTreeMap<String, String> {
    serde_json::from_str(text).unwrap()
}

/// What stands between `open` and the next `close`, everywhere.
fn between<'a>(text: &'a str, open: &str, close: char) -> Vec<&'a str> {
    text.split(open).skip(1).filter_map(|rest| rest.split(close).next()).collect()
}

#[test]
fn both_languages_have_the_same_words_and_none_is_empty() {
    let [english, japanese] = WORDS.map(|(_, text)| words(text));
    let keys = |words: &BTreeMap<String, String>| words.keys().cloned().collect::<BTreeSet<_>>();
    assert_eq!(keys(&english), keys(&japanese));
    for (key, text) in english.iter().chain(&japanese) {
        assert!(!text.trim().is_empty(), "{key}");
    }
    // What is put into a sentence is put into both.
    for (key, text) in &english {
        let mut here = between(text, "{", '}');
        let mut there = between(&japanese[key], "{", '}');
        here.sort_unstable();
        there.sort_unstable();
        assert_eq!(here, there, "{key}");
    }
}

/// The keys in calls of `t`: the letter alone, not the end of another name.
fn keys_in(text: &str) -> Vec<&str> {
    let calls = ["t('", "t(`"].into_iter().flat_map(|open| text.match_indices(open));
    let alone = calls.filter(|(at, _)| {
        !text[..*at].ends_with(|c: char| c.is_alphanumeric() || c == '_' || c == '.' || c == '$')
    });
    let keys =
        alone.filter_map(|(at, open)| text[at + open.len()..].split(['\'', '`', '$']).next());
    keys.collect()
}

#[test]
fn every_word_that_a_script_asks_for_is_there() {
    let known = words(WORDS[0].1);
    let mut asked = 0;
    for file in FILES {
        for key in keys_in(file.text) {
            // A key that is put together ends where the variable part begins.
            let prefix = key.ends_with('.');
            let there = if prefix {
                known.keys().any(|known| known.starts_with(key))
            } else {
                known.contains_key(key)
            };
            assert!(there, "{}: {key}", file.name);
            asked += 1;
        }
    }
    assert!(asked > 100, "the search finds nothing any more");
}

#[test]
fn nothing_is_inline_evaluated_or_from_elsewhere() {
    for file in FILES {
        for bad in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
            "new Function",
            "style=\"",
            ".cssText",
            "onclick=",
            "//cdn",
            "@import",
            "setAttribute('style'",
        ] {
            assert!(!file.text.contains(bad), "{}: {bad}", file.name);
        }
        let elsewhere = between(file.text, "https://", '/');
        // Examples of addresses, and the names of XML languages.
        let elsewhere: Vec<&str> =
            elsewhere.into_iter().filter(|host| !host.contains("example")).collect();
        assert_eq!(elsewhere, [] as [&str; 0], "{}", file.name);
    }
    assert!(!PAGE.contains("<style") && !PAGE.contains("style=") && !PAGE.contains(" on"));
    for script in between(PAGE, "<script", '>') {
        assert!(script.contains("src=\"{{base}}/"), "{script}");
    }
}

#[test]
fn every_import_leads_to_a_file() {
    let names: BTreeSet<&str> =
        FILES.iter().map(|file| file.name).chain(WORDS.map(|(name, _)| name)).collect();
    for file in FILES.iter().filter(|file| file.kind == SCRIPT) {
        for from in between(file.text, "from '", '\'') {
            let (folder, _) = file.name.rsplit_once('/').unwrap_or(("", file.name));
            let path = match from.strip_prefix("../") {
                Some(path) => path.to_owned(),
                None if folder.is_empty() => from.trim_start_matches("./").to_owned(),
                None => format!("{folder}/{}", from.trim_start_matches("./")),
            };
            assert!(names.contains(path.as_str()), "{}: {from}", file.name);
        }
    }
}

#[test]
fn the_version_follows_from_the_files() {
    let (one, two) = (Served::new(), Served::new());
    assert_eq!(one.version, two.version);
    assert_eq!(one.version.len(), 16);
    assert_eq!(one.files.len(), FILES.len() + WORDS.len());
}
