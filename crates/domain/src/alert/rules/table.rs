//! The rows: every rule with the numbers that hold if nobody sets others.

use std::time::Duration;

use super::{Comparison, Counter, Measure, Rule};
use crate::alert::Severity;
use crate::alert::Severity::{Critical, High, Warning};
use crate::text::Text;
use crate::{case, order, payment, render, reservation};

const MINUTE: Duration = Duration::from_secs(60);
const MINUTE_5: Duration = Duration::from_secs(300);
const HOUR: Duration = Duration::from_secs(3600);

/// So few events say nothing about a share.
const FEW: u64 = 20;

const fn all(metric: &'static str) -> Counter {
    Counter { metric, label: None }
}

const fn only(metric: &'static str, label: &'static str, prefix: &'static str) -> Counter {
    Counter { metric, label: Some((label, prefix)) }
}

const DELIVERED: &[Counter] = &[all("queue_deliveries_total")];
const REPEATED: &[Counter] = &[all("queue_retries_total")];
const FAILED: &[Counter] = &[
    only("queue_deliveries_total", "outcome", "failed"),
    only("queue_deliveries_total", "outcome", "refused"),
    only("queue_deliveries_total", "outcome", "lapsed"),
];
const UNPUBLISHED: &[Counter] =
    &[all("queue_publish_failures_total"), only("queue_relayed_total", "outcome", "failed")];
const PUBLISHED: &[Counter] = &[
    all("queue_published_total"),
    all("queue_publish_failures_total"),
    all("queue_relayed_total"),
];
const REQUESTS: &[Counter] = &[all("http_requests_total")];
const ERRORS: &[Counter] = &[only("http_requests_total", "status", "5")];

impl Rule {
    /// Above a threshold, now.
    const fn new(
        name: &'static str,
        severity: Severity,
        measure: Measure,
        threshold: f64,
        text: Text,
        advice: Text,
    ) -> Self {
        Self {
            name,
            severity,
            measure,
            comparison: Comparison::Above,
            threshold,
            window: Duration::ZERO,
            hold: Duration::ZERO,
            minimum: 0,
            text,
            advice,
            enabled: true,
        }
    }

    const fn within(self, window: Duration) -> Self {
        Self { window, ..self }
    }

    const fn at_least(self) -> Self {
        Self { comparison: Comparison::AtLeast, ..self }
    }

    const fn of_at_least(self, minimum: u64) -> Self {
        Self { minimum, ..self }
    }

    const fn held_for(self, hold: Duration) -> Self {
        Self { hold, ..self }
    }
}

/// The kinds of cases that there are: each has a gauge, also while there is none.
pub const CASE_KINDS: [&str; 6] = [
    payment::CASE_UNKNOWN,
    payment::CASE_DIFFERENCE,
    order::CASE_UNANSWERED,
    case::DEAD_LETTER,
    render::CASE_FAILED,
    reservation::CASE_REFUND,
];

/// Every rule.
#[must_use]
pub fn defaults() -> Vec<Rule> {
    [payments(), letters(), deliveries(), orders(), people(), mail(), service()].concat()
}

fn payments() -> Vec<Rule> {
    vec![
        Rule::new(
            "payment_pending_verification",
            Warning,
            Measure::PaymentsInDoubt,
            10.0,
            Text::new(
                "many payments wait for the gateway to say what became of them",
                "結果確認待ちの決済が多数あります",
            ),
            Text::new(
                "Look at the gateway's status page and at payment_gateway_timeouts; verification goes on by itself.",
                "ゲートウェイの稼働状況と payment_gateway_timeouts を確認してください。確認は自動で続きます。",
            ),
        ),
        Rule::new(
            payment::ALERT_VERIFICATION,
            High,
            Measure::OpenCases(Some(payment::CASE_UNKNOWN)),
            0.0,
            Text::new(
                "the outcome of payments could not be found out",
                "決済の結果を確認できませんでした",
            ),
            Text::new(
                "Open the case, look at the gateway, and decide.",
                "ケースを開き、ゲートウェイを確認して判断してください。",
            ),
        ),
        Rule::new(
            "payment_gateway_timeouts",
            High,
            Measure::Increase(all("payment_gateway_timeout_total")),
            5.0,
            Text::new(
                "the payment gateway does not answer in time: it may be down",
                "決済ゲートウェイの応答がありません。障害の可能性があります",
            ),
            Text::new(
                "Look at the gateway's status page. Payments stay PENDING and are verified.",
                "ゲートウェイの稼働状況を確認してください。決済は PENDING のまま確認されます。",
            ),
        )
        .within(MINUTE),
    ]
}

