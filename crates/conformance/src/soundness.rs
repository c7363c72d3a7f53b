//! `bench soundness`: whether what is concluded about statements holds on a real PostgreSQL.
//!
//! Schemas, rows and statements are drawn from a seed. Of each two statements both orders are run on a scratch server.
//! If an answer or the contents in the end differ between the orders, a conflict must have been reported, in either view:
//! both statements are executed again in each order, which is where [`sql::accesses::View::Columns`] is sound. And
//! the rows that a statement changes when it is alone must lie within its writes, by table, column and value.
//!
//! Errors count as equal: which of several a statement meets first depends on where its rows lie, so its code is no
//! function of the rows. For the same reason statements are left out whose answer is none either (see
//! [`draft`]), and what the classifier does not promise: temporary tables, sequences, errors that only some plans raise.
//!
//! A pair that contradicts is shown with its schema and those of its rows that are needed for it.

mod change;
mod constant;
mod draft;
mod given;
mod judge;
mod schema;
mod server;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::PathBuf;

use sim::dice::Dice;
use sql::accesses::{Accesses, Arguments, Class, Parameter};
use sql::{Analyzer, Catalogue, Limits, Schema};
use testbed::account::Account;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::postgres::{Binaries, Likeness, Plain};
use testbed::scratch::Scratch;
use tokio::runtime::Builder;

pub(crate) use draft::Draft;
use judge::{Forget, Orders};
pub(crate) use schema::World;
pub(crate) use server::{Answer, Contents, Session, asking};

/// Statements over one schema; each two of them are a pair, and each with itself.
const STATEMENTS: usize = 12;
/// Between two lines of news.
const NEWS_PAIRS: u64 = 5_000;

/// Options of the check.
#[derive(Debug, clap::Args)]
pub(crate) struct Options {
    /// Number of pairs of statements.
    #[arg(long, default_value_t = 5_000)]
    pairs: u64,

    /// Seed of the schemas and statements.
    #[arg(long, default_value_t = 1)]
    seed: u64,

    /// Weaken the conclusions on purpose, to see the check find it.
    #[arg(long, value_enum)]
    forget: Option<Forget>,

    /// Stop after this many contradictions.
    #[arg(long, default_value_t = 1)]
    failures: usize,

    /// Folder of PostgreSQL's programs [default: searched].
    #[arg(long)]
    pg_bin: Option<PathBuf>,
}

/// The counts.
#[derive(Default)]
struct Counts {
    schemas: u64,
    statements: u64,
    refused: u64,
    unbounded: u64,
    pairs: u64,
    differing: u64,
    /// Pairs that were reported, by class, and those of them that commute, in the view of rows.
    reported: BTreeMap<&'static str, (u64, u64)>,
    /// Pairs that only the view of rows reports.
    only_rows: u64,
}

/// A schema with all that is drawn for it.
struct Case {
    world: World,
    catalogue: Catalogue,
    drafts: Vec<Draft>,
    accesses: Vec<Accesses>,
}

/// Results of the server: each statement alone, and each after each.
struct Runs {
    start: Contents,
    alone: Vec<(Answer, Option<Contents>)>,
    after: Vec<Vec<(Answer, Option<Contents>)>>,
}

/// A contradiction between statements by their numbers.
struct Failure {
    statements: Vec<usize>,
    what: String,
}

/// Draws and checks; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let (account, binaries) = (Account::choose()?, Binaries::find(options.pg_bin.as_deref())?);
    let scratch = Scratch::new()?;
    news(&format!("seed {}", options.seed));
    let server = Plain::start(&binaries, account, &Likeness::bare(), &scratch, interrupt)?;
    let runtime = Builder::new_current_thread().enable_all().build().map_err(Fault::system("start"))?;
    runtime.block_on(check(server.endpoint.port, options, interrupt, news))
}

async fn check(
    port: u16,
    options: &Options,
    interrupt: &Interrupt,
    news: &dyn Fn(&str),
) -> Result<String, Fault> {
    let session = Session::open(port).await?;
    let (mut dice, mut counts) = (Dice::new(options.seed), Counts::default());
    let (mut failures, mut found) = (String::new(), 0);
    while counts.pairs < options.pairs && found < options.failures {
        interrupt.check()?;
        let case = Case::draw(&mut dice, options.forget)?;
        let runs = case.runs(&session, &case.world.rows, &(0..STATEMENTS).collect::<Vec<_>>()).await?;
        let before = counts.pairs / NEWS_PAIRS;
        for failure in case.failures(&runs, Some(&mut counts)).into_iter().take(options.failures - found) {
            found += 1;
            let rows = case.shrunk(&session, &failure).await?;
            write!(failures, "\nafter {} pairs, {}", counts.pairs, case.show(&failure, &rows))
                .expect("a String takes everything");
        }
        if counts.pairs / NEWS_PAIRS > before {
            news(&format!("{} pairs, {} contradictions", counts.pairs, found));
        }
    }
    let report = format!("{}{failures}", counts.report(options.seed));
    if found == 0 { Ok(report) } else { Err(Fault::Wrong(report)) }
}

