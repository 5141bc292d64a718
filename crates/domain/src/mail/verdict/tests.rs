use proptest::prelude::*;

use super::*;
use MailFault as F;
use Stage as S;

/// Every line of the facts, as a server says it, at the step where it says it.
const ANSWERS: &[(Stage, u16, &str, MailFault)] = &[
    (S::Greeting, 421, "Too many concurrent SMTP connections", F::Throttled),
    (S::MailFrom, 421, "4.3.2 Service shutting down", F::Retryable),
    (S::AfterData, 421, "4.4.2 Bad thing", F::Retryable),
    (S::AfterData, 451, "Temporary service failure", F::Retryable),
    (S::AfterData, 451, "Timeout waiting for data from client", F::Retryable),
    (S::RcptTo, 451, "4.7.1 Greylisted, come again", F::Retryable),
    (S::RcptTo, 450, "4.2.1 mailbox busy", F::Retryable),
    (S::RcptTo, 452, "4.2.2 mailbox over quota", F::Retryable),
    (S::AfterData, 454, "Temporary service failure", F::Retryable),
    (S::AfterData, 454, "Throttling failure: Maximum sending rate exceeded.", F::Throttled),
    (S::RcptTo, 454, "Maximum SENDING RATE exceeded", F::Throttled),
    (S::AfterData, 454, "Throttling failure: Daily message quota exceeded.", F::Quota),
    (S::MailFrom, 454, "4.7.0 Daily message quota exceeded", F::Quota),
    (S::RcptTo, 550, "5.4.5 Daily user sending limit exceeded.", F::Quota),
    (S::Auth, 454, "4.7.0 Temporary authentication failure", F::Retryable),
    (S::Tls, 454, "TLS not available due to temporary reason", F::Retryable),
    (S::Auth, 530, "Authentication required", F::Configuration),
    (S::MailFrom, 530, "5.7.0 Must issue a STARTTLS command first", F::Configuration),
    (S::Auth, 535, "Authentication Credentials Invalid", F::Configuration),
    (S::Auth, 535, "Account not subscribed to SES", F::Configuration),
    (S::Auth, 534, "5.7.9 mechanism too weak", F::Configuration),
    (S::Auth, 538, "encryption required", F::Configuration),
    (S::Auth, 504, "unrecognised mechanism", F::Configuration),
    (S::Tls, 502, "no STARTTLS here", F::Configuration),
    (S::Greeting, 554, "no SMTP service here", F::Configuration),
    (S::Ehlo, 550, "who are you", F::Configuration),
    (S::Greeting, 503, "503 Service Temporarily Unavailable", F::Retryable),
    (S::AfterData, 503, "Service Temporarily Unavailable", F::Retryable),
    (S::MailFrom, 501, "5.1.7 bad sender address syntax", F::Configuration),
    (S::MailFrom, 555, "syntax", F::Configuration),
    (S::MailFrom, 550, "sender rejected", F::Recipient),
    (S::RcptTo, 550, "5.1.1 no such user", F::Recipient),
    (S::RcptTo, 551, "user not local", F::Recipient),
    (S::RcptTo, 552, "5.2.2 mailbox full", F::Recipient),
    (S::RcptTo, 553, "5.1.3 mailbox name not allowed", F::Recipient),
    (S::RcptTo, 501, "5.1.3 bad address syntax", F::Recipient),
    (S::AfterData, 552, "Message is too long", F::Recipient),
    (S::AfterData, 554, "Message rejected: Email address is not verified.", F::Recipient),
    (S::AfterData, 554, "Access denied: User `arn` is not authorized", F::Recipient),
    (S::AfterData, 554, "Transaction failed", F::Recipient),
    // Only 250 is a yes, and only there.
    (S::AfterData, 354, "End data with <CR><LF>.<CR><LF>", F::PossiblySent),
    (S::AfterData, 251, "forwarded", F::PossiblySent),
    (S::MailFrom, 354, "End data", F::Retryable),
    (S::Data, 250, "Ok", F::Retryable),
];

