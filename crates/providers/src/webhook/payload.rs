//! Reading an event out of a body that was verified.
//!
//! The body is read once, without being copied: an [`Outline`] borrows its names and texts from the
//! bytes. It is as strict as reading into a [`Value`] would be, and knows whether the text may be kept
//! as the payload just as it came.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use tashika_domain::time::Timestamp;
use tashika_domain::webhook::{Payload, keepable};

use super::{DEPTH_MAX, Event, ID_MAX, Refused, TYPE_MAX};

pub(super) const NO_ID: &str = "no event id";
pub(super) const NO_TYPE: &str = "no event type";

const NOT_JSON: Refused = Refused::payload("not JSON");
const NO_OBJECT: Refused = Refused::payload("not a JSON object");
const TOO_DEEP: Refused = Refused::payload("nested too deeply");

/// Names that `serde_json` keeps for itself: an object that begins with one is not read as written.
const RESERVED: &str = "$serde_json::private::";

/// One JSON object, as far as anybody asks about it.
pub(super) struct Outline<'a> {
    body: &'a [u8],
    fields: Fields<'a>,
    plain: bool,
}

/// In the order of the text. What stands twice counts as it stands last.
type Fields<'a> = Vec<(Cow<'a, str>, Node<'a>)>;

enum Node<'a> {
    Text(Cow<'a, str>),
    Whole(i128),
    Object(Fields<'a>),
    /// Nobody asks for anything else: lists, fractions, yes and no, nothing.
    Other,
}

/// One JSON object.
///
/// A key that stands twice is no reason to refuse, as it is in requests to our own API: the bytes are
/// the sender's own, and refusing them would only lose the event.
pub(super) fn object(body: &[u8]) -> Result<Outline<'_>, Refused> {
    let found = Found { deepest: Cell::new(0), plain: Cell::new(true) };
    let mut text = serde_json::Deserializer::from_slice(body);
    let root = Look { depth: 0, found: &found }.deserialize(&mut text).map_err(|_| NOT_JSON)?;
    text.end().map_err(|_| NOT_JSON)?;
    let Node::Object(fields) = root else { return Err(NO_OBJECT) };
    if found.deepest.get() > DEPTH_MAX {
        return Err(TOO_DEEP);
    }
    Ok(Outline { body, fields, plain: found.plain.get() })
}

impl<'a> Outline<'a> {
    fn at(&self, path: &str) -> Option<&Node<'a>> {
        let mut fields = &self.fields;
        let mut names = path.split('.').peekable();
        while let Some(name) = names.next() {
            let (_, node) = fields.iter().rev().find(|(known, _)| known == name)?;
            match node {
                node if names.peek().is_none() => return Some(node),
                Node::Object(inner) => fields = inner,
                _ => return None,
            }
        }
        None
    }

    /// The text at a path of fields.
    pub(super) fn word(&self, path: &str) -> Option<&str> {
        match self.at(path)? {
            Node::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The text at a path of fields. Whole numbers are text too: many ids are numbers.
    pub(super) fn text(&self, path: &str) -> Option<String> {
        match self.at(path)? {
            Node::Text(text) => Some(text.clone().into_owned()),
            Node::Whole(number) => Some(number.to_string()),
            _ => None,
        }
    }

    /// A point in time, written as seconds since 1970 or as RFC 3339.
    pub(super) fn moment(&self, path: &str) -> Option<Timestamp> {
        match self.at(path)? {
            Node::Whole(number) => {
                let micros = i64::try_from(*number).ok()?.checked_mul(1_000_000)?;
                Some(Timestamp::from_micros(micros))
            }
            Node::Text(text) => text.parse().ok(),
            _ => None,
        }
    }

    /// An event of this payload, whose id and type can be kept and sent on.
    pub(super) fn event(
        &self,
        id: Option<String>,
        kind: Option<String>,
        occurred_at: Option<Timestamp>,
    ) -> Result<Event, Refused> {
        let printable = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let id = id.filter(|id| !id.is_empty()).ok_or(Refused::payload(NO_ID))?;
        if id.len() > ID_MAX || !printable(&id) {
            return Err(Refused::payload("event id too long or not printable"));
        }
        let kind = kind.filter(|kind| !kind.is_empty()).ok_or(Refused::payload(NO_TYPE))?;
        if kind.len() > TYPE_MAX || !printable(&kind) {
            return Err(Refused::payload("event type too long or not printable"));
        }
        Ok(Event { id, kind, occurred_at, payload: self.payload()? })
    }

    fn payload(&self) -> Result<Payload, Refused> {
        if self.plain {
            return Ok(Payload::Body);
        }
        let value: Value = serde_json::from_slice(self.body).map_err(|_| NOT_JSON)?;
        if !value.is_object() {
            return Err(NO_OBJECT);
        }
        if !within(&value, DEPTH_MAX) {
            return Err(TOO_DEEP);
        }
        Ok(Payload::Apart(keepable(value)))
    }
}

/// Whether there are at most `levels` of nesting. The parser's own limit bounds the recursion.
fn within(value: &Value, levels: usize) -> bool {
    match value {
        Value::Array(items) => levels > 0 && items.iter().all(|item| within(item, levels - 1)),
        Value::Object(fields) => levels > 0 && fields.values().all(|item| within(item, levels - 1)),
        _ => true,
    }
}

/// What was met on the way.
struct Found {
    deepest: Cell<usize>,
    /// Nothing that PostgreSQL could refuse: NUL, which its JSON does not have; letters as escapes, which
    /// it translates into its own encoding; fractions and huge numbers, which have other bounds there.
    plain: Cell<bool>,
}

impl Found {
    fn text<'a>(&self, text: Cow<'a, str>) -> Cow<'a, str> {
        // What has no escapes is borrowed.
        if matches!(text, Cow::Owned(_)) && (text.contains('\0') || !text.is_ascii()) {
            self.plain.set(false);
        }
        text
    }
}

