//! What clients of several nodes must see: fresh reads, and each request once.

use std::collections::BTreeMap;

use cluster::ids::{Identity, Version};

/// A client's request: node, session and number.
type Request = (usize, usize, u64);

/// Looks at all clients at once.
#[derive(Debug, Default)]
pub(super) struct Judge {
    pub(super) findings: Vec<String>,
    /// What a read that begins now has to see.
    pub(super) floor: Version,
    attempts: BTreeMap<Identity, Request>,
    committed: BTreeMap<Request, Identity>,
}

impl Judge {
    pub(super) fn find(&mut self, text: String) {
        self.findings.push(text);
    }

    pub(super) fn begun(&mut self, request: Request, identity: Identity) {
        self.attempts.insert(identity, request);
    }

    /// A client has its rows. Later reads must see them, too.
    pub(super) fn read(&mut self, floor: Version, seen: Version) {
        if seen < floor {
            self.find(format!("stale: a read sees version {seen}, and {floor} was shown before it began"));
        }
        self.floor = self.floor.max(seen);
    }

    /// A client is told that its update is committed.
    pub(super) fn committed(
        &mut self,
        request: Request,
        identity: Identity,
        version: Version,
        log: &[Identity],
    ) {
        if log.get(version.0 as usize - 1) != Some(&identity) {
            self.find(format!("lost: {identity} was acknowledged as version {version}"));
        }
        self.committed.insert(request, identity);
        self.floor = self.floor.max(version);
    }

    /// Every identity is there once, and every request, too.
    pub(super) fn end(&mut self, log: &[Identity]) {
        let mut seen: BTreeMap<Request, usize> = BTreeMap::new();
        for identity in log {
            if let Some(request) = self.attempts.get(identity) {
                *seen.entry(*request).or_default() += 1;
            }
        }
        if let Some((request, times)) = seen.iter().find(|(_, times)| **times > 1) {
            self.find(format!("twice: request {request:?} is in the log {times} times"));
        }
        if let Some((request, identity)) =
            self.committed.iter().find(|(request, _)| !seen.contains_key(request))
        {
            self.find(format!("lost: request {request:?}, {identity}, is not in the log"));
        }
    }
}
