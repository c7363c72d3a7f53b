//! The tables that are split, and the part of a row or a statement, by one catalogue.
//!
//! Example: `district` is split by `d_w_id`. A captured row with 3 there is in the part of `3`, and so is
//! `UPDATE district SET .. WHERE d_w_id = 3 AND d_id = 7`. `SELECT sum(d_ytd) FROM district` touches all parts.
//!
//! Invariant: what is concluded here names its edition ([`cluster::placement::Edition`]). If a table is split otherwise meanwhile, the
//! core takes it for all parts, and appends no row that was put into a part so.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use cluster::ids::{PartId, TableId};
use cluster::placement::{Edition, PartSet, Placement, Touches, part_of};
use cluster::record::Image;
use sql::Catalogue;
use sql::accesses::{Accesses, named_values, split_value};

use super::Coordinator;
use crate::capture::TellsParts;

/// The column of a table that is split.
#[derive(Clone, Copy, Debug)]
struct SplitColumn {
    /// Its position among the columns of the catalogue, and of images.
    position: usize,
    /// The number of parts.
    count: u8,
}

/// The splits of one edition, by one catalogue.
#[derive(Clone, Debug)]
pub(crate) struct Splits {
    edition: Edition,
    catalogue: Arc<Catalogue>,
    columns: BTreeMap<TableId, SplitColumn>,
}

/// The splits that were asked for last, and those where no table is split.
#[derive(Debug)]
pub(crate) struct LastSplits {
    last: Mutex<Option<Arc<Splits>>>,
    none: Arc<Splits>,
}

impl Default for LastSplits {
    fn default() -> Self {
        Self { last: Mutex::default(), none: Arc::new(Splits::none()) }
    }
}

impl Splits {
    /// No table is split.
    pub(crate) fn none() -> Self {
        Self { edition: Edition::default(), catalogue: Arc::default(), columns: BTreeMap::new() }
    }

    /// The generation of the catalogue.
    pub(crate) fn generation(&self) -> u64 {
        self.catalogue.generation()
    }

    /// Whether a table is split.
    pub(crate) fn has(&self, table: TableId) -> bool {
        self.columns.contains_key(&table)
    }

    fn part_of_row(&self, table: TableId, image: &[u8]) -> Option<PartId> {
        let SplitColumn { position, count } = *self.columns.get(&table)?;
        let known = self.catalogue.table(table)?;
        let image = Image::parse(image).ok().filter(|image| image.width() == known.columns.len())?;
        let values: Vec<Option<&[u8]>> = image.values().collect();
        let value = split_value(known, position, &values)?;
        Some(part_of(value.as_deref(), count))
    }

    /// What statements touch in these tables. `accesses` are all that they do, if that is known by rows.
    pub(crate) fn touches(&self, tables: BTreeSet<TableId>, accesses: Option<&Accesses>) -> Touches {
        let any_is_split = tables.iter().any(|table| self.has(*table));
        let parts = accesses.filter(|_| any_is_split).and_then(|accesses| self.parts(accesses));
        let tables = tables.into_iter().collect();
        match parts {
            Some(parts) => Touches::Parts { tables, parts, edition: self.edition },
            None => Touches::Tables(tables),
        }
    }

    fn parts(&self, accesses: &Accesses) -> Option<PartSet> {
        let position = |table| self.columns.get(&table).map(|column| column.position);
        let values = named_values(accesses, &self.catalogue, position)?;
        // All tables that are split have the same parts.
        let count = self.columns.values().next()?.count;
        Some(values.iter().map(|value| part_of(value.as_deref(), count)).collect())
    }
}

impl TellsParts for Splits {
    fn part(&self, table: TableId, image: &[u8]) -> Option<PartId> {
        self.part_of_row(table, image)
    }
}

impl Coordinator {
    /// The tables that are split, by the present catalogue.
    pub(crate) fn splits(&self) -> Arc<Splits> {
        if !self.view.is_partial() {
            return Arc::clone(&self.last_splits.none);
        }
        let catalogue = self.database.catalogue();
        let mut last = self.last_splits.last.lock().unwrap_or_else(PoisonError::into_inner);
        let is_present = |splits: &&Arc<Splits>| {
            splits.edition == self.view.edition() && splits.generation() == catalogue.generation()
        };
        if let Some(splits) = last.as_ref().filter(is_present) {
            return Arc::clone(splits);
        }
        let placement = self.core.placement();
        let restricted = placement.iter().flat_map(Placement::restricted);
        let columns = restricted.filter_map(|(table, copies)| {
            let (name, count) = copies.split()?;
            let known = catalogue.table(table)?;
            let position = known.columns.iter().position(|column| column.name == **name)?;
            Some((table, SplitColumn { position, count }))
        });
        let columns = columns.collect();
        let edition = placement.as_ref().map(Placement::edition).unwrap_or_default();
        let splits = Arc::new(Splits { edition, catalogue, columns });
        *last = Some(Arc::clone(&splits));
        splits
    }
}
