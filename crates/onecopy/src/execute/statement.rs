//! What becomes of one statement: where it runs, in which transaction, and what the session remembers of it.
//!
//! Both query protocols come here with a [`Step`]: a statement, its routing under the present catalogue, and the
//! [`Work`] that runs it. Outside of a transaction a bounded read goes to any replica that is fresh enough; anything
//! else becomes an update transaction of its own at the home. In a transaction everything runs where that is open.

use std::sync::Arc;

use cluster::event::{Event, Reads};
use cluster::ids::{ReplicaId, Version};
use sql::{TransactionOptions, Verb};
use wire::backend::Status;

use crate::classify::statement_analysis::{Demand, Judged};
use crate::client::cancel::Doing;
use crate::coordinator::count;
use crate::error::{Fault, Refusal};
use crate::place::home_choice::inside;
use crate::place::read_first::may_roam;
use crate::relay::work::Work;
use crate::relay::{Ended, Relay};
use crate::session::{Placed, ReadOnly, Session, Transaction};
use crate::transaction::definitions;

/// Time that a read is expected to take until more is known.
const READ_COST_US: u32 = 100;

impl Session {
    /// Runs work in the open transaction, or in one of its own. The reply, less ReadyForQuery, is in the client's
    /// output; the error of the server, if there was one, is in what is returned and in the output, too.
    pub(crate) async fn run(&mut self, demand: &Demand, work: Work<'_>, ends: bool) -> Result<Ended, Fault> {
        let started = tokio::time::Instant::now();
        self.placed = started;
        self.note_steps(demand);
        self.cost_us =
            demand.sent.first().and_then(|sent| self.hub().learned.cost_us(sent.statement().template));
        let ended = match &self.transaction {
            Transaction::None => self.run_alone(demand, work, ends).await,
            // Nothing is executed, so the transaction need not be anywhere yet.
            Transaction::Begun(_) if demand.is_empty() => self.run_alone(demand, work, ends).await,
            Transaction::Begun(said) => {
                let is_deferrable = said.deferrable == Some(true);
                self.start_transaction(demand).await?;
                if is_deferrable {
                    self.defer().await?;
                }
                self.run_inside(demand, work, true).await
            }
            Transaction::Read(_) | Transaction::Update(_) => self.run_inside(demand, work, false).await,
            Transaction::Lost(_) => Err(Fault::Lost(self.last_home)),
        };
        if ended.is_err() {
            // It may have had its turn and not come to run.
            self.executed();
        }
        if matches!(&ended, Ok(ended) if ended.error.is_none()) {
            let now = tokio::time::Instant::now();
            self.note_time(demand, [started, self.placed].map(|since| now.saturating_duration_since(since)));
        }
        ended
    }

    /// For the book of templates. Of several statements each has its share of the time.
    fn note_time(&self, demand: &Demand, times: [std::time::Duration; 2]) {
        let [took, served] =
            times.map(|time| time / u32::try_from(demand.sent.len()).unwrap_or(u32::MAX).max(1));
        for sent in &demand.sent {
            self.hub().learned.note(sent.statement().template, (took, served), || sent.template());
        }
    }

    /// The first statement after BEGIN decides where the transaction is.
    pub(crate) async fn start_transaction(&mut self, demand: &Demand) -> Result<(), Fault> {
        let Transaction::Begun(said) = self.transaction else { return Ok(()) };
        let options = self.resolve(said);
        let mut judged = self.judge_update(demand).await;
        let is_spread =
            options.read_only == Some(true) && judged.access.is_ok() && !self.must_stay_home().await?;
        if is_spread {
            match self.open_read(options, judged.clone(), false).await {
                Err(Fault::Unplaced(_)) if self.servers.has_other_defaults() => {}
                opened => {
                    self.transaction = opened?;
                    return Ok(());
                }
            }
        }
        if self.may_begin_away(options, demand, &judged).await?
            && let Ok(transaction) = self.open_read(options, judged.clone(), true).await
        {
            count(&self.hub().stats.roamed);
            self.transaction = transaction;
            return Ok(());
        }
        self.transaction = Transaction::None;
        let mut opening = self.opening_interactive(&judged).await?;
        let mut opened = self.open_update(options, opening, false).await;
        while let Err(Fault::Unplaced(_)) = opened {
            judged = self.judge_update(demand).await;
            opening = self.opening_interactive(&judged).await?;
            opened = self.open_update(options, opening, false).await;
        }
        if opened.is_err() {
            self.transaction = Transaction::Begun(said);
        }
        if let Transaction::Update(update) = &mut self.transaction {
            update.first = judged.template;
        }
        opened
    }

    /// The server is told that the transaction is DEFERRABLE, which our BEGIN does not say.
    async fn defer(&mut self) -> Result<(), Fault> {
        const DEFER: &str = "SET TRANSACTION DEFERRABLE";
        if let Transaction::Read(read) = &self.transaction {
            let server = self.servers.get(read.replica);
            server.query(DEFER.as_bytes());
            Relay::new(&mut self.client, server, None).run(Self::silent()).await?;
        } else if let Transaction::Update(_) = &self.transaction {
            self.own_query(DEFER).await?;
        }
        Ok(())
    }

