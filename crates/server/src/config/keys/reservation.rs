//! Settings of reservations.

use super::{Key, Kind, MAX_SECONDS, key};

const RESERVATIONS: &str = "Reservations";

pub const KEYS: &[Key] = &[
    key(
        RESERVATIONS,
        "RESERVATION_HOLD_SEC",
        Kind::Seconds { min: 0.01, max: MAX_SECONDS },
        "900",
        "How long a slot is held for a customer who has not paid yet.",
    ),
    key(
        RESERVATIONS,
        "RESERVATION_SLOTS_PER_DAY",
        Kind::Int { min: 1, max: 100_000 },
        "20",
        "How many slots a day has, numbered from 1.",
    ),
    key(
        RESERVATIONS,
        "RESERVATION_LATE_PAYMENT",
        Kind::Choice(&["refund", "reclaim"]),
        "refund",
        "What happens to money that comes after the hold's end: `refund` gives it back, because the deadline holds; `reclaim` gives the customer the slot after all, if nobody else has it.",
    ),
    key(
        RESERVATIONS,
        "CHECKOUT_SUCCESS_URL",
        Kind::WebUrl,
        "",
        "Where the gateway sends a customer who has paid. Empty is this server's own page.",
    ),
    key(
        RESERVATIONS,
        "CHECKOUT_CANCEL_URL",
        Kind::WebUrl,
        "",
        "Where the gateway sends a customer who turned back. Empty is this server's own page.",
    ),
];
