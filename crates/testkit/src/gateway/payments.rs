//! What can be done to a payment intent: the state machine, and the money that moves with it.

use serde_json::Value;
use tashika_domain::Timestamp;

use super::books::{Books, Moment, shown};
use super::form::Form;
use super::intent::{Cancellation, EXPIRED, Intent, Status};
use super::ledger::MovementKind;
use super::methods::{self, Bank};
use super::refusal::Refusal;

const CREATE: &[&str] = &[
    "amount",
    "automatic_payment_methods",
    "capture_method",
    "confirm",
    "currency",
    "customer",
    "description",
    "error_on_requires_action",
    "metadata",
    "off_session",
    "payment_method",
    "payment_method_options",
    "payment_method_types",
    "receipt_email",
    "return_url",
    "statement_descriptor",
    "statement_descriptor_suffix",
];
const CONFIRM: &[&str] = &[
    "capture_method",
    "error_on_requires_action",
    "off_session",
    "payment_method",
    "payment_method_options",
    "payment_method_types",
    "receipt_email",
    "return_url",
    "use_stripe_sdk",
];
const CAPTURE: &[&str] =
    &["amount_to_capture", "final_capture", "metadata", "statement_descriptor"];
const CAPTURE_METHODS: &[&str] = &["automatic", "automatic_async", "manual"];
const CANCEL_REASONS: &[&str] = &["abandoned", "duplicate", "fraudulent", "requested_by_customer"];

impl Books {
    pub fn create(&mut self, form: &Form, moment: &Moment) -> Result<Value, Refusal> {
        form.only(CREATE)?;
        form.required("amount")?;
        let amount = form.amount("amount")?.unwrap_or_default();
        let currency = form.required("currency")?.to_lowercase();
        if currency.len() != 3 {
            return Err(Refusal::invalid(format!("Invalid currency: {currency}")).param("currency"));
        }
        let customer = self.known_customer(form)?;
        let capture_method = form.word("capture_method", CAPTURE_METHODS)?;
        let confirms = form.flag("confirm")?;
        let method = self.known_method(form)?;
        if confirms && method.is_none() {
            return Err(Refusal::invalid("You cannot confirm without a payment method.")
                .code("parameter_missing")
                .param("payment_method"));
        }
        let status = match method {
            Some(_) => Status::RequiresConfirmation,
            None => Status::RequiresPaymentMethod,
        };
        let id = self.next_id("pi");
        let intent = Intent {
            id: id.clone(),
            created: moment.now,
            amount,
            currency,
            customer,
            description: form.text("description"),
            metadata: form.map("metadata"),
            capture_method: capture_method.unwrap_or_else(|| "automatic_async".into()),
            method,
            status,
            received: 0,
            refunded: 0,
            charge: None,
            authorized_at: None,
            last_error: None,
            cancellation: None,
        };
        self.intents.insert(id.clone(), intent);
        self.tell_intent("payment_intent.created", &id, moment);
        if confirms {
            self.attempt(&id, form, moment)?;
        }
        self.intent(&id).map(|intent| shown(intent, form))
    }

    pub fn confirm(&mut self, id: &str, form: &Form, moment: &Moment) -> Result<Value, Refusal> {
        form.only(CONFIRM)?;
        let capture_method = form.word("capture_method", CAPTURE_METHODS)?;
        let method = self.known_method(form)?;
        let intent = self.intent_mut(id)?;
        match intent.status {
            Status::RequiresPaymentMethod
            | Status::RequiresConfirmation
            | Status::RequiresAction => {}
            Status::Processing | Status::RequiresCapture | Status::Canceled | Status::Succeeded => {
                return Err(unexpected(
                    intent,
                    "confirm",
                    "requires_confirmation, requires_action",
                ));
            }
        }
        if method.is_none() && intent.method.is_none() {
            let message =
                "You cannot confirm this PaymentIntent because it's missing a payment method.";
            let refusal = Refusal::state(message).code("payment_intent_unexpected_state");
            return Err(refusal.about(intent.view()));
        }
        intent.method = method.or(intent.method.take());
        if let Some(capture_method) = capture_method {
            intent.capture_method = capture_method;
        }
        self.attempt(id, form, moment)?;
        self.intent(id).map(|intent| shown(intent, form))
    }

    /// Asks the customer's bank.
    fn attempt(&mut self, id: &str, form: &Form, moment: &Moment) -> Result<(), Refusal> {
        let method = self.intent(id)?.method.clone().unwrap_or_default();
        let bank = methods::bank_of(&method, self.methods.get(&method))?;
        let nobody_there = form.flag("off_session")? || form.flag("error_on_requires_action")?;
        match bank {
            Bank::AsksCustomer if nobody_there => self.answered(id, methods::NOBODY_TO_ASK, moment),
            bank => self.answered(id, bank, moment),
        }
    }

