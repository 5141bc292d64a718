//! Settings of mail.

use super::{Key, Kind, MAX_COUNT, MAX_MILLIS, MAX_SECONDS, key};

const MAIL: &str = "Mail";

pub const KEYS: &[Key] = &[
    key(
        MAIL,
        "MAIL_PROVIDER",
        Kind::Choice(&["sandbox", "smtp", "file"]),
        "sandbox",
        "Who takes mail: an inbox inside this server that `GET /mail/inbox` shows, a mail server, or a folder.",
    ),
    key(
        MAIL,
        "SMTP_URL",
        Kind::Secret,
        "",
        "The mail server, for `MAIL_PROVIDER=smtp`: `smtp://user:password@host:587?tls=starttls`. `tls` is `starttls`, `tls` (from the first byte, as on port 465) or, on a loopback address only, `none`.",
    ),
    key(
        MAIL,
        "SMTP_CA_FILE",
        Kind::Text,
        "",
        "Certificates in PEM that the mail server's must be signed by. None: those of the machine.",
    ),
    key(
        MAIL,
        "MAIL_FROM",
        Kind::Text,
        "",
        "The sender's address. Needed for `MAIL_PROVIDER=smtp` and `file`.",
    ),
    key(
        MAIL,
        "MAIL_FILE_DIR",
        Kind::Text,
        "mail",
        "Where mails are written, for `MAIL_PROVIDER=file`.",
    ),
    key(
        MAIL,
        "MAIL_TEMPLATES_DIR",
        Kind::Text,
        "",
        "A folder with templates of your own, checked at start-up: `NAME/ja.subject`, `ja.html`, `ja.text`, and the same for `en`.",
    ),
    key(
        MAIL,
        "MAIL_CONCURRENCY",
        Kind::Int { min: 1, max: 1000 },
        "5",
        "Mails that are sent at the same moment, per process. Takes the place of `OUTBOX_MAIL_CONCURRENCY`.",
    ),
    key(
        MAIL,
        "MAIL_RATE_PER_SEC",
        Kind::Float { min: 0.001, max: 100_000.0 },
        "12",
        "Mails in any second, by all processes on one database together. Set it a little below what the server allows.",
    ),
    key(
        MAIL,
        "MAIL_DAILY_QUOTA",
        Kind::Int { min: 0, max: MAX_COUNT },
        "50000",
        "Mails in any 24 hours, by all processes on one database together; 0 is no limit. When it is used up, mails wait.",
    ),
    key(
        MAIL,
        "MAIL_TIMEOUT_MS",
        Kind::Millis { min: 50, max: MAX_MILLIS },
        "30000",
        "How long one attempt may take, from connecting to the last answer.",
    ),
    key(
        MAIL,
        "MAIL_MAX_ATTEMPTS",
        Kind::Int { min: 1, max: 100 },
        "3",
        "Attempts after which a mail is given up. What the pace, the quota or the settings are to blame for is no attempt.",
    ),
    key(
        MAIL,
        "MAIL_BACKOFF_SEC",
        Kind::SecondsList,
        "[2, 4, 8]",
        "Waits after the first, second, … attempt; the last one repeats.",
    ),
    key(
        MAIL,
        "MAIL_PARK_SEC",
        Kind::Seconds { min: 0.05, max: MAX_SECONDS },
        "600",
        "How long nothing is sent after the server has said that its daily quota is used up.",
    ),
    key(
        MAIL,
        "MAIL_PROBE_SEC",
        Kind::Seconds { min: 0.05, max: MAX_SECONDS },
        "60",
        "How often a server is asked whether it takes us again, after it has refused our login, certificate or sender.",
    ),
    key(
        MAIL,
        "MAIL_KEEP_DAYS",
        Kind::Float { min: 0.000_01, max: 36_500.0 },
        "90",
        "How long mails, with their recipients and data, are kept after they have ended; and for how long their keys are known.",
    ),
];
