//! `/cases`: everything that software could not decide, with the evidence and what may be done.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::HeaderMap;
use serde_json::{Value, json};
use tashika_domain::alert::request;
use tashika_domain::case::{Case, CaseStatus, Choice, Decision};
use tashika_domain::check::Violation;
use tashika_domain::mask::masked;
use tashika_domain::payment::request::holds_card_number;
use tashika_engine::commands::case::{CaseError, Desk, Dossier, Entry, Tried};
use tashika_store::{CaseFilter, Listed};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Client;
use super::json::OptionalJsonBody;
use super::language::Language;
use super::operator::who;
use super::page::Query;
use super::problem::{Code, Document, Problem};
use super::schema::{CaseActionSchema, CaseSchema, CaseStatusSchema, CasesSchema, DossierSchema};
use super::{to_its_end, unavailable};

pub fn routes(desk: Arc<Desk>) -> OpenApiRouter {
    OpenApiRouter::new()
        .routes(routes!(list))
        .routes(routes!(find))
        .routes(routes!(act))
        .with_state(desk)
}

/// List cases
///
/// Everything that software could not decide.
#[utoipa::path(
    get,
    path = "/cases",
    tag = "watch",
    operation_id = "listCases",
    params(
        ("status" = Option<CaseStatusSchema>, Query),
        ("kind" = Option<String>, Query, description = "E.g. payment_unknown"),
        ("subjectType" = Option<String>, Query, description = "E.g. payment"),
        ("subjectId" = Option<String>, Query, description = "E.g. a payment's id"),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses(
        (status = 200, description = "Newest first", body = CasesSchema),
        (status = 400, description = "The query cannot be read", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn list(
    State(desk): State<Arc<Desk>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let names = ["status", "kind", "subjectType", "subjectId"];
    let query = Query::read(query.as_deref(), &names)?;
    let page = query.page()?;
    let text = |name: &str| query.text(name).map(str::to_owned);
    let filter = CaseFilter {
        status: query.word("status", CaseStatus::parse)?,
        kind: text("kind"),
        subject_type: text("subjectType"),
        subject_id: text("subjectId"),
        ..CaseFilter::default()
    };
    let away = |error| unavailable(&error);
    let alone = filter.subject_type.is_none() || (filter.status.is_none() && filter.kind.is_none());
    let is_indexed = filter.subject_id.is_some() || alone;
    let reach = page.reach(desk.store(), Listed::Cases, (None, None), is_indexed).await;
    let reach = reach.map_err(away)?;
    let filter = CaseFilter { before: reach.before, since: reach.since, ..filter };
    let found = desk.store().cases(&filter, page.fetch()).await.map_err(away)?;
    Ok(page.answer_of(found.iter().map(|case| (case.id, item(case))).collect(), reach))
}

/// Look at a case
///
/// What happened, oldest first: what was sent, each answer, each question; what was tried already; and
/// what may be done now, with its consequence.
#[utoipa::path(
    get,
    path = "/cases/{id}",
    tag = "watch",
    operation_id = "getCase",
    params(("id" = uuid::Uuid, Path), ("Accept-Language" = Option<String>, Header, description = "`ja` for Japanese")),
    responses(
        (status = 200, description = "The case with its evidence", body = DossierSchema),
        (status = 404, description = "No such case", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn find(
    State(desk): State<Arc<Desk>>,
    Path(id): Path<String>,
    headers: HeaderMap,
) -> Result<Response, Problem> {
    let (case, dossier) = desk.look(parse(&id)?).await.map_err(|error| refusal(&error))?;
    Ok(Json(laid_out(&case, &dossier, Language::of(&headers))).into_response())
}

/// Decide
///
/// Carries an action out that the case offers now. The same decision again is answered as the first; of
/// two different ones, one counts.
#[utoipa::path(
    post,
    path = "/cases/{id}/actions/{action}",
    tag = "watch",
    operation_id = "actOnCase",
    request_body(content = Option<CaseActionSchema>, content_type = "application/json"),
    params(
        ("id" = uuid::Uuid, Path),
        ("action" = String, Path, description = "One of the case's `choices`", pattern = "^[a-z][a-z_]*$"),
        ("X-User-Id" = Option<String>, Header, description = "Who; else the token"),
    ),
    responses(
        (status = 200, description = "The case after it", body = CaseSchema),
        (status = 400, description = "The request cannot be read", body = Document, content_type = "application/problem+json"),
        (status = 404, description = "No such case", body = Document, content_type = "application/problem+json"),
        (status = 409, description = "Decided otherwise, or not possible now", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "A note or an execution is missing", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn act(
    State(desk): State<Arc<Desk>>,
    Extension(client): Extension<Client>,
    Path((id, action)): Path<(String, String)>,
    headers: HeaderMap,
    OptionalJsonBody(body): OptionalJsonBody,
) -> Result<Response, Problem> {
    let (id, who) = (parse(&id)?, who(&headers, &client)?);
    let decision = decision(action, &body, who)?;
    let case = to_its_end(async move { desk.act(id, &decision, &body).await }).await?;
    Ok(Json(item(&case.map_err(|error| refusal(&error))?)).into_response())
}

/// What somebody has decided, checked.
pub(crate) fn decision(action: String, body: &Value, who: String) -> Result<Decision, Problem> {
    let note = request::parse_note(body).map_err(Problem::violations)?;
    if holds_card_number(&note) {
        // Notes are kept and shown.
        let problem = "looks like a card number; name the payment instead".to_owned();
        return Err(Problem::violations(vec![Violation { field: "note".to_owned(), problem }]));
    }
    Ok(Decision { action, note, who })
}

fn parse(id: &str) -> Result<Uuid, Problem> {
    id.parse().map_err(|_| Problem::new(Code::CaseNotFound))
}

pub(crate) fn refusal(error: &CaseError) -> Problem {
    match error {
        CaseError::NotFound => Problem::new(Code::CaseNotFound),
        CaseError::AlreadyResolved | CaseError::Lost => Problem::new(Code::CaseAlreadyResolved),
        CaseError::NotAllowed(now) if now.is_empty() => Problem::new(Code::CaseActionNotAllowed),
        CaseError::NotAllowed(now) => {
            let now = now.join(", ");
            Problem::new(Code::CaseActionNotAllowed).detail(
                format!("What may be done about this case now: {now}."),
                format!("このケースで現在可能な操作: {now}"),
            )
        }
        CaseError::Invalid(violations) => Problem::violations(violations.clone()),
        CaseError::Contradicted => Problem::new(Code::ResolutionContradicted),
        CaseError::StillDiffers(how) => Problem::new(Code::CaseStillDiffers).detail(
            format!("Nothing was closed: {how}"),
            format!("ケースは閉じられていません: {how}"),
        ),
        CaseError::Store(error) => unavailable(error),
    }
}

/// A case in a list.
pub(crate) fn item(case: &Case) -> Value {
    let mut body = json!({
        "id": case.id,
        "kind": case.kind,
        "status": case.status.as_str(),
        "subjectType": case.subject_type,
        "subjectId": case.subject_id,
        "summary": case.summary,
        "actions": case.actions,
        "openedAt": case.opened_at,
    });
    if let Some(end) = &case.resolution {
        body["resolvedAt"] = json!(end.at);
        body["resolution"] = json!(end.action);
        body["note"] = json!(end.note);
        body["resolvedBy"] = json!(end.by);
    }
    body
}

/// A case with what was known when it was opened.
pub(in crate::http) fn case(case: &Case) -> Value {
    let mut body = item(case);
    body["details"] = serde_json::from_str(&case.details).unwrap_or_default();
    body
}

pub(crate) fn laid_out(found: &Case, dossier: &Dossier, language: Language) -> Value {
    let mut body = case(found);
    body["details"] = masked(&body["details"]);
    let actions: Vec<&str> = dossier.choices.iter().map(|choice| choice.action).collect();
    // As it is now, and not as it was when the case was opened.
    body["actions"] = json!(actions);
    body["choices"] = dossier.choices.iter().map(|choice| offered(choice, language)).collect();
    body["timeline"] = dossier.timeline.iter().map(line).collect();
    body["tried"] = tried(&dossier.tried, language);
    body
}

fn offered(choice: &Choice, language: Language) -> Value {
    json!({
        "action": choice.action,
        "label": language.pick(choice.label.en, choice.label.ja),
        "consequence": language.pick(choice.consequence.en, choice.consequence.ja),
        "needsNote": choice.needs_note,
        "confirm": language.pick(choice.confirm.en, choice.confirm.ja),
    })
}

fn line(entry: &Entry) -> Value {
    let mut body = json!({"at": entry.at, "kind": entry.kind});
    if let (Some(body), Value::Object(entry)) = (body.as_object_mut(), masked(&entry.body)) {
        body.extend(entry.into_iter().filter(|(_, value)| !value.is_null()));
    }
    body
}

fn tried(tried: &Tried, language: Language) -> Value {
    let Tried { sent, asked, last } = tried;
    let mut english = format!("Sent {sent} times, asked about {asked} times.");
    let mut japanese = format!("送信 {sent} 回、照会 {asked} 回。");
    if let Some(reason) = last {
        english = format!("{english} The last answer was: {} ({}).", reason.message, reason.code);
        japanese = format!("{japanese}最後の回答: {}（{}）", reason.message, reason.code);
    }
    json!({
        "sent": sent,
        "asked": asked,
        "lastCode": last.as_ref().map(|reason| &reason.code),
        "lastMessage": last.as_ref().map(|reason| &reason.message),
        "summary": language.pick(&english, &japanese),
    })
}
