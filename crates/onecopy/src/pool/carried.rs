//! Statements of SQL's PREPARE, which follow a session to its next connection at the anchor.
//!
//! The texts come from the server ([`super::leftovers`]), so statements that code has prepared are carried, too, and those
//! that code has deallocated are not. A text is run again only if it is one PREPARE of that name and nothing else. If a
//! statement cannot be prepared at once (a table is locked or gone), its EXECUTE tries again and gets the error, as on one
//! server.
//!
//! Invariant: a connection to the anchor has them all, less those that failed, before it runs a statement of the session.

use std::sync::Arc;

use cluster::ids::ReplicaId;
use sql::Statement;

use super::servers::{Server, Servers};
use super::state_sync::prepare_again;
use crate::error::Fault;
use crate::local::pins::Pin;

/// One prepared statement.
#[derive(Debug)]
pub(crate) struct Carried {
    pub(crate) name: String,
    /// The PREPARE, as the server got it.
    pub(crate) text: String,
    /// The statement that it prepares.
    pub(crate) inner: Arc<Statement>,
}

/// The prepared statements of a session.
#[derive(Debug, Default)]
pub(crate) struct AllCarried(pub(crate) Vec<Carried>);

impl AllCarried {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn find(&self, name: &str) -> Option<&Carried> {
        self.0.iter().find(|carried| carried.name == name)
    }
}

/// Which statements of SQL's PREPARE one connection has.
#[derive(Debug, Default)]
pub(crate) struct CarriedHere {
    /// The session's statements were prepared here.
    pub(crate) is_here: bool,
    /// The names of those that could not be prepared again.
    pub(crate) lacking: Vec<String>,
}

impl Server {
    /// Prepares the session's statements here again.
    async fn prepare_again(&mut self, all: &AllCarried) -> Result<(), Fault> {
        for carried in &all.0 {
            if !prepare_again(self, &carried.text).await? {
                self.carried.lacking.push(carried.name.clone());
            }
        }
        Ok(())
    }
}

impl Servers {
    /// Prepares the statements on the connection to the anchor, if that is a new one.
    pub(crate) async fn carry(&mut self, anchor: ReplicaId) -> Result<(), Fault> {
        if self.carried.is_empty() || self.find(anchor).is_none_or(|server| server.carried.is_here) {
            return Ok(());
        }
        // A connection to a former anchor would keep statements that are deallocated from now on.
        for slot in &mut self.all {
            drop(slot.take_if(|server| server.carried.is_here && server.connection.is_at_rest()));
        }
        let Some(server) = self.all.get_mut(usize::from(anchor.0)).and_then(Option::as_mut) else {
            return Ok(());
        };
        server.carried.is_here = true;
        server.pins.add(Pin::Prepare);
        server.prepare_again(&self.carried).await
    }
}
