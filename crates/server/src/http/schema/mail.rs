//! The shapes of requests and answers about mail.

use serde_json::{Value, json};
use utoipa::ToSchema;

fn mail_example() -> Value {
    json!({
        "to": "taro@example.com", "template": "reservation-expired-refunded", "locale": "ja",
        "data": {"reservationId": "rsv-0001", "refundAmount": 3000, "currency": "JPY"},
        "idempotencyKey": "refund-mail-0001",
    })
}

fn batch_example() -> Value {
    json!({
        "template": "reservation-expired-refunded",
        "recipients": [{
            "to": "taro@example.com", "locale": "ja",
            "data": {"reservationId": "rsv-0001", "refundAmount": 3000, "currency": "JPY"},
        }],
    })
}

#[derive(ToSchema)]
#[schema(as = MailRequest, example = mail_example)]
pub struct MailRequestSchema {
    to: MailAddressSchema,
    #[schema(min_length = 1, max_length = 100)]
    template: String,
    locale: Option<LocaleSchema>,
    /// What the template needs.
    #[schema(value_type = Option<Object>)]
    data: Option<Value>,
    #[schema(min_length = 1, max_length = 255, rename = "idempotencyKey")]
    idempotency_key: Option<String>,
}

/// Default `ja`.
#[derive(ToSchema)]
#[schema(as = Locale)]
pub enum LocaleSchema {
    #[schema(rename = "ja")]
    Ja,
    #[schema(rename = "en")]
    En,
}

#[derive(ToSchema)]
#[schema(as = MailBatchRequest, example = batch_example)]
pub struct MailBatchRequestSchema {
    #[schema(min_length = 1, max_length = 100)]
    template: String,
    /// For recipients that name none.
    locale: Option<LocaleSchema>,
    #[schema(min_length = 1, max_length = 255, rename = "idempotencyKey")]
    idempotency_key: Option<String>,
    #[schema(min_items = 1, max_items = 100_000)]
    recipients: Vec<RecipientSchema>,
}

#[derive(ToSchema)]
#[schema(as = MailRecipient)]
pub struct RecipientSchema {
    to: MailAddressSchema,
    locale: Option<LocaleSchema>,
    #[schema(value_type = Option<Object>)]
    data: Option<Value>,
}

/// The domain may be written in any script; here it is as it travels.
#[derive(ToSchema)]
#[schema(
    as = MailAddress,
    max_length = 254,
    pattern = r"^[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+(\.[A-Za-z0-9!#$%&'*+/=?^_`{|}~\-]+)*@([A-Za-z0-9]([A-Za-z0-9\-]{0,61}[A-Za-z0-9])?\.)+[A-Za-z]{2,63}$"
)]
pub struct MailAddressSchema(String);

#[derive(ToSchema)]
#[schema(as = Mail, rename_all = "camelCase")]
pub struct MailSchema {
    #[schema(format = Uuid)]
    id: String,
    to: String,
    status: MailStatusSchema,
    template: String,
    locale: LocaleSchema,
    #[schema(format = Uuid)]
    batch_id: Option<String>,
    /// Attempts that count.
    attempts: u32,
    /// An attempt may have arrived without an answer: there may be two, with the same Message-ID.
    possibly_duplicate: bool,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    sent_at: Option<String>,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
    failure: Option<MailFailureReasonSchema>,
    history: Vec<MailTrySchema>,
}

#[derive(ToSchema)]
#[schema(as = MailStatus)]
pub enum MailStatusSchema {
    #[schema(rename = "queued")]
    Queued,
    #[schema(rename = "sent")]
    Sent,
    #[schema(rename = "failed")]
    Failed,
    #[schema(rename = "possiblySent")]
    PossiblySent,
    #[schema(rename = "cancelled")]
    Cancelled,
}

#[derive(ToSchema)]
#[schema(as = MailFailureReason)]
pub struct MailFailureReasonSchema {
    /// `retryable`, `throttled`, `quota`, `recipient`, `configuration`, `template`, `possibly_sent`, `worker_lost`
    class: String,
    text: String,
}

#[derive(ToSchema)]
#[schema(as = MailAttempt)]
pub struct MailTrySchema {
    #[schema(format = DateTime)]
    at: String,
    outcome: String,
    code: Option<u16>,
    text: String,
}

#[derive(ToSchema)]
#[schema(as = Mails, rename_all = "camelCase")]
pub struct MailsSchema {
    items: Vec<MailSchema>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = MailBatch, rename_all = "camelCase")]
pub struct MailBatchSchema {
    #[schema(format = Uuid)]
    id: String,
    /// scheduled, receiving, running, finished, cancelled or aborted
    status: String,
    template: String,
    total: i64,
    queued: i64,
    sent: i64,
    failed: i64,
    possibly_sent: i64,
    cancelled: i64,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
    /// Only of one batch that is looked up.
    failures: Option<Vec<MailFailureSchema>>,
}

