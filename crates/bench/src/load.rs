//! `drive`: one workload against a PostgreSQL, or something that speaks its protocol, which runs already.
//!
//! The database is filled first when that is asked for. After the course the workload's rules are checked, and what
//! clients were told is held against what is there; anything wrong makes the command fail.

use std::collections::BTreeMap;
use std::fmt;
use std::fmt::Write as _;
use std::time::Duration;

use clap::{Args, ValueEnum};
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use tokio::runtime::{Builder, Runtime};
use tokio_postgres::Config;

use crate::drive::{self, Course, Endpoints, Fill, Isolation, Outcome, Pace, Workload, connect};
use crate::judge;
use crate::micro::{Micro, Shape};
use crate::rubbos::Rubbos;
use crate::rubis::Rubis;
use crate::tpcc::{self, Form, Tpcc};
use crate::tpcw::{self, Mix, Tpcw};

/// Between two lines about how far it is.
const NEWS: Duration = Duration::from_secs(5);

/// The loads of `drive`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Load {
    /// One row by its key.
    PointRead,
    /// All clients increment one row.
    HotCounter,
    /// Reads a counter and writes it back, one more.
    ReadModifyWrite,
    /// Three updates, a select and an insert.
    TpcB,
    /// Reads and replaces rows of 100 kB.
    LargeRows,
    /// A thousand rows in one statement.
    Bulk,
    /// Order entry.
    Tpcc,
    /// The same as calls of procedures, each a whole transaction.
    TpccCall,
    /// A book shop, 95 % browsing.
    TpcwBrowsing,
    /// A book shop, 80 % browsing.
    TpcwShopping,
    /// A book shop, 50 % browsing.
    TpcwOrdering,
    /// An auction site.
    RubisBidding,
    /// The same, only looked at.
    RubisBrowsing,
    /// A bulletin board.
    RubbosSubmission,
    /// The same, only read.
    RubbosBrowsing,
}

/// How large databases are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Args)]
pub(crate) struct Size {
    /// The scale of micro loads, the warehouses of TPC-C, the emulated browsers for which TPC-W is filled,
    /// hundreds of RUBBoS's new stories.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(i32).range(1..=10_000))]
    pub(crate) scale: i32,

    /// The items of TPC-C [default: 100,000, as specified], TPC-W [default: 1,000, the least specified] and, on sale,
    /// RUBiS [default: 1,000].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(100..=10_000_000))]
    pub(crate) items: Option<i32>,

    /// The customers of a district of TPC-C [default: 3,000, as specified].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(10..=1_000_000))]
    pub(crate) customers: Option<i32>,
}

impl Load {
    /// Loads with equal names here work on the same tables.
    pub(crate) fn tables(self) -> &'static str {
        match self {
            Self::Tpcc => "tpcc",
            Self::TpccCall => "tpcc-call",
            Self::TpcwBrowsing | Self::TpcwShopping | Self::TpcwOrdering => "tpcw",
            Self::RubisBidding | Self::RubisBrowsing => "rubis",
            Self::RubbosSubmission | Self::RubbosBrowsing => "rubbos",
            _ => "micro",
        }
    }

    /// The workload, of that size.
    pub(crate) fn workload(self, size: &Size) -> Box<dyn Workload> {
        let micro = |shape| Box::new(Micro { shape, scale: size.scale });
        let tpcw = |mix| {
            let scale = tpcw::Scale { items: size.items.unwrap_or(1_000), browsers: size.scale };
            Box::new(Tpcw { scale, mix })
        };
        let tpcc = |form| {
            let full = tpcc::Scale::full(size.scale);
            let items = size.items.unwrap_or(full.items);
            let customers = size.customers.unwrap_or(full.customers);
            Box::new(Tpcc {
                scale: tpcc::Scale { items, customers, ..full },
                form,
                mix: tpcc::Mix::Specified,
            })
        };
        let rubbos = |is_browsing| Box::new(Rubbos { stories: 100 * size.scale, is_browsing });
        match self {
            Self::PointRead => micro(Shape::PointRead),
            Self::HotCounter => micro(Shape::HotCounter),
            Self::ReadModifyWrite => micro(Shape::ReadModifyWrite),
            Self::TpcB => micro(Shape::TpcB),
            Self::LargeRows => micro(Shape::LargeRows),
            Self::Bulk => micro(Shape::BulkLoad),
            Self::Tpcc => tpcc(Form::Statements),
            Self::TpccCall => tpcc(Form::Calls),
            Self::TpcwBrowsing => tpcw(Mix::Browsing),
            Self::TpcwShopping => tpcw(Mix::Shopping),
            Self::TpcwOrdering => tpcw(Mix::Ordering),
            Self::RubbosSubmission => rubbos(false),
            Self::RubbosBrowsing => rubbos(true),
            Self::RubisBidding => Box::new(Rubis { items: size.items.unwrap_or(1_000), is_browsing: false }),
            Self::RubisBrowsing => Box::new(Rubis { items: size.items.unwrap_or(1_000), is_browsing: true }),
        }
    }
}

