//! Folding the changes of each key into their net effect.
//!
//! What counts of a key over a batch is the row that was found first and the row that was left last. This needs no
//! unique index beside the primary key's: with another one, the states in between matter, too.
//!
//! Keys are compared as bytes. Equal values of different bytes (1.0 and 1.00) are different keys here; that is sound,
//! since they never exist at once, and deletes go first.

use indexmap::IndexMap;

use super::{RefreshError, RefreshTable, Values};
use crate::record::Change;

/// The row found and the row left; None is no row.
type Net<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Found and left for each key, in the order in which the keys first occur. A change of the key counts as a delete and
/// an insert.
pub(super) fn net_effects<'a>(
    table: &RefreshTable,
    changes: Vec<Change<'a>>,
) -> Result<impl Iterator<Item = Net<'a>>, RefreshError> {
    let mut nets = Nets { table, by_key: IndexMap::with_capacity(changes.len()) };
    for change in changes {
        match change {
            Change::Insert { new } => nets.change(table.key_of(new)?, None, Some(new))?,
            Change::Delete { old } => nets.change(table.key_of(old)?, Some(old), None)?,
            Change::Update { old, new } => {
                let (before, after) = (table.key_of(old)?, table.key_of(new)?);
                if before == after {
                    nets.change(before, Some(old), Some(new))?;
                } else {
                    nets.change(before, Some(old), None)?;
                    nets.change(after, None, Some(new))?;
                }
            }
            Change::Truncate => unreachable!("a TRUNCATE does not wait"),
        }
    }
    Ok(nets.by_key.into_values())
}

struct Nets<'t, 'a> {
    table: &'t RefreshTable,
    by_key: IndexMap<Values<'a>, Net<'a>>,
}

impl<'a> Nets<'_, 'a> {
    fn change(
        &mut self,
        key: Values<'a>,
        found: Option<&'a [u8]>,
        left: Option<&'a [u8]>,
    ) -> Result<(), RefreshError> {
        match self.by_key.entry(key) {
            indexmap::map::Entry::Vacant(entry) => {
                entry.insert((found, left));
            }
            indexmap::map::Entry::Occupied(mut entry) => {
                let net = entry.get_mut();
                // Images are not compared: those of different records may come from different servers.
                if net.1.is_some() != found.is_some() {
                    return Err(RefreshError::Inconsistent { table: self.table.name.clone() });
                }
                net.1 = left;
            }
        }
        Ok(())
    }
}
