//! Where things stand in etcd. Everything of a cluster stands under `/onecopy/<its name>/`:
//!
//! | key | value |
//! |---|---|
//! | `cluster` | the number of the cluster, which is also in each record |
//! | `lead` | who leads: node, epoch, nonce, address ([`super::chair`]) |
//! | `base` | the first version of the oldest batch in `log/` |
//! | `log/<first version>` | one batch of records ([`super::batch`]) |
//! | `part/<first version>/<epoch>/<k>` | a piece of a batch that is too large for one value |
//! | `rows/<identity>/<k>` | a piece of the spilled rows of a transaction |
//! | `node/<name>` | the version up to which the node has the log on its disk |
//! | `member`, `seal`, `placement`, `usage`, `quarantine/<replica>`, `parked/<replica>` | the register ([`super::register`]) |
//! | `turn` | the last change of the register: epoch, nonce, number |
//!
//! Numbers are hexadecimal with all their zeros, so that keys sort as versions do.

use cluster::ids::{Epoch, Identity, Version};

use crate::register::Entry;

/// The keys of one cluster.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// Those of the cluster with this name.
    pub fn new(cluster_name: &str) -> Self {
        Self { prefix: format!("/onecopy/{cluster_name}/") }
    }

    pub(super) fn cluster(&self) -> String {
        self.at("cluster")
    }

    pub(super) fn lead(&self) -> String {
        self.at("lead")
    }

    pub(super) fn base(&self) -> String {
        self.at("base")
    }

    pub(super) fn log(&self, first: Version) -> String {
        self.at(&format!("log/{:016x}", first.0))
    }

    /// The key behind all batches.
    pub(super) fn log_end(&self) -> String {
        self.at("log0")
    }

    pub(super) fn part(&self, first: Version, epoch: Epoch, k: usize) -> String {
        self.at(&format!("part/{:016x}/{:08x}/{k:08x}", first.0, epoch.0))
    }

    /// Where the pieces of the batch begin.
    pub(super) fn parts(&self, first: Version) -> String {
        self.at(&format!("part/{:016x}/", first.0))
    }

    pub(super) fn row(&self, identity: Identity, k: usize) -> String {
        format!("{}{k:08x}", self.rows(identity))
    }

    /// Where the rows of a transaction begin.
    pub(super) fn rows(&self, identity: Identity) -> String {
        let Identity { epoch, n, nonce } = identity;
        self.at(&format!("rows/{:08x}-{n:016x}-{:016x}/", epoch.0, nonce.0))
    }

    /// The key behind the rows of a transaction.
    pub(super) fn rows_end(&self, identity: Identity) -> String {
        let mut end = self.rows(identity);
        end.pop();
        end + "0"
    }

    /// Where the rows of this epoch's transactions begin.
    pub(super) fn rows_of(&self, epoch: Epoch) -> String {
        self.at(&format!("rows/{:08x}-", epoch.0))
    }

    /// The transaction to which a key of rows belongs.
    pub(super) fn identity_of(&self, row: &str) -> Option<Identity> {
        let name = row.strip_prefix(&self.at("rows/"))?.split('/').next()?;
        let mut numbers = name.split('-');
        let mut next = || u64::from_str_radix(numbers.next()?, 16).ok();
        let epoch = Epoch(u32::try_from(next()?).ok()?);
        let (n, nonce) = (next()?, cluster::ids::Nonce(next()?));
        Some(Identity { epoch, n, nonce })
    }

    pub(super) fn node(&self, name: &str) -> String {
        self.at(&format!("node/{name}"))
    }

    /// The first and the last end of the keys of nodes.
    pub(super) fn nodes(&self) -> (String, String) {
        (self.at("node/"), self.at("node0"))
    }

    /// An entry of the register.
    pub(super) fn entry(&self, entry: &Entry) -> String {
        self.at(&entry.to_string())
    }

    pub(super) fn turn(&self) -> String {
        self.at("turn")
    }

    fn at(&self, name: &str) -> String {
        format!("{}{name}", self.prefix)
    }
}

/// Decimal digits, as `base` and `node/` hold them.
pub(super) fn number(value: &[u8]) -> Option<u64> {
    std::str::from_utf8(value).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use cluster::ids::Nonce;

    use super::*;

    #[test]
    fn keys_sort_as_versions_do() {
        let keys = Keys::new("main");
        assert!(keys.log(Version(9)) < keys.log(Version(10)));
        assert!(keys.log(Version(u64::MAX)) < keys.log_end());
        let identity = Identity { epoch: Epoch(3), n: 7, nonce: Nonce(0xff) };
        assert_eq!(keys.identity_of(&keys.row(identity, 5)), Some(identity));
        assert!(keys.row(identity, usize::MAX >> 32) < keys.rows_end(identity));
        assert!(keys.rows(identity) < keys.row(identity, 0));
        assert!(keys.rows_end(identity) < keys.rows_of(Epoch(4)));
    }
}
