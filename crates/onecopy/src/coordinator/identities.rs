//! The version of each transaction in the log, by its identity. A replica's applied set holds identities. Through this
//! map it shows up to which version the replica has applied the log.
//!
//! The newest identities are in memory, and a replica that is up needs no others. When a replica comes back after a
//! longer absence, older identities are read from the log. The replica needs all records since then anyway, which is
//! more to read. So memory does not grow with the log, which is kept for absent replicas.
//!
//! A partial replica lacks the identities of records that it need not apply. Those are no gaps, but only the records
//! show that. So missing versions are looked up in the log, unless the replica holds everything.
//!
//! Invariant: no member needs an identity that is neither in memory nor in the log, since the log is trimmed behind all
//! members.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cluster::ids::{Identity, Version};
use cluster::placement::Holdings;
use cluster::protocols::rows::COMMITS_TOGETHER_MAX;
use cluster::record::Record;
use commitlog::{BoxFuture, LogEngine, LogError, NEWEST_IDENTITIES};

/// The most identities that are forgotten at a time.
pub(crate) const FORGET_MAX: usize = 20_000;
/// Bytes of one identity in memory: it is in two trees, which are about two thirds full.
pub(crate) const IDENTITY_BYTES: usize = 2 * size_of::<(Identity, Version)>() * 3 / 2;
/// Bytes of records that are read from the log at a time. A single record may be larger.
const READ_BYTES_MAX: usize = 8 << 20;

/// Shared by the drivers of all replicas.
#[derive(Debug, Default)]
pub(crate) struct Identities(Mutex<Known>);

#[derive(Debug, Default)]
struct Known {
    by_identity: BTreeMap<Identity, Version>,
    by_version: BTreeMap<Version, Identity>,
}

impl Known {
    /// The oldest version in memory. All newer versions are in memory as well.
    fn first(&self) -> Option<Version> {
        self.by_version.first_key_value().map(|(version, _)| *version)
    }

    fn remove_oldest(&mut self) {
        if let Some((_, identity)) = self.by_version.pop_first() {
            self.by_identity.remove(&identity);
        }
    }
}

/// Access to the records whose identities are no longer in memory.
pub(crate) trait Records: Sync {
    /// The lowest version that can be read.
    fn first_retained(&self) -> Version;

    /// The identities of the versions from this one on, or from the lowest that can be read, in order. The result may
    /// be a part, but has at least one identity if there is one.
    fn identities_from(&self, version: Version) -> BoxFuture<'_, Result<Vec<(Identity, Version)>, LogError>>;

    /// The records of the same versions. Likewise at least one, if there is one.
    fn records_from(&self, version: Version) -> BoxFuture<'_, Result<Vec<Arc<Record>>, LogError>>;
}

impl Records for Arc<dyn LogEngine> {
    fn first_retained(&self) -> Version {
        self.as_ref().first_retained()
    }

    fn identities_from(&self, version: Version) -> BoxFuture<'_, Result<Vec<(Identity, Version)>, LogError>> {
        Box::pin(async move {
            let records = self.records_from(version).await?;
            Ok(records.iter().map(|record| (record.header().identity, record.header().last)).collect())
        })
    }

    fn records_from(&self, version: Version) -> BoxFuture<'_, Result<Vec<Arc<Record>>, LogError>> {
        Box::pin(async move {
            match self.read_from(version, READ_BYTES_MAX).await {
                Err(LogError::Trimmed { first_retained, .. }) => {
                    self.read_from(first_retained, READ_BYTES_MAX).await
                }
                other => other,
            }
        })
    }
}

/// The reason why an applied set does not show where a replica stands.
#[derive(Debug)]
pub(crate) enum AppliedSetError {
    /// The log no longer has the records after the set.
    Behind {
        /// The last version of the set.
        last: Version,
        /// The lowest version of the log.
        first_retained: Version,
    },
    /// A version is missing in the middle of the set.
    Gap {
        /// The version behind the gap.
        has: Version,
        /// The first missing version.
        lacks: Version,
    },
    /// The log cannot be read.
    Log(LogError),
}

