//! What is true of every plan, over random small applications.
//!
//! Each application is made from a seed, together with a plain record of what its statements read and write. The rules are
//! checked on that record, so a mistake in how the planner reads statements shows, too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};

use planner::{Answer, Application, Column, Plan, Query, Unit, UnitKind, plan, services_file};
use sql::Schema;
use sql::anatomy::anatomy;

const SEEDS: u64 = 150;
const COLUMNS: [&str; 5] = ["k", "a", "b", "c", "d"];

/// Splitmix64, as in the simulator.
struct Dice(u64);

impl Dice {
    fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.number() % limit as u64).unwrap()
    }

    fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// A statement, and what it does.
#[derive(Clone)]
struct Made {
    text: String,
    reads: BTreeSet<Column>,
    sets: BTreeSet<Column>,
    grows: Option<String>,
}

#[derive(Clone)]
struct Sketch {
    tables: Vec<String>,
    made: Vec<(String, Made)>,
    units: Vec<(String, UnitKind, Vec<String>)>,
}

fn column(table: &str, name: &str) -> Column {
    Column::new(table, name)
}

impl Made {
    fn of(text: String) -> Self {
        Self { text, reads: BTreeSet::new(), sets: BTreeSet::new(), grows: None }
    }

    fn select(dice: &mut Dice, table: &str, other: &str) -> Self {
        let shown = COLUMNS[dice.below(5)];
        let filter = COLUMNS[dice.below(5)];
        let order = COLUMNS[dice.below(5)];
        let mut reads = BTreeSet::from([column(table, shown), column(table, filter)]);
        let limit = if dice.percent(40) {
            reads.insert(column(table, order));
            format!(" ORDER BY x.{order} LIMIT 5")
        } else {
            String::new()
        };
        let text = if dice.percent(50) {
            let link = COLUMNS[1 + dice.below(4)];
            let more = COLUMNS[1 + dice.below(4)];
            reads.extend([column(table, link), column(other, "k"), column(other, more)]);
            format!(
                "SELECT x.{shown}, y.{more} FROM {table} AS x JOIN {other} AS y ON y.k = x.{link} WHERE x.{filter} = $1{limit}"
            )
        } else if dice.percent(30) {
            reads.insert(column(other, "a"));
            format!(
                "SELECT x.{shown} FROM {table} AS x WHERE x.{filter} > (SELECT max(a) FROM {other}){limit}"
            )
        } else {
            format!("SELECT x.{shown} FROM {table} AS x WHERE x.{filter} = $1{limit}")
        };
        Self { reads, ..Self::of(text) }
    }

    fn update(dice: &mut Dice, table: &str) -> Self {
        let mut sets: Vec<&str> = COLUMNS[1..].to_vec();
        dice.shuffle(&mut sets);
        sets.truncate(1 + dice.below(2));
        let texts: Vec<String> = sets.iter().map(|name| format!("{name} = 1")).collect();
        let filter = COLUMNS[dice.below(5)];
        Self {
            reads: BTreeSet::from([column(table, filter)]),
            sets: sets.iter().map(|name| column(table, name)).collect(),
            ..Self::of(format!("UPDATE {table} SET {} WHERE {filter} = $1", texts.join(", ")))
        }
    }

    fn row(dice: &mut Dice, table: &str) -> Self {
        let made = if dice.percent(60) {
            Self::of(format!("INSERT INTO {table} (k, a, b, c, d) VALUES ($1, 1, 2, 3, 4)"))
        } else {
            let made = Self::of(format!("DELETE FROM {table} WHERE k = $1"));
            Self { reads: BTreeSet::from([column(table, "k")]), ..made }
        };
        Self { grows: Some(table.to_owned()), ..made }
    }

    fn written(&self) -> BTreeSet<Column> {
        let grown = self.grows.iter().flat_map(|table| COLUMNS.map(|name| column(table, name)));
        self.sets.iter().cloned().chain(grown).collect()
    }
}

