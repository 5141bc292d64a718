//! Pages on which customers pay, as the gateway keeps them, and what customers do there.
//!
//! A page is opened and closed by requests, like everything else; it is paid by its customer, whom no
//! network of ours is in the way of. Some pay with a method whose money comes later, or never.

use std::time::Duration;

use serde_json::{Value, json};
use tashika_domain::Timestamp;
use tashika_domain::payment::session::{RemoteSession, SessionState};
use uuid::Uuid;

use super::account::{Account, CONFIRM, Said, State};
use super::log::Log;
use super::tally::Tally;
use super::world::{Event, World};

/// The gateway closes a page by itself so long after we should have.
const MARGIN: Duration = Duration::from_secs(1800);

/// What a customer does on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Deed {
    Pays,
    /// With a method whose money comes so much later, if it comes.
    PaysLater {
        after: Duration,
        comes: bool,
    },
}

/// A page at the gateway.
#[derive(Clone, Debug)]
pub(crate) struct Page {
    pub reservation: Uuid,
    state: SessionState,
    closes_at: Timestamp,
    /// Finished with a method whose money comes later.
    later: bool,
}

impl Page {
    fn state(&self, at: Timestamp) -> SessionState {
        match self.state {
            SessionState::Open if at >= self.closes_at => SessionState::Expired,
            state => state,
        }
    }
}

impl Account {
    pub fn open(
        &mut self,
        id: Uuid,
        reservation: Uuid,
        expires_at: Timestamp,
        at: Timestamp,
    ) -> Said {
        self.page.get_or_insert_with(|| Page {
            reservation,
            state: SessionState::Open,
            closes_at: expires_at.plus(MARGIN),
            later: false,
        });
        self.session(id, at).map_or_else(|| super::account::refused("no page"), Said::Session)
    }

    pub fn close(&mut self, id: Uuid, at: Timestamp) -> Said {
        if let Some(page) = &mut self.page
            && page.state(at) == SessionState::Open
        {
            page.state = SessionState::Expired;
        }
        self.session(id, at).map_or_else(|| super::account::refused("no page"), Said::Session)
    }

    /// The page as the gateway shows it.
    pub fn session(&self, id: Uuid, at: Timestamp) -> Option<RemoteSession> {
        let page = self.page.as_ref()?;
        let state = page.state(at);
        Some(RemoteSession {
            id: format!("cs_{id}"),
            url: (state == SessionState::Open).then(|| format!("https://pay.example/{id}")),
            state,
            paid: self.state == State::Captured,
            gateway_id: (state == SessionState::Complete).then(|| format!("pi_{id}")),
            amount: self.amount,
            currency: "JPY".into(),
            expires_at: page.closes_at,
        })
    }

    pub fn is_open(&self, at: Timestamp) -> bool {
        self.page.as_ref().is_some_and(|page| page.state(at) == SessionState::Open)
    }

    /// The customer goes through the page; whether that was possible.
    fn go_through(&mut self, id: Uuid, deed: Deed, at: Timestamp) -> bool {
        let open = |page: &&mut Page| page.state(at) == SessionState::Open;
        let Some(page) = self.page.as_mut().filter(open) else { return false };
        page.state = SessionState::Complete;
        page.later = matches!(deed, Deed::PaysLater { .. });
        self.created_at.get_or_insert(at);
        self.gateway_id = Some(format!("pi_{id}"));
        match deed {
            Deed::Pays => self.paid(),
            Deed::PaysLater { .. } => self.working.push(CONFIRM.to_owned()),
        }
        true
    }

    fn paid(&mut self) {
        self.state = State::Captured;
        self.authorizations += 1;
        self.captures.push(self.amount);
    }
}

impl World {
    /// A customer will do this on the page of a payment.
    pub fn customer(&mut self, payment: Uuid, deed: Deed, at: Timestamp) {
        self.plan(at, Event::Customer { payment, deed });
    }

    pub(super) fn goes_through(&mut self, payment: Uuid, deed: Deed, at: Timestamp, log: &Log) {
        let account = self.accounts.entry(payment).or_default();
        if !account.go_through(payment, deed, at) {
            log.count(Tally::PageClosed);
            return;
        }
        log.note(at, &format!("customer of {payment}: {deed:?}"));
        log.count(match deed {
            Deed::Pays => Tally::CustomerPaid,
            Deed::PaysLater { .. } => Tally::CustomerPaidLater,
        });
        if let Deed::PaysLater { after, comes } = deed {
            self.plan(at.plus(after), Event::MoneyComes { payment, comes });
        }
        self.happened(payment);
        self.tell_of_page(payment, at);
    }

    pub(super) fn money_comes(&mut self, payment: Uuid, comes: bool, at: Timestamp, log: &Log) {
        let account = self.accounts.entry(payment).or_default();
        account.working.retain(|key| key != CONFIRM);
        if comes {
            account.paid();
        } else {
            log.count(Tally::MoneyNeverCame);
            account.state = State::Declined;
        }
        log.note(at, &format!("money of {payment} comes: {comes}"));
        self.happened(payment);
        self.tell_of_page(payment, at);
    }
}

/// What the gateway tells of a page: the type of an event, and the object that it shows.
pub(super) fn told(
    payment: Uuid,
    account: &Account,
    at: Timestamp,
) -> Option<(&'static str, Value)> {
    let page = account.page.as_ref()?;
    let session = account.session(payment, at)?;
    let kind = match (session.state, account.state) {
        (SessionState::Expired, _) => "checkout.session.expired",
        (_, State::Declined) => "checkout.session.async_payment_failed",
        (_, State::Captured) if page.later => "checkout.session.async_payment_succeeded",
        _ => "checkout.session.completed",
    };
    let paid = if session.paid { "paid" } else { "unpaid" };
    let object = json!({"id": session.id, "object": "checkout.session",
        "status": session.state.as_str(), "payment_status": paid,
        "payment_intent": session.gateway_id, "client_reference_id": page.reservation,
        "metadata": {"payment_id": payment, "reservation_id": page.reservation}});
    Some((kind, object))
}
