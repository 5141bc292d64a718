//! What a mail server says, read byte by byte (RFC 5321 §4.2).
//!
//! A reply is one line or several, all with the same three digits, the last with a space (or nothing)
//! after them. Whatever is anything else is no reply, and a conversation in which it was heard is
//! over: nobody knows to what the next line would be an answer.

/// Longest line that is read; RFC 5321 §4.5.3.1.5 asks for 512.
const LINE_MAX: usize = 4096;
/// Most lines of one reply. EHLO has one per extension.
const LINES_MAX: usize = 128;

/// A complete reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reply {
    pub code: u16,
    /// Without code and line ends, at least one.
    pub lines: Vec<String>,
}

impl Reply {
    /// All of its words in one line.
    #[must_use]
    pub fn text(&self) -> String {
        self.lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ").trim().to_owned()
    }
}

/// What came is no reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoReply {
    #[error("the server's answer does not begin with a code")]
    NoCode,
    #[error("the server's answer has two codes")]
    TwoCodes,
    #[error("the server's answer does not end")]
    Endless,
}

/// Reads the first reply in `bytes` and says how many it takes; `None` if its end has not come yet.
pub fn parse(bytes: &[u8]) -> Result<Option<(Reply, usize)>, NoReply> {
    let mut lines = Vec::new();
    let mut code = None;
    let mut at = 0;
    loop {
        let rest = &bytes[at..];
        let Some(end) = rest.iter().take(LINE_MAX).position(|byte| *byte == b'\n') else {
            // What is there already may be no reply, whatever else comes.
            if rest.len() >= LINE_MAX || lines.len() >= LINES_MAX {
                return Err(NoReply::Endless);
            }
            begins_with_a_code(rest)?;
            return Ok(None);
        };
        let line = &rest[..end];
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let (said, last, words) = parse_line(line)?;
        if *code.get_or_insert(said) != said {
            return Err(NoReply::TwoCodes);
        }
        lines.push(String::from_utf8_lossy(words).into_owned());
        at += end + 1;
        if last {
            return Ok(Some((Reply { code: said, lines }, at)));
        }
        if lines.len() >= LINES_MAX {
            return Err(NoReply::Endless);
        }
    }
}

fn begins_with_a_code(line: &[u8]) -> Result<(), NoReply> {
    let digits = line.iter().take(3);
    let first = line.first().is_none_or(|byte| (b'2'..=b'5').contains(byte));
    let fits = first && digits.into_iter().all(u8::is_ascii_digit);
    let separated = line.get(3).is_none_or(|byte| b" -\r".contains(byte));
    if fits && separated { Ok(()) } else { Err(NoReply::NoCode) }
}

/// The code, whether it is the last line, and the words.
fn parse_line(line: &[u8]) -> Result<(u16, bool, &[u8]), NoReply> {
    begins_with_a_code(line)?;
    let (digits, rest) = line.split_at_checked(3).ok_or(NoReply::NoCode)?;
    let code = digits.iter().fold(0, |code, digit| code * 10 + u16::from(digit - b'0'));
    match rest.split_first() {
        None => Ok((code, true, rest)),
        Some((b' ', words)) => Ok((code, true, words)),
        Some((b'-', words)) => Ok((code, false, words)),
        Some(_) => Err(NoReply::NoCode),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn reply(code: u16, lines: &[&str]) -> Reply {
        Reply { code, lines: lines.iter().map(ToString::to_string).collect() }
    }

    #[test]
    fn replies_are_read() {
        for (bytes, expected) in [
            ("250 Ok\r\n", reply(250, &["Ok"])),
            ("250\r\n", reply(250, &[""])),
            ("250 \n", reply(250, &[""])),
            ("354 End data with <CR><LF>\r\n", reply(354, &["End data with <CR><LF>"])),
            ("250-a\r\n250-\r\n250 SIZE 10\r\n", reply(250, &["a", "", "SIZE 10"])),
        ] {
            let (read, length) = parse(bytes.as_bytes()).unwrap().unwrap();
            assert_eq!((read, length), (expected, bytes.len()), "{bytes:?}");
        }
        assert_eq!(reply(250, &["a ", "", "b"]).text(), "a  b");
    }

    #[test]
    fn the_rest_is_the_next_reply() {
        let (read, length) = parse(b"354 go\r\n250 Ok\r\n").unwrap().unwrap();
        assert_eq!((read.code, length), (354, 8));
    }

    #[test]
    fn everything_else_is_refused_as_early_as_it_can_be() {
        let many = "250-x\r\n".repeat(LINES_MAX);
        let long = format!("250 {}", "x".repeat(LINE_MAX));
        for (bytes, why) in [
            ("HTTP/1.1 400 Bad Request\r\n", NoReply::NoCode),
            ("H", NoReply::NoCode),
            ("25x", NoReply::NoCode),
            ("150 x\r\n", NoReply::NoCode),
            ("600 x\r\n", NoReply::NoCode),
            ("2500 x\r\n", NoReply::NoCode),
            ("25\r\n", NoReply::NoCode),
            ("250\rx\r\n", NoReply::NoCode),
            ("\r\n", NoReply::NoCode),
            ("250-x\r\n550 y\r\n", NoReply::TwoCodes),
            (many.as_str(), NoReply::Endless),
            (long.as_str(), NoReply::Endless),
        ] {
            assert_eq!(parse(bytes.as_bytes()), Err(why), "{bytes:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_panics(bytes: Vec<u8>) {
            if let Ok(Some((reply, length))) = parse(&bytes) {
                prop_assert!(length <= bytes.len());
                prop_assert!((200..600).contains(&reply.code));
                prop_assert!(!reply.lines.is_empty());
            }
        }

        /// However the bytes arrive, they say the same, and nothing is read before its end.
        #[test]
        fn arrival_does_not_matter(
            code in 200_u16..600,
            lines in prop::collection::vec("[ -~あ]{0,20}", 1..5),
            next in "[ -~]{0,10}",
        ) {
            let last = lines.len() - 1;
            let mut bytes = Vec::new();
            for (at, line) in lines.iter().enumerate() {
                let mark = if at == last { ' ' } else { '-' };
                bytes.extend(format!("{code}{mark}{line}\r\n").into_bytes());
            }
            let length = bytes.len();
            bytes.extend(next.into_bytes());
            for cut in 0..length {
                prop_assert_eq!(parse(&bytes[..cut]), Ok(None));
            }
            prop_assert_eq!(parse(&bytes), Ok(Some((Reply { code, lines }, length))));
        }
    }
}
