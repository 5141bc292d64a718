//! Everybody we speak to: asked something harmless, within a limit of time.

use std::time::Duration;

use tashika_domain::payment::remote::code;
use tashika_domain::{Outcome, Timestamp};
use tashika_providers::render::Submitted;
use tashika_providers::reply::Reply;
use uuid::Uuid;

use super::{Finding, LIMIT};
use crate::app::App;

/// How far back the gateway's list is asked for: far enough for the question to be one.
const LATELY: Duration = Duration::from_secs(60);

pub(super) async fn check(app: &App) -> Vec<Finding> {
    let now = app.clock.now();
    // They do not know of each other: nobody has to wait for the slowest.
    let (broker, gateway, renders, mail) =
        tokio::join!(broker(app, now), gateway(app, now), renders(app, now), mail(app));
    vec![broker, gateway, renders, mail]
}

/// What came of a question, or that nothing did.
async fn asked<T>(question: impl Future<Output = Reply<T>>) -> Result<(), (String, String)> {
    let Ok(reply) = tokio::time::timeout(LIMIT, question).await else {
        return Err((String::new(), format!("no answer within {} s", LIMIT.as_secs())));
    };
    match reply.outcome {
        Outcome::Done(_) => Ok(()),
        Outcome::Refused(reason) | Outcome::Lost(reason) | Outcome::Busy { reason, .. } => {
            let said = format!("{} ({})", reason.code, reply.exchange.reply);
            Err((reason.code, said))
        }
    }
}

async fn broker(app: &App, now: Timestamp) -> Finding {
    let name = app.broker.name();
    match asked(app.broker.heartbeat(now)).await {
        Ok(()) => Finding::good("broker", format!("{name} answers")),
        Err((_, why)) => Finding::bad(
            "broker",
            format!("{name}: {why}"),
            "check BROKER_URL, BROKER_KEY_ID and BROKER_SECRET; orders wait until it answers",
        ),
    }
}

/// The gateway's own list of the last minute: a read, with our key.
async fn gateway(app: &App, now: Timestamp) -> Finding {
    let gateway = &app.till.gateway;
    let name = gateway.name();
    match asked(gateway.list(now.minus(LATELY), now, None)).await {
        Ok(()) => Finding::good("gateway", format!("{name} answers and knows us")),
        Err((what, why)) => {
            let advice = if what == code::UNAUTHORIZED {
                "set the right STRIPE_API_KEY or PAYMENT_HTTP_TOKEN: payments fail until then"
            } else {
                "check PAYMENT_GATEWAY, STRIPE_API_BASE or PAYMENT_HTTP_URL, and the way there; \
                 payments in doubt are asked about until it answers"
            };
            Finding::bad("gateway", format!("{name}: {why}"), advice)
        }
    }
}

/// About a render that does not exist: whoever says so is there.
async fn renders(app: &App, now: Timestamp) -> Finding {
    let renderer = &app.studio.renderer;
    let name = renderer.name();
    let nothing = Uuid::nil();
    let provider_id = nothing.to_string();
    let question = Submitted { render_id: nothing, attempt: 1, provider_id: &provider_id, now };
    match asked(renderer.look(question)).await {
        Ok(()) => Finding::good("renders", format!("{name} answers")),
        Err((_, why)) => Finding::bad(
            "renders",
            format!("{name}: {why}"),
            "check RENDER_URL and RENDER_TOKEN, or SHOTSTACK_API_KEY; renders wait until it answers",
        ),
    }
}

/// Connection, greeting, TLS and login; nothing is sent.
async fn mail(app: &App) -> Finding {
    let postman = &app.office.postman;
    let name = postman.name();
    let tried = tokio::time::timeout(LIMIT, postman.probe()).await;
    let tried = tried.unwrap_or_else(|_| Err(format!("no answer within {} s", LIMIT.as_secs())));
    match tried {
        Ok(()) => Finding::good("mail", format!("{name} would take mail")),
        Err(why) => Finding::bad(
            "mail",
            format!("{name} refuses us: {why}"),
            "check SMTP_URL, SMTP_CA_FILE and MAIL_FROM",
        ),
    }
}
