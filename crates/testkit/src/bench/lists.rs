//! Lists with a million rows (or as many as `--backlog` says): how long the server takes for a page, whatever is asked of it.
//!
//! Over HTTP, one question after the other, as somebody who looks would ask: the first page, a page in
//! the middle, with each filter alone, with values that are frequent, that are there once, and that are
//! not there. What is shown of a list is its worst question.

use std::time::Duration;

use bytes::Bytes;
use http::{HeaderMap, Method};
use tashika_engine::Clock;
use tashika_providers::http::{Client, ClientConfig, Known, Request};
use tokio::time::Instant;

use super::lists_rows::{Since, fill};
use super::{Figure, Options, World, quantile, server};

/// A page may take so long.
const LIMIT_MS: f64 = 100.0;
/// How often each question is asked.
const TIMES: usize = 30;

/// A list, its path, and its filters. `{n}` is the number of a row in the middle, `{id}` its id,
/// `{hour}` and `{later}` two moments there, `{batch}` a batch.
type List = (&'static str, &'static str, &'static [&'static str]);

const PAGED: [List; 17] = [
    (
        "payments",
        "/payments",
        &[
            "status=CAPTURED",
            "status=PENDING",
            "status=REFUNDED",
            "pendingVerification=true",
            "pendingVerification=false",
            "bookingId=b-{n}",
            "bookingId=absent",
            "userId=u-7",
            "userId=absent",
            "status=FAILED&userId=u-7",
            "status=REFUNDED&userId=u-8",
            "status=REFUNDED&pendingVerification=false",
        ],
    ),
    (
        "cases",
        "/cases",
        &[
            "status=open",
            "status=resolved",
            "kind=payment_unknown",
            "kind=order_unanswered",
            "kind=absent",
            "status=open&kind=order_unanswered",
            "subjectType=payment",
            "subjectType=absent",
            "subjectId=s-{n}",
            "subjectId=absent",
            "status=open&subjectType=absent",
            "kind=payment_unknown&subjectType=message",
        ],
    ),
    (
        "alerts",
        "/alerts",
        &[
            "state=firing",
            "state=resolved",
            "severity=critical",
            "severity=high",
            "rule=manual_case",
            "rule=store_slow",
            "rule=absent",
            "state=firing&severity=high",
            "rule=manual_case&severity=warning",
        ],
    ),
    (
        "webhook events",
        "/webhook-events",
        &[
            "status=failed",
            "status=pending",
            "type=type.7",
            "type=absent",
            "source=stripe",
            "source=slack",
            "source=absent",
            "officeId=office-7",
            "officeId=absent",
            "from={hour}",
            "to={hour}",
            "from={hour}&to={later}",
            "status=failed&type=type.7",
            "status=pending&source=stripe",
        ],
    ),
    (
        "audit lines",
        "/audit-logs",
        &[
            "action=action.7",
            "action=rare",
            "action=absent",
            "targetType=payment",
            "targetType=rare",
            "targetType=absent",
            "targetId=t-{n}",
            "targetId=absent",
            "officeId=office-10",
            "officeId=absent",
            "from={hour}",
            "to={hour}",
            "from={hour}&to={later}",
            "action=rare&targetType=payment",
        ],
    ),
    ("billings", "/billings", &["officeId=office-{n}", "officeId=absent"]),
    (
        "races",
        "/races",
        &[
            "scenario=SLOT_CONFLICT",
            "scenario=DUPLICATE_CANCEL",
            "scenario=absent",
            "resolution=REFUNDED",
            "resolution=VOIDED",
            "resolution=MANUAL_REQUIRED",
            "subjectId=s-{n}",
            "subjectId=absent",
            "scenario=SLOT_CONFLICT&resolution=VOIDED",
        ],
    ),
    (
        "effects",
        "/outbox",
        &[
            "lane=orders",
            "lane=mail",
            "status=aborted",
            "status=pending",
            "kind=order",
            "kind=absent",
            "errorCode=BROKER_DOWN",
            "errorCode=absent",
            "key=k-{n}",
            "key=absent",
        ],
    ),
    (
        "mails",
        "/mail/deliveries",
        &[
            "to=u7@example.com",
            "to=absent@example.com",
            "batch={batch}",
            "status=sent",
            "status=failed",
            "status=possiblySent",
            "status=failed&to=u7@example.com",
        ],
    ),
    ("inbox", "/mail/inbox", &["to=u7@example.com", "to=absent@example.com"]),
    ("mail batches", "/mail/batches", &[]),
    ("failures of a batch", "/mail/batches/{batch}/failures", &["status=possiblySent"]),
    (
        "reservations",
        "/reservations",
        &[
            "date=2030-02-01",
            "date=1999-01-01",
            "status=confirmed",
            "status=cancelled",
            "status=hold",
            "userId=u-7",
            "userId=absent",
            "status=hold&userId=u-7",
        ],
    ),
    ("renders", "/renders", &["status=failed", "status=queued", "reservationId={id}"]),
    (
        "messages",
        "/console/api/messages",
        &[
            "state=failed",
            "state=queued",
            "queue=q-7",
            "queue=absent",
            "host=example.com",
            "host=absent",
            "label=absent",
            "schedule=absent",
            "flowKey=absent",
        ],
    ),
    (
        "dead letters",
        "/v2/dlq",
        &[
            "queueName=q-8",
            "queueName=absent",
            "url=https://example.com/8",
            "url=absent",
            "label=absent",
            "callerIp=127.0.0.1",
            "responseStatus=500",
            "fromDate={millis}",
            "toDate={millis}",
            "topicName=absent",
            "host=absent",
            "path=/8",
            "flowControlKey=absent",
        ],
    ),
    (
        "message events",
        "/v2/events",
        &[
            "state=FAILED",
            "state=CANCELED",
            "queueName=q-8",
            "queueName=absent",
            "host=absent",
            "url=absent",
            "label=absent",
            "fromDate={millis}",
            "toDate={millis}",
            "order=earliestFirst",
            "topicName=absent",
        ],
    ),
];

