//! What can be asked for, and what can go wrong.

use std::io::Write;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use crate::{paper, user};

/// `onecopy sim`.
#[derive(Debug, Clone, Subcommand)]
pub enum Sim {
    /// Simulate a scenario of your own: templates and their costs, browsers, replicas.
    Run(Run),
    /// Simulate a paper's experiments and hold them against what it states.
    Paper(Paper),
}

/// `onecopy sim run`.
#[derive(Debug, Clone, Args)]
pub struct Run {
    /// The scenario, see docs/explanation/protocols/README.md.
    #[arg(value_name = "SCENARIO.toml")]
    pub(crate) scenario: PathBuf,
    /// One JSON object a line instead of a table.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Which paper.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Which {
    /// Conflict-aware scheduling.
    ConflictAware,
}

/// What queries cost.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Costs {
    /// Writes of 14 ms: the paper's sentence that the heaviest reads cost 50 times as much.
    A,
    /// Writes of 5 ms and the cart in the database: the paper's shares of writes.
    B,
    /// As B, with every update that the paper names, and the stock apart from the books that are read.
    C,
}

/// How databases divide their time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Service {
    /// One query after the other.
    Queue,
    /// All at once, with equal shares.
    Sharing,
}

/// `onecopy sim paper`.
#[derive(Debug, Clone, Args)]
pub struct Paper {
    /// Which paper.
    #[arg(value_enum, value_name = "PAPER")]
    pub(crate) which: Which,
    /// Only what these figures need.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(3..=17))]
    pub(crate) figure: Vec<u8>,
    /// One JSON object a line: the points, and each stated number with what came out.
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the figures into this folder, as SVG and PNG.
    #[arg(long, value_name = "DIR")]
    pub(crate) plot: Option<PathBuf>,
    /// What queries cost.
    #[arg(long, value_enum, default_value = "c")]
    pub(crate) costs: Costs,
    /// How databases divide their time.
    #[arg(long, value_enum, default_value = "queue")]
    pub(crate) service: Service,
    /// One message over the network, in microseconds.
    #[arg(long, value_name = "US", default_value_t = 200)]
    pub(crate) network_us: u64,
    /// Of all chance.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) seed: u64,
    /// Also measure what the schedulers themselves cost (Table 1). What is measured differs from run to run.
    #[arg(long)]
    pub(crate) scheduler: bool,
}

/// What can go wrong.
#[derive(Debug)]
pub enum Error {
    /// The scenario cannot be read or makes no sense.
    Scenario(String),
    /// A file cannot be written.
    File(PathBuf, String),
    /// Nobody reads what is written.
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

/// Does what was asked for and writes the results to `out`; progress goes to standard error, if that is a terminal.
pub fn command(sim: &Sim, out: &mut dyn Write) -> Result<(), Error> {
    match sim {
        Sim::Run(options) => user::run(options, out),
        Sim::Paper(options) => paper::run(options, out),
    }
}
