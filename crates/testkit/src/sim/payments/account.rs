//! The gateway's own books: what happened to one payment, truly.
//!
//! Every request that arrives, on time, late or twice, goes through [`Account::apply`]: the store of
//! keys first, then the state of the payment.

use std::collections::BTreeMap;
use std::time::Duration;

use tashika_domain::Timestamp;
use tashika_domain::outcome::Reason;
use tashika_domain::payment::remote::{Remote, RemoteRefund, RemoteRefundState, RemoteState, code};
use tashika_domain::payment::session::RemoteSession;
use uuid::Uuid;

use super::page::Page;

/// For how long the gateway knows a key.
const KEYS_KEPT: Duration = Duration::from_secs(24 * 3600);

/// What kind of gateway it is.
#[derive(Clone, Copy, Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "four things that have nothing to do with each other"
)]
pub(crate) struct Nature {
    /// Gives an id first and is asked by it; otherwise it is asked by ours.
    pub two_step: bool,
    /// A fence releases what was authorized before it.
    pub fence_cancels: bool,
    /// Refuses to give back more than was taken.
    pub caps_refunds: bool,
    /// Says that it has fenced, or has never heard of a payment, when that is not so.
    pub liar: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Unseen,
    Prepared,
    Authorized,
    Captured,
    Voided,
    Declined,
}

/// What is asked of the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    Prepare,
    Authorize,
    /// `in_vain`: how many captures and voids had ended without having happened.
    Capture {
        amount: i64,
        in_vain: u32,
    },
    Void {
        in_vain: u32,
    },
    Refund {
        id: Uuid,
        number: u32,
        amount: i64,
    },
    Fence,
    /// Opens the page on which a customer pays.
    Open {
        reservation: Uuid,
        expires_at: Timestamp,
    },
    Close,
}

impl Act {
    pub fn key(self) -> String {
        match self {
            Self::Prepare => "create".into(),
            Self::Authorize => CONFIRM.into(),
            Self::Capture { in_vain, .. } => format!("capture:{in_vain}"),
            Self::Void { in_vain } => format!("void:{in_vain}"),
            Self::Refund { number, .. } => format!("refund:{number}"),
            Self::Fence => "fence".into(),
            Self::Open { .. } => "checkout".into(),
            Self::Close => "expire".into(),
        }
    }
}

pub(super) const CONFIRM: &str = "confirm";

/// What the gateway answers.
#[derive(Clone, Debug)]
pub(crate) enum Said {
    Opened(String),
    Payment(Remote),
    Refund(RemoteRefund),
    Session(RemoteSession),
    Refused(Reason),
}

#[derive(Clone, Debug)]
pub(crate) struct TrueRefund {
    pub id: Uuid,
    pub amount: i64,
    /// The customer's bank sends it back then.
    fails_at: Option<Timestamp>,
    gateway_id: String,
}

impl TrueRefund {
    pub fn has_failed(&self, at: Timestamp) -> bool {
        self.fails_at.is_some_and(|fails_at| fails_at <= at)
    }

    fn told(&self, at: Timestamp) -> RemoteRefund {
        let state = match self.fails_at {
            None => RemoteRefundState::Succeeded,
            Some(fails_at) if fails_at <= at => RemoteRefundState::Failed,
            Some(_) => RemoteRefundState::Pending,
        };
        RemoteRefund {
            refund_id: Some(self.id),
            gateway_id: self.gateway_id.clone(),
            amount: self.amount,
            state,
        }
    }
}

/// One payment at the gateway.
#[derive(Clone, Debug, Default)]
pub(crate) struct Account {
    pub amount: i64,
    pub created_at: Option<Timestamp>,
    pub gateway_id: Option<String>,
    pub state: State,
    /// How often money was reserved. More than once is what must never be.
    pub authorizations: u32,
    pub captures: Vec<i64>,
    pub refunds: Vec<TrueRefund>,
    /// The gateway has said something about it that was not so.
    pub lied: bool,
    /// Requests to authorize that have left, and those of which the caller knows that they did
    /// nothing.
    pub asked_to_authorize: u32,
    pub known_undone: u32,
    /// Requests and copies of them that are still in the network.
    pub travelling: u32,
    /// Keys of requests that are being worked on.
    pub working: Vec<String>,
    /// Where its customer pays, if on a page.
    pub page: Option<Page>,
    keys: BTreeMap<String, (Timestamp, Said)>,
}

impl Account {
    /// Nothing more can happen to it unless somebody asks again.
    pub fn is_quiet(&self) -> bool {
        self.travelling == 0 && self.working.is_empty()
    }

    pub fn captured(&self) -> i64 {
        self.captures.iter().sum()
    }

    /// Given back and not returned.
    pub fn refunded(&self, at: Timestamp) -> i64 {
        self.refunds.iter().filter(|refund| !refund.has_failed(at)).map(|r| r.amount).sum()
    }

    /// The customer's money that is reserved or taken, and not given back.
    pub fn held(&self, at: Timestamp) -> i64 {
        match self.state {
            State::Authorized => self.amount,
            State::Captured => self.captured() - self.refunded(at),
            _ => 0,
        }
    }

