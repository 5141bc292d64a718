//! `/v2/events`, `/v2/logs`: what happened to messages.
//!
//! A line of the log stands for an attempt and gives several events; a message gives the one of its
//! creation. Both have ids that begin with their time, and the list runs through both in the order of
//! ids, so that a cursor is a place in that order and the event at it: no page repeats or skips any.

use std::collections::BTreeMap;

use axum::response::Response;
use http::Method;
use serde_json::{Value, json};
use tashika_domain::message::{LogLine, Logged, Message};
use tashika_domain::{Timestamp, ids};
use tashika_engine::commands::message::Messages;
use tashika_store::{MessageFilter, Order};
use uuid::Uuid;

use super::call::Call;
use super::dlq::with_cursor;
use super::fault::Fault;
use super::ok;
use super::query::{Chosen, Query, bad_cursor};
use super::view::{self, Event};

/// Events in one answer, if the caller does not say, and at most.
const PAGE: usize = 100;
const PAGE_MAX: usize = 1000;

/// How often the log is looked at for one answer. A filter that fits rarely gets a short page then,
/// and a cursor to go on from.
const LOOKS: usize = 10;

/// What a message goes through, as callers know it; the order in which it happens.
const STATES: [&str; 8] =
    ["CREATED", "ACTIVE", "CANCEL_REQUESTED", "ERROR", "RETRY", "FAILED", "DELIVERED", "CANCELED"];

/// The events of a line, oldest first.
const fn states_of(what: Logged, again: bool) -> &'static [&'static str] {
    match (what, again) {
        (Logged::Delivered, _) => &["ACTIVE", "DELIVERED"],
        (Logged::Error, true) => &["ACTIVE", "ERROR", "RETRY"],
        (Logged::Error, false) | (Logged::Lapsed, _) => &["ACTIVE", "ERROR"],
        (Logged::Failed, _) => &["ACTIVE", "ERROR", "FAILED"],
        (Logged::Cancelled, _) => &["CANCEL_REQUESTED", "CANCELED"],
    }
}

/// A place in the list: the first id, in the list's order, that is not done with, and the first of
/// its events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Place {
    id: u128,
    event: usize,
}

impl Place {
    /// Behind everything about an id.
    const fn behind(id: Uuid, order: Order) -> Self {
        let id = match order {
            Order::NewestFirst => id.as_u128().saturating_sub(1),
            Order::OldestFirst => id.as_u128().saturating_add(1),
        };
        Self { id, event: 0 }
    }

    /// The id before it in the list's order.
    fn after(self, order: Order) -> Uuid {
        Uuid::from_u128(match order {
            Order::NewestFirst => self.id.saturating_add(1),
            Order::OldestFirst => self.id.saturating_sub(1),
        })
    }

    fn text(self) -> String {
        format!("{:032x}-{}", self.id, self.event)
    }

    /// Reads a cursor: ours, or a time in milliseconds, which one SDK's documentation begins with.
    fn parse(text: &str, order: Order) -> Option<Self> {
        if let Ok(ms) = text.parse::<i64>() {
            let newest = order == Order::NewestFirst;
            let micros = ms.checked_add(i64::from(newest))?.checked_mul(1000)?;
            let floor = ids::floor(Timestamp::from_micros(micros));
            return Some(match order {
                // Back from the last id of that millisecond.
                Order::NewestFirst => Self::behind(floor, order),
                Order::OldestFirst => Self { id: floor.as_u128(), event: 0 },
            });
        }
        let (id, event) = text.split_once('-').filter(|(id, _)| id.len() == 32)?;
        Some(Self { id: u128::from_str_radix(id, 16).ok()?, event: event.parse().ok()? })
    }
}

/// Which events are wanted.
struct Wanted {
    states: Vec<&'static str>,
    from: Option<Timestamp>,
    to: Option<Timestamp>,
}

impl Wanted {
    fn read(query: &Query, filter: &MessageFilter) -> Result<Self, Fault> {
        let mut states = Vec::new();
        for name in query.list("state")? {
            match name.to_ascii_uppercase().as_str() {
                "IN_PROGRESS" => states.extend(["ACTIVE", "RETRY", "ERROR"]),
                "CANCELLED" => states.push("CANCELED"),
                name => match STATES.into_iter().find(|state| *state == name) {
                    Some(state) => states.push(state),
                    None => return Err(Fault::bad("state is not one that a message can have")),
                },
            }
        }
        Ok(Self { states, from: filter.from, to: filter.to })
    }

    fn has(&self, state: &str) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }

    /// The lines that can give such events.
    fn logged(&self) -> Vec<Logged> {
        let gives = |what: &Logged| states_of(*what, true).iter().any(|state| self.has(state));
        Logged::ALL.into_iter().filter(gives).collect()
    }

    fn takes(&self, event: &Event<'_>) -> bool {
        self.has(event.state)
            && self.from.is_none_or(|from| event.at >= from)
            && self.to.is_none_or(|to| event.at <= to)
    }
}

pub(super) async fn list(
    queue: &Messages,
    call: &Call,
    name: &'static str,
) -> Result<Response, Fault> {
    call.only(&Method::GET, "GET")?;
    let more = ["state", "messageId", "messageIds", "host", "path"];
    let query = Query::filter(call, &more)?;
    let count = query.count(PAGE_MAX)?.unwrap_or(PAGE);
    let order = query.order()?;
    let place = query.cursor()?;
    let place = place.map(|text| Place::parse(text, order).ok_or_else(bad_cursor)).transpose()?;
    let (shown, next) = match query.chosen(Vec::new(), Vec::new())? {
        Chosen::Nothing => (Vec::new(), None),
        Chosen::These(filter) => {
            let wanted = Wanted::read(&query, &filter)?;
            page(queue, *filter, &wanted, place, count).await?
        }
    };
    ok(&with_cursor(json!({ name: shown }), next.map(Place::text)))
}

