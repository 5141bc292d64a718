//! Refunds: giving money back, never more than was taken.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tashika_domain::Timestamp;

use super::books::{Books, Moment};
use super::form::Form;
use super::intent::seconds;
use super::ledger::MovementKind;
use super::lists::{self, Item};
use super::refusal::Refusal;

const REASONS: &[&str] = &["duplicate", "fraudulent", "requested_by_customer"];
/// Stripe's token for a card whose refunds take a while.
const PENDING_CARD: &str = "pm_card_pendingRefund";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum RefundStatus {
    Pending,
    Succeeded,
    Failed,
}

#[derive(Clone, Debug)]
pub(crate) struct Refund {
    pub id: String,
    pub created: Timestamp,
    pub intent: String,
    pub charge: Option<String>,
    pub amount: i64,
    pub currency: String,
    pub reason: Option<String>,
    pub metadata: BTreeMap<String, String>,
    pub status: RefundStatus,
}

impl Refund {
    pub fn view(&self) -> Value {
        let failed = self.status == RefundStatus::Failed;
        let status = match self.status {
            RefundStatus::Pending => "pending",
            RefundStatus::Succeeded => "succeeded",
            RefundStatus::Failed => "failed",
        };
        let mut view = json!({
            "id": self.id,
            "object": "refund",
            "amount": self.amount,
            "charge": self.charge,
            "created": seconds(self.created),
            "currency": self.currency,
            "metadata": self.metadata,
            "payment_intent": self.intent,
            "reason": self.reason,
            "status": status,
        });
        if failed {
            view["failure_reason"] = json!("lost_or_stolen_card");
        }
        view
    }

    fn item(&self) -> Item<'_> {
        Item { id: &self.id, created: self.created, view: Box::new(|| self.view()) }
    }
}

impl Books {
    pub fn refund(&mut self, form: &Form, moment: &Moment) -> Result<Value, Refusal> {
        form.only(&["amount", "instructions_email", "metadata", "payment_intent", "reason"])?;
        let intent_id = form.required("payment_intent")?.to_owned();
        let asked = form.amount("amount")?;
        let reason = form.word("reason", REASONS)?;
        let unknown = || Refusal::missing_param("payment_intent", &intent_id, "payment_intent");
        let intent = self.intents.get(&intent_id).ok_or_else(unknown)?;
        if intent.received == 0 {
            let message = format!(
                "This PaymentIntent ({intent_id}) does not have a successful charge to refund."
            );
            return Err(Refusal::state(message));
        }
        let left = intent.refundable();
        if left == 0 {
            let charge = intent.charge.as_deref().unwrap_or_default();
            let message = format!("Charge {charge} has already been refunded.");
            return Err(Refusal::state(message).code("charge_already_refunded"));
        }
        let amount = asked.unwrap_or(left);
        if amount > left {
            let message = format!(
                "Refund amount ({amount}) is greater than unrefunded amount on charge ({left})"
            );
            return Err(Refusal::state(message).param("amount"));
        }
        let method = intent.method.as_deref().unwrap_or_default();
        let card = self.methods.get(method).map_or(method, |made| &made.number);
        let pending = card == PENDING_CARD;
        let (charge, currency) = (intent.charge.clone(), intent.currency.clone());
        let id = self.next_id("re");
        let refund = Refund {
            id: id.clone(),
            created: moment.now,
            intent: intent_id.clone(),
            charge,
            amount,
            currency,
            reason,
            metadata: form.map("metadata"),
            status: if pending { RefundStatus::Pending } else { RefundStatus::Succeeded },
        };
        let view = refund.view();
        self.refunds.insert(id, refund);
        self.intent_mut(&intent_id)?.refunded += amount;
        self.record(MovementKind::Refunded, &intent_id, amount, moment);
        self.tell("refund.created", view.clone(), moment);
        self.tell_charge("charge.refunded", &intent_id, moment);
        Ok(view)
    }

    /// The customer's bank takes the refund, or sends it back; the latter also happens days after it has succeeded.
    pub fn settle_refund(&mut self, id: &str, taken: bool, moment: &Moment) -> Result<(), Refusal> {
        let refund = self.refunds.get_mut(id).ok_or_else(|| Refusal::missing("refund", id))?;
        if refund.status == RefundStatus::Failed {
            return Err(Refusal::state("This refund has failed already."));
        }
        let (intent, amount) = (refund.intent.clone(), refund.amount);
        refund.status = if taken { RefundStatus::Succeeded } else { RefundStatus::Failed };
        let view = refund.view();
        if !taken {
            self.intent_mut(&intent)?.refunded -= amount;
            self.record(MovementKind::RefundFailed, &intent, amount, moment);
            self.tell("refund.failed", view.clone(), moment);
        }
        self.tell("refund.updated", view, moment);
        Ok(())
    }

    pub fn refund_by_id(&self, id: &str) -> Result<&Refund, Refusal> {
        self.refunds.get(id).ok_or_else(|| Refusal::missing("refund", id))
    }

    pub fn list_refunds(&self, form: &Form) -> Result<Value, Refusal> {
        form.only(&["charge", "created", "limit", "payment_intent", "starting_after"])?;
        let wanted = |refund: &&Refund| {
            form.get("payment_intent").is_none_or(|id| id == refund.intent)
                && form.get("charge").is_none_or(|id| Some(id) == refund.charge.as_deref())
        };
        let refunds = self.refunds.values().rev().filter(wanted);
        lists::page("/v1/refunds", form, refunds.map(Refund::item))
    }
}
