//! Queries of lists and of bulk operations.
//!
//! A filter that is not understood must not become "everything": what is not known, empty or cannot
//! be read is refused, and names that no message can have choose nothing.

use serde_json::Value;
use tashika_domain::Timestamp;
use tashika_domain::message::flow::LONGEST_KEY;
use tashika_domain::message::parse_id;
use tashika_domain::message::span::shown;
use tashika_store::{MessageFilter, Order};
use url::form_urlencoded;
use uuid::Uuid;

use super::call::Call;
use super::fault::Fault;

/// Values that one parameter may have.
const VALUES_MAX: usize = 10_000;

/// Which part of a list, and in which order.
const PAGE: [&str; 3] = ["cursor", "count", "order"];

/// What messages can be chosen by, everywhere.
const COMMON: [&str; 10] = [
    "url",
    "topicName",
    "queueName",
    "scheduleId",
    "label",
    "flowControlKey",
    "callerIp",
    "callerIP",
    "fromDate",
    "toDate",
];

/// Parameters whose values may contain a comma: lists of them come as repeated parameters.
const WITH_COMMAS: [&str; 3] = ["url", "path", "flowControlKey"];

/// Stands among the known parameters where settings of messages may be in the query too. Elsewhere
/// they would be filters that are not understood.
pub(super) const SETTINGS: &str = "upstash-*";

pub(super) struct Query {
    pairs: Vec<(String, String)>,
}

/// What a query chooses.
pub(super) enum Chosen {
    /// Named by ids that nothing can have.
    Nothing,
    These(Box<MessageFilter>),
}

