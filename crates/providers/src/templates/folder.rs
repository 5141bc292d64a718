//! Templates that users bring, as files.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;
use tashika_domain::mail::Locale;

use super::{PARTS, TemplateError};

/// Longest name of a template.
const NAME_MAX: usize = 64;

/// A file of a template.
pub(super) struct FoundFile {
    pub(super) path: PathBuf,
    pub(super) locale: Locale,
    pub(super) part: &'static str,
    pub(super) source: String,
}

/// A template as it was found: complete in each of its languages.
pub(super) struct Found {
    pub(super) name: String,
    pub(super) path: PathBuf,
    pub(super) files: Vec<FoundFile>,
    pub(super) sample: Option<Value>,
}

/// Every folder in `folder` is a template. Hidden ones, and files beside them, are left alone.
pub(super) fn read(folder: &Path) -> Result<Vec<Found>, TemplateError> {
    let mut found = Vec::new();
    for (name, path) in entries(folder)? {
        if path.is_dir() {
            found.push(read_one(name, path)?);
        }
    }
    Ok(found)
}

/// By name, without hidden ones: the order of a folder is nobody's.
fn entries(folder: &Path) -> Result<BTreeMap<String, PathBuf>, TemplateError> {
    let unreadable = |error: std::io::Error| TemplateError::File {
        path: folder.to_owned(),
        why: error.to_string(),
    };
    let mut entries = BTreeMap::new();
    for entry in fs::read_dir(folder).map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if !name.starts_with('.') {
            entries.insert(name, entry.path());
        }
    }
    Ok(entries)
}

fn read_one(name: String, path: PathBuf) -> Result<Found, TemplateError> {
    let wrong = |path: &Path, why: &str| {
        Err(TemplateError::File { path: path.to_owned(), why: why.to_owned() })
    };
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.len() > NAME_MAX || !name.bytes().all(plain) {
        return wrong(&path, "a template's name has lower-case letters, digits and - only");
    }
    let mut files = Vec::new();
    let mut sample = None;
    for (file, path) in entries(&path)? {
        let text = fs::read_to_string(&path)
            .map_err(|error| TemplateError::File { path: path.clone(), why: error.to_string() })?;
        if file == "sample.json" {
            let data = serde_json::from_str(&text).map_err(|error| TemplateError::Broken {
                path: path.clone(),
                line: Some(error.line()),
                why: error.to_string(),
            })?;
            sample = Some(data);
            continue;
        }
        let known = file.split_once('.').and_then(|(locale, part)| {
            let part = PARTS.into_iter().find(|known| *known == part)?;
            Some((locale.parse().ok()?, part))
        });
        let Some((locale, part)) = known else {
            return wrong(&path, "a template has {ja,en}.{subject,html,text} and sample.json only");
        };
        files.push(FoundFile { path, locale, part, source: text });
    }
    if files.is_empty() {
        return wrong(&path, "a template has ja.{subject,html,text}, or en.…, or both");
    }
    for locale in Locale::ALL {
        let has =
            |part: &&str| files.iter().any(|file| file.locale == locale && file.part == *part);
        let some = files.iter().any(|file| file.locale == locale);
        if let Some(missing) = PARTS.into_iter().find(|part| some && !has(part)) {
            return wrong(&path.join(format!("{locale}.{missing}")), "this file is missing");
        }
    }
    Ok(Found { name, path, files, sample })
}
