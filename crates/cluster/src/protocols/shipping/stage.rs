//! A scheduler and its proxies on a stage: messages arrive at once unless they are held back, databases work when told.

use std::collections::{BTreeMap, VecDeque};

use crate::ids::{CrewId, DatabaseId, FragmentId, ReplicaId, SessionId};
use crate::parts::lock_queues::{LockSet, Mode};

use super::{
    Answer, Choices, Ending, Kind, Operation, Output, Proxy, ProxyOutput, Request, Scheduler, SequenceNumber,
    StatementId, ToProxy, Transaction, Work,
};

pub(crate) struct Stage {
    pub(crate) scheduler: Scheduler,
    pub(crate) proxies: Vec<Proxy>,
    /// The work that each database was given and has not done yet.
    pub(crate) working: Vec<BTreeMap<Transaction, Work>>,
    /// Messages on their way to each proxy.
    pub(crate) mail: Vec<VecDeque<ToProxy>>,
    /// The replicas whose messages are held back.
    pub(crate) is_cut: Vec<bool>,
    /// The log does not answer.
    pub(crate) log_is_slow: bool,
    pub(crate) logged: Vec<(SequenceNumber, Vec<StatementId>)>,
    /// The sessions that got an answer since the last look.
    answers: Vec<(u64, Answer)>,
    /// Everything, a line each.
    pub(crate) trace: Vec<String>,
}

/// Locks on whole tables.
pub(crate) fn locks(read: &[u32], write: &[u32]) -> LockSet {
    let of = |tables: &[u32], mode| -> Vec<(FragmentId, Mode)> {
        tables.iter().map(|t| (FragmentId::whole(DatabaseId::FIRST.table(*t)), mode)).collect()
    };
    [of(read, Mode::Read), of(write, Mode::Write)].concat().into()
}

pub(crate) fn read(cost_us: u32) -> Operation {
    Operation { kind: Kind::Read, statement: StatementId(7), cost_us }
}

pub(crate) fn write(statement: u64) -> Operation {
    Operation { kind: Kind::Write, statement: StatementId(statement), cost_us: 10 }
}

pub(crate) fn number(n: u64) -> Transaction {
    Transaction::Numbered(SequenceNumber(n))
}

pub(crate) fn single(session: u64) -> Transaction {
    Transaction::Single(SessionId(session))
}

impl Stage {
    pub(crate) fn new(choices: Choices, replicas: usize) -> Self {
        Self {
            scheduler: Scheduler::new(choices, replicas),
            proxies: (0..replicas).map(|_| Proxy::default()).collect(),
            working: vec![BTreeMap::new(); replicas],
            mail: vec![VecDeque::new(); replicas],
            is_cut: vec![false; replicas],
            log_is_slow: false,
            logged: Vec::new(),
            answers: Vec::new(),
            trace: Vec::new(),
        }
    }

    pub(crate) fn ask(&mut self, session: u64, request: Request) {
        self.trace.push(format!("s{session} asks {}", name_of(&request)));
        let mut out = Vec::new();
        self.scheduler.request(SessionId(session), request, &mut out);
        self.carry_out(out);
    }

    pub(crate) fn begin(&mut self, session: u64, read: &[u32], write: &[u32]) {
        self.ask(session, Request::Begin(locks(read, write)));
    }

    pub(crate) fn execute(&mut self, session: u64, operation: Operation) {
        self.ask(session, Request::Execute(operation));
    }

    pub(crate) fn commit(&mut self, session: u64) {
        self.ask(session, Request::End(Ending::Commit));
    }

    /// The database has done what it was given for this transaction.
    pub(crate) fn finish(&mut self, replica: usize, transaction: Transaction) {
        let work = self.working[replica].remove(&transaction);
        let work = work.unwrap_or_else(|| panic!("nothing runs for {transaction:?} at {replica}"));
        self.trace.push(format!("r{replica} did {} of {}", verb(work), label(transaction)));
        let mut out = Vec::new();
        self.proxies[replica].finished(transaction, &mut out);
        self.hear(replica, out);
    }

    /// The database does everything that it has and gets.
    pub(crate) fn finish_all(&mut self, replica: usize) {
        while let Some(transaction) = self.working[replica].keys().next().copied() {
            self.finish(replica, transaction);
        }
    }

    pub(crate) fn cut(&mut self, replica: usize) {
        self.is_cut[replica] = true;
    }

    pub(crate) fn mend(&mut self, replica: usize) {
        self.is_cut[replica] = false;
        self.deliver(replica);
    }

    /// Hands one proxy a message that the scheduler did not send now.
    pub(crate) fn hand(&mut self, replica: usize, message: ToProxy) {
        self.mail[replica].push_back(message);
        self.deliver(replica);
    }

    pub(crate) fn log_answers(&mut self) {
        self.log_is_slow = false;
        for (number, _) in self.logged.clone() {
            let mut out = Vec::new();
            self.scheduler.logged(number, &mut out);
            self.carry_out(out);
        }
    }

    pub(crate) fn lose(&mut self, replica: usize) {
        self.trace.push(format!("r{replica} lost"));
        let mut out = Vec::new();
        self.scheduler.replica_lost(ReplicaId(replica as u16), &mut out);
        self.carry_out(out);
    }