impl Sketch {
    fn new(seed: u64, with_reads: bool) -> Self {
        let mut dice = Dice(seed);
        let tables: Vec<String> = (0..2 + dice.below(3)).map(|at| format!("t{at}")).collect();
        let mut made = Vec::new();
        for at in 0..3 + dice.below(7) {
            let table = &tables[dice.below(tables.len())];
            let other = &tables[dice.below(tables.len())];
            let one = match dice.below(10) {
                0..6 if with_reads => Made::select(&mut dice, table, other),
                0..9 => Made::update(&mut dice, table),
                _ => Made::row(&mut dice, table),
            };
            made.push((format!("q{at}"), one));
        }
        let mut units = Vec::new();
        for at in 0..dice.below(3) {
            let kind = if dice.percent(60) { UnitKind::Transaction } else { UnitKind::AtomicSet };
            let queries = (0..2 + dice.below(2)).map(|_| made[dice.below(made.len())].0.clone()).collect();
            units.push((format!("u{at}"), kind, queries));
        }
        Self { tables, made, units }
    }

    fn application(&self) -> Application {
        let table = |name: &String| {
            format!(
                "CREATE TABLE {name} (k int PRIMARY KEY, a int, b int, c int NOT NULL REFERENCES t0, d int);"
            )
        };
        let first = "CREATE TABLE t0 (k int PRIMARY KEY, a int, b int, c int, d int);".to_owned();
        let ddl: Vec<String> = self.tables.iter().filter(|name| *name != "t0").map(table).collect();
        let catalogue = Schema::from_ddl(&(first + &ddl.concat())).unwrap().catalogue();
        let mut application = Application::new("random", catalogue).unwrap();
        for (name, made) in &self.made {
            let query = Query::new(name, &made.text, &application.catalogue).unwrap();
            application.queries.insert(name.clone(), query);
        }
        for (name, kind, queries) in &self.units {
            let queries = queries.iter().cloned().collect();
            application.units.insert(name.clone(), Unit { kind: *kind, queries });
        }
        application
    }

    fn made(&self, name: &str) -> &Made {
        &self.made.iter().find(|(known, _)| known == name).unwrap().1
    }

    fn updated(&self) -> BTreeSet<Column> {
        self.made.iter().flat_map(|(_, made)| made.written()).collect()
    }

    fn grown(&self) -> BTreeSet<&str> {
        self.made.iter().filter_map(|(_, made)| made.grows.as_deref()).collect()
    }

    /// The sets of columns that section 4.1 keeps together.
    fn kept(&self) -> Vec<BTreeSet<Column>> {
        let updated = self.updated();
        let mut kept: Vec<BTreeSet<Column>> = self
            .grown()
            .iter()
            .map(|table| COLUMNS.iter().map(|name| column(table, name)).collect())
            .collect();
        kept.extend(self.made.iter().map(|(_, made)| made.written()));
        for (_, kind, queries) in &self.units {
            let made = queries.iter().map(|name| self.made(name));
            kept.push(match kind {
                UnitKind::Transaction => made
                    .flat_map(|made| made.reads.iter().cloned().chain(made.written()))
                    .filter(|column| updated.contains(column))
                    .collect(),
                UnitKind::AtomicSet => made.flat_map(Made::written).collect(),
            });
        }
        kept
    }
}

fn homes(plan: &Plan) -> BTreeMap<Column, usize> {
    let homes = plan.services.iter().enumerate();
    homes.flat_map(|(at, service)| service.columns.iter().map(move |column| (column.clone(), at))).collect()
}

/// 4.1: "cluster the data into services such that no transaction overlaps multiple data services".
#[test]
fn no_transaction_spans_two_services() {
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, true);
        let plan = plan(&sketch.application()).unwrap();
        let homes = homes(&plan);
        for kept in sketch.kept() {
            let services: BTreeSet<usize> = kept.iter().map(|column| homes[column]).collect();
            assert!(services.len() <= 1, "seed {seed}: {kept:?}");
        }
    }
}

#[test]
fn every_column_has_one_home_and_keys_are_repeated() {
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, true);
        let plan = plan(&sketch.application()).unwrap();
        let total: usize = plan.services.iter().map(|service| service.columns.len()).sum();
        let homes = homes(&plan);
        assert_eq!(total, homes.len(), "seed {seed}: a column has two homes");
        let grown = sketch.grown();
        for table in &sketch.tables {
            for name in COLUMNS {
                let repeated = name == "k" && !grown.contains(table.as_str());
                assert_ne!(homes.contains_key(&column(table, name)), repeated, "seed {seed}: {table}.{name}");
            }
        }
    }
}

