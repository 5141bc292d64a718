//! `tashika payments`: payments looked at, asked about, captured, voided, refunded.

use std::io::Write;
use std::sync::Arc;

use serde_json::{Value, json};
use tashika_domain::payment::ask::Wish;
use tashika_domain::payment::request;
use tashika_engine::Engine;
use tashika_engine::commands::payment::{Answer, Caller, PaymentError, Payments};
use tashika_store::PaymentFilter;
use uuid::Uuid;

use super::output::{away, fields, page, refused, text, timeline};
use super::table;
use super::{ask, attended};
use crate::app::App;
use crate::cli::payments::{OnceArgs, PaymentsArgs, PaymentsCommand};
use crate::config::Config;
use crate::http::payment_json;
use crate::http::payments::refusal;
use crate::http::problem::Problem;

/// Returns whether what was asked for was done, or may still be.
pub async fn payments(
    config: &Config,
    args: PaymentsArgs,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let app = App::open_existing(config).await?;
    let json = args.json;
    match args.command {
        PaymentsCommand::List {
            status,
            pending_verification,
            booking_id,
            user_id,
            page: asked,
        } => {
            let asked = asked.page();
            let filter = PaymentFilter {
                status,
                pending_verification,
                booking_id,
                user_id,
                before: asked.before,
                since: None,
                created: None,
            };
            let found = app.store.payments(&filter, asked.fetch()).await?;
            let items = found.iter().map(|found| (found.id, payment_json::payment(found)));
            list(&asked.document(items.collect(), None), json, out)?;
            Ok(true)
        }
        PaymentsCommand::Show { id } => {
            let engine = Arc::new(app.engine(config, false));
            show(&app.payments(config, &engine), id, json, out).await?;
            Ok(true)
        }
        PaymentsCommand::Verify { id } => {
            attended(&app, config, async |engine| {
                let asked = app.payments(config, engine).verify(id, None).await;
                let payment = asked.map_err(|error| told(id, error))?;
                let http_status = if payment.is_at_rest() { 200 } else { 202 };
                answer(&Answer { payment, http_status, replayed: false }, json, out)
            })
            .await
        }
        PaymentsCommand::Capture { id, amount, once } => {
            let body = body(amount, None);
            let amount = request::parse_amount(&body).map_err(invalid)?;
            let what = Order { id, once, wish: Wish::Capture { amount }, body };
            attended(&app, config, async |engine| {
                order(&app, config, engine, what, json, out).await
            })
            .await
        }
        PaymentsCommand::Void { id, once } => {
            let what = Order { id, once, wish: Wish::Void, body: body(None, None) };
            attended(&app, config, async |engine| {
                order(&app, config, engine, what, json, out).await
            })
            .await
        }
        PaymentsCommand::Refund { id, amount, reason, once } => {
            let body = body(amount, reason);
            let (amount, reason) = request::parse_refund(&body).map_err(invalid)?;
            let what = Order { id, once, wish: Wish::Refund { amount, reason }, body };
            attended(&app, config, async |engine| {
                order(&app, config, engine, what, json, out).await
            })
            .await
        }
    }
}

fn invalid(violations: Vec<tashika_domain::check::Violation>) -> anyhow::Error {
    refused(&Problem::violations(violations))
}

/// An error about a payment, in one line that names it.
fn told(id: Uuid, error: PaymentError) -> anyhow::Error {
    match error {
        PaymentError::Store(error) => away(error),
        other => refused(&refusal(other)).context(format!("payment {id}")),
    }
}

fn list(document: &Value, json: bool, out: &mut impl Write) -> anyhow::Result<()> {
    let headings = ["ID", "STATUS", "AMOUNT", "BOOKING", "USER", "IN DOUBT", "CREATED"];
    page(out, json, document, &headings, "there are no such payments", |payment| {
        let cell = |name: &str| text(&payment[name]);
        let doubt = match (&payment["verificationFailed"], &payment["pendingVerification"]) {
            (Value::Bool(true), _) => "a case",
            (_, Value::Bool(true)) => "being asked",
            _ => "",
        };
        vec![
            cell("id"),
            cell("status"),
            format!("{} {}", cell("amount"), cell("currency")),
            cell("bookingId"),
            cell("userId"),
            doubt.to_owned(),
            cell("createdAt"),
        ]
    })
}