impl Case {
    fn draw(dice: &mut Dice, forget: Option<Forget>) -> Result<Self, Fault> {
        let world = World::draw(dice);
        let unreadable = |what: &str, said: String| Fault::Unreadable { what: what.to_owned(), said };
        let text = world.ddl.join(";\n");
        let schema = Schema::from_ddl(&text)
            .map_err(|error| unreadable("a drawn schema", format!("{error:?}: {text}")))?;
        if let Some(left_out) = schema.left_out.first() {
            return Err(unreadable("a drawn schema", format!("{left_out:?}: {text}")));
        }
        let catalogue = schema.catalogue();
        let mut analyzer = Analyzer::new(Limits::default());
        let drafts: Vec<Draft> = (0..STATEMENTS).map(|_| Draft::draw(dice, &world)).collect();
        let accesses = drafts
            .iter()
            .map(|draft| {
                let accesses = accesses(&mut analyzer, &catalogue, draft)
                    .ok_or_else(|| unreadable("a drawn statement", draft.text.clone()))?;
                Ok(match forget {
                    Some(rule) => rule.applied(accesses),
                    None => accesses,
                })
            })
            .collect::<Result<_, Fault>>()?;
        Ok(Self { world, catalogue, drafts, accesses })
    }

    /// Runs statements, given by their numbers, alone and in all pairs.
    async fn runs(&self, session: &Session, rows: &[String], chosen: &[usize]) -> Result<Runs, Fault> {
        session.order("BEGIN").await?;
        for ddl in &self.world.ddl {
            session.order(ddl).await?;
        }
        for row in rows {
            session.attempt(row).await?;
        }
        let asked = asking(&self.catalogue);
        let start = session.contents(&asked).await?;
        let (mut alone, mut after) = (Vec::new(), Vec::new());
        for &first in chosen {
            alone.push(session.enter("entered", &self.drafts[first], &asked).await?);
            let mut seconds = Vec::new();
            for &second in chosen {
                seconds.push(session.probe(&self.drafts[second], &asked).await?);
            }
            after.push(seconds);
            session.leave("entered").await?;
        }
        session.order("ROLLBACK").await?;
        Ok(Runs { start, alone, after })
    }

    /// All contradictions of statements that were all run; the counts hear of each.
    fn failures(&self, runs: &Runs, mut counts: Option<&mut Counts>) -> Vec<Failure> {
        let mut failures = Vec::new();
        if let Some(counts) = counts.as_deref_mut() {
            counts.schemas += 1;
        }
        for (number, (answer, contents)) in runs.alone.iter().enumerate() {
            let accesses = &self.accesses[number];
            if let Some(counts) = counts.as_deref_mut() {
                counts.statements += 1;
                counts.refused += u64::from(matches!(answer, Answer::Error(_)));
                counts.unbounded += u64::from(accesses.unbounded.is_some());
            }
            let after = contents.as_ref().unwrap_or(&runs.start);
            if let Some(what) = judge::outside(accesses, &self.catalogue, &runs.start, after) {
                failures.push(Failure { statements: vec![number], what });
            }
        }
        for left in 0..self.drafts.len() {
            for right in left..self.drafts.len() {
                let difference = runs.orders(left, right).difference();
                let classes = judge::classes(&self.accesses[left], &self.accesses[right], &self.catalogue);
                if let Some(counts) = counts.as_deref_mut() {
                    counts.pair(difference.is_some(), classes);
                }
                if let Some(difference) = difference
                    && let Some(at) = classes.iter().position(Option::is_none)
                {
                    let view = ["rows", "columns"][at];
                    let what =
                        format!("{difference} depends on the order; no conflict in the view of {view}");
                    failures.push(Failure { statements: vec![left, right], what });
                }
            }
        }
        failures
    }