/// `drive`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Load to run.
    #[arg(value_enum)]
    load: Load,

    /// System under load, as a libpq connection string.
    #[arg(
        long,
        value_name = "CONNECTION",
        default_value = "host=127.0.0.1 port=6432 user=postgres dbname=postgres"
    )]
    to: Config,

    /// Endpoint for reads instead; may be given several times.
    #[arg(long, value_name = "CONNECTION")]
    reader: Vec<Config>,

    /// Declare the tables of each transaction where the workload knows them, for protocols that ship statements.
    #[arg(long)]
    declares: bool,

    /// Create and fill the tables first; the names must be free.
    #[arg(long)]
    populate: bool,

    #[command(flatten)]
    size: Size,

    /// Number of clients.
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=10_000))]
    clients: u16,

    /// Length of the warm-up, in seconds.
    #[arg(long, value_name = "SECONDS", default_value_t = 2)]
    warm_up: u16,

    /// Length of the measurement, in seconds; 0 only fills and checks.
    #[arg(long, value_name = "SECONDS", default_value_t = 10)]
    seconds: u32,

    /// Interactions are due at this rate per second, regardless of the system's speed.
    #[arg(long, value_name = "N", conflicts_with = "think", value_parser = positive)]
    rate: Option<f64>,

    /// Factor of the think times of the workload; without it and --rate, clients are always busy.
    #[arg(long, value_name = "FACTOR", value_parser = positive)]
    think: Option<f64>,

    /// Isolation level of transactions that write.
    #[arg(long, value_enum, default_value_t = Isolation::ReadCommitted)]
    isolation: Isolation,

    /// Seed of everything random.
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
}

impl Options {
    fn course(&self) -> Course {
        let pace = match (self.rate, self.think) {
            (Some(rate), _) => Pace::Rate(rate),
            (None, Some(factor)) => Pace::Thinking(factor),
            (None, None) => Pace::Busy,
        };
        Course {
            clients: usize::from(self.clients),
            pace,
            warm_up: Duration::from_secs(u64::from(self.warm_up)),
            length: Duration::from_secs(u64::from(self.seconds)),
            seed: self.seed,
            isolation: self.isolation,
        }
    }
}

/// An argument is no number above 0.
#[derive(Clone, Copy, Debug)]
enum NotPositive {
    /// It is not a number at all.
    NoNumber,
    /// It is 0, less, or has no end.
    OutOfRange,
}

impl fmt::Display for NotPositive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoNumber => "not a number",
            Self::OutOfRange => "not above 0",
        })
    }
}

impl std::error::Error for NotPositive {}

fn positive(text: &str) -> Result<f64, NotPositive> {
    let number: f64 = text.parse().map_err(|_| NotPositive::NoNumber)?;
    if number.is_finite() && number > 0.0 { Ok(number) } else { Err(NotPositive::OutOfRange) }
}

/// One thread for all clients.
pub(crate) fn runtime() -> Result<Runtime, Fault> {
    Builder::new_current_thread().enable_all().build().map_err(Fault::system("make a runtime"))
}

