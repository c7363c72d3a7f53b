//! Counts and notes while clients run.

use std::collections::BTreeMap;

use testbed::refusal::Refusal;

/// Counts of one kind of transaction.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Ends {
    pub(super) committed: u64,
    pub(super) aborted: u64,
    pub(super) unknown: u64,
}

/// How an attempt of a client ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Ending {
    /// As the client wanted.
    Done,
    /// By 40001 or 40P01.
    Again,
    /// By another error.
    Told(String),
    /// With the connection, or by an error that ends it.
    Lost {
        why: String,
        /// Whether a commit was under way.
        is_unknown: bool,
    },
}

impl Ending {
    /// Of a transaction whose outcome is not known if its connection is lost.
    pub(super) fn of(ended: &Result<(), Refusal>, is_unknown: bool) -> Self {
        match ended {
            Ok(()) => Self::Done,
            Err(Refusal::Again(_)) => Self::Again,
            Err(Refusal::Told(why)) => Self::Told(why.clone()),
            Err(Refusal::Lost(why) | Refusal::Stuck(why)) => Self::Lost { why: why.clone(), is_unknown },
        }
    }
}

/// One try of a transaction.
#[derive(Clone, Debug)]
pub(super) struct Attempt {
    pub(super) client: u32,
    /// To which node the client was connected.
    pub(super) node: usize,
    /// By the clock of the course.
    pub(super) begin_us: u64,
    pub(super) end_us: u64,
    pub(super) ending: Ending,
}

/// Counts of one client, or of all.
#[derive(Default, Debug)]
pub(super) struct Tally {
    /// By kind of transaction.
    pub(super) kinds: BTreeMap<String, Ends>,
    /// Reads of lists by the port of the server that answered.
    pub(super) servers: BTreeMap<String, u64>,
    /// Errors after which one tries again.
    pub(super) again: u64,
    /// Other errors and lost connections, by their text.
    pub(super) troubles: BTreeMap<String, u64>,
    /// Violations found while running.
    pub(super) wrong: Vec<String>,
    /// All of them, in the order of each client.
    pub(super) attempts: Vec<Attempt>,
}

impl Tally {
    /// Adds another one.
    pub(super) fn add(&mut self, other: Self) {
        for (kind, ends) in other.kinds {
            let sum = self.kinds.entry(kind).or_default();
            sum.committed += ends.committed;
            sum.aborted += ends.aborted;
            sum.unknown += ends.unknown;
        }
        for (server, count) in other.servers {
            *self.servers.entry(server).or_default() += count;
        }
        self.again += other.again;
        for (text, count) in other.troubles {
            *self.troubles.entry(text).or_default() += count;
        }
        self.wrong.extend(other.wrong);
        self.attempts.extend(other.attempts);
    }
}
