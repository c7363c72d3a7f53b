//! A lane of the leader that ends a transaction whose crew is lost, command by command.

use std::collections::VecDeque;

use cluster::ids::CrewId;
use cluster::protocols::shipping::{Ending, Kind, Work};

use super::OrphanJob;
use crate::linked_sessions::ids::{Identity, Run};
use crate::linked_sessions::messages::{Command, Reply};
use crate::linked_sessions::{Rule, Switches};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    NotBegun,
    /// The lost node has committed it there.
    IsThere,
    Open,
}

/// What an orphan does next.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(in crate::linked_sessions) enum Step {
    Asks(Command),
    /// The first job is done; whether the lane is over with it.
    IsDone {
        is_last: bool,
    },
    GivesUp,
}

#[derive(Debug)]
pub(in crate::linked_sessions) struct Orphan {
    pub(in crate::linked_sessions) run: Run,
    pub(in crate::linked_sessions) backend: u64,
    crew: CrewId,
    is_connected: bool,
    progress: Progress,
    jobs: VecDeque<(Work, Option<Identity>)>,
    /// The command that is under way.
    asked: Option<Command>,
}

impl Orphan {
    pub(in crate::linked_sessions) fn new(job: OrphanJob, backend: u64) -> Self {
        Self {
            run: job.run,
            backend,
            crew: job.crew,
            is_connected: false,
            progress: Progress::NotBegun,
            jobs: VecDeque::new(),
            asked: None,
        }
    }

    /// Takes a job; `true` if the lane was idle.
    pub(in crate::linked_sessions) fn push(&mut self, job: OrphanJob) -> bool {
        self.jobs.push_back((job.work, job.identity));
        self.jobs.len() == 1
    }

    /// A database has replied.
    pub(in crate::linked_sessions) fn hear(&mut self, reply: &Reply, switches: Switches) -> Step {
        match (self.asked.take(), reply) {
            (_, Reply::Failed) => return Step::GivesUp,
            (Some(Command::FenceCrew(_)), _) => self.is_connected = true,
            (Some(Command::Ask(_)), Reply::Has(true)) => self.progress = Progress::IsThere,
            (Some(Command::Ask(_)), _) => self.progress = Progress::Open,
            (Some(Command::Run(_)), _) => {
                self.progress = Progress::Open;
                return self.done(false);
            }
            (Some(Command::Commit(_)), _) => {
                self.progress = Progress::IsThere;
                return self.done(true);
            }
            (Some(Command::RollBack), _) => return self.rolled_back(),
            _ => {}
        }
        self.next(switches)
    }

    /// The next command of the first job.
    pub(in crate::linked_sessions) fn next(&mut self, switches: Switches) -> Step {
        let Some((work, identity)) = self.jobs.front().copied() else { return Step::GivesUp };
        let command = match (work, self.progress, identity) {
            (Work::Run(operation) | Work::RunAlone(operation), ..) if operation.kind == Kind::Read => {
                return self.done(matches!(work, Work::RunAlone(_)));
            }
            (Work::Run(_), Progress::IsThere, _) => return self.done(false),
            (Work::End(Ending::Commit), Progress::IsThere | Progress::NotBegun, _) => {
                return self.done(true);
            }
            _ if !self.is_connected => Command::FenceCrew(self.crew),
            (Work::Run(_), Progress::NotBegun, Some(identity)) if switches.has(Rule::OrphansAsk) => {
                Command::Ask(identity)
            }
            (Work::Run(operation) | Work::RunAlone(operation), ..) => Command::Run(operation),
            (Work::End(Ending::Commit), Progress::Open, _) => Command::Commit(identity),
            (Work::Restart | Work::End(Ending::Abort), Progress::Open, _) => Command::RollBack,
            (Work::Restart | Work::End(Ending::Abort), ..) => return self.rolled_back(),
        };
        self.asked = Some(command.clone());
        Step::Asks(command)
    }

    fn rolled_back(&mut self) -> Step {
        self.progress = Progress::NotBegun;
        let is_last = self.jobs.front().is_some_and(|(work, _)| *work == Work::End(Ending::Abort));
        self.done(is_last)
    }

    fn done(&mut self, is_last: bool) -> Step {
        self.jobs.pop_front();
        Step::IsDone { is_last }
    }

    pub(in crate::linked_sessions) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }
}
