//! The settings of a server.
//!
//! They stand beside the data folder, in a file of Onecopy's own that includes the one that initdb made. Onecopy writes
//! nothing into the data folder: it belongs to the account of the server, and so to every superuser with a session. ALTER
//! SYSTEM may change settings, as on any PostgreSQL. The few settings without which Onecopy would lose the server are given
//! on its command line, where nothing overrides them.
//!
//! `synchronous_commit` is off because the log makes a commit durable. `fsync` stays on, so that the files on disk are
//! consistent. `restart_after_crash` is off: a PostgreSQL that restarts by itself loses its unsynced tail, and with it
//! commits that count as applied. A server that ends instead is noticed, started again, and brought up to date from the log.

use std::io::Write;
use std::net::{Ipv4Addr, TcpListener};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::{fs, io};

use super::MAX_REPLICAS;
use super::folder::replica;

/// The first port that is tried for server 1; below the ports that systems use for outgoing connections.
const FIRST_PORT: u16 = 20_432;
/// How many ports are tried for a server.
const PORT_TRIES: u16 = 500;

/// The settings that an administrator may override.
const SETTINGS: &str = "\
max_connections = 300
shared_buffers = 128MB
wal_level = replica
max_wal_size = 1GB
synchronous_commit = off
fsync = on
full_page_writes = on
autovacuum = on
jit = off
logging_collector = off
log_destination = 'stderr'
log_min_messages = warning
log_line_prefix = '%m [%p] '
";

/// The file that holds our settings for a server.
pub(crate) fn file(folder: &Path, number: u16) -> PathBuf {
    folder.join(format!("{}.conf", replica(number)))
}

/// Writes the settings of a server; the port is kept there for the next start.
pub(crate) fn write(folder: &Path, number: u16, port: u16) -> io::Result<()> {
    let name = replica(number);
    let text = format!(
        "# Written by onecopy at every start of {name}: changes here do not last. Use ALTER SYSTEM, or\n\
         # {name}/postgresql.conf for what is not named below.\n\
         include = '{name}/postgresql.conf'\nport = {port}\n{SETTINGS}"
    );
    let path = file(folder, number);
    let new = path.with_extension("conf.new");
    let mut out = fs::File::create(&new)?;
    // The account of the server reads it, whatever our umask.
    out.set_permissions(fs::Permissions::from_mode(0o644))?;
    out.write_all(text.as_bytes())?;
    fs::rename(&new, &path)
}

/// The arguments that nothing overrides.
pub(crate) fn arguments(folder: &Path, number: u16, port: u16, sockets: &Path) -> Vec<std::ffi::OsString> {
    let mut config = std::ffi::OsString::from("config_file=");
    config.push(file(folder, number));
    // A list of quoted names: a comma or a blank in the path does not end it.
    let mut directory = std::ffi::OsString::from("unix_socket_directories=\"");
    directory.push(sockets);
    directory.push("\"");
    let fixed = [
        format!("port={port}"),
        format!("listen_addresses={}", Ipv4Addr::LOCALHOST),
        "unix_socket_permissions=0777".to_owned(),
        "restart_after_crash=off".to_owned(),
    ];
    [config, directory]
        .into_iter()
        .chain(fixed.into_iter().map(Into::into))
        .flat_map(|setting| ["-c".into(), setting])
        .collect()
}

/// The port that the server had at its last start.
pub(crate) fn last_port(folder: &Path, number: u16) -> Option<u16> {
    let text = fs::read_to_string(file(folder, number)).ok()?;
    let value = text.lines().find_map(|line| line.strip_prefix("port = "))?;
    value.trim().parse().ok().filter(|&port| port != 0)
}

/// Whether a server could listen there now.
pub(crate) fn is_free(port: u16) -> bool {
    TcpListener::bind((Ipv4Addr::LOCALHOST, port)).is_ok()
}

/// A free port for a server: the ports tried for two servers of a cluster are never the same, so that servers which
/// start together do not compete. `start` spreads the clusters of one machine.
pub(crate) fn free_port(number: u16, start: u16) -> Option<u16> {
    assert!((1..=MAX_REPLICAS).contains(&number), "servers are counted from 1");
    (0..PORT_TRIES)
        .map(|step| FIRST_PORT + (number - 1) + MAX_REPLICAS * ((start % PORT_TRIES + step) % PORT_TRIES))
        .find(|&port| is_free(port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn the_port_is_kept_in_the_file() {
        let scratch = Scratch::new();
        assert_eq!(last_port(scratch.path(), 1), None);
        write(scratch.path(), 1, 23_456).unwrap();
        assert_eq!(last_port(scratch.path(), 1), Some(23_456));
        assert_eq!(scratch.names(), ["replica-1.conf"]);
        fs::write(file(scratch.path(), 1), "port = 99999\n").unwrap();
        assert_eq!(last_port(scratch.path(), 1), None);
    }

    #[test]
    fn servers_of_a_cluster_never_try_the_same_port() {
        for start in [0, 7, 499, u16::MAX] {
            let first = free_port(1, start).unwrap();
            let last = free_port(MAX_REPLICAS, start).unwrap();
            // Either may have had to go on to a port of a later round.
            let apart = i32::from(last) - i32::from(first);
            assert_eq!(apart.rem_euclid(i32::from(MAX_REPLICAS)), i32::from(MAX_REPLICAS) - 1);
            assert!(last < 32_768);
        }
    }

    #[test]
    fn a_port_that_is_taken_is_passed_over() {
        let first = free_port(3, 11).unwrap();
        let taken = TcpListener::bind((Ipv4Addr::LOCALHOST, first)).unwrap();
        assert!(!is_free(first));
        assert_ne!(free_port(3, 11), Some(first));
        drop(taken);
    }
}