fn letters() -> Vec<Rule> {
    vec![
        Rule::new(
            "queue_dead_letters",
            Warning,
            Measure::DeadLetters,
            0.0,
            Text::new(
                "messages could not be delivered and were given up",
                "配信できずに断念されたメッセージがあります",
            ),
            Text::new(
                "Look at the dead letters, repair the destination, send them again or drop them.",
                "デッドレターを確認し、宛先を直してから再送するか破棄してください。",
            ),
        ),
        Rule::new(
            "queue_dead_letters_old",
            High,
            Measure::OldestDeadLetter,
            24.0 * 3600.0,
            Text::new(
                "a dead letter has been waiting for more than a day",
                "1 日以上放置されたデッドレターがあります",
            ),
            Text::new(
                "Send it again or drop it: nobody else will.",
                "再送するか破棄してください。自動では処理されません。",
            ),
        ),
    ]
}

fn deliveries() -> Vec<Rule> {
    vec![
        Rule::new(
            "queue_retries",
            Warning,
            Measure::Share { part: REPEATED, whole: DELIVERED },
            0.01,
            Text::new("many deliveries are repetitions", "再試行の割合が高くなっています"),
            Text::new(
                "Look at which destinations fail: GET /v2/events.",
                "どの宛先が失敗しているか GET /v2/events で確認してください。",
            ),
        )
        .at_least()
        .within(MINUTE_5)
        .of_at_least(FEW),
        Rule::new(
            "queue_publish_failures",
            High,
            Measure::Share { part: UNPUBLISHED, whole: PUBLISHED },
            0.01,
            Text::new("messages could not be published", "メッセージを発行できませんでした"),
            Text::new(
                "Look at the database, and at QStash if QUEUE_PROVIDER=qstash.",
                "データベースと、QUEUE_PROVIDER=qstash の場合は QStash を確認してください。",
            ),
        )
        .within(MINUTE_5)
        .of_at_least(FEW),
        Rule::new(
            "queue_worker_errors",
            High,
            Measure::Share { part: FAILED, whole: DELIVERED },
            0.005,
            Text::new(
                "workers fail on what is delivered to them",
                "ワーカーのエラー率が高くなっています",
            ),
            Text::new(
                "Look at the worker's own log; deliveries are repeated meanwhile.",
                "ワーカー側のログを確認してください。その間、配信は再試行されます。",
            ),
        )
        .within(MINUTE_5)
        .of_at_least(FEW),
        Rule::new(
            "queue_end_to_end",
            Warning,
            Measure::P95(all("queue_end_to_end_ms")),
            10_000.0,
            Text::new(
                "messages take long from when they were due until they are delivered",
                "配信までの時間が長くなっています",
            ),
            Text::new(
                "Look at queue depth, flow control and slow destinations.",
                "キューの滞留、フロー制御、遅い宛先を確認してください。",
            ),
        )
        .within(MINUTE_5)
        .of_at_least(1),
    ]
}

