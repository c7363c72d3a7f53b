//! `bulk`: what large transactions cost beside one PostgreSQL, and in how much memory.
//!
//! Each load runs on a plain server with a replica's settings, then through onecopy with three replicas on the same
//! machine. The client's wait is compared, and the processor time of the home; for onecopy also the time until every
//! replica has the rows, its own processor time, and the most memory that the middleware ever had (`VmHWM`). At the end
//! all replicas must be identical.

use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{BufWriter, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use clap::Args;
use testbed::account::Account;
use testbed::build;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::node::{self, Node};
use testbed::postgres::{Binaries, Likeness, Plain};
use testbed::program;
use testbed::scratch::Scratch;

use crate::cpu::{self, Ticks};
use crate::pgbench;

/// How long the replicas may take to apply one load.
const APPLIED: Duration = Duration::from_mins(20);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(100);
/// The end of a replica's row when it has applied everything.
const CAUGHT_UP: &str = "up\t0";

/// `bulk`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Scale of `pgbench -i`, in units of 100,000 rows.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale: u32,

    /// Number of rows to copy; half of them are updated.
    #[arg(long, value_name = "N", default_value_t = 2_000_000)]
    rows: u32,

    /// Folder of postgres, initdb, psql and pgbench [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to measure [default: built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,
}

/// One load.
#[derive(Clone, Copy, Debug)]
enum Load {
    Fill,
    Copy,
    Update,
}

/// The cost of one load.
#[derive(Clone, Copy, Debug)]
struct Cost {
    wait: Duration,
    home_cpu: Ticks,
}

struct Bench<'a> {
    options: &'a Options,
    binaries: &'a Binaries,
    scratch: &'a Scratch,
    interrupt: &'a Interrupt,
    lines: &'a Path,
}

/// Runs the comparison; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let account = Account::choose()?;
    let binaries = Binaries::find(options.pg_bin.as_deref())?;
    let scratch = Scratch::new()?;
    let onecopy = match &options.onecopy {
        Some(program) => program.clone(),
        None => {
            build::onecopy(&Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."), &scratch, interrupt, news)?
        }
    };
    news("starting the servers");
    let node = Node::start(&onecopy, &binaries, &scratch, interrupt)?;
    let endpoint = Endpoint { port: node.port, database: "postgres", options: None };
    let home = node::server(node.data(), 1).ok_or_else(|| Fault::Missing("the home's server".into()))?;
    let direct = Endpoint { port: home.port, ..endpoint.clone() };
    let likeness = Likeness::of(&binaries, &direct, &scratch, interrupt)?;
    let plain = Plain::start(&binaries, account, &likeness, &scratch, interrupt)?;
    let lines = lines(&scratch, options.rows)?;
    let bench = Bench { options, binaries: &binaries, scratch: &scratch, interrupt, lines: &lines };
    for endpoint in [&endpoint, &plain.endpoint] {
        let table = "CREATE TABLE bulk (id int PRIMARY KEY, v int NOT NULL, t text NOT NULL)";
        binaries.ask(endpoint, table, &scratch, interrupt)?;
    }
    let mut report = String::from(
        "| load | plain s | onecopy s | ratio | on all replicas s | home CPU, ratio | onecopy CPU s | VmHWM MB |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    for load in [Load::Fill, Load::Copy, Load::Update] {
        news(&format!("{} on the plain server", load.name(options)));
        let ours = bench.measure(load, &plain.endpoint, plain.pid())?;
        news(&format!("{} through onecopy", load.name(options)));
        let (begun, cpu) = (Instant::now(), cpu::of_process(node.pid())?);
        let theirs = bench.measure(load, &endpoint, home.pid)?;
        bench.wait_applied(node.port)?;
        let applied = begun.elapsed();
        let own_cpu = cpu::of_process(node.pid())? - cpu;
        let _ = writeln!(
            report,
            "| {} | {:.1} | {:.1} | {:.2} | {:.1} | {:.2} | {:.1} | {:.0} |",
            load.name(options),
            ours.wait.as_secs_f64(),
            theirs.wait.as_secs_f64(),
            theirs.wait.as_secs_f64() / ours.wait.as_secs_f64(),
            applied.as_secs_f64(),
            theirs.home_cpu.micros() / ours.home_cpu.micros(),
            own_cpu.micros() / 1e6,
            peak_bytes(node.pid())? / 1e6,
        );
    }
    news("comparing the replicas");
    let mut verify = program::command(&onecopy);
    verify.args(["verify", "--port", &node.port.to_string()]);
    program::run("onecopy verify", &mut verify, &scratch.path("verify.log"), interrupt)?;
    report.push_str("\nAll replicas are identical.\n");
    Ok(report)
}