async fn show(
    payments: &Payments,
    id: Uuid,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<()> {
    let view = payments.find(id, None).await.map_err(|error| told(id, error))?;
    let lines = payments.timeline(id, None).await.map_err(|error| told(id, error))?;
    let mut document = payment_json::view(&view);
    document["timeline"] = lines.iter().map(payment_json::line).collect();
    if json {
        return Ok(writeln!(out, "{document}")?);
    }
    fields(out, &payment_json::payment(&view.payment))?;
    refunds(out, &document["refunds"])?;
    if let Some(case) = &view.case {
        writeln!(out, "\nA person has to decide: {}", table::plain(&case.summary))?;
        writeln!(out, "    → tashika cases show {}", case.id)?;
    }
    writeln!(out, "\nWhat happened\n")?;
    timeline(out, &document["timeline"])
}

fn refunds(out: &mut impl Write, refunds: &Value) -> anyhow::Result<()> {
    let row = |refund: &Value| {
        ["id", "amount", "status", "reason", "createdAt"].map(|name| text(&refund[name])).to_vec()
    };
    let rows: Vec<Vec<String>> = refunds.as_array().into_iter().flatten().map(row).collect();
    if !rows.is_empty() {
        writeln!(out)?;
        table::print(out, &["REFUND", "AMOUNT", "STATUS", "REASON", "CREATED"], &rows)?;
    }
    Ok(())
}

/// What is to be done with a payment: as the API is asked for it.
struct Order {
    id: Uuid,
    once: OnceArgs,
    wish: Wish,
    body: Value,
}

/// The body that a caller of the API would send; the key belongs to it.
fn body(amount: Option<i64>, reason: Option<String>) -> Value {
    let mut body = json!({});
    if let Some(amount) = amount {
        body["amount"] = json!(amount);
    }
    if let Some(reason) = reason {
        body["reason"] = json!(reason);
    }
    body
}

async fn order(
    app: &App,
    config: &Config,
    engine: &Arc<Engine>,
    order: Order,
    json: bool,
    out: &mut impl Write,
) -> anyhow::Result<bool> {
    let Order { id, once, wish, body } = order;
    let payments = app.payments(config, engine);
    let found = payments.find(id, None).await.map_err(|error| told(id, error))?.payment;
    let currency = &found.request.currency;
    let question = match &wish {
        Wish::Capture { amount: Some(amount) } => {
            format!("Take {amount} {currency} (minor units) of payment {id}?")
        }
        Wish::Capture { amount: None } => format!("Take the whole amount of payment {id}?"),
        Wish::Void => format!("Release the authorization of payment {id}?"),
        Wish::Refund { amount: Some(amount), .. } => {
            format!("Give back {amount} {currency} (minor units) of payment {id}?")
        }
        Wish::Refund { amount: None, .. } => format!("Give back all that is left of payment {id}?"),
    };
    ask::confirm(&question, once.yes)?;
    let caller = Caller { key: Some(&once.key), user: None, traceparent: None };
    let asked = payments.ask(caller, id, wish, &body).await;
    answer(&asked.map_err(|error| told(id, error))?, json, out)
}

/// The payment as it is now. False if the gateway refused.
fn answer(answer: &Answer, json: bool, out: &mut impl Write) -> anyhow::Result<bool> {
    let document = payment_json::payment(&answer.payment);
    let done = answer.http_status < 400;
    if json {
        writeln!(out, "{document}")?;
        return Ok(done);
    }
    fields(out, &document)?;
    refunds(out, &document["refunds"])?;
    let sentence = match answer.http_status {
        _ if answer.replayed => "asked for before under this key: nothing was done again",
        202 => "not known yet: the gateway is asked until it is",
        400.. => "the gateway refused",
        _ => "done: nothing about this payment is in doubt",
    };
    writeln!(out, "\n{sentence}")?;
    Ok(done)
}
