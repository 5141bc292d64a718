//! Sentences for people, in the two languages in which Tashika speaks.

/// One sentence, twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Text {
    pub en: &'static str,
    pub ja: &'static str,
}

impl Text {
    #[must_use]
    pub const fn new(en: &'static str, ja: &'static str) -> Self {
        Self { en, ja }
    }
}
