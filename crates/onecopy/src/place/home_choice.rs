//! Where an update transaction may have its home, and what becomes of one that turns out to need the anchor.
//!
//! Any replica may be the home of what is bounded: statements that the catalogue understands to the end, on tables whose
//! rows mean the same everywhere, without schema changes, cursors, notifications, or anything else that is the
//! anchor's own. The core chooses among them by conflict and load. A transaction that is one statement is known whole; of
//! an interactive one the first statement is known, and how others went on that began alike ([`crate::database::workload_stats`]).
//!
//! A transaction at another home may meet a statement that only the anchor can run. If all that it did was to read, and
//! nobody can tell where, it moves there unseen; a query of the catalogues alone is run there beside it; else it fails
//! with 40001, and the next one that begins alike begins at the anchor.
//!
//! Invariant: what runs away from the anchor leaves nothing there but captured rows.

use std::collections::BTreeSet;

use cluster::claims::Claims;
use cluster::event::{Home, Reads};
use cluster::ids::{ReplicaId, SequenceId, Version};
use sql::{Because, Isolation, SetValue, TemplateId, TransactionOptions, Verb};
use tracing::Instrument;
use wire::{encode, sqlstate};

use super::sequence_leases::SEQUENCES_ANCHOR;
use crate::classify::footprint::forecast;
use crate::classify::statement_analysis::StatementAnalysis;
use crate::client::forbidden::ValueError;
use crate::client::own_settings::{HOME_SETTING, SEQUENCES_LENT, SEQUENCES_SETTING, is_kept};
use crate::error::{Fault, Refusal};
use crate::logging::stage_span;
use crate::place::Placer;
use crate::relay::Ended;
use crate::transaction::anchor_reason::AnchorReason;
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// The value of `onecopy.home` when nothing is said.
const HOME_AUTO: &str = "auto";

/// Where the session's update transactions begin, if they may run there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HomePreference {
    /// Where the core thinks best, once it is known that such transactions do not need the anchor.
    #[default]
    Auto,
    /// At the anchor.
    Anchor,
    /// Where the core thinks best.
    Any,
    /// At this replica.
    At(ReplicaId),
}

/// With what an update transaction begins.
#[derive(Debug)]
pub(crate) struct PlaceDecision {
    /// What its first statement reads.
    pub(crate) reads: Reads,
    /// What that may write.
    pub(crate) writes: Claims,
    /// Rows that later ones are likely to write.
    pub(crate) foreseen: Claims,
    /// It fails rather than to wait for transactions of other homes.
    pub(crate) nowait: bool,
    /// Where it may run.
    pub(crate) home: Home,
    /// Why at the anchor, if it runs there.
    pub(crate) reason: AnchorReason,
    /// Away from the anchor only where these sequences are lent to.
    pub(crate) draws: BTreeSet<SequenceId>,
    /// It asks what was drawn before, which is known there only.
    pub(crate) asks_draws: bool,
    /// The catalogue that this was concluded from.
    pub(crate) generation: Version,
    /// Of its first statement.
    pub(crate) template: Option<TemplateId>,
}

