//! A replica: its queue of operations and its server.

use std::collections::BTreeMap;

use cluster::ids::ReplicaId;
use cluster::protocols::c_jdbc::Level;
use cluster::protocols::c_jdbc::message::{
    FromReplica, OperationNumber, ReadId, Step, ToReplica, TransactionId,
};
use cluster::protocols::c_jdbc::replica_queue::{QueueOutput, ReplicaQueue, Work};
use cluster::protocols::shipping::{Ending, StatementId};

use super::Switches;
use super::draw::Statement;
use super::server::{Disk, Freed, Reply, Server, Went};

/// The statements of clients by their names.
pub(super) type Texts = BTreeMap<StatementId, Statement>;

/// Work of the server that takes time.
#[derive(Clone, Copy, Debug)]
pub(super) enum Task {
    Begin(OperationNumber),
    Statement(OperationNumber),
    End(OperationNumber, TransactionId, Ending),
    Read(ReadId, Option<TransactionId>, StatementId),
    /// Look for a deadlock, in a server that does.
    Detect(TransactionId),
}

/// What a replica does next.
#[derive(Debug)]
pub(super) enum Effect {
    Schedule(Task),
    Report(FromReplica, Option<(StatementId, Reply)>),
}

#[derive(Debug)]
pub(super) struct Replica {
    pub(super) id: ReplicaId,
    pub(super) server: Server,
    queue: ReplicaQueue,
    statements: BTreeMap<OperationNumber, StatementId>,
    /// Grows whenever its connections are lost.
    pub(super) incarnation: u64,
    pub(super) is_up: bool,
    /// A copy of its state at the last checkpoint.
    pub(super) checkpoint: (OperationNumber, Disk),
    switches: Switches,
    /// There are no table locks, which would keep others off the rows of a failed transaction.
    frees_rows_of_failures: bool,
}

impl Replica {
    pub(super) fn new(id: ReplicaId, level: Level, switches: Switches) -> Self {
        Self {
            id,
            server: Server::default(),
            queue: ReplicaQueue::new(switches.queue),
            statements: BTreeMap::new(),
            incarnation: 0,
            is_up: true,
            checkpoint: (OperationNumber::default(), Disk::default()),
            switches,
            frees_rows_of_failures: level == Level::PassThrough,
        }
    }

    /// All its connections are lost: what was open is rolled back.
    pub(super) fn disconnect(&mut self) {
        self.incarnation += 1;
        self.server = Server::restarted(std::mem::take(&mut self.server.disk));
        self.queue = ReplicaQueue::new(self.switches.queue);
        self.statements.clear();
    }

    pub(super) fn is_idle(&self) -> bool {
        self.queue.is_idle()
    }

    pub(super) fn handle(&mut self, message: ToReplica, texts: &Texts) -> Vec<Effect> {
        let mut out = Vec::new();
        self.queue.handle(message, &mut out);
        self.carry_out(out, texts, None)
    }

    pub(super) fn perform(&mut self, task: Task, texts: &Texts) -> Vec<Effect> {
        let mut out = Vec::new();
        match task {
            Task::Begin(number) => {
                self.queue.executed(number, &mut out);
                self.carry_out(out, texts, None)
            }
            Task::Statement(number) => self.step(number, texts),
            Task::Read(id, transaction, statement) => {
                let reads = self.server.read(transaction, &texts[&statement].reads);
                let reply = Reply { reads, ..Reply::default() };
                self.queue.read(id, &mut out);
                self.carry_out(out, texts, Some((statement, reply)))
            }
            Task::End(number, transaction, ending) => {
                let freed = self.server.end(transaction, ending);
                self.queue.executed(number, &mut out);
                let effects = self.carry_out(out, texts, None);
                self.go_on(freed, effects, texts)
            }
            Task::Detect(transaction) => {
                if !self.server.is_in_deadlock(transaction) {
                    return Vec::new();
                }
                let (number, freed) = self.server.kill(transaction);
                if let Some(number) = number {
                    self.queue.executed(number, &mut out);
                }
                let effects = self.carry_out(out, texts, None);
                self.go_on(freed, effects, texts)
            }
        }
    }

    fn step(&mut self, number: OperationNumber, texts: &Texts) -> Vec<Effect> {
        let mut out = Vec::new();
        match self.server.step(number) {
            None => Vec::new(),
            Some(Went::On) => vec![Effect::Schedule(Task::Statement(number))],
            Some(Went::Done(reply)) => {
                self.queue.executed(number, &mut out);
                let statement = self.statements.remove(&number);
                self.carry_out(out, texts, statement.map(|statement| (statement, reply)))
            }
            Some(Went::Failed(reply, freed)) => {
                if self.frees_rows_of_failures {
                    self.queue.failed(number, &mut out);
                } else {
                    self.queue.executed(number, &mut out);
                }
                let statement = self.statements.remove(&number);
                let effects = self.carry_out(out, texts, statement.map(|statement| (statement, reply)));
                self.go_on(freed, effects, texts)
            }
            Some(Went::Waits(holder)) => {
                self.queue.waits(number, holder, &mut out);
                let mut effects = self.carry_out(out, texts, None);
                if let (false, Some(transaction)) =
                    (self.switches.servers_leave_deadlocks, self.server.transaction_of(number))
                {
                    effects.push(Effect::Schedule(Task::Detect(transaction)));
                }
                effects
            }
        }
    }

    /// Statements that waited for a transaction go on.
    fn go_on(&mut self, freed: Freed, mut effects: Vec<Effect>, texts: &Texts) -> Vec<Effect> {
        effects.extend(freed.running.into_iter().map(|number| Effect::Schedule(Task::Statement(number))));
        for (number, holder) in freed.waiting {
            let mut out = Vec::new();
            self.queue.waits(number, holder, &mut out);
            effects.extend(self.carry_out(out, texts, None));
        }
        effects
    }

    /// The reply belongs to the first report.
    fn carry_out(
        &mut self,
        out: Vec<QueueOutput>,
        texts: &Texts,
        mut reply: Option<(StatementId, Reply)>,
    ) -> Vec<Effect> {
        let mut effects = Vec::new();
        for output in out {
            effects.push(match output {
                QueueOutput::Report(report) => Effect::Report(report, reply.take()),
                QueueOutput::Server(Work::Read(id, transaction, statement)) => {
                    Effect::Schedule(Task::Read(id, transaction, statement))
                }
                QueueOutput::Server(Work::Operation(operation)) => {
                    let (number, transaction) = (operation.number, operation.transaction);
                    Effect::Schedule(match operation.step {
                        Step::Begin => Task::Begin(number),
                        Step::End(ending) => Task::End(number, transaction, ending),
                        Step::Write(_, statement) => {
                            self.statements.insert(number, statement);
                            self.server.start(number, transaction, texts[&statement].clone());
                            Task::Statement(number)
                        }
                    })
                }
            });
        }
        effects
    }
}
