//! What must be true of a run, and the check of it.
//!
//! Reading is done in one place ([`Process::check`]), judging in pure functions over what was read.
//!
//! # What is promised
//!
//! | Rule | Says |
//! |---|---|
//! | nothing is lost | an acknowledged order has its ledger entry and its effect, with its own digest |
//! | nothing is invented | at rest there is no row and no execution but of acknowledged orders |
//! | at most once | see below |
//! | executed as ordered | what the broker executed is the order that was accepted |
//! | ledger and outbox agree | the table below |
//! | every effect ends | at rest an effect is `succeeded` or `aborted` |
//! | success is true | a `succeeded` entry holds an execution that the broker has in its books |
//! | failure is true | of a `failed` entry without an open case the broker has executed nothing |
//! | doubt has a case | an effect given up in doubt has a case |
//! | a case waits for its decision | an open case is about an effect that is `aborted` |
//! | the same answer for ever | a final answer changes only when a person intervenes |
//! | settled stays settled | so does a settled effect |
//! | the fence rises | and attempts stay within the lane's limit |
//! | one request at a time | no request leaves while another one of the same order is waited for |
//! | asked too early | nobody asks a broker before its answer can be trusted |
//!
//! # At most once
//!
//! A broker that honours keys executes an order at most once, whatever happens. With a broker that
//! does not, software can promise less: it asks before it repeats, so what it does not learn by
//! asking it cannot prevent. Each of these may lead to a further execution, and nothing else may:
//!
//! - the network delivers a request twice: both may be executed;
//! - the broker denies an order from an old copy of its books (runs with a lagging status). In runs
//!   without lag, requests linger in the network for less than the first backoff and half a lease,
//!   so that what it says is final.
//!
//! # Ledger and outbox
//!
//! | outbox | ledger | when |
//! |---|---|---|
//! | pending, sending, failed | accepted | always |
//! | pending, sending | succeeded | a person said that it was executed, and requeued it |
//! | succeeded | succeeded | always |
//! | aborted | failed | always; in doubt (a broker with keys) with a case |
//! | aborted | accepted | in doubt (a broker without keys), with an open case |
//! | aborted | succeeded | a person said that it was executed |

use std::collections::BTreeMap;

use tashika_domain::Status;
use tashika_domain::case::{Case, CaseStatus};
use tashika_domain::ledger::{LedgerEntry, LedgerStatus};
use tashika_domain::order::ExecResult;
use tashika_store::EffectRow;

use super::book::Entry;
use super::log::Violation;
use super::swarm::Swarm;
use super::world::Truth;

/// What was seen of the orders before.
#[derive(Default)]
pub(crate) struct Memory(BTreeMap<String, Seen>);

#[derive(Clone, Default)]
struct Seen {
    fence: i64,
    /// How often a person had intervened, and what was settled then.
    settled: Option<(u32, Status)>,
    answer: Option<(u32, String)>,
}

impl Memory {
    pub fn is_settled(&self, key: &str) -> bool {
        self.0.get(key).is_some_and(|seen| seen.settled.is_some())
    }
}

/// Everything that is known about one order at one moment.
pub(crate) struct Evidence<'a> {
    pub key: &'a str,
    pub swarm: &'a Swarm,
    pub entry: &'a Entry,
    pub truth: &'a Truth,
    pub ledger: Option<&'a LedgerEntry>,
    pub effect: Option<&'a EffectRow>,
    pub cases: &'a [Case],
    /// Nothing is under way any more.
    pub at_rest: bool,
}

