//! A scenario: templates with their costs, interactions made of them, browsers, replicas.

use std::sync::Arc;

use cluster::ids::FragmentId;
pub use cluster::ids::{DatabaseId, TableId};
use cluster::parts::lock_queues::{LockSet, Mode};
use cluster::protocols::onecopy::ONECOPY;
use cluster::protocols::shipping::{Choices, Kind};
use cluster::protocols::{conflict_aware, eager, fr_c, fr_l, vr_l};

use crate::dice::Dice;

/// Most replicas of one scenario.
pub const REPLICAS_MAX: usize = 1_000;

/// The system between browsers and databases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// A scheduler of the first paper.
    Shipping(Choices),
    /// Onecopy's own protocol.
    Onecopy,
}

impl Protocol {
    /// All protocols: those of the first paper from the worst to the best by its claims, then ours.
    pub const ALL: [Self; 6] = [
        Self::Shipping(eager::EAGER),
        Self::Shipping(fr_l::FR_L),
        Self::Shipping(fr_c::FR_C),
        Self::Shipping(vr_l::VR_L),
        Self::Shipping(conflict_aware::CONFLICT_AWARE),
        Self::Onecopy,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shipping(choices) => choices.name,
            Self::Onecopy => ONECOPY.name,
        }
    }

    /// The protocol with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|protocol| protocol.name() == name)
    }
}

/// How a database divides its time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discipline {
    /// One query after the other in their order, as section 9.1 describes.
    Queue,
    /// All queries at once, with equal shares.
    Sharing,
}

/// How the transactions of one scheduler share the disk of its log.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Disk {
    /// Any number at once.
    Together,
    /// Each in turn, and one table after the other, since "the log is kept per table" (section 5.3).
    InTurn,
}

/// The schedulers between browsers and databases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Front {
    /// Their number. Each interaction stays with one, and interactions are dealt in turn (section 3.2).
    pub schedulers: usize,
    /// The processor time of a scheduler for one message, in or out, and for a completion of its log. At 0 it is never busy.
    pub message_us: u64,
    /// How transactions share the disk of a scheduler's log.
    pub disk: Disk,
}

impl Default for Front {
    fn default() -> Self {
        Self { schedulers: 1, message_us: 0, disk: Disk::Together }
    }
}

/// A statement with its constants taken out.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Template {
    /// Its name.
    pub name: String,
    /// Its time on an idle replica.
    pub cost_us: u32,
    /// Tables that it reads.
    pub reads: Vec<TableId>,
    /// Tables that it writes.
    pub writes: Vec<TableId>,
}

impl Template {
    /// A read goes to one replica, a write to all.
    pub fn kind(&self) -> Kind {
        if self.writes.is_empty() { Kind::Read } else { Kind::Write }
    }
}

/// The number of a template.
pub type TemplateIndex = usize;

/// A part of an interaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Step {
    /// A transaction of one statement.
    Single(TemplateIndex),
    /// A transaction of several statements, with all locks at its beginning.
    Transaction(Vec<TemplateIndex>),
    /// One of these steps, by their weights.
    OneOf(Vec<(u32, Vec<Self>)>),
}

/// An interaction: the transactions of one click.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Interaction {
    /// Its name in reports.
    pub name: String,
    /// Its steps in order.
    pub steps: Vec<Step>,
}

/// How the next interaction is drawn: for each interaction, upper thresholds of a number from 1 to the last threshold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Next(pub Vec<Vec<u32>>);

impl Next {
    /// The next interaction does not depend on the current one.
    pub fn by_weight(weights: &[u32]) -> Self {
        let sum = |total: &mut u32, weight: &u32| {
            *total += weight;
            Some(if *weight == 0 { 0 } else { *total })
        };
        let row: Vec<u32> = weights.iter().scan(0, sum).collect();
        Self(vec![row; weights.len()])
    }

    /// Draws the interaction after `present`.
    pub fn draw(&self, present: usize, dice: &mut Dice) -> usize {
        let row = &self.0[present];
        let limit = row.iter().copied().max().unwrap_or(0);
        let drawn = dice.below(u64::from(limit)) as u32 + 1;
        row.iter().position(|threshold| *threshold >= drawn).unwrap_or(present)
    }
}

