//! The first paper's five schedulers with their proxies, as a system: one scheduler, or several that replicate their state.
//!
//! What messages and logs are in bytes follows from the assumptions in `bytes`.

mod bytes;

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster::ids::{ReplicaId, SessionId};
use cluster::protocols::shipping::{
    Choices, FromProxy, Kind, Output, ReplicatedOutput, ReplicatedScheduler, Request, RoutedOutput,
    SchedulerId, SequenceNumber, SharedProxy, StatementId, ToPeer, ToProxy, Transaction,
};

use super::database::Job;
use super::scenario::{Scenario, TableId, Workload};
use super::system::{Log, Out, System, To};

/// Names of jobs: numbered transactions are even, single reads odd.
fn job_name(transaction: Transaction) -> u64 {
    match transaction {
        Transaction::Numbered(number) => number.0 * 2,
        Transaction::Single(session) => session.0 * 2 + 1,
    }
}

fn transaction(name: u64) -> Transaction {
    if name.is_multiple_of(2) {
        Transaction::Numbered(SequenceNumber(name / 2))
    } else {
        Transaction::Single(SessionId(name / 2))
    }
}

/// The number of tables that these statements write.
fn written(workload: &Workload, statements: &[StatementId]) -> u64 {
    let of = |statement: &StatementId| &workload.templates[statement.0 as usize].writes;
    statements.iter().flat_map(of).collect::<BTreeSet<&TableId>>().len() as u64
}

/// A message over the network, or to the log and back.
#[derive(Debug)]
pub(crate) enum Message {
    There(SchedulerId, ToProxy),
    /// With the time in the database, and the load there.
    Back(FromProxy, u64, u64),
    Peer(ToPeer),
    Logged(SequenceNumber),
}

pub(crate) struct Shipping {
    schedulers: Vec<ReplicatedScheduler>,
    proxies: Vec<SharedProxy>,
    workload: Arc<Workload>,
    speed: u32,
    outputs: Vec<ReplicatedOutput>,
    proxy_outputs: Vec<RoutedOutput>,
}

impl Shipping {
    pub(crate) fn new(choices: Choices, scenario: &Scenario) -> Self {
        let (replicas, none) = (scenario.replicas, SequenceNumber::default());
        let all: Vec<SchedulerId> =
            (0..scenario.front.schedulers).map(|index| SchedulerId(index as u8)).collect();
        let one = |id: &SchedulerId| ReplicatedScheduler::new(*id, &all, choices, replicas, none);
        Self {
            schedulers: all.iter().map(one).collect(),
            proxies: (0..replicas).map(|_| SharedProxy::default()).collect(),
            workload: scenario.workload.clone(),
            speed: scenario.speed,
            outputs: Vec::new(),
            proxy_outputs: Vec::new(),
        }
    }

    fn forward(&mut self, at: usize, out: &mut Out<Message>) {
        let from = SchedulerId(at as u8);
        for output in self.outputs.drain(..) {
            match output {
                ReplicatedOutput::Own(Output::ToProxy(replica, message)) => {
                    out.network_bytes += bytes::to_proxy(&message);
                    out.sends.push((To::Replica(usize::from(replica.0)), Message::There(from, message)));
                }
                ReplicatedOutput::Own(Output::Answer(session, _)) => {
                    out.network_bytes += bytes::ANSWER;
                    out.answers.push(session);
                }
                ReplicatedOutput::Own(Output::Log(number, statements)) => {
                    out.log_bytes += bytes::of_log(statements.len());
                    let tables = written(&self.workload, &statements);
                    out.logs.push(Log { at, tables, message: Message::Logged(number) });
                }
                ReplicatedOutput::ToPeer(to, message) => {
                    out.network_bytes += bytes::to_peer(&message);
                    let to = To::Peer { at: usize::from(to.0), from: at };
                    out.sends.push((to, Message::Peer(message)));
                }
            }
        }
    }

    fn forward_proxy(&mut self, replica: usize, here_us: u64, out: &mut Out<Message>) {
        for output in self.proxy_outputs.drain(..) {
            match output {
                RoutedOutput::Database(transaction, work) => {
                    let (cost_us, kind) = work.cost();
                    let job = Job {
                        name: job_name(transaction),
                        cost_us: cost_us / self.speed,
                        is_write: kind == Kind::Write,
                    };
                    out.jobs.push((replica, job));
                }
                RoutedOutput::Report(to, report, load_us) => {
                    // A granted lock belongs to another transaction.
                    let here_us = if matches!(report, FromProxy::Granted(_)) { 0 } else { here_us };
                    let to = To::Scheduler { at: usize::from(to.0), from: replica };
                    out.sends.push((to, Message::Back(report, here_us, load_us)));
                }
            }
        }
    }
}

impl System for Shipping {
    type Message = Message;

    fn ask(&mut self, at: usize, _: u64, session: SessionId, request: Request, out: &mut Out<Message>) {
        out.network_bytes += bytes::of_request(&request);
        self.schedulers[at].request(session, request, &mut self.outputs);
        self.forward(at, out);
    }

    fn arrive(&mut self, _: u64, to: To, message: Message, out: &mut Out<Message>) {
        match (to, message) {
            (To::Replica(replica), Message::There(from, message)) => {
                self.proxies[replica].handle(from, message, &mut self.proxy_outputs);
                self.forward_proxy(replica, 0, out);
            }
            (To::Scheduler { at, from }, Message::Back(report, here_us, load_us)) => {
                let replica = ReplicaId(from as u16);
                out.network_bytes += bytes::of_report(&report);
                self.schedulers[at].report(replica, report, &mut self.outputs);
                // A scheduler alone knows the loads by itself.
                if self.schedulers.len() > 1 {
                    self.schedulers[at].note_load(replica, load_us);
                }
                let answers = out.answers.len();
                self.forward(at, out);
                if out.answers.len() > answers {
                    out.in_database_us += here_us;
                }
            }
            (To::Peer { at, from }, Message::Peer(message)) => {
                self.schedulers[at].hear(SchedulerId(from as u8), message, &mut self.outputs);
                self.forward(at, out);
            }
            (to, message) => unreachable!("{message:?} is never sent to {to:?}"),
        }
    }

    fn logged(&mut self, at: usize, _: u64, message: Message, out: &mut Out<Message>) {
        if let Message::Logged(number) = message {
            self.schedulers[at].logged(number, &mut self.outputs);
            self.forward(at, out);
        }
    }

    fn done(&mut self, here_us: u64, replica: usize, job: Job, out: &mut Out<Message>) {
        self.proxies[replica].finished(transaction(job.name), &mut self.proxy_outputs);
        self.forward_proxy(replica, here_us, out);
    }

    fn memory_bytes(&self) -> usize {
        self.schedulers.iter().map(ReplicatedScheduler::memory_bytes).sum()
    }
}
