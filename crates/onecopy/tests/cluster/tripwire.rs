//! A tripwire for partial replication: a table must not be looked into where it is not held, since its copy there is empty.
//!
//! PostgreSQL counts the scans of each table. Onecopy itself looks into such tables when a replica comes up, and in VERIFY, so the
//! tripwire is set after that and read before the next time.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::{Cluster, Replica, rows, table};

/// A server counts the scans of a session at the latest when that ends.
const COUNTED_AFTER: Duration = Duration::from_secs(2);

/// Scans of tables that are not held, by replica and table.
pub(crate) type Scans = BTreeMap<(String, String), u64>;

/// The scans so far, once the sessions before have ended.
pub(crate) async fn scans(cluster: &Cluster) -> Scans {
    tokio::time::sleep(COUNTED_AFTER).await;
    let mut scans = Scans::new();
    for replica in cluster.caught_up().await {
        let unheld = unheld(cluster, &replica).await;
        let server = cluster.direct(&replica).await;
        let query = "select format('%I.%I', schemaname, relname), seq_scan + coalesce(idx_scan, 0) from pg_stat_user_tables";
        for row in table(&server, query).await {
            if unheld.contains(&row[0]) {
                scans.insert((replica.name.clone(), row[0].clone()), row[1].parse().unwrap());
            }
        }
    }
    scans
}

/// The scans since then.
pub(crate) fn since(before: &Scans, after: &Scans) -> Scans {
    let more = |(place, count): (&(String, String), &u64)| {
        let new = count - before.get(place).copied().unwrap_or_default();
        (new > 0).then(|| (place.clone(), new))
    };
    after.iter().filter_map(more).collect()
}

/// The tables that the replica does not hold, as SHOW PLACEMENT says, without quotes where none are needed.
pub(crate) async fn unheld(cluster: &Cluster, replica: &Replica) -> BTreeSet<String> {
    let admin = cluster.try_client("onecopy").await.unwrap();
    let placed = rows(&admin, "SHOW PLACEMENT").await;
    let is_unheld = |row: &&BTreeMap<String, String>| {
        !row["table"].starts_with('(') && !row["holders"].split(", ").any(|holder| holder == replica.name)
    };
    placed.iter().filter(is_unheld).map(|row| row["table"].replace('"', "")).collect()
}
