//! Decides where an update transaction may have its home, and ends a transaction elsewhere that needs the anchor.
//!
//! Example: `UPDATE t SET v = 1 WHERE k = 7` writes one row, known by its key. So any replica may be its home, and the
//! core chooses one by conflicts and load. `CREATE TABLE`, cursors, notifications, and statements whose rows the
//! catalogue does not tell run at the anchor. All of an autocommit transaction is known. Of an interactive one only the
//! first statement is known, and how transactions with the same beginning went on
//! ([`crate::database::workload_stats`]).
//!
//! A transaction at another home may reach a statement that only the anchor can run. If that only queries the
//! catalogues, it runs at the anchor, beside the transaction. A transaction that has only read restarts at the anchor,
//! transparently. Any other transaction fails with 40001, and the next one with the same beginning starts at the
//! anchor.
//!
//! Invariant: a transaction away from the anchor leaves nothing at its home but captured rows.

use std::collections::BTreeSet;
use std::pin::pin;

use cluster::claims::Claims;
use cluster::event::{Foreseen, Home, Kind, Reads};
use cluster::ids::{ReplicaId, SequenceId, Version};
use cluster::placement::Touches;
use sql::{Because, Isolation, TemplateId, TransactionOptions};
use wire::sqlstate;

use super::holdings::HomeTables;
use super::own_settings::HomePreference;
use super::whole;
use crate::classify::footprint::forecast;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::error::{Fault, Refusal};
use crate::logging::{in_stage, stage_span};
use crate::place::Placer;
use crate::transaction::anchor_reason::AnchorReason;
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// The request with which an update transaction begins.
#[derive(Clone, Debug)]
pub(crate) struct PlaceDecision {
    /// Reads of the first statement.
    pub(crate) reads: Reads,
    /// The tables of the first statement, and those that are expected of later ones.
    pub(crate) touches: Touches,
    /// Rows that the first statement may write.
    pub(crate) writes: Claims,
    /// What is known of later statements.
    pub(crate) foreseen: Foreseen,
    /// The kind of the transaction, if the protocol asks for it.
    pub(crate) kind: Option<Box<Kind>>,
    /// The transaction fails instead of waiting for transactions of other homes.
    pub(crate) nowait: bool,
    pub(crate) home: Home,
    /// The reason, if it runs at the anchor.
    pub(crate) reason: AnchorReason,
    /// Away from the anchor, it runs only where these sequences are leased.
    pub(crate) draws: BTreeSet<SequenceId>,
    /// It asks for values drawn earlier, which only one replica knows.
    pub(crate) asks_draws: bool,
    /// The version of the catalogue behind this decision.
    pub(crate) generation: Version,
    /// The template of the first statement.
    pub(crate) template: Option<TemplateId>,
}

impl PlaceDecision {
    /// The request of a statement whose rows are not known.
    pub(crate) fn unbounded() -> Self {
        let (reads, writes) = (Reads::All, Claims::everything());
        Self {
            reads,
            touches: Touches::Anything,
            writes,
            foreseen: Foreseen::default(),
            kind: None,
            nowait: false,
            home: Home::Anchor,
            reason: AnchorReason::Needs(Because::Update),
            draws: BTreeSet::new(),
            asks_draws: false,
            generation: Version(u64::MAX),
            template: None,
        }
    }
}

/// How work outside of a transaction runs.
#[derive(Debug)]
pub(crate) enum AloneChoice {
    /// As a read in a transaction of the server's own. The replica is given if only that one can answer.
    Read { reads: Reads, at: Option<ReplicaId> },
    /// As an update transaction.
    Update(Box<PlaceDecision>),
}

