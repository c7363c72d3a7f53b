//! `bench crowd`: many clients on few server connections.
//!
//! Most clients are connected and silent, as those of an application's own pools are; the others work all the time. They
//! share as many server connections in PgBouncer before a plain server and in onecopy with one replica. The memory of the
//! process in between is read before the silent ones come, when they are there, and after the load, so that what a
//! client costs can be told; throughput and processor time are measured as `bench proxy` does.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use rustix::process::{Resource, getrlimit, setrlimit};
use testbed::account::Account;
use testbed::build;
use testbed::endpoint::Endpoint;
use testbed::fault::Fault;
use testbed::interrupt::Interrupt;
use testbed::machine::Circumstances;
use testbed::postgres::{Binaries, Likeness, Plain};
use testbed::scratch::Scratch;

use super::contender::{Bench, Contender};
use super::node::Node;
use super::pooler::{Pooler, Size};
use crate::pgbench::{self, Entry, Load, Mode, Script};

/// How long a silent client waits to be let in.
const LOG_IN: Duration = Duration::from_secs(30);
/// After that many messages of a log-in something is wrong.
const BYTES_MAX: usize = 1 << 16;
/// Between the last client and the reading of memory.
const REST: Duration = Duration::from_secs(1);
/// The run with one client, which is not reported.
const ALONE: Duration = Duration::from_secs(1);

/// `bench crowd`.
#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Number of idle clients.
    #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(0..=9_000))]
    idle: u32,

    /// Number of clients that work.
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(1..=900))]
    clients: u32,

    /// Number of server connections.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=200))]
    servers: u32,

    /// Length of each run, in seconds.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=3600))]
    seconds: u64,

    /// Number of rounds; each measures everything once.
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = clap::value_parser!(u64).range(1..=100))]
    rounds: u64,

    /// Size of the database, as for `pgbench -s`.
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    scale: u32,

    /// Folder of postgres, initdb, psql and pgbench [default: searched].
    #[arg(long, value_name = "DIR")]
    pg_bin: Option<PathBuf>,

    /// Program to measure [default: built from these sources].
    #[arg(long, value_name = "FILE")]
    onecopy: Option<PathBuf>,

    /// Measure only this load.
    #[arg(long, value_enum)]
    script: Option<Script>,

    /// Measure only this protocol. PgBouncer before 1.21 cannot share connections of clients that prepare.
    #[arg(long, value_enum)]
    protocol: Option<Mode>,
}

/// Runs the comparison; `news` hears what goes on.
pub(crate) fn run(options: &Options, interrupt: &Interrupt, news: &dyn Fn(&str)) -> Result<String, Fault> {
    let (account, binaries, scratch) =
        (Account::choose()?, Binaries::find(options.pg_bin.as_deref())?, Scratch::new()?);
    allow_files(options)?;
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let circumstances = Circumstances::now(&repository);
    let onecopy = match &options.onecopy {
        Some(program) => program.clone(),
        None => build::onecopy(&repository, &scratch, interrupt, news)?,
    };
    news("starting the servers");
    let servers = options.servers.to_string();
    let pooled = ["--pool-mode", "transaction", "--pool-size", &servers];
    let node = Node::start(&onecopy, "onecopy", &pooled, &binaries, &scratch, interrupt)?;
    let likeness = Likeness::of(&binaries, &node.replica, &scratch, interrupt)?;
    let plain = Plain::start(&binaries, account, &likeness, &scratch, interrupt)?;
    let size = Size { servers: options.servers, clients: options.idle + options.clients + 8 };
    let pooler = Pooler::start(&binaries, account, &plain, size, None, &scratch, interrupt)?;
    news("filling the tables");
    for endpoint in [&node.endpoint, &plain.endpoint] {
        pgbench::fill(&binaries, endpoint, options.scale, &scratch, interrupt)?;
    }
    let bench = Bench { binaries: &binaries, scratch: &scratch, interrupt };
    let mut ways = Vec::new();
    if let Some(pooler) = &pooler {
        let (contender, endpoint) = (Contender::pooled(&plain, pooler), pooler.endpoint.clone());
        ways.push(Way { contender, pid: pooler.pid(), endpoint, takes_prepared: pooler.pools_prepared() });
    }
    let contender = Contender::through(super::contender::POOLS, &node);
    ways.push(Way { contender, pid: node.pid(), endpoint: node.endpoint.clone(), takes_prepared: true });
    let mut report = format!(
        "{circumstances}; PostgreSQL {}; {}. {} silent clients and {} that work on {} server connections, {} rounds of {} s, \
         scale {}.\n\n| way | load | protocol | transactions a second | its CPU, us | server's CPU, us | its memory, MB: \
         empty, with the silent, after the load | kB a silent client |\n|---|---|---|---|---|---|---|---|\n",
        likeness.version(),
        pooler.as_ref().map_or_else(|| "PgBouncer is not installed".to_owned(), ToString::to_string),
        options.idle,
        options.clients,
        options.servers,
        options.rounds,
        options.seconds,
        options.scale,
    );
    for round in 1..=options.rounds {
        for way in &ways {
            news(&format!("{}, round {round} of {}", way.contender.name, options.rounds));
            measure(&bench, options, round, way, &mut report)?;
        }
    }
    Ok(report)
}

