//! The languages mail is written in.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A language that templates are written in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Locale {
    Ja,
    En,
}

impl Locale {
    pub const ALL: [Self; 2] = [Self::Ja, Self::En];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ja => "ja",
            Self::En => "en",
        }
    }
}

impl fmt::Display for Locale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no such locale: it is `ja` or `en`")]
pub struct UnknownLocale;

impl FromStr for Locale {
    type Err = UnknownLocale;

    fn from_str(text: &str) -> Result<Self, UnknownLocale> {
        Self::ALL.into_iter().find(|locale| locale.as_str() == text).ok_or(UnknownLocale)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        for locale in Locale::ALL {
            assert_eq!(locale.to_string().parse(), Ok(locale));
            assert_eq!(serde_json::to_value(locale).unwrap(), locale.as_str());
        }
        assert_eq!("JA".parse::<Locale>(), Err(UnknownLocale));
    }
}