impl View<'_> {
    /// The requested home, or the anchor if such transactions waited too long elsewhere.
    pub(crate) fn home_by_waits(self, home: Home, template: Option<TemplateId>) -> (Home, AnchorReason) {
        let stays = |template| self.link.database().workload.stays(template);
        if !self.link.has_local_replica() && template.is_some_and(stays) {
            (Home::Anchor, AnchorReason::Waits)
        } else {
            (home, AnchorReason::Chosen)
        }
    }

    /// Whether the schema has changed since the decision. At the anchor its own locks protect the transaction.
    pub(crate) fn is_stale_at(self, replica: ReplicaId, generation: Version) -> bool {
        replica != self.link.anchor() && self.link.coordinator().view.is_outdated(generation)
    }

    /// Rows that later statements will probably write, if the first statement writes none. Example: an order begins
    /// with a SELECT of its customer. Whole tables are left out, since they would put every transaction at one home.
    fn predicted_rows(self, opening: &PlaceDecision) -> Claims {
        let is_placed = matches!(opening.home, Home::Any | Home::Drawing { .. });
        if !is_placed || !opening.writes.rows.is_empty() || opening.writes.everything {
            return Claims::default();
        }
        let foreseen = self.prediction().map(|foreseen| foreseen.accesses).unwrap_or_default();
        let rows = forecast(&foreseen, self.link.id.0, &self.link.database().catalogue()).rows;
        Claims { rows, ..Claims::default() }
    }

    /// Before a statement of an open update transaction elsewhere: whether its home cannot run that statement, since only the
    /// anchor can, or since it lacks a table.
    pub(crate) fn is_away_for(self, analysis: &StatementAnalysis) -> bool {
        matches!(&self.txn.state, Transaction::Update(update)
            if update.replica != self.link.anchor() && (!analysis.may_leave_anchor || HomeTables::of(self, analysis).are_missing()))
    }
}

