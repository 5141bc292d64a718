//! W3C trace context: in from a request, out to a row or another service, back into a span.
//!
//! Used by the HTTP layer (incoming header), by handlers (what to store with an effect) and by the
//! worker (joining the trace of the request that asked for the effect). It works without a collector
//! too: an incoming context is then handed through unchanged.

use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The trace context of a request, as it should be stored with what the request asks for.
///
/// A request extension, set by the HTTP layer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Traceparent(pub Option<String>);

/// Reads a `traceparent` header; `None` for anything that the standard does not allow.
#[must_use]
pub fn parse_traceparent(text: &str) -> Option<SpanContext> {
    let mut parts = text.trim().split('-');
    let (version, trace, span, flags) =
        (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    let lower_hex = |part: &str, length: usize| {
        part.len() == length && part.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    let shaped = lower_hex(version, 2)
        && version != "ff"
        && lower_hex(trace, 32)
        && lower_hex(span, 16)
        && lower_hex(flags, 2);
    // Version 00 ends after the flags; later versions may add fields that we need not understand.
    if !shaped || (version == "00" && parts.next().is_some()) {
        return None;
    }
    let context = SpanContext::new(
        TraceId::from_hex(trace).ok()?,
        SpanId::from_hex(span).ok()?,
        TraceFlags::new(u8::from_str_radix(flags, 16).ok()?) & TraceFlags::SAMPLED,
        true,
        TraceState::default(),
    );
    context.is_valid().then_some(context)
}

/// Writes a context as a `traceparent` header.
#[must_use]
pub fn render_traceparent(context: &SpanContext) -> String {
    format!(
        "00-{}-{}-{:02x}",
        context.trace_id(),
        context.span_id(),
        context.trace_flags() & TraceFlags::SAMPLED
    )
}

/// The `traceparent` under which work started inside `span` belongs; `None` when traces are off.
#[must_use]
pub fn traceparent_of(span: &Span) -> Option<String> {
    let context = span.context();
    let span = context.span();
    let context = span.span_context();
    context.is_valid().then(|| render_traceparent(context))
}

/// [`traceparent_of`] the current span.
#[must_use]
pub fn current_traceparent() -> Option<String> {
    traceparent_of(&Span::current())
}

/// Makes `span` a child of a stored or received `traceparent`.
///
/// Must be called before the span is entered. Does nothing when traces are off or the text is not a
/// trace context: a damaged header must not stop the work it came with.
pub fn span_parent(span: &Span, traceparent: &str) {
    let Some(parent) = parse_traceparent(traceparent) else {
        return;
    };
    let parent = Context::new().with_remote_span_context(parent);
    // Fails when traces are off, which is not an error.
    span.set_parent(parent).unwrap_or_default();
}

/// Adds a number to a span's trace, and not to its log lines. Does nothing when traces are off.
pub fn note(span: &Span, key: &'static str, number: i64) {
    span.set_attribute(key, number);
}

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

    #[test]
    fn what_is_read_is_written_back() {
        let context = parse_traceparent(VALID).unwrap();
        assert_eq!(render_traceparent(&context), VALID);
        let newer = format!("{}-extra", VALID.replacen("00", "01", 1));
        assert_eq!(render_traceparent(&parse_traceparent(&newer).unwrap()), VALID);
    }

    #[test]
    fn anything_else_is_not_a_trace_context() {
        for bad in [
            "",
            "00",
            "garbage",
            "00-0AF7651916CD43DD8448EB211C80319C-b7ad6b7169203331-01",
            "00-00000000000000000000000000000000-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01",
            "ff-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01-x",
            "00-0af7651916cd43dd8448eb211c80319-b7ad6b7169203331-01",
            "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-+1",
            "00-確0af7651916cd43dd8448eb211c8-b7ad6b7169203331-01",
        ] {
            assert!(parse_traceparent(bad).is_none(), "{bad:?}");
        }
    }

    #[test]
    fn without_a_collector_nothing_is_made_up() {
        let span = tracing::info_span!("outbox.process");
        span_parent(&span, VALID);
        assert_eq!(traceparent_of(&span), None);
    }
}