impl PlaceDecision {
    /// Of what nobody can bound.
    pub(crate) fn unbounded() -> Self {
        let (reads, writes) = (Reads::All, Claims::everything());
        Self {
            reads,
            writes,
            foreseen: Claims::default(),
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
    /// As a read in a transaction of the server's own, at one replica if only that can answer.
    Read { reads: Reads, at: Option<ReplicaId> },
    /// As an update transaction.
    Update(Box<PlaceDecision>),
}

impl View<'_> {
    /// The home that was wished for, or the anchor if that has turned out to be better.
    pub(crate) fn home_by_waits(self, home: Home, template: Option<TemplateId>) -> (Home, AnchorReason) {
        if template.is_some_and(|template| self.link.database().workload.stays(template)) {
            (Home::Anchor, AnchorReason::Waits)
        } else {
            (home, AnchorReason::Chosen)
        }
    }

    /// Whether the schema has changed since, which only the anchor's own locks keep from being seen.
    pub(crate) fn is_stale_at(self, replica: ReplicaId, generation: Version) -> bool {
        replica != self.link.anchor() && self.link.coordinator().view.is_outdated(generation)
    }

    /// What tells where a transaction belongs whose first statement does not: an order's, say, that begins by looking at
    /// the customer. Whole tables would put everything at one place.
    fn predicted_rows(self, opening: &PlaceDecision) -> Claims {
        let is_placed = matches!(opening.home, Home::Any | Home::Drawing { .. });
        if !is_placed || !opening.writes.rows.is_empty() || opening.writes.everything {
            return Claims::default();
        }
        let foreseen = self.prediction().map(|foreseen| foreseen.accesses).unwrap_or_default();
        let rows = forecast(&foreseen, self.link.id.0, &self.link.database().catalogue()).rows;
        Claims { rows, ..Claims::default() }
    }

    fn check_kept(self, name: &str, text: &str) -> Result<(), Refusal> {
        let hint = match name {
            HOME_SETTING if self.parse_home_preference(text).is_none() => {
                "It is auto, any, anchor, or the name of a replica."
            }
            SEQUENCES_SETTING
                if ![SEQUENCES_LENT, SEQUENCES_ANCHOR].iter().any(|w| w.eq_ignore_ascii_case(text)) =>
            {
                "It is lent or anchor."
            }
            HOME_SETTING | SEQUENCES_SETTING => return Ok(()),
            _ => {
                return Err(Refusal::unsupported(
                    format!("changing {name}"),
                    "Use SET LOCAL in each transaction.",
                ));
            }
        };
        let message = format!("invalid value for parameter \"{name}\": \"{text}\"");
        Err(Refusal::new(sqlstate::INVALID_PARAMETER_VALUE, message, hint))
    }

    fn kept_value(self, name: &str) -> String {
        match name {
            HOME_SETTING => self.link.settings.noted.home.as_deref().unwrap_or(HOME_AUTO).to_owned(),
            _ => if self.uses_leases() { SEQUENCES_LENT } else { SEQUENCES_ANCHOR }.to_owned(),
        }
    }

    /// Where the session wants its update transactions to begin.
    pub(crate) fn home_preference(self) -> HomePreference {
        self.link
            .settings
            .noted
            .home
            .as_deref()
            .and_then(|text| self.parse_home_preference(text))
            .unwrap_or_default()
    }

    fn parse_home_preference(self, text: &str) -> Option<HomePreference> {
        let words = [
            (HOME_AUTO, HomePreference::Auto),
            ("anchor", HomePreference::Anchor),
            ("any", HomePreference::Any),
        ];
        let word = words.into_iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        let named = || self.link.coordinator().seats.named(text).map(|seat| HomePreference::At(seat.replica));
        word.map(|(_, wish)| wish).or_else(named)
    }

    /// Before a statement of an open update transaction: one that only the anchor can run, in a transaction elsewhere.
    pub(crate) fn is_away_for(self, analysis: &StatementAnalysis) -> bool {
        matches!(&self.txn.state, Transaction::Update(update)
            if update.replica != self.link.anchor() && !analysis.may_leave_anchor)
    }
}

impl Placer<'_> {
    /// Chooses for work outside of a transaction. `ends` is false when more may follow before the implicit transaction ends.
    pub(crate) fn choose_alone(
        &mut self,
        analysis: &StatementAnalysis,
        ends: bool,
    ) -> impl Future<Output = Result<AloneChoice, Fault>> {
        async move {
            let nothing_runs = analysis.is_empty();
            // A part of an implicit transaction may be followed by anything. What the session has at the anchor may change
            // what the statement means, so the statement runs there, with capture.
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
                    let opening = self.opening(analysis, BTreeSet::new(), may_leave);
                    AloneChoice::Update(Box::new(opening))
                }
            })
        }
        .instrument(stage_span!("place"))
    }

    /// With what an interactive transaction begins.
    pub(crate) async fn opening_interactive(
        &mut self,
        analysis: &StatementAnalysis,
    ) -> Result<PlaceDecision, Fault> {
        let coordinator = self.link.coordinator();
        let known = analysis.template.and_then(|template| {
            coordinator.database.workload.may_leave(template, coordinator.database.catalogue().generation())
        });
        let is_known = known.is_some()
            || matches!(self.view().home_preference(), HomePreference::Any | HomePreference::At(_))
            || self.asks_draws_elsewhere(analysis);
        let foreseen = known.unwrap_or_default();
        let returns = std::mem::take(&mut self.txn.retry_hints.needs_anchor);
        let may = analysis.may_leave_anchor
            && is_known
            && self.view().may_use_leases(&foreseen)
            && !returns
            && !self.must_stay_home().await?;
        let opening = self.opening(analysis, foreseen, may);
        let foreseen = self.view().predicted_rows(&opening);
        Ok(PlaceDecision { foreseen, ..opening })
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
        let foreseen = Claims::default();
        PlaceDecision {
            reads,
            writes,
            foreseen,
            nowait,
            home,
            reason,
            draws,
            asks_draws,
            generation,
            template,
        }
    }

    /// Handles settings of our own, `onecopy.access`, `onecopy.home` and `onecopy.sequences`.
    pub(crate) fn own_setting(&mut self, verb: &Verb) -> Result<Option<Ended>, Fault> {
        if let Some(ended) = self.driver().access_setting(verb)? {
            return Ok(Some(ended));
        }
        self.session_setting(verb)
    }

    /// What holds in the session.
    fn session_setting(&mut self, verb: &Verb) -> Result<Option<Ended>, Fault> {
        let tag = match verb {
            Verb::Set { name, value, local } if is_kept(name) => {
                self.set_kept(name, value, *local)?;
                "SET"
            }
            Verb::Reset(Some(name)) if is_kept(name) => {
                self.stage_kept(name, None);
                "RESET"
            }
            Verb::Show(name) if is_kept(name) => {
                let value = self.view().kept_value(name);
                self.link.show_value(name, &value);
                return Ok(Some(Ended::default()));
            }
            _ => return Ok(None),
        };
        encode::command_complete(&mut self.link.client.out, tag);
        Ok(Some(Ended::default()))
    }

    fn set_kept(&mut self, name: &str, value: &SetValue, local: bool) -> Result<(), Fault> {
        if local {
            let what = format!("SET LOCAL {name}");
            return Err(Refusal::unsupported(what, "Use SET before the transaction.").into());
        }
        match value {
            SetValue::Default => self.stage_kept(name, None),
            SetValue::Text(text) => {
                self.view().check_kept(name, text)?;
                self.stage_kept(name, Some(text));
            }
            _ => return Err(ValueError::NotConstant { name: name.to_owned() }.into()),
        }
        Ok(())
    }

    fn stage_kept(&mut self, name: &str, value: Option<&str>) {
        self.link.settings.stage(name, value, "");
        if matches!(self.txn.state, Transaction::None) {
            self.link.settings.keep_staged();
        }
    }

    /// What start-up says of settings of our own, and ALTER ROLE and ALTER DATABASE. What is wrong is fatal if the client says
    /// so itself; else it is to be warned of, as PostgreSQL does.
    pub(crate) fn begin_with_own(&mut self) -> Result<Vec<Refusal>, Fault> {
        let mut useless = Vec::new();
        for said in self.link.settings.take_own() {
            match self.view().check_kept(&said.name, &said.value) {
                Ok(()) => self.link.settings.begin_with_own(&said),
                Err(refusal) if said.is_clients => return Err(Fault::Fatal(refusal)),
                Err(refusal) => useless.push(refusal),
            }
        }
        Ok(useless)
    }

    /// Rolls the open transaction back, which was at the wrong home: the next one that begins alike begins at the anchor.
    pub(crate) async fn lose_at_home(&mut self, why: &str) -> Fault {
        self.note_anchor_needed();
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

    /// The open transaction has met something that only the anchor can do.
    pub(crate) fn note_anchor_needed(&mut self) {
        if let Transaction::Update(update) = &mut self.txn.state {
            update.profile.needs_anchor = true;
        }
        self.driver().note_beginning();
    }

    /// Whether reads may not leave the home: it has things of this session that other servers have not.
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
            // What the transaction itself has set would count as the session's.
            return Ok(true);
        }
        self.connector().find_out(anchor).await;
        self.link.keep_state()?;
        Ok(self.link.leftovers.pinned)
    }
}

/// The isolation of a transaction inside of a server: SERIALIZABLE is ours to certify.
pub(crate) fn inside(options: TransactionOptions) -> Isolation {
    match options.isolation.unwrap_or(Isolation::ReadCommitted) {
        Isolation::Serializable => Isolation::RepeatableRead,
        other => other,
    }
}
