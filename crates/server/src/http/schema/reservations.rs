//! The shapes of reservations, slots and races.

use serde_json::{Value, json};
use utoipa::ToSchema;

fn reservation_example() -> Value {
    json!({
        "videoId": 42, "projectionDate": "2030-12-24", "slotNumber": 3, "userId": "user-1",
        "userEmail": "user@example.com", "locale": "ja", "amount": 1500, "currency": "JPY",
    })
}

#[derive(ToSchema)]
#[schema(as = ReservationRequest, rename_all = "camelCase", example = reservation_example)]
pub struct ReservationRequestSchema {
    #[schema(minimum = 1)]
    video_id: i64,
    #[schema(format = Date)]
    projection_date: String,
    /// At most `RESERVATION_SLOTS_PER_DAY`.
    #[schema(minimum = 1)]
    slot_number: i64,
    #[schema(min_length = 1, max_length = 100)]
    user_id: String,
    #[schema(
        pattern = r"^[!#-+\-./0-:=?A-~]+@[!#-+\-/0-:=?A-~]+(\.[!#-+\-/0-:=?A-~]+)+$",
        max_length = 254
    )]
    user_email: String,
    /// `ja` by default. The language of letters and of the payment page.
    locale: Option<super::mail::LocaleSchema>,
    /// In the currency's smallest unit.
    #[schema(minimum = 1, maximum = 999_999_999_999_i64)]
    amount: i64,
    currency: super::CurrencySchema,
    /// Instead of the header; if both are there, they must be the same.
    #[schema(pattern = "^[ -~]+$", max_length = 64)]
    idempotency_key: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = Hold, rename_all = "camelCase")]
pub struct HoldSchema {
    #[schema(format = Uuid)]
    reservation_id: String,
    /// `hold`; in a replay, whatever it is by now.
    status: String,
    /// The end of the hold.
    #[schema(format = DateTime)]
    expires_at: String,
}

#[derive(ToSchema)]
#[schema(as = Reservation, rename_all = "camelCase")]
pub struct ReservationSchema {
    #[schema(format = Uuid)]
    reservation_id: String,
    status: super::ReservationStatusSchema,
    video_id: i64,
    #[schema(format = Date)]
    projection_date: String,
    slot_number: i64,
    user_id: String,
    user_email: String,
    locale: String,
    amount: i64,
    currency: String,
    /// The end of the hold.
    #[schema(format = DateTime)]
    expires_at: String,
    #[schema(format = DateTime)]
    confirmed_at: Option<String>,
    #[schema(format = DateTime)]
    expired_at: Option<String>,
    #[schema(format = DateTime)]
    cancelled_at: Option<String>,
    #[schema(format = DateTime)]
    created_at: String,
    #[schema(format = DateTime)]
    updated_at: String,
    payment_id: Option<String>,
    /// Of the last checkout. Not in lists.
    payment: Option<ReservationPaymentSchema>,
    /// Not in lists.
    races: Option<Vec<RaceSchema>>,
}

#[derive(ToSchema)]
#[schema(as = ReservationPayment, rename_all = "camelCase")]
pub struct ReservationPaymentSchema {
    #[schema(format = Uuid)]
    payment_id: String,
    /// As in `GET /payments/{id}`.
    status: String,
    captured_amount: i64,
    refunded_amount: i64,
    /// On its way back.
    refunding_amount: i64,
}

#[derive(ToSchema)]
#[schema(as = Reservations, rename_all = "camelCase")]
pub struct ReservationsSchema {
    items: Vec<ReservationSchema>,
    next_cursor: Option<String>,
}

#[derive(ToSchema)]
#[schema(as = Checkout, rename_all = "camelCase")]
pub struct CheckoutSchema {
    session_id: String,
    /// Where the customer pays.
    url: Option<String>,
    /// When the page is closed: the end of the hold.
    #[schema(format = DateTime)]
    expires_at: String,
}

#[derive(ToSchema)]
#[schema(as = CheckoutOpening, rename_all = "camelCase")]
pub struct CheckoutOpeningSchema {
    /// `opening`.
    status: String,
    #[schema(format = Uuid)]
    payment_id: String,
}

#[derive(ToSchema)]
#[schema(as = Slots)]
pub struct SlotsSchema {
    #[schema(format = Date)]
    date: String,
    items: Vec<SlotSchema>,
}

#[derive(ToSchema)]
#[schema(as = Slot, rename_all = "camelCase")]
pub struct SlotSchema {
    slot_number: i64,
    /// `free`, `hold` or `confirmed`.
    status: String,
}

#[derive(ToSchema)]
#[schema(as = Race, rename_all = "camelCase")]
pub struct RaceSchema {
    #[schema(format = Uuid)]
    id: String,
    /// `EXPIRED_AFTER_PAYMENT`, `SLOT_CONFLICT`, `RENDER_FAILURE`, `DUPLICATE_CANCEL` or `LATE_EXECUTION`.
    scenario: String,
    /// `REFUNDED`, `VOIDED`, `RETRY` or `MANUAL_REQUIRED`.
    resolution: String,
    subject_type: String,
    subject_id: String,
    #[schema(format = DateTime)]
    detected_at: String,
    details: Value,
}

#[derive(ToSchema)]
#[schema(as = Races, rename_all = "camelCase")]
pub struct RacesSchema {
    items: Vec<RaceSchema>,
    next_cursor: Option<String>,
}
