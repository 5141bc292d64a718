//! What a mail server's answer, or its silence, means.
//!
//! The rules are data ([`TABLE`], [`SILENCE`], [`MACHINE`]) and [`classify`] reads them from the top:
//! the first line that fits decides. They follow Amazon SES's published replies and RFC 5321, in this
//! order of belief. Called by `providers::mail`, which knows at which step of the conversation
//! something was said; what a class leads to (another attempt, a stopped lane, a failed mail) is
//! decided elsewhere.
//!
//! Two lines carry the rest. A mail is sent if the server said exactly 250 after the final dot. A
//! server that fell silent before that dot has not got the mail; one that fell silent after it may
//! have, and nobody can ask.

use std::io;

use serde::{Deserialize, Serialize};

/// How one attempt to send a mail ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum MailResult {
    /// The server said 250 after the final dot, and this with it.
    Sent { response: String },
    /// It did not say so.
    Refused {
        class: MailFault,
        /// What the server answered, if it did.
        code: Option<u16>,
        /// In the server's words, or in ours where it said nothing. No addresses, no credentials.
        text: String,
    },
}

/// What a failure means for the mail and for those behind it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MailFault {
    /// Not sent; later it may work.
    Retryable,
    /// Not sent: too fast, or too many at once. Later, and slower, it will work.
    Throttled,
    /// Not sent: what may be sent in a day is used up. Nothing will work until some of it is free.
    Quota,
    /// Not sent, and this mail never will be.
    Recipient,
    /// Not sent; neither will any other mail be until somebody changes a setting here or there.
    Configuration,
    /// Not sent for a reason of our own: the template, its data, or this machine's memory or disk.
    Template,
    /// The whole mail went out, and no answer came back.
    PossiblySent,
}

impl MailFault {
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Retryable => "retryable",
            Self::Throttled => "throttled",
            Self::Quota => "quota",
            Self::Recipient => "recipient",
            Self::Configuration => "configuration",
            Self::Template => "template",
            Self::PossiblySent => "possibly_sent",
        }
    }
}

/// How far the conversation had come: the step whose answer is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// Name lookup and TCP.
    Connect,
    /// `STARTTLS` and the handshake.
    Tls,
    Greeting,
    Ehlo,
    Auth,
    MailFrom,
    RcptTo,
    /// The command, and the mail up to its final dot.
    Data,
    /// From the first byte of the final dot.
    AfterData,
}

impl Stage {
    pub const ALL: [Self; 9] = [
        Self::Connect,
        Self::Tls,
        Self::Greeting,
        Self::Ehlo,
        Self::Auth,
        Self::MailFrom,
        Self::RcptTo,
        Self::Data,
        Self::AfterData,
    ];

    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connect => "connecting",
            Self::Tls => "TLS",
            Self::Greeting => "greeting",
            Self::Ehlo => "EHLO",
            Self::Auth => "AUTH",
            Self::MailFrom => "MAIL FROM",
            Self::RcptTo => "RCPT TO",
            Self::Data => "DATA",
            Self::AfterData => "the final dot",
        }
    }
}

/// A line of [`TABLE`]: an answer that fits all of it means `fault`.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// Inclusive: the first and the last step it is about.
    pub stages: (Stage, Stage),
    /// Inclusive.
    pub codes: (u16, u16),
    /// The text has all of these in it, in any case. None: any text.
    pub says: &'static [&'static str],
    pub fault: MailFault,
    pub why: &'static str,
}

const ANY: (Stage, Stage) = (Stage::Connect, Stage::AfterData);
/// Before the server has heard anything of this mail: whatever it says, it says to all mails.
const OPENING: (Stage, Stage) = (Stage::Connect, Stage::Auth);

const fn rule(
    stages: (Stage, Stage),
    codes: (u16, u16),
    says: &'static [&'static str],
    fault: MailFault,
    why: &'static str,
) -> Rule {
    Rule { stages, codes, says, fault, why }
}