    /// The rows without those that a failure does not need.
    async fn shrunk(&self, session: &Session, failure: &Failure) -> Result<Vec<String>, Fault> {
        let chosen = &failure.statements;
        let pick = |number: &usize| (self.drafts[*number].clone(), self.accesses[*number].clone());
        let (drafts, accesses) = chosen.iter().map(pick).unzip();
        let part = Self { world: self.world.clone(), catalogue: self.again(), drafts, accesses };
        let numbers: Vec<usize> = (0..chosen.len()).collect();
        let mut rows = self.world.rows.clone();
        let mut at = 0;
        while at < rows.len() {
            let mut fewer = rows.clone();
            fewer.remove(at);
            let runs = part.runs(session, &fewer, &numbers).await?;
            if part.failures(&runs, None).iter().any(|found| found.statements.len() == chosen.len()) {
                rows = fewer;
            } else {
                at += 1;
            }
        }
        Ok(rows)
    }

    /// The catalogue once more.
    fn again(&self) -> Catalogue {
        Schema::from_ddl(&self.world.ddl.join(";\n")).expect("it was read before").catalogue()
    }

    fn show(&self, failure: &Failure, rows: &[String]) -> String {
        let mut text = format!("{}:\n{};\n", failure.what, self.world.ddl.join(";\n"));
        for row in rows {
            text += &format!("{row};\n");
        }
        for &number in &failure.statements {
            let draft = &self.drafts[number];
            text += &format!("-- statement {number}\n{};\n", draft.text);
            for (at, bound) in draft.parameters.iter().enumerate() {
                let value = bound.bytes.as_deref().map(|bytes| bytes.escape_ascii().to_string());
                let form = if bound.is_binary { "binary" } else { "text" };
                text += &format!("--   ${} {} {form} {value:?}\n", at + 1, bound.declared);
            }
            for line in self.accesses[number].describe(&self.catalogue) {
                text += &format!("--   {line}\n");
            }
        }
        text
    }
}

fn accesses(analyzer: &mut Analyzer, catalogue: &Catalogue, draft: &Draft) -> Option<Accesses> {
    let script = analyzer.script(draft.text.as_bytes(), true).ok()?;
    let [part] = &script.statements[..] else { return None };
    let parameters: Vec<Parameter<'_>> = draft
        .parameters
        .iter()
        .map(|bound| Parameter {
            type_oid: bound.declared.oid(),
            value: bound.bytes.as_deref(),
            binary: bound.is_binary,
        })
        .collect();
    let arguments =
        Arguments { text: draft.text.as_bytes(), constants: &part.constants, parameters: &parameters };
    Some(part.statement.outline(catalogue).bind(&arguments))
}

impl Runs {
    fn orders(&self, left: usize, right: usize) -> Orders<'_> {
        let after = |first: usize| self.alone[first].1.as_ref().unwrap_or(&self.start);
        let end = |first: usize, second: usize| {
            self.after[first][second].1.as_ref().unwrap_or_else(|| after(first))
        };
        Orders {
            first: [&self.alone[left].0, &self.alone[right].0],
            second: [&self.after[right][left].0, &self.after[left][right].0],
            ends: [end(left, right), end(right, left)],
        }
    }
}

impl Counts {
    fn pair(&mut self, differs: bool, [rows, columns]: [Option<Class>; 2]) {
        self.pairs += 1;
        self.differing += u64::from(differs);
        self.only_rows += u64::from(rows.is_some() && columns.is_none());
        let word = match rows {
            None => return,
            Some(Class::Key { .. }) => "key",
            Some(Class::Columns { .. }) => "columns",
            Some(Class::Table(_)) => "table",
            Some(Class::Anything) => "anything",
        };
        let (all, commuting) = self.reported.entry(word).or_default();
        *all += 1;
        *commuting += u64::from(!differs);
    }

    fn report(&self, seed: u64) -> String {
        let share = |part: u64, whole: u64| part as f64 * 100.0 / whole.max(1) as f64;
        let reported: u64 = self.reported.values().map(|(all, _)| all).sum();
        let commuting: u64 = self.reported.values().map(|(_, commuting)| commuting).sum();
        let mut text = format!(
            "seed {seed}: {} pairs of {} statements over {} schemas; {:.1}% of the statements refused, {:.1}% unbounded\n\
             {} pairs do not commute, {} of them reported\n\
             {reported} reported in the view of rows, {} of them not in that of columns\n\
             class      reported   of these commute\n",
            self.pairs,
            self.statements,
            self.schemas,
            share(self.refused, self.statements),
            share(self.unbounded, self.statements),
            self.differing,
            reported - commuting,
            self.only_rows,
        );
        for (class, (all, commuting)) in &self.reported {
            text += &format!("{class:<9} {all:>9} {commuting:>9} ({:.1}%)\n", share(*commuting, *all));
        }
        text
    }
}
