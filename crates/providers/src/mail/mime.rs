//! A mail as it travels: headers, and the same words as text and as HTML.
//!
//! Lines end with CRLF and are short; everything is ASCII, so that every server takes it (what is not
//! ASCII is base64). No input can add a header or end one: addresses are parsed, the Message-ID is
//! checked, the subject is encoded. The same parcel gives the same bytes.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use tashika_domain::Timestamp;
use tashika_domain::digest::sha256;
use tashika_domain::mail::{Address, MailFault};

use super::Parcel;

/// RFC 2045 §6.8: at most 76 characters of base64 in a line.
const BASE64_LINE: usize = 76;
/// Bytes in an encoded word: 52 characters of base64 and 12 around them, which leaves room for the
/// header's name in the 76 characters that RFC 2047 §2 allows a line.
const ENCODED_WORD_BYTES: usize = 39;
/// Where lines of plain words are folded; RFC 5322 §2.1.1 asks for less than 79.
const FOLD_AT: usize = 76;
/// Longest line that is left as it is; RFC 5322 §2.1.1 forbids more than 998.
const LINE_MAX: usize = 900;

/// A parcel that can be sent: for whom, and the bytes.
#[derive(Clone)]
pub struct Message {
    pub from: Address,
    pub to: Address,
    /// Ends with a line end; dots at the beginning of lines are not doubled yet.
    pub bytes: Vec<u8>,
}

/// Why a parcel can be sent by nobody.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    pub class: MailFault,
    pub why: String,
}

impl Message {
    pub fn of(parcel: &Parcel) -> Result<Self, Unfit> {
        let unfit = |class, why: String| Unfit { class, why };
        let from: Address = parcel.from.parse().map_err(|error| {
            unfit(MailFault::Configuration, format!("the sender's address: {error}"))
        })?;
        let to: Address = parcel.to.parse().map_err(|error| {
            unfit(MailFault::Recipient, format!("the recipient's address: {error}"))
        })?;
        let id = &parcel.message_id;
        let fits = |c: char| c.is_ascii_graphic() && !"<>()[]\\\",;:".contains(c);
        if id.is_empty() || id.len() > 250 || !id.chars().all(fits) {
            return Err(unfit(MailFault::Template, "the Message-ID cannot be a header".to_owned()));
        }
        let date = date(parcel.date)
            .map_err(|error| unfit(MailFault::Template, format!("the date: {error}")))?;
        let bytes = written(parcel, &from, &to, &date).into_bytes();
        Ok(Self { from, to, bytes })
    }

    /// The bytes with every dot at the beginning of a line doubled (RFC 5321 §4.5.2), without the
    /// final dot.
    #[must_use]
    pub fn stuffed(&self) -> Vec<u8> {
        let mut stuffed = Vec::with_capacity(self.bytes.len() + 64);
        let mut line_starts = true;
        for byte in &self.bytes {
            if line_starts && *byte == b'.' {
                stuffed.push(b'.');
            }
            stuffed.push(*byte);
            line_starts = *byte == b'\n';
        }
        stuffed
    }
}

fn written(parcel: &Parcel, from: &Address, to: &Address, date: &str) -> String {
    let boundary = boundary(&parcel.message_id);
    let mut mail = String::with_capacity(2048 + (parcel.text.len() + parcel.html.len()) * 3 / 2);
    let mut line = |text: &str| {
        mail.push_str(text);
        mail.push_str("\r\n");
    };
    line(&format!("From: {from}"));
    line(&format!("To: {to}"));
    line(&format!("Subject: {}", subject(&parcel.subject)));
    line(&format!("Date: {date}"));
    line(&format!("Message-ID: <{}>", parcel.message_id));
    // RFC 3834: nobody's holiday notice needs to answer this.
    line("Auto-Submitted: auto-generated");
    line("MIME-Version: 1.0");
    line("Content-Type: multipart/alternative;");
    line(&format!(" boundary=\"{boundary}\""));
    line("");
    // The last one is the one that a reader who can shows (RFC 2046 §5.1.4).
    for (kind, words) in [("plain", &parcel.text), ("html", &parcel.html)] {
        let words = words.replace("\r\n", "\n").replace('\r', "\n").replace('\n', "\r\n");
        line(&format!("--{boundary}"));
        line(&format!("Content-Type: text/{kind}; charset=utf-8"));
        if travels_as_it_is(&words, &boundary) {
            line("Content-Transfer-Encoding: 7bit");
            line("");
            line(&words);
        } else {
            line("Content-Transfer-Encoding: base64");
            line("");
            let encoded = STANDARD.encode(words.as_bytes());
            for piece in encoded.as_bytes().chunks(BASE64_LINE) {
                line(&String::from_utf8_lossy(piece));
            }
        }
    }
    line(&format!("--{boundary}--"));
    mail
}

fn travels_as_it_is(words: &str, boundary: &str) -> bool {
    let plain = |byte: u8| matches!(byte, b' '..=b'~' | b'\t' | b'\r' | b'\n');
    words.bytes().all(plain)
        && words.split("\r\n").all(|line| line.len() <= LINE_MAX)
        && !words.contains(boundary)
}

/// No line of base64 has `_` in it, and of other lines this is checked.
fn boundary(message_id: &str) -> String {
    let digest = sha256(message_id.as_bytes());
    let hex = digest.trim_start_matches("sha256:");
    format!("=_tashika_{}", hex.get(..24).unwrap_or(hex))
}

/// The value of the header `Subject`, folded. Characters that end lines become spaces.
fn subject(words: &str) -> String {
    let words: String = words.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let words = words.trim();
    // Folded at one of two spaces, a line could consist of the other, which some readers take for the
    // end of the headers.
    let plain = words.is_ascii() && !words.contains("=?") && !words.contains("  ");
    if plain && words.split(' ').all(|word| word.len() < LINE_MAX) {
        folded(words)
    } else {
        encoded(words)
    }
}

/// Folded between words (RFC 5322 §2.2.3).
fn folded(words: &str) -> String {
    let mut out = String::with_capacity(words.len() + 8);
    let mut width = "Subject: ".len();
    for (at, word) in words.split(' ').enumerate() {
        if at > 0 && width + 1 + word.len() > FOLD_AT {
            out.push_str("\r\n ");
            width = 1;
        } else if at > 0 {
            out.push(' ');
            width += 1;
        }
        out.push_str(word);
        width += word.len();
    }
    out
}

/// As encoded words (RFC 2047), none of which cuts a character in two.
fn encoded(words: &str) -> String {
    let mut pieces = vec![String::new()];
    for c in words.chars() {
        let full =
            pieces.last().is_none_or(|piece| piece.len() + c.len_utf8() > ENCODED_WORD_BYTES);
        if full {
            pieces.push(String::new());
        }
        if let Some(piece) = pieces.last_mut() {
            piece.push(c);
        }
    }
    let word = |piece: &String| format!("=?UTF-8?B?{}?=", STANDARD.encode(piece));
    pieces.iter().map(word).collect::<Vec<_>>().join("\r\n ")
}

fn date(at: Timestamp) -> Result<String, jiff::Error> {
    let at = jiff::Timestamp::from_microsecond(at.as_micros())?;
    jiff::fmt::rfc2822::to_string(&at.to_zoned(jiff::tz::TimeZone::UTC))
}

#[cfg(test)]
mod tests;
