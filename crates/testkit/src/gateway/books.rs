//! The gateway's books: every object it has, the true ledger and the events; and which request does what to them.
//!
//! Nothing here knows of faults or keys: a request that gets this far is executed. Live, late and repeated requests all come
//! through [`Books::execute`], one at a time.

use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::Timestamp;

use super::checkout::{Session, Sessions};
use super::event::Event;
use super::fault::Operation;
use super::form::Form;
use super::intent::{Intent, seconds};
use super::ledger::{Ledger, Movement, MovementKind};
use super::lists::{self, Item};
use super::methods::Method;
use super::refunds::Refund;
use super::refusal::{Answer, Refusal};

/// One request, understood.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub method: String,
    /// Without the query.
    pub path: String,
    pub form: Form,
    pub key: Option<String>,
}

impl Call {
    /// The parts of the path below `/v1`.
    fn segments(&self) -> Vec<&str> {
        let path = self.path.strip_prefix("/v1/").unwrap_or_default();
        path.split('/').filter(|segment| !segment.is_empty()).collect()
    }

    pub fn operation(&self) -> Operation {
        match (&*self.method, &*self.segments()) {
            ("POST", ["payment_intents"]) => Operation::Create,
            ("POST", ["payment_intents", _, "confirm"]) => Operation::Confirm,
            ("POST", ["payment_intents", _, "capture"]) => Operation::Capture,
            ("POST", ["payment_intents", _, "cancel"]) => Operation::Cancel,
            ("POST", ["refunds"]) => Operation::Refund,
            ("GET", ["payment_intents"]) => Operation::List,
            ("GET", ["payment_intents", "search"]) => Operation::Search,
            ("GET", ["payment_intents", _]) => Operation::Retrieve,
            ("GET", ["refunds", ..]) => Operation::Refunds,
            ("POST", ["checkout", "sessions"]) => Operation::OpenCheckout,
            ("GET", ["checkout", "sessions", _]) => Operation::Checkout,
            ("POST", ["checkout", "sessions", _, "expire"]) => Operation::ExpireCheckout,
            _ => Operation::Other,
        }
    }

    /// The same for a repeat of the same request.
    pub fn fingerprint(&self) -> String {
        format!("{} {} {}", self.method, self.path, self.form.fingerprint())
    }
}

/// When something happens, and because of which request.
#[derive(Clone, Debug)]
pub(crate) struct Moment {
    pub now: Timestamp,
    pub key: Option<String>,
    pub request_id: String,
}

#[derive(Debug, Default)]
pub(crate) struct Books {
    /// Ids count up, so each of these maps is in the order in which things were made.
    pub intents: BTreeMap<String, Intent>,
    pub refunds: BTreeMap<String, Refund>,
    pub sessions: Sessions,
    pub methods: BTreeMap<String, Method>,
    pub customers: BTreeMap<String, Value>,
    pub events: Vec<Event>,
    pub ledger: Ledger,
    /// Who was authorized when, oldest first: what expires next is in front.
    pub authorizations: VecDeque<String>,
    /// How far the search is behind.
    pub search_lag: Duration,
    made: u64,
}

impl Books {
    pub fn execute(&mut self, call: &Call, moment: &Moment) -> Answer {
        self.expire(moment.now);
        self.expire_sessions(moment.now);
        let segments = call.segments();
        let form = &call.form;
        let done = match (&*call.method, &*segments) {
            ("POST", ["payment_intents"]) => self.create(form, moment),
            ("POST", ["payment_intents", id, "confirm"]) => self.confirm(id, form, moment),
            ("POST", ["payment_intents", id, "capture"]) => self.capture(id, form, moment),
            ("POST", ["payment_intents", id, "cancel"]) => self.cancel(id, form, moment),
            ("GET", ["payment_intents"]) => self.list_intents(form),
            ("GET", ["payment_intents", "search"]) => self.search(form, moment.now),
            ("GET", ["payment_intents", id]) => self.intent(id).map(|intent| shown(intent, form)),
            ("POST", ["refunds"]) => self.refund(form, moment),
            ("GET", ["refunds"]) => self.list_refunds(form),
            ("GET", ["refunds", id]) => self.refund_by_id(id).map(Refund::view),
            ("POST", ["checkout", "sessions"]) => self.open_session(form, moment),
            ("GET", ["checkout", "sessions", id]) => self.session(id).map(Session::view),
            ("POST", ["checkout", "sessions", id, "expire"]) => self.expire_session(id, moment),
            ("GET", ["charges", id]) => self.charge(id),
            ("GET", ["events"]) => self.list_events(form),
            ("GET", ["events", id]) => {
                let found = self.events.iter().find(|event| event.id == *id);
                found.map(Event::view).ok_or_else(|| Refusal::missing("event", id))
            }
            _ => self.execute_customer(call, &segments, moment),
        };
        done.map_or_else(Answer::from, Answer::ok)
    }

