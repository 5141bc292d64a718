//! Where settings come from: the compiled-in defaults, a file, the environment; later ones win.
//!
//! Called by [`super::Config::load`]. It finds for each setting the text in force and where it came
//! from, and reads it. It guarantees that every name in the file is known and that secrets appear in
//! no message. It does not look at how settings fit together: see `rules`.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use super::keys::{self, Known};
use super::value::{self, Value};

/// The documented defaults, as they are compiled in.
pub const DEFAULTS: &str = include_str!("../../config.default.toml");

/// Where a setting's value came from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    Default,
    File(PathBuf),
    Environment,
    /// A file that holds the secret, named by this setting.
    SecretFile(String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Environment => f.write_str("environment"),
            Self::SecretFile(name) => write!(f, "file named by {name}"),
        }
    }
}

/// A setting in force.
#[derive(Clone)]
pub struct Setting {
    pub(super) value: Value,
    /// The value as it may be shown.
    pub shown: String,
    pub origin: Origin,
}

impl fmt::Debug for Setting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.shown, self.origin)
    }
}

/// What the process was given. Separate from the process so that tests can write their own.
#[derive(Clone, Debug, Default)]
pub struct Sources {
    /// The configuration file: where it is and what it says.
    pub file: Option<(PathBuf, String)>,
    pub environment: BTreeMap<String, String>,
}

impl Sources {
    /// The process's environment, and the file if one was named.
    pub fn of_process(file: Option<&Path>) -> Result<Self, String> {
        let file = match file {
            None => None,
            Some(path) => {
                let text = std::fs::read_to_string(path)
                    .map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
                Some((path.to_owned(), text))
            }
        };
        // A variable that is not UTF-8 can be none of ours: all our names and forms are.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        Ok(Self { file, environment })
    }
}

/// Everything that was found, and everything that was wrong with it.
pub struct Resolved {
    pub settings: BTreeMap<String, Setting>,
    pub problems: Vec<String>,
    pub warnings: Vec<String>,
}

/// One source, as texts by name.
struct Layer {
    origin: Origin,
    texts: BTreeMap<String, String>,
}

/// Finds and reads every setting.
#[must_use]
pub fn resolve(sources: &Sources) -> Resolved {
    let known = keys::all_names();
    let mut problems = Vec::new();
    let mut layers = vec![Layer {
        origin: Origin::Default,
        texts: texts_of(DEFAULTS, "config.default.toml", &known, &mut problems),
    }];
    if let Some((path, text)) = &sources.file {
        layers.push(Layer {
            origin: Origin::File(path.clone()),
            texts: texts_of(text, &path.display().to_string(), &known, &mut problems),
        });
    }
    layers.push(Layer { origin: Origin::Environment, texts: sources.environment.clone() });

    let mut settings = BTreeMap::new();
    for name in &known {
        if let Some(setting) = resolve_one(name, &layers, &mut problems) {
            settings.insert(name.name.clone(), setting);
        }
    }
    Resolved { settings, problems, warnings: suspicious(&sources.environment, &known) }
}

fn resolve_one(known: &Known, layers: &[Layer], problems: &mut Vec<String>) -> Option<Setting> {
    let mut found = None;
    for layer in layers {
        match text_in(known, layer) {
            Ok(Some(text)) => found = Some(text),
            Ok(None) => {}
            Err(problem) => problems.push(problem),
        }
    }
    let (text, origin) = found?;
    let kind = known.key.kind;
    match value::read(kind, &text) {
        Ok(value) => Some(Setting { value, shown: value::shown(kind, &text), origin }),
        Err(expected) => {
            // Where a password may be inside, even a value that could not be read stays hidden.
            let shown = if kind.is_confidential() { String::new() } else { format!(" = {text:?}") };
            let name = &known.name;
            problems.push(format!("{name}{shown} ({origin}): expected {expected}"));
            None
        }
    }
}