/// Runs it; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let workload = options.load.workload(&options.size);
    runtime()?.block_on(async {
        let endpoints = Endpoints {
            main: options.to.clone(),
            others: Vec::new(),
            readers: options.reader.clone(),
            declares: options.declares,
        };
        if options.populate {
            populate(&*workload, &endpoints.main, options.seed, interrupt, news).await?;
        }
        let client = open(&endpoints.main).await?;
        let before = judge::counts(&client, &*workload).await?;
        let course = options.course();
        let outcome = if course.length.is_zero() {
            None
        } else {
            Some(course_of(&*workload, &endpoints, &course, interrupt, news).await?)
        };
        let ledger = outcome.as_ref().map(|outcome| outcome.ledger.clone()).unwrap_or_default();
        news("checking");
        let wrong = judge::wrong(&client, &*workload, &before, &ledger).await?;
        let mut report = outcome.map(|outcome| table(&*workload, &outcome)).unwrap_or_default();
        if wrong.is_empty() {
            report.push_str("The workload's rules hold, and what clients were told is there.\n");
            return Ok(report);
        }
        for wrong in wrong {
            let _ = writeln!(report, "WRONG: {wrong}");
        }
        Err(Fault::Wrong(report))
    })
}

/// Makes the tables of a workload and fills them.
pub(crate) async fn populate(
    workload: &dyn Workload,
    to: &Config,
    seed: u64,
    interrupt: &Interrupt,
    news: &dyn Fn(&str),
) -> Result<(), Fault> {
    let fill = Fill { client: open(to).await?, seed, news, interrupt };
    workload.populate(&fill).await
}

/// A connection that a server answers.
pub(crate) async fn open(to: &Config) -> Result<tokio_postgres::Client, Fault> {
    connect(to).await.map_err(|why| Fault::Database(why.to_string()))
}

async fn course_of(
    workload: &dyn Workload,
    endpoints: &Endpoints,
    course: &Course,
    interrupt: &Interrupt,
    news: &dyn Fn(&str),
) -> Result<Outcome, Fault> {
    let told = std::cell::Cell::new(Duration::ZERO);
    let whole = course.warm_up + course.length;
    let watch = |at: Duration, done: u64| {
        if at >= told.get() + NEWS {
            told.set(at);
            news(&format!("{} of {} s, {done} interactions", at.as_secs(), whole.as_secs()));
        }
    };
    drive::drive(workload, endpoints, course, interrupt, &watch).await
}

/// The measurements, by kind of interaction.
fn table(workload: &dyn Workload, outcome: &Outcome) -> String {
    let tally = &outcome.tally;
    let mut text = format!(
        "{}: {:.1} a second, {:.1} committed; {} failed, {} retries, {} of them for 40001, {} due and not sent; the clients \
         used {:.2} of a processor\n\n\
         | interaction | done | p50 ms | p90 ms | p99 ms | max ms | limit ms | failed | retries |\n\
         |---|---|---|---|---|---|---|---|---|\n",
        workload.name(),
        tally.throughput(),
        tally.committed() as f64 / tally.seconds(),
        tally.failed(),
        tally.retries(),
        tally.conflicts(),
        tally.unsent,
        outcome.driver,
    );
    let mut troubles: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, kind) in &tally.kinds {
        let ms = |quantile: f64| ms(&kind.response_us, quantile);
        let limit = workload.limit(name);
        let is_kept = limit.is_none_or(|limit| ms(0.9) <= limit.as_secs_f64() * 1e3);
        let limit = limit.map_or_else(String::new, |limit| {
            format!("{}{}", limit.as_millis(), if is_kept { "" } else { " EXCEEDED" })
        });
        let _ = writeln!(
            text,
            "| {name} | {} | {:.2} | {:.2} | {:.2} | {:.2} | {limit} | {} | {} |",
            kind.done(),
            ms(0.5),
            ms(0.9),
            ms(0.99),
            ms(1.0),
            kind.failed(),
            kind.tries.retries
        );
        for (trouble, count) in &kind.troubles {
            *troubles.entry(trouble).or_default() += count;
        }
    }
    let all = tally.response_us();
    let _ = writeln!(
        text,
        "| all | {} | {:.2} | {:.2} | {:.2} | {:.2} | | {} | {} |\n",
        tally.done(),
        ms(&all, 0.5),
        ms(&all, 0.9),
        ms(&all, 0.99),
        ms(&all, 1.0),
        tally.failed(),
        tally.retries()
    );
    for (trouble, count) in troubles {
        let _ = writeln!(text, "failed {count} times: {trouble}");
    }
    text
}

fn ms(histogram: &hdrhistogram::Histogram<u64>, quantile: f64) -> f64 {
    histogram.value_at_quantile(quantile) as f64 / 1e3
}
