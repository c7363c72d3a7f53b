//! The proxy of a replica with several schedulers: it answers the scheduler that a transaction belongs to.
//!
//! Example: scheduler 1 fails, and scheduler 2 sends `Undo` for its number 7. From then on 7 belongs to scheduler 2, also if a message
//! of scheduler 1 comes late.

use std::collections::BTreeMap;

use crate::ids::SessionId;

use super::message::{FromProxy, SchedulerId, SequenceNumber, ToProxy, Transaction};
use super::proxy::{Proxy, ProxyOutput, Work};

/// An output of such a proxy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RoutedOutput {
    /// To the database.
    Database(Transaction, Work),
    /// To this scheduler, with the load of the database.
    Report(SchedulerId, FromProxy, u64),
}

/// A proxy with several schedulers.
#[derive(Debug, Default)]
pub struct SharedProxy {
    proxy: Proxy,
    numbered: BTreeMap<SequenceNumber, Owner>,
    singles: BTreeMap<SessionId, SchedulerId>,
    outputs: Vec<ProxyOutput>,
}

#[derive(Clone, Copy, Debug)]
enum Owner {
    First(SchedulerId),
    /// A fail-over scheduler.
    TookOver(SchedulerId),
}

impl SharedProxy {
    /// One with this state.
    pub fn new(proxy: Proxy) -> Self {
        Self { proxy, ..Self::default() }
    }

    /// A message of a scheduler has arrived.
    pub fn handle(&mut self, from: SchedulerId, message: ToProxy, out: &mut Vec<RoutedOutput>) {
        let number = message.number();
        match (&message, number) {
            (ToProxy::SingleRead { session, .. }, _) => {
                self.singles.insert(*session, from);
            }
            (ToProxy::Redo { .. } | ToProxy::Undo { .. }, Some(number)) => {
                self.numbered.insert(number, Owner::TookOver(from));
            }
            (_, Some(number)) => {
                let owner = self.numbered.entry(number).or_insert(Owner::First(from));
                if let Owner::First(first) = owner {
                    *first = from;
                }
            }
            (_, None) => {}
        }
        self.proxy.handle(message, &mut self.outputs);
        self.route(out);
        if let Some(number) = number.filter(|number| *number <= self.proxy.over()) {
            // It came late, for what is over.
            self.numbered.remove(&number);
        }
    }

    /// The database has done its present work for this transaction.
    pub fn finished(&mut self, name: Transaction, out: &mut Vec<RoutedOutput>) {
        self.proxy.finished(name, &mut self.outputs);
        self.route(out);
    }

    /// The proxy itself.
    pub fn proxy(&self) -> &Proxy {
        &self.proxy
    }

    fn route(&mut self, out: &mut Vec<RoutedOutput>) {
        let load_us = self.proxy.load_us();
        for output in self.outputs.drain(..) {
            let report = match output {
                ProxyOutput::Database(name, work) => {
                    out.push(RoutedOutput::Database(name, work));
                    continue;
                }
                ProxyOutput::Report(report) => report,
            };
            let to = match report {
                FromProxy::Granted(number) | FromProxy::Done(number, _) => {
                    self.numbered.get(&number).copied()
                }
                FromProxy::Ended(number, _) => self.numbered.remove(&number),
                FromProxy::Read(session, _) => self.singles.remove(&session).map(Owner::First),
            };
            if let Some(Owner::First(to) | Owner::TookOver(to)) = to {
                out.push(RoutedOutput::Report(to, report, load_us));
            }
        }
    }
}
