//! Taking a batch apart while it comes in: a head, and recipients one by one.
//!
//! Lines are documents of their own. Of one large JSON document, the elements of `recipients` are cut
//! out where they begin and end, and everything else is its head; each piece is then read as strictly
//! as any other document. Memory holds one recipient, and what has come before the head is known.

use std::collections::VecDeque;

use http::HeaderMap;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use serde_json::Value;

use super::body::too_large;
use super::json;
use super::problem::{Code, Problem};

/// The longest recipient, and the longest head.
const PIECE_MAX: usize = 128 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    Lines,
    Document,
}

impl Format {
    pub fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let refused = || Problem::new(Code::UnsupportedMediaType);
        if headers.get(CONTENT_ENCODING).is_some_and(|value| value != "identity") {
            return Err(refused().detail(
                "A batch is read as it comes, and not decompressed.",
                "一括送信の本文は圧縮せずに送ってください。",
            ));
        }
        let kind = headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
        let kind = kind.ok_or_else(refused)?.to_ascii_lowercase();
        match kind.split(';').next().unwrap_or_default().trim() {
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Ok(Self::Lines),
            "application/json" => Ok(Self::Document),
            _ => Err(refused()),
        }
    }
}

pub struct Splitter {
    format: Format,
    /// So much of a document is read before anything of it is taken: fields may stand in any order.
    limit: usize,
    head: Option<Value>,
    /// What stands before the recipients of a document, if it names a template.
    early: Option<Value>,
    /// Recipients that were cut out and not read.
    pieces: VecDeque<Vec<u8>>,
    held: usize,
    /// What has come of the piece that is not complete.
    partial: Vec<u8>,
    scan: Scan,
    /// The document without its recipients.
    frame: Vec<u8>,
    count: usize,
}

/// Where in a document we are.
#[derive(Default)]
struct Scan {
    in_string: bool,
    escaped: bool,
    depth: usize,
    /// The last string of the outermost object: its newest name or value.
    word: Vec<u8>,
    place: Place,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Place {
    #[default]
    Before,
    /// Inside of `recipients`.
    Inside,
    After,
}

impl Splitter {
    #[must_use]
    pub fn new(format: Format, limit: usize) -> Self {
        Self {
            format,
            limit,
            head: None,
            early: None,
            pieces: VecDeque::new(),
            held: 0,
            partial: Vec::new(),
            scan: Scan::default(),
            frame: Vec::new(),
            count: 0,
        }
    }

    /// Takes the next bytes.
    pub fn feed(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        match self.format {
            Format::Lines => self.feed_lines(bytes)?,
            Format::Document => {
                for byte in bytes {
                    self.step(*byte);
                }
            }
        }
        let longest = self.partial.len().max(self.frame.len());
        if longest > PIECE_MAX {
            return Err(too_large(PIECE_MAX));
        }
        if self.head.is_none() && self.held > self.limit {
            self.head = self.early.take();
        }
        if self.head.is_none() && self.held > self.limit {
            return Err(Problem::new(Code::BadRequest).detail(
                "In a large document, template must stand before recipients.",
                "大きな本文では、template を recipients より前に置いてください。",
            ));
        }
        Ok(())
    }

    /// Nothing more comes.
    pub fn end(&mut self) -> Result<(), Problem> {
        match self.format {
            Format::Lines => {
                let last = std::mem::take(&mut self.partial);
                self.line(last)
            }
            Format::Document => {
                let whole = json::parse(&self.frame)?;
                match &self.head {
                    None => self.head = Some(whole),
                    // Too late: what was taken was taken for the head as it was then.
                    Some(known) if *known != whole => {
                        return Err(Problem::new(Code::BadRequest).detail(
                            "In a large document, everything else must stand before recipients.",
                            "大きな本文では、recipients を最後に置いてください。",
                        ));
                    }
                    Some(_) => {}
                }
                Ok(())
            }
        }
    }

    /// Everything but the recipients, as soon as it is known.
    #[must_use]
    pub fn head(&self) -> Option<&Value> {
        self.head.as_ref()
    }