impl Load {
    fn name(self, options: &Options) -> String {
        match self {
            Self::Fill => format!("`pgbench -i -s {}`", options.scale),
            Self::Copy => format!("COPY of {} rows", options.rows),
            Self::Update => format!("UPDATE of {} rows", options.rows / 2),
        }
    }
}

impl Bench<'_> {
    fn measure(&self, load: Load, endpoint: &Endpoint, server: u32) -> Result<Cost, Fault> {
        self.interrupt.pause(cpu::SETTLE)?;
        let before = cpu::of_family(server)?;
        let begun = Instant::now();
        match load {
            Load::Fill => {
                pgbench::fill(self.binaries, endpoint, self.options.scale, self.scratch, self.interrupt)?;
            }
            Load::Copy => self.ask(endpoint, &format!("\\copy bulk from '{}'", self.lines.display()))?,
            Load::Update => {
                let half = self.options.rows / 2;
                self.ask(endpoint, &format!("UPDATE bulk SET v = v + 1 WHERE id < {half}"))?;
            }
        }
        let wait = begun.elapsed();
        self.interrupt.pause(cpu::SETTLE)?;
        Ok(Cost { wait, home_cpu: cpu::of_family(server)? - before })
    }

    /// At the server whose processor time is counted.
    fn ask(&self, endpoint: &Endpoint, query: &str) -> Result<(), Fault> {
        let queries = ["SET onecopy.home = 'anchor'", query];
        self.binaries.ask_all(endpoint, &queries, self.scratch, self.interrupt).map(drop)
    }

    fn wait_applied(&self, port: u16) -> Result<(), Fault> {
        let admin = Endpoint { port, database: "onecopy", options: None };
        let end = Instant::now() + APPLIED;
        loop {
            let replicas = self.binaries.ask(&admin, "SHOW REPLICAS", self.scratch, self.interrupt)?;
            // name, host, port, state, applied, lag: the fourth and the sixth tell.
            let state = |line: &str| {
                let fields: Vec<&str> = line.split('\t').collect();
                format!("{}\t{}", fields.get(3).unwrap_or(&""), fields.get(5).unwrap_or(&""))
            };
            if replicas.lines().all(|line| state(line) == CAUGHT_UP) {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(Fault::Unreadable {
                    what: "replicas that do not catch up".into(),
                    said: replicas,
                });
            }
            self.interrupt.pause(LOOK)?;
        }
    }
}

/// The rows to be copied.
fn lines(scratch: &Scratch, rows: u32) -> Result<PathBuf, Fault> {
    let path = scratch.file("rows.txt", "")?;
    let write = || {
        let mut file = BufWriter::new(File::create(&path)?);
        for n in 0..rows {
            writeln!(file, "{n}\t{}\tthe text of row number {n}, which is not short", n % 1000)?;
        }
        file.flush()
    };
    write().map_err(Fault::system(format!("write {}", path.display())))?;
    Ok(path)
}

/// The most memory that a process ever had.
pub(crate) fn peak_bytes(pid: u32) -> Result<f64, Fault> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(Fault::system("read /proc"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    let kilobytes = line.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes
        .map(|kilobytes| kilobytes * 1024.0)
        .ok_or_else(|| Fault::Unreadable { what: "the memory of a process".into(), said: status.clone() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_peak_of_a_process_is_at_least_what_it_holds() {
        let held = std::hint::black_box(vec![1_u8; 32 << 20]);
        assert!(peak_bytes(std::process::id()).unwrap() > held.len() as f64);
    }
}
