//! The payment methods of the sandbox: each names the way that a payment will go.

use tashika_domain::payment::remote::code;

/// What a fault happens to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Authorize,
    Capture,
    Void,
    Refund,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    None,
    /// Refused, with this reason code.
    Declined(&'static str),
    /// It happens; nobody answers.
    ChargedButSilent,
    /// It does not happen; nobody answers.
    LostBeforeCharge,
    /// Nobody answers, and it happens later.
    LateExecution,
    /// It happens; the answer is a 500.
    FailureAfterEffect,
    /// It does not happen: no connection.
    Unreachable,
    /// The customer has to do something first.
    RequiresAction,
}

/// The way that a payment will go: one thing goes wrong at one step, the rest goes well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Way {
    step: Step,
    fault: Fault,
}

impl Way {
    pub(super) fn fault_at(self, step: Step) -> Fault {
        if step == self.step { self.fault } else { Fault::None }
    }
}

/// Methods that say how the authorization goes.
const METHODS: [(&str, Fault); 13] = [
    ("ok", Fault::None),
    ("card_visa", Fault::None),
    ("visa", Fault::None),
    ("declined", Fault::Declined(code::CARD_DECLINED)),
    ("insufficient_funds", Fault::Declined(code::INSUFFICIENT_FUNDS)),
    ("expired", Fault::Declined(code::EXPIRED_CARD)),
    ("expired_card", Fault::Declined(code::EXPIRED_CARD)),
    ("charged_but_silent", Fault::ChargedButSilent),
    ("lost_before_charge", Fault::LostBeforeCharge),
    ("late_execution", Fault::LateExecution),
    ("500_after_effect", Fault::FailureAfterEffect),
    ("unreachable", Fault::Unreachable),
    ("requires_action", Fault::RequiresAction),
];

/// Before a fault: the authorization goes well, and the fault is at this step.
const PREFIXES: [(&str, Step); 3] =
    [("capture_", Step::Capture), ("void_", Step::Void), ("refund_", Step::Refund)];

/// What is written in front of a token by habit, and means nothing here.
const HABITS: [&str; 3] = ["sandbox_", "pm_", "tok_"];

/// What goes wrong under this name.
pub(super) fn fault(name: &str) -> Option<Fault> {
    METHODS.iter().find(|(method, _)| *method == name).map(|found| found.1)
}

/// The way that a payment method names; `None` if it names none.
pub(super) fn way(method: &str) -> Option<Way> {
    let method = method.trim().to_ascii_lowercase().replace('-', "_");
    let mut name = method.as_str();
    while let Some(rest) = HABITS.iter().find_map(|habit| name.strip_prefix(habit)) {
        name = rest;
    }
    if let Some(fault) = fault(name) {
        return Some(Way { step: Step::Authorize, fault });
    }
    PREFIXES.iter().find_map(|(prefix, step)| {
        let fault = fault(name.strip_prefix(prefix)?)?;
        // A fault that is none needs no prefix, and only an authorization waits for a customer.
        let fits = !matches!(fault, Fault::None | Fault::RequiresAction);
        fits.then_some(Way { step: *step, fault })
    })
}

/// For whoever has used another one.
pub(super) fn known() -> String {
    let names: Vec<&str> = METHODS.iter().map(|(name, _)| *name).collect();
    format!(
        "the sandbox knows the payment methods {}; and the faults among them with capture_, void_ \
         or refund_ in front",
        names.join(", ")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_generously_and_not_guessed() {
        for (name, expected) in [
            ("ok", Some((Step::Authorize, Fault::None))),
            ("pm_card_visa", Some((Step::Authorize, Fault::None))),
            (" PM-SANDBOX-Declined ", Some((Step::Authorize, Fault::Declined("CARD_DECLINED")))),
            ("tok_500-after-effect", Some((Step::Authorize, Fault::FailureAfterEffect))),
            ("sandbox_expired", Some((Step::Authorize, Fault::Declined("EXPIRED_CARD")))),
            ("pm_refund_lost_before_charge", Some((Step::Refund, Fault::LostBeforeCharge))),
            ("void_late_execution", Some((Step::Void, Fault::LateExecution))),
            ("capture_unreachable", Some((Step::Capture, Fault::Unreachable))),
            ("refund_declined", Some((Step::Refund, Fault::Declined("CARD_DECLINED")))),
            ("capture_ok", None),
            ("capture_requires_action", None),
            ("capture_void_declined", None),
            ("pm_", None),
            ("", None),
            ("okay", None),
        ] {
            let way = way(name).map(|way| (way.step, way.fault));
            assert_eq!(way, expected, "{name:?}");
        }
        assert!(METHODS.iter().all(|(name, _)| known().contains(name)));
    }
}
