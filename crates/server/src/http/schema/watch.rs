//! Cases and alerts.

use serde_json::Value;
use utoipa::ToSchema;

#[derive(ToSchema)]
#[schema(as = Case, rename_all = "camelCase")]
pub struct CaseSchema {
    #[schema(format = Uuid)]
    id: String,
    kind: String,
    status: super::CaseStatusSchema,
    subject_type: String,
    subject_id: String,
    summary: String,
    /// What could be decided when it was opened; `GET /cases/{id}` says what may be decided now.
    actions: Vec<String>,
    #[schema(format = DateTime)]
    opened_at: String,
    /// With the subject only, not in lists.
    details: Option<Value>,
    #[schema(format = DateTime)]
    resolved_at: Option<String>,
    resolution: Option<String>,
    note: Option<String>,
    /// None: it answered itself.
    resolved_by: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = Cases, rename_all = "camelCase")]
pub struct CasesSchema {
    items: Vec<CaseSchema>,
    next_cursor: Option<String>,
}

/// A case with its evidence.
#[derive(ToSchema)]
#[schema(as = Dossier, rename_all = "camelCase")]
pub struct DossierSchema {
    #[schema(format = Uuid)]
    id: String,
    kind: String,
    status: super::CaseStatusSchema,
    subject_type: String,
    subject_id: String,
    summary: String,
    /// What may be decided now.
    actions: Vec<String>,
    #[schema(format = DateTime)]
    opened_at: String,
    details: Value,
    #[schema(format = DateTime)]
    resolved_at: Option<String>,
    resolution: Option<String>,
    note: Option<String>,
    resolved_by: Option<String>,
    /// The same as `actions`, in words.
    choices: Vec<ChoiceSchema>,
    /// Each line has `at`, `kind` and what there is to say.
    timeline: Vec<Value>,
    tried: TriedSchema,
}

#[derive(ToSchema)]
#[schema(as = Choice, rename_all = "camelCase")]
pub struct ChoiceSchema {
    action: String,
    label: String,
    /// What follows from it, in one sentence.
    consequence: String,
    needs_note: bool,
    /// The question to answer with yes before it is done.
    confirm: String,
}

/// What the system has tried already.
#[derive(ToSchema)]
#[schema(as = Tried, rename_all = "camelCase")]
pub struct TriedSchema {
    sent: u64,
    asked: u64,
    last_code: Option<String>,
    last_message: Option<String>,
    summary: String,
}

#[derive(ToSchema)]
#[schema(as = CaseAction, rename_all = "camelCase", example = json!({"note": "seen in the gateway's dashboard"}))]
pub struct CaseActionSchema {
    /// Why. Needed where the choice says so.
    #[schema(max_length = 500)]
    note: Option<String>,
    /// Of an order that was `executed`: `order_ref`, `fills`, `cost`, `warnings`.
    execution: Option<Value>,
}

#[derive(ToSchema)]
#[schema(as = Alert, rename_all = "camelCase")]
pub struct AlertSchema {
    #[schema(format = Uuid)]
    id: String,
    rule: String,
    severity: super::SeveritySchema,
    state: super::AlertStateSchema,
    message: String,
    /// How many of what it is about.
    count: i64,
    #[schema(format = DateTime)]
    fired_at: String,
    #[schema(format = DateTime)]
    resolved_at: Option<String>,
    /// `value`, `threshold`, and an example of what it is about.
    labels: Value,
    #[schema(format = DateTime)]
    acknowledged_at: Option<String>,
    acknowledged_by: Option<String>,
    #[schema(format = DateTime)]
    silenced_until: Option<String>,
    silenced_by: Option<String>,
    silence_reason: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = Alerts, rename_all = "camelCase")]
pub struct AlertsSchema {
    items: Vec<AlertSchema>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = AlertRules)]
pub struct RulesSchema {
    items: Vec<RuleSchema>,
}

#[derive(ToSchema)]
#[schema(as = AlertRule, rename_all = "camelCase")]
pub struct RuleSchema {
    name: String,
    severity: String,
    /// `>` or `>=`.
    comparison: String,
    threshold: f64,
    window_seconds: f64,
    for_seconds: f64,
    minimum: u64,
    enabled: bool,
    /// Fired by whoever notices it, and not measured.
    reported: bool,
    message: String,
    advice: String,
    /// The same, for Prometheus.
    expression: String,
}

#[derive(ToSchema)]
#[schema(as = Note)]
pub struct NoteSchema {
    #[schema(max_length = 500)]
    note: Option<String>,
}

/// `minutes` or `until`.
#[derive(ToSchema)]
#[schema(as = Silence, example = json!({"minutes": 60, "reason": "the gateway is being repaired"}))]
pub struct SilenceSchema {
    /// 0 ends a silence.
    #[schema(nullable = false, minimum = 0, maximum = 43200)]
    minutes: Option<u64>,
    /// Within 30 days.
    #[schema(nullable = false, format = DateTime)]
    until: Option<String>,
    #[schema(min_length = 1, max_length = 500)]
    reason: String,
}
