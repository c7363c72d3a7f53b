//! Reads the catalogue of a server that may change its schema meanwhile.

use std::time::Duration;

use cluster::ids::DatabaseId;
use wire::backend::Fields;
use wire::sqlstate;

use crate::backend::{BackendError, OwnConnection};
use crate::capture;

/// After so many failed readings the server is taken to be out of order, not counting those that met a lock. A pause lies between
/// two readings.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);

/// Reads the catalogue. The server's functions that show definitions look past the transaction's snapshot, so they fail
/// if an object is dropped meanwhile. Then the agent reads again. While an open schema change holds a lock in its way,
/// it reads again for as long as that takes.
pub(crate) async fn load_catalogue(
    control: &mut OwnConnection,
    database: DatabaseId,
    generation: u64,
) -> Result<sql::Catalogue, BackendError> {
    let mut attempts = 1;
    loop {
        match capture::catalogue::load(control, database, generation).await {
            Err(BackendError::Server(body)) if attempts < ATTEMPTS => {
                let is_locked = Fields::new(&body).sqlstate() == sqlstate::LOCK_NOT_AVAILABLE.as_bytes();
                tracing::debug!(reason = %BackendError::Server(body), "the catalogue is read again");
                control.query("ROLLBACK").await?;
                tokio::time::sleep(PAUSE).await;
                attempts += u32::from(!is_locked);
            }
            outcome => return outcome,
        }
    }
}
