//! The templates that come with Tashika, in the layout of those that users bring.

use tashika_domain::mail::Locale;

/// The three files of a language.
pub(super) struct Files {
    pub(super) locale: Locale,
    pub(super) subject: &'static str,
    pub(super) html: &'static str,
    pub(super) text: &'static str,
}

/// A template, compiled in.
pub(super) struct BuiltIn {
    pub(super) name: &'static str,
    pub(super) files: [Files; 2],
    /// All of them are required. Name and meaning.
    pub(super) variables: &'static [(&'static str, &'static str)],
    pub(super) sample: &'static str,
}

macro_rules! files {
    ($name:literal, $locale:ident, $short:literal) => {
        Files {
            locale: Locale::$locale,
            subject: include_str!(concat!($name, "/", $short, ".subject")),
            html: include_str!(concat!($name, "/", $short, ".html")),
            text: include_str!(concat!($name, "/", $short, ".text")),
        }
    };
}

macro_rules! built_in {
    ($name:literal, $variables:expr) => {
        BuiltIn {
            name: $name,
            files: [files!($name, Ja, "ja"), files!($name, En, "en")],
            variables: $variables,
            sample: include_str!(concat!($name, "/sample.json")),
        }
    };
}

const RESERVATION: (&str, &str) = ("reservationId", "the reservation");
const REFUND_AMOUNT: (&str, &str) =
    ("refundAmount", "what was refunded, an integer in the currency's smallest unit");
const CURRENCY: (&str, &str) = ("currency", "ISO 4217, three letters");

pub(super) const ALL: &[BuiltIn] = &[
    built_in!(
        "alert",
        &[
            ("rule", "the rule's name"),
            ("severity", "`warning`, `high` or `critical`"),
            ("state", "`firing` or `resolved`"),
            ("count", "how many, an integer"),
            ("message", "what is the matter, a sentence"),
            ("firedAt", "since when, RFC 3339"),
            ("labels", "an object of texts, may be empty"),
        ]
    ),
    built_in!("reservation-expired-refunded", &[RESERVATION, REFUND_AMOUNT, CURRENCY]),
    built_in!(
        "render-failed-refunded",
        &[("videoId", "the video that could not be made"), REFUND_AMOUNT, CURRENCY, RESERVATION]
    ),
    built_in!(
        "deadline-alert",
        &[
            ("staffName", "who is written to"),
            ("officeName", "whose deadlines they are"),
            (
                "renewalAlerts",
                "a list, may be empty: `{name, deadline?, daysLeft?}` for each renewal that is due"
            ),
            (
                "assessmentAlerts",
                "a list, may be empty: `{name, deadline?, daysLeft?}` for each assessment that is due"
            ),
            ("dashboardUrl", "where to look, `https://…`"),
        ]
    ),
];