    /// Requests about who pays, and how.
    fn execute_customer(
        &mut self,
        call: &Call,
        segments: &[&str],
        moment: &Moment,
    ) -> Result<Value, Refusal> {
        let form = &call.form;
        match (&*call.method, segments) {
            ("POST", ["customers"]) => {
                let id = self.next_id("cus");
                Ok(self.add_customer(id, form, moment.now))
            }
            ("GET", ["customers", id]) => {
                self.customers.get(*id).cloned().ok_or_else(|| Refusal::missing("customer", id))
            }
            ("POST", ["payment_methods"]) => {
                let method = Method::made(self.next_id("pm"), form)?;
                let view = method.view();
                self.methods.insert(method.id.clone(), method);
                Ok(view)
            }
            ("GET", ["payment_methods", id]) => {
                let token = || Method::from_token(id, (*id).to_owned());
                self.methods.get(*id).cloned().map_or_else(token, Ok).map(|method| method.view())
            }
            ("POST", ["payment_methods", id, "attach"]) => {
                form.required("customer")?;
                let customer = self.known_customer(form)?;
                // A token is everybody's; attached, it becomes the customer's own, under an id of its own.
                let mut method = match self.methods.get(*id) {
                    Some(made) => made.clone(),
                    None => Method::from_token(id, self.next_id("pm"))?,
                };
                method.customer = customer;
                let view = method.view();
                self.methods.insert(method.id.clone(), method);
                Ok(view)
            }
            (verb, _) => Err(Refusal::unknown_route(verb, &call.path)),
        }
    }

    pub fn add_customer(&mut self, id: String, form: &Form, now: Timestamp) -> Value {
        let customer = json!({
            "id": id,
            "object": "customer",
            "created": seconds(now),
            "description": form.get("description"),
            "email": form.get("email"),
            "livemode": false,
            "metadata": form.map("metadata"),
            "name": form.get("name"),
        });
        self.customers.insert(id, customer.clone());
        customer
    }

    /// The customer that the parameters name, if they name one.
    pub fn known_customer(&self, form: &Form) -> Result<Option<String>, Refusal> {
        match form.get("customer") {
            Some(id) if !self.customers.contains_key(id) => {
                Err(Refusal::missing_param("customer", id, "customer"))
            }
            known => Ok(known.map(ToOwned::to_owned)),
        }
    }

    pub fn intent(&self, id: &str) -> Result<&Intent, Refusal> {
        self.intents.get(id).ok_or_else(|| Refusal::missing("payment_intent", id))
    }

    pub fn intent_mut(&mut self, id: &str) -> Result<&mut Intent, Refusal> {
        self.intents.get_mut(id).ok_or_else(|| Refusal::missing("payment_intent", id))
    }

    /// The payment that a call is about, if it is known here.
    pub fn payment_of(&self, call: &Call) -> Option<String> {
        let named = match *call.segments() {
            ["payment_intents", id, ..] => Some(id),
            ["refunds"] => call.form.get("payment_intent"),
            ["refunds", id] => self.refunds.get(id).map(|refund| &*refund.intent),
            ["checkout", "sessions", id, ..] => {
                let session = self.sessions.all.get(id);
                return session.and_then(Session::payment_id).map(ToOwned::to_owned);
            }
            _ => None,
        };
        let known = named.and_then(|id| self.intents.get(id)).and_then(Intent::payment_id);
        known.map(ToOwned::to_owned).or_else(|| call.form.map("metadata").remove("payment_id"))
    }

    pub fn next_id(&mut self, prefix: &str) -> String {
        self.made += 1;
        format!("{prefix}_{:024}", self.made)
    }

