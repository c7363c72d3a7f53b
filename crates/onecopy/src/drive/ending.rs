//! Ends the open transaction in the session: the node learns from it, and its state is dropped.

use sql::profile::Step;

use crate::drive::Driver;
use crate::local::memory_budget::Phase;
use crate::transaction::open::Transaction;

impl Driver<'_> {
    /// Ends a transaction that left no record, also in the core.
    pub(crate) fn end_transaction(&mut self, committed: bool) {
        self.link.forget_update();
        self.end_local(committed);
    }

    pub(crate) fn end_local(&mut self, committed: bool) {
        if committed {
            self.note_beginning();
        }
        if matches!(self.txn.state, Transaction::Update(_)) {
            let wait_stats = std::mem::take(&mut self.txn.wait_stats);
            let lesson = wait_stats.lesson(self.link.anchor(), self.txn.last_home);
            if let Some((template, waited, worked)) = lesson {
                self.link.database().workload.note_strain(template, waited, worked);
            }
        }
        self.txn.state = Transaction::None;
        if self.link.settling.is_some() {
            self.link.session_registration.progress.set_phase(Phase::Committing);
        } else {
            self.link.session_registration.progress.set_phase(Phase::None);
            self.link.tenancy = None;
        }
        self.txn.failed = false;
        self.txn.named_rows.forget();
        self.link.settings.end_local();
        self.txn.savepoints.clear();
        self.end_profile(committed);
        self.link.prepared.drop_portals();
        if committed {
            self.link.settings.keep_staged();
        } else {
            self.link.settings.drop_staged();
        }
    }

    /// Records where transactions that begin like this one can run: at its end, or as soon as it needs the anchor.
    pub(crate) fn note_beginning(&mut self) {
        let Transaction::Update(update) = &mut self.txn.state else { return };
        if let Some(template) = update.profile.template.take().filter(|_| !update.boundary.is_implicit()) {
            let coordinator = &self.link.worker.coordinator;
            let generation = coordinator.database.catalogue().generation();
            coordinator.database.workload.note_beginning(
                template,
                generation,
                update.profile.needs_anchor,
                &update.profile.draws,
            );
        }
    }

    /// Ends the transaction's profile. The node learns from a transaction that committed.
    pub(crate) fn end_profile(&mut self, committed: bool) {
        let txn_profile = std::mem::take(&mut self.txn.txn_profile);
        if committed && !txn_profile.steps.is_empty() {
            let step = |(statement, arguments)| Step { statement, arguments };
            let steps: Vec<Step<'_>> = txn_profile.steps.iter().map(|(s, d)| step((s, d))).collect();
            self.link.database().workload.observe(&steps);
        }
    }
}
