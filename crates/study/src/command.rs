//! The commands of `onecopy-sim` with their options, and their errors.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::{gargamel, paper, preventive, user};

/// `onecopy sim`.
#[derive(Debug, Clone, Subcommand)]
pub enum Sim {
    /// Simulate a scenario of your own: templates and their costs, browsers, replicas.
    Run(Run),
    /// Simulate a paper's experiments and compare the results with its statements.
    #[command(subcommand)]
    Paper(Paper),
}

/// `onecopy sim run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// The scenario file; docs/explanation/protocols/README.md describes it.
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenario: PathBuf,
    /// Print one JSON object a line instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// `onecopy sim paper`: the papers.
#[derive(Debug, Clone, Subcommand)]
pub enum Paper {
    /// Conflict-aware scheduling.
    ConflictAware(ConflictAware),
    /// Gargamel, and its rivals Round-Robin, Tashkent+ and centralised writes.
    Gargamel(Gargamel),
    /// Preventive replication.
    Preventive(Preventive),
}

/// A calibration of query costs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Costs {
    /// Writes of 14 ms: the paper says that the heaviest reads cost 50 times as much.
    A,
    /// Writes of 5 ms, the cart in the database: fits the paper's shares of writes.
    B,
    /// Like B, with every update that the paper names, and the stock in a table of its own.
    C,
}

/// The scheduling of queries in a database.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// One query after the other.
    Queue,
    /// All queries at once, with equal shares.
    Sharing,
}

/// The pairs of transactions that conflict.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Conflicts {
    /// Those that write one column of a row, as in the paper.
    Columns,
    /// Those that write one row, as in PostgreSQL.
    Rows,
}

/// What becomes of a transaction of a rival that was overtaken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Restarts {
    /// It waits behind all others.
    End,
    /// It runs again at once.
    Once,
}

/// What the consensus latency delays.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Delays {
    /// The reply to the client.
    Reply,
    /// The commit, and with it the worker.
    Commit,
    /// Nothing.
    Off,
}

/// `onecopy sim paper gargamel`.
#[derive(Debug, Clone, Args)]
pub struct Gargamel {
    /// Print one JSON object a line: each statement of the paper with our result.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the figures into this folder, as SVG and PNG.
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
    /// The pairs of transactions that conflict.
    #[arg(long, value_enum, default_value = "columns")]
    pub(crate) conflicts: Conflicts,
    /// What becomes of a transaction that was overtaken.
    #[arg(long, value_enum, default_value = "end")]
    pub(crate) retry: Restarts,
    /// What the consensus latency delays.
    #[arg(long, value_enum, default_value = "reply")]
    pub(crate) consensus: Delays,
}

/// `onecopy sim paper preventive`.
#[derive(Debug, Clone, Args)]
pub struct Preventive {
    /// Print one JSON object a line: each statement of the paper with our result.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the figures into this folder, as SVG and PNG.
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
}

/// `onecopy sim paper conflict-aware`.
#[derive(Debug, Clone, Args)]
pub struct ConflictAware {
    /// Simulate only the points of these figures; 15 includes table 1 and the schedulers of section 9.3.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(3..=17))]
    pub(crate) figure: Vec<u8>,
    /// Print one JSON object a line: the points, and each statement of the paper with our result.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the figures into this folder, as SVG and PNG.
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
    /// The calibration of query costs.
    #[arg(long, value_enum, default_value = "c")]
    pub(crate) costs: Costs,
    /// How databases divide their time among queries.
    #[arg(long, value_enum, default_value = "queue")]
    pub(crate) service: Service,
    /// The time of one message over the network, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 200)]
    pub(crate) network_us: u64,
    /// The seed of all random choices.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also measure the schedulers' own processor time; the result differs from run to run.
    #[arg(long)]
    pub(crate) scheduler: bool,
}

/// Why a command fails.
#[derive(Debug)]
pub enum Error {
    /// The scenario cannot be read or makes no sense.
    Scenario(String),
    /// A file cannot be written.
    File(PathBuf, String),
    /// The results cannot be written, for example because the reader of a pipe has ended.
    Output(std::io::Error),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Scenario(text) => write!(f, "scenario: {text}"),
            Self::File(path, text) => write!(f, "{}: {text}", path.display()),
            Self::Output(error) => write!(f, "cannot write the results: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<std::io::Error> for Error {
    fn from(error: std::io::Error) -> Self {
        Self::Output(error)
    }
}

/// Runs a command and writes the results to `out`; progress goes to standard error, if that is a terminal.
pub fn command(sim: &Sim, out: &mut dyn Write) -> Result<(), Error> {
    match sim {
        Sim::Run(options) => user::run(options, out),
        Sim::Paper(Paper::ConflictAware(options)) => paper::run(options, out),
        Sim::Paper(Paper::Gargamel(options)) => gargamel::run(options, out),
        Sim::Paper(Paper::Preventive(options)) => preventive::run(options, out),
    }
}
