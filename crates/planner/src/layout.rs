//! Where columns are, homes and copies: what reads are fitted to.

use std::collections::BTreeSet;

use crate::column::Column;

/// The services by their columns.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Layout {
    /// The columns at home in each service.
    pub(crate) services: Vec<BTreeSet<Column>>,
    /// Copies in each service.
    pub(crate) copies: Vec<BTreeSet<Column>>,
    /// The columns of all primary keys.
    pub(crate) keys: BTreeSet<Column>,
}

impl Layout {
    /// Whether a service has a column. The key of a table is wherever a part of it is.
    pub(crate) fn holds(&self, service: usize, column: &Column) -> bool {
        let (own, copies) = (&self.services[service], &self.copies[service]);
        let here = own.contains(column) || copies.contains(column);
        here || (self.keys.contains(column)
            && own.iter().chain(copies).any(|other| other.table == column.table))
    }

    pub(crate) fn is_key(&self, column: &Column) -> bool {
        self.keys.contains(column)
    }

    /// The service to take a column from: this one if it has it, else its home, or the first that has its table.
    pub(crate) fn nearest(&self, column: &Column, service: usize) -> usize {
        if self.holds(service, column) {
            return service;
        }
        let home = (0..self.services.len()).find(|&at| self.services[at].contains(column));
        home.or_else(|| (0..self.services.len()).find(|&at| self.holds(at, column))).unwrap_or(service)
    }
}