    /// What a truthful gateway says.
    pub fn remote(&self, at: Timestamp) -> Remote {
        let state = match self.state {
            State::Unseen | State::Prepared if self.working.iter().any(|key| key == CONFIRM) => {
                RemoteState::Pending
            }
            State::Unseen | State::Prepared => RemoteState::NotFound,
            State::Authorized => RemoteState::Authorized,
            State::Captured => RemoteState::Captured,
            State::Voided => RemoteState::Voided,
            State::Declined => RemoteState::Declined,
        };
        let refunds = self.refunds.iter().map(|refund| refund.told(at)).collect();
        Remote {
            state,
            gateway_id: self.gateway_id.clone(),
            captured: self.captured(),
            refunds: (self.state == State::Captured).then_some(refunds),
            reason: (self.state == State::Declined).then(declined),
        }
    }

    /// What the gateway has answered under a key that it still knows.
    pub fn recognise(&self, key: &str, at: Timestamp) -> Option<Said> {
        let (since, said) = self.keys.get(key)?;
        (at.since(*since) < KEYS_KEPT).then(|| said.clone())
    }

    /// A request that the gateway believes to be new. `refuse`: it looks at it and says no.
    pub fn apply(
        &mut self,
        id: Uuid,
        act: Act,
        refuse: bool,
        at: Timestamp,
        nature: Nature,
    ) -> Said {
        // A page is no payment until its customer has gone through it.
        if !matches!(act, Act::Open { .. } | Act::Close) {
            self.created_at.get_or_insert(at);
        }
        let before = self.state;
        let said = match act {
            Act::Prepare => self.prepare(),
            Act::Authorize => self.authorize(refuse, at, nature),
            Act::Capture { .. } | Act::Void { .. } | Act::Refund { .. } | Act::Open { .. }
                if refuse =>
            {
                refused("against the rules")
            }
            Act::Capture { amount, .. } => self.capture(amount, at),
            Act::Void { .. } => self.void(at),
            Act::Refund { id, number, amount } => self.refund(id, number, amount, at, nature),
            Act::Open { reservation, expires_at } => self.open(id, reservation, expires_at, at),
            // Whoever asks again is told where the page stands then.
            Act::Close => return self.close(id, at),
            Act::Fence => self.fence(at, nature),
        };
        // A request that found the payment in another state is answered with the state, and whoever
        // asks again gets the state of then.
        let acted = !matches!(said, Said::Payment(_)) || self.state != before;
        if acted {
            self.keys.insert(act.key(), (at, said.clone()));
        }
        said
    }

    fn prepare(&mut self) -> Said {
        if self.state == State::Unseen {
            self.state = State::Prepared;
        }
        Said::Opened(self.gateway_id.clone().unwrap_or_default())
    }

    fn authorize(&mut self, refuse: bool, at: Timestamp, nature: Nature) -> Said {
        match self.state {
            State::Unseen if nature.two_step => refused("no such payment"),
            State::Unseen | State::Prepared if refuse => {
                self.state = State::Declined;
                Said::Refused(declined())
            }
            State::Unseen | State::Prepared => {
                self.state = State::Authorized;
                self.authorizations += 1;
                Said::Payment(self.remote(at))
            }
            State::Declined => Said::Refused(declined()),
            State::Authorized | State::Captured if !nature.two_step => {
                // The key is forgotten or another: a gateway that goes by keys charges again.
                self.authorizations += 1;
                Said::Payment(self.remote(at))
            }
            State::Authorized | State::Captured | State::Voided => Said::Payment(self.remote(at)),
        }
    }

    fn capture(&mut self, amount: i64, at: Timestamp) -> Said {
        if self.state == State::Authorized {
            self.state = State::Captured;
            self.captures.push(amount);
        }
        Said::Payment(self.remote(at))
    }

    fn void(&mut self, at: Timestamp) -> Said {
        if matches!(self.state, State::Unseen | State::Prepared | State::Authorized) {
            self.state = State::Voided;
        }
        Said::Payment(self.remote(at))
    }

    fn refund(
        &mut self,
        id: Uuid,
        number: u32,
        amount: i64,
        at: Timestamp,
        nature: Nature,
    ) -> Said {
        let left = self.captured() - self.refunded(at);
        if self.state != State::Captured {
            return refused("nothing was captured");
        }
        if nature.caps_refunds && amount > left {
            return refused("more than is left");
        }
        let count = self.refunds.len();
        let gateway_id = format!("re_{number}_{count}");
        let refund = TrueRefund { id, amount, fails_at: None, gateway_id };
        let told = refund.told(at);
        self.refunds.push(refund);
        Said::Refund(told)
    }

    /// The refund made last will be sent back by the customer's bank.
    pub fn bounce(&mut self, at: Timestamp) {
        if let Some(refund) = self.refunds.last_mut() {
            refund.fails_at = Some(at);
        }
    }

    fn fence(&mut self, at: Timestamp, nature: Nature) -> Said {
        let pending = self.working.iter().any(|key| key == CONFIRM);
        match self.state {
            State::Unseen | State::Prepared if pending => {}
            State::Unseen | State::Prepared if nature.liar => {
                self.lied = true;
                let voided = Remote { state: RemoteState::Voided, ..self.remote(at) };
                return Said::Payment(voided);
            }
            State::Unseen | State::Prepared => self.state = State::Voided,
            State::Authorized if nature.fence_cancels => self.state = State::Voided,
            _ => {}
        }
        Said::Payment(self.remote(at))
    }
}

fn declined() -> Reason {
    Reason::new(code::CARD_DECLINED, "the card was declined")
}

pub(super) fn refused(text: &str) -> Said {
    Said::Refused(Reason::new(code::INVALID_REQUEST, text))
}