    /// What the bank says about the intent. The only place where an authorization comes into being.
    pub fn answered(&mut self, id: &str, bank: Bank, moment: &Moment) -> Result<(), Refusal> {
        let charge = self.next_id("ch");
        let intent = self.intent_mut(id)?;
        if let Some(refusal) = bank.refusal() {
            intent.status = Status::RequiresPaymentMethod;
            intent.method = None;
            intent.charge = Some(charge);
            intent.last_error = Some(refusal.as_last_error());
            let refusal = refusal.about(intent.view());
            self.tell_intent("payment_intent.payment_failed", id, moment);
            return Err(refusal);
        }
        let event = match bank {
            Bank::AsksCustomer => {
                intent.status = Status::RequiresAction;
                "payment_intent.requires_action"
            }
            Bank::Thinks => {
                intent.status = Status::Processing;
                "payment_intent.processing"
            }
            Bank::Approves | Bank::Declines { .. } => {
                intent.status = Status::RequiresCapture;
                intent.charge = Some(charge);
                intent.last_error = None;
                intent.authorized_at = Some(moment.now);
                let (amount, manual) = (intent.amount, intent.is_manual());
                self.record(MovementKind::Authorized, id, amount, moment);
                if !manual {
                    return self.take(id, amount, moment);
                }
                self.authorizations.push_back(id.to_owned());
                "payment_intent.amount_capturable_updated"
            }
        };
        self.tell_intent(event, id, moment);
        Ok(())
    }

    pub fn capture(&mut self, id: &str, form: &Form, moment: &Moment) -> Result<Value, Refusal> {
        form.only(CAPTURE)?;
        if form.get("final_capture") == Some("false") {
            return Err(Refusal::invalid("Multicapture is not available.").param("final_capture"));
        }
        let asked = form.amount("amount_to_capture")?;
        let intent = self.intent(id)?;
        let canceled_for = intent.cancellation.as_ref().and_then(|end| end.reason.as_deref());
        if canceled_for == Some(EXPIRED) {
            let message = "The charge cannot be captured: its authorization has expired.";
            let refusal = Refusal::state(message).code("charge_expired_for_capture");
            return Err(refusal.about(intent.view()));
        }
        if intent.status != Status::RequiresCapture {
            return Err(unexpected(intent, "capture", "requires_capture"));
        }
        let amount = asked.unwrap_or_else(|| intent.capturable());
        if amount > intent.capturable() {
            let message = "The amount to capture is greater than what can be captured.";
            let refusal = Refusal::state(message).code("amount_too_large");
            return Err(refusal.param("amount_to_capture").about(intent.view()));
        }
        self.take(id, amount, moment)?;
        self.intent(id).map(|intent| shown(intent, form))
    }

    /// Takes the money; what is left of the authorization is released.
    fn take(&mut self, id: &str, amount: i64, moment: &Moment) -> Result<(), Refusal> {
        let intent = self.intent_mut(id)?;
        let rest = intent.capturable() - amount;
        intent.status = Status::Succeeded;
        intent.received = amount;
        let manual = intent.is_manual();
        self.record(MovementKind::Captured, id, amount, moment);
        if rest > 0 {
            self.record(MovementKind::Voided, id, rest, moment);
        }
        self.tell_charge(if manual { "charge.captured" } else { "charge.succeeded" }, id, moment);
        self.tell_intent("payment_intent.succeeded", id, moment);
        Ok(())
    }

    pub fn cancel(&mut self, id: &str, form: &Form, moment: &Moment) -> Result<Value, Refusal> {
        form.only(&["cancellation_reason"])?;
        let reason = form.word("cancellation_reason", CANCEL_REASONS)?;
        let intent = self.intent(id)?;
        match intent.status {
            Status::RequiresPaymentMethod
            | Status::RequiresConfirmation
            | Status::RequiresAction
            | Status::RequiresCapture => {}
            // The real one allows it rarely while it is processing; nobody may count on that.
            Status::Processing | Status::Canceled | Status::Succeeded => {
                let allowed = "requires_payment_method, requires_capture, requires_confirmation, requires_action";
                return Err(unexpected(intent, "cancel", allowed));
            }
        }
        self.release(id, reason, moment)?;
        self.intent(id).map(|intent| shown(intent, form))
    }

    /// Ends an intent that is not paid, and frees what it holds.
    fn release(
        &mut self,
        id: &str,
        reason: Option<String>,
        moment: &Moment,
    ) -> Result<(), Refusal> {
        let intent = self.intent_mut(id)?;
        let held = intent.capturable();
        intent.status = Status::Canceled;
        intent.cancellation = Some(Cancellation { at: moment.now, reason });
        if held > 0 {
            self.record(MovementKind::Voided, id, held, moment);
        }
        self.tell_intent("payment_intent.canceled", id, moment);
        Ok(())
    }

    /// Cancels what nobody captured in time.
    pub fn expire(&mut self, now: Timestamp) {
        while let Some(id) = self.authorizations.front().cloned() {
            let intent = self.intents.get(&id);
            let held = intent.is_some_and(|intent| intent.status == Status::RequiresCapture);
            if held && !intent.is_some_and(|intent| intent.has_expired(now)) {
                return;
            }
            self.authorizations.pop_front();
            if held {
                let moment = Moment { now, key: None, request_id: "req_expiry".into() };
                let released = self.release(&id, Some(EXPIRED.into()), &moment);
                released.expect("an intent that is in the books can be released");
            }
        }
    }

    /// The payment method that the parameters name, if they name one.
    fn known_method(&self, form: &Form) -> Result<Option<String>, Refusal> {
        let Some(id) = form.get("payment_method") else { return Ok(None) };
        methods::bank_of(id, self.methods.get(id))?;
        Ok(Some(id.to_owned()))
    }
}

/// The intent is in a state that does not allow it.
fn unexpected(intent: &Intent, verb: &str, allowed: &str) -> Refusal {
    let status = intent.status.as_str();
    let message = format!(
        "You cannot {verb} this PaymentIntent because it has a status of {status}. Only a PaymentIntent with one of \
         the following statuses may be used: {allowed}."
    );
    Refusal::state(message).code("payment_intent_unexpected_state").about(intent.view())
}
