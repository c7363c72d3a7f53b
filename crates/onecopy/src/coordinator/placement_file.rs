//! Which tables only some replicas hold, over a restart: one file beside the log.
//!
//! Example: `{"version":1,"tables":[{"table":7,"name":"public.audit","holders":["replica-1","replica-3"]}]}`. Every replica holds
//! what is not listed. Tables go by the numbers that Onecopy gives them, which outlive a change of their names; the name is for
//! people who read the file.
//!
//! Invariant: a replica in the file has the rows of the table. One that is left out may have some; its agent empties the table there
//! before the replica serves. So the file changes after a new holder has its rows, and before the core hears of the change.
//!
//! Non-goal: who may hold what ([`crate::membership::place_table`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use cluster::ids::{DatabaseId, FragmentId};
use cluster::placement::{Placement, ReplicaSet};
use serde::{Deserialize, Serialize};

use super::ReplicaAddress;
use super::open_error::OpenError;

/// The file's name.
const FILE: &str = "placement";
/// The only version of its form.
const VERSION: u32 = 1;

/// The holders of the tables that only some replicas hold, by the number of the table.
pub(crate) type Restricted = BTreeMap<u32, PlacedTable>;

/// A table that only some replicas hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct PlacedTable {
    /// Its name when the file was written.
    pub(crate) name: String,
    /// The names of its holders.
    pub(crate) holders: BTreeSet<String>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Contents {
    version: u32,
    tables: Vec<Entry>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Entry {
    table: u32,
    name: String,
    holders: BTreeSet<String>,
}

/// The file of one cluster.
#[derive(Debug)]
pub(crate) struct PlacementFile {
    folder: PathBuf,
}

impl PlacementFile {
    /// The file in this folder, which exists.
    pub(crate) fn in_folder(folder: PathBuf) -> Self {
        Self { folder }
    }

    /// Reads it. Without the file every replica holds everything.
    pub(crate) fn read(&self) -> io::Result<Restricted> {
        let path = self.folder.join(FILE);
        let text = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Restricted::new()),
            Err(error) => return Err(error),
        };
        let damaged = |what: String| {
            let text = format!(
                "{} says which replica holds which table, and cannot be read: {what}",
                path.display()
            );
            io::Error::new(io::ErrorKind::InvalidData, text)
        };
        let contents: Contents = serde_json::from_str(&text).map_err(|error| damaged(error.to_string()))?;
        if contents.version != VERSION {
            return Err(damaged(format!(
                "it has version {}, and this is a release for version {VERSION}",
                contents.version
            )));
        }
        if let Some(entry) = contents.tables.iter().find(|entry| entry.holders.is_empty()) {
            return Err(damaged(format!("{} has no holder", entry.name)));
        }
        let table = |Entry { table, name, holders }| (table, PlacedTable { name, holders });
        Ok(contents.tables.into_iter().map(table).collect())
    }

    /// The placement at the start of a term, without replicas that are no members any more.
    pub(crate) fn placement(
        &self,
        members: &[ReplicaAddress],
        database: DatabaseId,
    ) -> Result<Placement, OpenError> {
        let named = |name: &String| members.iter().find(|member| member.name == *name);
        let mut restricted = self.read().map_err(OpenError::kind)?;
        let mut has_left = false;
        for placed in restricted.values_mut() {
            let before = placed.holders.len();
            placed.holders.retain(|name| named(name).is_some());
            has_left |= placed.holders.len() < before;
        }
        let count = members.iter().map(|member| member.replica.0 + 1).max().unwrap_or_default();
        let mut placement = Placement::full(count);
        for (table, placed) in &restricted {
            let holders = placed.holders.iter().filter_map(named).map(|member| member.replica);
            let holders: ReplicaSet = holders.collect();
            if holders == ReplicaSet::EMPTY {
                return Err(OpenError::NoHolder { table: placed.name.clone() });
            }
            placement.restrict(FragmentId::whole(database.table(*table)), holders);
        }
        if has_left {
            // A later member of the same name holds nothing of this.
            self.write(&restricted).map_err(OpenError::kind)?;
        }
        Ok(placement)
    }

    /// Replaces it, durably.
    pub(crate) fn write(&self, restricted: &Restricted) -> io::Result<()> {
        let entry = |(table, placed): (&u32, &PlacedTable)| Entry {
            table: *table,
            name: placed.name.clone(),
            holders: placed.holders.clone(),
        };
        let contents = Contents { version: VERSION, tables: restricted.iter().map(entry).collect() };
        let text = serde_json::to_string_pretty(&contents)?;
        let unfinished = self.folder.join(format!("{FILE}.new"));
        let mut file = owner_only::options().write(true).create(true).truncate(true).open(&unfinished)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&unfinished, self.folder.join(FILE))?;
        File::open(&self.folder)?.sync_all()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_a_damaged_file_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let file = PlacementFile::in_folder(folder.path().to_owned());
        assert_eq!(file.read().unwrap(), Restricted::new());
        let holders = ["replica-1", "replica-3"].map(str::to_owned);
        let placed = PlacedTable { name: "public.audit".to_owned(), holders: holders.into() };
        let restricted = Restricted::from([(7, placed)]);
        file.write(&restricted).unwrap();
        assert_eq!(file.read().unwrap(), restricted);
        for damaged in [
            "",
            "{\"version\":1,\"tables\":[",
            "{\"version\":2,\"tables\":[]}",
            "{\"version\":1,\"tables\":[],\"more\":1}",
            "{\"version\":1,\"tables\":[{\"table\":7,\"name\":\"t\",\"holders\":[]}]}",
        ] {
            fs::write(folder.path().join(FILE), damaged).unwrap();
            assert_eq!(file.read().unwrap_err().kind(), io::ErrorKind::InvalidData, "{damaged}");
        }
    }
}
