//! `bench proxy --secure`: what TLS costs while clients work, and what TLS and SCRAM cost when they connect.
//!
//! The servers of this comparison take clients with and without TLS, and ask one role for its password and the other one not:
//! a plain PostgreSQL, PgBouncer before it, and `onecopy serve` before a server of its own, with connections of the
//! sessions' own and with shared ones. So everything is measured in turns in one run, as the rest of `bench proxy` is.
//! Behind, PgBouncer and onecopy use Unix sockets without TLS; there the role with a password has to prove it as well.
//!
//! A proof costs the client more than the pooler and the server (SCRAM's hash is slow on purpose, and the server only
//! keeps its result). So for connections by SCRAM the processor times tell more than the rate.

use std::fmt::{self, Write as _};

use testbed::fault::Fault;
use testbed::postgres::{Likeness, Plain};

use super::contender::{Bench, Contender, DIRECT, ONECOPY, POOLS, Sample};
use super::identity::Identity;
use super::node::Node;
use super::pooler::{Guard, Pooler, Size};
use super::{Options, Turn, in_turns};
use crate::pgbench::{self, Entry, Mode, PROVEN, Script};
use crate::spread::{Cell, Spread};

/// How clients come in that stay: what they prove costs nothing any more.
const STAYING: [Entry; 2] = [
    Entry { is_encrypted: false, is_proven: false, is_repeated: false },
    Entry { is_encrypted: true, is_proven: false, is_repeated: false },
];
/// How clients come in that go at once.
const GOING: [Entry; 4] = [
    Entry { is_encrypted: false, is_proven: false, is_repeated: true },
    Entry { is_encrypted: false, is_proven: true, is_repeated: true },
    Entry { is_encrypted: true, is_proven: false, is_repeated: true },
    Entry { is_encrypted: true, is_proven: true, is_repeated: true },
];

/// The programs and folders of this benchmark, and the machine in words.
pub(super) struct Environment<'a> {
    pub(super) bench: Bench<'a>,
    pub(super) account: testbed::account::Account,
    pub(super) onecopy: &'a std::path::Path,
    pub(super) circumstances: String,
}

/// Runs it; `news` hears what goes on.
pub(super) fn run(
    options: &Options,
    environment: &Environment<'_>,
    news: &dyn Fn(&str),
) -> Result<String, Fault> {
    let Environment { bench: Bench { binaries, scratch, interrupt }, account, onecopy, .. } = environment;
    news("starting the servers");
    // The settings of a replica, which all servers get; it is not needed for anything else.
    let model = Node::start(onecopy, "model", &[], binaries, scratch, interrupt)?;
    let usual = Likeness::of(binaries, &model.replica, scratch, interrupt)?;
    drop(model);
    let identity = Identity::make(*account, scratch)?;
    let likeness = identity.worn_by(&usual);
    let server = |name: &str| -> Result<Plain, Fault> {
        let server = Plain::start_named(name, binaries, *account, &likeness, scratch, interrupt)?;
        let role = format!(
            "CREATE ROLE {} LOGIN PASSWORD '{}' IN ROLE pg_read_all_data, pg_write_all_data",
            PROVEN.0, PROVEN.1
        );
        binaries.ask(&server.endpoint, &role, scratch, interrupt)?;
        Ok(server)
    };
    let (plain, first, second) = (server("plain")?, server("first")?, server("second")?);
    let serve = |name: &str, server: &Plain, more: &str| {
        let settings = format!("{}{more}", identity.settings());
        Node::serve(onecopy, name, server, &settings, binaries, scratch, interrupt)
    };
    let pool = options.pool.unwrap_or(options.clients + 8);
    let node = serve("serve", &first, "")?;
    let pools = serve("pools", &second, &format!("pool_mode = \"transaction\"\npool_size = {pool}\n"))?;
    let kept = format!("SELECT rolpassword FROM pg_authid WHERE rolname = '{}'", PROVEN.0);
    let verifier = binaries.ask(&plain.endpoint, &kept, scratch, interrupt)?;
    let guard = Guard { identity: &identity, verifier: verifier.trim() };
    // One that is gone counts until it is noticed.
    let size = Size { servers: pool, clients: 4 * options.clients + 8 };
    let pooler = Pooler::start(binaries, *account, &plain, size, Some(guard), scratch, interrupt)?;
    news("filling the tables");
    for endpoint in [&plain.endpoint, &node.endpoint, &pools.endpoint] {
        pgbench::fill(binaries, endpoint, options.scale, scratch, interrupt)?;
    }

    let mut ways = vec![Contender::direct(&plain, DIRECT, None)];
    ways.extend(pooler.as_ref().map(|pooler| Contender::pooled(&plain, pooler)));
    ways.extend([Contender::through(ONECOPY, &node), Contender::through(POOLS, &pools)]);
    let there = pooler.as_ref().map_or_else(|| "no PgBouncer is installed".to_owned(), ToString::to_string);
    let mut report = head(&environment.circumstances, usual.version(), &there, options);
    let (script, mode) =
        (options.script.unwrap_or(Script::SelectOnly), options.protocol.unwrap_or(Mode::Simple));
    let mut strangers = Vec::new();
    for entries in [&STAYING[..], &GOING] {
        let what =
            if entries[0].is_repeated { "a connection each".into() } else { format!("{script} {mode}") };
        let tell = |line: &str| news(&format!("{what}: {line}"));
        let turns: Vec<Turn<'_>> = ways
            .iter()
            .flat_map(|contender| entries.iter().map(move |&entry| Turn { contender, entry }))
            .collect();
        let samples = in_turns(&environment.bench, &turns, options, script, mode, &tell)?;
        strangers.extend(samples.iter().flatten().map(|sample| sample.strangers * 100.0));
        let names = turns.iter().map(|turn| (turn.contender.name, turn.entry));
        let _ = write!(report, "{}", Table { what, rows: names.zip(samples).collect() });
    }
    if let Some(strangers) = Spread::of(strangers.into_iter()) {
        let _ = writeln!(report, "\nStrangers used {strangers:.0} % of the processors meanwhile.");
    }
    Ok(report)
}

