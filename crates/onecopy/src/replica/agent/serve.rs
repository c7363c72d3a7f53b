//! Serving the owner's commands while the connections live.

use cluster::ids::{Identity, Incarnation};
use cluster::record::Sequence;

use super::applied_set::AppliedSet;
use super::apply::Applier;
use super::catalogue::load_catalogue;
use super::connect::Ready;
use super::failure::Failure;
use super::watchdog::{WatchContext, watched};
use super::{Agent, AgentEvent, Command, identity, pulse};
use crate::backend::{BackendError, OwnConnection};
use crate::capture::sequences::keep_call;

/// Why serving ended.
enum Ended {
    /// The owner has gone.
    Owner,
    /// The agent has to connect anew.
    Connections(String),
}

impl From<BackendError> for Ended {
    fn from(error: BackendError) -> Self {
        Self::Connections(error.to_string())
    }
}

impl Agent {
    /// Serves until the connections are lost, or the server gives no sign of life. Returns `None` when the owner has
    /// gone.
    pub(super) async fn serve(&mut self, incarnation: Incarnation, ready: Ready) -> Option<()> {
        let Ready { applier, control, mut pulse, tables, proof_sql, spared, applied } = ready;
        let applier = Applier::new(applier, tables, &self.assignment);
        self.events
            .send(AgentEvent::Up { incarnation, proof_sql: proof_sql.clone(), spared, applied })
            .await
            .ok()?;
        let (events, deadline) = (self.events.clone(), self.assignment.health_deadline);
        let suspect = |is_suspect| {
            let events = events.clone();
            // If the owner does not hear it, the owner has gone. The loop below finds that out.
            async move { drop(events.send(AgentEvent::Suspect { incarnation, is_suspect }).await) }
        };
        let address = self.assignment.address.clone();
        let watching = pulse::watch(&mut pulse, &address, &proof_sql, deadline, suspect);
        let ended = tokio::select! {
            ended = self.obey(incarnation, applier, control) => ended,
            given_up = watching => Ended::Connections(given_up.to_string()),
        };
        match ended {
            Ended::Owner => None,
            Ended::Connections(reason) => {
                tracing::warn!(replica = %self.assignment.name, %reason, "connections given up");
                self.events.send(AgentEvent::Down { incarnation, reason }).await.ok()
            }
        }
    }

    async fn obey(
        &mut self,
        incarnation: Incarnation,
        mut applier: Applier,
        mut control: OwnConnection,
    ) -> Ended {
        loop {
            let outcome = tokio::select! {
                command = self.commands.recv() => match command {
                    None => Err(Ended::Owner),
                    Some(current) if current.incarnation() == incarnation => {
                        self.carry_out(current, &mut applier, &mut control).await
                    }
                    Some(_) => continue,
                },
                lost = applier.lost() => Err(lost.into()),
                lost = control.lost() => Err(lost.into()),
            };
            if let Err(ended) = outcome {
                return ended;
            }
        }
    }

    async fn carry_out(
        &mut self,
        command: Command,
        applier: &mut Applier,
        control: &mut OwnConnection,
    ) -> Result<(), Ended> {
        let event = match command {
            Command::Reset { .. } => return Err(Ended::Connections("reset".to_owned())),
            Command::Apply { incarnation, records, holdings, last_ddl } => {
                let Some(last) = records.last() else { return Ok(()) };
                let upto = last.header().last;
                let name = self.assignment.name.as_str();
                let way = WatchContext {
                    applier: applier.pid(),
                    replica: name,
                    reader_patience: &self.assignment.reader_patience_ms,
                    evictions: &self.assignment.evictions,
                    events: &self.events,
                };
                let work = applier.apply_after(last_ddl, holdings, &records);
                match watched(control, way, &mut self.pace, work).await? {
                    Ok(()) => AgentEvent::Applied { incarnation, upto },
                    Err(Failure::Lost(reason)) => return Err(Ended::Connections(reason)),
                    Err(Failure::Diverged { version, cause, reason }) => {
                        tracing::error!(replica = name, %version, %reason, "a record cannot be applied");
                        AgentEvent::Diverged { version, cause, reason }
                    }
                }
            }
            Command::Maintain { applied, stands_at, forget, marks, .. } => {
                let stands_at = stands_at.map(|identity| identity::put_sql(identity, &self.assignment.seal));
                maintain(control, &stands_at.unwrap_or_default(), &forget, &marks).await?;
                self.swept = AppliedSet::at(control, &self.assignment.seal).sweep(self.swept).await?;
                AgentEvent::Durable { upto: applied }
            }
            Command::LoadCatalogue { generation, .. } => {
                let catalogue = load_catalogue(control, self.assignment.served.id, generation).await?;
                AgentEvent::Catalogue { catalogue: Box::new(catalogue) }
            }
        };
        self.events.send(event).await.map_err(|_| Ended::Owner)
    }
}

/// Inserts the identity at which the replica stands, deletes identities, and flushes everything that was committed so
/// far. A transaction that has an id of its own and commits synchronously waits until the server's log is on disk up to
/// there.
async fn maintain(
    control: &mut OwnConnection,
    put_stand: &str,
    forget: &[Identity],
    marks: &[Sequence],
) -> Result<(), BackendError> {
    let forget = identity::forget_sql(forget);
    let keep: Vec<String> = marks.iter().map(|mark| format!("SELECT {}; ", keep_call(mark))).collect();
    let keep = keep.concat();
    control
        .query(&format!(
            "BEGIN; SET LOCAL synchronous_commit = on; SELECT pg_current_xact_id(); {keep}\
             {forget}; {put_stand}\
             DELETE FROM onecopy_capture.vouched v WHERE NOT EXISTS (SELECT FROM pg_stat_get_activity(NULL) a \
             WHERE a.pid = v.pid AND a.backend_start = v.started); COMMIT"
        ))
        .await?;
    Ok(())
}