    async fn open_read(
        &mut self,
        options: TransactionOptions,
        judged: Judged,
        is_roaming: bool,
    ) -> Result<Transaction, Fault> {
        if self.is_settling {
            self.settle().await;
        }
        let is_snapshot = options.isolation >= Some(sql::Isolation::RepeatableRead);
        let reads = match &judged.access {
            Ok(tables) if !is_snapshot => judged.spread_reads(tables),
            _ => Reads::All,
        };
        let replica = self.place_read(&reads, None, judged.generation).await?;
        let server = self.servers.get(replica);
        server.begin(inside(options), true);
        Ok(Transaction::Read(ReadOnly { replica, options, is_roaming, is_snapshot, has_snapshot: false }))
    }

    /// Work in the open transaction.
    pub(crate) async fn run_inside(
        &mut self,
        demand: &Demand,
        work: Work<'_>,
        is_first: bool,
    ) -> Result<Ended, Fault> {
        if self.is_roaming() {
            return Box::pin(self.roam(demand, work, is_first)).await;
        }
        let mut judged = self.judge_inside(demand).await;
        let takes_snapshot = demand.takes_snapshot();
        if judged.traces.locks && self.is_reading_away() {
            self.come_home_to_lock().await?;
        }
        if let Transaction::Read(read) = &self.transaction {
            let replica = read.replica;
            if !is_first {
                let reads = match &judged.access {
                    _ if read.has_snapshot => Reads::Tables([].into()),
                    _ if read.is_snapshot => Reads::All,
                    Ok(tables) => judged.spread_reads(tables),
                    Err(_) => Reads::All,
                };
                self.place_read(&reads, Some(replica), judged.generation).await?;
            }
            self.foresee_traces(&judged, replica);
            let ended = self.at_replica(replica, work).await;
            if ended.is_err() {
                self.abandon_read();
            }
            self.note_snapshot(takes_snapshot, &ended);
            return ended;
        }
        if let Some(answered) = self.ask_where_drawn(&judged, work).await {
            return answered;
        }
        if let Some(answered) = self.ask_beside(demand, &judged, work).await {
            return answered;
        }
        if !is_first {
            self.named.add(&judged);
        }
        let is_first = self.come_to_anchor(&judged, is_first).await? || is_first;
        if !is_first {
            self.gate(judged.home_reads(), judged.writes(self.id), judged.nowait).await?;
            while self.is_stale_at(self.last_home, judged.generation) {
                // What was concluded no longer holds; nothing was sent.
                self.executed();
                judged = self.judge_inside(demand).await;
                if self.come_to_anchor(&judged, false).await? {
                    break;
                }
                self.gate(judged.home_reads(), judged.writes(self.id), judged.nowait).await?;
            }
        }
        self.claim(&judged);
        self.note_course(demand, &judged);
        self.await_sequences(self.last_home).await?;
        let mark = self.client.out.len();
        self.client.shown = false;
        let ended = self.at_home_guarded(&judged, work).await;
        self.note_snapshot(takes_snapshot, &ended);
        if let Ok(ended) = &ended {
            self.explain_loss(ended, &judged, mark);
        }
        self.after_draw(&judged, mark, ended).await
    }

    /// After a statement that has taken the transaction's snapshot, if it keeps one.
    fn note_snapshot(&mut self, takes_snapshot: bool, ended: &Result<Ended, Fault>) {
        if !takes_snapshot || !matches!(ended, Ok(ended) if ended.error.is_none()) {
            return;
        }
        match &mut self.transaction {
            Transaction::Read(read) => read.has_snapshot = read.is_snapshot,
            Transaction::Update(update) => update.has_snapshot = true,
            _ => {}
        }
    }

    /// What the transaction's home depends on.
    fn note_course(&mut self, demand: &Demand, judged: &Judged) {
        if let Transaction::Update(update) = &mut self.transaction {
            update.only_read &= may_roam(demand, judged);
            update.needs_anchor |= !judged.is_roamable;
        }
    }

    pub(crate) fn claim(&mut self, judged: &Judged) {
        let catalogue = self.hub().catalogue();
        if let Some(replica) = self.open_at() {
            self.foresee_traces(judged, replica);
        }
        self.note_place_of_draws(judged);
        if let Transaction::Update(update) = &mut self.transaction {
            update.has_hold |= judged.has_hold;
            update.has_locks |= judged.has_locks;
            update.has_uncounted = judged.has_uncounted;
            update.generation = update.generation.min(judged.generation);
            judged.note_draws(&mut update.drawn, &catalogue);
            for claims in &judged.claims {
                update.capture.claims.add(claims, judged.touched.as_deref(), &catalogue);
            }
            if judged.has_unparsed {
                update.capture.claims.add_everything();
            }
            update.definitions.begin_statement(judged);
            if update.options.isolation == Some(sql::Isolation::Serializable) {
                update.read.add(&judged.home_reads());
                update.read.add(&definitions::read(judged));
                update.is_certified |= judged.may_write;
            }
            update.is_suspect |= judged.is_suspect();
        }
    }