fn head(circumstances: &str, version: &str, pooler: &str, options: &Options) -> String {
    format!(
        "{circumstances}; PostgreSQL {version}; {pooler}. {} rounds of {} s with {} clients (rate, processor time) and {} s \
         with one client (latency), scale {}. \"A connection each\": clients connect anew for every transaction.\n\n\
         | load | way | comes in | rate : direct, plain | latency : direct, plain | its CPU, us | server's CPU, us |\n\
         |---|---|---|---|---|---|---|\n",
        options.rounds, options.seconds, options.clients, options.latency_seconds, options.scale
    )
}

/// Lines of the report; the first one is what the others are held against.
struct Table {
    what: String,
    rows: Vec<((&'static str, Entry), Vec<Sample>)>,
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((_, direct)) = self.rows.first() else { return Ok(()) };
        for (number, ((name, entry), samples)) in self.rows.iter().enumerate() {
            let ratio = |of: fn(&Sample) -> f64| {
                let pairs = samples.iter().zip(direct).filter(|_| number > 0);
                Cell(Spread::of(pairs.map(|(own, direct)| of(own) / of(direct))), 2)
            };
            let middleware = Cell(Spread::of(samples.iter().filter_map(|sample| sample.middleware_us)), 1);
            let servers = Cell(Spread::of(samples.iter().map(|sample| sample.servers_us)), 1);
            let (rate, latency) = (ratio(|sample| sample.throughput), ratio(|sample| sample.latency_ms));
            writeln!(
                f,
                "| {} | {name} | {entry} | {rate} | {latency} | {middleware} | {servers} |",
                self.what
            )?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::contender::PGBOUNCER;
    use super::*;

    #[test]
    fn everything_is_held_against_the_first_line_round_by_round() {
        let sample = |throughput, middleware_us| Sample {
            throughput,
            latency_ms: 2.0,
            middleware_us,
            servers_us: 20.0,
            strangers: 0.0,
        };
        let rows = vec![
            ((DIRECT, STAYING[0]), vec![sample(1000.0, None), sample(100.0, None)]),
            ((PGBOUNCER, STAYING[1]), vec![sample(500.0, Some(9.0)), sample(25.0, Some(9.0))]),
        ];
        let text = Table { what: "load".into(), rows }.to_string();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines,
            [
                "| load | direct | plain | - | - | - | 20.0 (20.0-20.0) |",
                "| load | PgBouncer | TLS | 0.38 (0.25-0.50) | 1.00 (1.00-1.00) | 9.0 (9.0-9.0) | 20.0 (20.0-20.0) |"
            ]
        );
        assert_eq!(GOING[3].to_string(), "TLS, SCRAM");
    }
}
