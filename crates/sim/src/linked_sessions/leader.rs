//! The scheduler's end of the links, in a term: the real scheduler and the real proxies, which talk to each other at once.
//!
//! What leaves the process is collected in [`Outgoing`]: messages to crews, records for the log, and jobs for orphan lanes.

pub(super) mod crews;
pub(super) mod orphans;
pub(super) mod rejoin;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cluster::ids::{CrewId, ReplicaId, SessionId};
use cluster::parts::lock_queues::LockSet;
use cluster::protocols::shipping::{
    Answer, Choices, Decided, Ending, Kind, Operation, Output, Proxy, ProxyOutput, Request, Scheduler,
    SequenceNumber, Transaction, Work,
};

use super::ids::{Identity, Run, at_node};
use super::log::Record;
use super::messages::{Participation, Performed, ToLeader, ToNode};
use super::{Rule, Switches};

/// Where a transaction runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Site {
    Crew(CrewId),
    /// The crew is lost.
    Orphaned(CrewId),
}

/// How far an update is that is a transaction of its own.
#[derive(Clone, Copy, Debug)]
enum UpdateStep {
    Begins(Operation),
    Runs,
    Ends(Answer),
}

#[derive(Debug, Default)]
struct Slot {
    update: Option<UpdateStep>,
    open: Option<SequenceNumber>,
}

#[derive(Debug)]
pub(super) struct Shipped {
    pub(super) site: Site,
    pub(super) locks: LockSet,
    pub(super) writes: Vec<Operation>,
    pub(super) is_appended: bool,
    session: SessionId,
}

/// A replica's proxy, and who works for it.
#[derive(Debug)]
pub(super) struct AtLeader {
    pub(super) proxy: Proxy,
    pub(super) run: Run,
    lanes: BTreeMap<Transaction, Site>,
    /// Decisions since the replica began to return.
    pub(super) decided: Option<BTreeMap<SequenceNumber, Decided>>,
    /// What it runs again since it is back.
    pub(super) again: BTreeSet<SequenceNumber>,
    /// The connection on which the leader watches its server.
    pub(super) watch: Option<u64>,
}

enum Delivery {
    Scheduler(Output),
    Proxy(usize, ProxyOutput),
    LostWork(usize, Transaction),
}

/// A job of a transaction whose crew is lost.
#[derive(Clone, Copy, Debug)]
pub(super) struct OrphanJob {
    pub(super) run: Run,
    pub(super) crew: CrewId,
    pub(super) transaction: Transaction,
    pub(super) work: Work,
    pub(super) identity: Option<Identity>,
}

/// What leaves the leader.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) mail: Vec<(CrewId, ToNode)>,
    pub(super) records: Vec<(SequenceNumber, Record)>,
    pub(super) jobs: Vec<OrphanJob>,
}

/// A term of a node.
#[derive(Debug)]
pub(super) struct Leading {
    pub(super) term: u64,
    pub(super) switches: Switches,
    pub(super) scheduler: Scheduler,
    pub(super) replicas: Vec<AtLeader>,
    sessions: BTreeMap<SessionId, Slot>,
    pub(super) active: BTreeMap<SequenceNumber, Shipped>,
    /// What is over, but may be needed by a replica that returns.
    pub(super) past: BTreeMap<SequenceNumber, Shipped>,
    /// What each crew has said and is not taken yet.
    heard: BTreeMap<CrewId, VecDeque<ToLeader>>,
    appended: BTreeSet<SequenceNumber>,
    pub(super) durable: BTreeSet<SequenceNumber>,
    /// The log, as it was read when the term began, and what is durable since.
    pub(super) records: Vec<Record>,
    /// When the last round of the log began that has confirmed the term.
    pub(super) confirmed_us: u64,
    pub(super) orphans: BTreeMap<(usize, Transaction), orphans::Orphan>,
    pub(super) rejoins: BTreeMap<usize, rejoin::Rejoin>,
    pub(super) out: Outgoing,
}

impl Leading {
    /// A term in which no replica takes part yet.
    pub(super) fn new(term: u64, choices: Choices, replicas: usize, switches: Switches) -> Self {
        let mut scheduler = Scheduler::new(choices, replicas);
        for index in 0..replicas {
            scheduler.replica_lost(replica(index), &mut Vec::new());
        }
        let at = |index| AtLeader {
            proxy: Proxy::default(),
            run: Run::first(index, term),
            lanes: BTreeMap::new(),
            decided: None,
            again: BTreeSet::new(),
            watch: None,
        };
        Self {
            term,
            switches,
            scheduler,
            replicas: (0..replicas).map(at).collect(),
            sessions: BTreeMap::new(),
            active: BTreeMap::new(),
            past: BTreeMap::new(),
            heard: BTreeMap::new(),
            appended: BTreeSet::new(),
            durable: BTreeSet::new(),
            records: Vec::new(),
            confirmed_us: 0,
            orphans: BTreeMap::new(),
            rejoins: BTreeMap::new(),
            out: Outgoing::default(),
        }
    }