    /// Writes into the true ledger. Called where money moves, and nowhere else.
    pub fn record(&mut self, kind: MovementKind, intent: &str, amount: i64, moment: &Moment) {
        let payment_id = self.intents.get(intent).and_then(Intent::payment_id);
        let movement = Movement {
            at: moment.now,
            kind,
            intent: intent.to_owned(),
            payment_id: payment_id.map(ToOwned::to_owned),
            amount,
            key: moment.key.clone(),
        };
        self.ledger.record(movement);
    }

    pub fn tell(&mut self, kind: &str, object: Value, moment: &Moment) {
        let id = self.next_id("evt");
        let (request_id, key) = (moment.request_id.clone(), moment.key.clone());
        let (kind, created) = (kind.to_owned(), moment.now);
        self.events.push(Event { id, created, kind, request_id, key, object });
    }

    /// Tells of the intent as it is now.
    pub fn tell_intent(&mut self, kind: &str, id: &str, moment: &Moment) {
        if let Some(view) = self.intents.get(id).map(Intent::view) {
            self.tell(kind, view, moment);
        }
    }

    /// Tells of the intent's charge as it is now.
    pub fn tell_charge(&mut self, kind: &str, id: &str, moment: &Moment) {
        if let Some(view) = self.intents.get(id).and_then(Intent::charge_view) {
            self.tell(kind, view, moment);
        }
    }

    fn list_intents(&self, form: &Form) -> Result<Value, Refusal> {
        form.only(&["created", "customer", "limit", "starting_after"])?;
        let customer = form.get("customer");
        let of_customer = |intent: &&Intent| {
            customer.is_none_or(|customer| intent.customer.as_deref() == Some(customer))
        };
        let intents = self.intents.values().rev().filter(of_customer);
        lists::page("/v1/payment_intents", form, intents.map(|intent| intent_item(intent, form)))
    }

    /// `metadata['key']:'value'`, which is the only question that Tashika has.
    fn search(&self, form: &Form, now: Timestamp) -> Result<Value, Refusal> {
        form.only(&["query", "limit", "page"])?;
        let query = form.required("query")?;
        let parts = query.strip_prefix("metadata['").and_then(|rest| rest.split_once("']:'"));
        let parts = parts.and_then(|(key, rest)| Some((key, rest.strip_suffix('\'')?)));
        let (key, value) =
            parts.ok_or_else(|| Refusal::invalid("This query is not understood."))?;
        let indexed = |intent: &&Intent| now.since(intent.created) >= self.search_lag;
        let fits = |intent: &&Intent| intent.metadata.get(key).is_some_and(|has| has == value);
        let found = self.intents.values().rev().filter(indexed).filter(fits);
        let url = "/v1/payment_intents/search";
        let mut page = lists::page(url, form, found.map(|intent| intent_item(intent, form)))?;
        page["object"] = json!("search_result");
        page["next_page"] = Value::Null;
        Ok(page)
    }

    fn charge(&self, id: &str) -> Result<Value, Refusal> {
        let mut intents = self.intents.values();
        let found = intents.find(|intent| intent.charge.as_deref() == Some(id));
        found.and_then(Intent::charge_view).ok_or_else(|| Refusal::missing("charge", id))
    }

    fn list_events(&self, form: &Form) -> Result<Value, Refusal> {
        form.only(&["created", "limit", "starting_after", "type", "types"])?;
        let types = form.map("types");
        let wanted = |event: &&Event| {
            form.get("type").is_none_or(|kind| kind == event.kind)
                && (types.is_empty() || types.values().any(|kind| *kind == event.kind))
        };
        let events = self.events.iter().rev().filter(wanted);
        lists::page("/v1/events", form, events.map(Event::item))
    }
}

fn intent_item<'a>(intent: &'a Intent, form: &'a Form) -> Item<'a> {
    let view = Box::new(move || shown(intent, form));
    Item { id: &intent.id, created: intent.created, view }
}

/// The intent as the client wants to see it.
pub(crate) fn shown(intent: &Intent, form: &Form) -> Value {
    let mut view = intent.view();
    if form.expands("latest_charge") || form.expands("data.latest_charge") {
        view["latest_charge"] = intent.charge_view().unwrap_or_default();
    }
    view
}
