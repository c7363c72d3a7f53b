//! What a seed draws: the virtual database, the clients' transactions and the faults.

use std::collections::BTreeMap;
use std::sync::Arc;

use cluster::ids::{DatabaseId, ReplicaId, TableId};
use cluster::parts::lock_queues::Mode;
use cluster::placement::{Copies, Placement, ReplicaSet};
use cluster::protocols::c_jdbc::balancer::Balance;
use cluster::protocols::c_jdbc::early_response::Respond;
use cluster::protocols::c_jdbc::message::Tables;
use cluster::protocols::c_jdbc::query_cache::Granularity;
use cluster::protocols::c_jdbc::{Choices, Level};
use cluster::protocols::shipping::Ending;

use super::Options;
use crate::dice::Dice;
use crate::history::Element;

/// In so many of a hundred plans statements fail.
const FAILING_PERCENT: u64 = 30;

/// Makes the choices about kept answers and failures independent of all others.
const CACHE_SEED: u64 = 0x4b45_5054;

/// Most reads that are asked again and again.
const QUESTIONS_MAX: usize = 3;

/// The rows of a table.
const ROWS: u32 = 2;

/// A statement: the rows that it reads as of its snapshot, and those to which it appends.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Statement {
    pub(super) reads: Vec<u32>,
    pub(super) writes: Vec<(u32, Element)>,
    /// It violates a constraint when it has written so many rows, at every server.
    pub(super) fails_after: Option<usize>,
}

impl Statement {
    pub(super) fn is_write(&self) -> bool {
        !self.writes.is_empty()
    }

    /// Its tables.
    pub(super) fn tables(&self) -> Tables {
        let mut tables: BTreeMap<TableId, Mode> =
            self.reads.iter().map(|row| (table_of(*row), Mode::Read)).collect();
        tables.extend(self.writes.iter().map(|(row, _)| (table_of(*row), Mode::Write)));
        Arc::from(tables.into_iter().collect::<Vec<_>>())
    }
}

/// The table of a row.
pub(super) fn table_of(row: u32) -> TableId {
    DatabaseId::FIRST.table(row / ROWS)
}

/// A transaction of a client.
#[derive(Clone, Debug)]
pub(super) struct Program {
    pub(super) statements: Vec<Statement>,
    pub(super) ending: Ending,
    /// One read without BEGIN.
    pub(super) is_single: bool,
}

impl Program {
    /// Lets one of its writes fail, in some transactions.
    fn may_fail(&mut self, dice: &mut Dice) {
        let writes: Vec<usize> =
            (0..self.statements.len()).filter(|place| self.statements[*place].is_write()).collect();
        if !writes.is_empty() && dice.percent(25) {
            let failing = &mut self.statements[*dice.pick(&writes)];
            failing.fails_after = Some(dice.below(failing.writes.len() as u64 + 1) as usize);
        }
    }
}

/// A fault.
#[derive(Clone, Copy, Debug)]
pub(super) enum Fault {
    /// A replica crashes, and is back after a while.
    Replica(ReplicaId, u64),
    /// The controller crashes, and is back after a while.
    Controller(u64),
}

/// A run before it begins.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) choices: Choices,
    pub(super) placement: Placement,
    pub(super) replicas: u16,
    pub(super) rows: u32,
    /// The transactions of each client.
    pub(super) clients: Vec<Vec<Program>>,
    pub(super) faults: Vec<(u64, Fault)>,
    /// The typical time of a message, a step of a server, and a synchronisation of the log.
    pub(super) message_us: u64,
    pub(super) step_us: u64,
    pub(super) sync_us: u64,
}

impl Plan {
    pub(super) fn draw(dice: &mut Dice, options: Options) -> Self {
        let mut of_cache = Dice::new(dice.clone().number() ^ CACHE_SEED);
        let levels = [Level::PassThrough, Level::Optimistic, Level::Pessimistic];
        let policies = [Respond::First, Respond::Majority, Respond::All];
        let level = *dice.pick(&levels);
        let respond = *dice.pick(&policies);
        let replicas = dice.between(2, 4) as u16;
        let tables = dice.between(1, 3) as u32;
        let rules = options.switches.core;
        let choices = Choices {
            level: options.level.unwrap_or(level),
            respond: options.respond.unwrap_or(respond),
            balance: balance(dice, replicas),
            cache: cache(&mut of_cache),
            rules,
        };
        let placement = placement(dice, replicas, tables);
        let mut elements = 0;
        let clients = dice.between(2, 5);
        let mut clients: Vec<Vec<Program>> = (0..clients)
            .map(|_| {
                let count = dice.between(1, 6);
                (0..count).map(|_| program(dice, tables, &placement, &mut elements)).collect()
            })
            .collect();
        if choices.cache.is_some() {
            ask_again(&mut of_cache, &mut clients);
        }
        if of_cache.percent(FAILING_PERCENT) {
            let programs = clients.iter_mut().flatten().filter(|program| !program.is_single);
            programs.for_each(|program| program.may_fail(&mut of_cache));
        }
        Self {
            choices,
            placement,
            replicas,
            rows: tables * ROWS,
            clients,
            faults: faults(dice, replicas),
            message_us: *dice.pick(&[50, 200, 1_000]),
            step_us: *dice.pick(&[50, 200, 1_000]),
            sync_us: *dice.pick(&[10, 300, 2_000]),
        }
    }
}