/// One page, and where the next begins if there may be one.
async fn page(
    queue: &Messages,
    mut filter: MessageFilter,
    wanted: &Wanted,
    mut place: Option<Place>,
    count: usize,
) -> Result<(Vec<Value>, Option<Place>), Fault> {
    let order = filter.order;
    let (created, logged) = (wanted.has("CREATED"), wanted.logged());
    let look = count.max(PAGE) + 1;
    let limit = i64::try_from(look).unwrap_or(i64::MAX);
    let mut shown = Shown { order, count, events: Vec::new() };
    for _ in 0..LOOKS {
        filter.after = place.map(|place| place.after(order));
        filter.logged.clone_from(&logged);
        filter.since = queue.events_back(&filter).await?;
        filter.logged.clear();
        let (lines, accepted) = queue.events(&filter, created, &logged, limit).await?;
        let all = lines.len() < look && accepted.len() < look;
        let known = messages_of(queue, &lines, &accepted).await?;
        let units = units(&lines, &accepted, order);
        // Of two lists that were cut off, only as much is certain as each of them has.
        let certain = if all { units.len() } else { look };
        for unit in units.iter().take(certain) {
            let skip = place.filter(|place| place.id == unit.id().as_u128());
            let skip = skip.map_or(0, |place| place.event);
            if let Some(event) = shown.take(unit, &known, wanted, skip) {
                return Ok((shown.sorted(), Some(Place { id: unit.id().as_u128(), event })));
            }
            place = Some(Place::behind(unit.id(), order));
        }
        if all {
            // As far as was looked: the next page goes on from there.
            let rest = filter.since.map(|since| Place::behind(since, order));
            return Ok((shown.sorted(), rest));
        }
    }
    Ok((shown.sorted(), place))
}

/// The messages that lines and creations are about.
async fn messages_of(
    queue: &Messages,
    lines: &[LogLine],
    accepted: &[Message],
) -> Result<BTreeMap<Uuid, Message>, Fault> {
    let mut known: BTreeMap<Uuid, Message> =
        accepted.iter().map(|message| (message.id, message.clone())).collect();
    let mut missing: Vec<Uuid> = lines.iter().map(|line| line.message_id).collect();
    missing.retain(|id| !known.contains_key(id));
    missing.sort_unstable();
    missing.dedup();
    let found = queue.by_ids(missing).await?;
    known.extend(found.into_iter().map(|message| (message.id, message)));
    Ok(known)
}

/// What has a place in the list.
enum Unit<'a> {
    Created(&'a Message),
    Line(&'a LogLine),
}

impl Unit<'_> {
    const fn id(&self) -> Uuid {
        match self {
            Self::Created(message) => message.id,
            Self::Line(line) => line.id,
        }
    }
}

fn units<'a>(lines: &'a [LogLine], accepted: &'a [Message], order: Order) -> Vec<Unit<'a>> {
    let mut units: Vec<Unit<'a>> =
        lines.iter().map(Unit::Line).chain(accepted.iter().map(Unit::Created)).collect();
    units.sort_by_key(Unit::id);
    if order == Order::NewestFirst {
        units.reverse();
    }
    units
}

/// The events of a page, as they come together.
struct Shown {
    order: Order,
    count: usize,
    events: Vec<((Timestamp, Option<usize>), Value)>,
}

impl Shown {
    /// Adds the events of a unit from the `skip`th on; returns the first that found no room.
    fn take(
        &mut self,
        unit: &Unit<'_>,
        known: &BTreeMap<Uuid, Message>,
        wanted: &Wanted,
        skip: usize,
    ) -> Option<usize> {
        let mut events = match unit {
            Unit::Created(message) => vec![created(message)],
            // A message may have been pruned since its line was read.
            Unit::Line(line) => {
                known.get(&line.message_id).map_or(Vec::new(), |m| of_line(line, m))
            }
        };
        if self.order == Order::NewestFirst {
            events.reverse();
        }
        for (place, event) in events.iter().enumerate().skip(skip) {
            if !wanted.takes(event) {
                continue;
            }
            if self.events.len() == self.count {
                return Some(place);
            }
            let rank = STATES.iter().position(|state| *state == event.state);
            self.events.push(((event.at, rank), view::event(event)));
        }
        None
    }

    /// Events of one attempt are next to each other until here; by time, others come between them.
    fn sorted(mut self) -> Vec<Value> {
        match self.order {
            Order::OldestFirst => self.events.sort_by_key(|(moment, _)| *moment),
            Order::NewestFirst => {
                self.events.sort_by_key(|(moment, _)| std::cmp::Reverse(*moment));
            }
        }
        self.events.into_iter().map(|(_, event)| event).collect()
    }
}

fn created(message: &Message) -> Event<'_> {
    let delayed = message.not_before > message.created_at;
    Event {
        message,
        state: "CREATED",
        at: message.created_at,
        next_at: delayed.then_some(message.not_before),
        response: None,
    }
}

fn of_line<'a>(line: &'a LogLine, message: &'a Message) -> Vec<Event<'a>> {
    let states = states_of(line.what, line.next_at.is_some());
    let event = |state: &&'static str| {
        let begins = matches!(*state, "ACTIVE" | "CANCEL_REQUESTED");
        Event {
            message,
            state,
            at: if begins { line.started_at } else { line.at },
            next_at: line.next_at.filter(|_| *state == "RETRY"),
            response: line.response.as_ref().filter(|_| !begins),
        }
    };
    states.iter().map(event).collect()
}
