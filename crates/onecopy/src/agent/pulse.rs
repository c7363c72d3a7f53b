//! Whether a server still answers.
//!
//! A server that was killed closes its connections, which is seen at once. One that hangs, or that the network has lost,
//! says nothing at all. So a connection of its own asks it for a sign of life, again and again, and a server that gave
//! none for as long as the operator allows is given up. Well before that it is suspected, and reads go elsewhere.
//!
//! The question waits for no lock and no disk, so an answer that is late means that nobody gets any. It is the one by which
//! each connection of a session proves to speak with the server of this incarnation, whether the applier's lock is held:
//! code of users in an index or a CHECK runs in the applier as well and may have released it (`pg_advisory_unlock_all`),
//! and no session gets a connection then until the lock is taken anew.

use std::future::Future;
use std::pin::pin;
use std::time::Duration;

use tokio::time::{sleep, timeout};

use crate::backend::Connection;

/// The pause between two questions, and the time after which a server is suspected, as parts of the deadline.
const PARTS: u32 = 4;
const LOCK_RELEASED: &str =
    "the advisory lock of the applier was released, maybe by a function in an index, a CHECK or a domain";

/// Asks `proof_sql` until there is no answer, or none that proves anything; why the server is given up. `suspect` is told
/// when a doubt begins and when it ends.
pub(super) async fn watch<F: Future<Output = ()>>(
    connection: &mut Connection,
    proof_sql: &str,
    deadline: Duration,
    suspect: impl Fn(bool) -> F,
) -> String {
    let part = deadline / PARTS;
    loop {
        sleep(part).await;
        let mut answer = pin!(connection.simple(proof_sql));
        let mut answered = timeout(part, &mut answer).await.ok();
        if answered.is_none() {
            suspect(true).await;
            answered = timeout(part * (PARTS - 2), &mut answer).await.ok();
            if answered.is_some() {
                suspect(false).await;
            }
        }
        let Some(answered) = answered else {
            return format!("the server has not answered for {deadline:?}");
        };
        match answered {
            Ok(rows) if rows.is_empty() => return LOCK_RELEASED.to_owned(),
            Ok(_) => {}
            Err(error) => return error.to_string(),
        }
    }
}