/// Questions that are no lists, and have to stay as quick beside them.
const SINGLE: [(&str, &[&str]); 4] = [
    ("overview", &["/console/api/overview"]),
    ("webhook counts", &["/webhook-events/stats"]),
    ("mail lane", &["/mail/lane"]),
    ("one of each", &["/mail/batches/{batch}", "/payments/{id}", "/slots?date=2030-02-01"]),
];

pub(crate) async fn measure(world: &World, options: &Options) -> anyhow::Result<Vec<Figure>> {
    let rows = options.backlogs.iter().copied().max().unwrap_or_default();
    let since = Since::before(Clock::System.now(), i64::try_from(rows)?);
    fill(world, since).await?;
    let settings = [("RL_RATE_PER_MIN", "0")];
    let (mut process, _) = server::start(world, &["serve", "--role", "api"], &settings).await?;
    let client = Client::new(&ClientConfig::with_timeout(Duration::from_secs(60)))?;
    let mut figures = Vec::new();
    for (name, path, filters) in PAGED {
        let questions = questions(path, filters, since);
        figures.extend(worst(world, &client, name, &questions).await?);
    }
    for (name, paths) in SINGLE {
        let questions: Vec<String> = paths.iter().map(|path| filled(path, since)).collect();
        figures.extend(worst(world, &client, name, &questions).await?);
    }
    process.kill().await?;
    Ok(figures)
}

/// The first page and one in the middle, without a filter and with each.
fn questions(path: &str, filters: &[&str], since: Since) -> Vec<String> {
    let path = filled(path, since);
    let middle = since.id(since.rows / 2);
    // The queue's own cursors are ids as it writes them.
    let cursor = match path.as_str() {
        "/v2/dlq" => format!("cursor={}", middle.simple()),
        "/v2/events" => format!("cursor={}-0", middle.simple()),
        _ => format!("cursor={middle}"),
    };
    let mut asked = vec![path.clone(), format!("{path}?{cursor}")];
    for filter in filters {
        let filter = filled(filter, since);
        asked.push(format!("{path}?{filter}"));
        asked.push(format!("{path}?{filter}&{cursor}"));
    }
    asked
}

fn filled(text: &str, since: Since) -> String {
    let n = since.rows / 2;
    text.replace("{n}", &n.to_string())
        .replace("{id}", &since.id(n).to_string())
        .replace("{batch}", &since.id(since.rows - 7).to_string())
        .replace("{hour}", &since.at(n).to_string())
        .replace("{later}", &since.at(n + 60).to_string())
        .replace("{millis}", &since.at(n).as_millis().to_string())
}

/// The worst question's median, and the worst answer of all.
async fn worst(
    world: &World,
    client: &Client,
    name: &str,
    questions: &[String],
) -> anyhow::Result<Vec<Figure>> {
    let mut slowest = [(0.0_f64, ""); 2];
    for question in questions {
        // Once before: the first answer reads the pages of the index from the disk.
        ask(client, question).await?;
        let mut samples = Vec::with_capacity(TIMES);
        for _ in 0..TIMES {
            let took = ask(client, question).await?;
            samples.push(took);
            // Slow is slow: nobody has to wait for all of it.
            if took > Duration::from_secs(2) {
                break;
            }
        }
        for (place, share) in [0.50, 0.99].into_iter().enumerate() {
            let figure = quantile(&mut samples, share);
            if figure > slowest[place].0 {
                slowest[place] = (figure, question);
            }
        }
    }
    let figures = slowest.into_iter().zip(["p50", "p99"]).map(|((figure, question), share)| {
        let what = format!("{name}, worst {share} of {}", questions.len());
        let mut shown = Figure::plain(world.name(), what, "ms", figure, question);
        shown.limit = Some(LIMIT_MS);
        shown
    });
    Ok(figures.collect())
}

async fn ask(client: &Client, question: &str) -> anyhow::Result<Duration> {
    let request = Request {
        method: Method::GET,
        url: format!("http://127.0.0.1:{}{question}", server::PORT).parse()?,
        headers: HeaderMap::new(),
        body: Bytes::new(),
    };
    let began = Instant::now();
    match client.call(request).await.known {
        Known::Answered(answer) => {
            anyhow::ensure!(answer.status.is_success(), "{question}: {}", answer.status);
            Ok(began.elapsed())
        }
        other => anyhow::bail!("{question}: {other:?}"),
    }
}