/// One way in.
struct Way {
    contender: Contender,
    pid: u32,
    endpoint: Endpoint,
    /// Clients with prepared statements share its server connections.
    takes_prepared: bool,
}

fn measure(
    bench: &Bench<'_>,
    options: &Options,
    round: u64,
    way: &Way,
    report: &mut String,
) -> Result<(), Fault> {
    let Way { contender, pid, endpoint, takes_prepared } = way;
    let empty = resident_bytes(*pid)?;
    let silent: Vec<TcpStream> = (0..options.idle).map(|_| log_in(endpoint)).collect::<Result<_, _>>()?;
    bench.interrupt.pause(REST)?;
    let full = resident_bytes(*pid)?;
    let modes = [Mode::Simple, Mode::Extended, Mode::Prepared];
    let modes = modes.into_iter().filter(|mode| *takes_prepared || *mode != Mode::Prepared);
    let modes: Vec<Mode> = modes.filter(|mode| options.protocol.is_none_or(|only| only == *mode)).collect();
    let scripts = [Script::SelectOnly, Script::TpcB];
    for script in scripts.into_iter().filter(|script| options.script.is_none_or(|only| only == *script)) {
        for &mode in &modes {
            let load = Load {
                script,
                mode,
                clients: options.clients,
                length: Duration::from_secs(options.seconds),
                seed: round,
                entry: Entry::default(),
            };
            let sample = bench.measure(contender, &load, &Load { clients: 1, length: ALONE, ..load })?;
            let (mb, each) = (1e6, (full - empty) / f64::from(options.idle.max(1)) / 1e3);
            let _ = writeln!(
                report,
                "| {} | {script} | {mode} | {:.0} | {:.1} | {:.1} | {:.1}, {:.1}, {:.1} | {each:.1} |",
                contender.name,
                sample.throughput,
                sample.middleware_us.unwrap_or_default(),
                sample.servers_us,
                empty / mb,
                full / mb,
                resident_bytes(*pid)? / mb,
            );
        }
    }
    drop(silent);
    bench.interrupt.pause(REST)
}

/// Each client is a file, here and in the programs that inherit the limit.
fn allow_files(options: &Options) -> Result<(), Fault> {
    let mut limit = getrlimit(Resource::Nofile);
    let wanted = u64::from(2 * (options.idle + options.clients) + 500);
    limit.current = limit.current.map(|current| current.max(wanted).min(limit.maximum.unwrap_or(u64::MAX)));
    setrlimit(Resource::Nofile, limit)
        .map_err(|error| Fault::system("raise the limit of open files")(error.into()))
}

/// A client that is let in and says nothing more.
fn log_in(endpoint: &Endpoint) -> Result<TcpStream, Fault> {
    let failed = |error| Fault::system("log a silent client in")(error);
    let mut stream = TcpStream::connect(("127.0.0.1", endpoint.port)).map_err(failed)?;
    stream.set_read_timeout(Some(LOG_IN)).map_err(failed)?;
    let mut out = Vec::new();
    wire::encode::startup(&mut out, &[("user", "postgres"), ("database", endpoint.database)]);
    stream.write_all(&out).map_err(failed)?;
    let (mut input, mut more) = (Vec::new(), [0; 4096]);
    while input.len() < BYTES_MAX {
        let count = stream.read(&mut more).map_err(failed)?;
        input.extend_from_slice(&more[..count]);
        let mut rest = input.as_slice();
        while let Ok(Some(frame)) = wire::next_frame(rest) {
            match frame.tag {
                wire::backend::tag::READY_FOR_QUERY => return Ok(stream),
                wire::backend::tag::ERROR_RESPONSE => {
                    let said = String::from_utf8_lossy(frame.body()).into_owned();
                    return Err(Fault::Unreadable { what: "the answer to a log-in".into(), said });
                }
                _ => rest = &rest[frame.bytes.len()..],
            }
        }
        if count == 0 {
            break;
        }
    }
    Err(Fault::Unreadable { what: "the answer to a log-in".into(), said: String::new() })
}

/// The memory that a process has at present.
fn resident_bytes(pid: u32) -> Result<f64, Fault> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).map_err(Fault::system("read /proc"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes = line.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes
        .map(|kilobytes| kilobytes * 1024.0)
        .ok_or_else(|| Fault::Unreadable { what: "the memory of a process".into(), said: status.clone() })
}
