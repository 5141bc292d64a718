//! When a schedule fires: five fields of cron, in UTC or in the time zone of a `CRON_TZ=` prefix.
//!
//! The grammar is the classic one and is checked here, field by field, so that a mistake has a
//! sentence of its own; the search for the next moment is croner's. Time zones come with the
//! program: the answer does not depend on what is installed on the machine.
//!
//! When clocks change: an expression that names hours fires once for each local time that it names.
//! A local time that is skipped fires at the moment of the change; one that comes twice fires the
//! first time. An expression with `*` for the hour goes by elapsed time: it fires in both of the
//! repeated hours, and has nothing to catch up for a skipped one.

use std::fmt;

use croner::parser::{CronParser, Seconds, Year};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};

use super::span::shown;
use crate::time::Timestamp;

/// Bytes of an expression. A list of all minutes takes 170.
pub const MOST_BYTES: usize = 512;

/// A schedule's expression, read.
#[derive(Clone, PartialEq)]
pub struct Cron {
    text: String,
    pattern: croner::Cron,
    zone: TimeZone,
    /// The hour is `*`.
    hourly: bool,
}

struct Field {
    name: &'static str,
    low: u32,
    high: u32,
    /// Names of its values, from `low` on.
    names: &'static [&'static str],
}

const FIELDS: [Field; 5] = [
    Field { name: "minute", low: 0, high: 59, names: &[] },
    Field { name: "hour", low: 0, high: 23, names: &[] },
    Field { name: "day of the month", low: 1, high: 31, names: &[] },
    Field { name: "month", low: 1, high: 12, names: &MONTHS },
    // Sunday is 0 and 7.
    Field { name: "day of the week", low: 0, high: 7, names: &WEEKDAYS },
];

const MONTHS: [&str; 12] =
    ["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: [&str; 7] = ["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

impl Cron {
    pub fn parse(text: &str) -> Result<Self, String> {
        let text = text.trim();
        if text.len() > MOST_BYTES {
            return Err(format!("a cron expression has at most {MOST_BYTES} characters"));
        }
        let (zone, expression) = zone(text)?;
        let fields = fields(expression)?;
        let values = read(&fields)?;
        if never(&values) {
            return Err(format!(
                "`{}` never fires, because no month has such a day",
                shown(expression)
            ));
        }
        // Croner gets lists of numbers: of everything that it understands beyond the classic
        // grammar, nothing can reach it.
        let plain: Vec<String> = values.iter().map(plain).collect();
        let pattern = CronParser::builder()
            .seconds(Seconds::Disallowed)
            .year(Year::Optional)
            .build()
            .parse(&plain.join(" "))
            .map_err(|why| format!("`{}` cannot be read: {why}", shown(expression)))?;
        Ok(Self { text: text.to_owned(), pattern, zone, hourly: values[1].is_none() })
    }

    /// As it was given, without blanks around it.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The first moment after this one at which it fires. Nothing once the calendar ends.
    #[must_use]
    pub fn next_after(&self, after: Timestamp) -> Option<Timestamp> {
        // Whole seconds, rounded down: the search is for later seconds only.
        let second = after.as_micros().div_euclid(1_000_000);
        let start = jiff::Timestamp::from_second(second).ok()?.to_zoned(self.zone.clone());
        if self.hourly {
            let next = self.pattern.find_next_occurrence(&start, false).ok()?;
            return Some(Timestamp::from_micros(next.timestamp().as_microsecond()));
        }
        let mut local = start.datetime();
        loop {
            local = self.pattern.find_next_occurrence(&local, false).ok()?;
            let at = self.moment(local)?;
            // In the second of two repeated hours, the local times that follow have had their
            // moment in the first. Local times and moments rise together, so this ends.
            if at > after {
                return Some(at);
            }
        }
    }

    /// When it is this time on the clocks of the zone.
    fn moment(&self, local: jiff::civil::DateTime) -> Option<Timestamp> {
        let ambiguous = self.zone.to_ambiguous_timestamp(local);
        let at = match ambiguous.offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(local).ok()?,
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(local).ok()?,
            AmbiguousOffset::Gap { before, .. } => {
                // With the offset of before the change, a skipped time lies at or after it; the
                // change is the last one up to there.
                let within = before.to_timestamp(local).ok()?;
                let later = within.checked_add(jiff::SignedDuration::from_nanos(1)).ok()?;
                self.zone.preceding(later).next()?.timestamp()
            }
        };
        Some(Timestamp::from_micros(at.as_microsecond()))
    }
}

impl fmt::Debug for Cron {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Cron").field(&self.text).finish()
    }
}

/// The zone of the prefix, or UTC, and what follows.
fn zone(text: &str) -> Result<(TimeZone, &str), String> {
    let Some(rest) = text.strip_prefix("CRON_TZ=").or_else(|| text.strip_prefix("TZ=")) else {
        return Ok((TimeZone::UTC, text));
    };
    let (name, expression) = rest.split_once([' ', '\t']).unwrap_or((rest, ""));
    // Not the database of the machine: that would be I/O, and an answer that differs by machine.
    let zone = TimeZoneDatabase::bundled()
        .get(name)
        .map_err(|_| format!("`{}` is not a time zone such as Europe/Berlin", shown(name)))?;
    Ok((zone, expression.trim()))
}

