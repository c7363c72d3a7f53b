//! A table with values of any type, for `bench differential`.
//!
//! Each drawn schema gets one, `odd`, with columns of types that are drawn from all built-in ones, by themselves or inside arrays,
//! domains, composites and ranges; with a key of numbers, a key of such a type, or none. Values come from a list of those at the
//! edges of their types (`workloads/values/builtin.txt`), or are drawn, most of them by functions, since these make values
//! that no input function gives. A value may be refused by both sides, and by onecopy alone where no other server takes it.

use std::sync::LazyLock;

use sim::dice::Dice;
use testbed::workload::BUILTIN_VALUES;

use super::drawn::drawn;
use crate::soundness::{Draft, World};

/// So often a value is drawn that no other server takes.
const REFUSED_PERCENT: u64 = 4;
/// Types of which there can be keys, and ranges.
const ORDERED: [&str; 30] = [
    "bool",
    "\"char\"",
    "name",
    "int2",
    "int4",
    "int8",
    "float4",
    "float8",
    "numeric",
    "money",
    "text",
    "varchar",
    "bpchar",
    "bytea",
    "bit",
    "varbit",
    "date",
    "time",
    "timetz",
    "timestamp",
    "timestamptz",
    "interval",
    "uuid",
    "oid",
    "xid8",
    "pg_lsn",
    "inet",
    "macaddr",
    "tsquery",
    "jsonb",
];

struct Kind {
    name: &'static str,
    values: Vec<&'static str>,
    refused: Vec<&'static str>,
}

static KINDS: LazyLock<Vec<Kind>> = LazyLock::new(|| {
    let mut kinds: Vec<Kind> = Vec::new();
    for line in BUILTIN_VALUES.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let name = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
        match (name, line.strip_prefix("! "), kinds.last_mut()) {
            (Some(name), ..) => kinds.push(Kind { name, values: Vec::new(), refused: Vec::new() }),
            (None, Some(value), Some(kind)) => kind.refused.push(value),
            (None, None, Some(kind)) => kind.values.push(line),
            (None, _, None) => unreachable!("the list begins with a type"),
        }
    }
    kinds
});

/// The kinds of types that are built from another type.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Made {
    Plain,
    Array,
    Domain,
    Composite,
    Composites,
    Range,
}

struct Column {
    name: String,
    kind: &'static Kind,
    made: Made,
}

/// The table.
pub(super) struct Odd {
    columns: Vec<Column>,
    /// A key that ON CONFLICT can name.
    target: Option<String>,
}

impl Odd {
    /// Draws one, and adds it to a schema with some rows.
    pub(super) fn add(world: &mut World, dice: &mut Dice) -> Self {
        let columns: Vec<Column> = (0..dice.between(2, 5)).map(|at| Column::draw(dice, at)).collect();
        for column in &columns {
            world.ddl.extend(column.definition());
        }
        let mut lines: Vec<String> =
            columns.iter().map(|column| format!("{} {}", column.name, column.type_name())).collect();
        lines.insert(0, "k int".to_owned());
        let first = &columns[0];
        let target = match dice.below(4) {
            0 => None,
            1 if first.made == Made::Plain && ORDERED.contains(&first.kind.name) => Some(first.name.clone()),
            _ => Some("k".to_owned()),
        };
        lines.extend(target.iter().map(|key| format!("PRIMARY KEY ({key})")));
        world.ddl.push(format!("CREATE TABLE odd ({})", lines.join(", ")));
        let odd = Self { columns, target };
        world.rows.extend((1..=4).map(|k| odd.insert(dice, k, 1)));
        odd
    }

    /// A statement that writes it.
    pub(super) fn statement(&self, dice: &mut Dice) -> Draft {
        let key = dice.between(1, 12);
        let column = dice.pick(&self.columns);
        let (name, value) = (&column.name, column.value(dice));
        let text = match dice.below(10) {
            0..=2 => {
                let rows = *dice.pick(&[1, 1, 1, 2, 5, 9, 12]);
                self.insert(dice, key, rows)
            }
            3 => format!("UPDATE odd SET {name} = {value}"),
            4 => format!("UPDATE odd SET k = k + {key} WHERE k > {}", dice.between(1, 6)),
            5 => format!("DELETE FROM odd WHERE k = {key}"),
            6 => format!("INSERT INTO odd SELECT k + {}, {} FROM odd WHERE k < 30", key * 100, self.names()),
            7 => match &self.target {
                Some(target) => {
                    let inserted = self.insert(dice, key, 1);
                    format!("{inserted} ON CONFLICT ({target}) DO UPDATE SET {name} = EXCLUDED.{name}")
                }
                None => format!("DELETE FROM odd WHERE k > {key}"),
            },
            8 => format!("UPDATE odd SET {name} = NULL WHERE k = {key}"),
            _ => format!("UPDATE odd SET {name} = {value} WHERE k = {key}"),
        };
        Draft { text, parameters: Vec::new() }
    }

