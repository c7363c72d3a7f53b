//! One run: browsers, network, scheduler, databases, on one agenda.
//!
//! Every message takes the same time, so messages form a queue; only think times and database jobs need heaps. Events at
//! one time keep their order of entry. The machines of the schedulers are in `schedulers`.

mod schedulers;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use cluster::protocols::shipping::Request;

use super::browser::Browser;
pub use super::database::Busy;
use super::database::Database;
use super::onecopy::Onecopy;
use super::scenario::{Protocol, Scenario};
use super::shipping::Shipping;
use super::system::{Out, System, To};
use schedulers::{Inbound, Machine};

/// A clock that measures our own code, in nanoseconds; the simulation does not depend on it.
pub type Meter = fn() -> u64;

/// The measurements of a run.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Outcome {
    /// Interactions finished in the measured time.
    pub interactions: u64,
    /// The measured time.
    pub measured_us: u64,
    /// Sum of their times from the click to the last reply.
    pub response_us: u64,
    /// Requests answered in the measured time.
    pub requests: u64,
    /// Sum of the times from request to reply.
    pub request_us: u64,
    /// The part of that in databases; the rest is waiting, and messages.
    pub in_database_us: u64,
    /// The working time of all databases in the measured time.
    pub busy: Busy,
    /// Messages to and from the scheduler in the measured time, browsers' included.
    pub messages: u64,
    /// Bytes of these messages, by the assumptions of the system; 0 if it has none.
    pub network_bytes: u64,
    /// Bytes that the schedulers have logged, likewise.
    pub log_bytes: u64,
    /// The most memory that the state of all schedulers took, in samples; 0 if it is not known.
    pub memory_bytes: usize,
    /// The time that all schedulers were busy, if a message takes them any.
    pub scheduler_us: u64,
    /// The scheduler's own time, if a meter was passed. It differs from run to run.
    pub scheduler_ns: u64,
    /// The number of events, also before the measured time.
    pub happenings: u64,
    /// The summed time of all interactions under way in the first and in the second half of the measured time.
    pub under_way_us: [u64; 2],
}

impl Outcome {
    /// Web interactions per second.
    pub fn wips(&self) -> f64 {
        self.interactions as f64 * 1e6 / self.measured_us.max(1) as f64
    }

    /// The growth of the number of waiting interactions, as a part of the finished ones. It compares the means of both
    /// halves, since the number at one moment is chance.
    pub fn backlog(&self) -> f64 {
        let [before_us, after_us] = self.under_way_us;
        let half_us = (self.measured_us / 2).max(1) as f64;
        2.0 * after_us.saturating_sub(before_us) as f64 / half_us / self.interactions.max(1) as f64
    }

    /// Mean time of a request, and the part of it in a database, in milliseconds.
    pub fn mean_request_ms(&self) -> (f64, f64) {
        let mean = |us: u64| us as f64 / 1e3 / self.requests.max(1) as f64;
        (mean(self.request_us), mean(self.in_database_us))
    }

    /// Mean time of an interaction.
    pub fn mean_response_ms(&self) -> f64 {
        self.response_us as f64 / 1e3 / self.interactions.max(1) as f64
    }

    /// Shares of the databases' time: reads, writes, idle.
    pub fn shares(&self, replicas: usize) -> [f64; 3] {
        let total = self.measured_us.max(1) as f64 * replicas as f64;
        let [reads, writes] = [self.busy.reads_us, self.busy.writes_us].map(|us| us as f64 / total);
        [reads, writes, (1.0 - reads - writes).max(0.0)]
    }
}

/// Runs a scenario.
pub fn run(scenario: &Scenario, meter: Option<Meter>) -> Outcome {
    match scenario.protocol {
        Protocol::Shipping(choices) => World::new(scenario, Shipping::new(choices, scenario), meter).run(),
        Protocol::Onecopy => {
            assert_eq!(scenario.front.schedulers, 1, "several schedulers are those of the first paper");
            World::new(scenario, Onecopy::new(scenario), meter).run()
        }
    }
}

enum Packet<M> {
    Ask(usize, Request),
    Answer(usize),
    Message(To, M),
}

/// A time, and the order of entry among events of that time.
type Moment = (u64, u64);

/// A time after every event.
const NEVER: Moment = (u64::MAX, u64::MAX);

/// The place of the next event.
#[derive(Clone, Copy)]
enum Source {
    Click,
    Work,
    Wire,
    Log,
    Scheduler,
}

/// Interactions between two samples of the schedulers' memory.
const SAMPLE_EVERY: u64 = 64;

