//! Statements of SQL's PREPARE, which follow a session to its next connection at the anchor.
//!
//! The server itself tells their texts ([`super::leftovers`]), so what code has prepared is carried, too, and what it has deallocated
//! is not. A text is run again only if it is one PREPARE of that name and nothing else. Where one cannot be prepared at
//! once (a table is locked or gone), EXECUTE of it tries again and gets the error, as EXECUTE does on one server.
//!
//! Invariant: a connection to the anchor has them all before anything of the session runs there, less those that failed.

use std::sync::Arc;

use cluster::ids::ReplicaId;
use sql::{Asks, Statement, Verb};

use super::pins::{Pin, Pins};
use super::servers::{Server, Servers};
use super::state_sync::prepare_again;
use crate::error::Fault;
use crate::session::Session;

/// More of them stay on their connection. So do those of more than 64 kB, of which [`super::leftovers`] does not ask for the text.
const CARRIED_MAX: usize = 1_000;

/// One of them.
#[derive(Debug)]
pub(crate) struct Carried {
    name: String,
    /// The PREPARE, as the server got it.
    text: String,
    /// What it prepares.
    inner: Arc<Statement>,
}

/// Those of a session.
#[derive(Debug, Default)]
pub(crate) struct AllCarried(Vec<Carried>);

impl AllCarried {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn find(&self, name: &str) -> Option<&Carried> {
        self.0.iter().find(|carried| carried.name == name)
    }
}

impl Server {
    /// The session's statements are prepared here again.
    async fn prepare_again(&mut self, all: &AllCarried) -> Result<(), Fault> {
        for carried in &all.0 {
            if !prepare_again(self, &carried.text).await? {
                self.lacking.push(carried.name.clone());
            }
        }
        Ok(())
    }
}

impl Servers {
    /// Brings what PREPARE made to the connection to the anchor, if that is another one than before.
    pub(crate) async fn carry(&mut self, anchor: ReplicaId) -> Result<(), Fault> {
        if self.carried.is_empty() || self.find(anchor).is_none_or(|server| server.has_carried) {
            return Ok(());
        }
        // A former anchor would keep those that are deallocated from now on.
        for slot in &mut self.all {
            drop(slot.take_if(|server| server.has_carried && server.connection.is_at_rest()));
        }
        let Some(server) = self.all.get_mut(usize::from(anchor.0)).and_then(Option::as_mut) else {
            return Ok(());
        };
        server.has_carried = true;
        server.pins.add(Pin::Prepare);
        server.prepare_again(&self.carried).await
    }
}

impl Session {
    /// What PREPARE has made on a connection, by name and text; why that has to be kept.
    pub(crate) fn take_carried(&mut self, replica: ReplicaId, found: Vec<(String, Option<String>)>) -> Pins {
        let mut pins = Pins::default();
        if !found.is_empty() {
            pins.add(Pin::Prepare);
        }
        if replica == self.anchor() && self.carry_found(found) > 0 {
            pins.add(Pin::ForeignPrepare);
        }
        pins
    }

    /// What the anchor has from PREPARE is carried from now on; how many cannot be.
    fn carry_found(&mut self, found: Vec<(String, Option<String>)>) -> usize {
        let all = found.len();
        let carried = found.into_iter().filter_map(|(name, text)| self.carried(name, text?));
        let mut carried: Vec<Carried> = carried.take(CARRIED_MAX).collect();
        let missing = all - carried.len();
        let anchor = self.anchor();
        let lacking = self.servers.find(anchor).map(|server| {
            server.has_carried = true;
            server.lacking.clone()
        });
        let is_lacking = |one: &Carried| lacking.iter().flatten().any(|name| *name == one.name);
        let before = std::mem::take(&mut self.servers.carried.0);
        carried.extend(before.into_iter().filter(is_lacking));
        self.servers.carried = AllCarried(carried);
        missing
    }

    fn carried(&self, name: String, text: String) -> Option<Carried> {
        let script = self.script_inside(&text)?;
        let [part] = script.statements.as_slice() else { return None };
        match (&part.statement.verb, &part.statement.inner) {
            (Verb::Prepare { name: own }, Some(inner)) if *own == name => {
                Some(Carried { name, text, inner: Arc::clone(inner) })
            }
            _ => None,
        }
    }

    /// The statement that an EXECUTE runs, if it is known.
    pub(crate) fn executed_by(&self, statement: &Arc<Statement>) -> Option<&Arc<Statement>> {
        let Verb::Execute { name } = &statement.verb else { return None };
        self.servers.carried.find(name).map(|carried| &carried.inner)
    }

    /// What its stand-ins have to be told.
    pub(crate) fn asks_of_execute(&self, statement: &Arc<Statement>) -> Asks {
        self.executed_by(statement).map(|inner| sql::asks_of(inner)).unwrap_or_default()
    }

    /// Prepares a statement of which that has failed, now that it is to be executed.
    pub(crate) async fn prepare_lacking(&mut self, name: &str) -> Result<(), Fault> {
        let anchor = self.anchor();
        let Some(carried) = self.servers.carried.find(name) else { return Ok(()) };
        let text = carried.text.clone();
        let Some(server) = self.servers.find(anchor) else { return Ok(()) };
        let Some(at) = server.lacking.iter().position(|lacking| lacking == name) else { return Ok(()) };
        server.run_for_client(&text).await.map_err(Fault::at(anchor))?;
        server.lacking.remove(at);
        Ok(())
    }
}