#[derive(ToSchema)]
#[schema(as = MailFailure, rename_all = "camelCase")]
pub struct MailFailureSchema {
    #[schema(format = Uuid)]
    id: String,
    to: String,
    status: super::MailFailureStatusSchema,
    attempts: u32,
    class: Option<String>,
    text: Option<String>,
    #[schema(format = DateTime)]
    ended_at: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = MailFailures, rename_all = "camelCase")]
pub struct MailFailuresSchema {
    items: Vec<MailFailureSchema>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = MailBatches, rename_all = "camelCase")]
pub struct MailBatchesSchema {
    items: Vec<MailBatchSchema>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = MailBatchRetry)]
pub struct MailBatchRetrySchema {
    /// Default: only what failed.
    #[schema(nullable = false, min_items = 1)]
    statuses: Option<Vec<super::MailRetryStatusSchema>>,
}

#[derive(ToSchema)]
#[schema(as = MailLane, rename_all = "camelCase")]
pub struct MailLaneSchema {
    /// open, parked or stopped
    state: String,
    #[schema(format = DateTime)]
    until: Option<String>,
    reason: Option<String>,
    #[schema(format = DateTime)]
    slowed_until: Option<String>,
    queued: i64,
    #[schema(format = DateTime)]
    oldest_queued_at: Option<String>,
    /// What the quota counts now.
    #[schema(rename = "sentOrCounted24h")]
    sent_or_counted_24h: i64,
    quota_left: Option<i64>,
    resumed: Option<bool>,
}

#[derive(ToSchema)]
#[schema(as = MailInbox, rename_all = "camelCase")]
pub struct InboxSchema {
    items: Vec<InboxMailSchema>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = InboxMail, rename_all = "camelCase")]
pub struct InboxMailSchema {
    #[schema(format = Uuid)]
    id: String,
    to: String,
    locale: LocaleSchema,
    subject: Option<String>,
    html: Option<String>,
    text: Option<String>,
    #[schema(format = DateTime)]
    sent_at: Option<String>,
}

fn deadlines_example() -> Value {
    json!({
        "dashboardUrl": "https://app.example.com/dashboard",
        "offices": [{
            "id": "office-1", "name": "ひまわり事業所",
            "staff": [{
                "id": "staff-1", "email": "taro@example.com", "lastName": "山田",
                "firstName": "太郎", "emailThresholdDays": 30,
            }],
            "renewalAlerts": [{"name": "利用者A", "deadline": "2026-12-31"}],
            "assessmentAlerts": [],
        }],
    })
}

#[derive(ToSchema)]
#[schema(as = DeadlinesRequest, example = deadlines_example, rename_all = "camelCase")]
pub struct DeadlinesRequestSchema {
    #[schema(pattern = "^https?://[^\\u0000]*$", max_length = 2048)]
    dashboard_url: String,
    /// Where days begin; default `Asia/Tokyo`.
    #[schema(format = "time-zone")]
    time_zone: Option<String>,
    /// Not before this. Days that are left are counted then.
    #[schema(format = DateTime)]
    run_at: Option<String>,
    #[schema(min_length = 1, max_length = 255)]
    idempotency_key: Option<String>,
    offices: Vec<OfficeSchema>,
}

#[derive(ToSchema)]
#[schema(as = Office, rename_all = "camelCase")]
pub struct OfficeSchema {
    #[schema(min_length = 1, max_length = 255)]
    id: String,
    #[schema(min_length = 1, max_length = 255)]
    name: String,
    staff: Vec<StaffSchema>,
    renewal_alerts: Option<Vec<DeadlineAlertSchema>>,
    assessment_alerts: Option<Vec<DeadlineAlertSchema>>,
}

#[derive(ToSchema)]
#[schema(as = Staff, rename_all = "camelCase")]
pub struct StaffSchema {
    #[schema(min_length = 1, max_length = 255)]
    id: String,
    email: MailAddressSchema,
    #[schema(min_length = 1, max_length = 255)]
    last_name: String,
    #[schema(min_length = 1, max_length = 255)]
    first_name: String,
    /// What is further away than so many days is left out.
    #[schema(maximum = 36_500)]
    email_threshold_days: u32,
    locale: Option<LocaleSchema>,
}

/// One that names neither a date nor days is always due.
#[derive(ToSchema)]
#[schema(as = DeadlineAlert, rename_all = "camelCase")]
pub struct DeadlineAlertSchema {
    #[schema(min_length = 1)]
    name: String,
    #[schema(value_type = Option<super::DaySchema>)]
    deadline: Option<String>,
    days_left: Option<i64>,
}

#[derive(ToSchema)]
#[schema(as = Deadlines, rename_all = "camelCase")]
pub struct DeadlinesSchema {
    /// A batch of mails: `GET /mail/batches/{id}`.
    #[schema(format = Uuid)]
    id: String,
    status: String,
    /// 0 until `runAt`.
    mails: i64,
    /// For so many nothing was due; absent until `runAt`.
    skipped: Option<u64>,
    #[schema(format = DateTime)]
    run_at: Option<String>,
}
