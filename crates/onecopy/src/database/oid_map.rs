//! Canonical object ids: a client always gets the anchor's ids, whichever server answers.
//!
//! Each server numbers its tables and types by itself, and one rolled-back statement is enough to make the numbers
//! differ (docs/explanation/pitfalls.md 1.2). So `onecopy.install()` gives every type and relation a number of ours.
//! That number is the same everywhere, since the record of a schema change carries it. It matches a server's own id
//! with the anchor's. The match is looked up when an unknown id turns up, so a schema change costs nothing here.
//!
//! When another replica becomes the anchor, its ids become canonical. Sessions that connect later get only these.
//!
//! Invariant: a pair that was found stays right as long as both servers run, since ids are not given twice. When a
//! server restarts, all pairs are forgotten: the server may have lost its latest objects and made them again.
//!
//! Non-goals: ids inside values. Arrays and composites in binary form carry some, so statements with such values run at
//! the anchor (see `crate::classify::statement_analysis`).

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use rustc_hash::FxHashMap;
use wire::oids::Kind;

use crate::backend::{Address, BackendError, OwnConnection, Served};

/// The numbers and ids that a server has; see `onecopy.install()`.
const NAMES_SQL: &str = "SELECT id, is_type, object FROM onecopy_capture.names";

/// The number of look-ups of an id. The anchor's own COMMIT of a new type may come a little later than the refresh.
const ATTEMPTS: u32 = 100;
const PAUSE: Duration = Duration::from_millis(20);
/// The time limit for a server's answer.
const ANSWER_DEADLINE: Duration = Duration::from_secs(2);

/// The ids of one server and the anchor's ids of the same objects.
#[derive(Debug)]
pub(crate) struct OidMap {
    replica: Address,
    anchor: Address,
    served: Served,
    known: RwLock<Arc<Pairs>>,
}

/// The anchor's id for each of the replica's.
#[derive(Debug, Default)]
pub(crate) struct Pairs {
    types: FxHashMap<u32, u32>,
    relations: FxHashMap<u32, u32>,
}

impl Pairs {
    /// The anchor's id.
    pub(crate) fn canonical(&self, kind: Kind, oid: u32) -> Option<u32> {
        let pairs = match kind {
            Kind::Type => &self.types,
            Kind::Relation => &self.relations,
        };
        pairs.get(&oid).copied()
    }
}

impl OidMap {
    pub(crate) fn new(replica: Address, anchor: Address, served: Served) -> Self {
        Self { replica, anchor, served, known: RwLock::default() }
    }

    pub(crate) fn pairs(&self) -> Arc<Pairs> {
        Arc::clone(&self.known.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads the ids of both servers until all of these ids of the replica are known. Returns whether they are.
    pub(crate) async fn learn(&self, wanted: &[(Kind, u32)]) -> Result<bool, BackendError> {
        for attempt in 0..ATTEMPTS {
            if attempt > 0 {
                tokio::time::sleep(PAUSE).await;
            }
            let pairs = Arc::new(self.pair().await?);
            *self.known.write().unwrap_or_else(PoisonError::into_inner) = Arc::clone(&pairs);
            if wanted.iter().all(|(kind, oid)| pairs.canonical(*kind, *oid).is_some()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    async fn pair(&self) -> Result<Pairs, BackendError> {
        let anchor: FxHashMap<u32, u32> =
            self.read(&self.anchor).await?.into_iter().map(|(id, _, oid)| (id, oid)).collect();
        let mut pairs = Pairs::default();
        for (id, kind, oid) in self.read(&self.replica).await? {
            if let Some(canonical) = anchor.get(&id) {
                let of_kind = match kind {
                    Kind::Type => &mut pairs.types,
                    Kind::Relation => &mut pairs.relations,
                };
                of_kind.insert(oid, *canonical);
            }
        }
        Ok(pairs)
    }

    async fn read(&self, address: &Address) -> Result<Vec<(u32, Kind, u32)>, BackendError> {
        const SHAPE: BackendError = BackendError::Protocol("an answer about names of an unexpected shape");
        let asked = async { OwnConnection::open(address, &self.served, &[]).await?.query(NAMES_SQL).await };
        const SILENT: BackendError = BackendError::Protocol("no answer about names");
        let rows = tokio::time::timeout(ANSWER_DEADLINE, asked).await.map_err(|_| SILENT)??;
        let mut found = Vec::new();
        for row in rows {
            let [Some(id), Some(is_type), Some(object)] = row.as_slice() else { return Err(SHAPE) };
            let kind = if is_type == "t" { Kind::Type } else { Kind::Relation };
            found.push((id.parse().map_err(|_| SHAPE)?, kind, object.parse().map_err(|_| SHAPE)?));
        }
        Ok(found)
    }
}
