//! Log lines in JSON, each one object: time in RFC 3339, level, the event's fields, target, the innermost
//! span with its fields.
//!
//! A server that is asked ten thousand times a second writes twenty thousand of them, so they are
//! written straight into the line: the library's own format parses each span's fields again for it.

use std::cell::RefCell;
use std::fmt::{self, Write as _};

use tashika_domain::Timestamp;
use tashika_engine::Clock;
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::field::RecordFields;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields, FormattedFields};
use tracing_subscriber::registry::LookupSpan;

/// The fields of a span or an event: `"name":value`, with commas between them.
pub(super) struct Fields;

impl<'writer> FormatFields<'writer> for Fields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'writer>, fields: R) -> fmt::Result {
        let mut pairs = Pairs { writer, follows: false, result: Ok(()) };
        fields.record(&mut pairs);
        pairs.result
    }

    fn add_fields(
        &self,
        current: &'writer mut FormattedFields<Self>,
        fields: &tracing::span::Record<'_>,
    ) -> fmt::Result {
        let follows = !current.fields.is_empty();
        let mut pairs = Pairs { writer: current.as_writer(), follows, result: Ok(()) };
        fields.record(&mut pairs);
        pairs.result
    }
}

/// The lines themselves.
pub(super) struct Lines;

impl<S> FormatEvent<S, Fields> for Lines
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, Fields>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        writer.write_str("{\"timestamp\":\"")?;
        write_time(&mut writer, Clock::System.now())?;
        let metadata = event.metadata();
        writer.write_str("\",\"level\":\"")?;
        writer.write_str(metadata.level().as_str())?;
        writer.write_str("\",")?;
        context.format_fields(writer.by_ref(), event)?;
        writer.write_str(",\"target\":\"")?;
        writer.write_str(metadata.target())?;
        writer.write_char('"')?;
        let span = match event.parent() {
            Some(id) => context.span(id),
            None if event.is_root() => None,
            None => context.lookup_current(),
        };
        if let Some(span) = span {
            writer.write_str(",\"span\":{\"name\":\"")?;
            writer.write_str(span.name())?;
            writer.write_char('"')?;
            let extensions = span.extensions();
            let fields = extensions.get::<FormattedFields<Fields>>();
            if let Some(fields) = fields.filter(|fields| !fields.is_empty()) {
                writer.write_char(',')?;
                writer.write_str(fields)?;
            }
            writer.write_char('}')?;
        }
        writer.write_str("}\n")
    }
}

thread_local! {
    /// The second that was last written, and its text.
    static SECOND: RefCell<(i64, String)> = const { RefCell::new((i64::MIN, String::new())) };
}

/// RFC 3339, to the microsecond. Within a second only the fraction is new.
fn write_time(writer: &mut Writer<'_>, now: Timestamp) -> fmt::Result {
    let micros = now.as_micros();
    let second = micros.div_euclid(1_000_000);
    SECOND.with_borrow_mut(|(known, text)| {
        if *known != second {
            let at = jiff::Timestamp::from_second(second).map_err(|_| fmt::Error)?;
            *text = at.strftime("%Y-%m-%dT%H:%M:%S").to_string();
            *known = second;
        }
        write!(writer, "{text}.{:06}Z", micros.rem_euclid(1_000_000))
    })
}

/// Writes fields as they come.
struct Pairs<'writer> {
    writer: Writer<'writer>,
    follows: bool,
    result: fmt::Result,
}

impl Pairs<'_> {
    fn pair(&mut self, field: &Field, value: impl FnOnce(&mut Writer<'_>) -> fmt::Result) {
        if self.result.is_ok() {
            self.result = self.write(field, value);
        }
    }

    fn write(
        &mut self,
        field: &Field,
        value: impl FnOnce(&mut Writer<'_>) -> fmt::Result,
    ) -> fmt::Result {
        self.writer.write_str(if self.follows { ",\"" } else { "\"" })?;
        self.follows = true;
        // Names of fields are Rust's, `r#type` among them.
        self.writer.write_str(field.name().trim_start_matches("r#"))?;
        self.writer.write_str("\":")?;
        value(&mut self.writer)
    }
}

impl Visit for Pairs<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.pair(field, |writer| {
            if value.is_finite() { write!(writer, "{value:?}") } else { writer.write_str("null") }
        });
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.pair(field, |writer| write!(writer, "{value}"));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.pair(field, |writer| write!(writer, "{value}"));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.pair(field, |writer| write!(writer, "{value}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.pair(field, |writer| quoted(writer, |text| text.write_str(value)));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.pair(field, |writer| quoted(writer, |text| write!(text, "{value:?}")));
    }
}

fn quoted(
    writer: &mut Writer<'_>,
    text: impl FnOnce(&mut Escaped<'_, '_>) -> fmt::Result,
) -> fmt::Result {
    writer.write_char('"')?;
    text(&mut Escaped(writer))?;
    writer.write_char('"')
}

/// The inside of a JSON string.
struct Escaped<'a, 'writer>(&'a mut Writer<'writer>);

impl fmt::Write for Escaped<'_, '_> {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // Almost no text has any of these; the letters beyond ASCII are looked at one by one.
        let plain = |byte: u8| matches!(byte, b' '..=b'~') && byte != b'"' && byte != b'\\';
        if text.bytes().all(plain) {
            return self.0.write_str(text);
        }
        let mut rest = text;
        let special = |c: char| c == '"' || c == '\\' || c.is_control();
        while let Some(at) = rest.find(special) {
            let (plain, from) = rest.split_at(at);
            self.0.write_str(plain)?;
            let mut chars = from.chars();
            match chars.next() {
                Some(c @ ('"' | '\\')) => write!(self.0, "\\{c}")?,
                Some('\n') => self.0.write_str("\\n")?,
                Some(c) => write!(self.0, "\\u{:04x}", u32::from(c))?,
                None => {}
            }
            rest = chars.as_str();
        }
        self.0.write_str(rest)
    }
}
