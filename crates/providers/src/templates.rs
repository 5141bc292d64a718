//! What mails say: templates in Jinja's language, in Japanese and English, as HTML and as text.
//!
//! Three come with Tashika; others are read from a folder when the program starts:
//!
//! ```text
//! NAME/ja.subject   NAME/ja.html   NAME/ja.text      all three, or none of them
//! NAME/en.subject   NAME/en.html   NAME/en.text      all three, or none of them
//! NAME/sample.json  data for a trial at start-up, and for `tashika mail preview`
//! ```
//!
//! A template in the folder with the name of one of ours replaces it, in the languages that it has,
//! and may use the same variables only: Tashika itself sends mails with them. It needs no sample.
//!
//! What is put into HTML is escaped. A variable that is not there is an error, never an empty place:
//! [`Templates::check`] says so when a mail is accepted, by rendering it. A `null` is a variable that
//! is not there. Besides Jinja's own filters there are `amount | money(currency)`, which writes an
//! amount in minor units, and `url | link`, which refuses whatever is no `http(s)` address.
//!
//! Nothing here is I/O after [`Templates::load`].

mod built_in;
mod folder;
mod money;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use minijinja::syntax::SyntaxConfig;
use minijinja::value::Serde;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, UndefinedBehavior};
use serde_json::Value;
use tashika_domain::mail::Locale;

/// A mail's words.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rendered {
    /// One line.
    pub subject: String,
    pub html: String,
    pub text: String,
}

/// Something that a template wants to know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Variable {
    pub name: String,
    /// Known of our own only.
    pub meaning: Option<&'static str>,
}

/// What is wrong with a template, or with what it was given.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TemplateError {
    #[error("{}: {why}", path.display())]
    File { path: PathBuf, why: String },
    /// A file of the folder that is no template, or one of ours (its name) that is none.
    #[error("{}{}: {why}", path.display(), line.map(|line| format!(", line {line}")).unwrap_or_default())]
    Broken { path: PathBuf, line: Option<usize>, why: String },
    #[error("there is no template `{name}`")]
    UnknownTemplate { name: String },
    #[error("the template `{template}` is not written in `{locale}`")]
    UnknownLocale { template: String, locale: Locale },
    #[error("the template `{template}` needs the variable `{name}`")]
    MissingVariable { template: String, name: String },
    #[error("the data does not fit the template `{template}`: {why}")]
    Data { template: String, why: String },
}

/// One template of either kind.
#[derive(Clone, Debug, Default)]
struct Entry {
    locales: BTreeSet<Locale>,
    /// What must be there, and what it means; none for those of users.
    declared: &'static [(&'static str, &'static str)],
    sample: Option<Value>,
}

/// All templates.
pub struct Templates {
    ja: Environment<'static>,
    en: Environment<'static>,
    entries: BTreeMap<String, Entry>,
}

/// The parts of a mail, and how their files end.
const PARTS: [&str; 3] = ["subject", "html", "text"];

impl Templates {
    /// Ours, and those in the folder. A template that cannot be used refuses the whole.
    pub fn load(folder: Option<&Path>) -> Result<Self, TemplateError> {
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        // There is no reason why these settings could be refused.
        let syntax = syntax.map_err(|error| broken(PathBuf::from("Jinja"), &error))?;
        let mut templates = Self {
            ja: environment(Locale::Ja, syntax.clone()),
            en: environment(Locale::En, syntax),
            entries: BTreeMap::new(),
        };
        for built_in in built_in::ALL {
            templates.add_built_in(built_in)?;
        }
        if let Some(folder) = folder {
            for found in folder::read(folder)? {
                templates.add_found(&found)?;
            }
        }
        Ok(templates)
    }

    fn add_built_in(&mut self, built_in: &built_in::BuiltIn) -> Result<(), TemplateError> {
        let path = PathBuf::from(built_in.name);
        let sample = serde_json::from_str(built_in.sample)
            .map_err(|error| TemplateError::File { path: path.clone(), why: error.to_string() })?;
        let mut locales = BTreeSet::new();
        for files in &built_in.files {
            for (part, source) in PARTS.iter().zip([files.subject, files.html, files.text]) {
                self.add(built_in.name, files.locale, part, source.to_owned())
                    .map_err(|error| broken(path.clone(), &error))?;
            }
            locales.insert(files.locale);
        }
        let entry = Entry { locales, declared: built_in.variables, sample: Some(sample) };
        self.entries.insert(built_in.name.to_owned(), entry);
        Ok(())
    }

    fn add_found(&mut self, found: &folder::Found) -> Result<(), TemplateError> {
        let name = found.name.clone();
        for file in &found.files {
            self.add(&name, file.locale, file.part, file.source.clone())
                .map_err(|error| broken(file.path.clone(), &error))?;
        }
        let entry = self.entries.entry(name.clone()).or_default();
        entry.locales.extend(found.files.iter().map(|file| file.locale));
        if let Some(sample) = &found.sample {
            entry.sample = Some(sample.clone());
        }
        self.only_declared(found)?;
        self.try_out(found)
    }