impl Query {
    /// Reads a query of plain parameters.
    pub fn plain(call: &Call, known: &[&str]) -> Result<Self, Fault> {
        let mut pairs = Vec::new();
        for (name, value) in form_urlencoded::parse(call.query().as_bytes()) {
            let lower = name.to_ascii_lowercase();
            let setting = lower.starts_with("upstash-") && known.contains(&SETTINGS);
            if lower == "qstash_token" || setting {
                continue;
            }
            if !known.contains(&name.as_ref()) {
                return Err(Fault::bad(format!("unknown query parameter `{}`", shown(&name))));
            }
            if value.contains('\0') {
                return Err(Fault::bad(format!("{name} has a value that it cannot have")));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self { pairs })
    }

    /// Reads a query that chooses messages, by the common parameters and some `more`.
    pub fn filter(call: &Call, more: &[&str]) -> Result<Self, Fault> {
        let known: Vec<&str> = PAGE.iter().chain(&COMMON).chain(more).copied().collect();
        Self::plain(call, &known)
    }

    /// The value of a parameter that can stand once.
    pub fn one(&self, name: &str) -> Result<Option<&str>, Fault> {
        let mut values = self.pairs.iter().filter(|(known, _)| known == name);
        let first = values.next().map(|(_, value)| value.as_str());
        if values.next().is_some() {
            return Err(Fault::bad(format!("{name} is given twice")));
        }
        Ok(first)
    }

    /// The values of a parameter; none of them empty.
    pub fn list(&self, name: &str) -> Result<Vec<String>, Fault> {
        let mut list = Vec::new();
        for (_, value) in self.pairs.iter().filter(|(known, _)| known == name) {
            if WITH_COMMAS.contains(&name) {
                list.push(value.clone());
            } else {
                list.extend(value.split(',').map(|part| part.trim().to_owned()));
            }
        }
        if list.iter().any(String::is_empty) {
            return Err(Fault::bad(format!("{name} is empty")));
        }
        if list.len() > VALUES_MAX {
            return Err(Fault::bad(format!("{name} has more than {VALUES_MAX} values")));
        }
        Ok(list)
    }

    /// How many are wanted; of more than `most`, there is another page.
    pub fn count(&self, most: usize) -> Result<Option<usize>, Fault> {
        let Some(text) = self.one("count")?.filter(|text| !text.is_empty()) else {
            return Ok(None);
        };
        match text.parse::<usize>() {
            Ok(count) if count > 0 => Ok(Some(count.min(most))),
            _ => Err(Fault::bad("count is not a whole number of at least 1")),
        }
    }

    pub fn cursor(&self) -> Result<Option<&str>, Fault> {
        Ok(self.one("cursor")?.filter(|text| !text.is_empty()))
    }

    /// The last of the page before, where that is a message.
    pub fn after(&self) -> Result<Option<Uuid>, Fault> {
        self.cursor()?.map(|text| text.parse().map_err(|_| bad_cursor())).transpose()
    }

    pub fn order(&self) -> Result<Order, Fault> {
        match self.one("order")? {
            None | Some("latestFirst" | "desc") => Ok(Order::NewestFirst),
            Some("earliestFirst" | "asc") => Ok(Order::OldestFirst),
            Some(_) => Err(Fault::bad("order is neither earliestFirst nor latestFirst")),
        }
    }

    fn moment(&self, name: &str) -> Result<Option<i64>, Fault> {
        let Some(text) = self.one(name)? else { return Ok(None) };
        // The end of the year 9999.
        let known = text.parse::<i64>().ok().filter(|ms| (0..=253_402_300_799_999).contains(ms));
        let wrong = || Fault::bad(format!("{name} is not a time in milliseconds since 1970"));
        known.map(Some).ok_or_else(wrong)
    }

    /// The messages that the query chooses. `ids` and `dlq_ids` win over everything else.
    pub fn chosen(&self, ids: Vec<String>, dlq_ids: Vec<String>) -> Result<Chosen, Fault> {
        let order = self.order()?;
        // Read also if it does not count: a mistake is a mistake.
        let filter = self.conditions(order)?;
        let one = self.list("messageId")?;
        let listed = |name| self.list(name);
        let by_id = [listed("messageIds")?, ids].concat();
        let by_dlq_id = [listed("dlqIds")?, dlq_ids].concat();
        if !by_dlq_id.is_empty() {
            return Ok(Chosen::These(Box::new(MessageFilter {
                dlq_ids: by_dlq_id,
                order,
                ..MessageFilter::default()
            })));
        }
        if !by_id.is_empty() {
            let named = MessageFilter { order, ..MessageFilter::default() };
            return Ok(with_ids(named, &by_id));
        }
        Ok(if one.is_empty() { Chosen::These(Box::new(filter)) } else { with_ids(filter, &one) })
    }

    fn conditions(&self, order: Order) -> Result<MessageFilter, Fault> {
        let statuses = self.list("responseStatus")?;
        if statuses.iter().any(|status| status.parse::<u16>().is_err()) {
            return Err(Fault::bad("responseStatus is not a status"));
        }
        let flow_keys = self.list("flowControlKey")?;
        if flow_keys.iter().any(|key| key.len() > LONGEST_KEY) {
            return Err(Fault::bad("flowControlKey is too long"));
        }
        let lower = |list: Vec<String>| list.iter().map(|text| text.to_lowercase()).collect();
        let from = self.moment("fromDate")?.map(|ms| Timestamp::from_micros(ms * 1000));
        // What is shown in milliseconds is chosen in milliseconds: to the end of the last one.
        let to = self.moment("toDate")?.map(|ms| Timestamp::from_micros(ms * 1000 + 999));
        Ok(MessageFilter {
            urls: self.list("url")?,
            hosts: lower(self.list("host")?),
            paths: self.list("path")?,
            topics: self.list("topicName")?,
            queues: self.list("queueName")?,
            schedules: self.list("scheduleId")?,
            labels: self.list("label")?,
            flow_keys,
            caller_ips: [self.list("callerIp")?, self.list("callerIP")?].concat(),
            response_statuses: statuses,
            from,
            to,
            order,
            ..MessageFilter::default()
        })
    }
}

fn with_ids(filter: MessageFilter, names: &[String]) -> Chosen {
    let ids: Vec<Uuid> = names.iter().filter_map(|name| parse_id(name)).collect();
    if ids.is_empty() {
        return Chosen::Nothing;
    }
    Chosen::These(Box::new(MessageFilter { ids, ..filter }))
}

pub(super) fn bad_cursor() -> Fault {
    Fault::bad("cursor is not one that this server gave")
}

/// The ids in a body such as `{"messageIds": ["…"]}`. Without a body there are none; a body that says
/// anything else is refused, because without it the same request means "all".
pub(super) fn ids_in_body(call: &Call, name: &str) -> Result<Vec<String>, Fault> {
    if call.body.is_empty() {
        return Ok(Vec::new());
    }
    let wrong = || Fault::bad(format!("the body is not of the form {{\"{name}\": [\"…\"]}}"));
    let body = call.json()?;
    let body = body.as_object().filter(|body| body.len() == 1).ok_or_else(wrong)?;
    let list = body.get(name).and_then(Value::as_array).ok_or_else(wrong)?;
    let ids: Option<Vec<String>> = list
        .iter()
        .map(|id| id.as_str().filter(|id| !id.is_empty() && !id.contains('\0')).map(str::to_owned))
        .collect();
    let ids = ids.ok_or_else(wrong)?;
    if ids.is_empty() {
        return Err(Fault::bad(format!("{name} is empty")));
    }
    if ids.len() > VALUES_MAX {
        return Err(Fault::bad(format!("{name} has more than {VALUES_MAX} values")));
    }
    Ok(ids)
}
