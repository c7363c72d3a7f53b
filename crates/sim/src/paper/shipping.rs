//! The first paper's five schedulers with their proxies, as a system.

use cluster::ids::{ReplicaId, SessionId};
use cluster::protocols::shipping::{
    Choices, FromProxy, Kind, Output, Proxy, ProxyOutput, Request, Scheduler, SequenceNumber, ToProxy,
    Transaction,
};

use super::database::Job;
use super::system::{Out, System, To};

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

/// A message over the network, or to the log and back.
#[derive(Debug)]
pub(crate) enum Message {
    There(ToProxy),
    /// With the time in the database.
    Back(FromProxy, u64),
    Logged(SequenceNumber),
}

pub(crate) struct Shipping {
    scheduler: Scheduler,
    proxies: Vec<Proxy>,
    speed: u32,
    outputs: Vec<Output>,
    proxy_outputs: Vec<ProxyOutput>,
}

impl Shipping {
    pub(crate) fn new(choices: Choices, replicas: usize, speed: u32) -> Self {
        Self {
            scheduler: Scheduler::new(choices, replicas),
            proxies: (0..replicas).map(|_| Proxy::default()).collect(),
            speed,
            outputs: Vec::new(),
            proxy_outputs: Vec::new(),
        }
    }

    fn forward(&mut self, out: &mut Out<Message>) {
        for output in self.outputs.drain(..) {
            match output {
                Output::ToProxy(replica, message) => {
                    out.sends.push((To::Replica(usize::from(replica.0)), Message::There(message)));
                }
                Output::Answer(session, _) => out.answers.push(session),
                Output::Log(number, _) => out.logs.push(Message::Logged(number)),
            }
        }
    }

    fn forward_proxy(&mut self, replica: usize, here_us: u64, out: &mut Out<Message>) {
        for output in self.proxy_outputs.drain(..) {
            match output {
                ProxyOutput::Database(transaction, work) => {
                    let (cost_us, kind) = work.cost();
                    let job = Job {
                        name: job_name(transaction),
                        cost_us: cost_us / self.speed,
                        is_write: kind == Kind::Write,
                    };
                    out.jobs.push((replica, job));
                }
                ProxyOutput::Report(report) => {
                    // A granted lock belongs to another transaction.
                    let here_us = if matches!(report, FromProxy::Granted(_)) { 0 } else { here_us };
                    out.sends.push((To::Scheduler(replica), Message::Back(report, here_us)));
                }
            }
        }
    }
}

impl System for Shipping {
    type Message = Message;

    fn ask(&mut self, _: u64, session: SessionId, request: Request, out: &mut Out<Message>) {
        self.scheduler.request(session, request, &mut self.outputs);
        self.forward(out);
    }

    fn arrive(&mut self, _: u64, to: To, message: Message, out: &mut Out<Message>) {
        match (to, message) {
            (To::Replica(replica), Message::There(message)) => {
                self.proxies[replica].handle(message, &mut self.proxy_outputs);
                self.forward_proxy(replica, 0, out);
            }
            (To::Scheduler(replica), Message::Back(report, here_us)) => {
                self.scheduler.report(ReplicaId(replica as u16), report, &mut self.outputs);
                let answers = out.answers.len();
                self.forward(out);
                if out.answers.len() > answers {
                    out.in_database_us += here_us;
                }
            }
            (to, message) => unreachable!("{message:?} is never sent to {to:?}"),
        }
    }

    fn logged(&mut self, _: u64, message: Message, out: &mut Out<Message>) {
        if let Message::Logged(number) = message {
            self.scheduler.logged(number, &mut self.outputs);
            self.forward(out);
        }
    }

    fn done(&mut self, here_us: u64, replica: usize, job: Job, out: &mut Out<Message>) {
        self.proxies[replica].finished(transaction(job.name), &mut self.proxy_outputs);
        self.forward_proxy(replica, here_us, out);
    }
}
