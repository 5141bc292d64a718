//! The person: decides cases with the gateway's own records, and has dead letters processed again.
//!
//! Truthful and patient: acts only when nothing is under way at the gateway any more, which a person
//! learns by telephone and software cannot.

use std::sync::Arc;

use tashika_domain::case::CaseStatus;
use tashika_domain::payment::resolve::Resolution;
use tashika_domain::payment::{CASE_UNKNOWN, OperationKind, Payment, Subject};
use tashika_engine::commands::payment::PaymentError;
use tashika_store::CaseFilter;

use super::account::{Account, State};
use super::dice::{Odds, Stream};
use super::postman;
use super::process::Process;
use super::tally::Tally;

/// Cases that a person looks at in one go.
const PAGE: i64 = 20;

pub(crate) fn look(process: &Arc<Process>, dice: &mut Stream) {
    let (process, mut dice) = (Arc::clone(process), dice.clone());
    process.scene.book().act(true);
    tokio::spawn(async move {
        let decided = decide(&process, &mut dice).await;
        process.fate.alive().await;
        process.scene.book().act(false);
        if let Err(error) = decided {
            process.broken("answers as agreed", "", &format!("a person was told: {error:#}"));
        }
    });
}

async fn decide(process: &Process, dice: &mut Stream) -> anyhow::Result<()> {
    process.fate.alive().await;
    if dice.hit(Odds::percent(30)) {
        postman::replay(process).await?;
        return Ok(());
    }
    let filter = CaseFilter { status: Some(CaseStatus::Open), ..CaseFilter::default() };
    let cases = process.store.cases(&filter, PAGE).await?;
    let cases: Vec<_> = cases.into_iter().filter(|case| case.kind == CASE_UNKNOWN).collect();
    if cases.is_empty() {
        return Ok(());
    }
    let id = dice.pick(&cases).subject_id.parse()?;
    let Some(payment) = process.store.payment(id).await? else { return Ok(()) };
    let (scene, now) = (&process.scene, process.clock.now());
    let account = {
        let mut world = scene.world();
        world.flush(now, &scene.log);
        world.account(id)
    };
    let Some(resolution) = account.is_quiet().then(|| truth(&payment, &account)).flatten() else {
        return Ok(());
    };
    if undoes(&payment) {
        scene.world().give_back(id, now, &scene.log);
    }
    scene.log.note(now, &format!("person decides on {id}: {}", resolution.as_str()));
    scene.memory().touch(id);
    let resolved = process.payments.resolve(id, resolution, "by its records", "sim").await;
    process.fate.alive().await;
    match resolved {
        // An answer came while the person was looking.
        Err(PaymentError::Unresolvable(_)) => {}
        Err(error) => return Err(error.into()),
        Ok(_) => scene.log.count(Tally::CaseResolved),
    }
    scene.memory().touch(id);
    Ok(())
}

fn undoes(payment: &Payment) -> bool {
    payment.operation.as_ref().is_some_and(|o| o.kind == OperationKind::Undo)
}

/// What a truthful person says; `None` if one answer does not fit everything that is in doubt.
fn truth(payment: &Payment, account: &Account) -> Option<Resolution> {
    let mut answers = payment
        .doubts()
        .filter(|(_, doubt)| doubt.given_up)
        .map(|(subject, _)| answer(payment, account, subject));
    let first = answers.next()?;
    answers.all(|answer| answer == first).then_some(first)
}

fn answer(payment: &Payment, account: &Account, subject: Subject) -> Resolution {
    use OperationKind::{Authorize, Capture, Checkout, Undo, Void};
    match (subject, account.state) {
        (Subject::Operation(Authorize | Capture | Checkout), State::Captured)
        | (Subject::Operation(Authorize), State::Authorized)
        | (Subject::Operation(Void), State::Authorized | State::Captured) => Resolution::Charged,
        (Subject::Operation(Undo), _) | (Subject::Operation(Capture), State::Voided) => {
            Resolution::Refunded
        }
        (Subject::Operation(_), _) => Resolution::NotCharged,
        (Subject::Refund(index), _) => {
            let id = payment.refunds[index].id;
            let made = account.refunds.iter().any(|refund| refund.id == id);
            if made { Resolution::Refunded } else { Resolution::Charged }
        }
    }
}