impl From<LogError> for AppliedSetError {
    fn from(error: LogError) -> Self {
        Self::Log(error)
    }
}

impl fmt::Display for AppliedSetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Behind { last, first_retained } => write!(
                f,
                "it has nothing after version {last}, and the log begins with version {first_retained}; it must be \
                 rebuilt"
            ),
            Self::Gap { has, lacks } => {
                write!(f, "it has version {has} but not version {lacks}; it must be rebuilt")
            }
            Self::Log(error) => error.fmt(f),
        }
    }
}

impl Identities {
    /// A record is in the log, or on its way there.
    pub(crate) fn insert(&self, identity: Identity, version: Version) {
        let mut known = self.known();
        known.by_identity.insert(identity, version);
        known.by_version.insert(version, identity);
        if known.by_version.len() > NEWEST_IDENTITIES {
            known.remove_oldest();
        }
    }

    pub(crate) fn in_memory(&self) -> usize {
        self.known().by_version.len()
    }

    /// The log no longer has the records before this version.
    pub(crate) fn trim(&self, first: Version) {
        let mut known = self.known();
        while known.first().is_some_and(|oldest| oldest < first) {
            known.remove_oldest();
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The identities of the versions after one and up to another, if these are not too many. Also returns the version
    /// up to which the identities are all that can be found.
    pub(crate) async fn range(
        &self,
        after: Version,
        upto: Version,
        log: &impl Records,
    ) -> Result<(Vec<Identity>, Version), LogError> {
        let from = after.next().max(log.first_retained());
        let in_memory = {
            let known = self.known();
            let is_there = from <= upto && known.first().is_none_or(|first| first <= from);
            let range = is_there.then(|| known.by_version.range(from..=upto).take(FORGET_MAX));
            range.map(|range| range.map(|(version, identity)| (*identity, *version)).collect::<Vec<_>>())
        };
        let mut found = match in_memory {
            Some(found) => found,
            None if from <= upto => log.identities_from(from).await?,
            None => Vec::new(),
        };
        found.retain(|(_, version)| *version <= upto);
        found.truncate(FORGET_MAX);
        let reached = found.last().map_or(upto, |(_, version)| *version);
        Ok((found.into_iter().map(|(identity, _)| identity).collect(), reached))
    }

    /// Judges the applied set of a replica with these holdings. Reads the log in two cases: the set has identities that
    /// are not in memory, or it lacks versions that a partial replica may not have had to apply.
    pub(crate) async fn judge(
        &self,
        applied: &[Identity],
        holdings: &Holdings,
        log: &impl Records,
    ) -> Result<AppliedVerdict, AppliedSetError> {
        let found = self.find(applied, log).await?;
        let mut versions: Vec<Version> = found.values().copied().collect();
        versions.sort_unstable();
        let strangers = applied.iter().filter(|i| !found.contains_key(i)).copied().collect();
        let last = versions.last().copied().unwrap_or(Version::ZERO);
        let first_retained = log.first_retained();
        if last < Version(first_retained.0.saturating_sub(1)) {
            return Err(AppliedSetError::Behind { last, first_retained });
        }
        let first = versions.first().copied().unwrap_or(Version::ZERO);
        // All forgotten identities are older than any that can have been committed together with the last one.
        let together = Version(last.0.saturating_sub(COMMITS_TOGETHER_MAX - 1)).max(first_retained);
        let is_missing = |version: &Version| versions.binary_search(version).is_err();
        let from = first.min(together).0.max(1);
        let missing = (from..=last.0).map(Version).filter(is_missing).collect();
        let missing = due(missing, holdings, log).await?;
        if let Some(lacks) = missing.first().filter(|version| **version < together) {
            let after = versions.partition_point(|version| version < lacks);
            return Err(AppliedSetError::Gap { has: versions[after], lacks: *lacks });
        }
        Ok(AppliedVerdict { first, last, missing, strangers })
    }

    /// The version of a transaction; `None` if the log does not have it.
    pub(crate) async fn version_of(
        &self,
        identity: Identity,
        log: &impl Records,
    ) -> Result<Option<Version>, LogError> {
        Ok(self.find(&[identity], log).await?.get(&identity).copied())
    }

    async fn find(
        &self,
        wanted: &[Identity],
        log: &impl Records,
    ) -> Result<BTreeMap<Identity, Version>, LogError> {
        // Taken before the look into memory: an identity that leaves memory meanwhile is then found in the log.
        let mut from = log.first_retained();
        let (mut found, end) = {
            let known = self.known();
            let found = |identity: &Identity| Some((*identity, *known.by_identity.get(identity)?));
            (
                wanted.iter().filter_map(found).collect::<BTreeMap<_, _>>(),
                known.first().unwrap_or(Version::ZERO),
            )
        };
        let mut missing: BTreeSet<Identity> =
            wanted.iter().filter(|identity| !found.contains_key(identity)).copied().collect();
        while from < end && !missing.is_empty() {
            let piece = log.identities_from(from).await?;
            let Some((_, last)) = piece.last() else { break };
            from = last.next();
            found.extend(piece.into_iter().filter(|(identity, _)| missing.remove(identity)));
        }
        Ok(found)
    }
}

/// Returns those of the ordered versions that a replica with these holdings must apply.
async fn due(
    mut versions: Vec<Version>,
    holdings: &Holdings,
    log: &impl Records,
) -> Result<Vec<Version>, LogError> {
    if holdings.is_everything() {
        return Ok(versions);
    }
    let mut next = versions.first().copied();
    while let Some(from) = next {
        let piece = log.records_from(from).await?;
        let Some(end) = piece.last().map(|record| record.header().last) else { break };
        let passed: BTreeSet<Version> = (piece.iter())
            .filter(|record| !holdings.must_apply(record.as_ref()))
            .map(|record| record.header().last)
            .collect();
        versions.retain(|version| !passed.contains(version));
        next = versions.get(versions.partition_point(|version| *version <= end)).copied();
    }
    Ok(versions)
}

/// The result of judging an applied set.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct AppliedVerdict {
    /// The oldest version whose identity is in the set. Those before it were forgotten.
    pub(crate) first: Version,
    /// The replica has every version up to this one, except for those in `missing`.
    pub(crate) last: Version,
    /// Versions that were committed together with the last one, at their home, which crashed meanwhile.
    pub(crate) missing: Vec<Version>,
    /// Identities that no record has.
    pub(crate) strangers: Vec<Identity>,
}

#[cfg(test)]
mod tests {
    use cluster::ids::{ClusterId, DatabaseId, Epoch, Nonce, ReplicaId, ServiceId};
    use cluster::placement::{Copies, Placement, ReplicaSet};
    use cluster::record::{Header, RecordBuilder};