type Finding = Result<(), (&'static str, String)>;

fn broken(rule: &'static str, detail: impl Into<String>) -> Finding {
    Err((rule, detail.into()))
}

impl Evidence<'_> {
    pub fn judge(&self, memory: &mut Memory) -> Vec<Violation> {
        let seen = memory.0.entry(self.key.to_owned()).or_default();
        let findings = [
            self.nothing_is_lost(),
            self.nothing_is_invented(),
            self.at_most_once(),
            self.executed_as_ordered(),
            self.agreement(),
            self.every_effect_ends(),
            self.success_is_true(),
            self.failure_is_true(),
            self.doubt_has_a_case(),
            self.cases_wait(),
            self.the_same_answer(seen),
            self.settled_stays_settled(seen),
            self.the_fence_rises(seen),
        ];
        let violation = |(rule, detail)| Violation { rule, key: self.key.to_owned(), detail };
        findings.into_iter().filter_map(Result::err).map(violation).collect()
    }

    fn open_case(&self) -> bool {
        self.cases.iter().any(|case| case.status == CaseStatus::Open)
    }

    /// Executions that only the world is to blame for.
    fn excused(&self) -> usize {
        let lags = self.swarm.status_lag.is_some();
        if lags { self.truth.lies as usize } else { 0 }
    }

    fn nothing_is_lost(&self) -> Finding {
        const RULE: &str = "nothing is lost";
        let Some(promised) = self.entry.promised() else { return Ok(()) };
        match (self.ledger, self.effect) {
            (None, _) => broken(RULE, "acknowledged, but not in the ledger"),
            (_, None) => broken(RULE, "acknowledged, but not in the outbox"),
            (Some(ledger), _) if ledger.request_digest != promised => {
                broken(RULE, "the ledger has another order")
            }
            (_, Some(effect)) if effect.digest.as_deref() != Some(promised) => {
                broken(RULE, "the outbox has another order")
            }
            _ => Ok(()),
        }
    }

    fn nothing_is_invented(&self) -> Finding {
        let exists = self.ledger.is_some() || self.effect.is_some();
        if self.at_rest
            && self.entry.promised().is_none()
            && (exists || !self.truth.executions.is_empty())
        {
            return broken("nothing is invented", "nobody was told that it was taken");
        }
        Ok(())
    }

    fn at_most_once(&self) -> Finding {
        let all = self.truth.executions.len();
        let own = self.truth.executions.iter().filter(|done| !done.copy).count();
        let broken_promise =
            if self.swarm.honours_keys { all > 1 } else { own > 1 + self.excused() };
        if broken_promise {
            let kind = if self.swarm.honours_keys { "with" } else { "without" };
            return broken("at most once", format!("executed {all} times by a broker {kind} keys"));
        }
        Ok(())
    }

    fn executed_as_ordered(&self) -> Finding {
        let Some(ledger) = self.ledger else { return Ok(()) };
        match self.truth.executions.iter().find(|done| done.digest != ledger.request_digest) {
            Some(done) => broken("executed as ordered", done.execution.order_ref.clone()),
            None => Ok(()),
        }
    }

    fn agreement(&self) -> Finding {
        let (Some(ledger), Some(effect)) = (self.ledger, self.effect) else { return Ok(()) };
        let decided = self.entry.acts > 0;
        let agree = match (effect.status, ledger.status) {
            (Status::Pending | Status::Sending | Status::Failed, LedgerStatus::Accepted)
            | (Status::Succeeded, LedgerStatus::Succeeded)
            | (Status::Aborted, LedgerStatus::Failed) => true,
            (Status::Aborted, LedgerStatus::Accepted) => effect.in_doubt && self.open_case(),
            (Status::Aborted | Status::Pending | Status::Sending, LedgerStatus::Succeeded) => {
                decided
            }
            (Status::Failed, LedgerStatus::Succeeded) => decided && effect.in_doubt,
            _ => false,
        };
        if agree {
            return Ok(());
        }
        let (outbox, ledger) = (effect.status.as_str(), ledger.status.as_str());
        broken("ledger and outbox agree", format!("outbox {outbox}, ledger {ledger}"))
    }

    fn every_effect_ends(&self) -> Finding {
        match self.effect {
            Some(effect) if self.at_rest && !effect.status.is_settled() => {
                broken("every effect ends", format!("still {effect:?}"))
            }
            _ => Ok(()),
        }
    }

    fn success_is_true(&self) -> Finding {
        let Some(ledger) = self.ledger else { return Ok(()) };
        if ledger.status != LedgerStatus::Succeeded {
            return Ok(());
        }
        let Ok(answer) = serde_json::from_str::<ExecResult>(&ledger.response) else {
            return broken("success is true", format!("unreadable answer {}", ledger.response));
        };
        let matches = self.truth.executions.iter().any(|done| {
            answer.broker.order_ref.as_ref() == Some(&done.execution.order_ref)
                && answer.fills == done.execution.fills
                && answer.status == "ok"
        });
        if matches {
            return Ok(());
        }
        broken("success is true", format!("the broker knows nothing of {:?}", answer.broker))
    }

    fn failure_is_true(&self) -> Finding {
        let failed = self.ledger.is_some_and(|entry| entry.status == LedgerStatus::Failed);
        let own = self.truth.executions.iter().filter(|done| !done.copy).count();
        if failed && !self.open_case() && own > self.excused() {
            return broken("failure is true", "the broker has executed it");
        }
        Ok(())
    }

    fn doubt_has_a_case(&self) -> Finding {
        match self.effect {
            Some(effect)
                if effect.status == Status::Aborted && effect.in_doubt && self.cases.is_empty() =>
            {
                broken("doubt has a case", "given up in doubt, and nobody was asked")
            }
            _ => Ok(()),
        }
    }

    fn cases_wait(&self) -> Finding {
        match self.effect {
            Some(effect) if effect.status != Status::Aborted && self.open_case() => broken(
                "a case waits for its decision",
                format!("its effect is {}", effect.status.as_str()),
            ),
            _ => Ok(()),
        }
    }

    fn the_same_answer(&self, seen: &mut Seen) -> Finding {
        const RULE: &str = "the same answer for ever";
        let Some(ledger) = self.ledger else { return Ok(()) };
        if self.entry.acting {
            return Ok(());
        }
        let acts = self.entry.acts;
        if let Some((then, answer)) = &seen.answer
            && *then == acts
            && *answer != ledger.response
        {
            return broken(RULE, format!("was {answer}, is {}", ledger.response));
        }
        if let Some(told) = self.entry.told()
            && told != ledger.response
        {
            return broken(RULE, format!("told {told}, is {}", ledger.response));
        }
        if ledger.status != LedgerStatus::Accepted {
            seen.answer = Some((acts, ledger.response.clone()));
        }
        Ok(())
    }

    fn settled_stays_settled(&self, seen: &mut Seen) -> Finding {
        let Some(effect) = self.effect.filter(|_| !self.entry.acting) else { return Ok(()) };
        let acts = self.entry.acts;
        if let Some((then, status)) = seen.settled
            && then == acts
            && status != effect.status
        {
            let (was, is) = (status.as_str(), effect.status.as_str());
            return broken("settled stays settled", format!("was {was}, is {is}"));
        }
        seen.settled = effect.status.is_settled().then_some((acts, effect.status));
        Ok(())
    }

    fn the_fence_rises(&self, seen: &mut Seen) -> Finding {
        let Some(effect) = self.effect else { return Ok(()) };
        let before = std::mem::replace(&mut seen.fence, effect.fence);
        if effect.fence < before {
            return broken("the fence rises", format!("from {before} to {}", effect.fence));
        }
        // Where a person has settled the ledger, lapses are counted on until the row follows it.
        let decided = self.ledger.is_some_and(|entry| entry.status == LedgerStatus::Succeeded);
        if effect.attempts > self.swarm.policy.max_attempts && !decided {
            return broken("the fence rises", format!("{} attempts", effect.attempts));
        }
        Ok(())
    }
}
