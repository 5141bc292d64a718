//! The sandbox gateway's book, kept in our own database.

use tashika_domain::Timestamp;
use tashika_providers::gateway::sandbox::SandboxBook;
use tashika_providers::reply::BoxFuture;
use tashika_store::{SandboxRow, Store};
use uuid::Uuid;

/// What the sandbox knows, in the store.
pub struct StoredBook(pub Store);

impl SandboxBook for StoredBook {
    fn load(&self, id: Uuid) -> BoxFuture<'_, Result<Option<(i64, String)>, String>> {
        Box::pin(async move {
            let found = self.0.sandbox_payment(id).await.map_err(|error| error.to_string())?;
            Ok(found.map(|row| (row.version, row.state)))
        })
    }

    fn save<'a>(
        &'a self,
        id: Uuid,
        expected: i64,
        state: &'a str,
        created_at: Timestamp,
    ) -> BoxFuture<'a, Result<bool, String>> {
        Box::pin(async move {
            let row = SandboxRow { id, version: expected + 1, state: state.to_owned() };
            self.0.save_sandbox_payment(row, created_at).await.map_err(|error| error.to_string())
        })
    }

    fn list(
        &self,
        from: Timestamp,
        until: Timestamp,
        after: Option<Uuid>,
        limit: i64,
    ) -> BoxFuture<'_, Result<Vec<(Uuid, String)>, String>> {
        Box::pin(async move {
            let rows = self.0.sandbox_payments(from, until, after, limit).await;
            let rows = rows.map_err(|error| error.to_string())?;
            Ok(rows.into_iter().map(|row| (row.id, row.state)).collect())
        })
    }
}
