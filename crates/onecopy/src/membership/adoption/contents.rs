//! Compares the contents of servers before they belong to a cluster: are they equal, and are they empty?
//!
//! The checksums are those of VERIFY and, in addition, the positions of sequences.

use std::collections::{BTreeMap, BTreeSet};

use super::difference::{Difference, DifferingPair};
use super::error::AdoptionError;
use crate::backend::{BackendError, OwnConnection};
use crate::capture::shares::Shares;
use crate::config::Replica;
use crate::membership::checksum;
use crate::membership::reach::ReachedServer;

/// Names of tables that differ, at most.
const NAMED_MAX: usize = 5;

/// Positions of sequences. VERIFY does not compare them, because leases and marks make them differ in a running
/// cluster.
const POSITIONS: (&str, &str) = (
    "positions of sequences",
    "SELECT format('%s objects, %s', count(*), md5(string_agg(line, E'\\n' ORDER BY line COLLATE \"C\"))) FROM ( \
     SELECT format('%I.%I %s', schemaname, sequencename, last_value) FROM pg_sequences \
     WHERE schemaname NOT IN ('onecopy', 'onecopy_capture')) AS lines(line)",
);

type Sums = BTreeMap<String, String>;

/// Compares the contents of the servers. They must be the same everywhere.
pub(super) async fn compare(open: &mut [(&Replica, ReachedServer)]) -> Result<(), AdoptionError> {
    let mut all: Vec<(String, Sums)> = Vec::new();
    for (replica, found) in open {
        let sums = sums(&mut found.connection).await;
        all.push((replica.name.clone(), sums.map_err(|source| AdoptionError::unreadable(replica, source))?));
    }
    let (first_name, first) = &all[0];
    let mut pairs = Vec::new();
    for (name, sums) in &all[1..] {
        let keys: BTreeSet<&String> = first.keys().chain(sums.keys()).collect();
        let mut named: Vec<String> =
            keys.into_iter().filter(|key| first.get(*key) != sums.get(*key)).cloned().collect();
        let more = named.len().saturating_sub(NAMED_MAX);
        named.truncate(NAMED_MAX);
        if !named.is_empty() {
            pairs.push(DifferingPair { servers: [first_name.clone(), name.clone()], named, more });
        }
    }
    if pairs.is_empty() {
        return Ok(());
    }
    let with_data = all.iter().filter(|(_, sums)| !is_empty(sums)).map(|(name, _)| name.clone()).collect();
    Err(AdoptionError::Different(Difference { pairs, with_data }))
}

/// Describes the contents of a server's database, some of it by name. Returns none if it is empty.
pub(crate) async fn what_is_there(connection: &mut OwnConnection) -> Result<Option<String>, BackendError> {
    let sums = sums(connection).await?;
    let mut names: Vec<&str> =
        sums.iter().filter(|(name, sum)| is_something(name, sum)).map(|(name, _)| name.as_str()).collect();
    names.sort_by_key(|name| !name.starts_with("table "));
    let more = names.len().saturating_sub(NAMED_MAX);
    names.truncate(NAMED_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    Ok((!names.is_empty()).then(|| names.join(", ") + &more))
}

async fn sums(connection: &mut OwnConnection) -> Result<Sums, BackendError> {
    connection.query("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    // The servers are no replicas yet, so each holds every table.
    let mut sums = checksum::checksums(connection, &Shares::everything()).await?.sums;
    let (what, sql) = POSITIONS;
    let rows = connection.query(sql).await?;
    sums.insert(what.to_owned(), rows.into_iter().flatten().flatten().next().unwrap_or_default());
    connection.query("COMMIT").await?;
    Ok(sums)
}

/// Whether there is no table, and no object of any other kind.
fn is_empty(sums: &Sums) -> bool {
    !sums.iter().any(|(name, sum)| is_something(name, sum))
}

/// Whether a checksum stands for a table, or for at least one object of another kind.
fn is_something(name: &str, sum: &str) -> bool {
    name.starts_with("table ") || (name.starts_with("schema: ") && !sum.starts_with("0 objects"))
}