struct World<'a, S: System> {
    scenario: &'a Scenario,
    system: S,
    meter: Option<Meter>,
    now_us: u64,
    entered: u64,
    /// Thinking browsers.
    clicks: BinaryHeap<Reverse<(Moment, usize)>>,
    /// Completions of databases: replica and generation. They are few, so they have a heap of their own.
    work: BinaryHeap<Reverse<(Moment, (usize, u64))>>,
    wire: VecDeque<(Moment, Packet<S::Message>)>,
    /// By the moment at which the disk is done: the scheduler and its message.
    log: BTreeMap<Moment, (usize, S::Message)>,
    machines: Vec<Machine<S::Message>>,
    /// The scheduler of each browser's present interaction.
    dealt: Vec<Option<usize>>,
    /// The scheduler of the next interaction.
    turn: usize,
    browsers: Vec<Browser>,
    databases: Vec<Database>,
    out: Out<S::Message>,
    packets: VecDeque<Packet<S::Message>>,
    outcome: Outcome,
    is_measuring: bool,
    /// Interactions under way.
    under_way: u64,
}

impl<'a, S: System> World<'a, S> {
    fn new(scenario: &'a Scenario, system: S, meter: Option<Meter>) -> Self {
        let seed = |browser: usize| scenario.seed.wrapping_mul(0x1_0000_0001).wrapping_add(browser as u64);
        let mut world = Self {
            scenario,
            system,
            meter,
            now_us: 0,
            entered: 0,
            clicks: BinaryHeap::new(),
            work: BinaryHeap::new(),
            wire: VecDeque::new(),
            log: BTreeMap::new(),
            machines: (0..scenario.front.schedulers).map(|_| Machine::default()).collect(),
            dealt: vec![None; scenario.clients],
            turn: 0,
            browsers: (0..scenario.clients)
                .map(|browser| Browser::new(seed(browser), &scenario.workload))
                .collect(),
            databases: (0..scenario.replicas).map(|_| Database::new(scenario.discipline)).collect(),
            out: Out::default(),
            packets: VecDeque::new(),
            outcome: Outcome::default(),
            is_measuring: false,
            under_way: 0,
        };
        for browser in 0..scenario.clients {
            let after = world.browsers[browser].think_us(scenario);
            let moment = world.moment(after);
            world.clicks.push(Reverse((moment, browser)));
        }
        world
    }

    fn run(mut self) -> Outcome {
        let end_us = self.scenario.warm_up_us + self.scenario.measure_us;
        let mut before = Busy::default();
        while let Some((at_us, source)) = self.next() {
            if !self.is_measuring && at_us >= self.scenario.warm_up_us {
                before = self.busy();
                self.is_measuring = true;
                self.now_us = self.scenario.warm_up_us;
            }
            if at_us >= end_us {
                break;
            }
            self.wait_until(at_us);
            self.now_us = at_us;
            self.outcome.happenings += 1;
            self.happen(source);
        }
        let after = self.busy();
        self.outcome.busy = Busy {
            reads_us: after.reads_us - before.reads_us,
            writes_us: after.writes_us - before.writes_us,
        };
        self.wait_until(end_us);
        self.outcome.measured_us = self.scenario.measure_us;
        self.outcome
    }

    /// Adds up the time of interactions under way until then.
    fn wait_until(&mut self, at_us: u64) {
        if self.is_measuring {
            let middle_us = self.scenario.warm_up_us + self.scenario.measure_us / 2;
            let halves = [
                at_us.min(middle_us).saturating_sub(self.now_us),
                at_us.saturating_sub(self.now_us.max(middle_us)),
            ];
            for (sum_us, passed_us) in self.outcome.under_way_us.iter_mut().zip(halves) {
                *sum_us += self.under_way * passed_us;
            }
        }
    }

    fn busy(&self) -> Busy {
        self.databases.iter().map(Database::busy).fold(Busy::default(), |sum, one| Busy {
            reads_us: sum.reads_us + one.reads_us,
            writes_us: sum.writes_us + one.writes_us,
        })
    }

    /// The next event and its time.
    fn next(&self) -> Option<(u64, Source)> {
        let heads = [
            (self.wire.front().map_or(NEVER, |(moment, _)| *moment), Source::Wire),
            (self.work.peek().map_or(NEVER, |Reverse((moment, _))| *moment), Source::Work),
            (self.clicks.peek().map_or(NEVER, |Reverse((moment, _))| *moment), Source::Click),
            (self.log.first_key_value().map_or(NEVER, |(moment, _)| *moment), Source::Log),
            (self.machines.iter().map(|machine| machine.done).min().unwrap_or(NEVER), Source::Scheduler),
        ];
        let first = heads.into_iter().reduce(|first, next| if next.0 < first.0 { next } else { first });
        first.filter(|(moment, _)| *moment != NEVER).map(|((at_us, _), source)| (at_us, source))
    }

