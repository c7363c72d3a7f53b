//! The leases of a leader that another node can replace: its own term lease, and the version leases that it grants to nodes.
//!
//! ```text
//! the log confirms the term, sent at 10.0  ->  statements may run until 10.5
//! node b asks at 10.1                      ->  b reads by itself for the 0.4 s that are left
//! version 8 is appended                    ->  b is told; version 8 is answered once it is durable and b has noted it
//! ```
//!
//! Invariant: a node is told of a version, and of its lease, in the order in which the core decides, since both happen under its lock.
//!
//! Not here: the rules ([`cluster::nodes::lease`], [`cluster::nodes::version_leases`]).

use cluster::event::Event;
use cluster::ids::{CrewId, Version};
use cluster::nodes::Rules;
use cluster::nodes::lease::Grants;
use cluster::nodes::version_leases::{Granted, VersionLeases};
use cluster::time::Time;

use crate::coordinator::etcd_log::timing;

/// The leases of a term.
#[derive(Debug)]
pub(super) struct Leases {
    /// Which statements may run.
    pub(super) grants: Grants,
    /// Which nodes read without asking.
    versions: VersionLeases,
    /// The last assigned version that may have changed the schema.
    last_ddl: Version,
}

impl Leases {
    /// The leases of a term that was claimed at this time, and begins with these versions.
    pub(super) fn new(claimed: Time, last: Version, last_ddl: Version) -> Self {
        let (timing, rules) = (timing(), Rules::default());
        Self {
            grants: Grants::new(timing, rules, claimed),
            versions: VersionLeases::new(timing, rules, last),
            last_ddl,
        }
    }

    /// A node asks for a lease. Returns it, with the last version that may have changed the schema.
    pub(super) fn grant(&mut self, crew: CrewId, now: Time) -> Option<(Granted, Version)> {
        let granted = self.versions.grant(crew, self.grants.ends(), now)?;
        Some((granted, self.last_ddl))
    }

    /// A version is about to enter the log. Returns the nodes that have to note it.
    pub(super) fn assigned(&mut self, version: Version, may_change_schema: bool, now: Time) -> Vec<CrewId> {
        if may_change_schema {
            self.last_ddl = version;
        }
        self.versions.assigned(version, now)
    }

    /// Everything up to a version is durable.
    pub(super) fn durable(&mut self, upto: Version) {
        self.versions.durable(upto);
    }

    /// A node has noted everything up to a version.
    pub(super) fn noted(&mut self, crew: CrewId, upto: Version) {
        self.versions.noted(crew, upto);
    }

    /// A node reads by its lease no more.
    pub(super) fn ended(&mut self, crew: CrewId) {
        self.versions.ended(crew);
    }

    /// What the core has to hear now: what is durable, and noted by all that have to.
    pub(super) fn logged(&mut self, now: Time) -> Option<Event> {
        self.versions.logged(now).map(|upto| Event::Logged { upto })
    }
}