    /// Renders each file with the sample: Jinja finds only some mistakes before.
    fn try_out(&self, found: &folder::Found) -> Result<(), TemplateError> {
        let Some(sample) = self.sample(&found.name) else {
            let why =
                "this file is missing: data to try the template with, at start-up and by hand";
            let path = found.path.join("sample.json");
            return Err(TemplateError::File { path, why: why.to_owned() });
        };
        let data = without_nulls(sample);
        let context = minijinja::Value::from(Serde(&data));
        for file in &found.files {
            let tried = self.part(&found.name, file.locale, file.part, &context);
            tried.map_err(|error| match self.missing(&found.name, file, &data, &error) {
                Some(missing) => TemplateError::Broken {
                    path: file.path.clone(),
                    line: error.line(),
                    why: format!("`{missing}` is not in its sample.json"),
                },
                None => broken(file.path.clone(), &error),
            })?;
            let whole = self.render(&found.name, file.locale, sample);
            whole.map_err(|error| TemplateError::File {
                path: file.path.clone(),
                why: error.to_string(),
            })?;
        }
        Ok(())
    }

    /// The outer variable whose absence the error is about, if it is about one.
    fn missing(
        &self,
        name: &str,
        file: &folder::FoundFile,
        data: &Value,
        error: &Error,
    ) -> Option<String> {
        let undefined = error.kind() == ErrorKind::UndefinedError;
        let used = undefined.then(|| self.used(name, file.locale, file.part))?;
        used.into_iter().find(|used| data.get(used).is_none())
    }

    /// Whoever replaces one of ours gets what ours gets.
    fn only_declared(&self, found: &folder::Found) -> Result<(), TemplateError> {
        let declared = self.entries.get(&found.name).map_or(&[][..], |entry| entry.declared);
        if declared.is_empty() {
            return Ok(());
        }
        for file in &found.files {
            let used = self.used(&found.name, file.locale, file.part);
            let strange = used.iter().find(|used| declared.iter().all(|(name, _)| name != used));
            if let Some(strange) = strange {
                let why =
                    format!("it replaces one of Tashika's, which has no variable `{strange}`");
                return Err(TemplateError::Broken { path: file.path.clone(), line: None, why });
            }
        }
        Ok(())
    }

    fn add(&mut self, name: &str, locale: Locale, part: &str, source: String) -> Result<(), Error> {
        let environment = match locale {
            Locale::Ja => &mut self.ja,
            Locale::En => &mut self.en,
        };
        environment.add_template_owned(format!("{name}.{part}"), source)
    }