fn balance(dice: &mut Dice, replicas: u16) -> Balance {
    match dice.below(3) {
        0 => Balance::RoundRobin,
        1 => Balance::LeastPending,
        _ => Balance::Weighted(
            (0..replicas).map(|replica| (ReplicaId(replica), dice.below(4) as u32)).collect(),
        ),
    }
}

/// In a third of the plans answers are kept.
fn cache(dice: &mut Dice) -> Option<Granularity> {
    match dice.below(6) {
        0 => Some(Granularity::Database),
        1 => Some(Granularity::Table),
        _ => None,
    }
}

/// Clients ask again, between their transactions, what some of them ask without BEGIN.
fn ask_again(dice: &mut Dice, clients: &mut [Vec<Program>]) {
    let asked = clients.iter().flatten().filter(|program| program.is_single);
    let questions: Vec<Program> = asked.take(QUESTIONS_MAX).cloned().collect();
    if questions.is_empty() {
        return;
    }
    for programs in clients {
        for program in std::mem::take(programs) {
            programs.push(program);
            while dice.percent(60) {
                programs.push(dice.pick(&questions).clone());
            }
        }
    }
}

/// RAIDb-1, -0 or -2.
fn placement(dice: &mut Dice, replicas: u16, tables: u32) -> Placement {
    let mut placement = Placement::full(replicas);
    let kind = dice.below(4);
    for number in 0..tables {
        let holders: ReplicaSet = match kind {
            0 | 1 => continue,
            2 => [ReplicaId(dice.below(u64::from(replicas)) as u16)].into_iter().collect(),
            _ => {
                let first = dice.below(u64::from(replicas)) as u16;
                let others = (0..replicas).filter(|_| dice.percent(50));
                others.chain([first]).map(ReplicaId).collect()
            }
        };
        placement.restrict(DatabaseId::FIRST.table(number), Copies::Whole(holders));
    }
    placement
}

fn faults(dice: &mut Dice, replicas: u16) -> Vec<(u64, Fault)> {
    let count = if dice.percent(40) { 0 } else { dice.between(1, 3) };
    (0..count)
        .map(|_| {
            let away_us = dice.delay(10_000);
            let fault = if dice.percent(70) {
                Fault::Replica(ReplicaId(dice.below(u64::from(replicas)) as u16), away_us)
            } else {
                Fault::Controller(away_us)
            };
            (dice.below(30_000), fault)
        })
        .collect()
}

fn program(dice: &mut Dice, tables: u32, placement: &Placement, elements: &mut Element) -> Program {
    let only_writes = dice.percent(40);
    if !only_writes && dice.percent(30) {
        let statements = vec![fitting(dice, tables, placement, false, elements)];
        return Program { statements, ending: Ending::Commit, is_single: true };
    }
    let count = dice.between(1, 4);
    let mut statements: Vec<Statement> = Vec::new();
    for _ in 0..count {
        let writes = only_writes || dice.percent(60);
        let mut statement = fitting(dice, tables, placement, writes, elements);
        // Often a row is written that was read before.
        let read = statements.last().and_then(|last| last.reads.first()).copied();
        if let (Some(row), true) = (read.filter(|_| writes), dice.percent(50)) {
            statement = Statement { writes: vec![(row, statement.writes[0].1)], ..Statement::default() };
        }
        statements.push(statement);
    }
    let ending = if dice.percent(85) { Ending::Commit } else { Ending::Abort };
    Program { statements, ending, is_single: false }
}

/// A statement that a replica can execute, nearly always.
fn fitting(
    dice: &mut Dice,
    tables: u32,
    placement: &Placement,
    writes: bool,
    elements: &mut Element,
) -> Statement {
    let mut drawn = Statement::default();
    for _ in 0..8 {
        drawn = statement(dice, tables, writes, elements);
        let all: Vec<TableId> = drawn.tables().iter().map(|(table, _)| *table).collect();
        let able = placement.holders_of_all(&all);
        let held = |(row, _): &(u32, Element)| placement.holders_of_all(&[table_of(*row)]);
        let targets = drawn.writes.iter().map(held).fold(ReplicaSet::EMPTY, ReplicaSet::or);
        if able != ReplicaSet::EMPTY && targets.and(able) == targets {
            break;
        }
    }
    drawn
}

fn statement(dice: &mut Dice, tables: u32, writes: bool, elements: &mut Element) -> Statement {
    let rows = tables * ROWS;
    let mut some = |most: u64| -> Vec<u32> {
        let count = dice.between(1, most);
        let mut drawn: Vec<u32> = (0..count).map(|_| dice.below(u64::from(rows)) as u32).collect();
        let mut seen = std::collections::BTreeSet::new();
        drawn.retain(|row| seen.insert(*row));
        drawn
    };
    if !writes {
        return Statement { reads: some(3), ..Statement::default() };
    }
    let targets = some(2);
    let mut reads = some(2);
    if dice.percent(50) {
        reads.clear();
    }
    reads.retain(|row| !targets.contains(row));
    let next = |row| {
        *elements += 1;
        (row, *elements)
    };
    Statement { reads, writes: targets.into_iter().map(next).collect(), fails_after: None }
}
