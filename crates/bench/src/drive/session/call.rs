//! Transactions that are one statement, and so have no BEGIN that names their level of isolation.
//!
//! The level is `default_transaction_isolation` of the connection, set before the first of them. A call may undo itself
//! because its input demands it; the SQLSTATE with which it does is expected and no failure.

use testbed::refusal::Refusal;
use tokio_postgres::Row;

use super::{Connection, Session, TRIES_MAX, Tries, Values};

/// A call that is a whole transaction.
#[derive(Clone, Copy)]
pub(crate) struct Call<'a> {
    /// The name of its text.
    pub(crate) name: &'static str,
    /// Its arguments.
    pub(crate) values: Values<'a>,
    /// The account that it adds to, and how much.
    pub(crate) entered: (&'static str, Added),
    /// The SQLSTATE with which it undoes itself because its input demands it.
    pub(crate) undone_by: Option<&'static str>,
}

/// How much a call adds to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Added {
    /// One.
    One,
    /// What the first column of its row says, at most this.
    Told(i32),
}

impl Session {
    /// Runs a statement that reads, by itself, at the level of this session.
    pub(crate) async fn look_isolated(
        &mut self,
        name: &'static str,
        values: Values<'_>,
    ) -> Result<Vec<Row>, Refusal> {
        let connection = self.reader.as_mut().unwrap_or(&mut self.main);
        connection.isolate(self.isolation).await?;
        again_and_again(connection, &mut self.tries, name, values).await
    }

    /// Calls something that is a whole transaction, at the level of this session.
    pub(crate) async fn call(&mut self, call: Call<'_>) -> Result<(), Refusal> {
        self.main.isolate(self.isolation).await?;
        let (account, added) = call.entered;
        match again_and_again(&mut self.main, &mut self.tries, call.name, call.values).await {
            Ok(rows) => {
                let count = match (added, rows.first()) {
                    (Added::One, _) => 1,
                    (Added::Told(_), Some(row)) => row.get(0),
                    (Added::Told(_), None) => {
                        return Err(Refusal::Told(format!("{} has no row", call.name)));
                    }
                };
                self.ledger.tell(&[(account, i64::from(count))]);
                Ok(())
            }
            Err(Refusal::Told(why)) if call.undone_by.is_some_and(|state| why.starts_with(state)) => {
                self.tries.undone += 1;
                Ok(())
            }
            Err(why) => {
                if matches!(why, Refusal::Lost(_) | Refusal::Stuck(_)) {
                    let most = if let Added::Told(most) = added { most } else { 1 };
                    self.ledger.doubt(&[(account, i64::from(most))]);
                }
                Err(why)
            }
        }
    }
}

/// Runs a statement by itself, again and again.
pub(super) async fn again_and_again(
    connection: &mut Connection,
    tries: &mut Tries,
    name: &'static str,
    values: Values<'_>,
) -> Result<Vec<Row>, Refusal> {
    for _ in 1..TRIES_MAX {
        match connection.rows(name, values).await {
            Err(Refusal::Again(why)) => tries.again(&why),
            outcome => return outcome,
        }
    }
    connection.rows(name, values).await
}