    /// The next recipient that is there.
    pub fn next_recipient(&mut self) -> Result<Option<Value>, Problem> {
        let Some(piece) = self.pieces.pop_front() else { return Ok(None) };
        self.held -= piece.len();
        if piece.len() > PIECE_MAX {
            return Err(too_large(PIECE_MAX));
        }
        self.count += 1;
        let place = self.count - 1;
        json::parse(&piece).map(Some).map_err(|_| {
            Problem::new(Code::InvalidJson).detail(
                format!("Recipient {place} (counted from 0) is not valid JSON."),
                format!("{place} 番目（0 から）の宛先が正しい JSON ではありません。"),
            )
        })
    }

    fn feed_lines(&mut self, bytes: &[u8]) -> Result<(), Problem> {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let mut line = std::mem::take(&mut self.partial);
            line.extend_from_slice(&rest[..end]);
            self.line(line)?;
            rest = &rest[end + 1..];
        }
        self.partial.extend_from_slice(rest);
        Ok(())
    }

    fn line(&mut self, line: Vec<u8>) -> Result<(), Problem> {
        if line.iter().all(u8::is_ascii_whitespace) {
            return Ok(());
        }
        if self.head.is_some() {
            self.keep(line);
            return Ok(());
        }
        let head = json::parse(&line)?;
        if head.get("to").is_some() {
            return Err(Problem::new(Code::BadRequest).detail(
                "The first line names the template: {\"template\": \"…\"}.",
                "最初の行でテンプレートを指定してください: {\"template\": \"…\"}。",
            ));
        }
        self.head = Some(head);
        Ok(())
    }

    fn keep(&mut self, piece: Vec<u8>) {
        self.held += piece.len();
        self.pieces.push_back(piece);
    }

    /// One byte of a document.
    fn step(&mut self, byte: u8) {
        if self.scan.place == Place::Inside {
            self.step_inside(byte);
            return;
        }
        self.frame.push(byte);
        let scan = &mut self.scan;
        if scan.in_string {
            match byte {
                _ if scan.escaped => scan.escaped = false,
                b'\\' => scan.escaped = true,
                b'"' => scan.in_string = false,
                _ if scan.depth == 1 && scan.word.len() < 64 => scan.word.push(byte),
                _ => {}
            }
            return;
        }
        match byte {
            b'"' => {
                scan.in_string = true;
                if scan.depth == 1 {
                    scan.word.clear();
                }
            }
            b'[' if scan.depth == 1
                && scan.word == b"recipients"
                && scan.place == Place::Before =>
            {
                (scan.place, scan.depth) = (Place::Inside, 0);
                self.frame.push(b']');
                self.early_head();
            }
            b'{' | b'[' => scan.depth += 1,
            b'}' | b']' => scan.depth = scan.depth.saturating_sub(1),
            _ => {}
        }
    }

    /// One byte of `recipients`.
    fn step_inside(&mut self, byte: u8) {
        let scan = &mut self.scan;
        if scan.in_string {
            match byte {
                _ if scan.escaped => scan.escaped = false,
                b'\\' => scan.escaped = true,
                b'"' => scan.in_string = false,
                _ => {}
            }
            self.partial.push(byte);
            return;
        }
        match byte {
            b']' if scan.depth == 0 => {
                (scan.place, scan.depth) = (Place::After, 1);
                self.cut(true);
                return;
            }
            b',' if scan.depth == 0 => {
                self.cut(false);
                return;
            }
            b'"' => scan.in_string = true,
            b'{' | b'[' => scan.depth += 1,
            b'}' | b']' => scan.depth = scan.depth.saturating_sub(1),
            _ => {}
        }
        self.partial.push(byte);
    }

    /// A recipient ends here. Nothing at all is one only if it is not the end of an empty list.
    fn cut(&mut self, last: bool) {
        let piece = std::mem::take(&mut self.partial);
        let empty = piece.iter().all(u8::is_ascii_whitespace);
        let none_before = self.pieces.is_empty() && self.count == 0;
        if !(empty && last && none_before) {
            self.keep(piece);
        }
    }

