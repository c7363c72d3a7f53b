//! `bench predict`: how well the rest of a transaction is known at its first statement.
//!
//! Transactions of TPC-C and TPC-W are drawn from a seed, with the branches and loops that their texts describe, and
//! shown one after another to a profile that has seen those before (sql::profile). After a warm-up, at the first
//! statement of each transaction of several: is every table that the rest will read or write among those predicted?
//! Are its rows? And how many of the predicted tables are then not touched? No server is needed and nothing is timed,
//! so the same seed gives the same figures everywhere.

mod tpcc;
mod tpcw;

use std::collections::BTreeSet;
use std::sync::Arc;

use sim::dice::Dice;
use sql::accesses::{Access, Accesses, Arguments, Parameter};
use sql::profile::{Digests, Prediction, ProfileLimits, Profiles, Step};
use sql::{Analyzer, Catalogue, Limits, Schema, Statement, TableId};
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::workload::{self, Workload};

/// Options of the check.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of transactions before any is judged.
    #[arg(long, default_value_t = 2_000)]
    warm_up: u32,

    /// Number of transactions that are judged.
    #[arg(long, default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    transactions: u32,

    /// Seed of the transactions.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// One statement that is sent: the name of its text and its parameters.
#[derive(Debug)]
pub(crate) struct Sent {
    query: &'static str,
    values: Vec<String>,
}

/// A statement with numbers as its parameters.
fn sent(query: &'static str, values: &[u64]) -> Sent {
    Sent { query, values: values.iter().map(ToString::to_string).collect() }
}

/// A kind of transactions with what one of them sends.
pub(crate) type Drawn = (&'static str, Vec<Sent>);

/// The counts for one workload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Counts {
    /// Transactions of several statements.
    judged: u32,
    /// Those whose tables were all predicted.
    tables: u32,
    /// Those whose rows were all within what was predicted.
    rows: u32,
    /// Pairs of a table and reading or writing that were predicted, and those of them that nothing touched.
    predicted: u32,
    false_positives: u32,
    /// Predicted accesses, and those of them that are of some rows only.
    accesses: u32,
    by_key: u32,
    /// Sum of the confidence that the predictions had of themselves, in thousandths.
    confidence: u64,
}

/// Runs both workloads; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let mut report = format!(
        "seed {}, {} transactions after {} of warm-up; at the first statement of each of several\n\n{}\n",
        options.seed,
        options.transactions,
        options.warm_up,
        "workload  judged  all tables  all rows  false positives  by key  own confidence  beginnings   bytes"
    );
    for workload in workload::all() {
        let draw: fn(&mut Dice) -> Drawn = match workload.name {
            "tpcc" => tpcc::transaction,
            "tpcw" => tpcw::transaction,
            _ => continue,
        };
        interrupt.check()?;
        news(workload.name);
        let (counts, profiles) = judge(&workload, draw, options);
        report += &row(workload.name, &counts, &profiles);
    }
    Ok(report)
}

fn row(name: &str, counts: &Counts, profiles: &Profiles) -> String {
    let share = |part: u32, whole: u32| f64::from(part) * 100.0 / f64::from(whole.max(1));
    let held = profiles.statistics();
    format!(
        "{name:<9} {:>6} {:>10.2}% {:>8.2}% {:>15.2}% {:>6.1}% {:>14.2}% {:>11} {:>7}\n",
        counts.judged,
        share(counts.tables, counts.judged),
        share(counts.rows, counts.judged),
        share(counts.false_positives, counts.predicted),
        share(counts.by_key, counts.accesses),
        counts.confidence as f64 / 10.0 / f64::from(counts.judged.max(1)),
        held.nodes,
        held.bytes,
    )
}

/// A statement as a session has it.
struct Executed {
    statement: Arc<Statement>,
    values: Vec<String>,
}

impl Executed {
    fn parameters(&self) -> Vec<Parameter<'_>> {
        let parameter = |value| Parameter { type_oid: 0, value: Some(value), binary: false };
        self.values.iter().map(|value| parameter(value.as_bytes())).collect()
    }
}

fn judge(workload: &Workload, draw: fn(&mut Dice) -> Drawn, options: &Options) -> (Counts, Profiles) {
    let schema = Schema::from_ddl(workload.schema).expect("a test reads the schemas that are built in");
    let catalogue = schema.catalogue();
    let mut analyzer = Analyzer::new(Limits::default());
    let mut profiles = Profiles::new(ProfileLimits::default());
    let mut dice = Dice::new(options.seed);
    let mut counts = Counts::default();
    for number in 0..options.warm_up.saturating_add(options.transactions) {
        let (_, sent) = draw(&mut dice);
        let transaction: Vec<Executed> = sent
            .into_iter()
            .map(|sent| Executed {
                statement: statement(&mut analyzer, &workload.queries[sent.query]),
                values: sent.values,
            })
            .collect();
        if number >= options.warm_up && transaction.len() > 1 {
            counts.add(&transaction, &profiles, &catalogue);
        }
        observe(&mut profiles, &transaction);
    }
    (counts, profiles)
}

fn statement(analyzer: &mut Analyzer, text: &str) -> Arc<Statement> {
    let script =
        analyzer.script(text.as_bytes(), true).expect("a test parses the statements that are built in");
    Arc::clone(&script.statements[0].statement)
}

