//! Folding what a batch of records did to each key.
//!
//! Two rows of a key count over a batch: the one that was found first and the one that was left last. Within a record
//! that is its net effect ([`super::net`]); from record to record versions give the order, and images are not compared,
//! since they may come from different servers.
//!
//! A row that was written and is as it was (`SET n = n`, to be in the way of others, or there and back) is written here,
//! too: a snapshot of before may not overwrite it at REPEATABLE READ, at this replica either. Which of its images it has
//! the order does not tell, so it is told to stay as it is. Not so a row that was removed and put in again as it was: it
//! cannot be told from one that came here from another key and went on to a third.
//!
//! Keys are compared as bytes. Equal values of different bytes (1.0 and 1.00) are different keys here; that is sound,
//! since they never exist at once, and deletes go first. A deferrable key may exist twice while a record is applied in
//! pieces: tables with one are not folded.

use indexmap::IndexMap;
use indexmap::map::Entry;

use super::net::Net;
use super::{RefreshError, RefreshTable, Values};
use crate::record::Change;

/// The row found and the row left; None is no row.
pub(super) type Ends<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// The effect of a batch on a key.
pub(super) enum Folded<'a> {
    /// It led from one to the other.
    Ends(Ends<'a>),
    /// The row was written, and is as it was; an image with its key.
    Kept(&'a [u8]),
}

/// A table's changes by key, in the order in which the keys first occur.
#[derive(Debug, Default)]
pub(super) struct Folds<'a> {
    by_key: IndexMap<Values<'a>, Row<'a>>,
    /// The places of the keys that the present record concerns.
    touched: Vec<usize>,
}

#[derive(Debug, Default)]
struct Row<'a> {
    /// Over the records that are complete; None when they leave it alone.
    before: Option<Ends<'a>>,
    /// Over the present record, as long as its changes lead from one to the next.
    own: Option<Ends<'a>>,
    /// Its changes that do not.
    loose: Vec<Ends<'a>>,
    /// The present record made or removed a row of this key.
    is_made_or_removed: bool,
    /// A record wrote the row and left it as it was.
    kept: Option<&'a [u8]>,
}

impl<'a> Folds<'a> {
    /// Adds a change of the present record. A change of the key counts as a delete and an insert.
    pub(super) fn change(&mut self, table: &RefreshTable, change: Change<'a>) -> Result<(), RefreshError> {
        match change {
            Change::Insert { new } => self.half(table.key_of(new)?, (None, Some(new))),
            Change::Delete { old } => self.half(table.key_of(old)?, (Some(old), None)),
            Change::Update { old, new } => {
                let (before, after) = (table.key_of(old)?, table.key_of(new)?);
                if before == after {
                    self.half(before, (Some(old), Some(new)));
                } else {
                    self.half(before, (Some(old), None));
                    self.half(after, (None, Some(new)));
                }
            }
            Change::Truncate => unreachable!("a TRUNCATE does not wait"),
        }
        Ok(())
    }

    fn half(&mut self, key: Values<'a>, (found, left): Ends<'a>) {
        let entry = self.by_key.entry(key);
        let place = match &entry {
            Entry::Occupied(entry) => entry.index(),
            Entry::Vacant(entry) => entry.index(),
        };
        let row = entry.or_default();
        row.is_made_or_removed |= found.is_none() || left.is_none();
        match &mut row.own {
            None => {
                row.own = Some((found, left));
                self.touched.push(place);
            }
            Some(own) if row.loose.is_empty() && own.1 == found => own.1 = left,
            Some(_) => row.loose.push((found, left)),
        }
    }

    /// The present record is complete.
    pub(super) fn end_record(&mut self, table: &RefreshTable) -> Result<(), RefreshError> {
        let inconsistent = || RefreshError::Inconsistent { table: table.name.clone() };
        for place in self.touched.drain(..) {
            let row = &mut self.by_key[place];
            let is_made_or_removed = std::mem::take(&mut row.is_made_or_removed);
            let image = row.own.and_then(|own| own.0);
            let own = row.own.take().into_iter().chain(row.loose.drain(..));
            let (found, left) = ends(own).ok_or_else(inconsistent)?;
            if found == left {
                row.kept = row.kept.or_else(|| image.filter(|_| !is_made_or_removed));
                continue;
            }
            match &mut row.before {
                None => row.before = Some((found, left)),
                Some(before) if before.1.is_some() == found.is_some() => before.1 = left,
                Some(_) => return Err(inconsistent()),
            }
        }
        Ok(())
    }

    /// The effect on each key.
    pub(super) fn into_folded(self) -> impl Iterator<Item = Folded<'a>> {
        self.by_key
            .into_values()
            .filter_map(|row| row.before.map(Folded::Ends).or_else(|| row.kept.map(Folded::Kept)))
    }
}

/// The effect of one record on one key; None if there would be two rows of that key before or after it.
fn ends<'a>(mut changes: impl Iterator<Item = Ends<'a>>) -> Option<Ends<'a>> {
    let first = changes.next()?;
    let Some(second) = changes.next() else { return Some(first) };
    let mut net = Net::default();
    for (found, left) in [first, second].into_iter().chain(changes) {
        net.found.extend(found);
        net.left.extend(left);
    }
    net.cancel();
    let single = |images: &[&'a [u8]]| match images {
        [] => Some(None),
        [image] => Some(Some(*image)),
        _ => None,
    };
    Some((single(&net.found)?, single(&net.left)?))
}