    /// The sessions of a crew are lost, and what their connections were doing.
    pub(crate) fn lose_crew(&mut self, crew: CrewId) {
        self.trace.push(format!("crew {} lost", crew.0));
        let mut out = Vec::new();
        let own = self.scheduler.crew_lost(crew, &mut out);
        let working: Vec<Vec<SequenceNumber>> = (0..self.proxies.len())
            .map(|replica| {
                let worked = |number: &SequenceNumber| {
                    self.working[replica].remove(&Transaction::Numbered(*number)).is_some()
                };
                own.iter().copied().filter(worked).collect()
            })
            .collect();
        self.carry_out(out);
        for (replica, lost) in working.into_iter().enumerate() {
            for number in lost {
                let mut out = Vec::new();
                self.proxies[replica].lost(number, &mut out);
                self.hear(replica, out);
            }
        }
    }

    /// It comes back with a database that has everything up to `from`, and what `has` says.
    pub(crate) fn join(
        &mut self,
        replica: usize,
        from: SequenceNumber,
        has: &[u64],
        tail: &BTreeMap<SequenceNumber, super::Decided>,
    ) {
        self.proxies[replica] = Proxy::new(from);
        self.working[replica].clear();
        self.mail[replica].clear();
        let mut out = Vec::new();
        let id = ReplicaId(replica as u16);
        self.scheduler.replica_joined(id, from, |number| has.contains(&number.0), tail, &mut out);
        self.carry_out(out);
    }

    /// The sessions that were answered since the last look.
    pub(crate) fn answered(&mut self) -> Vec<u64> {
        assert!(self.answers.iter().all(|(_, answer)| *answer == Answer::Done), "{:?}", self.answers);
        self.answers.drain(..).map(|(session, _)| session).collect()
    }

    /// All answers since the last look.
    pub(crate) fn replies(&mut self) -> Vec<(u64, Answer)> {
        std::mem::take(&mut self.answers)
    }

    /// The replicas where something runs for this transaction.
    pub(crate) fn runs_at(&self, transaction: Transaction) -> Vec<usize> {
        (0..self.working.len()).filter(|r| self.working[*r].contains_key(&transaction)).collect()
    }

    fn carry_out(&mut self, out: Vec<Output>) {
        for output in out {
            match output {
                Output::ToProxy(replica, message) => {
                    self.trace.push(format!("  -> r{} {}", replica.0, describe(&message)));
                    self.mail[usize::from(replica.0)].push_back(message);
                }
                Output::Answer(session, answer) => {
                    self.trace.push(format!("  => s{} {answer:?}", session.0));
                    self.answers.push((session.0, answer));
                }
                Output::Log(number, statements) => {
                    self.trace.push(format!("  log {} {statements:?}", number.0));
                    self.logged.push((number, statements));
                    if !self.log_is_slow {
                        let mut out = Vec::new();
                        self.scheduler.logged(number, &mut out);
                        self.carry_out(out);
                    }
                }
            }
        }
        (0..self.mail.len()).for_each(|replica| self.deliver(replica));
    }

    fn deliver(&mut self, replica: usize) {
        while !self.is_cut[replica] {
            let Some(message) = self.mail[replica].pop_front() else { return };
            let mut out = Vec::new();
            self.proxies[replica].handle(message, &mut out);
            self.hear(replica, out);
        }
    }

    fn hear(&mut self, replica: usize, out: Vec<ProxyOutput>) {
        for output in out {
            match output {
                ProxyOutput::Database(transaction, work) => {
                    self.trace.push(format!("  r{replica} runs {} of {}", verb(work), label(transaction)));
                    self.working[replica].insert(transaction, work);
                }
                ProxyOutput::Report(report) => {
                    let mut out = Vec::new();
                    self.scheduler.report(ReplicaId(replica as u16), report, &mut out);
                    self.carry_out(out);
                }
            }
        }
    }
}

fn name_of(request: &Request) -> &'static str {
    match request {
        Request::Begin(_) => "begin",
        Request::Execute(operation) if operation.kind == Kind::Read => "read",
        Request::Execute(_) => "write",
        Request::End(Ending::Commit) => "commit",
        Request::End(Ending::Abort) => "abort",
        Request::SingleRead(..) => "single read",
        Request::SingleUpdate(..) => "single update",
        Request::InteractionOver => "nothing more",
    }
}

fn verb(work: Work) -> &'static str {
    match work {
        Work::Run(o) | Work::RunAlone(o) if o.kind == Kind::Read => "read",
        Work::Run(_) | Work::RunAlone(_) => "write",
        Work::Restart => "restart",
        Work::End(Ending::Commit) => "commit",
        Work::End(Ending::Abort) => "abort",
    }
}

fn label(transaction: Transaction) -> String {
    match transaction {
        Transaction::Numbered(number) => format!("#{}", number.0),
        Transaction::Single(session) => format!("s{}", session.0),
    }
}

fn describe(message: &ToProxy) -> String {
    match message {
        ToProxy::Lock { number, .. } => format!("lock #{}", number.0),
        ToProxy::Execute { number, operation } => format!("{} #{}", verb(Work::Run(*operation)), number.0),
        ToProxy::End { number, ending } => format!("{} #{}", verb(Work::End(*ending)), number.0),
        ToProxy::SingleUpdate { number, .. } => format!("single update #{}", number.0),
        ToProxy::Redo { number, .. } => format!("redo #{}", number.0),
        ToProxy::Undo { number } => format!("undo #{}", number.0),
        ToProxy::SingleRead { after, .. } => format!("single read after #{}", after.0),
    }
}
