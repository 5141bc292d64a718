//! Billings, as callers make and read them.

use serde_json::Value;
use tashika_domain::Timestamp;
use tashika_domain::audit::Actor;
use tashika_domain::billing::{self, Billing, Status};
use tashika_domain::check::Violation;
use tashika_store::{CommitError, Key, Store, StoreError};
use uuid::Uuid;

use crate::clock::{Clock, Ids};

/// What callers may do with billings.
pub struct Billings {
    store: Store,
    clock: Clock,
    ids: Ids,
}

/// Why a request was not taken.
#[derive(Debug, thiserror::Error)]
pub enum BillingError {
    #[error("the request is not valid")]
    Invalid(Vec<Violation>),
    #[error("the office or the customer has a billing already")]
    Exists,
    #[error("no such billing")]
    NotFound,
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Billings {
    #[must_use]
    pub const fn new(store: Store, clock: Clock, ids: Ids) -> Self {
        Self { store, clock, ids }
    }

    pub async fn create(&self, who: &str, body: &Value) -> Result<Billing, BillingError> {
        let wish = billing::parse(body).map_err(BillingError::Invalid)?;
        let now: Timestamp = self.clock.now();
        let billing = Billing {
            id: self.ids.uuid(),
            version: 1,
            office_id: wish.office_id,
            stripe_customer_id: wish.stripe_customer_id,
            stripe_subscription_id: None,
            status: Status::Free,
            trial_end_date: wish.trial_end_date,
            last_payment_at: None,
            payment_as_of: None,
            subscription_as_of: None,
            created_at: now,
            updated_at: now,
        };
        match self.store.commit(billing::create(&billing, Actor::caller(who))).await {
            Ok(()) => Ok(billing),
            Err(CommitError::Taken(Key::Billing)) => Err(BillingError::Exists),
            Err(CommitError::Store(error)) => Err(error.into()),
            Err(other) => Err(StoreError::Rejected(other.to_string()).into()),
        }
    }

    pub async fn find(&self, id: Uuid) -> Result<Billing, BillingError> {
        self.store.billing(id).await?.ok_or(BillingError::NotFound)
    }

    /// A page of billings, newest first.
    pub async fn list(
        &self,
        office_id: Option<&str>,
        before: Option<Uuid>,
        limit: i64,
    ) -> Result<Vec<Billing>, BillingError> {
        Ok(self.store.billings(office_id, before, limit).await?)
    }
}
