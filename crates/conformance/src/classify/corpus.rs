//! The texts that are measured.

use std::fmt::Write as _;
use std::rc::Rc;

use sql::{Catalogue, Schema};
use testbed::workload::{self, Step};

/// Passes with different constants.
const PASSES: u32 = 8;

/// The statements of pgbench's built-in scripts.
const PGBENCH: [&str; 7] = [
    "BEGIN",
    "UPDATE pgbench_accounts SET abalance = abalance + $1 WHERE aid = $2",
    "SELECT abalance FROM pgbench_accounts WHERE aid = $1",
    "UPDATE pgbench_tellers SET tbalance = tbalance + $1 WHERE tid = $2",
    "UPDATE pgbench_branches SET bbalance = bbalance + $1 WHERE bid = $2",
    "INSERT INTO pgbench_history (tid, bid, aid, delta, mtime) VALUES ($1, $2, $3, $4, CURRENT_TIMESTAMP)",
    "END",
];

/// The tables of pgbench.
const PGBENCH_SCHEMA: &str = "
CREATE TABLE pgbench_branches (bid int PRIMARY KEY, bbalance int, filler char(88));
CREATE TABLE pgbench_tellers (tid int PRIMARY KEY, bid int, tbalance int, filler char(84));
CREATE TABLE pgbench_accounts (aid int PRIMARY KEY, bid int, abalance int, filler char(84));
CREATE TABLE pgbench_history (tid int, bid int, aid int, delta int, mtime timestamp, filler char(22));
";

/// How the texts carry their values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// As parameters.
    Parameters,
    /// As constants.
    Constants,
}

/// Texts of one kind and form.
#[derive(Debug)]
pub(super) struct Corpus {
    /// Their source.
    pub(super) name: &'static str,
    /// How they carry their values.
    pub(super) form: Form,
    /// The same statements, with other constants in each pass where there are any.
    pub(super) passes: Vec<Vec<String>>,
    /// The catalogue of their names.
    pub(super) catalogue: Rc<Catalogue>,
}

impl Corpus {
    /// How many statements there are.
    pub(super) fn statements(&self) -> usize {
        self.passes.first().map_or(0, Vec::len)
    }

    /// Their mean length in bytes.
    pub(super) fn mean_bytes(&self) -> usize {
        let texts = || self.passes.iter().flatten();
        texts().map(String::len).sum::<usize>() / texts().count().max(1)
    }
}

/// All corpora, each in both forms.
pub(super) fn all() -> Vec<Corpus> {
    let mut corpora = both("pgbench", &PGBENCH, PGBENCH_SCHEMA);
    for workload in workload::all() {
        let steps = workload.interactions.iter().flat_map(|interaction| &interaction.steps);
        let texts = steps.map(|step| match step {
            Step::Begin(_) => "BEGIN",
            Step::Commit => "COMMIT",
            Step::Query(name) => workload.queries[name].as_str(),
        });
        corpora.extend(both(workload.name, &texts.collect::<Vec<_>>(), workload.schema));
    }
    corpora
}

fn both(name: &'static str, texts: &[&str], schema: &str) -> Vec<Corpus> {
    let schema = Schema::from_ddl(schema).expect("a test takes the schemas to a server");
    let catalogue = Rc::new(schema.catalogue());
    let parameters = texts.iter().map(|text| (*text).to_owned()).collect();
    let constants = (0..PASSES).map(|pass| texts.iter().map(|text| with_constants(text, pass)).collect());
    vec![
        Corpus { name, form: Form::Parameters, passes: vec![parameters], catalogue: Rc::clone(&catalogue) },
        Corpus { name, form: Form::Constants, passes: constants.collect(), catalogue },
    ]
}

/// Writes constants in the places of parameters: strings and numbers by turns. The texts have no dollar quotes and no
/// such places within names or strings.
fn with_constants(text: &str, pass: u32) -> String {
    let mut pieces = text.split('$');
    let mut fresh = pieces.next().unwrap_or_default().to_owned();
    for piece in pieces {
        let rest = piece.trim_start_matches(|c: char| c.is_ascii_digit());
        let number: u32 = piece[..piece.len() - rest.len()].parse().unwrap_or_default();
        let value = 1000 + (number * 7919 + pass * 104_729) % 900_000;
        let written = if number.is_multiple_of(3) {
            write!(fresh, "'value {value}'")
        } else {
            write!(fresh, "{value}")
        };
        written.expect("a string takes whatever is written");
        fresh.push_str(rest);
    }
    fresh
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_stand_where_parameters_stood() {
        let text = with_constants("UPDATE t SET a = $3 WHERE b = $1 AND c = $12", 0);
        assert_eq!(text, "UPDATE t SET a = 'value 24757' WHERE b = 8919 AND c = 'value 96028'");
        assert_ne!(text, with_constants("UPDATE t SET a = $3 WHERE b = $1 AND c = $12", 1));
        assert_eq!(with_constants("BEGIN", 3), "BEGIN");
    }
}