/// 4.1: "the largest possible number of services": no part of a service could be a service of its own. Without reads, so
/// that only the rules of 4.1 are at work.
#[test]
fn splitting_a_service_breaks_a_rule() {
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, false);
        let plan = plan(&sketch.application()).unwrap();
        let mut kept = sketch.kept();
        kept.extend(plan.merges.iter().map(|merge| merge.columns.clone()));
        let mut dice = Dice(seed);
        for service in plan.services.iter().filter(|service| service.updated && service.columns.len() > 1) {
            for _ in 0..10 {
                let mut columns: Vec<&Column> = service.columns.iter().collect();
                dice.shuffle(&mut columns);
                let part: BTreeSet<&Column> =
                    columns[..1 + dice.below(columns.len() - 1)].iter().copied().collect();
                let splits = |kept: &&BTreeSet<Column>| {
                    let inside = kept.iter().filter(|column| part.contains(column)).count();
                    inside > 0 && inside < kept.len()
                };
                assert!(
                    kept.iter().any(|kept| splits(&kept)),
                    "seed {seed}: {part:?} of {:?}",
                    service.columns
                );
            }
        }
    }
}

/// 4.2: "each sub-query can execute in one data service".
#[test]
fn every_statement_finds_what_it_reads_in_its_service() {
    let mut rewritten_reads = 0;
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, true);
        let application = sketch.application();
        let plan = plan(&application).unwrap();
        let finds = |service: usize, columns: &BTreeSet<Column>| {
            let service = &plan.services[service];
            let here: BTreeSet<&Column> =
                service.columns.iter().chain(service.copies.iter().map(|copy| &copy.column)).collect();
            let has = |column: &Column| {
                here.contains(column)
                    || (column.name == "k" && here.iter().any(|other| other.table == column.table))
            };
            assert!(columns.iter().all(has), "seed {seed}: {columns:?} in {here:?}");
        };
        for (name, answer) in &plan.answers {
            match answer {
                Answer::Whole(service) => finds(service.unwrap(), &sketch.made(name).reads),
                Answer::Rewritten(rewritten) => {
                    rewritten_reads += 1;
                    for step in &rewritten.steps {
                        let read = anatomy(&step.text, &application.catalogue).unwrap();
                        let columns = read.output.iter().chain(&read.deciding).map(|place| {
                            let table = read.relations[place.relation].table;
                            let table = application.catalogue.table(table).unwrap();
                            column(&table.name, &table.columns[place.column].name)
                        });
                        finds(step.service, &columns.collect());
                    }
                }
            }
        }
        assert_eq!(plan.answers.len(), sketch.made.len());
    }
    assert!(rewritten_reads > 20, "only {rewritten_reads} reads were rewritten");
}

/// A copy is never where its column is at home, and a read that is answered whole needs none of its own making.
#[test]
fn copies_are_of_columns_of_other_services() {
    for seed in 0..SEEDS {
        let plan = plan(&Sketch::new(seed, true).application()).unwrap();
        for service in &plan.services {
            assert!(service.copies.iter().all(|copy| !service.columns.contains(&copy.column)), "seed {seed}");
            assert!(service.copies.iter().all(|copy| copy.updates == 0.0), "seed {seed}: rates are all one");
        }
    }
}

#[test]
fn the_order_of_the_input_does_not_matter() {
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, true);
        let mut other = sketch.clone();
        let mut dice = Dice(!seed);
        dice.shuffle(&mut other.tables);
        dice.shuffle(&mut other.made);
        dice.shuffle(&mut other.units);
        let [one, other] = [sketch, other].map(|sketch| sketch.application());
        let plans = [plan(&one).unwrap(), plan(&other).unwrap()];
        assert_eq!(plans[0], plans[1], "seed {seed}");
        assert_eq!(services_file(&one, &plans[0]), services_file(&other, &plans[1]), "seed {seed}");
    }
}