impl Placer<'_> {
    /// Chooses for work outside of a transaction. `ends` is false when more may follow before the implicit transaction
    /// ends.
    pub(crate) async fn choose_alone(
        &mut self,
        analysis: &StatementAnalysis,
        ends: bool,
    ) -> Result<AloneChoice, Fault> {
        let stage = pin!(async move {
            let nothing_runs = analysis.is_empty();
            // Any statement may follow a part of an implicit transaction. State of the session at the anchor may give
            // the statement another meaning, so the statement runs there, with capture.
            let may_leave = nothing_runs || (ends && !self.must_stay_home().await?);
            Ok(match &analysis.access {
                Ok(_) if nothing_runs => AloneChoice::Read { reads: Reads::Catalogue, at: None },
                Ok(tables) if may_leave => {
                    self.link.count(|stats| &stats.reads);
                    AloneChoice::Read { reads: analysis.spread_reads(tables), at: None }
                }
                Err(Because::Catalogue) if may_leave => {
                    self.link.count(|stats| &stats.anchor_catalogue);
                    AloneChoice::Read { reads: Reads::All, at: Some(self.link.anchor()) }
                }
                _ => {
                    let may_leave = analysis.may_leave_anchor && may_leave;
                    let mut opening = self.opening(analysis, BTreeSet::new(), may_leave);
                    let whole = if ends {
                        whole::whole_alone(self.view(), analysis, &opening)
                    } else {
                        whole::whole_together(self.view(), &opening)
                    };
                    if let Some(whole) = whole {
                        opening.foreseen = Foreseen::Whole(Box::new(whole));
                    }
                    AloneChoice::Update(Box::new(opening))
                }
            })
        });
        in_stage(stage_span!("place"), stage).await
    }

    /// The request with which an interactive transaction begins.
    pub(crate) async fn opening_interactive(
        &mut self,
        analysis: &StatementAnalysis,
    ) -> Result<PlaceDecision, Fault> {
        let coordinator = self.link.coordinator();
        let known = analysis.template.and_then(|template| {
            coordinator.database.workload.may_leave(template, coordinator.database.catalogue().generation())
        });
        let is_known = known.is_some() || self.view().leaves_unknown() || self.asks_draws_elsewhere(analysis);
        let foreseen = known.unwrap_or_default();
        let returns = std::mem::take(&mut self.txn.retry_hints.needs_anchor);
        let may = analysis.may_leave_anchor
            && is_known
            && self.view().may_use_leases(&foreseen)
            && !returns
            && !self.must_stay_home().await?;
        let opening = self.opening(analysis, foreseen, may);
        let foreseen = match whole::whole_block(self.view(), &opening) {
            Some(whole) => Foreseen::Whole(Box::new(whole)),
            None => Foreseen::Likely(self.view().predicted_rows(&opening)),
        };
        let touches = HomeTables::of(self.view(), analysis).of_block();
        Ok(PlaceDecision { touches, foreseen, ..opening })
    }

    /// `foreseen` are sequences that it may draw from later.
    pub(crate) fn opening(
        &mut self,
        analysis: &StatementAnalysis,
        foreseen: BTreeSet<SequenceId>,
        may_leave: bool,
    ) -> PlaceDecision {
        self.txn.named_rows.begin(analysis);
        let mut draws = analysis.draws();
        draws.extend(foreseen);
        let (wished, reason) = match self.view().home_preference() {
            _ if !may_leave => (Home::Anchor, AnchorReason::of(analysis)),
            HomePreference::Anchor => (Home::Anchor, AnchorReason::Chosen),
            HomePreference::Auto if draws.is_empty() => {
                self.view().home_by_waits(Home::Any, analysis.template)
            }
            HomePreference::Auto => self
                .view()
                .home_by_waits(Home::Drawing { last: self.txn.lease_use.last_at }, analysis.template),
            HomePreference::Any => (Home::Any, AnchorReason::Chosen),
            HomePreference::At(replica) => (Home::At(replica), AnchorReason::Chosen),
        };
        let home = if may_leave { self.home_of_draws(analysis, wished) } else { wished };
        let reason = if home == wished { reason } else { AnchorReason::of(analysis) };
        if home == Home::Anchor {
            draws.clear();
        }
        let (reads, mut writes) = (analysis.home_reads(), analysis.writes(self.link.id));
        writes.add(&std::mem::take(&mut self.txn.retry_hints.unreserved));
        let asks_draws = analysis.sequences.asks_draws() && home != Home::Anchor;
        let nowait = analysis.execution.nowait;
        let (generation, template) = (analysis.generation(), analysis.template);
        let (foreseen, kind) = (Foreseen::default(), self.view().kind(analysis));
        let touches = HomeTables::of(self.view(), analysis).touched();
        PlaceDecision {
            reads,
            touches,
            writes,
            foreseen,
            kind,
            nowait,
            home,
            reason,
            draws,
            asks_draws,
            generation,
            template,
        }
    }

    /// Rolls the open transaction back, since its home was wrong. The next one with the same beginning starts at the
    /// anchor.
    pub(crate) async fn lose_at_home(&mut self, why: &str) -> Fault {
        self.note_anchor_needed();
        self.lose_misplaced(why).await
    }

    /// Rolls the open transaction back, since its home was wrong. The session's next one starts at the anchor.
    pub(crate) async fn lose_misplaced(&mut self, why: &str) -> Fault {
        self.txn.retry_hints.needs_anchor = true;
        if let Transaction::Update(update) = &self.txn.state {
            let (options, was_implicit) = (update.options, update.boundary.is_implicit());
            self.driver().roll_back_home().await;
            if !was_implicit {
                self.txn.lose(options);
            }
        }
        let hint = "Run the transaction again: it will begin where all of it can be run.";
        Refusal::new(sqlstate::SERIALIZATION_FAILURE, why, hint).into()
    }

    /// The open transaction has reached a statement that only the anchor can run.
    pub(crate) fn note_anchor_needed(&mut self) {
        if let Transaction::Update(update) = &mut self.txn.state {
            update.profile.needs_anchor = true;
        }
        self.driver().note_beginning();
    }

    /// Whether reads must stay at the home, which has state of this session that other servers lack.
    pub(crate) async fn must_stay_home(&mut self) -> Result<bool, Fault> {
        let anchor = self.link.anchor();
        if self.link.servers.has_other_defaults() {
            return Ok(true);
        }
        if self.link.leftovers.pinned || !self.connector().is_unknown_at(anchor) {
            return Ok(self.link.leftovers.pinned);
        }
        self.link.settle().await;
        if self.txn.open_at().is_some() {
            // Settings of the transaction would count as the session's.
            return Ok(true);
        }
        self.connector().find_out(anchor).await;
        self.link.keep_state()?;
        Ok(self.link.leftovers.pinned)
    }
}

/// The isolation of a transaction inside a server: Onecopy itself certifies SERIALIZABLE.
pub(crate) fn inside(options: TransactionOptions) -> Isolation {
    match options.isolation.unwrap_or(Isolation::ReadCommitted) {
        Isolation::Serializable => Isolation::RepeatableRead,
        other => other,
    }
}
