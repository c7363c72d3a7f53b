//! The net effect of a record on the rows of a table.
//!
//! A transaction turns one set of rows into another. Its record reports how, change by change, but not always in the
//! order in which they were made: a statement fires the triggers of its rows at its end, so what a user's trigger for
//! the first row does to the second is reported before the statement's own change of the second. And a deferrable key
//! may be held by two rows for a while. So the order inside a record counts for nothing here. Images that were both left
//! and found cancel out, as often as they were; what remains was there before the record, or is there after it.
//!
//! An image that was only ever written as it was (`SET n = n`) was there before and after, and is both found and left, so
//! that it is written at other replicas, too: that is in the way of a snapshot of before, as at home. Not so what a
//! record changed and changed back in more than one step, when nothing tells where that began.
//!
//! Images are compared as bytes, which is sound inside one record: all of them come from one server.

use std::collections::{BTreeMap, BTreeSet};

use crate::record::Change;

/// Rows that a record found and did not leave, and rows that it left and had not found.
#[derive(Debug, Default)]
pub(super) struct Net<'a> {
    pub(super) found: Vec<&'a [u8]>,
    pub(super) left: Vec<&'a [u8]>,
    /// Rows that were written as they were.
    kept: Vec<&'a [u8]>,
}

impl<'a> Net<'a> {
    /// Adds a change.
    pub(super) fn change(&mut self, change: Change<'a>) {
        match change {
            Change::Insert { new } => self.left.push(new),
            Change::Delete { old } => self.found.push(old),
            Change::Update { old, new } if old == new => self.kept.push(old),
            Change::Update { old, new } => {
                self.found.push(old);
                self.left.push(new);
            }
            Change::Truncate => unreachable!("a TRUNCATE does not wait"),
        }
    }

    /// Takes out what was both found and left, unless all that was done to it is that it was written as it was; the order
    /// of the others stays.
    pub(super) fn cancel(&mut self) {
        let mut kept: BTreeSet<&[u8]> = self.kept.drain(..).collect();
        if !kept.is_empty() {
            for image in self.found.iter().chain(&self.left) {
                kept.remove(image);
            }
        }
        self.cancel_balanced();
        self.found.extend(&kept);
        self.left.extend(kept);
    }

    fn cancel_balanced(&mut self) {
        if self.found.is_empty() || self.left.is_empty() {
            return;
        }
        // How often each image was left more often than found.
        let mut surplus: BTreeMap<&[u8], i64> = BTreeMap::new();
        for image in &self.left {
            *surplus.entry(image).or_default() += 1;
        }
        for image in &self.found {
            *surplus.entry(image).or_default() -= 1;
        }
        let mut missing = surplus.clone();
        self.left.retain(|image| {
            surplus.get_mut(image).is_some_and(|count| {
                *count -= 1;
                *count >= 0
            })
        });
        self.found.retain(|image| {
            missing.get_mut(image).is_some_and(|count| {
                *count += 1;
                *count <= 0
            })
        });
    }
}
