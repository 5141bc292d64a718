//! Lists: `?limit=&cursor=` in, `{"items": […], "nextCursor": "…"}` out.

use axum::Json;
use axum::response::{IntoResponse as _, Response};
use serde_json::{Value, json};
use uuid::Uuid;

use std::time::Duration;

use tashika_domain::{Timestamp, ids};
use tashika_store::{Listed, Store, StoreError};

use super::problem::{Code, Problem};

const LIMIT_DEFAULT: i64 = 50;
const LIMIT_MAX: i64 = 500;

/// How many rows one page looks through where no index serves all of its filters. What is further back
/// is on the next page.
const LOOK: i64 = 20_000;
/// Ids begin with the time they were made, which may be a moment before or after the row's own.
const SLACK: Duration = Duration::from_secs(60);

/// The query of a list, taken apart name by name.
pub struct Query {
    pairs: Vec<(String, String)>,
}

/// Which part of a list is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Page {
    pub limit: i64,
    /// The last item of the page before.
    pub before: Option<Uuid>,
}

impl Query {
    /// Reads a query that may hold `known` names, beside `limit` and `cursor`.
    pub fn read(query: Option<&str>, known: &[&str]) -> Result<Self, Problem> {
        let mut pairs: Vec<(String, String)> = Vec::new();
        for (name, value) in url::form_urlencoded::parse(query.unwrap_or_default().as_bytes()) {
            let expected = known.iter().chain(&["limit", "cursor"]).any(|known| *known == name);
            let twice = pairs.iter().any(|(seen, _)| *seen == name);
            if !expected || twice || value.contains('\0') {
                let names = known.join(", ");
                return Err(Problem::new(Code::BadRequest).detail(
                    format!("The query takes limit, cursor, {names}, each once."),
                    format!("クエリには limit、cursor、{names} をそれぞれ 1 回だけ指定できます。"),
                ));
            }
            pairs.push((name.into_owned(), value.into_owned()));
        }
        Ok(Self { pairs })
    }

    /// A text; an empty one is as good as none.
    #[must_use]
    pub fn text(&self, name: &str) -> Option<&str> {
        self.value(name).filter(|text| !text.is_empty())
    }

    fn value(&self, name: &str) -> Option<&str> {
        self.pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A value that must be one of a few words.
    pub fn word<T>(
        &self,
        name: &str,
        parse: impl Fn(&str) -> Option<T>,
    ) -> Result<Option<T>, Problem> {
        let Some(text) = self.value(name) else { return Ok(None) };
        parse(text).map(Some).ok_or_else(|| {
            Problem::new(Code::BadRequest).detail(
                format!("{name} has a value that it cannot have."),
                format!("{name} の値が正しくありません。"),
            )
        })
    }

    pub fn page(&self) -> Result<Page, Problem> {
        let limit = self.word("limit", |text| {
            text.parse().ok().filter(|limit| (1..=LIMIT_MAX).contains(limit))
        })?;
        // An empty cursor is where a list begins: loops of callers start with it.
        let before = match self.value("cursor") {
            Some("") => None,
            _ => self.word("cursor", |text| text.parse().ok())?,
        };
        Ok(Page { limit: limit.unwrap_or(LIMIT_DEFAULT), before })
    }
}

/// Between which rows a page is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    pub before: Option<Uuid>,
    pub since: Option<Uuid>,
    /// Where the next page goes on, if this one ends before the list does.
    rest: Option<Uuid>,
}

impl Page {
    /// How far a page of a list reaches. Times that a caller asks for bound it; so does a look, unless
    /// an index serves the filters.
    pub async fn reach(
        self,
        store: &Store,
        list: Listed,
        (from, to): (Option<Timestamp>, Option<Timestamp>),
        is_indexed: bool,
    ) -> Result<Reach, StoreError> {
        let newest = to.map(|to| ids::floor(to.plus(SLACK)));
        let before = match (self.before, newest) {
            (Some(cursor), Some(newest)) => Some(cursor.min(newest)),
            (cursor, newest) => cursor.or(newest),
        };
        let oldest = from.map(|from| ids::floor(from.minus(SLACK)));
        let looked = if is_indexed { None } else { store.row_before(list, before, LOOK).await? };
        let rest = looked.filter(|looked| oldest.is_none_or(|oldest| *looked > oldest));
        Ok(Reach { before, since: rest.or(oldest), rest })
    }

    /// The answer of a page within its reach.
    pub fn answer_of(self, items: Vec<(Uuid, Value)>, reach: Reach) -> Response {
        self.answer_within(items, reach.rest)
    }

    /// One more than asked for shows whether there is another page.
    #[must_use]
    pub const fn fetch(self) -> i64 {
        self.limit + 1
    }

    /// The answer; `items` may hold one more than asked for.
    pub fn answer(self, items: Vec<(Uuid, Value)>) -> Response {
        self.answer_within(items, None)
    }

    /// The same where only rows down to `since` were looked at: a page that is not full goes on there.
    pub fn answer_within(self, items: Vec<(Uuid, Value)>, since: Option<Uuid>) -> Response {
        Json(self.document(items, since)).into_response()
    }

    /// What is answered, as the command line prints it too.
    #[must_use]
    pub fn document(self, mut items: Vec<(Uuid, Value)>, since: Option<Uuid>) -> Value {
        let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
        let more = items.len() > limit;
        items.truncate(limit);
        let cursor = items.last().filter(|_| more).map(|(id, _)| *id).or(since);
        let items: Vec<Value> = items.into_iter().map(|(_, item)| item).collect();
        let mut body = json!({ "items": items });
        if let Some(cursor) = cursor {
            body["nextCursor"] = json!(cursor);
        }
        body
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_taken_by_name() {
        let query =
            Query::read(Some("status=a%20b&limit=7&bookingId="), &["status", "bookingId"]).unwrap();
        assert_eq!(query.text("status"), Some("a b"));
        assert_eq!(query.text("bookingId"), None);
        assert_eq!(query.page().unwrap(), Page { limit: 7, before: None });
        let begins = Query::read(Some("cursor="), &[]).and_then(|query| query.page());
        assert_eq!(begins.unwrap().before, None);
        for bad in ["x=1", "status=a&status=b", "limit=0", "limit=501", "limit=x", "cursor=x"] {
            let read = Query::read(Some(bad), &["status"]).and_then(|query| query.page());
            assert!(read.is_err(), "{bad}");
        }
    }
}
