//! Checkout sessions: pages where customers pay.
//!
//! As at Stripe, a session makes its payment intent when the customer pays, and `checkout.session.completed` does not mean
//! that money came. What customers do is the test's affair ([`World::customer_pays`] and its sisters).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::Timestamp;

use super::World;
use super::books::{Books, Moment};
use super::form::Form;
use super::intent::{Intent, Status, seconds};
use super::methods::{self, Bank};
use super::refusal::Refusal;

const CREATE: &[&str] = &[
    "automatic_tax",
    "cancel_url",
    "client_reference_id",
    "customer",
    "customer_email",
    "expires_at",
    "line_items",
    "locale",
    "metadata",
    "mode",
    "payment_intent_data",
    "payment_method_types",
    "success_url",
];

/// From its making to its end, as Stripe allows it; without a wish it is the longest.
const SHORTEST: Duration = Duration::from_secs(30 * 60);
const LONGEST: Duration = Duration::from_secs(24 * 3600);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionStatus {
    Open,
    Complete,
    Expired,
}

impl SessionStatus {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Complete => "complete",
            Self::Expired => "expired",
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Session {
    pub id: String,
    created: Timestamp,
    amount: i64,
    currency: String,
    title: String,
    customer_email: Option<String>,
    locale: Option<String>,
    client_reference_id: Option<String>,
    success_url: String,
    cancel_url: Option<String>,
    metadata: BTreeMap<String, String>,
    /// For the intent that it will make.
    intent_metadata: BTreeMap<String, String>,
    pub expires_at: Timestamp,
    pub status: SessionStatus,
    paid: bool,
    pub intent: Option<String>,
}

impl Session {
    pub fn payment_id(&self) -> Option<&str> {
        self.metadata.get("payment_id").map(String::as_str)
    }

    pub fn view(&self) -> Value {
        let open = self.status == SessionStatus::Open;
        json!({
            "id": self.id,
            "object": "checkout.session",
            "amount_subtotal": self.amount,
            "amount_total": self.amount,
            "cancel_url": self.cancel_url,
            "client_reference_id": self.client_reference_id,
            "created": seconds(self.created),
            "currency": self.currency,
            "customer": null,
            "customer_email": self.customer_email,
            "expires_at": seconds(self.expires_at),
            "livemode": false,
            "locale": self.locale,
            "metadata": self.metadata,
            "mode": "payment",
            "payment_intent": self.intent,
            "payment_method_types": ["card"],
            "payment_status": if self.paid { "paid" } else { "unpaid" },
            "status": self.status.as_str(),
            "success_url": self.success_url,
            "url": open.then(|| format!("https://checkout.scripted.example/c/pay/{}", self.id)),
        })
    }
}

/// The gateway's sessions, and when the open ones end.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    pub all: BTreeMap<String, Session>,
    deadlines: BTreeSet<(Timestamp, String)>,
}

impl Books {
    pub fn open_session(&mut self, form: &Form, moment: &Moment) -> Result<Value, Refusal> {
        form.only(CREATE)?;
        form.word("mode", &["payment"])?;
        form.required("mode")?;
        let item = |name: &str| format!("line_items[0]{name}");
        form.required(&item("[price_data][unit_amount]"))?;
        let price = form.amount(&item("[price_data][unit_amount]"))?.unwrap_or_default();
        let quantity = form.amount(&item("[quantity]"))?.unwrap_or(1);
        let currency = form.required(&item("[price_data][currency]"))?.to_lowercase();
        let title = form.required(&item("[price_data][product_data][name]"))?.to_owned();
        let success_url = form.required("success_url")?.to_owned();
        let expires_at = closing(form, moment.now)?;
        let id = self.next_id("cs_test");
        let session = Session {
            id: id.clone(),
            created: moment.now,
            amount: price * quantity,
            currency,
            title,
            customer_email: form.text("customer_email"),
            locale: form.text("locale"),
            client_reference_id: form.text("client_reference_id"),
            success_url,
            cancel_url: form.text("cancel_url"),
            metadata: form.map("metadata"),
            intent_metadata: form.map("payment_intent_data[metadata]"),
            expires_at,
            status: SessionStatus::Open,
            paid: false,
            intent: None,
        };
        let view = session.view();
        self.sessions.deadlines.insert((expires_at, id.clone()));
        self.sessions.all.insert(id, session);
        Ok(view)
    }

