//! PostgreSQL's own replication, as strict as it goes: `remote_apply` on every standby, and clients that send their
//! updates to the primary and their reads to all servers in turn.
//!
//! So every standby shows acknowledged changes. It is no single copy all the same: a standby can show a commit before
//! the primary does, a lost standby holds up every commit until an operator acts, and there is no failover.

use std::fs;

use testbed::fault::Fault;
use testbed::postgres::{Likeness, Plain};
use testbed::program;
use tokio_postgres::Config;

use super::contestant::{Environment, config};
use crate::drive::Endpoints;

/// A primary and its standbys.
pub(crate) struct Streaming {
    /// The standbys are stopped first.
    standbys: Vec<Plain>,
    primary: Plain,
}

impl Streaming {
    /// Makes and starts them.
    pub(crate) fn start(
        name: &str,
        servers: u16,
        likeness: &Likeness,
        environment: &Environment<'_>,
    ) -> Result<Self, Fault> {
        let Environment { binaries, account, scratch, interrupt, .. } = environment;
        let primary = Plain::start_named(name, binaries, *account, likeness, scratch, interrupt)?;
        let names: Vec<String> = (1..servers).map(|number| format!("s{number}")).collect();
        let mut standbys = Vec::new();
        for standby in &names {
            let folder = format!("{name}-{standby}");
            let data = scratch.path(&folder);
            let source = format!(
                "host=127.0.0.1 port={} user=postgres application_name={standby}",
                primary.endpoint.port
            );
            let mut copy = program::command(binaries.program("pg_basebackup"));
            copy.args(["-R", "-c", "fast", "-d", &source, "-D"]).arg(scratch.folder(&folder, *account)?);
            copy.current_dir(&data);
            account.runs(&mut copy);
            program::run("pg_basebackup", &mut copy, &scratch.path("basebackup.log"), interrupt)?;
            // The folders of the primary's sockets were not copied; a standby has its own.
            let _ = fs::remove_file(data.join("postmaster.pid"));
            standbys.push(Plain::start_on(&folder, binaries, *account, likeness, scratch, interrupt)?);
        }
        if !names.is_empty() {
            let ask = |sql: &str| binaries.ask(&primary.endpoint, sql, scratch, interrupt);
            ask(&format!(
                "ALTER SYSTEM SET synchronous_standby_names = '{} ({})'",
                names.len(),
                names.join(", ")
            ))?;
            ask("SELECT pg_reload_conf()")?;
        }
        Ok(Self { standbys, primary })
    }

    /// The primary first.
    pub(crate) fn servers(&self) -> impl Iterator<Item = &Plain> {
        [&self.primary].into_iter().chain(&self.standbys)
    }

    /// Where they are.
    pub(crate) fn configs(&self) -> Vec<Config> {
        self.servers().map(|server| config(&server.endpoint)).collect()
    }

    /// Updates to the primary, reads to all servers; commits wait until they are applied everywhere.
    pub(crate) fn endpoints(&self) -> Endpoints {
        let mut main = config(&self.primary.endpoint);
        main.options("-c synchronous_commit=remote_apply");
        Endpoints { main, others: Vec::new(), readers: self.configs(), declares: false }
    }
}