    fn environment(&self, locale: Locale) -> &Environment<'static> {
        match locale {
            Locale::Ja => &self.ja,
            Locale::En => &self.en,
        }
    }

    /// In alphabetical order.
    pub fn names(&self) -> impl Iterator<Item = &str> {
        self.entries.keys().map(String::as_str)
    }

    /// The languages it is written in; none if there is no such template.
    pub fn locales(&self, name: &str) -> impl Iterator<Item = Locale> {
        self.entries.get(name).into_iter().flat_map(|entry| entry.locales.iter().copied())
    }

    /// What it wants to know. Of those of users: whatever they use, needed or not.
    pub fn variables(&self, name: &str) -> Result<Vec<Variable>, TemplateError> {
        let entry = self.entry(name)?;
        if !entry.declared.is_empty() {
            let told = |(name, meaning): &(&'static str, &'static str)| Variable {
                name: (*name).to_owned(),
                meaning: Some(*meaning),
            };
            return Ok(entry.declared.iter().map(told).collect());
        }
        let parts = entry.locales.iter().flat_map(|locale| PARTS.map(|part| (*locale, part)));
        let used: BTreeSet<String> =
            parts.flat_map(|(locale, part)| self.used(name, locale, part)).collect();
        Ok(used.into_iter().map(|name| Variable { name, meaning: None }).collect())
    }

    /// Data to try it with, if it came with some.
    #[must_use]
    pub fn sample(&self, name: &str) -> Option<&Value> {
        self.entries.get(name)?.sample.as_ref()
    }

    /// Whether a mail can be written with this data.
    pub fn check(&self, name: &str, locale: Locale, data: &Value) -> Result<(), TemplateError> {
        self.render(name, locale, data).map(|_| ())
    }

    /// Writes the mail.
    pub fn render(
        &self,
        name: &str,
        locale: Locale,
        data: &Value,
    ) -> Result<Rendered, TemplateError> {
        let entry = self.entry(name)?;
        if !entry.locales.contains(&locale) {
            return Err(TemplateError::UnknownLocale { template: name.to_owned(), locale });
        }
        let unfit =
            |why: &str| TemplateError::Data { template: name.to_owned(), why: why.to_owned() };
        if !data.is_object() {
            return Err(unfit("it is no object"));
        }
        let data = without_nulls(data);
        if let Some((missing, _)) = entry.declared.iter().find(|(name, _)| data.get(name).is_none())
        {
            return Err(missing_variable(name, missing));
        }
        let context = minijinja::Value::from(Serde(&data));
        let part = |part: &str| self.render_part(name, locale, part, &data, &context);
        let subject = one_line(&part("subject")?);
        if subject.is_empty() {
            return Err(unfit("the subject is empty with it"));
        }
        Ok(Rendered { subject, html: part("html")?, text: part("text")? })
    }

    fn part(
        &self,
        name: &str,
        locale: Locale,
        part: &str,
        context: &minijinja::Value,
    ) -> Result<String, Error> {
        self.environment(locale).get_template(&format!("{name}.{part}"))?.render(context)
    }

    fn render_part(
        &self,
        name: &str,
        locale: Locale,
        part: &str,
        data: &Value,
        context: &minijinja::Value,
    ) -> Result<String, TemplateError> {
        self.part(name, locale, part, context).map_err(|error| {
            if error.kind() != ErrorKind::UndefinedError {
                let why = format!("{} ({locale}.{part}{})", words(&error), at_line(&error));
                return TemplateError::Data { template: name.to_owned(), why };
            }
            // Which one it is, Jinja says only of an inner one; of the outer ones we know.
            let used = self.used(name, locale, part);
            let outer = used.into_iter().find(|used| data.get(used).is_none());
            match outer {
                Some(outer) => missing_variable(name, &outer),
                None => TemplateError::Data {
                    template: name.to_owned(),
                    why: format!(
                        "a value inside of it is missing ({locale}.{part}{}): {}",
                        at_line(&error),
                        words(&error)
                    ),
                },
            }
        })
    }

    /// The outer variables that a part uses, in alphabetical order.
    fn used(&self, name: &str, locale: Locale, part: &str) -> BTreeSet<String> {
        let environment = self.environment(locale);
        let Ok(template) = environment.get_template(&format!("{name}.{part}")) else {
            return BTreeSet::new();
        };
        let used = template.undeclared_variables(false).into_iter();
        used.filter(|used| environment.globals().all(|(known, _)| known != used)).collect()
    }

    fn entry(&self, name: &str) -> Result<&Entry, TemplateError> {
        let unknown = || TemplateError::UnknownTemplate { name: name.to_owned() };
        self.entries.get(name).ok_or_else(unknown)
    }
}

impl std::fmt::Debug for Templates {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_list().entries(self.names()).finish()
    }
}

fn environment(locale: Locale, syntax: SyntaxConfig) -> Environment<'static> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_auto_escape_callback(|name| {
        let part = name.rsplit_once('.').map(|(_, part)| part);
        if part == Some("html") { AutoEscape::Html } else { AutoEscape::None }
    });
    // Lines that only decide something leave no line.
    environment.set_syntax(syntax);
    environment.add_filter("money", move |amount: i64, currency: String| {
        let wrong = || Error::new(ErrorKind::InvalidOperation, "a currency has three letters");
        money::format(amount, &currency, locale).ok_or_else(wrong)
    });
    environment.add_filter("link", |url: String| {
        let read = url::Url::parse(&url).ok();
        // In a link, `javascript:` would be a program.
        let fits = read.is_some_and(|url| matches!(url.scheme(), "http" | "https"));
        let wrong = || Error::new(ErrorKind::InvalidOperation, "a link begins with https://");
        if fits { Ok(url) } else { Err(wrong()) }
    });
    environment
}

fn missing_variable(template: &str, name: &str) -> TemplateError {
    TemplateError::MissingVariable { template: template.to_owned(), name: name.to_owned() }
}

fn broken(path: PathBuf, error: &Error) -> TemplateError {
    TemplateError::Broken { path, line: error.line(), why: words(error) }
}

/// What Jinja says, without where.
fn words(error: &Error) -> String {
    match error.detail() {
        Some(detail) => format!("{}: {detail}", error.kind()),
        None => error.kind().to_string(),
    }
}

fn at_line(error: &Error) -> String {
    error.line().map(|line| format!(", line {line}")).unwrap_or_default()
}

/// `null` in an object is a value that was not given.
fn without_nulls(data: &Value) -> Value {
    match data {
        Value::Object(map) => {
            let given = map.iter().filter(|(_, value)| !value.is_null());
            Value::Object(given.map(|(name, value)| (name.clone(), without_nulls(value))).collect())
        }
        Value::Array(items) => items.iter().map(without_nulls).collect(),
        other => other.clone(),
    }
}

/// Whatever ends a line, and every run of spaces, becomes one space.
fn one_line(text: &str) -> String {
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.split(' ').filter(|word| !word.is_empty()).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests;