fn fields(expression: &str) -> Result<[&str; 5], String> {
    let expression = match expression.to_ascii_lowercase().as_str() {
        "@yearly" | "@annually" => "0 0 1 1 *",
        "@monthly" => "0 0 1 * *",
        "@weekly" => "0 0 * * 0",
        "@daily" | "@midnight" => "0 0 * * *",
        "@hourly" => "0 * * * *",
        _ => expression,
    };
    let fields: Vec<&str> = expression.split_ascii_whitespace().collect();
    let count = fields.len();
    fields.try_into().map_err(|_| {
        format!(
            "`{}` has {count} fields instead of 5: minute, hour, day of the month, month, day of \
             the week; seconds are not supported",
            shown(expression)
        )
    })
}

/// The values of a field as bits, or nothing for `*`.
type Values = Option<u64>;

fn read(fields: &[&str; 5]) -> Result<[Values; 5], String> {
    let mut values = [None; 5];
    for ((slot, field), text) in values.iter_mut().zip(&FIELDS).zip(fields) {
        *slot = field
            .read(text)
            .map_err(|why| format!("the {} `{}` is invalid: {why}", field.name, shown(text)))?;
    }
    // Sunday once.
    values[4] = values[4].map(|days| (days | days >> 7) & 0x7f);
    Ok(values)
}

impl Field {
    fn read(&self, text: &str) -> Result<Values, String> {
        let mut bits = 0_u64;
        let mut all = false;
        for part in text.split(',') {
            match self.part(part)? {
                Some(more) => bits |= more,
                None => all = true,
            }
        }
        // A list with a `*` in it is a `*`.
        Ok(if all { None } else { Some(bits) })
    }

    /// `*`, `5`, `1-5`, each with `/step`.
    fn part(&self, part: &str) -> Result<Values, String> {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(self.step(step)?)),
            None => (part, None),
        };
        if range == "*" || range == "?" {
            // Days of the week end at 6 here, or Sunday would have two chances.
            let high = if self.high == 7 { 6 } else { self.high };
            return Ok(step.filter(|step| *step > 1).map(|step| bits(self.low, high, step)));
        }
        let (low, high) = match range.split_once('-') {
            Some((low, high)) => (self.value(low)?, self.last(high)?),
            // `5/15` is from 5 on.
            None if step.is_some() => (self.value(range)?, self.high),
            None => (self.value(range)?, self.value(range)?),
        };
        if low > high {
            return Err(format!("the range `{}` goes backwards", shown(range)));
        }
        Ok(Some(bits(low, high, step.unwrap_or(1))))
    }

    fn step(&self, text: &str) -> Result<u32, String> {
        match number(text) {
            Some(step) if (1..=self.high).contains(&step) => Ok(step),
            _ => Err(format!("the step `{}` is not between 1 and {}", shown(text), self.high)),
        }
    }

    fn value(&self, text: &str) -> Result<u32, String> {
        let named = self.names.iter().position(|name| name.eq_ignore_ascii_case(text));
        let value = match named.and_then(|at| u32::try_from(at).ok()) {
            Some(at) => Some(self.low + at),
            None => number(text),
        };
        match value {
            Some(value) if (self.low..=self.high).contains(&value) => Ok(value),
            _ => Err(format!("`{}` is not between {} and {}", shown(text), self.low, self.high)),
        }
    }

    /// The end of a range: in `FRI-SUN`, Sunday is the seventh day.
    fn last(&self, text: &str) -> Result<u32, String> {
        if self.high == 7 && text.eq_ignore_ascii_case("SUN") { Ok(7) } else { self.value(text) }
    }
}

/// Digits only: `parse` alone would also take a sign.
fn number(text: &str) -> Option<u32> {
    text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

fn bits(low: u32, high: u32, step: u32) -> u64 {
    (low..=high).step_by(step as usize).fold(0, |bits, value| bits | 1 << value)
}

/// Whether no day has the day of the month and the month. With a day of the week, either is enough,
/// and every month has all of those.
fn never([_, _, days, months, weekdays]: &[Values; 5]) -> bool {
    let (None, Some(days)) = (weekdays, days) else { return false };
    let lengths = [31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let fits = |(month, length): (usize, &u32)| {
        months.is_none_or(|months| months >> (month + 1) & 1 == 1)
            && days & ((1 << (length + 1)) - 1) != 0
    };
    !lengths.iter().enumerate().any(fits)
}

fn plain(values: &Values) -> String {
    let Some(bits) = values else { return "*".to_owned() };
    let values: Vec<String> = (0..64)
        .filter(|value| bits >> value & 1 == 1)
        .map(|value: u32| value.to_string())
        .collect();
    values.join(",")
}

#[cfg(test)]
mod tests;
