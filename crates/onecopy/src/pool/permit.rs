//! The right to have one connection to a replica as a role.
//!
//! Example: with `pool_size = 20` at most 20 permits for role `joe` at replica 1 exist, and a session opens a connection
//! there only with one of them. The connection holds the permit for as long as it lives. When the connection closes, its
//! permit returns to the issuer, which lets a waiting session open another connection.
//!
//! Invariant: a permit returns exactly once, however its connection ends.

use std::fmt::Debug;
use std::sync::Arc;

use cluster::ids::ReplicaId;

/// The connections that sessions of one role share at one replica.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct PoolKey {
    pub(crate) role: Arc<str>,
    pub(crate) replica: ReplicaId,
}

/// Issues permits and takes them back.
pub(super) trait Issuer: Debug + Send + Sync {
    fn take_back(self: Arc<Self>, key: &PoolKey);
}

/// The right to have one connection.
#[derive(Debug)]
pub(crate) struct Permit {
    issuer: Arc<dyn Issuer>,
    key: PoolKey,
}

impl Permit {
    pub(super) fn new(issuer: Arc<dyn Issuer>, key: PoolKey) -> Self {
        Self { issuer, key }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        Arc::clone(&self.issuer).take_back(&self.key);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    #[derive(Debug, Default)]
    struct Returned(Mutex<Vec<ReplicaId>>);

    impl Issuer for Returned {
        fn take_back(self: Arc<Self>, key: &PoolKey) {
            self.0.lock().unwrap().push(key.replica);
        }
    }

    #[test]
    fn a_permit_returns_when_its_connection_ends() {
        let issuer = Arc::new(Returned::default());
        let permit = |replica| {
            let key = PoolKey { role: "joe".into(), replica: ReplicaId(replica) };
            Permit::new(Arc::<Returned>::clone(&issuer), key)
        };
        let (first, second) = (permit(1), permit(2));
        assert!(issuer.0.lock().unwrap().is_empty());
        drop(second);
        drop(first);
        assert_eq!(*issuer.0.lock().unwrap(), [ReplicaId(2), ReplicaId(1)]);
    }
}