    pub fn session(&self, id: &str) -> Result<&Session, Refusal> {
        self.sessions.all.get(id).ok_or_else(|| Refusal::missing("checkout.session", id))
    }

    fn session_mut(&mut self, id: &str) -> Result<&mut Session, Refusal> {
        let found = self.sessions.all.get_mut(id);
        found.ok_or_else(|| Refusal::missing("checkout.session", id))
    }

    pub fn expire_session(&mut self, id: &str, moment: &Moment) -> Result<Value, Refusal> {
        let session = self.session(id)?;
        if session.status != SessionStatus::Open {
            let status = session.status.as_str();
            // Stripe gives this refusal no code of its own.
            return Err(Refusal::state(format!(
                "Only Checkout Sessions with a status in [\"open\"] can be expired. This Session has a status of {status}."
            )));
        }
        self.close(id, moment)?;
        self.session(id).map(Session::view)
    }

    fn close(&mut self, id: &str, moment: &Moment) -> Result<(), Refusal> {
        let session = self.session_mut(id)?;
        session.status = SessionStatus::Expired;
        let (deadline, view) = (session.expires_at, session.view());
        self.sessions.deadlines.remove(&(deadline, id.to_owned()));
        self.tell("checkout.session.expired", view, moment);
        Ok(())
    }

    /// Closes the sessions whose time has come.
    pub fn expire_sessions(&mut self, now: Timestamp) {
        while let Some((_, id)) =
            self.sessions.deadlines.first().filter(|due| due.0 <= now).cloned()
        {
            let moment = Moment { now, key: None, request_id: "req_expiry".into() };
            self.close(&id, &moment).expect("a session that has a deadline is in the books");
        }
    }

    /// A customer goes through the page. False if it is not open.
    fn pay_session(&mut self, id: &str, bank: Bank, moment: &Moment) -> Result<bool, Refusal> {
        self.expire_sessions(moment.now);
        let session = self.session(id)?;
        if session.status != SessionStatus::Open {
            return Ok(false);
        }
        let known = session.intent.clone();
        let (amount, currency) = (session.amount, session.currency.clone());
        let (metadata, title) = (session.intent_metadata.clone(), session.title.clone());
        // A second try after a decline is another attempt at the same intent.
        let intent_id = known.unwrap_or_else(|| {
            let intent_id = self.next_id("pi");
            let intent = Intent {
                id: intent_id.clone(),
                created: moment.now,
                amount,
                currency,
                customer: None,
                description: Some(title),
                metadata,
                capture_method: "automatic_async".into(),
                method: None,
                status: Status::RequiresPaymentMethod,
                received: 0,
                refunded: 0,
                charge: None,
                authorized_at: None,
                last_error: None,
                cancellation: None,
            };
            self.intents.insert(intent_id.clone(), intent);
            intent_id
        });
        self.session_mut(id)?.intent = Some(intent_id.clone());
        self.intent_mut(&intent_id)?.method = Some("pm_card_visa".into());
        if self.answered(&intent_id, bank, moment).is_err() {
            // The page shows the decline, and stays open for another card.
            return Ok(true);
        }
        let paid = self.intent(&intent_id)?.status == Status::Succeeded;
        let session = self.session_mut(id)?;
        session.status = SessionStatus::Complete;
        session.paid = paid;
        let (deadline, view) = (session.expires_at, session.view());
        self.sessions.deadlines.remove(&(deadline, id.to_owned()));
        self.tell("checkout.session.completed", view, moment);
        Ok(true)
    }

