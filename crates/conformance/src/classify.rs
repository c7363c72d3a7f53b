//! `bench classify`: what it costs to know a statement, beside a bare parse of the same text.
//!
//! For each corpus the same texts go through three ways, in turns: PostgreSQL's parser alone, as the crate `pg_query`
//! offers it; an analyzer that remembers nothing, so that every text is a miss; and one that has seen every template:
//! by itself, with a look at the tables that the statement touches, and with the rows that it touches.
//! A text comes in two forms: as drivers prepare it, with `$1`, and with constants written into it, other ones in each
//! pass, as simple clients send it. Time is the thread's own processor time, so a busy machine disturbs it little; the
//! median of the rounds is shown, with the best and the worst round of the hits.
//!
//! No server is needed.

mod corpus;
mod report;

use std::hint::black_box;

use rustix::time::{ClockId, clock_gettime};
use sql::accesses::{Arguments, Parameter};
use sql::{Analyzer, Limits, Statistics};
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::machine::Circumstances;

use corpus::Corpus;
use report::Report;

/// How to measure.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of rounds; each measures every corpus in every way.
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,

    /// Least number of statements in a measurement of cache hits.
    #[arg(long, default_value_t = 200_000, value_parser = clap::value_parser!(u32).range(1000..=100_000_000))]
    statements: u32,
}

/// The parser is this many times slower than a hit, about: it gets so many statements fewer.
const FEWER_PARSES: u32 = 50;

/// Parameters as sent by drivers that leave types to the server.
const PARAMETERS: [Parameter<'_>; 16] = [Parameter { type_oid: 0, value: Some(b"4711"), binary: false }; 16];

/// Nanoseconds per statement, one number for each round.
#[derive(Debug, Default)]
struct Samples {
    parse: Vec<f64>,
    miss: Vec<f64>,
    hit: Vec<f64>,
    /// A hit, and where the statement may run.
    tables: Vec<f64>,
    /// A hit, and the rows that the statement touches.
    rows: Vec<f64>,
}

/// Runs the comparison; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let corpora = corpus::all();
    let repository = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let mut report = Report::new(&Circumstances::now(&repository), options.rounds);
    let mut samples: Vec<Samples> = corpora.iter().map(|_| Samples::default()).collect();
    for round in 1..=options.rounds {
        news(&format!("round {round} of {}", options.rounds));
        for (corpus, samples) in corpora.iter().zip(&mut samples) {
            interrupt.check()?;
            measure(corpus, options.statements, samples);
        }
    }
    for (corpus, samples) in corpora.iter().zip(samples) {
        report.add(corpus, &samples);
    }
    report.statistics(everything(&corpora));
    Ok(report.to_string())
}

/// One round of one corpus.
fn measure(corpus: &Corpus, statements: u32, samples: &mut Samples) {
    let few = statements / FEWER_PARSES;
    samples.parse.push(per_statement(corpus, few, |text| {
        let _ = black_box(pg_query::parse(text, pg_query::ParserOptions::DEFAULT));
    }));
    let mut forgetful = Analyzer::new(Limits { entries: 0, bytes: 0 });
    samples.miss.push(per_statement(corpus, few, |text| {
        let _ = black_box(forgetful.script(text.as_bytes(), true));
    }));
    let mut analyzer = Analyzer::new(Limits::default());
    for text in corpus.passes.iter().flatten() {
        let _ = analyzer.script(text.as_bytes(), true);
    }
    let misses = analyzer.statistics().misses;
    samples.hit.push(per_statement(corpus, statements, |text| {
        let _ = black_box(analyzer.script(text.as_bytes(), true));
    }));
    samples.tables.push(per_statement(corpus, statements, |text| {
        for part in analyzer.script(text.as_bytes(), true).iter().flat_map(|script| &script.statements) {
            black_box(part.statement.routing(&corpus.catalogue));
        }
    }));
    samples.rows.push(per_statement(corpus, statements, |text| {
        for part in analyzer.script(text.as_bytes(), true).iter().flat_map(|script| &script.statements) {
            let arguments =
                Arguments { text: text.as_bytes(), constants: &part.constants, parameters: &PARAMETERS };
            black_box(part.statement.outline(&corpus.catalogue).bind(&arguments));
        }
    }));
    assert_eq!(analyzer.statistics().misses, misses, "every template of a corpus fits into the cache");
}

/// Nanoseconds of this thread per statement, over whole rounds of passes through at least so many statements.
fn per_statement(corpus: &Corpus, at_least: u32, mut take: impl FnMut(&str)) -> f64 {
    let mut done = 0_u32;
    let begin = thread_nanos();
    while done < at_least {
        for text in corpus.passes.iter().flatten() {
            take(text);
            done += 1;
        }
    }
    (thread_nanos() - begin) / f64::from(done)
}

fn thread_nanos() -> f64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as f64 * 1e9 + now.tv_nsec as f64
}

/// Statistics of one session's analyzer cache after all corpora went through it.
fn everything(corpora: &[Corpus]) -> Statistics {
    let mut analyzer = Analyzer::new(Limits::default());
    for text in corpora.iter().flat_map(|corpus| corpus.passes.iter().flatten()) {
        let _ = analyzer.script(text.as_bytes(), true);
    }
    analyzer.statistics()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_has_every_corpus() {
        let options = Options { rounds: 1, statements: 1000 };
        let said = run(&options, &Interrupt::default(), &|_| {}).unwrap();
        for corpus in corpus::all() {
            assert!(said.contains(corpus.name), "{said}");
        }
        assert!(said.contains("evictions"), "{said}");
    }

    /// A hit does not parse. The bound is generous, since tests are built without optimization.
    #[test]
    fn a_hit_costs_a_fraction_of_a_parse() {
        for corpus in corpus::all() {
            let mut samples = Samples::default();
            measure(&corpus, 20_000, &mut samples);
            assert!(samples.hit[0] * 3.0 < samples.parse[0], "{}: {samples:?}", corpus.name);
        }
    }
}
