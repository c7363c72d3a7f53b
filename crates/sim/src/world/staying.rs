//! Reads that run without a question to the core, where a replica has every durable version (`execute/staying.rs` of the binary).
//!
//! For example, the last durable version is 7 and replica 1 has 7. Whatever a read reads, it needs no later version, so it may run
//! there. The session finds this out by itself at one moment, and the read reaches the server later. Meanwhile the replica may be
//! lost or fall behind; the read then fails, or is as fresh as it had to be when it was sent.
//!
//! Not here: the choice among such replicas. Each session takes another one for each transaction.

use cluster::event::{Effect, Event, Reads};
use cluster::ids::{ReplicaId, SessionId};

use super::World;

impl World {
    /// The effect with which the core would let a read run, if the session may place it by itself.
    pub(super) fn staying(&self, session: usize, event: &Event) -> Option<Effect> {
        let node = self.node.as_ref().filter(|_| self.plan.stays)?;
        let Event::Read { reads: Reads::Tables(_) | Reads::Rows(_), at: None, catalogue, .. } = event else {
            return None;
        };
        let run = self.sessions[session].run.as_ref()?;
        let number = (session + run.transaction) % self.servers.len();
        let replica = ReplicaId(number as u16);
        let durable = node.cluster.durable();
        let offer = node.cluster.offer(replica)?;
        let has_all = offer.applied >= durable || !self.rules.stays_where_all_is;
        (has_all && *catalogue >= node.cluster.last_ddl()).then_some(Effect::Execute {
            session: SessionId(session as u64),
            replica,
            incarnation: offer.incarnation,
            identity: None,
            applied: offer.applied,
        })
    }
}
