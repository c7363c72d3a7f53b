//! The interface between a run and the system under test, which stands between browsers and databases.

use cluster::ids::SessionId;
use cluster::protocols::shipping::Request;

use super::database::Job;

/// The direction of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum To {
    /// To a scheduler, from a replica.
    Scheduler { at: usize, from: usize },
    /// To a scheduler, from another one.
    Peer { at: usize, from: usize },
    /// To the replica with this number.
    Replica(usize),
}

/// Writes of a transaction for the log of a scheduler.
#[derive(Debug)]
pub(crate) struct Log<M> {
    /// The scheduler.
    pub(crate) at: usize,
    /// The number of tables that they write.
    pub(crate) tables: u64,
    /// The message that returns.
    pub(crate) message: M,
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
    /// Messages that return to a scheduler when its log has been synchronised.
    pub(crate) logs: Vec<Log<M>>,
    /// Bytes to and from schedulers over the network.
    pub(crate) network_bytes: u64,
    /// Bytes for logs.
    pub(crate) log_bytes: u64,
    /// The time in databases of the requests answered now. Of several replicas, the one counts whose reply the browser
    /// waited for.
    pub(crate) in_database_us: u64,
}

impl<M> Default for Out<M> {
    fn default() -> Self {
        Self {
            sends: Vec::new(),
            jobs: Vec::new(),
            answers: Vec::new(),
            logs: Vec::new(),
            network_bytes: 0,
            log_bytes: 0,
            in_database_us: 0,
        }
    }
}

/// A scheduler with its proxies at the replicas.
pub(crate) trait System {
    /// A message of this system.
    type Message;

    /// A browser sends a request to a scheduler. Each request but the last of an interaction gets one reply.
    fn ask(
        &mut self,
        at: usize,
        now_us: u64,
        session: SessionId,
        request: Request,
        out: &mut Out<Self::Message>,
    );

    /// A message arrives.
    fn arrive(&mut self, now_us: u64, to: To, message: Self::Message, out: &mut Out<Self::Message>);

    /// The log of a scheduler has been synchronised.
    fn logged(&mut self, at: usize, now_us: u64, message: Self::Message, out: &mut Out<Self::Message>);

    /// A database has finished a job, after this time in it.
    fn done(&mut self, here_us: u64, replica: usize, job: Job, out: &mut Out<Self::Message>);

    /// About how much memory the state of all schedulers takes; 0 if the system does not know.
    fn memory_bytes(&self) -> usize {
        0
    }
}
