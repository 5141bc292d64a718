use proptest::prelude::*;

use super::*;

fn parcel() -> Parcel {
    Parcel {
        from: "no-reply@example.com".to_owned(),
        to: "taro@example.com".to_owned(),
        message_id: "0193-a@tashika.example".to_owned(),
        subject: "Hello".to_owned(),
        html: "<p>Hello</p>".to_owned(),
        text: "Hello".to_owned(),
        date: Timestamp::from_micros(1_763_199_000_123_456),
    }
}

fn text(parcel: &Parcel) -> String {
    String::from_utf8(Message::of(parcel).unwrap().bytes).unwrap()
}

/// The headers, unfolded.
fn headers(mail: &str) -> Vec<(String, String)> {
    let head = mail.split("\r\n\r\n").next().unwrap().replace("\r\n ", " ");
    let pair = |line: &str| {
        let (name, value) = line.split_once(": ").unwrap_or_else(|| panic!("{line:?}"));
        (name.to_owned(), value.to_owned())
    };
    head.split("\r\n").map(pair).collect()
}

/// A subject as a reader sees it.
fn shown(value: &str) -> String {
    if !value.starts_with("=?") {
        return value.to_owned();
    }
    let word = |word: &str| {
        let inner = word.strip_prefix("=?UTF-8?B?").unwrap().strip_suffix("?=").unwrap();
        String::from_utf8(STANDARD.decode(inner).unwrap()).unwrap()
    };
    value.split(' ').map(word).collect()
}

#[test]
fn a_plain_mail_is_readable() {
    let mail = text(&parcel());
    assert!(mail.contains("Date: Sat, 15 Nov 2025 09:30:00 +0000\r\n"), "{mail}");
    assert!(mail.contains("Message-ID: <0193-a@tashika.example>\r\n"));
    assert!(mail.contains("Content-Transfer-Encoding: 7bit\r\n\r\nHello\r\n--=_tashika_"));
    assert!(mail.contains("\r\n\r\n<p>Hello</p>\r\n--=_tashika_"));
    assert!(mail.ends_with("--\r\n"));
    assert_eq!(mail, text(&parcel()), "the same parcel, the same bytes");
}

#[test]
fn subjects_cannot_add_headers() {
    for subject in
        ["Hi\r\nBcc: eve@example.com", "Hi\nBcc: eve@example.com", "Hi\rBcc: x", "\u{85}a"]
    {
        let mail = text(&Parcel { subject: subject.to_owned(), ..parcel() });
        let names: Vec<_> = headers(&mail).into_iter().map(|(name, _)| name).collect();
        assert!(!names.iter().any(|name| name == "Bcc"), "{mail}");
        assert_eq!(names.len(), 8);
    }
}

#[test]
fn whatever_cannot_be_sent_is_said_at_once() {
    let cases = [
        (Parcel { to: "taro@example.com\r\nX: y".into(), ..parcel() }, MailFault::Recipient),
        (Parcel { from: "Tashika".into(), ..parcel() }, MailFault::Configuration),
        (Parcel { message_id: "a>\r\nX: y".into(), ..parcel() }, MailFault::Template),
        (Parcel { message_id: String::new(), ..parcel() }, MailFault::Template),
    ];
    for (parcel, class) in cases {
        let unfit = Message::of(&parcel).err().unwrap();
        assert_eq!(unfit.class, class);
        assert!(!unfit.why.contains("taro"), "{}", unfit.why);
    }
}

#[test]
fn dots_are_doubled_and_lines_end_as_they_must() {
    let parcel = Parcel { text: ".\n..b\r.c\r\nd.".to_owned(), ..parcel() };
    let message = Message::of(&parcel).unwrap();
    let stuffed = String::from_utf8(message.stuffed()).unwrap();
    assert!(stuffed.contains("\r\n\r\n..\r\n...b\r\n..c\r\nd.\r\n--"), "{stuffed}");
}

#[test]
fn a_text_with_the_boundary_in_it_is_encoded() {
    let inner = boundary(&parcel().message_id);
    let mail = text(&Parcel { text: format!("--{inner}--"), ..parcel() });
    assert_eq!(mail.matches(&inner).count(), 4, "declared once, used three times: {mail}");
}

proptest! {
    #[test]
    fn every_mail_is_ascii_in_short_lines(
        subject in ".{0,300}|[a-z ]{0,400}|[ぁ-ん ]{0,200}|[a-z]{950}",
        words in "(.|\n|\r){0,300}|[a-z]{0,1200}",
    ) {
        let parcel = Parcel { subject: subject.clone(), text: words.clone(), html: words, ..parcel() };
        let mail = text(&parcel);
        prop_assert!(mail.is_ascii());
        prop_assert!(mail.split("\r\n").all(|line| line.len() <= 998 && !line.contains(['\r', '\n'])));
        let headers = headers(&mail);
        prop_assert_eq!(headers.len(), 8);
        let expected: String =
            subject.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
        prop_assert_eq!(shown(&headers[2].1), expected.trim());
        let stuffed = Message::of(&parcel).unwrap().stuffed();
        prop_assert!(!stuffed.windows(5).any(|five| five == b"\r\n.\r\n"));
    }

    #[test]
    fn encoded_words_fit_into_a_line(subject in "[ぁ-ん😀]{1,200}") {
        let header = format!("Subject: {}", encoded(&subject));
        prop_assert!(header.split("\r\n").all(|line| line.len() <= 76), "{}", header);
    }
}
