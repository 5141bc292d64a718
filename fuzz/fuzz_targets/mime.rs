//! A mail as it is written: whatever stands in it, no line of it becomes a header or ends the mail.
#![no_main]

use libfuzzer_sys::fuzz_target;
use tashika_fuzz::now;
use tashika_providers::mail::Parcel;
use tashika_providers::mail::mime::Message;

const HEADERS: [&str; 12] = [
    "from",
    "to",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
    "auto-submitted",
    "x-auto-response-suppress",
    "precedence",
    "content-language",
];

fuzz_target!(|input: (&str, &str, &str, &str, &str)| {
    let (to, subject, text, html, id) = input;
    let to = if to.len() % 2 == 0 { "reader@example.com" } else { to };
    let id = if id.len() % 2 == 0 { "id-1@example.com" } else { id };
    let parcel = Parcel {
        from: "no-reply@example.com".to_owned(),
        to: to.to_owned(),
        message_id: id.to_owned(),
        subject: subject.to_owned(),
        html: html.to_owned(),
        text: text.to_owned(),
        date: now(),
    };
    let Ok(message) = Message::of(&parcel) else { return };
    let written = String::from_utf8(message.bytes.clone()).expect("everything is ASCII");
    assert!(written.is_ascii() && written.ends_with("\r\n"));
    assert!(!written.replace("\r\n", "").contains(['\r', '\n', '\0']), "bare line ends");
    assert!(written.lines().all(|line| line.len() <= 998));
    let (head, _) = written.split_once("\r\n\r\n").expect("a head and a body");
    for line in head.split("\r\n").filter(|line| !line.starts_with([' ', '\t'])) {
        let (name, _) = line.split_once(':').expect("a header");
        assert!(HEADERS.contains(&name.to_ascii_lowercase().as_str()), "{line}");
    }
    for name in ["To:", "From:", "Subject:", "Message-ID:"] {
        let found = head.split("\r\n").filter(|line| {
            line.get(..name.len()).is_some_and(|start| start.eq_ignore_ascii_case(name))
        });
        assert_eq!(found.count(), 1, "{name}");
    }
    let stuffed = String::from_utf8(message.stuffed()).expect("ASCII");
    assert!(stuffed.split("\r\n").all(|line| line != "."), "a lone dot ends the mail early");
});