    /// Connects to the home, when it is up and has every schema change that was acknowledged.
    pub(crate) async fn connect_home(&mut self) -> Result<ReplicaId, Fault> {
        let home = self.place_read(&Reads::Catalogue, None, Version::ZERO).await?;
        self.executed();
        self.cancel.set(Doing::Nothing);
        Ok(home)
    }

    /// Runs work at one replica, outside of any transaction of ours.
    pub(crate) async fn read_at(&mut self, replica: ReplicaId, work: Work<'_>) -> Result<Ended, Fault> {
        self.read_after(None, replica, work).await
    }

    /// The same after a statement of ours on the same connection.
    pub(crate) async fn read_after(
        &mut self,
        before: Option<&str>,
        replica: ReplicaId,
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        self.place_read(&Reads::All, Some(replica), Version(self.hub().catalogue().generation())).await?;
        let prepared = match before {
            Some(sql) => self.servers.get(replica).ask(sql).await.map(|_| ()).map_err(Fault::at(replica)),
            None => Ok(()),
        };
        let ended = match prepared {
            Ok(()) => self.at_replica(replica, work).await,
            Err(fault) => {
                self.executed();
                Err(fault)
            }
        };
        if ended.is_err() {
            self.servers.close(replica);
        }
        ended
    }

    /// Places a read and brings a connection to the replica up to date. A catalogue that is out of date, or a replica
    /// that is lost, is reported as a loss: the caller judges and asks again.
    pub(crate) async fn place_read(
        &mut self,
        reads: &Reads,
        at: Option<ReplicaId>,
        generation: Version,
    ) -> Result<ReplicaId, Fault> {
        let event = Event::Read {
            session: self.id,
            reads: reads.clone(),
            at,
            cost_us: self.cost_us.unwrap_or(READ_COST_US),
            near: self.near,
            catalogue: generation,
        };
        self.cancel.set(Doing::Waiting);
        let place = match self.place(event).await? {
            Placed::At(place) => place,
            Placed::Again | Placed::Aborted(_) => {
                return Err(Fault::Unplaced(at.unwrap_or_else(|| self.anchor())));
            }
        };
        match self.connect(place).await {
            Ok(()) => Ok(place.replica),
            Err(fault) => {
                self.servers.close(place.replica);
                self.executed();
                Err(match fault {
                    Fault::Lost(replica) => Fault::Unplaced(replica),
                    other => other,
                })
            }
        }
    }

    /// Runs work on the connection to a replica.
    pub(crate) async fn at_replica(&mut self, replica: ReplicaId, work: Work<'_>) -> Result<Ended, Fault> {
        let server = self.servers.get(replica);
        let expected = work.write(server);
        self.cancel.set(Doing::Running(Arc::clone(&server.running)));
        let result = Relay::new(&mut self.client, server, None).run(expected).await;
        self.cancel.set(Doing::Nothing);
        self.executed();
        result
    }

    /// The read-only transaction is over because its connection is.
    pub(crate) fn abandon_read(&mut self) {
        if let Transaction::Read(read) = &self.transaction {
            let (replica, options) = (read.replica, read.options);
            self.servers.close(replica);
            self.settings.drop_staged();
            self.prepared.drop_portals();
            self.lose(options);
        }
    }

    /// Whether reads may not leave the home: it has things of this session that other servers have not.
    pub(crate) async fn must_stay_home(&mut self) -> Result<bool, Fault> {
        let anchor = self.anchor();
        if self.servers.has_other_defaults() {
            return Ok(true);
        }
        if self.pinned || !self.is_unknown_at(anchor) {
            return Ok(self.pinned);
        }
        if self.is_settling {
            self.settle().await;
        }
        if self.open_at().is_some() {
            // What the transaction itself has set would count as the session's.
            return Ok(true);
        }
        self.find_out(anchor).await;
        self.keep_state()?;
        Ok(self.pinned)
    }

    /// After a unit: what the transaction's state is now.
    pub(crate) fn note_status(&mut self, ended: &Ended) {
        match ended.status {
            Some(Status::Failed) => self.failed = true,
            Some(Status::Open) => self.failed = false,
            _ if ended.error.is_some() => self.failed = true,
            _ => {}
        }
        if matches!(self.transaction, Transaction::None) {
            self.failed = false;
        }
        if self.failed && self.savepoints.is_empty() && matches!(self.transaction, Transaction::Update(_)) {
            // As on one server nobody waits for it any more.
            self.hub().handle(Event::Failed { session: self.id });
        }
    }

    /// A statement that is not offered.
    pub(crate) fn refuse(verb: &Verb) -> Option<Refusal> {
        match verb {
            Verb::Refused { what, hint } => Some(Refusal::unsupported(what, *hint)),
            _ => None,
        }
    }
}
