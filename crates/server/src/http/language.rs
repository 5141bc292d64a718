//! The two languages in which Tashika speaks to people, chosen by `Accept-Language`.

use http::HeaderMap;
use http::header::ACCEPT_LANGUAGE;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Language {
    #[default]
    English,
    Japanese,
}

impl Language {
    #[must_use]
    pub const fn tag(self) -> &'static str {
        match self {
            Self::English => "en",
            Self::Japanese => "ja",
        }
    }

    /// The language a request prefers; English when it does not say, or says something else.
    #[must_use]
    pub fn of(headers: &HeaderMap) -> Self {
        let text =
            headers.get(ACCEPT_LANGUAGE).and_then(|value| value.to_str().ok()).unwrap_or_default();
        let japanese = weight(text, "ja");
        // English is understood by default, so a mere wildcard does not make it Japanese.
        if japanese > 0.0 && japanese > weight(text, "en") { Self::Japanese } else { Self::English }
    }

    #[must_use]
    pub const fn pick<'a>(self, english: &'a str, japanese: &'a str) -> &'a str {
        match self {
            Self::English => english,
            Self::Japanese => japanese,
        }
    }
}

/// The weight of a language in a header like `ja-JP, en;q=0.8`; 0 if it is not named.
fn weight(text: &str, language: &str) -> f32 {
    let weights = text.split(',').filter_map(|item| {
        let mut parts = item.split(';').map(str::trim);
        let tag = parts.next()?;
        let primary = tag.split('-').next()?;
        if !primary.eq_ignore_ascii_case(language) {
            return None;
        }
        let q = parts.find_map(|part| part.strip_prefix("q="));
        // An unreadable weight counts for nothing.
        Some(q.map_or(1.0, |q| q.parse().unwrap_or(0.0)))
    });
    weights.fold(0.0, f32::max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heavier_language_wins_and_english_is_the_default() {
        for (header, language) in [
            ("ja", Language::Japanese),
            ("ja-JP, en;q=0.8", Language::Japanese),
            ("JA", Language::Japanese),
            ("fr, ja;q=0.2", Language::Japanese),
            ("en, ja;q=0.9", Language::English),
            ("en;q=0.5, ja;q=0.9", Language::Japanese),
            ("ja;q=0", Language::English),
            ("ja;q=x", Language::English),
            ("*", Language::English),
            ("", Language::English),
            (";;,,", Language::English),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert(ACCEPT_LANGUAGE, header.parse().unwrap());
            assert_eq!(Language::of(&headers), language, "{header}");
        }
        assert_eq!(Language::of(&HeaderMap::new()), Language::English);
    }
}
