//! Runs one statement: chooses its place and transaction, and keeps its effects on the session.
//!
//! Both query protocols come here with [`Requirements`], which name the statements, and the [`Work`] that runs them.
//! Outside of a transaction a bounded read goes to any replica that is fresh enough. Any other statement becomes an
//! update transaction of its own. Inside a transaction every statement runs where the transaction is open.

use std::collections::BTreeSet;
use std::pin::pin;

use cluster::event::{Event, Reads};
use cluster::ids::{ReplicaId, TableId, Version};
use cluster::placement::Touches;
use sql::{Catalogue, TransactionOptions, Verb};
use wire::backend::Status;

use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::client::cancel::CancelState;
use crate::client::sent::Sent;
use crate::database::workload_stats::{Described, StatementTimes};
use crate::drive::reading::WantedRead;
use crate::error::{Fault, Refusal};
use crate::execute::Executor;
use crate::local::count;
use crate::logging::{in_stage, stage_span};
use crate::place::holdings::HomeTables;
use crate::place::home_choice::inside;
use crate::relay::work::Work;
use crate::relay::{Ended, Expected, Relay};
use crate::transaction::definitions;
use crate::transaction::open::{ReadOnly, Transaction};
use crate::transaction::update::Boundary;
use crate::transaction::view::View;

impl View<'_> {
    /// Adds run times to the workload statistics. Several statements share the time equally.
    fn note_time(self, requirements: &Requirements, times: StatementTimes) {
        let count = u32::try_from(requirements.sent.len()).unwrap_or(u32::MAX).max(1);
        let share = StatementTimes { total: times.total / count, served: times.served / count };
        for sent in &requirements.sent {
            let describe = || described(sent, &self.link.database().catalogue());
            self.link.database().workload.note(sent.statement().template, share, describe);
        }
    }
}