/// A workload of the browsers.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Workload {
    /// The templates of its statements.
    pub templates: Vec<Template>,
    /// The interactions.
    pub interactions: Vec<Interaction>,
    /// The first interaction of a session.
    pub first: usize,
    /// How the following interactions are drawn.
    pub next: Next,
}

impl Workload {
    /// The mean time of the reads and the writes of an interaction, per template drawn from the mix, in microseconds:
    /// a run of this many interactions of one browser.
    pub fn mean_costs_us(&self, interactions: u32) -> (f64, f64) {
        let mut dice = Dice::new(1);
        let (mut reads, mut writes, mut present) = (0_u64, 0_u64, self.first);
        for _ in 0..interactions {
            let mut of = |template: &Template| match template.kind() {
                Kind::Read => reads += u64::from(template.cost_us),
                Kind::Write => writes += u64::from(template.cost_us),
            };
            self.visit(present, &mut dice, &mut |step| match step {
                Drawn::Single(one) => of(&self.templates[one]),
                Drawn::Transaction(all) => all.iter().for_each(|one| of(&self.templates[*one])),
            });
            present = self.next.draw(present, &mut dice);
        }
        (reads as f64 / f64::from(interactions), writes as f64 / f64::from(interactions))
    }

    /// Draws the transactions of an interaction.
    pub(crate) fn visit(&self, interaction: usize, dice: &mut Dice, visitor: &mut impl FnMut(Drawn<'_>)) {
        visit(&self.interactions[interaction].steps, dice, visitor);
    }
}

/// A transaction of an interaction.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Drawn<'a> {
    Single(TemplateIndex),
    Transaction(&'a [TemplateIndex]),
}

fn visit(steps: &[Step], dice: &mut Dice, visitor: &mut impl FnMut(Drawn<'_>)) {
    for step in steps {
        match step {
            Step::Single(template) => visitor(Drawn::Single(*template)),
            Step::Transaction(templates) => visitor(Drawn::Transaction(templates)),
            Step::OneOf(choices) => {
                let total: u32 = choices.iter().map(|(weight, _)| weight).sum();
                let mut drawn = dice.below(u64::from(total.max(1))) as u32;
                for (weight, steps) in choices {
                    if drawn < *weight {
                        visit(steps, dice, visitor);
                        break;
                    }
                    drawn -= weight;
                }
            }
        }
    }
}

/// The locks of these templates together, the stronger mode of each table; with each table split into `parts`, one
/// part of each.
///
/// The paper lowers the conflict rate by ignoring a conflict with a probability (section 9.4). Here a transaction locks
/// one random part of each of its tables, so that two conflict with the probability `1 / parts` at each table that they
/// share, in the same way at all replicas and for the scheduler.
pub(crate) fn locks(templates: &[&Template], parts: u16, dice: &mut Dice) -> LockSet {
    let mut tables: Vec<(TableId, Mode)> = Vec::new();
    for template in templates {
        tables.extend(template.reads.iter().map(|table| (*table, Mode::Read)));
        tables.extend(template.writes.iter().map(|table| (*table, Mode::Write)));
    }
    tables.sort_by_key(|(table, mode)| (*table, std::cmp::Reverse(*mode)));
    tables.dedup_by_key(|(table, _)| *table);
    let part = |dice: &mut Dice| if parts > 1 { dice.below(u64::from(parts)) as u16 } else { 0 };
    let locks: Vec<_> =
        tables.into_iter().map(|(table, mode)| (FragmentId { table, part: part(dice) }, mode)).collect();
    locks.into()
}

/// All parameters of one simulation.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed of all random choices.
    pub seed: u64,
    /// The protocol.
    pub protocol: Protocol,
    /// The number of databases.
    pub replicas: usize,
    /// The number of emulated browsers.
    pub clients: usize,
    /// Their workload.
    pub workload: Arc<Workload>,
    /// Mean think time between interactions; exponential, at most ten times the mean.
    pub think_us: u64,
    /// The time of one message between any two machines.
    pub network_us: u64,
    /// The time to make the writes of a transaction durable in the scheduler's log.
    pub log_us: u64,
    /// The schedulers.
    pub front: Front,
    /// How databases divide their time among queries.
    pub discipline: Discipline,
    /// The speed-up of databases over the templates.
    pub speed: u32,
    /// The parts of each table that are locked apart.
    pub parts: u16,
    /// The warm-up before the measured time.
    pub warm_up_us: u64,
    /// The measured time.
    pub measure_us: u64,
}
