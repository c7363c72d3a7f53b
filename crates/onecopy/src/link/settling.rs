//! Sends the COMMIT that is still due at the home after its record was acknowledged.

use cluster::event::{Effect, Event};
use cluster::ids::{Incarnation, ReplicaId};

use crate::coordinator::mailbox::Note;
use crate::link::Link;
use crate::local::memory_budget::Phase;
use crate::relay::{Expected, Relay};

impl Link {
    /// Waits until it is the turn of an acknowledged record at its home, sends the COMMIT, and reads the reply. Does
    /// nothing if no COMMIT is due.
    pub(crate) async fn settle(&mut self) {
        let Some(home) = self.settling else { return };
        while self.settling.is_some() {
            match self.session_registration.mailbox.next().await {
                Note::Effect(Effect::Commit { .. }) => {
                    let committed = self.send_commit(home).await;
                    self.settling = None;
                    match committed {
                        Ok(()) => self.end_exchange(Event::Committed { session: self.id }),
                        Err(incarnation) => {
                            self.servers.close(home);
                            self.report_loss(home, incarnation).await;
                        }
                    }
                }
                Note::Effect(Effect::HomeLost { .. }) => {
                    self.servers.close(home);
                    self.settling = None;
                }
                Note::Effect(other) => tracing::error!(?other, "a session that waits for its turn"),
                Note::Cancel | Note::Drained => {}
                Note::End(end) => self.session_registration.note_end(end),
            }
        }
        self.tenancy = None;
        self.session_registration.progress.set_phase(Phase::None);
    }

    /// Says that the home did not confirm a COMMIT. What the session is told for that would come too late for it.
    async fn report_loss(&self, replica: ReplicaId, incarnation: Incarnation) {
        let core = &self.worker.coordinator.core;
        core.tell(Event::ReplicaLost { replica, incarnation });
        core.effects_so_far().await;
        self.session_registration.mailbox.clear();
    }

    /// Sends COMMIT. The error is the incarnation of a home that did not confirm it.
    async fn send_commit(&mut self, home: ReplicaId) -> Result<(), Incarnation> {
        let Some(server) = self.servers.find(home) else { return Ok(()) };
        let incarnation = server.incarnation;
        server.query_own("COMMIT");
        let expected = Expected::silent();
        match Relay::new(&mut self.client, server, None).run(expected).await {
            Ok(ended) if ended.error.is_none() && ended.command == b"COMMIT" => Ok(()),
            _ => Err(incarnation),
        }
    }
}
