//! Whether an etcd can hold a log: its release, its members, its space, and what else it holds.
//!
//! Releases that can lose or mix up data are refused. Debian 12 has 3.4.23, which is one of them.
//!
//! Non-goal: its speed. A slow disk under etcd makes every commit slow.

use std::fmt;
use std::time::Duration;

use commitlog::{Gateway, Operation, Range, Store, StoreError, Txn};

/// The oldest release that is used: revisions could differ between members before (etcd issue 14211).
const OLDEST: [u32; 3] = [3, 5, 14];
/// Past this share of the quota, new commits will soon be refused.
const SPACE_PERCENT: u64 = 50;
const CALL_DEADLINE: Duration = Duration::from_secs(3);

/// An etcd cannot hold a log.
#[derive(Debug)]
pub(crate) enum EtcdUnfit {
    /// The release can lose data.
    Release { url: String, version: String },
    /// It says a release that cannot be compared.
    UnknownRelease { url: String, version: String },
    /// Patroni keeps its state there.
    Patroni,
    /// Etcd does not answer, or refuses.
    Store(StoreError),
}

/// Something that an operator should know.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum EtcdConcern {
    /// A member does not answer.
    Silent { reason: String },
    /// So many members protect badly.
    Members { members: usize },
    /// Much of the quota is used.
    Space { used_mb: u64, quota_mb: u64 },
    /// The quota is reached.
    NoSpace,
}

impl fmt::Display for EtcdUnfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Release { url, version } => {
                let reason = match numbers(version) {
                    Some([3, 5, 0..=2]) => "can lose committed data when a member is killed under load",
                    Some([3, 0..=4, _]) => "is not supported any more, and its members can differ",
                    _ => "can give its members different revisions",
                };
                write!(
                    f,
                    "etcd {version} at {url} {reason}; use 3.5.14 or later, best the newest 3.6 or 3.7 (scripts/etcd builds one)"
                )
            }
            Self::UnknownRelease { url, version } => {
                write!(f, "{url} names its release \"{version}\"; use etcd 3.5.14 or later")
            }
            Self::Patroni => f.write_str(
                "this etcd holds keys of Patroni (/service/): the log would slow it down until Patroni demotes its primary; \
                 give Onecopy an etcd of its own",
            ),
            Self::Store(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for EtcdUnfit {}

impl From<StoreError> for EtcdUnfit {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl fmt::Display for EtcdConcern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Silent { reason } => f.write_str(reason),
            Self::Members { members: 1 } => {
                f.write_str("etcd has one member, so its loss loses the log; run three or five")
            }
            Self::Members { members } => write!(
                f,
                "etcd has {members} members; run three or five: an even number survives no more losses than one less"
            ),
            Self::Space { used_mb, quota_mb } => write!(
                f,
                "etcd uses {used_mb} of {quota_mb} MB; it is trimmed past nodes that are down, and at 80 % commits are refused"
            ),
            Self::NoSpace => f.write_str(
                "etcd has reached its quota and takes no writes; compact, defragment, and disarm the alarm",
            ),
        }
    }
}

/// Inspects etcd. Blocks on the network.
pub(crate) fn inspect(gateway: &Gateway) -> Result<Vec<EtcdConcern>, EtcdUnfit> {
    let mut concerns = Vec::new();
    for status in gateway.versions() {
        match status {
            Ok(status) => check_release(status.url, status.version)?,
            Err(error) => concerns.push(EtcdConcern::Silent { reason: error.to_string() }),
        }
    }
    let members = gateway.members()?;
    if !matches!(members, 3 | 5) {
        concerns.push(EtcdConcern::Members { members });
    }
    let space = gateway.space()?;
    if space.has_no_space {
        concerns.push(EtcdConcern::NoSpace);
    } else if space.used_bytes >= space.quota_bytes / 100 * SPACE_PERCENT {
        let (used_mb, quota_mb) = (space.used_bytes >> 20, space.quota_bytes >> 20);
        concerns.push(EtcdConcern::Space { used_mb, quota_mb });
    }
    let patroni = Operation::Read(Range { keys_only: true, ..Range::between("/service/", "/service0", 1) });
    let answer = gateway.txn(&Txn { then: vec![patroni], ..Txn::default() }, CALL_DEADLINE)?;
    if answer.key(0).is_some() { Err(EtcdUnfit::Patroni) } else { Ok(concerns) }
}

pub(super) fn check_release(url: String, version: String) -> Result<(), EtcdUnfit> {
    match numbers(&version) {
        None => Err(EtcdUnfit::UnknownRelease { url, version }),
        Some(release) if release < OLDEST => Err(EtcdUnfit::Release { url, version }),
        Some(_) => Ok(()),
    }
}

/// The three numbers of a release such as `3.7.3` or `3.7.0-rc.1`.
pub(super) fn numbers(version: &str) -> Option<[u32; 3]> {
    let mut numbers = version.split(['.', '-', '+']).map(|part| part.parse::<u32>().ok());
    Some([numbers.next()??, numbers.next()??, numbers.next()??])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_that_lose_data_are_refused_by_name() {
        let check = |version: &str| check_release("http://m".into(), version.into());
        for (version, word) in [
            ("3.4.23", "not supported"),
            ("3.5.0", "lose committed data"),
            ("3.5.2", "lose committed data"),
            ("3.5.13", "different revisions"),
            ("2.3.8", "different revisions"),
            ("newest", "names its release"),
        ] {
            let error = check(version).unwrap_err().to_string();
            assert!(error.contains(word), "{version}: {error}");
        }
        for version in ["3.5.14", "3.6.0", "3.7.3", "3.8.0-rc.0", "4.0.0"] {
            assert!(check(version).is_ok(), "{version}");
        }
    }
}