    pub(super) fn identity(&self, number: SequenceNumber) -> Identity {
        Identity::of(self.term, number)
    }

    /// A record is durable.
    pub(super) fn logged(&mut self, number: SequenceNumber) {
        let Some(writes) = self.transaction(number).map(|shipped| shipped.writes.clone()) else { return };
        self.durable.insert(number);
        self.records.push(Record { identity: self.identity(number), writes });
        let mut out = Vec::new();
        self.scheduler.logged(number, &mut out);
        self.deliver(out.into_iter().map(Delivery::Scheduler).collect());
    }

    /// The database of a replica has done its present work for a transaction.
    pub(super) fn work_finished(&mut self, run: Run, transaction: Transaction) {
        if self.is_present(run) {
            let mut out = VecDeque::new();
            self.finish(run.replica, transaction, &mut out);
            self.deliver(out);
        }
    }

    /// A replica does not answer.
    pub(super) fn give_up(&mut self, run: Run) {
        if !self.is_present(run) {
            return;
        }
        let at = &mut self.replicas[run.replica];
        at.run.incarnation += 1;
        at.lanes.clear();
        (at.decided, at.again, at.watch) = (None, BTreeSet::new(), None);
        let shown = Participation { run: at.run, is_up: false };
        self.orphans.retain(|(index, _), _| *index != run.replica);
        self.tell_all(&ToNode::Shows(shown));
        let mut out = Vec::new();
        self.scheduler.replica_lost(replica(run.replica), &mut out);
        self.sweep();
        self.deliver(out.into_iter().map(Delivery::Scheduler).collect());
    }

    pub(super) fn is_present(&self, run: Run) -> bool {
        !self.switches.has(Rule::RunsAreToldApart) || self.replicas[run.replica].run == run
    }

    /// Whether all replicas take part and lack nothing.
    pub(super) fn all_are_up(&self) -> bool {
        let is_up = |at: &AtLeader| at.again.is_empty() && self.scheduler.is_up(replica(at.run.replica));
        self.replicas.iter().all(is_up)
    }

    fn transaction(&self, number: SequenceNumber) -> Option<&Shipped> {
        self.active.get(&number).or_else(|| self.past.get(&number))
    }

    fn tell_all(&mut self, message: &ToNode) {
        self.out.mail.extend(self.heard.keys().map(|crew| (*crew, message.clone())));
    }

    fn finish(&mut self, index: usize, transaction: Transaction, out: &mut VecDeque<Delivery>) {
        let at = &mut self.replicas[index];
        let mut reports = Vec::new();
        at.proxy.finished(transaction, &mut reports);
        let is_still_there = matches!(transaction, Transaction::Numbered(number) if at.proxy.has(number));
        if !is_still_there {
            at.lanes.remove(&transaction);
            if let Transaction::Numbered(number) = transaction {
                at.again.remove(&number);
            }
        }
        out.extend(reports.into_iter().map(|output| Delivery::Proxy(index, output)));
    }

    /// Delivers messages between the scheduler and the proxies until none is left.
    fn deliver(&mut self, mut queue: VecDeque<Delivery>) {
        while let Some(next) = queue.pop_front() {
            let mut outputs = Vec::new();
            match next {
                Delivery::Scheduler(Output::ToProxy(to, message)) => {
                    let index = usize::from(to.0);
                    let mut out = Vec::new();
                    self.replicas[index].proxy.handle(message, &mut out);
                    queue.extend(out.into_iter().map(|output| Delivery::Proxy(index, output)));
                }
                Delivery::Scheduler(Output::Answer(session, answer)) => {
                    self.answer(session, answer, &mut outputs);
                }
                Delivery::Scheduler(Output::Log(number, _)) => self.append(number, &mut outputs),
                Delivery::LostWork(index, Transaction::Numbered(number)) => {
                    let mut out = Vec::new();
                    self.replicas[index].proxy.lost(number, &mut out);
                    queue.extend(out.into_iter().map(|output| Delivery::Proxy(index, output)));
                }
                Delivery::LostWork(index, single) => self.finish(index, single, &mut queue),
                Delivery::Proxy(index, ProxyOutput::Report(report)) => {
                    self.scheduler.report(replica(index), report, &mut outputs);
                }
                Delivery::Proxy(index, ProxyOutput::Database(transaction, work)) => {
                    self.dispatch(index, transaction, work, &mut queue);
                }
            }
            queue.extend(outputs.into_iter().map(Delivery::Scheduler));
        }
        self.sweep();
    }

