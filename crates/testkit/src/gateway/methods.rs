//! Payment methods: how the customer pays, and what the customer's bank will say to it.
//!
//! The tokens are Stripe's own for tests, and so are the card numbers; `pm_scripted_processing` is ours, for a bank that takes
//! its time.

use serde_json::{Value, json};

use super::form::Form;
use super::refusal::Refusal;

/// What the bank does when a card is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Bank {
    Approves,
    Declines {
        code: &'static str,
        decline_code: Option<&'static str>,
        message: &'static str,
    },
    /// The customer must show up first: 3-D Secure.
    AsksCustomer,
    /// Says later.
    Thinks,
}

pub(crate) const DECLINED: Bank = Bank::Declines {
    code: "card_declined",
    decline_code: Some("generic_decline"),
    message: "Your card was declined.",
};
const NO_FUNDS: Bank = Bank::Declines {
    code: "card_declined",
    decline_code: Some("insufficient_funds"),
    message: "Your card has insufficient funds.",
};
const EXPIRED: Bank =
    Bank::Declines { code: "expired_card", decline_code: None, message: "Your card has expired." };
pub(crate) const NOBODY_TO_ASK: Bank = Bank::Declines {
    code: "authentication_required",
    decline_code: Some("authentication_required"),
    message: "Your card was declined. This transaction requires authentication.",
};

/// What the bank says about a token or a card number; `None` if there is no such thing.
fn behaviour(card: &str) -> Option<Bank> {
    Some(match card {
        "pm_card_visa" | "pm_card_mastercard" | "4242424242424242" | "5555555555554444" => {
            Bank::Approves
        }
        // Their refunds are what is special about them.
        "pm_card_pendingRefund" | "pm_card_refundFail" => Bank::Approves,
        "pm_card_chargeDeclined" | "pm_card_visa_chargeDeclined" | "4000000000000002" => DECLINED,
        "pm_card_chargeDeclinedInsufficientFunds"
        | "pm_card_visa_chargeDeclinedInsufficientFunds"
        | "4000000000009995" => NO_FUNDS,
        "pm_card_chargeDeclinedExpiredCard" | "4000000000000069" => EXPIRED,
        "pm_card_authenticationRequired" | "4000002500003155" => Bank::AsksCustomer,
        "pm_scripted_processing" => Bank::Thinks,
        _ => return None,
    })
}

/// A payment method that a client has made: from a card number, or from one of Stripe's tokens.
#[derive(Clone, Debug)]
pub(crate) struct Method {
    pub id: String,
    /// The card's number, or the token.
    pub number: String,
    pub customer: Option<String>,
}

impl Method {
    pub fn made(id: String, form: &Form) -> Result<Self, Refusal> {
        form.only(&["type", "card", "billing_details", "metadata"])?;
        let number = form.required("card[number]")?.to_owned();
        if behaviour(&number).is_none() {
            let refusal = Refusal::invalid("Your card number is incorrect.");
            return Err(refusal.code("incorrect_number").param("card[number]"));
        }
        Ok(Self { id, number, customer: None })
    }

    /// One of Stripe's tokens as a method with an id.
    pub fn from_token(token: &str, id: String) -> Result<Self, Refusal> {
        match behaviour(token) {
            Some(_) if token.starts_with("pm_") => {
                Ok(Self { id, number: token.to_owned(), customer: None })
            }
            _ => Err(Refusal::missing("PaymentMethod", token)),
        }
    }

    pub fn view(&self) -> Value {
        let last4 = self.number.get(12..16).filter(|_| !self.number.starts_with("pm_"));
        json!({
            "id": self.id,
            "object": "payment_method",
            "type": "card",
            "card": {"brand": "visa", "last4": last4.unwrap_or("4242"), "exp_month": 12, "exp_year": 2099},
            "customer": self.customer,
            "livemode": false,
            "metadata": {},
        })
    }
}

/// What the bank says to the payment method with this id, one of Stripe's tokens or one that was made.
pub(crate) fn bank_of<'a>(id: &'a str, made: Option<&'a Method>) -> Result<Bank, Refusal> {
    let card = made.map_or(id, |method| &method.number);
    let known = behaviour(card).filter(|_| made.is_some() || id.starts_with("pm_"));
    known.ok_or_else(|| Refusal::missing_param("PaymentMethod", id, "payment_method"))
}

impl Bank {
    /// The decline, if it is one.
    pub fn refusal(self) -> Option<Refusal> {
        match self {
            Self::Declines { code, decline_code, message } => {
                Some(Refusal::declined(code, decline_code, message))
            }
            _ => None,
        }
    }
}
