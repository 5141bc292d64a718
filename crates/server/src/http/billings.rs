//! `/billings`: what offices pay for.

use std::sync::Arc;

use axum::extract::{Path, RawQuery, State};
use axum::response::{IntoResponse as _, Response};
use axum::{Extension, Json};
use http::StatusCode;
use serde_json::{Value, json};
use tashika_domain::billing::Billing;
use tashika_engine::commands::billing::{BillingError, Billings};
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;
use uuid::Uuid;

use super::auth::Client;
use super::json::JsonBody;
use super::page::Query;
use super::problem::{Code, Document, Problem};
use super::schema::{BillingRequestSchema, BillingSchema, BillingsSchema};
use super::unavailable;

pub fn routes(billings: Arc<Billings>) -> OpenApiRouter {
    OpenApiRouter::new().routes(routes!(create, list)).routes(routes!(find)).with_state(billings)
}

/// Make a billing for an office
#[utoipa::path(
    post,
    path = "/billings",
    tag = "billing",
    operation_id = "createBilling",
    request_body = BillingRequestSchema,
    responses(
        (status = 201, description = "Made, `free`", body = BillingSchema),
        (status = 409, description = "The office or the customer has one", body = Document, content_type = "application/problem+json"),
        (status = 422, description = "The request is not valid", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn create(
    State(billings): State<Arc<Billings>>,
    Extension(client): Extension<Client>,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let billing = billings.create(&client.0, &body).await.map_err(refusal)?;
    Ok((StatusCode::CREATED, Json(shown(&billing))).into_response())
}

/// Look a billing up
#[utoipa::path(
    get,
    path = "/billings/{id}",
    tag = "billing",
    operation_id = "getBilling",
    params(("id" = uuid::Uuid, Path)),
    responses(
        (status = 200, description = "The billing as it is now", body = BillingSchema),
        (status = 404, description = "No such billing", body = Document, content_type = "application/problem+json"),
    ),
)]
async fn find(
    State(billings): State<Arc<Billings>>,
    Path(id): Path<String>,
) -> Result<Response, Problem> {
    let id: Uuid = id.parse().map_err(|_| Problem::new(Code::BillingNotFound))?;
    Ok(Json(shown(&billings.find(id).await.map_err(refusal)?)).into_response())
}

/// List billings
#[utoipa::path(
    get,
    path = "/billings",
    tag = "billing",
    operation_id = "listBillings",
    params(
        ("officeId" = Option<String>, Query),
        ("limit" = Option<u32>, Query, description = "Default 50", minimum = 1, maximum = 500),
        ("cursor" = Option<uuid::Uuid>, Query, description = "`nextCursor` of the page before"),
    ),
    responses((status = 200, description = "Newest first", body = BillingsSchema)),
)]
async fn list(
    State(billings): State<Arc<Billings>>,
    RawQuery(query): RawQuery,
) -> Result<Response, Problem> {
    let query = Query::read(query.as_deref(), &["officeId"])?;
    let page = query.page()?;
    let office = query.text("officeId");
    let found = billings.list(office, page.before, page.fetch()).await.map_err(refusal)?;
    Ok(page.answer(found.iter().map(|billing| (billing.id, shown(billing))).collect()))
}

fn shown(billing: &Billing) -> Value {
    json!({
        "id": billing.id,
        "officeId": billing.office_id,
        "stripeCustomerId": billing.stripe_customer_id,
        "stripeSubscriptionId": billing.stripe_subscription_id,
        "status": billing.status.as_str(),
        "trialEndDate": billing.trial_end_date,
        "lastPaymentAt": billing.last_payment_at,
        "createdAt": billing.created_at,
        "updatedAt": billing.updated_at,
    })
}

fn refusal(error: BillingError) -> Problem {
    match error {
        BillingError::Invalid(violations) => Problem::violations(violations),
        BillingError::Exists => Problem::new(Code::BillingExists),
        BillingError::NotFound => Problem::new(Code::BillingNotFound),
        BillingError::Store(error) => unavailable(&error),
    }
}