fn orders() -> Vec<Rule> {
    vec![
        Rule::new(
            "order_conflicts",
            Warning,
            Measure::Increase(all("idempotency_conflicts_total")),
            50.0,
            Text::new(
                "many orders use a known idempotency key with another body",
                "既知の冪等キーを別の内容で使う注文が多発しています",
            ),
            Text::new(
                "A client reuses keys: find it by the request log.",
                "キーを使い回しているクライアントをログから特定してください。",
            ),
        )
        .within(HOUR),
        Rule::new(
            "broker_timeouts",
            High,
            Measure::Increase(only("broker_requests_total", "outcome", "timeout")),
            20.0,
            Text::new("the broker does not answer in time", "ブローカーの応答がありません"),
            Text::new(
                "Look at the broker's status; orders are asked about and not repeated blindly.",
                "ブローカーの稼働状況を確認してください。注文は照会され、盲目的に再送されることはありません。",
            ),
        )
        .within(MINUTE_5),
        Rule::new(
            "outbox_pending",
            High,
            Measure::OutboxPending,
            1000.0,
            Text::new("effects pile up in the outbox", "送信待ちの処理が滞留しています"),
            Text::new(
                "Look at whether workers run, at their lanes' limits and at the other side.",
                "ワーカーの稼働、レーンの上限、相手側の状態を確認してください。",
            ),
        )
        .held_for(Duration::from_secs(15 * 60)),
    ]
}

fn people() -> Vec<Rule> {
    let refunded = |scenario| Measure::Races { scenario, resolution: "REFUNDED" };
    vec![
        Rule::new(
            "expiry_refunds",
            Warning,
            refunded("EXPIRED_AFTER_PAYMENT"),
            5.0,
            Text::new(
                "many payments arrived after their hold had expired and were refunded",
                "仮押さえの期限切れ後に届いた決済の返金が多発しています",
            ),
            Text::new(
                "Holds may be too short for how long paying takes.",
                "仮押さえの時間が支払いに対して短すぎる可能性があります。",
            ),
        )
        .at_least()
        .within(HOUR),
        Rule::new(
            "render_refund",
            Critical,
            refunded("RENDER_FAILURE"),
            1.0,
            Text::new(
                "a render was given up and its payment refunded",
                "レンダリングに失敗し、決済を返金しました",
            ),
            Text::new(
                "Look at the render service, and tell the customer.",
                "レンダリングサービスを確認し、お客様に連絡してください。",
            ),
        )
        .at_least()
        .within(Duration::from_secs(24 * 3600)),
        Rule::new(
            "manual_case",
            Critical,
            Measure::OpenCases(None),
            0.0,
            Text::new("cases wait for a person's decision", "担当者の判断を待つケースがあります"),
            Text::new(
                "Open the list of cases and decide.",
                "ケースの一覧を開いて判断してください。",
            ),
        ),
    ]
}

fn mail() -> Vec<Rule> {
    vec![
        Rule::new(
            "mail_lane_stopped",
            High,
            Measure::Reported,
            0.0,
            Text::new(
                "mail is not sent any more until somebody looks",
                "メール送信が停止しています",
            ),
            Text::new(
                "Look at the mail server's credentials and answers, then let the lane go on.",
                "メールサーバーの認証情報と応答を確認し、送信を再開してください。",
            ),
        ),
        Rule::new(
            "mail_quota_near",
            Warning,
            Measure::MailQuotaUsed,
            90.0,
            Text::new("the mail quota is nearly used up", "メール送信の上限に近づいています"),
            Text::new(
                "Mail above the quota waits for the next window.",
                "上限を超えたメールは次の期間まで待ちます。",
            ),
        )
        .at_least(),
    ]
}

fn service() -> Vec<Rule> {
    vec![
        Rule::new(
            "availability",
            High,
            Measure::Share { part: ERRORS, whole: REQUESTS },
            0.01,
            Text::new(
                "more than one request in a hundred ends with a server error",
                "サーバーエラーの割合が 1 % を超えています",
            ),
            Text::new(
                "Look at the log for requests with a status of 500 and above.",
                "ログでステータス 500 以上のリクエストを確認してください。",
            ),
        )
        .within(Duration::from_secs(30 * 60))
        .of_at_least(FEW),
        Rule::new(
            "store_slow",
            High,
            Measure::P95(only("outbox_latency_ms", "phase", "commit")),
            1000.0,
            Text::new(
                "the database takes long to commit",
                "データベースの書き込みに時間がかかっています",
            ),
            Text::new(
                "Look at the database's disk and load; nothing is acknowledged before it is written.",
                "データベースのディスクと負荷を確認してください。書き込み前に受理されることはありません。",
            ),
        )
        .within(MINUTE_5)
        .of_at_least(FEW),
    ]
}
