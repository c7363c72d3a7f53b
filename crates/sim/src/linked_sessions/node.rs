//! The sessions of a node, and the lanes on which their transactions run (as in `remote` and `remote_state` of the program).

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use cluster::ids::{CrewId, SessionId};
use cluster::protocols::shipping::{Ending, Kind, Request, SequenceNumber, Transaction, Work};

use super::ids::{Run, named};
use super::messages::{Command, Participation, Performed, Reply, ToLeader, ToNode};
use super::slots::{Given, Slot};
use super::{Rule, Switches};

/// What leaves the sessions of a node.
#[derive(Debug)]
pub(super) enum Output {
    Give(Caller, Given),
    Say(ToLeader),
    /// A lane asks the database of its replica.
    Ask(usize, LaneConnection, Command),
    /// A lane is over, and its backend at the replica ends.
    Close(usize, u64),
}

/// A client with its session.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Caller {
    pub(super) client: usize,
    pub(super) session: SessionId,
}

/// The connection of a lane.
#[derive(Clone, Copy, Debug)]
pub(super) struct LaneConnection {
    pub(super) backend: u64,
    pub(super) crew: CrewId,
    pub(super) term: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct NodeLink {
    pub(super) crew: CrewId,
    pub(super) term: u64,
    is_welcomed: bool,
}

#[derive(Debug)]
struct Lane {
    at: LaneConnection,
    run: Run,
    transaction: Transaction,
    jobs: VecDeque<Performed>,
    has_written: bool,
}

/// The sessions of a node.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    pub(super) link: Option<NodeLink>,
    replicas: Vec<Participation>,
    slots: BTreeMap<SessionId, Slot>,
    transactions: BTreeSet<SequenceNumber>,
    /// By their backends.
    lanes: BTreeMap<u64, Lane>,
}

fn is_last(work: Work) -> bool {
    matches!(work, Work::RunAlone(_) | Work::End(_))
}

impl Sessions {
    /// A link to the leader of a term is made. Nothing can be asked before it is welcomed.
    pub(super) fn connect(&mut self, crew: CrewId, term: u64) {
        self.link = Some(NodeLink { crew, term, is_welcomed: false });
    }

    /// A client asks.
    pub(super) fn request(
        &mut self,
        caller: Caller,
        request: Request,
        attempt: u64,
        switches: Switches,
        out: &mut Vec<Output>,
    ) {
        let Caller { client, session } = caller;
        let is_welcomed = self.link.is_some_and(|link| link.is_welcomed);
        if request == Request::InteractionOver {
            self.slots.remove(&session);
            if is_welcomed {
                out.push(Output::Say(ToLeader::Closed(session)));
            }
            return;
        }
        let slot = self.slots.entry(session).or_insert_with(|| Slot::new(client));
        if switches.has(Rule::VoidIsTold)
            && let Some(given) = slot.answer_void(&request)
        {
            return out.push(Output::Give(caller, given));
        }
        if !is_welcomed {
            return out.push(Output::Give(caller, Given::Again));
        }
        let request = match request {
            Request::Execute(operation) => Request::Execute(named(operation, attempt)),
            Request::SingleRead(locks, operation) => Request::SingleRead(locks, named(operation, attempt)),
            Request::SingleUpdate(locks, operation) => {
                Request::SingleUpdate(locks, named(operation, attempt))
            }
            other => other,
        };
        slot.ask(&request);
        out.push(Output::Say(ToLeader::Request(session, request)));
    }

    /// The leader says something on the present link.
    pub(super) fn hear(
        &mut self,
        message: ToNode,
        next_backend: &mut u64,
        switches: Switches,
        out: &mut Vec<Output>,
    ) {
        let mut give = |slots: &mut BTreeMap<SessionId, Slot>,
                        session: SessionId,
                        what: &dyn Fn(&mut Slot) -> Option<Given>| {
            let Some(slot) = slots.get_mut(&session) else { return };
            let client = slot.client;
            out.extend(what(slot).map(|given| Output::Give(Caller { client, session }, given)));
        };
        match message {
            ToNode::Welcome(replicas) => {
                self.replicas = replicas;
                if let Some(link) = &mut self.link {
                    link.is_welcomed = true;
                }
                for (session, slot) in &self.slots {
                    let asked = slot.undecided().map(|identity| ToLeader::WantsOutcome(*session, identity));
                    out.extend(asked.map(Output::Say));
                }
            }
            ToNode::Begun(session, identity) => {
                if let Some(slot) = self.slots.get_mut(&session) {
                    self.transactions.insert(identity.number());
                    slot.begun(identity);
                }
            }
            ToNode::Perform(performed) => self.perform(performed, next_backend, switches, out),
            ToNode::Answer(session, answer) => give(&mut self.slots, session, &|slot| slot.answer(answer)),
            ToNode::Outcome(session, is_committed) => {
                give(&mut self.slots, session, &|slot| slot.settle(is_committed));
            }
            ToNode::Over(number) => {
                self.transactions.remove(&number);
            }
            ToNode::Shows(shown) => {
                let run = shown.run;
                self.replicas[run.replica] = shown;
                self.close_idle(|lane| lane.run.replica == run.replica && lane.run != run, out);
            }
        }
    }