    fn append(&mut self, number: SequenceNumber, out: &mut Vec<Output>) {
        let identity = self.identity(number);
        let Some(shipped) = self.active.get_mut(&number) else { return };
        shipped.is_appended = true;
        let decided = (shipped.locks.clone(), shipped.writes.clone());
        self.out.records.push((number, Record { identity, writes: shipped.writes.clone() }));
        for at in &mut self.replicas {
            if let Some(since) = &mut at.decided {
                since.insert(number, decided.clone());
            }
        }
        self.appended.insert(number);
        if !self.switches.has(Rule::LogIsAwaited) {
            self.scheduler.logged(number, out);
        }
    }

    fn dispatch(
        &mut self,
        index: usize,
        transaction: Transaction,
        work: Work,
        queue: &mut VecDeque<Delivery>,
    ) {
        let run = self.replicas[index].run;
        let (site, identity) = match transaction {
            Transaction::Numbered(number) => {
                (self.transaction(number).map(|shipped| shipped.site), Some(self.identity(number)))
            }
            Transaction::Single(session) => {
                (self.sessions.get(&session).map(|_| Site::Crew(session.crew())), None)
            }
        };
        let Some(site) = site else { return self.finish(index, transaction, queue) };
        self.replicas[index].lanes.insert(transaction, site);
        match site {
            Site::Crew(crew) => {
                let performed = Performed { run, transaction: at_node(transaction), work, identity };
                self.out.mail.push((crew, ToNode::Perform(performed)));
            }
            Site::Orphaned(crew) => {
                self.out.jobs.push(OrphanJob { run, crew, transaction, work, identity });
            }
        }
    }

    /// Moves transactions that are over everywhere to the past, and forgets the past when no replica is returning.
    fn sweep(&mut self) {
        while let Some(number) = self.active.keys().copied().find(|number| !self.scheduler.has(*number)) {
            self.past.extend(self.active.remove(&number).map(|shipped| (number, shipped)));
        }
        if self.replicas.iter().all(|at| at.decided.is_none() && at.again.is_empty()) {
            for (number, over) in std::mem::take(&mut self.past) {
                if let Site::Crew(crew) = over.site {
                    self.out.mail.push((crew, ToNode::Over(number)));
                }
            }
        }
    }

    /// Gives a session the answer to its request.
    fn answer(&mut self, session: SessionId, answer: Answer, out: &mut Vec<Output>) {
        let Some(slot) = self.sessions.get_mut(&session) else { return };
        let (request, next) = match (slot.update.take(), answer) {
            (Some(UpdateStep::Begins(operation)), Answer::Done) => {
                (Request::Execute(operation), UpdateStep::Runs)
            }
            (Some(UpdateStep::Runs), Answer::Done) => {
                (Request::End(Ending::Commit), UpdateStep::Ends(Answer::Done))
            }
            (Some(UpdateStep::Runs), answer) => (Request::End(Ending::Abort), UpdateStep::Ends(answer)),
            (None | Some(UpdateStep::Begins(_) | UpdateStep::Ends(Answer::Done)), told)
            | (Some(UpdateStep::Ends(told)), _) => {
                let at_node = SessionId(session.counter());
                return self.out.mail.push((session.crew(), ToNode::Answer(at_node, told)));
            }
        };
        slot.update = Some(next);
        self.pass(session, request, out);
    }

    /// Passes a request to the scheduler. Returns the number of a transaction that begins.
    fn pass(
        &mut self,
        session: SessionId,
        request: Request,
        out: &mut Vec<Output>,
    ) -> Option<SequenceNumber> {
        let mut begun = None;
        match &request {
            Request::Begin(locks) => {
                let number = SequenceNumber(self.scheduler.last().0 + 1);
                let (site, locks) = (Site::Crew(session.crew()), locks.clone());
                let shipped = Shipped { site, locks, writes: Vec::new(), is_appended: false, session };
                self.active.insert(number, shipped);
                self.sessions.entry(session).or_default().open = Some(number);
                begun = Some(number);
            }
            Request::Execute(operation) if operation.kind == Kind::Write => {
                let open = self.sessions.get(&session).and_then(|slot| slot.open);
                if let Some(shipped) = open.and_then(|number| self.active.get_mut(&number)) {
                    shipped.writes.push(*operation);
                }
            }
            Request::End(_) => self.sessions.entry(session).or_default().open = None,
            _ => {}
        }
        self.scheduler.request(session, request, out);
        begun
    }
}

/// The replica with this index.
pub(super) fn replica(index: usize) -> ReplicaId {
    ReplicaId(index as u16)
}
