//! Statements of SQL's PREPARE follow the session to its next connection at the anchor ([`crate::pool::carried`]).

use std::sync::Arc;

use cluster::ids::ReplicaId;
use sql::{Asks, Statement, Verb};

use crate::connect::Connector;
use crate::error::Fault;
use crate::local::pins::{Pin, Pins};
use crate::pool::carried::{AllCarried, Carried};
use crate::transaction::view::View;

/// More statements than this pin the session to its connection. So does a statement of more than 64 kB, of which
/// [`super::leftovers`] does not ask for the text.
const CARRIED_MAX: usize = 1_000;

impl<'a> View<'a> {
    /// A statement of PREPARE by its text; `None` if the text is another one, or more than one.
    pub(crate) fn carried(self, name: String, text: String) -> Option<Carried> {
        let script = self.link.script_inside(&text)?;
        let [part] = script.statements.as_slice() else { return None };
        match (&part.statement.verb, &part.statement.inner) {
            (Verb::Prepare { name: own }, Some(inner)) if *own == name => {
                Some(Carried { name, text, inner: Arc::clone(inner) })
            }
            _ => None,
        }
    }

    /// The statement that an EXECUTE runs, if it is known.
    pub(crate) fn executed_by(self, statement: &Arc<Statement>) -> Option<&'a Arc<Statement>> {
        let Verb::Execute { name } = &statement.verb else { return None };
        self.link.servers.carried.find(name).map(|carried| &carried.inner)
    }

    /// The values that the stand-ins of the executed statement ask for.
    pub(crate) fn asks_of_execute(self, statement: &Arc<Statement>) -> Asks {
        self.executed_by(statement).map(|inner| sql::asks_of(inner)).unwrap_or_default()
    }
}

impl Connector<'_> {
    /// Takes over the statements that PREPARE made on a connection, by name and text. Returns why the connection has
    /// to be kept.
    pub(crate) fn take_carried(&mut self, replica: ReplicaId, found: Vec<(String, Option<String>)>) -> Pins {
        let mut pins = Pins::default();
        if !found.is_empty() {
            pins.add(Pin::Prepare);
        }
        if replica == self.link.anchor() && self.carry_found(found) > 0 {
            pins.add(Pin::ForeignPrepare);
        }
        pins
    }

    /// Carries the prepared statements of the anchor from now on. Returns how many cannot be carried.
    fn carry_found(&mut self, found: Vec<(String, Option<String>)>) -> usize {
        let all = found.len();
        let carried = found.into_iter().filter_map(|(name, text)| self.view().carried(name, text?));
        let mut carried: Vec<Carried> = carried.take(CARRIED_MAX).collect();
        let missing = all - carried.len();
        let anchor = self.link.anchor();
        let lacking = self.link.servers.find(anchor).map(|server| {
            server.carried.is_here = true;
            server.carried.lacking.clone()
        });
        let is_lacking = |one: &Carried| lacking.iter().flatten().any(|name| *name == one.name);
        let before = std::mem::take(&mut self.link.servers.carried.0);
        carried.extend(before.into_iter().filter(is_lacking));
        self.link.servers.carried = AllCarried(carried);
        missing
    }

    /// Prepares a statement again whose first attempt on this connection failed, since EXECUTE needs it now.
    pub(crate) async fn prepare_lacking(&mut self, name: &str) -> Result<(), Fault> {
        let anchor = self.link.anchor();
        let Some(carried) = self.link.servers.carried.find(name) else { return Ok(()) };
        let text = carried.text.clone();
        let Some(server) = self.link.servers.find(anchor) else { return Ok(()) };
        let Some(at) = server.carried.lacking.iter().position(|lacking| lacking == name) else {
            return Ok(());
        };
        server.run_for_client(&text).await.map_err(Fault::at(anchor))?;
        server.carried.lacking.remove(at);
        Ok(())
    }
}