    /// The link has ended.
    pub(super) fn lose_link(&mut self, out: &mut Vec<Output>) {
        self.link = None;
        self.replicas.clear();
        self.transactions.clear();
        self.close_idle(|_| true, out);
        for (session, slot) in &mut self.slots {
            let client = slot.client;
            out.extend(
                slot.lose_link().map(|given| Output::Give(Caller { client, session: *session }, given)),
            );
        }
    }

    /// A database has replied to a lane.
    pub(super) fn replied(&mut self, backend: u64, reply: Reply, switches: Switches, out: &mut Vec<Output>) {
        let Some(lane) = self.lanes.get_mut(&backend) else { return };
        let Some(job) = lane.jobs.pop_front() else { return };
        let (at, run, transaction) = (lane.at, lane.run, lane.transaction);
        let is_present = self.link.is_some_and(|link| {
            link.is_welcomed && (link.crew == at.crew || !switches.has(Rule::LateReportsAreDropped))
        }) && is_present(&self.replicas, run, switches);
        if reply == Reply::Failed {
            self.lanes.remove(&backend);
            if is_present {
                out.push(Output::Say(ToLeader::GiveUp(run)));
            }
            return;
        }
        let next = lane.jobs.front().copied();
        if is_present {
            if let (Work::Run(operation) | Work::RunAlone(operation), Reply::Seen(seen)) = (job.work, reply) {
                let statement = operation.statement;
                self.slots.values_mut().for_each(|slot| slot.note_reply(statement, seen.clone()));
            }
            out.push(Output::Say(ToLeader::Finished(run, transaction)));
        }
        match next {
            Some(next) if !is_last(job.work) => out.push(command(lane, next)),
            _ if is_last(job.work) || !is_present => {
                self.lanes.remove(&backend);
                out.push(Output::Close(run.replica, backend));
            }
            _ => {}
        }
    }

    fn perform(
        &mut self,
        performed: Performed,
        next_backend: &mut u64,
        switches: Switches,
        out: &mut Vec<Output>,
    ) {
        let Performed { run, transaction, .. } = performed;
        let Some(link) = self.link.filter(|_| is_present(&self.replicas, run, switches)) else { return };
        let is_its =
            |lane: &Lane| (lane.at.crew, lane.run, lane.transaction) == (link.crew, run, transaction);
        let found = self.lanes.iter().find(|(_, lane)| is_its(lane)).map(|(backend, _)| *backend);
        if found.is_none() {
            let is_known = match transaction {
                Transaction::Numbered(number) => self.transactions.contains(&number),
                Transaction::Single(session) => self.slots.contains_key(&session),
            };
            if !is_known {
                return out.push(Output::Say(ToLeader::Finished(run, transaction)));
            }
            *next_backend += 1;
        }
        let backend = found.unwrap_or(*next_backend);
        let at = LaneConnection { backend, crew: link.crew, term: link.term };
        let fresh = || Lane { at, run, transaction, jobs: VecDeque::new(), has_written: false };
        let lane = self.lanes.entry(backend).or_insert_with(fresh);
        lane.jobs.push_back(performed);
        if lane.jobs.len() == 1 {
            out.push(command(lane, performed));
        }
    }

    fn close_idle(&mut self, which: impl Fn(&Lane) -> bool, out: &mut Vec<Output>) {
        self.lanes.retain(|backend, lane| {
            let is_over = lane.jobs.is_empty() && which(lane);
            if is_over {
                out.push(Output::Close(lane.run.replica, *backend));
            }
            !is_over
        });
    }
}

fn is_present(replicas: &[Participation], run: Run, switches: Switches) -> bool {
    let present = replicas.get(run.replica);
    present.is_some_and(|shown| !switches.has(Rule::RunsAreToldApart) || shown.run == run)
}

fn command(lane: &mut Lane, job: Performed) -> Output {
    let command = match job.work {
        Work::Run(operation) | Work::RunAlone(operation) => {
            lane.has_written |= operation.kind == Kind::Write;
            Command::Run(operation)
        }
        Work::Restart | Work::End(Ending::Abort) => Command::RollBack,
        Work::End(Ending::Commit) => Command::Commit(job.identity.filter(|_| lane.has_written)),
    };
    Output::Ask(lane.run.replica, lane.at, command)
}