/// Looks at one value.
#[derive(Clone, Copy)]
struct Look<'f> {
    depth: usize,
    found: &'f Found,
}

impl Look<'_> {
    fn inside(mut self) -> Self {
        self.depth += 1;
        self.found.deepest.set(self.found.deepest.get().max(self.depth));
        self
    }
}

impl<'de> DeserializeSeed<'de> for Look<'_> {
    type Value = Node<'de>;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Node<'de>, D::Error> {
        text.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Look<'_> {
    type Value = Node<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_bool<E>(self, _: bool) -> Result<Node<'de>, E> {
        Ok(Node::Other)
    }

    fn visit_unit<E>(self) -> Result<Node<'de>, E> {
        Ok(Node::Other)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Node<'de>, E> {
        Ok(Node::Whole(number.into()))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Node<'de>, E> {
        Ok(Node::Whole(number.into()))
    }

    fn visit_f64<E>(self, _: f64) -> Result<Node<'de>, E> {
        self.found.plain.set(false);
        Ok(Node::Other)
    }

    fn visit_str<E>(self, text: &str) -> Result<Node<'de>, E> {
        Ok(Node::Text(self.found.text(Cow::Owned(text.to_owned()))))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Node<'de>, E> {
        Ok(Node::Text(Cow::Borrowed(text)))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Node<'de>, A::Error> {
        let inside = self.inside();
        while items.next_element_seed(inside)?.is_some() {}
        Ok(Node::Other)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Node<'de>, A::Error> {
        let inside = self.inside();
        let mut fields = Vec::with_capacity(8);
        while let Some(name) = entries.next_key_seed(Name(self.found))? {
            fields.push((name, entries.next_value_seed(inside)?));
        }
        Ok(Node::Object(fields))
    }
}

/// Looks at the name of a field.
struct Name<'f>(&'f Found);

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Cow<'de, str>;

    fn deserialize<D: Deserializer<'de>>(self, text: D) -> Result<Cow<'de, str>, D::Error> {
        text.deserialize_str(self)
    }
}

impl<'de> Visitor<'de> for Name<'_> {
    type Value = Cow<'de, str>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_str<E>(self, text: &str) -> Result<Cow<'de, str>, E> {
        Ok(self.seen(Cow::Owned(text.to_owned())))
    }

    fn visit_borrowed_str<E>(self, text: &'de str) -> Result<Cow<'de, str>, E> {
        Ok(self.seen(Cow::Borrowed(text)))
    }
}

impl Name<'_> {
    fn seen<'a>(&self, name: Cow<'a, str>) -> Cow<'a, str> {
        if name.starts_with(RESERVED) {
            self.0.plain.set(false);
        }
        self.0.text(name)
    }
}
