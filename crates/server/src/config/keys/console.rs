//! Settings of the console.

use super::{Key, Kind, MAX_SECONDS, key};

const CONSOLE: &str = "Console";

pub const KEYS: &[Key] = &[
    key(
        CONSOLE,
        "CONSOLE_ENABLED",
        Kind::Bool,
        "true",
        "Serve the operator's console at `/console`.",
    ),
    key(
        CONSOLE,
        "CONSOLE_USERS",
        Kind::Secret,
        "",
        "People who may log in to the console: `NAME:ROLE:HASH`, separated by commas. The role is `viewer` (looks) or `operator` (looks and acts); `tashika console hash` makes the hash. An API token can log in as well, as an operator.",
    ),
    key(
        CONSOLE,
        "CONSOLE_SESSION_SEC",
        Kind::Seconds { min: 60.0, max: MAX_SECONDS },
        "43200",
        "How long a login to the console lasts. Changing `CONSOLE_USERS` or `TASHIKA_API_TOKENS` ends every session at the next start.",
    ),
];
