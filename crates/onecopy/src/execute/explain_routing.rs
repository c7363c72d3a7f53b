//! EXPLAIN (ROUTING): shows Onecopy's analysis of a statement under the present catalogue.
//!
//! A server plans the statement first, on the session's own connection. So the client gets PostgreSQL's errors about
//! names, types and the rights of its role, as for a plain EXPLAIN. Parameters are NULL in this plan.
//!
//! Invariant: a role that may not EXPLAIN a statement learns nothing about it here, either.

use cluster::event::Reads;
use cluster::ids::Version;
use sql::Verb;
use wire::{encode, sqlstate};

use crate::classify::requirements::Requirements;
use crate::client::sent::Sent;
use crate::error::{Fault, Refusal};
use crate::execute::{Executor, keeping};
use crate::place::holdings::HomeTables;
use crate::relay::Ended;
use crate::relay::position::shift_position;
use crate::relay::work::Work;
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// The column of EXPLAIN (ROUTING).
pub(crate) const ROUTING_COLUMN: &str = "ROUTING";
/// What is told where sessions are connected to replicas.
const LOCAL_REPLICA: &str =
    "replica     the session's own replica, as it is at the moment, for all that any replica may run";
/// The type of a parameter that the statement does not mention.
const TEXT_OID: u32 = 25;
/// The most parameters of a Bind.
const PARAMETERS_MAX: u32 = u16::MAX as u32;

fn runs_code(verb: &Verb) -> bool {
    matches!(verb, Verb::Call | Verb::Do)
}

impl View<'_> {
    /// The statement as if it were sent by itself.
    fn as_sent(self, text: &str) -> Option<Sent> {
        let script = self.link.script_inside(text)?;
        let [part] = script.statements.as_slice() else { return None };
        Some(Sent::Text { text: text.as_bytes().into(), from: 0, part: part.clone() })
    }
}

impl Executor<'_> {
    /// Answers EXPLAIN (ROUTING).
    pub(crate) async fn explain_routing(&mut self, work: Work<'_>) -> Result<Ended, Fault> {
        let invalid = |message: &str| Fault::Refused(Refusal::plain(sqlstate::SYNTAX_ERROR, message));
        let Work::Query { sql, position_offset, .. } = work else {
            return Err(crate::error::broken("EXPLAIN (ROUTING) has no text"));
        };
        let text = std::str::from_utf8(sql).map_err(|_| invalid("the statement is not UTF-8"))?;
        let explained = sql::explained(text).ok_or_else(|| invalid("EXPLAIN (ROUTING) needs a statement"))?;
        let last = explained.parameters.last().copied().unwrap_or(0);
        if last > PARAMETERS_MAX {
            let message = format!("EXPLAIN (ROUTING) takes at most {PARAMETERS_MAX} parameters");
            return Err(Refusal::plain(sqlstate::PROGRAM_LIMIT_EXCEEDED, message).into());
        }
        // The server infers the types of the parameters that the statement has.
        let type_of = |number| if explained.parameters.contains(&number) { 0 } else { TEXT_OID };
        let types: Vec<u32> = (1..=last).map(type_of).collect();
        let plan = Work::Unseen { sql: explained.plain.as_bytes(), types: &types };
        let inner = explained.statement;
        let sent = self.view().as_sent(inner);
        if let Some(sent) = &sent {
            // The planner calls functions that are declared immutable.
            let at = self.txn.open_at().unwrap_or_else(|| self.link.anchor());
            let analysis = Requirements::one(sent.statement()).analyse(self.view());
            self.connector().foresee_traces(&analysis, at);
        }
        // No server plans a CALL or a DO. What is told of it stands in the catalogues, which every role may read.
        let is_planned = sent.as_ref().is_none_or(|sent| !runs_code(&sent.statement().verb));
        let ended = if is_planned { self.plan_unseen(plan).await? } else { Ended::default() };
        if let Some(body) = &ended.error {
            self.link.client.out.extend_from_slice(&shift_position(body, position_offset));
            return Ok(ended);
        }
        let present = self.link.coordinator().fresh_catalogue().await;
        let catalogue = present.ok_or_else(|| Fault::Lost(self.link.anchor()))?;
        let mut lines =
            sql::explain(inner, self.link.settings.noted.conforming, &catalogue, self.view().uses_leases())
                .map_err(|error| invalid(&error.to_string()))?;
        if let Some(sent) = &sent {
            let requirements = Requirements::sent(sent.statement(), Some(sent.clone()));
            let analysis = requirements.analyse(self.view());
            lines.extend(HomeTables::of(self.view(), &analysis).tell());
            if self.link.has_local_replica() {
                lines.push(LOCAL_REPLICA.to_owned());
            }
            if self.link.local().result_cache.is_on() {
                lines.push(keeping::explained(&requirements, &analysis));
            }
        }
        lines.extend(self.view().tell_profile(&catalogue, sent.as_ref()));
        encode::row_description(&mut self.link.client.out, &[ROUTING_COLUMN]);
        for line in &lines {
            encode::data_row(&mut self.link.client.out, &[Some(line.as_bytes())]);
        }
        encode::command_complete(&mut self.link.client.out, "EXPLAIN");
        Ok(ended)
    }

    /// Has a server plan a statement with the session's present rights. In an open transaction that is the server of
    /// the transaction. Otherwise it is the anchor, and no transaction begins.
    async fn plan_unseen(&mut self, plan: Work<'_>) -> Result<Ended, Fault> {
        match &self.txn.state {
            Transaction::None | Transaction::Begun(_) => self.run_at_home_alone(None, plan).await,
            Transaction::Update(_) => self.driver().at_home(plan, false).await,
            Transaction::Read(read) => {
                let (replica, has_snapshot) = (read.replica, read.has_snapshot);
                let reads = if has_snapshot { Reads::Tables([].into()) } else { Reads::Catalogue };
                let generation = Version(self.link.database().catalogue().generation());
                self.driver().place_read(&reads, Some(replica), generation).await?;
                let ended = self.driver().at_replica(replica, plan).await;
                if ended.is_err() {
                    self.driver().abandon_read();
                }
                ended
            }
            Transaction::Lost(_) => Err(Fault::Lost(self.txn.last_home)),
        }
    }
}
