//! The words that some fields and parameters are made of.

use serde_json::json;
use tashika_domain::payment::request::currencies;
use utoipa::openapi::schema::{AnyOfBuilder, KnownFormat, ObjectBuilder, Type};
use utoipa::openapi::{RefOr, Schema, SchemaFormat};
use utoipa::{PartialSchema, ToSchema};

/// A currency of ISO 4217.
pub struct CurrencySchema;

impl PartialSchema for CurrencySchema {
    fn schema() -> RefOr<Schema> {
        ObjectBuilder::new()
            .schema_type(Type::String)
            .enum_values(Some(currencies()))
            .examples([json!("JPY")])
            .into()
    }
}

impl ToSchema for CurrencySchema {
    fn name() -> std::borrow::Cow<'static, str> {
        "Currency".into()
    }
}

/// A day of the calendar.
#[derive(ToSchema)]
#[schema(as = Day, format = Date)]
pub struct DaySchema(String);

/// A day ends when it begins, in UTC.
pub struct DayOrMomentSchema;

impl PartialSchema for DayOrMomentSchema {
    fn schema() -> RefOr<Schema> {
        let text = |format| {
            let format = SchemaFormat::KnownFormat(format);
            ObjectBuilder::new().schema_type(Type::String).format(Some(format))
        };
        let either = AnyOfBuilder::new();
        either.item(text(KnownFormat::Date)).item(text(KnownFormat::DateTime)).into()
    }
}

impl ToSchema for DayOrMomentSchema {
    fn name() -> std::borrow::Cow<'static, str> {
        "DayOrMoment".into()
    }
}

/// An enumeration that is known by its words only.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident as $shown:tt { $($variant:ident = $word:tt),* $(,)? }) => {
        $(#[$doc])*
        #[derive(ToSchema)]
        #[schema(as = $shown)]
        pub enum $name {
            $(#[schema(rename = $word)] $variant),*
        }
    };
}

words!(CaseStatusSchema as CaseStatus { Open = "open", Resolved = "resolved" });
words!(AlertStateSchema as AlertState { Firing = "firing", Resolved = "resolved" });
words!(SeveritySchema as Severity { Warning = "warning", High = "high", Critical = "critical" });
words!(WebhookStatusSchema as WebhookStatus {
    Pending = "pending",
    Success = "success",
    Failed = "failed",
    Skipped = "skipped",
});
words!(ReservationStatusSchema as ReservationStatus {
    Hold = "hold",
    Confirmed = "confirmed",
    Expired = "expired",
    Cancelled = "cancelled",
});
words!(RenderStatusSchema as RenderStatus {
    Queued = "queued",
    Processing = "processing",
    Done = "done",
    Failed = "failed",
});
words!(
    /// `failed` will be tried again, `aborted` was given up.
    EffectStatusSchema as EffectStatus {
        Pending = "pending",
        Sending = "sending",
        Succeeded = "succeeded",
        Failed = "failed",
        Aborted = "aborted",
    }
);
words!(BillingStatusSchema as BillingStatus {
    Free = "free",
    EarlyPayment = "early_payment",
    Active = "active",
    PastDue = "past_due",
    Canceling = "canceling",
    Canceled = "canceled",
});
words!(MailFailureStatusSchema as MailFailureStatus {
    Failed = "failed",
    PossiblySent = "possiblySent",
});
words!(MailRetryStatusSchema as MailRetryStatus {
    Failed = "failed",
    PossiblySent = "possiblySent",
    Cancelled = "cancelled",
});