    /// The money of a session that was completed unpaid comes, or does not. False if nobody waits for it.
    fn settle_session(&mut self, id: &str, came: bool, moment: &Moment) -> Result<bool, Refusal> {
        let session = self.session(id)?;
        let waits = session.status == SessionStatus::Complete && !session.paid;
        let Some(intent_id) = session.intent.clone().filter(|_| waits) else { return Ok(false) };
        if self.intent(&intent_id)?.status != Status::Processing {
            return Ok(false);
        }
        let bank = if came { Bank::Approves } else { methods::DECLINED };
        // A decline is a refusal to whoever asked, and nobody did.
        self.answered(&intent_id, bank, moment).ok();
        let session = self.session_mut(id)?;
        session.paid = came;
        let view = session.view();
        let event = if came { "async_payment_succeeded" } else { "async_payment_failed" };
        self.tell(&format!("checkout.session.{event}"), view, moment);
        Ok(true)
    }
}

/// When the session ends, if what the client wants is allowed.
fn closing(form: &Form, now: Timestamp) -> Result<Timestamp, Refusal> {
    let Some(at) = form.whole("expires_at")? else { return Ok(now.plus(LONGEST)) };
    let (least, most) = (seconds(now.plus(SHORTEST)), seconds(now.plus(LONGEST)));
    if !(least..=most).contains(&at) {
        let bound = if at < least { "at least 30 minutes" } else { "less than 24 hours" };
        let message =
            format!("The `expires_at` timestamp must be {bound} from Checkout Session creation.");
        return Err(Refusal::invalid(message).param("expires_at"));
    }
    Ok(Timestamp::from_micros(at * 1_000_000))
}

/// What customers do.
impl World {
    /// The customer pays, and the bank says yes at once. False if the page is not open any more: also a late customer is told.
    ///
    /// # Panics
    ///
    /// When there is no such session, here and below.
    #[must_use]
    pub fn customer_pays(&self, session: &str) -> bool {
        self.through_the_page(session, Bank::Approves)
    }

    /// The customer goes through the page with a method whose money comes later: complete, and unpaid.
    #[must_use]
    pub fn customer_pays_later(&self, session: &str) -> bool {
        self.through_the_page(session, Bank::Thinks)
    }

    /// The customer tries a card that is declined. The page stays open.
    #[must_use]
    pub fn customer_is_declined(&self, session: &str) -> bool {
        self.through_the_page(session, methods::DECLINED)
    }

    /// The money that [`World::customer_pays_later`] has promised comes, or does not. False if nobody waits for it.
    #[must_use]
    pub fn money_comes(&self, session: &str, came: bool) -> bool {
        let moment = self.own_moment();
        let settled = self.change(|state| state.books.settle_session(session, came, &moment));
        settled.unwrap_or_else(|refusal| panic!("{session}: {refusal:?}"))
    }

    fn through_the_page(&self, session: &str, bank: Bank) -> bool {
        let moment = self.own_moment();
        let paid = self.change(|state| state.books.pay_session(session, bank, &moment));
        paid.unwrap_or_else(|refusal| panic!("{session}: {refusal:?}"))
    }

    /// A session as the gateway would show it.
    #[must_use]
    pub fn session(&self, id: &str) -> Option<Value> {
        self.lock().books.sessions.all.get(id).map(Session::view)
    }

    /// The sessions of a payment, oldest first.
    #[must_use]
    pub fn sessions_of(&self, payment_id: &str) -> Vec<Value> {
        let state = self.lock();
        let sessions = state.books.sessions.all.values();
        sessions
            .filter(|session| session.payment_id() == Some(payment_id))
            .map(Session::view)
            .collect()
    }

    /// Every session, oldest first.
    #[must_use]
    pub fn sessions(&self) -> Vec<Value> {
        self.lock().books.sessions.all.values().map(Session::view).collect()
    }
}
