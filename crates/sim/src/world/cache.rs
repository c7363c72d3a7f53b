//! Kept answers: a session may answer a read with what an earlier read was answered (`result_cache` of the binary).
//!
//! For example, session 1 reads row 7 at a replica that has version 20, and the answer is kept as of version 20. Session 2
//! then sends the same statement. If the last durable write of row 7 is version 12, session 2 gets the kept answer. If it is
//! version 21, session 2 has to read.
//!
//! An entry is a virtual replica: it has one footprint as of one version, and answers exactly when a replica with that version
//! might. So the argument for reads at replicas (section 2.1 of docs/explanation/design.md) is the one for entries, and no write has to
//! invalidate anything. Three facts make it hold:
//!
//! - *As of*: the replica had version `a0` when the read began. If no later version has written the footprint by the time the
//!   answer is there, the answer is the one of `a0`, whatever else the snapshot held.
//! - *Catalogue*: the footprint rests on the catalogue by which the read was analysed. The read may have run after a later schema
//!   change, so that catalogue counts, not the one of the moment at which the answer is kept.
//! - *Second look*: what an entry needs changes only when another version becomes durable. While the durable version and the last
//!   schema change are those of the last look, no further look is needed; in the binary that saves the core's lock.
//!
//! The cache is memory of the node, so a crash of the node empties it.
//!
//! Not here: bounds in bytes, roles and settings, answers within transactions.

use std::rc::Rc;

use cluster::Cluster;
use cluster::event::Reads;
use cluster::ids::Version;

use super::World;
use crate::history::{Level, Outcome};
use crate::program::{Frame, Program};
use crate::record::{self, Place};
use crate::rules::Rules;
use crate::server::{Answer, Op};
use crate::trace::Stage;

/// All that the answer to a read and its footprint depend on, apart from rows and definitions.
#[derive(Clone, PartialEq, Eq, Debug)]
struct Question {
    ops: Vec<Op>,
    level: Level,
    is_coarse: bool,
    is_grouped: bool,
    knows_columns: bool,
}

impl Question {
    /// The question of a program, if its answer may be kept: a bounded read outside a transaction.
    fn of(program: &Program) -> Option<Self> {
        let statement = &program.statements[0];
        let may_be_kept = program.frame == Frame::Autocommit && statement.is_read() && !statement.is_unknown;
        may_be_kept.then(|| Self {
            ops: statement.ops.clone(),
            level: program.level,
            is_coarse: program.is_coarse,
            is_grouped: program.is_grouped,
            knows_columns: program.knows_columns,
        })
    }
}

/// The state of the core that decides whether an entry may answer: the durable version and the last schema change.
type Moment = (Version, Version);

/// One kept answer.
#[derive(Debug)]
struct Entry {
    question: Question,
    answer: Rc<Answer>,
    reads: Reads,
    as_of: Version,
    /// The catalogue by which the read was analysed.
    catalogue: Version,
    /// When it was found last that the entry may answer.
    looked_at: Option<Moment>,
}

impl Entry {
    fn may_answer(&mut self, cluster: &Cluster, rules: &Rules) -> bool {
        let now = (cluster.durable(), cluster.last_ddl());
        if self.looked_at.is_some_and(|then| then == now || !rules.kept_is_looked_at_again) {
            return true;
        }
        let catalogue = if rules.kept_knows_its_catalogue { self.catalogue } else { Version(u64::MAX) };
        let Some(mut need) = cluster.answer_needs(&self.reads, catalogue) else { return false };
        if !rules.kept_ends_when_durable {
            let committed = cluster.replicas().iter().map(|replica| replica.applied).max();
            need = committed.map_or(need, |committed| need.min(committed));
        }
        let may = need <= self.as_of;
        if may {
            self.looked_at = Some(now);
        }
        may
    }
}

/// The kept answers of a node.
#[derive(Debug, Default)]
pub(super) struct Cache {
    entries: Vec<Entry>,
}

impl Cache {
    fn find(
        &mut self,
        question: &Question,
        cluster: &Cluster,
        rules: &Rules,
    ) -> Option<(Rc<Answer>, Version)> {
        let entry = self.entries.iter_mut().find(|entry| entry.question == *question)?;
        entry.may_answer(cluster, rules).then(|| (Rc::clone(&entry.answer), entry.as_of))
    }

    fn keep(&mut self, entry: Entry) {
        self.entries.retain(|kept| kept.question != entry.question);
        self.entries.push(entry);
    }
}

impl World {
    /// Answers the statement of a session with a kept answer. False if the session has to read.
    pub(super) fn answer_again(&mut self, session: usize) -> bool {
        let Some(node) = self.node.as_mut().filter(|_| self.plan.keeps_answers) else { return false };
        let Some(run) = self.sessions[session].run.as_ref() else { return false };
        let Some(question) = Question::of(&run.program) else { return false };
        let Some((answer, as_of)) = node.cache.find(&question, &node.cluster, &self.rules) else {
            return false;
        };
        self.trace.say(self.agenda.now_us(), Stage::Execute, || {
            format!("session {session} is answered as of {as_of}: {answer:?}")
        });
        if let Some(statement) = self.history.transactions[run.transaction].statements.last_mut() {
            record::note(statement, &answer);
        }
        self.answers_given_again += 1;
        self.answer_client(session, Outcome::Committed);
        self.end_run(session);
        true
    }

    /// A statement has ended without an error: keeps its answer if it may be given again.
    pub(super) fn keep_answer(&mut self, session: usize, answer: &Answer) {
        let Some(node) = self.node.as_mut().filter(|_| self.plan.keeps_answers) else { return };
        let Some(run) = self.sessions[session].run.as_ref() else { return };
        let Some(question) = Question::of(&run.program) else { return };
        let place = Place { at: 0, has_snapshot: false, is_partial: self.is_partial };
        let view_changes = run.views.first().copied().flatten();
        let reads = record::classify(&run.program, place, view_changes, &self.rules);
        let is_unwritten = node.cluster.last_writer(&reads).is_some_and(|writer| writer <= run.applied);
        let as_of = if self.rules.kept_is_unwritten { run.applied } else { node.cluster.durable() };
        if is_unwritten || !self.rules.kept_is_unwritten {
            node.cache.keep(Entry {
                question,
                answer: Rc::new(answer.clone()),
                reads,
                as_of,
                catalogue: run.catalogue,
                looked_at: None,
            });
        }
    }
}