#[test]
fn every_answer_has_its_class() {
    for (stage, code, text, fault) in ANSWERS {
        assert_eq!(classify(*stage, Some(*code), text), *fault, "{stage:?} {code} {text}");
    }
}

#[test]
fn every_line_of_the_table_decides_something() {
    for (line, rule) in TABLE.iter().enumerate() {
        let decided = ANSWERS.iter().any(|(stage, code, text, _)| {
            let text = text.to_ascii_lowercase();
            let first = TABLE.iter().position(|rule| {
                (rule.stages.0..=rule.stages.1).contains(stage)
                    && (rule.codes.0..=rule.codes.1).contains(code)
                    && rule.says.iter().all(|word| text.contains(word))
            });
            first == Some(line)
        });
        assert!(decided, "no answer above reaches {rule:?}");
        let lower = |words: &[&str]| words.iter().all(|word| *word == word.to_ascii_lowercase());
        assert!(lower(rule.says), "{rule:?}");
    }
}

#[test]
fn silence_is_judged_by_the_final_dot() {
    for stage in S::ALL {
        for text in ["no answer within 30000 ms", "connection reset", ""] {
            let expected = if stage == S::AfterData { F::PossiblySent } else { F::Retryable };
            assert_eq!(classify(stage, None, text), expected, "{stage:?} {text}");
        }
    }
    let untrusted = "invalid peer certificate: UnknownIssuer";
    assert_eq!(classify(S::Tls, None, untrusted), F::Configuration);
    assert_eq!(classify(S::Tls, None, "the server does not offer STARTTLS"), F::Configuration);
    assert_eq!(classify(S::Auth, None, "the server does not offer PLAIN"), F::Configuration);
    // The words count only where they are about us.
    assert_eq!(classify(S::AfterData, None, untrusted), F::PossiblySent);
}

#[test]
fn a_full_disk_fails_at_once() {
    for kind in MACHINE {
        assert_eq!(classify_machine(*kind), F::Template, "{kind:?}");
    }
    for kind in [io::ErrorKind::ConnectionRefused, io::ErrorKind::Interrupted] {
        assert_eq!(classify_machine(kind), F::Retryable, "{kind:?}");
    }
}

#[test]
fn trouble_with_the_sender_is_told() {
    let not_verified = "Message rejected: Email address is not verified. The following identities…";
    assert!(sender_alert(Some(554), not_verified).unwrap().contains("MAIL_FROM"));
    assert!(sender_alert(Some(554), "Access denied: User is not authorized").is_some());
    assert_eq!(sender_alert(Some(554), "Transaction failed"), None);
    assert_eq!(sender_alert(Some(550), "not verified"), None);
    assert_eq!(sender_alert(None, "not verified"), None);
}

#[test]
fn the_words_are_those_of_the_wire() {
    for fault in [
        F::Retryable,
        F::Throttled,
        F::Quota,
        F::Recipient,
        F::Configuration,
        F::Template,
        F::PossiblySent,
    ] {
        assert_eq!(serde_json::to_value(fault).unwrap(), fault.as_str());
    }
}

proptest! {
    /// The two promises that lose or double mail when broken.
    #[test]
    fn nothing_is_possibly_sent_before_the_dot(at in 0..S::ALL.len(), code: Option<u16>, text in ".{0,40}") {
        let stage = S::ALL[at];
        let fault = classify(stage, code, &text);
        if stage != S::AfterData {
            prop_assert_ne!(fault, F::PossiblySent);
        }
        if stage == S::AfterData && code.is_none_or(|code| !(400..600).contains(&code)) {
            prop_assert_eq!(fault, F::PossiblySent);
        }
        // A no is a no, wherever it is said.
        if code.is_some_and(|code| (400..600).contains(&code)) {
            prop_assert_ne!(fault, F::PossiblySent);
        }
    }
}