/// The text that one source has for a setting, itself or by way of `<NAME>_FILE`.
fn text_in(known: &Known, layer: &Layer) -> Result<Option<(String, Origin)>, String> {
    let name = &known.name;
    // `NAME=` in an environment is how people take a variable away, except where empty is a value.
    let empty_counts =
        matches!(known.key.kind, keys::Kind::Words) || layer.origin != Origin::Environment;
    let direct = layer.texts.get(name).filter(|text| empty_counts || !text.trim().is_empty());
    if !known.key.kind.is_confidential() {
        return Ok(direct.map(|text| (text.clone(), layer.origin.clone())));
    }
    let file_name = format!("{name}_FILE");
    let by_file = layer.texts.get(&file_name).filter(|path| !path.trim().is_empty());
    match (direct, by_file) {
        (Some(_), Some(_)) => {
            Err(format!("{name} and {file_name} are both set ({}): set one of them", layer.origin))
        }
        (Some(text), None) => Ok(Some((text.clone(), layer.origin.clone()))),
        (None, Some(path)) => match std::fs::read_to_string(path.trim()) {
            Ok(text) => Ok(Some((text.trim().to_owned(), Origin::SecretFile(file_name)))),
            Err(error) => Err(format!("{file_name} = {path:?} cannot be read: {error}")),
        },
        (None, None) => Ok(None),
    }
}

/// The texts of a TOML file, whose names are those of the environment.
fn texts_of(
    toml: &str,
    file: &str,
    known: &[Known],
    problems: &mut Vec<String>,
) -> BTreeMap<String, String> {
    let table: toml::Table = match toml.parse() {
        Ok(table) => table,
        Err(error) => {
            // The library's own display quotes the line, which may hold a secret.
            let at = error.span().map_or(0, |span| span.start);
            let line = toml.get(..at).unwrap_or_default().matches('\n').count() + 1;
            problems.push(format!("{file}, line {line}: {}", error.message()));
            return BTreeMap::new();
        }
    };
    let mut texts = BTreeMap::new();
    for (name, value) in table {
        if !is_known(&name, known) {
            let hint = keys::nearest(&name, known)
                .map(|meant| format!("; did you mean {meant}?"))
                .unwrap_or_default();
            problems.push(format!("{file}: {name} is not a setting{hint}"));
        } else if let Some(text) = text_of(&value) {
            texts.insert(name, text);
        } else {
            problems.push(format!("{file}: {name} must be a plain value or a list of them"));
        }
    }
    texts
}

fn is_known(name: &str, known: &[Known]) -> bool {
    known.iter().any(|candidate| {
        let rest = name.strip_prefix(candidate.name.as_str());
        rest == Some("") || (rest == Some("_FILE") && candidate.key.kind.is_confidential())
    })
}

fn text_of(value: &toml::Value) -> Option<String> {
    match value {
        toml::Value::String(text) => Some(text.clone()),
        toml::Value::Integer(number) => Some(number.to_string()),
        toml::Value::Float(number) => Some(number.to_string()),
        toml::Value::Boolean(truth) => Some(truth.to_string()),
        toml::Value::Array(items) => {
            let items: Option<Vec<String>> = items.iter().map(text_of).collect();
            items.map(|items| items.join(","))
        }
        toml::Value::Datetime(_) | toml::Value::Table(_) => None,
    }
}

/// Variables that look like mistyped settings.
///
/// A warning and not a refusal: environments hold other programs' variables, and container platforms
/// add their own (`TASHIKA_SERVICE_HOST`, `TASHIKA_PORT`).
fn suspicious(environment: &BTreeMap<String, String>, known: &[Known]) -> Vec<String> {
    let mut warnings = Vec::new();
    for name in environment.keys().filter(|name| !is_known(name, known)) {
        let close = known
            .iter()
            .find(|candidate| keys::distance(name, &candidate.name) <= 2)
            .map(|candidate| candidate.name.clone());
        let ours = name.starts_with("OUTBOX_");
        if let Some(meant) = close.or_else(|| ours.then(|| keys::nearest(name, known)).flatten()) {
            warnings.push(format!(
                "the environment variable {name} is not a setting and has no effect; did you mean {meant}?"
            ));
        } else if ours {
            warnings.push(format!(
                "the environment variable {name} is not a setting and has no effect"
            ));
        }
    }
    warnings
}