    use super::*;

    fn identity(n: u64) -> Identity {
        Identity { epoch: Epoch(1), n, nonce: Nonce(7) }
    }

    /// A log of these versions, each with the identity of its number.
    struct Kept(u64, u64);

    impl Records for Kept {
        fn first_retained(&self) -> Version {
            Version(self.0)
        }

        fn identities_from(
            &self,
            version: Version,
        ) -> BoxFuture<'_, Result<Vec<(Identity, Version)>, LogError>> {
            const PIECE: u64 = 1_000;
            let from = version.0.max(self.0);
            let piece = (from..=self.1.min(from + PIECE)).map(|n| (identity(n), Version(n))).collect();
            Box::pin(std::future::ready(Ok(piece)))
        }

        fn records_from(&self, version: Version) -> BoxFuture<'_, Result<Vec<Arc<Record>>, LogError>> {
            const PIECE: u64 = 7;
            let from = version.0.max(self.0);
            let piece = (from..=self.1.min(from + PIECE)).map(record).collect();
            Box::pin(std::future::ready(Ok(piece)))
        }
    }

    /// The record of a version: every fifth one changes table 5, the others table 1.
    fn record(n: u64) -> Arc<Record> {
        let table = DatabaseId::FIRST.table(if n.is_multiple_of(5) { 5 } else { 1 });
        let mut body = RecordBuilder::new(DatabaseId::FIRST);
        body.push_delete(table, &[0, 0, 0, 0]).unwrap();
        Arc::new(body.finish(Header {
            cluster: ClusterId(1),
            identity: identity(n),
            first: Version(n),
            last: Version(n),
            database: DatabaseId::FIRST,
            service: ServiceId(0),
        }))
    }

    /// The holdings of a replica without table 1.
    fn without_table_1() -> Holdings {
        let mut placement = Placement::full(2);
        placement.restrict(DatabaseId::FIRST.table(1), Copies::Whole(ReplicaSet::first(1)));
        placement.holdings(ReplicaId(1))
    }

    fn known(upto: u64) -> Identities {
        let known = Identities::default();
        (1..=upto).for_each(|n| known.insert(identity(n), Version(n)));
        known
    }

    fn has(from: u64, upto: u64) -> Vec<Identity> {
        (from..=upto).map(identity).collect()
    }

    #[tokio::test]
    async fn an_applied_set_begins_where_it_was_last_forgotten() {
        let (log, known) = (Kept(1, 100), known(100));
        let verdict = known.judge(&has(40, 80), &Holdings::everything(), &log).await.unwrap();
        assert_eq!((verdict.first, verdict.last, verdict.strangers), (Version(40), Version(80), vec![]));
        let verdict = known.judge(&[], &Holdings::everything(), &log).await.unwrap();
        assert_eq!((verdict.first, verdict.last), (Version::ZERO, Version::ZERO));
        let gap = [has(20, 30), has(32, 80)].concat();
        let reason = known.judge(&gap, &Holdings::everything(), &log).await.unwrap_err().to_string();
        assert!(reason.starts_with("it has version 32 but not version 31"), "{reason}");
        let stranger = Identity { epoch: Epoch(9), ..identity(5) };
        let verdict = known
            .judge(&[has(40, 80), vec![stranger]].concat(), &Holdings::everything(), &log)
            .await
            .unwrap();
        assert_eq!((verdict.last, verdict.strangers), (Version(80), vec![stranger]));
        let behind =
            known.judge(&has(1, 2), &Holdings::everything(), &Kept(5, 10)).await.unwrap_err().to_string();
        assert!(behind.contains("the log begins with version 5"), "{behind}");
    }

    #[tokio::test]
    async fn what_can_have_been_committed_together_with_the_last_one_may_be_missing() {
        const LAST: u64 = 100;
        const OLDEST: u64 = LAST - COMMITS_TOGETHER_MAX + 1;
        let (log, known) = (Kept(1, LAST), known(LAST));
        let missing = async |set: Vec<Identity>| {
            known.judge(&set, &Holdings::everything(), &log).await.map(|verdict| verdict.missing)
        };
        assert_eq!(
            missing([has(1, 96), has(98, 98), has(100, 100)].concat()).await.unwrap(),
            [Version(97), Version(99)]
        );
        let one = [has(1, OLDEST - 1), has(OLDEST + 1, LAST)].concat();
        assert_eq!(missing(one).await.unwrap(), [Version(OLDEST)]);
        missing([has(1, OLDEST - 2), has(OLDEST, LAST)].concat()).await.unwrap_err();
        // The first versions of all.
        assert_eq!(missing(has(3, 4)).await.unwrap(), [Version(1), Version(2)]);
        let verdict = known.judge(&has(3, 4), &Holdings::everything(), &Kept(3, LAST)).await.unwrap();
        assert_eq!(verdict.missing, vec![], "what every replica has is not in the log any more");
    }

    #[tokio::test]
    async fn a_record_that_need_not_be_applied_is_no_gap() {
        const LAST: u64 = 100;
        let (log, known, holdings) = (Kept(1, LAST), known(LAST), without_table_1());
        let fifths =
            |from, upto| has(from, upto).into_iter().filter(|one| one.n % 5 == 0).collect::<Vec<_>>();
        let judge = async |set: Vec<Identity>| known.judge(&set, &holdings, &log).await;
        let verdict = judge(fifths(10, 90)).await.unwrap();
        assert_eq!((verdict.first, verdict.last), (Version(10), Version(90)));
        assert_eq!(verdict.missing, []);
        // Of the versions that it must apply, the replica may lack those that were committed together with the last
        // one.
        let verdict = judge([fifths(10, 70), fifths(80, 80), fifths(90, 90)].concat()).await.unwrap();
        assert_eq!(verdict.missing, [Version(75), Version(85)]);
        let gap = judge([fifths(10, 20), fifths(30, 90)].concat()).await.unwrap_err().to_string();
        assert!(gap.starts_with("it has version 30 but not version 25"), "{gap}");
        // The replica was told that it stands at this record, although it need not apply the record.
        let verdict = judge([fifths(10, 90), has(93, 93)].concat()).await.unwrap();
        assert_eq!((verdict.last, verdict.missing), (Version(93), vec![]));
        let everything = known.judge(&fifths(10, 90), &Holdings::everything(), &log).await;
        everything.unwrap_err();
    }

    #[tokio::test]
    async fn memory_levels_off_and_what_fell_out_of_it_is_found_in_the_log() {
        const MANY: u64 = 3 * NEWEST_IDENTITIES as u64;
        let (known, log) = (known(MANY), Kept(1, MANY));
        assert_eq!(known.in_memory(), NEWEST_IDENTITIES, "it grows with the log");
        let stranger = Identity { epoch: Epoch(9), ..identity(5) };
        let first = MANY - NEWEST_IDENTITIES as u64 + 1;
        // Ranges before the identities in memory, across their beginning, and among them.
        for (from, upto) in [(2_500, 4_700), (first - 3, first + 3), (MANY - 9, MANY)] {
            let verdict = known
                .judge(&[has(from, upto), vec![stranger]].concat(), &Holdings::everything(), &log)
                .await
                .unwrap();
            let missing = (upto.saturating_sub(COMMITS_TOGETHER_MAX - 1).max(1)..from).map(Version).collect();
            let wanted = AppliedVerdict {
                first: Version(from),
                last: Version(upto),
                missing,
                strangers: vec![stranger],
            };
            assert_eq!(verdict, wanted);
        }
        let gap = known
            .judge(&[has(10, 11), has(first, first + 1)].concat(), &Holdings::everything(), &log)
            .await
            .unwrap_err()
            .to_string();
        assert!(gap.contains("but not version 12"), "{gap}");
        known.trim(Version(MANY - 4));
        assert_eq!(known.in_memory(), 5);
    }

    #[tokio::test]
    async fn everything_is_forgotten_once_wherever_it_is_found() {
        const MANY: u64 = 2 * NEWEST_IDENTITIES as u64;
        let (known, log) = (known(MANY), Kept(901, MANY));
        let (mut after, mut forgotten, upto) = (Version(7), Vec::new(), Version(MANY - 50));
        while after < upto {
            let (some, reached) = known.range(after, upto, &log).await.unwrap();
            assert!(reached > after && some.len() <= FORGET_MAX);
            forgotten.extend(some);
            after = reached;
        }
        assert!(forgotten == has(901, MANY - 50), "{} of them", forgotten.len());
        assert_eq!(known.range(upto, upto, &log).await.unwrap(), (Vec::new(), upto));
    }
}
