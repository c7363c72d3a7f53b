//! The interface between a run and the system under test, which stands between browsers and databases.

use cluster::ids::SessionId;
use cluster::protocols::shipping::Request;

use super::database::Job;

/// The direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// To the scheduler, from this replica.
    Scheduler(usize),
    /// To the replica with this number.
    Replica(usize),
}

/// The actions that a system requests.
#[derive(Debug)]
pub(crate) struct Out<M> {
    /// Messages to send.
    pub(crate) sends: Vec<(To, M)>,
    /// Jobs for databases.
    pub(crate) jobs: Vec<(usize, Job)>,
    /// Replies to browsers.
    pub(crate) answers: Vec<SessionId>,
    /// Messages that return to the scheduler when the log has been synchronised.
    pub(crate) logs: Vec<M>,
    /// The time in databases of the requests answered now. Of several replicas, the one counts whose reply the browser
    /// waited for.
    pub(crate) in_database_us: u64,
}

impl<M> Default for Out<M> {
    fn default() -> Self {
        Self { sends: Vec::new(), jobs: Vec::new(), answers: Vec::new(), logs: Vec::new(), in_database_us: 0 }
    }
}

/// A scheduler with its proxies at the replicas.
pub(crate) trait System {
    /// A message of this system.
    type Message;

    /// A browser sends a request. Each request but the last of an interaction gets one reply.
    fn ask(&mut self, now_us: u64, session: SessionId, request: Request, out: &mut Out<Self::Message>);

    /// A message arrives.
    fn arrive(&mut self, now_us: u64, to: To, message: Self::Message, out: &mut Out<Self::Message>);

    /// The log has been synchronised.
    fn logged(&mut self, now_us: u64, message: Self::Message, out: &mut Out<Self::Message>);

    /// A database has finished a job, after this time in it.
    fn done(&mut self, here_us: u64, replica: usize, job: Job, out: &mut Out<Self::Message>);
}