    /// What stands before the recipients may be the whole head.
    fn early_head(&mut self) {
        let mut so_far = self.frame.clone();
        so_far.push(b'}');
        if let Ok(head) = json::parse(&so_far)
            && head.get("template").is_some()
        {
            self.early = Some(head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn read(format: Format, text: &str, step: usize) -> Result<(Value, Vec<Value>), Problem> {
        let mut splitter = Splitter::new(format, 1000);
        let mut found = Vec::new();
        for part in text.as_bytes().chunks(step) {
            splitter.feed(part)?;
            if splitter.head().is_some() {
                while let Some(recipient) = splitter.next_recipient()? {
                    found.push(recipient);
                }
            }
        }
        splitter.end()?;
        while let Some(recipient) = splitter.next_recipient()? {
            found.push(recipient);
        }
        Ok((splitter.head().cloned().unwrap_or_default(), found))
    }

    #[test]
    fn documents_are_taken_apart_wherever_they_are_cut() {
        let recipients = json!([
            {"to": "a@example.com", "data": {"x": "],}\\\"[{", "recipients": [1]}},
            {"to": "b@example.com"},
        ]);
        let before = json!({"template": "t", "locale": "en", "recipients": []});
        for text in [
            json!({"recipients": recipients, "template": "t", "locale": "en"}).to_string(),
            format!(r#"{{"template": "t", "locale": "en", "recipients" : {recipients} }}"#),
        ] {
            for step in 1..text.len() {
                let (head, found) = read(Format::Document, &text, step).unwrap();
                assert_eq!(head, before, "{step}");
                assert_eq!(json!(found), recipients, "{step}");
            }
        }
    }

    #[test]
    fn lines_are_taken_apart_wherever_they_are_cut() {
        let text = "{\"template\":\"t\"}\r\n\n{\"to\":\"a\"}\n{\"to\":\"b\"}";
        for step in 1..text.len() {
            let (head, found) = read(Format::Lines, text, step).unwrap();
            assert_eq!((head, found.len()), (json!({"template": "t"}), 2), "{step}");
        }
        assert!(read(Format::Lines, "{\"to\":\"a\"}\n", 5).is_err(), "no head");
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            r#"{"template": "t", "recipients": [{"to": "a"},]}"#,
            r#"{"template": "t", "recipients": [,]}"#,
            r#"{"template": "t", "recipients": [{"to": "a"}]"#,
            r#"{"template": "t", "recipients": [{"to": "a"}"#,
            r#"{"template": "t", "recipients": [{"to": "a"}], "template": "u"}"#,
            r#"{"template": "t", "recipients": [{"to": "a"}], "recipients": [{"to": "b"}]}"#,
            r#"{"template": "t", "recipients": [{"to" "a"}]}"#,
        ] {
            assert!(read(Format::Document, text, 3).is_err(), "{text}");
        }
        let empty = r#"{"template": "t", "recipients": [ ]}"#;
        assert_eq!(read(Format::Document, empty, 3).unwrap().1, Vec::<Value>::new());
    }

    #[test]
    fn a_head_that_comes_late_comes_within_limits() {
        let many: Vec<Value> = (0..200).map(|n| json!({"to": format!("r{n}")})).collect();
        let late = format!(r#"{{"recipients": {}, "template": "t"}}"#, json!(many));
        assert!(read(Format::Document, &late, 7).is_err());
        let early = format!(r#"{{"template": "t", "recipients": {}}}"#, json!(many));
        assert_eq!(read(Format::Document, &early, 7).unwrap().1.len(), 200);
        let changed = early.replace("]}", r#"], "locale": "en"}"#);
        assert!(read(Format::Document, &changed, 7).is_err(), "it was taken without");
        let long = format!(r#"{{"template": "t", "recipients": ["{}"]}}"#, "x".repeat(PIECE_MAX));
        assert!(read(Format::Document, &long, 9000).is_err());
    }
}