fn observe(profiles: &mut Profiles, transaction: &[Executed]) {
    let digests: Vec<Digests> = transaction
        .iter()
        .map(|executed| {
            Digests::of(&Arguments { parameters: &executed.parameters(), ..Arguments::default() })
        })
        .collect();
    let steps: Vec<Step<'_>> = transaction
        .iter()
        .zip(&digests)
        .map(|(executed, arguments)| Step { statement: &executed.statement, arguments })
        .collect();
    profiles.observe(&steps);
}

impl Counts {
    /// Judges the prediction at the first statement of a transaction.
    fn add(&mut self, transaction: &[Executed], profiles: &Profiles, catalogue: &Catalogue) {
        self.judged += 1;
        let (first, rest) = transaction.split_at(1);
        let Some(prediction) = profiles.predict(&[first[0].statement.template]) else { return };
        self.confidence += u64::from(prediction.confidence);
        let predicted = predicted(&prediction, &first[0], catalogue);
        let actual: Vec<Accesses> = rest.iter().map(|executed| accesses(executed, catalogue)).collect();
        let (expected, touched) = (tables([&predicted]), tables(&actual));
        self.tables += u32::from(touched.is_subset(&expected));
        let within = |side: fn(&Accesses) -> &[Access]| {
            actual.iter().flat_map(side).all(|access| side(&predicted).iter().any(|one| covers(one, access)))
        };
        self.rows += u32::from(within(|accesses| &accesses.reads) && within(|accesses| &accesses.writes));
        self.predicted += expected.len() as u32;
        self.false_positives += expected.difference(&touched).count() as u32;
        let all = predicted.reads.iter().chain(&predicted.writes);
        self.accesses += all.clone().count() as u32;
        self.by_key += all.filter(|access| access.rows != sql::accesses::Rows::All).count() as u32;
    }
}

fn accesses(executed: &Executed, catalogue: &Catalogue) -> Accesses {
    let parameters = executed.parameters();
    executed.statement.outline(catalogue).bind(&Arguments { parameters: &parameters, ..Arguments::default() })
}

fn predicted(prediction: &Prediction, first: &Executed, catalogue: &Catalogue) -> Accesses {
    let parameters = first.parameters();
    prediction.accesses(catalogue, &[Arguments { parameters: &parameters, ..Arguments::default() }])
}

/// The tables of accesses, each with whether it is written.
fn tables<'a>(all: impl IntoIterator<Item = &'a Accesses>) -> BTreeSet<(TableId, bool)> {
    let mut found = BTreeSet::new();
    for accesses in all {
        found.extend(accesses.reads.iter().map(|access| (access.table, false)));
        found.extend(accesses.writes.iter().map(|access| (access.table, true)));
    }
    found
}

/// Whether every row of one access is a row of another.
fn covers(predicted: &Access, actual: &Access) -> bool {
    use sql::accesses::Rows;
    if predicted.table != actual.table {
        return false;
    }
    match (&predicted.rows, &actual.rows) {
        (Rows::All, _) => true,
        (Rows::AnyOf(_), Rows::All) => false,
        (Rows::AnyOf(wide), Rows::AnyOf(narrow)) => narrow.iter().all(|one| {
            wide.iter().any(|other| other.equalities().iter().all(|equal| one.equalities().contains(equal)))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OPTIONS: Options = Options { warm_up: 500, transactions: 1_500, seed: 7 };

    fn counts(name: &str, draw: fn(&mut Dice) -> Drawn) -> Counts {
        let workload = workload::all().into_iter().find(|workload| workload.name == name).unwrap();
        judge(&workload, draw, &OPTIONS).0
    }

    /// Conservative: what is printed is better. A profile that predicts everything would fail the second bound, one that
    /// predicts nothing the first.
    fn is_predicted(counts: Counts) {
        let Counts { judged, tables, rows, predicted, false_positives, .. } = counts;
        assert!(judged > 100, "{counts:?}");
        assert!(tables * 100 >= judged * 95, "{counts:?}");
        assert!(rows * 100 >= judged * 95, "{counts:?}");
        assert!(false_positives * 100 <= predicted * 25, "{counts:?}");
        assert!(counts.by_key * 100 >= counts.accesses * 20, "{counts:?}");
    }

    #[test]
    fn tpcc_is_predicted_at_its_first_statements() {
        is_predicted(counts("tpcc", tpcc::transaction));
    }

    #[test]
    fn tpcw_is_predicted_at_its_first_statements() {
        is_predicted(counts("tpcw", tpcw::transaction));
    }

    /// Every statement of the drawn transactions exists and is given all of its parameters, and no more.
    #[test]
    fn what_is_drawn_can_be_sent() {
        for (name, draw) in
            [("tpcc", tpcc::transaction as fn(&mut Dice) -> Drawn), ("tpcw", tpcw::transaction)]
        {
            let workload = workload::all().into_iter().find(|workload| workload.name == name).unwrap();
            let mut dice = Dice::new(1);
            for (kind, sent) in (0..500).map(|_| draw(&mut dice)) {
                for sent in sent {
                    let text = &workload.queries[sent.query];
                    let wanted = (1..20).take_while(|number| text.contains(&format!("${number}"))).count();
                    assert_eq!(sent.values.len(), wanted, "{kind}: {text}");
                }
            }
        }
    }
}
