//! Pages of lists: newest first, filtered by when things were made, continued after an id.

use serde_json::{Value, json};
use tashika_domain::Timestamp;

use super::form::Form;
use super::intent::seconds;
use super::refusal::Refusal;

/// As many as fit on a page if the client does not say, and at most.
const USUAL: i64 = 10;
const MOST: i64 = 100;

/// Something that can be listed.
pub(crate) struct Item<'a> {
    pub id: &'a str,
    pub created: Timestamp,
    pub view: Box<dyn Fn() -> Value + 'a>,
}

/// The page of `items` (newest first) that the client asks for.
pub(crate) fn page<'a>(
    url: &str,
    form: &Form,
    items: impl Iterator<Item = Item<'a>>,
) -> Result<Value, Refusal> {
    let limit = form.whole("limit")?.unwrap_or(USUAL);
    if !(1..=MOST).contains(&limit) {
        let refusal = Refusal::invalid(format!("Invalid limit: must be between 1 and {MOST}."));
        return Err(refusal.code("parameter_invalid_integer").param("limit"));
    }
    let limit = usize::try_from(limit).unwrap_or_default();
    let made = Made::asked(form)?;
    let mut items: Vec<Item<'a>> = items.collect();
    if let Some(after) = form.get("starting_after") {
        let at = items.iter().position(|item| item.id == after);
        let at = at.ok_or_else(|| Refusal::missing_param("object", after, "starting_after"))?;
        items.drain(..=at);
    }
    items.retain(|item| made.includes(seconds(item.created)));
    let has_more = items.len() > limit;
    let data: Vec<Value> = items.iter().take(limit).map(|item| (item.view)()).collect();
    Ok(json!({"object": "list", "url": url, "has_more": has_more, "data": data}))
}

/// `created[gte]` and its sisters, in whole seconds.
struct Made {
    from: i64,
    /// Not included.
    until: i64,
}

impl Made {
    fn asked(form: &Form) -> Result<Self, Refusal> {
        let mut made = Self { from: i64::MIN, until: i64::MAX };
        if let Some(at) = form.whole("created")? {
            made = Self { from: at, until: at.saturating_add(1) };
        }
        if let Some(at) = form.whole("created[gte]")? {
            made.from = made.from.max(at);
        }
        if let Some(at) = form.whole("created[gt]")? {
            made.from = made.from.max(at.saturating_add(1));
        }
        if let Some(at) = form.whole("created[lt]")? {
            made.until = made.until.min(at);
        }
        if let Some(at) = form.whole("created[lte]")? {
            made.until = made.until.min(at.saturating_add(1));
        }
        Ok(made)
    }

    const fn includes(&self, at: i64) -> bool {
        self.from <= at && at < self.until
    }
}