    fn names(&self) -> String {
        self.columns.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    fn insert(&self, dice: &mut Dice, first: u64, rows: u64) -> String {
        let row = |k: u64, dice: &mut Dice| {
            let values: Vec<String> = self
                .columns
                .iter()
                .map(|column| if dice.percent(15) { "NULL".to_owned() } else { column.value(dice) })
                .collect();
            format!("({k}, {})", values.join(", "))
        };
        let rows: Vec<String> = (first..first + rows).map(|k| row(k, dice)).collect();
        format!("INSERT INTO odd (k, {}) VALUES {}", self.names(), rows.join(", "))
    }
}

impl Column {
    fn draw(dice: &mut Dice, at: u64) -> Self {
        let kind = dice.pick(&KINDS);
        let is_array = kind.name.ends_with("[]");
        let made = match dice.below(12) {
            0 | 1 if !is_array => Made::Array,
            2 => Made::Domain,
            3 => Made::Composite,
            4 => Made::Composites,
            5 if ORDERED.contains(&kind.name) => Made::Range,
            _ => Made::Plain,
        };
        Self { name: format!("c{at}"), kind, made }
    }

    fn type_name(&self) -> String {
        let (name, own) = (self.kind.name, &self.name);
        match self.made {
            Made::Plain => name.to_owned(),
            Made::Array => format!("{name}[]"),
            Made::Domain | Made::Composite | Made::Range => format!("odd_{own}"),
            Made::Composites => format!("odd_{own}[]"),
        }
    }

    fn definition(&self) -> Option<String> {
        let (name, own) = (self.kind.name, &self.name);
        match self.made {
            Made::Plain | Made::Array => None,
            Made::Domain => Some(format!("CREATE DOMAIN odd_{own} AS {name}")),
            Made::Composite | Made::Composites => {
                Some(format!("CREATE TYPE odd_{own} AS (a {name}, b text, c date, d float8)"))
            }
            Made::Range => Some(format!("CREATE TYPE odd_{own} AS RANGE (subtype = {name})")),
        }
    }

    fn value(&self, dice: &mut Dice) -> String {
        let (name, own) = (self.kind.name, &self.name);
        let element = |dice: &mut Dice| {
            if dice.percent(20) { "NULL".to_owned() } else { format!("({})::{name}", self.kind.value(dice)) }
        };
        let row = |dice: &mut Dice| {
            let text = dice.pick(&["NULL", "''", "'a b,(\"\\'", "'NULL'"]);
            let (date, float) = (drawn("date", dice), drawn("float8", dice));
            format!(
                "ROW({}, {text}, {}, {})::odd_{own}",
                element(dice),
                date.as_deref().unwrap_or("NULL"),
                float.as_deref().unwrap_or("NULL")
            )
        };
        match self.made {
            Made::Plain | Made::Domain => self.kind.value(dice),
            Made::Composite => row(dice),
            Made::Composites => format!("ARRAY[{}, NULL, {}]", row(dice), row(dice)),
            Made::Range => {
                let bounds = dice.pick(&["[)", "[]", "(]", "()"]);
                format!("odd_{own}({}, {}, '{bounds}')", element(dice), element(dice))
            }
            Made::Array => match dice.below(4) {
                0 => "'{}'".to_owned(),
                1 => format!("array_fill({}, ARRAY[2, 1], ARRAY[-3, 7])", element(dice)),
                2 => format!("ARRAY[[{}], [{}]]", element(dice), element(dice)),
                _ => format!("ARRAY[{}, {}]", element(dice), element(dice)),
            },
        }
    }
}

impl Kind {
    fn value(&self, dice: &mut Dice) -> String {
        if !self.refused.is_empty() && dice.percent(REFUSED_PERCENT) {
            return (*dice.pick(&self.refused)).to_owned();
        }
        match drawn(self.name, dice).filter(|_| dice.percent(60)) {
            Some(value) => value,
            None => (*dice.pick(&self.values)).to_owned(),
        }
    }
}
