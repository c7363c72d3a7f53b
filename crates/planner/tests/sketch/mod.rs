//! Random small applications, each with a plain record of what its statements read and write.

use std::collections::BTreeSet;

use planner::{Application, Column, Query, Unit, UnitKind};
use sql::Schema;

/// The columns of every table; the first is its key.
pub(crate) const COLUMNS: [&str; 5] = ["k", "a", "b", "c", "d"];

/// Splitmix64, as in the simulator.
pub(crate) struct Dice(pub(crate) u64);

impl Dice {
    pub(crate) fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.number() % limit as u64).unwrap()
    }

    pub(crate) fn percent(&mut self, chance: usize) -> bool {
        self.below(100) < chance
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for at in (1..items.len()).rev() {
            items.swap(at, self.below(at + 1));
        }
    }
}

/// A statement, and what it does.
#[derive(Clone)]
pub(crate) struct Made {
    pub(crate) text: String,
    pub(crate) reads: BTreeSet<Column>,
    pub(crate) sets: BTreeSet<Column>,
    pub(crate) grows: Option<String>,
}

#[derive(Clone)]
pub(crate) struct Sketch {
    pub(crate) tables: Vec<String>,
    pub(crate) made: Vec<(String, Made)>,
    pub(crate) units: Vec<(String, UnitKind, Vec<String>)>,
}

pub(crate) fn column(table: &str, name: &str) -> Column {
    Column::new(table, name)
}

impl Made {
    pub(crate) fn of(text: String) -> Self {
        Self { text, reads: BTreeSet::new(), sets: BTreeSet::new(), grows: None }
    }

    pub(crate) fn select(dice: &mut Dice, table: &str, other: &str) -> Self {
        let any = |dice: &mut Dice| COLUMNS[dice.below(5)];
        let (shown, filter, order) = (any(dice), any(dice), any(dice));
        let mut reads = BTreeSet::from([column(table, shown), column(table, filter)]);
        let mut end = String::new();
        if dice.percent(50) {
            // With the key, no two rows tie.
            reads.extend([column(table, order), column(table, "k")]);
            end = format!(" ORDER BY x.{order}, x.k LIMIT 5");
        }
        let text = match dice.below(10) {
            0..6 => {
                let to = if dice.percent(75) { "k" } else { "a" };
                let (link, more) = (any(dice), any(dice));
                reads.extend([column(table, link), column(other, to), column(other, more)]);
                if to == "a" && !end.is_empty() {
                    end = end.replace(" LIMIT", ", y.k LIMIT");
                    reads.insert(column(other, "k"));
                }
                let from = format!("FROM {table} AS x JOIN {other} AS y ON y.{to} = x.{link}");
                if dice.percent(15) {
                    reads = BTreeSet::from([shown, filter, link].map(|name| column(table, name)));
                    reads.extend([column(other, to), column(other, more)]);
                    format!(
                        "SELECT x.{shown} AS shown, sum(y.{more}) AS total {from} WHERE x.{filter} > $1 \
                         GROUP BY x.{shown} ORDER BY total DESC, x.{shown} LIMIT 4"
                    )
                } else if dice.percent(25) {
                    reads = BTreeSet::from(["k", shown, filter, link].map(|name| column(table, name)));
                    reads.extend([column(other, to), column(other, more)]);
                    let limit = if dice.percent(50) { " LIMIT 4" } else { "" };
                    format!(
                        "SELECT x.k, x.{shown} AS shown, sum(y.{more}) AS total {from} WHERE x.{filter} > $1 \
                         GROUP BY x.k, x.{shown} ORDER BY total DESC, x.k{limit}"
                    )
                } else if dice.percent(30) {
                    reads.insert(column(other, "d"));
                    format!(
                        "SELECT x.{shown}, y.{more} AS more {from} WHERE x.{filter} = $1 AND y.d < 4{end}"
                    )
                } else {
                    format!("SELECT x.{shown}, y.{more} AS more {from} WHERE x.{filter} = $1{end}")
                }
            }
            6..8 => {
                reads.insert(column(other, "a"));
                let above = format!("(SELECT max(a) - 2 FROM {other})");
                format!("SELECT x.{shown} FROM {table} AS x WHERE x.{filter} > {above}{end}")
            }
            _ => format!("SELECT x.{shown} FROM {table} AS x WHERE x.{filter} = $1{end}"),
        };
        Self { reads, ..Self::of(text) }
    }

    pub(crate) fn update(dice: &mut Dice, table: &str) -> Self {
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

    pub(crate) fn row(dice: &mut Dice, table: &str) -> Self {
        let made = if dice.percent(60) {
            Self::of(format!("INSERT INTO {table} (k, a, b, c, d) VALUES ($1, 1, 2, 3, 4)"))
        } else {
            let made = Self::of(format!("DELETE FROM {table} WHERE k = $1"));
            Self { reads: BTreeSet::from([column(table, "k")]), ..made }
        };
        Self { grows: Some(table.to_owned()), ..made }
    }

    pub(crate) fn written(&self) -> BTreeSet<Column> {
        let grown = self.grows.iter().flat_map(|table| COLUMNS.map(|name| column(table, name)));
        self.sets.iter().cloned().chain(grown).collect()
    }
}

impl Sketch {
    pub(crate) fn new(seed: u64, with_reads: bool) -> Self {
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

    pub(crate) fn ddl(&self) -> String {
        let table = |name: &String| {
            format!(
                "CREATE TABLE {name} (k int PRIMARY KEY, a int, b int, c int{} REFERENCES t0, d int);",
                if name == "t1" { "" } else { " NOT NULL" }
            )
        };
        let first = "CREATE TABLE t0 (k int PRIMARY KEY, a int, b int, c int, d int);".to_owned();
        let ddl: Vec<String> = self.tables.iter().filter(|name| *name != "t0").map(table).collect();
        first + &ddl.concat()
    }

    pub(crate) fn application(&self) -> Application {
        let catalogue = Schema::from_ddl(&self.ddl()).unwrap().catalogue();
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

    pub(crate) fn made(&self, name: &str) -> &Made {
        &self.made.iter().find(|(known, _)| known == name).unwrap().1
    }

    pub(crate) fn updated(&self) -> BTreeSet<Column> {
        self.made.iter().flat_map(|(_, made)| made.written()).collect()
    }

    pub(crate) fn grown(&self) -> BTreeSet<&str> {
        self.made.iter().filter_map(|(_, made)| made.grows.as_deref()).collect()
    }

    /// The sets of columns that section 4.1 keeps together.
    pub(crate) fn kept(&self) -> Vec<BTreeSet<Column>> {
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
