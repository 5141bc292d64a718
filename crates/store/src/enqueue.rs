//! Enqueueing inside somebody else's transaction.

use tashika_domain::NewEffect;
use tokio_postgres::GenericClient;

use crate::error::{CommitError, Key};
use crate::outbox;

/// Enqueues an effect on the caller's own PostgreSQL connection or transaction.
///
/// The effect exists exactly if the caller's transaction commits, and workers are woken by that
/// commit. The connection's `search_path` must lead to Tashika's tables. A key that is taken is
/// reported, and leaves the caller's transaction usable.
pub async fn enqueue_in<C: GenericClient>(
    client: &C,
    effect: &NewEffect,
) -> Result<(), CommitError> {
    let params = outbox::enqueue_params(&[(0, effect)]);
    let params: Vec<&(dyn tokio_postgres::types::ToSql + Sync)> =
        params.iter().map(|param| &**param as _).collect();
    let rows = client.query(outbox::ENQUEUE_PG, &params).await.map_err(into_commit)?;
    if rows.is_empty() {
        return Err(CommitError::Taken(Key::Effect));
    }
    if effect.run_at <= effect.created_at {
        let payload = format!("{} {}", effect.lane, effect.run_at.as_micros());
        client
            .execute("select pg_notify('tashika_outbox', $1)", &[&payload])
            .await
            .map_err(into_commit)?;
    }
    Ok(())
}

fn into_commit(error: tokio_postgres::Error) -> CommitError {
    CommitError::Store(error.into())
}
