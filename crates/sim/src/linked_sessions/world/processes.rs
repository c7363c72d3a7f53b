//! What happens in the process of a node, if it lives and is awake.

use cluster::protocols::shipping::Transaction;

use super::{Event, Happening, LEASE_US, Process, TICK_US, World};
use crate::linked_sessions::Rule;
use crate::linked_sessions::database::ServerRules;
use crate::linked_sessions::leader::Outgoing;
use crate::linked_sessions::leader::orphans::{Orphan, Step};
use crate::linked_sessions::leader::rejoin::{Next, Rejoin};
use crate::linked_sessions::messages::{Asker, Command, Parcel, Reply};
use crate::trace::Stage;

impl World {
    pub(super) fn at(&mut self, process: Process, event: Event) {
        if !self.is_alive(process) {
            return;
        }
        let node = &mut self.nodes[process.node];
        if node.is_asleep {
            return node.waiting.push_back(event);
        }
        match event {
            Event::Asks(caller, request) => {
                self.say(Stage::Accept, || format!("client {} asks {request:?}", caller.client));
                self.names.attempt += 1;
                let (attempt, mut out) = (self.names.attempt, Vec::new());
                let sessions = &mut self.nodes[process.node].sessions;
                sessions.request(caller, request, attempt, self.switches, &mut out);
                self.carry_out(process, out);
            }
            Event::Parcel(crew, parcel) => self.hear(process, crew, parcel),
            Event::Hello(crew) => self.admit(process, crew),
            Event::LinkEnds(crew) => self.link_ends(process, crew),
            Event::Tick => self.tick(process),
            Event::Roster(leader, term) => self.learn_leader(process, leader, term),
            Event::Elected => self.claim(process),
            Event::LeaseIsOut(term) => self.read_log(process, term),
            Event::Log(reply) => self.log_replies(process, reply),
            Event::Replied(replica, asker, backend, reply) => {
                self.replied(process, replica, asker, backend, reply);
            }
        }
    }

    fn tick(&mut self, process: Process) {
        if self.chair.is_over {
            return;
        }
        self.connect(process);
        if let Some(leading) = &self.nodes[process.node].leading {
            let term = leading.term;
            self.confirm_lease(process, term);
            for replica in 0..self.databases.len() {
                self.maintain(process, replica);
            }
            self.leader_goes_on(process);
        }
        self.enter_at(TICK_US, process, Event::Tick);
    }

    /// Watches a replica that takes part, and brings back one that does not.
    fn maintain(&mut self, process: Process, replica: usize) {
        let Some(leading) = self.nodes[process.node].leading.as_mut() else { return };
        let run = leading.replicas[replica].run;
        if let Some(watch) = leading.replicas[replica].watch {
            if !self.databases[replica].has(watch) {
                leading.give_up(run);
                self.say(Stage::Fault, || format!("replica {replica} is given up"));
            }
            return;
        }
        let mut next = leading.looks_at_log(replica);
        if next == Next::Failed {
            if !self.dice.percent(self.plan.return_percent) {
                return;
            }
            self.names.backend += 1;
            leading.rejoins.insert(replica, Rejoin::new(run, self.names.backend));
            next = Next::Asks(Command::Fence);
        }
        self.go_on_with_return(process, replica, next);
    }

    fn go_on_with_return(&mut self, process: Process, replica: usize, next: Next) {
        let Some(leading) = self.nodes[process.node].leading.as_mut() else { return };
        match next {
            Next::Asks(command) => {
                let (term, backend) = (leading.term, leading.rejoins[&replica].backend);
                self.own_asks(process, replica, Asker::Rejoin(term), backend, command);
            }
            Next::Joined => self.say(Stage::Recover, || format!("replica {replica} takes part")),
            Next::Failed => {
                leading.replicas[replica].decided = None;
            }
            Next::Waits => {}
        }
    }