impl Executor<'_> {
    /// Runs work in the open transaction, or in one of its own. The reply, less ReadyForQuery, is in the client's
    /// output. The error of the server, if there was one, is both in the result and in the output.
    pub(crate) async fn run(
        &mut self,
        requirements: &Requirements,
        work: Work<'_>,
        ends: bool,
    ) -> Result<Ended, Fault> {
        let stage = pin!(async move {
            tracing::debug!(statements = requirements.statements.len(), "statements run");
            let started = tokio::time::Instant::now();
            self.txn.admitted_at = started;
            self.driver().note_steps(requirements);
            self.txn.cost_us = requirements
                .sent
                .first()
                .and_then(|sent| self.link.database().workload.cost_us(sent.statement().template));
            let ended = match &self.txn.state {
                Transaction::None => match self.read_staying(requirements, work, ends).await {
                    Some(ended) => ended,
                    None => self.run_alone(requirements, work, ends).await,
                },
                // Nothing is executed, so the transaction needs no place yet.
                Transaction::Begun(_) if requirements.is_empty() => {
                    self.run_alone(requirements, work, ends).await
                }
                Transaction::Begun(said) => {
                    let is_deferrable = said.deferrable == Some(true);
                    Box::pin(self.start_transaction(requirements)).await?;
                    if is_deferrable {
                        self.defer().await?;
                    }
                    Box::pin(self.run_inside(requirements, work, true)).await
                }
                Transaction::Read(_) | Transaction::Update(_) => {
                    Box::pin(self.run_inside(requirements, work, false)).await
                }
                Transaction::Lost(_) => Err(Fault::Lost(self.txn.last_home)),
            };
            self.link.answers.asked = None;
            if ended.is_err() {
                // The core may have admitted the statement, which then did not run.
                self.link.executed();
            }
            if matches!(&ended, Ok(ended) if ended.error.is_none()) {
                let now = tokio::time::Instant::now();
                let since = |start| now.saturating_duration_since(start);
                let times = StatementTimes { total: since(started), served: since(self.txn.admitted_at) };
                self.view().note_time(requirements, times);
            }
            ended
        });
        in_stage(stage_span!("execute"), stage).await
    }

    /// The first statement after BEGIN decides where the transaction is.
    pub(crate) async fn start_transaction(&mut self, requirements: &Requirements) -> Result<(), Fault> {
        let Transaction::Begun(said) = self.txn.state else { return Ok(()) };
        let options = self.link.resolve(said);
        let mut analysis = self.view().analyse_update(requirements).await;
        let is_spread = options.read_only == Some(true)
            && analysis.access.is_ok()
            && !self.placer().must_stay_home().await?;
        if is_spread {
            match self.open_read(options, analysis.clone(), false).await {
                Err(Fault::Unplaced(_)) if self.link.servers.has_other_defaults() => {}
                opened => {
                    self.txn.state = opened?;
                    return Ok(());
                }
            }
        }
        if self.placer().may_begin_away(options, requirements, &analysis).await?
            && let Ok(transaction) = self.open_read(options, analysis.clone(), true).await
        {
            count(&self.link.local().stats.roamed);
            self.txn.state = transaction;
            return Ok(());
        }
        self.txn.state = Transaction::None;
        let mut opening = self.placer().opening_interactive(&analysis).await?;
        let mut opened = self.placer().open_update(options, opening, Boundary::Block).await;
        while let Err(Fault::Unplaced(_)) = opened {
            analysis = self.view().analyse_update(requirements).await;
            opening = self.placer().opening_interactive(&analysis).await?;
            opened = self.placer().open_update(options, opening, Boundary::Block).await;
        }
        if opened.is_err() {
            self.txn.state = Transaction::Begun(said);
        }
        if let Transaction::Update(update) = &mut self.txn.state {
            update.profile.template = analysis.template;
        }
        opened
    }

    /// Makes the transaction DEFERRABLE at the server, since our BEGIN does not say so.
    async fn defer(&mut self) -> Result<(), Fault> {
        const DEFER: &str = "SET TRANSACTION DEFERRABLE";
        if let Transaction::Read(read) = &self.txn.state {
            let server = self.link.servers.get(read.replica);
            server.query(DEFER.as_bytes());
            Relay::new(&mut self.link.client, server, None).run(Expected::silent()).await?;
        } else if let Transaction::Update(_) = &self.txn.state {
            self.driver().own_query(DEFER).await?;
        }
        Ok(())
    }

    async fn open_read(
        &mut self,
        options: TransactionOptions,
        analysis: StatementAnalysis,
        is_read_first: bool,
    ) -> Result<Transaction, Fault> {
        self.link.settle().await;
        let is_snapshot = options.isolation >= Some(sql::Isolation::RepeatableRead);
        let (reads, touches) = match &analysis.access {
            Ok(tables) if !is_snapshot => {
                (analysis.spread_reads(tables), HomeTables::of(self.view(), &analysis).touched())
            }
            _ => (Reads::All, Touches::Anything),
        };
        let (kind, generation) = (self.view().kind(&analysis), analysis.generation());
        let replica = self
            .driver()
            .place_read_of(WantedRead { reads: &reads, touches }, None, generation, kind)
            .await?;
        let server = self.link.servers.get(replica);
        server.begin(inside(options), true);
        Ok(Transaction::Read(ReadOnly { replica, options, is_read_first, is_snapshot, has_snapshot: false }))
    }

    /// Runs work in the open transaction.
    pub(crate) async fn run_inside(
        &mut self,
        requirements: &Requirements,
        work: Work<'_>,
        is_first: bool,
    ) -> Result<Ended, Fault> {
        if self.txn.is_read_first() {
            return Box::pin(self.run_read_first(requirements, work, is_first)).await;
        }
        let mut analysis = self.view().analyse_inside(requirements).await;
        let takes_snapshot = requirements.takes_snapshot();
        if analysis.session.traces.locks && self.view().is_reading_away() {
            self.come_home_to_lock().await?;
        }
        if let Transaction::Read(read) = &self.txn.state {
            let replica = read.replica;
            if let Some(reads) = HomeTables::of(self.view(), &analysis).reads_beside(requirements)
                && !matches!(work, Work::Batch { sync: false, .. })
            {
                return self.read_beside(&reads, &analysis, work).await;
            }
            if !is_first {
                self.pass_read(&analysis).await?;
            }
            self.connector().foresee_traces(&analysis, replica);
            let ended = self.driver().at_replica(replica, work).await;
            if ended.is_err() {
                self.driver().abandon_read();
            }
            self.txn.note_snapshot(takes_snapshot, &ended);
            return ended;
        }
        if analysis.sequences.asks_draws()
            && let Some(answered) = self.ask_where_drawn(&analysis, work).await
        {
            return answered;
        }
        if let Some(answered) = self.ask_beside(requirements, &analysis, work).await {
            return answered;
        }
        if !is_first {
            self.txn.named_rows.add(&analysis);
        }
        let is_first = self.come_to_anchor(&analysis, is_first).await? || is_first;
        if !is_first {
            self.pass(&analysis).await?;
            while self.view().is_stale_at(self.txn.last_home, analysis.generation()) {
                // The analysis is outdated; nothing was sent.
                self.link.executed();
                analysis = self.view().analyse_inside(requirements).await;
                if self.come_to_anchor(&analysis, false).await? {
                    break;
                }
                self.pass(&analysis).await?;
            }
        }
        self.claim(&analysis);
        self.txn.record_profile(requirements, &analysis);
        let home = self.txn.last_home;
        self.placer().await_sequences(home).await?;
        let mark = self.link.client.out.len();
        self.link.client.shown = false;
        let ended = self.at_home_guarded(&analysis, work).await;
        self.txn.note_snapshot(takes_snapshot, &ended);
        if let Ok(ended) = &ended {
            self.driver().explain_loss(ended, &analysis, mark).await;
        }
        self.placer().after_draw(&analysis, mark, ended).await
    }

    /// Waits for the turn of a further statement of the open read transaction.
    async fn pass_read(&mut self, analysis: &StatementAnalysis) -> Result<(), Fault> {
        let Transaction::Read(read) = &self.txn.state else { return Ok(()) };
        let replica = read.replica;
        let (reads, touches) = match &analysis.access {
            _ if read.has_snapshot => (Reads::Tables([].into()), Touches::Tables([].into())),
            Ok(tables) if !read.is_snapshot => {
                (analysis.spread_reads(tables), HomeTables::of(self.view(), analysis).touched())
            }
            _ => (Reads::All, Touches::Anything),
        };
        let read = WantedRead { reads: &reads, touches };
        let began_in = self.link.servers.find(replica).map(|server| server.incarnation);
        let place = self.driver().admit_read(read, Some(replica), analysis.generation(), None).await?;
        if began_in == Some(place.incarnation) {
            return Ok(());
        }
        // The connection that has the transaction and its snapshot was lost meanwhile. This one is new.
        self.link.executed();
        self.driver().abandon_read();
        Err(Fault::Lost(replica))
    }

    pub(crate) fn claim(&mut self, analysis: &StatementAnalysis) {
        let catalogue = self.link.database().catalogue();
        if let Some(replica) = self.txn.open_at() {
            self.connector().foresee_traces(analysis, replica);
        }
        self.placer().note_place_of_draws(analysis);
        if let Transaction::Update(update) = &mut self.txn.state {
            update.server.has_held_cursor |= analysis.execution.holds_cursor;
            update.unseen.has_locks |= analysis.rows.has_locks;
            update.unseen.has_uncounted = analysis.rows.has_uncounted;
            update.generation = update.generation.min(analysis.generation());
            update.sequences.note(analysis, &catalogue);
            for claims in &analysis.claims {
                update.capture.claims.add(claims, analysis.touched.as_deref(), &catalogue);
            }
            if analysis.knowledge.has_unparsed {
                update.capture.claims.add_everything();
            }
            update.schema.definitions.begin_statement(analysis);
            if update.options.isolation == Some(sql::Isolation::Serializable) {
                update.reads.add(&analysis.home_reads());
                update.reads.add(&definitions::read(analysis));
                update.reads.may_have_written |= analysis.rows.may_write;
            }
            if analysis.is_suspect() {
                update.unseen.suspect();
            }
        }
    }

    /// Connects to the home, when it is up and has every schema change that was acknowledged.
    pub(crate) async fn connect_home(&mut self) -> Result<ReplicaId, Fault> {
        let home = self.driver().place_read(&Reads::Catalogue, None, Version::ZERO).await?;
        self.link.executed();
        self.link.session_registration.cancel.set(CancelState::Nothing);
        Ok(home)
    }

    /// Runs work at one replica, outside of any transaction of ours.
    pub(crate) async fn read_at(
        &mut self,
        reads: &Reads,
        replica: ReplicaId,
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        self.read_after(None, reads, replica, work).await
    }

    /// Waits for the turn of a further statement of the open update transaction.
    async fn pass(&mut self, analysis: &StatementAnalysis) -> Result<(), Fault> {
        let writes = analysis.writes(self.link.id);
        let touches = HomeTables::of(self.view(), analysis).touched();
        self.driver().gate(analysis.home_reads(), touches, writes, analysis.execution.nowait).await
    }

    /// Runs work at one replica like [`Self::read_at`], after a statement of ours on the same connection.
    pub(crate) async fn read_after(
        &mut self,
        before: Option<&str>,
        reads: &Reads,
        replica: ReplicaId,
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        let catalogue = Version(self.link.database().catalogue().generation());
        self.driver().place_read(reads, Some(replica), catalogue).await?;
        let prepared = match before {
            Some(sql) => {
                self.link.servers.get(replica).ask(sql).await.map(|_| ()).map_err(Fault::at(replica))
            }
            None => Ok(()),
        };
        let ended = match prepared {
            Ok(()) => self.driver().at_replica(replica, work).await,
            Err(fault) => {
                self.link.executed();
                Err(fault)
            }
        };
        if ended.is_err() {
            self.link.servers.close(replica);
        }
        ended
    }

    /// Updates the state of the transaction after a unit.
    pub(crate) fn note_status(&mut self, ended: &Ended) {
        match ended.status {
            Some(Status::Failed) => self.txn.failed = true,
            Some(Status::Open) => self.txn.failed = false,
            _ if ended.error.is_some() => self.txn.failed = true,
            _ => {}
        }
        if matches!(self.txn.state, Transaction::None) {
            self.txn.failed = false;
        }
        if self.txn.failed
            && self.txn.savepoints.is_empty()
            && matches!(self.txn.state, Transaction::Update(_))
        {
            // As on one server, other transactions no longer wait for it.
            self.link.coordinator().core.tell(Event::Failed { session: self.link.id });
        }
    }
}

/// A statement without its constants, and the tables that it reads and writes.
fn described(sent: &Sent, catalogue: &Catalogue) -> Described {
    let routing = sent.statement().routing(catalogue);
    let written: BTreeSet<TableId> = routing.writes.iter().flatten().copied().collect();
    let tables = routing.reads.as_ref().zip(routing.writes.as_ref());
    let tables = tables.map(|(reads, writes)| reads.iter().chain(writes).copied().collect());
    Described { text: sent.template(), tables, written }
}

/// The error of a statement that Onecopy does not support.
pub(crate) fn refuse(verb: &Verb) -> Option<Refusal> {
    match verb {
        Verb::Refused { what, hint } => Some(Refusal::unsupported(what, *hint)),
        _ => None,
    }
}