    fn happen(&mut self, source: Source) {
        match source {
            Source::Wire => {
                if let Some((_, packet)) = self.wire.pop_front() {
                    self.deliver(packet);
                }
            }
            Source::Work => {
                if let Some(Reverse((_, (replica, generation)))) = self.work.pop() {
                    self.complete(replica, generation);
                }
            }
            Source::Click => {
                if let Some(Reverse((_, browser))) = self.clicks.pop() {
                    self.under_way += 1;
                    self.browsers[browser].click(self.now_us, self.scenario);
                    self.ask_next(browser);
                }
            }
            Source::Log => {
                if let Some((_, (at, message))) = self.log.pop_first() {
                    self.inbound(at, Inbound::Logged(message));
                }
            }
            Source::Scheduler => self.processor_done(),
        }
    }

    /// A database may have finished a job.
    fn complete(&mut self, replica: usize, generation: u64) {
        let Some(done) = self.databases[replica].complete(self.now_us, generation) else { return };
        if let Some((at_us, generation)) = done.next {
            self.set(at_us, replica, generation);
        }
        self.system.done(done.here_us, replica, done.job, &mut self.out);
        self.carry_out();
    }

    fn deliver(&mut self, packet: Packet<S::Message>) {
        match packet {
            Packet::Answer(browser) => {
                if self.is_measuring {
                    let (_, asked_us) = self.browsers[browser].since_us();
                    self.outcome.requests += 1;
                    self.outcome.request_us += self.now_us - asked_us;
                }
                self.ask_next(browser);
            }
            Packet::Ask(browser, request) => {
                let at = self.scheduler_of(browser, &request);
                self.inbound(at, Inbound::Ask(browser, request));
            }
            Packet::Message(to @ (To::Scheduler { at, .. } | To::Peer { at, .. }), message) => {
                self.inbound(at, Inbound::Message(to, message));
            }
            Packet::Message(to @ To::Replica(_), message) => {
                self.system.arrive(self.now_us, to, message, &mut self.out);
                self.carry_out();
            }
        }
    }

    fn ask_next(&mut self, browser: usize) {
        if let Some(request) = self.browsers[browser].next_request(self.now_us) {
            self.send(Packet::Ask(browser, request));
            return;
        }
        self.under_way -= 1;
        if self.is_measuring {
            let (clicked_us, _) = self.browsers[browser].since_us();
            self.outcome.interactions += 1;
            self.outcome.response_us += self.now_us - clicked_us;
            if self.outcome.interactions.is_multiple_of(SAMPLE_EVERY) {
                self.outcome.memory_bytes = self.outcome.memory_bytes.max(self.system.memory_bytes());
            }
        }
        self.send(Packet::Ask(browser, Request::InteractionOver));
        let after_us = self.browsers[browser].think_us(self.scenario);
        let moment = self.moment(after_us);
        self.clicks.push(Reverse((moment, browser)));
    }

    fn carry_out(&mut self) {
        let mut packets = std::mem::take(&mut self.packets);
        self.account(&mut packets);
        for packet in packets.drain(..) {
            self.send(packet);
        }
        self.packets = packets;
    }

    /// Carries out everything but the messages, which it adds to these.
    fn account(&mut self, packets: &mut VecDeque<Packet<S::Message>>) {
        let mut out = std::mem::take(&mut self.out);
        let in_database_us = std::mem::take(&mut out.in_database_us);
        let network_bytes = std::mem::take(&mut out.network_bytes);
        let log_bytes = std::mem::take(&mut out.log_bytes);
        if self.is_measuring {
            self.outcome.in_database_us += in_database_us;
            self.outcome.network_bytes += network_bytes;
            self.outcome.log_bytes += log_bytes;
        }
        packets.extend(out.sends.drain(..).map(|(to, message)| Packet::Message(to, message)));
        packets.extend(out.answers.drain(..).map(|session| Packet::Answer(session.0 as usize)));
        for log in out.logs.drain(..) {
            self.log(log);
        }
        for (replica, job) in out.jobs.drain(..) {
            if let Some((at_us, generation)) = self.databases[replica].push(self.now_us, job) {
                self.set(at_us, replica, generation);
            }
        }
        self.out = out;
    }

    fn send(&mut self, packet: Packet<S::Message>) {
        let moment = self.moment(self.scenario.network_us);
        self.wire.push_back((moment, packet));
    }

    /// Schedules the completion of a database's job.
    fn set(&mut self, at_us: u64, replica: usize, generation: u64) {
        let moment = self.moment(at_us - self.now_us);
        self.work.push(Reverse((moment, (replica, generation))));
    }

    /// The time so long from now.
    fn moment(&mut self, after_us: u64) -> Moment {
        self.entered += 1;
        (self.now_us + after_us, self.entered)
    }
}