    fn replied(&mut self, process: Process, replica: usize, asker: Asker, backend: u64, reply: Reply) {
        self.say(Stage::Execute, || format!("replica {replica}, backend {backend}: {reply:?}"));
        match asker {
            Asker::Lane => {
                let mut out = Vec::new();
                self.nodes[process.node].sessions.replied(backend, reply, self.switches, &mut out);
                self.carry_out(process, out);
            }
            Asker::Orphan(term, transaction) => {
                self.orphan_hears(process, replica, term, transaction, backend, &reply);
                self.leader_goes_on(process);
            }
            Asker::Rejoin(term) => {
                let leading = self.nodes[process.node].leading.as_mut();
                let Some(leading) = leading.filter(|leading| leading.term == term) else { return };
                if leading.rejoins.get(&replica).is_some_and(|rejoin| rejoin.backend == backend) {
                    let next = leading.returns(replica, reply);
                    self.go_on_with_return(process, replica, next);
                    self.leader_goes_on(process);
                }
            }
        }
    }

    fn orphan_hears(
        &mut self,
        process: Process,
        replica: usize,
        term: u64,
        transaction: Transaction,
        backend: u64,
        reply: &Reply,
    ) {
        let switches = self.switches;
        let leading = self.nodes[process.node].leading.as_mut();
        let Some(leading) = leading.filter(|leading| leading.term == term) else { return };
        let Some(orphan) = leading.orphans.get_mut(&(replica, transaction)) else { return };
        if orphan.backend == backend {
            let step = orphan.hear(reply, switches);
            self.orphan_steps(process, replica, transaction, step);
        }
    }

    fn orphan_steps(&mut self, process: Process, replica: usize, transaction: Transaction, mut step: Step) {
        loop {
            let Some(leading) = self.nodes[process.node].leading.as_mut() else { return };
            let place = (replica, transaction);
            let Some(orphan) = leading.orphans.get_mut(&place) else { return };
            let (backend, run) = (orphan.backend, orphan.run);
            match step {
                Step::Asks(command) => {
                    let asker = Asker::Orphan(leading.term, transaction);
                    return self.own_asks(process, replica, asker, backend, command);
                }
                Step::GivesUp => return leading.give_up(run),
                Step::IsDone { is_last } => {
                    let next = (!orphan.is_idle()).then(|| orphan.next(self.switches));
                    if is_last {
                        leading.orphans.remove(&place);
                        self.agenda.enter(self.plan.message_us, Happening::BackendEnds(replica, backend));
                    }
                    leading.work_finished(run, transaction);
                    match next {
                        Some(next) if !is_last => step = next,
                        _ => return,
                    }
                }
            }
        }
    }

    /// Takes what the leader can take now, and sends what it has to say.
    pub(super) fn leader_goes_on(&mut self, process: Process) {
        let now_us = self.agenda.now_us();
        loop {
            let Some(leading) = self.nodes[process.node].leading.as_mut() else { return };
            leading.take_all(now_us < leading.confirmed_us + LEASE_US);
            let term = leading.term;
            let Outgoing { mail, records, jobs } = std::mem::take(&mut leading.out);
            if mail.is_empty() && records.is_empty() && jobs.is_empty() {
                return;
            }
            for (crew, message) in mail {
                self.send(crew, Parcel::ToNode(message));
            }
            for (number, record) in records {
                self.append(process, term, number, record);
            }
            for job in jobs {
                self.counts.orphaned += 1;
                self.say(Stage::Place, || format!("orphaned: {job:?}"));
                let Some(leading) = self.nodes[process.node].leading.as_mut() else { return };
                let place = (job.run.replica, job.transaction);
                if leading.orphans.get(&place).is_some_and(|orphan| orphan.run != job.run) {
                    leading.orphans.remove(&place);
                }
                self.names.backend += 1;
                let backend = self.names.backend;
                let orphan = leading.orphans.entry(place).or_insert_with(|| Orphan::new(job, backend));
                if orphan.push(job) {
                    let step = orphan.next(self.switches);
                    self.orphan_steps(process, job.run.replica, job.transaction, step);
                }
            }
        }
    }

    /// The rules of the servers.
    pub(super) fn server_rules(&self) -> ServerRules {
        ServerRules {
            fences: self.switches.has(Rule::ReplicasAreFenced),
            fences_crews: self.switches.has(Rule::LostCrewsAreFenced),
            vouches_for_orphans: self.switches.has(Rule::OrphansAreVouched),
        }
    }
}
