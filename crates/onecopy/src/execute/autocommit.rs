//! Runs work outside of the client's transactions: one statement, or the beginning of an implicit transaction.
//!
//! A bounded read goes to any replica that is fresh enough. Any other statement becomes its own update transaction. It
//! is retried after a failure that is not its own: a lost replica, or a conflict with another transaction. The retries
//! end once the client has seen any of its reply.

use std::collections::BTreeSet;

use cluster::claims::Claims;
use cluster::event::{Foreseen, Reads};
use cluster::ids::ReplicaId;
use sql::TransactionOptions;
use wire::sqlstate;

use crate::classify::effects::Verbs;
use crate::classify::requirements::Requirements;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::drive::reading::WantedRead;
use crate::error::{Fault, broken};
use crate::execute::Executor;
use crate::link::Link;
use crate::link::performable::Performable;
use crate::link::wait::WAIT_MAX;
use crate::local::count;
use crate::place::holdings::HomeTables;
use crate::place::home_choice::{AloneChoice, PlaceDecision, inside};
use crate::relay::work::{OwnedWork, Work};
use crate::relay::{Ended, Expected, Hold};
use crate::transaction::open::{RETRIES_MAX, RETRY_PAUSE, Transaction};
use crate::transaction::update::Boundary;
use crate::transaction::view::View;

/// The number of retries after conflicts.
const RERUNS_MAX: u32 = 10;
/// After this many conflicts the statement reserves whole tables.
const BY_ROWS_MAX: u32 = 2;
/// The longest pause before the first retry. It doubles with each retry, up to a limit.
const RERUN_PAUSE_US: u64 = 500;
const RERUN_DOUBLINGS: u32 = 6;

impl View<'_> {
    /// Whether a read turned out to write (pitfalls 1.13). The connection's read-only default has stopped it.
    pub(crate) fn is_hidden_write(self, code: &[u8]) -> bool {
        code == sqlstate::READ_ONLY_SQL_TRANSACTION.as_bytes()
            && matches!(self.txn.state, Transaction::None)
            && !self.link.settings.defaults.read_only
    }
}

