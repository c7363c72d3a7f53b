//! What stands between browsers and databases, as the run sees it.

use cluster::ids::SessionId;
use cluster::protocols::shipping::Request;

use super::database::Job;

/// Where a message goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// The scheduler, from this replica.
    Scheduler(usize),
    /// The replica of this number.
    Replica(usize),
}

/// What a system wants done.
#[derive(Debug)]
pub(crate) struct Out<M> {
    /// Messages over the network.
    pub(crate) sends: Vec<(To, M)>,
    /// Work for databases.
    pub(crate) jobs: Vec<(usize, Job)>,
    /// Replies to browsers.
    pub(crate) answers: Vec<SessionId>,
    /// What shall come back to the scheduler when the log has synchronised.
    pub(crate) logs: Vec<M>,
    /// How long databases had what browsers were waiting for until now. Of several replicas, the one counts whose reply
    /// was waited for.
    pub(crate) in_database_us: u64,
}

impl<M> Default for Out<M> {
    fn default() -> Self {
        Self { sends: Vec::new(), jobs: Vec::new(), answers: Vec::new(), logs: Vec::new(), in_database_us: 0 }
    }
}

/// A scheduler with what it has at the replicas.
pub(crate) trait System {
    /// What goes over the network.
    type Message;

    /// A browser asks. Every request but the last of an interaction is answered once.
    fn ask(&mut self, now_us: u64, session: SessionId, request: Request, out: &mut Out<Self::Message>);

    /// A message arrives.
    fn arrive(&mut self, now_us: u64, to: To, message: Self::Message, out: &mut Out<Self::Message>);

    /// The log has synchronised.
    fn logged(&mut self, now_us: u64, message: Self::Message, out: &mut Out<Self::Message>);

    /// A database has done this, and had it so long.
    fn done(&mut self, here_us: u64, replica: usize, job: Job, out: &mut Out<Self::Message>);
}