/// What answers mean. Read from the top; the first that fits decides.
pub const TABLE: &[Rule] = &[
    // Limits, which look like failures of all kinds. Never to be repeated at the same pace.
    rule(ANY, (400, 499), &["daily", "quota"], MailFault::Quota, "SES: 454 daily quota"),
    rule(ANY, (400, 599), &["daily user sending"], MailFault::Quota, "Gmail: 550 5.4.5"),
    rule(ANY, (400, 499), &["throttling"], MailFault::Throttled, "SES: 454 sending rate"),
    rule(ANY, (400, 499), &["sending rate"], MailFault::Throttled, "SES: 454 sending rate"),
    rule(ANY, (421, 421), &["too many"], MailFault::Throttled, "SES: 421 connections"),
    // RFC 5321: 4yz is transient. Among them 454 for a login that could not be checked.
    rule(ANY, (400, 499), &[], MailFault::Retryable, "transient"),
    // No reply of RFC 5321 to anything that we say in this order: the server is not itself.
    rule(ANY, (503, 503), &[], MailFault::Retryable, "out of order"),
    // Credentials, wherever the server asks for them.
    rule(ANY, (530, 530), &[], MailFault::Configuration, "wants a login, or TLS first"),
    rule(ANY, (534, 535), &[], MailFault::Configuration, "credentials refused"),
    rule(ANY, (538, 538), &[], MailFault::Configuration, "wants TLS for a login"),
    rule(OPENING, (500, 599), &[], MailFault::Configuration, "refuses us, not the mail"),
    // The sender: a word of the configuration that cannot be a sender at all.
    rule(
        (Stage::MailFrom, Stage::MailFrom),
        (500, 504),
        &[],
        MailFault::Configuration,
        "MAIL_FROM is no sender",
    ),
    rule(
        (Stage::MailFrom, Stage::MailFrom),
        (555, 555),
        &[],
        MailFault::Configuration,
        "MAIL_FROM is no sender",
    ),
    // RFC 5321: 5yz is permanent. 550 to 554: no mailbox, too long, not verified, rejected.
    rule(ANY, (500, 599), &[], MailFault::Recipient, "permanent"),
    // Neither yes nor no, where the server already has the mail: only 250 is yes.
    rule(
        (Stage::AfterData, Stage::AfterData),
        (0, u16::MAX),
        &[],
        MailFault::PossiblySent,
        "an answer, but to what?",
    ),
    rule(ANY, (0, u16::MAX), &[], MailFault::Retryable, "an answer, but to what?"),
];

/// What it means that no answer came, with what is known about why. Read from the top.
pub const SILENCE: &[(Stage, &[&str], MailFault)] = &[
    // A certificate that is not trusted will not be trusted in two seconds; the mails can wait.
    (Stage::Tls, &["certificate"], MailFault::Configuration),
    (Stage::Tls, &["does not offer"], MailFault::Configuration),
    (Stage::Auth, &["does not offer"], MailFault::Configuration),
    (Stage::AfterData, &[], MailFault::PossiblySent),
];

/// Errors of this machine that another attempt does not mend.
pub const MACHINE: &[io::ErrorKind] = &[
    io::ErrorKind::OutOfMemory,
    io::ErrorKind::StorageFull,
    io::ErrorKind::QuotaExceeded,
    io::ErrorKind::FileTooLarge,
    io::ErrorKind::ReadOnlyFilesystem,
    io::ErrorKind::PermissionDenied,
    io::ErrorKind::NotFound,
    io::ErrorKind::NotADirectory,
];

/// What an answer (`code`), or none, means at this step of the conversation.
///
/// `text` is what came with the code, or what is known about the silence. The one answer that is no
/// failure, 250 after the final dot, is not asked about.
#[must_use]
pub fn classify(stage: Stage, code: Option<u16>, text: &str) -> MailFault {
    let text = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().all(|word| text.contains(word));
    let Some(code) = code else {
        let known = SILENCE.iter().find(|(at, words, _)| *at == stage && says(words));
        return known.map_or(MailFault::Retryable, |(_, _, fault)| *fault);
    };
    let fits = |rule: &&Rule| {
        (rule.stages.0..=rule.stages.1).contains(&stage)
            && (rule.codes.0..=rule.codes.1).contains(&code)
            && says(rule.says)
    };
    TABLE.iter().find(fits).map_or(MailFault::Retryable, |rule| rule.fault)
}

/// What an error of this machine means where no server was involved, e.g. for a file.
#[must_use]
pub fn classify_machine(kind: io::ErrorKind) -> MailFault {
    if MACHINE.contains(&kind) { MailFault::Template } else { MailFault::Retryable }
}

/// Refusals that are about the sender although they end one recipient's mail: what to tell a person.
const SENDER_TROUBLE: &[(u16, &str, &str)] = &[
    (
        554,
        "not verified",
        "The mail server refuses the sender: an address is not verified. Verify MAIL_FROM (in SES's \
         sandbox also each recipient) and retry the failed mails.",
    ),
    (
        554,
        "access denied",
        "The mail server denies access to the sender: the user of SMTP_URL may not send as MAIL_FROM. \
         Change its permissions and retry the failed mails.",
    ),
];

/// The alert that a refusal calls for although its class is [`MailFault::Recipient`]: the sender is
/// set up wrongly, so others will be refused, too.
#[must_use]
pub fn sender_alert(code: Option<u16>, text: &str) -> Option<&'static str> {
    let text = text.to_ascii_lowercase();
    let fits = |(at, words, _): &&(u16, &str, &str)| code == Some(*at) && text.contains(words);
    SENDER_TROUBLE.iter().find(fits).map(|(_, _, alert)| *alert)
}

#[cfg(test)]
mod tests;