impl Executor<'_> {
    /// Runs work outside of a transaction. `ends` is false if more statements may follow in the implicit transaction.
    pub(crate) async fn run_alone(
        &mut self,
        requirements: &Requirements,
        work: Work<'_>,
        ends: bool,
    ) -> Result<Ended, Fault> {
        let (mark, started) = (self.link.client.out.len(), self.txn.admitted_at);
        self.link.client.shown = false;
        let (mut retries, mut losses) = (0, 0);
        self.txn.retry_hints.unreserved = Claims::default();
        let mut only_anchor = false;
        loop {
            let mut analysis = self.view().analyse_update(requirements).await;
            if only_anchor {
                analysis.keep_at_anchor();
            }
            if losses >= BY_ROWS_MAX {
                analysis.reserve_tables();
            }
            self.decide_keeping(requirements, &analysis);
            if analysis.sequences.asks_draws()
                && let Some(answered) = self.ask_where_drawn(&analysis, work).await
            {
                return answered;
            }
            let result = self.run_once(&analysis, work, ends).await;
            self.view().after_setting(&analysis);
            let error = match &result {
                Err(Fault::Lost(_) | Fault::Evicted) if !self.link.client.shown && retries < RETRIES_MAX => {
                    retries += 1;
                    None
                }
                Err(Fault::Rival(_))
                    if !self.link.client.shown && retries < RERUNS_MAX && self.link.retries_unseen() =>
                {
                    retries += 1;
                    losses += 1;
                    self.link.client.take_back(mark);
                    count(&self.link.local().stats.retried);
                    tokio::time::sleep(jittered(retries)).await;
                    continue;
                }
                Err(Fault::Unplaced(_)) if !self.link.client.shown && started.elapsed() < WAIT_MAX => None,
                Err(_) => {
                    if !self.link.client.shown {
                        self.link.client.take_back(mark);
                    }
                    return result;
                }
                Ok(ended) => ended.sqlstate(),
            };
            match error {
                None if result.is_ok() => return result,
                None => tokio::time::sleep(RETRY_PAUSE * (retries + 1)).await,
                Some(code) if self.view().is_hidden_write(code) => {
                    requirements.note_write(self.link.coordinator());
                    if self.link.client.shown {
                        return Err(self.placer().found_out_too_late(&result));
                    }
                    self.link.client.take_back(mark);
                    return Box::pin(self.run_hidden_write(requirements, work, ends)).await;
                }
                Some(_) => {
                    let is_end =
                        |ended| self.view().met_end_of_range(ended, &analysis, self.txn.last_home, false);
                    if self.link.client.shown || only_anchor || !result.as_ref().is_ok_and(is_end) {
                        return result;
                    }
                    only_anchor = true;
                }
            }
            self.link.client.take_back(mark);
            count(&self.link.local().stats.retried);
        }
    }

    async fn run_hidden_write(
        &mut self,
        requirements: &Requirements,
        work: Work<'_>,
        ends: bool,
    ) -> Result<Ended, Fault> {
        let analysis = requirements.as_unparsed().analyse(self.view());
        let opening = self.placer().opening(&analysis, BTreeSet::new(), false);
        Box::pin(self.update_once(&analysis, Box::new(opening), work, ends)).await
    }

    async fn run_once(
        &mut self,
        analysis: &StatementAnalysis,
        work: Work<'_>,
        ends: bool,
    ) -> Result<Ended, Fault> {
        match self.placer().choose_alone(analysis, ends).await? {
            AloneChoice::Read { reads, at } => self.read_once(&reads, at, analysis, work).await,
            AloneChoice::Update(opening) => Box::pin(self.update_once(analysis, opening, work, ends)).await,
        }
    }

    /// One read, in a transaction of the server's own.
    async fn read_once(
        &mut self,
        reads: &Reads,
        at: Option<ReplicaId>,
        analysis: &StatementAnalysis,
        work: Work<'_>,
    ) -> Result<Ended, Fault> {
        self.link.settle().await;
        let touches = match reads {
            Reads::Tables(_) | Reads::Rows(_) => HomeTables::of(self.view(), analysis).touched(),
            Reads::Catalogue | Reads::All => reads.touches(),
        };
        let (kind, generation) = (self.view().kind(analysis), analysis.generation());
        let place = self.driver().admit_read(WantedRead { reads, touches }, at, generation, kind).await?;
        let (mark, hold) = (self.link.client.out.len(), self.hold_of_read(at));
        let ended = self.driver().at_replica_holding(place.replica, work, hold).await;
        match &ended {
            Ok(ended) => self.keep_answer(mark, reads, analysis, place, ended),
            Err(_) => self.link.servers.close(place.replica),
        }
        ended
    }

    /// One update transaction for this work alone, or the beginning of an implicit one. If the core recalls it, it runs again in its
    /// place in the order.
    async fn update_once(
        &mut self,
        analysis: &StatementAnalysis,
        opening: Box<PlaceDecision>,
        work: Work<'_>,
        ends: bool,
    ) -> Result<Ended, Fault> {
        let mark = self.link.client.out.len();
        let again = self.link.client.may_be_recalled.then(|| opening.clone());
        let performable = performable_of(self.link, &opening, work);
        let is_performed = performable.is_some();
        if let Some(performable) = performable {
            self.link.worker.performables.prepare(self.link.id, performable);
        }
        let mut next = Some(opening);
        let ended = loop {
            let Some(opening) = next.take() else { break Err(broken("nothing recalls transactions here")) };
            let ended = self.update_in_place(analysis, *opening, work, ends).await;
            if !matches!(ended, Err(Fault::Recalled)) {
                break ended;
            }
            self.link.client.take_back(mark);
            next.clone_from(&again);
        };
        if is_performed {
            self.link.worker.performables.remove(self.link.id);
        }
        if std::mem::take(&mut self.txn.retry_hints.is_recalled) {
            // It was recalled while it failed for another reason, so it does not run again.
            self.link.forget_update();
        }
        ended
    }

    /// One update transaction, or the beginning of an implicit one, as often as it is let run.
    async fn update_in_place(
        &mut self,
        analysis: &StatementAnalysis,
        opening: PlaceDecision,
        work: Work<'_>,
        ends: bool,
    ) -> Result<Ended, Fault> {
        let options = self.link.resolve(TransactionOptions::default());
        let boundary = if ends { Boundary::Statement } else { Boundary::Implicit };
        self.placer().open_update(options, opening, boundary).await?;
        self.claim(analysis);
        if !ends {
            return self.at_home_guarded(analysis, work).await;
        }
        self.txn.note_unreserved(!self.view().may_write_unreserved(analysis));
        if self.can_identify_ahead(analysis, options) {
            return self.update_ahead(work).await;
        }
        let ended = self.driver().at_home(work, true).await?;
        if ended.error.is_some() {
            self.driver().roll_back_home().await;
        } else {
            self.committer().commit_home().await?;
        }
        Ok(ended)
    }

    /// Whether the identity can go with the statement in one flush. It can if no reply is needed before the identity.
    fn can_identify_ahead(&mut self, analysis: &StatementAnalysis, options: TransactionOptions) -> bool {
        options.read_only != Some(true)
            && !self.link.settings.has_timeouts
            && !self.committer().may_defer()
            && analysis.execution.verbs == Verbs::Modifications
            && analysis.routings.len() == 1
            && analysis.routings.iter().all(|r| r.claims != sql::Claims::Everything)
    }

    /// Sends BEGIN, the statement and the identity in one flush; COMMIT is the second one.
    async fn update_ahead(&mut self, work: Work<'_>) -> Result<Ended, Fault> {
        let Transaction::Update(update) = &self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let home = update.replica;
        let mut expected = Expected { hold: Hold::UntilCommit, ..work.write(self.link.servers.get(home)) };
        let is_whole = expected.completions.is_none();
        if is_whole {
            self.committer().write_identity()?;
        }
        let ended = self.driver().exchange_home(|_| std::mem::take(&mut expected)).await?;
        self.txn.note_written(&ended.command, 0);
        if is_whole {
            let identified = self.committer().read_identity().await;
            if ended.error.is_none()
                && let Err(fault) = identified
            {
                self.link.executed();
                self.driver().roll_back_home().await;
                return Err(fault);
            }
        }
        self.link.executed();
        if ended.error.is_some() {
            self.driver().roll_back_home().await;
        } else {
            self.committer().commit_home().await?;
        }
        Ok(ended)
    }
}

/// What other replicas perform of a transaction that begins with this work, if they do.
fn performable_of(link: &Link, opening: &PlaceDecision, work: Work<'_>) -> Option<Performable> {
    let Foreseen::Whole(whole) = &opening.foreseen else { return None };
    let work = OwnedWork::of(work).filter(|_| whole.is_performable)?;
    let isolation = inside(link.resolve(TransactionOptions::default()));
    let (settings, secret) = (link.settings.clone(), link.servers.secret().clone());
    Some(Performable { isolation, work, settings, secret })
}

/// The pause before a retry after a conflict.
fn jittered(attempt: u32) -> std::time::Duration {
    let limit_us = (RERUN_PAUSE_US << attempt.min(RERUN_DOUBLINGS)).max(1);
    std::time::Duration::from_micros(getrandom::u64().map_or(limit_us, |random| random % limit_us))
}
