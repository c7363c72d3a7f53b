//! How Onecopy's commands reach a running node: like psql.
//!
//! PGHOST, PGPORT, PGUSER, PGDATABASE, PGPASSWORD, PGPASSFILE, PGSSLMODE and PGSSLROOTCERT have libpq's meaning, with
//! one exception: nothing falls back. Without PGSSLMODE the connection is not encrypted. A flag overrides its
//! variable.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use tokio::net::TcpStream;
use tokio_postgres::tls::NoTlsStream;
use tokio_postgres::{Client, Connection, NoTls};

use super::DEFAULT_PORT;
use super::connect_error::{ConnectError, Unreachable};
use crate::security::tls::{Outward, Stream, Trust};

/// Drives the connection. It must be polled while a command runs.
pub(crate) type ControlConnection = Connection<Stream<TcpStream>, NoTlsStream>;

/// The node to connect to, and the role to log in as.
#[derive(Debug, PartialEq, Eq)]
struct Target {
    host: String,
    port: u16,
    role: String,
    database: String,
    tls: Option<Outward>,
}

/// Connects to a node. `database` overrides PGDATABASE.
pub(crate) async fn connect(
    port: Option<u16>,
    database: Option<&str>,
) -> Result<(Client, ControlConnection), ConnectError> {
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let target = Target::new(port, database, variable)?;
    let password = match variable("PGPASSWORD") {
        Some(password) => Some(password),
        None => target.password_of_file(variable)?,
    };
    let Target { host, port, role, database, tls } = &target;
    let failed = |cause: Unreachable| ConnectError::Unreachable { host: host.clone(), port: *port, cause };
    let stream = TcpStream::connect((host.as_str(), *port)).await.map_err(|error| failed(error.into()))?;
    let stream = match tls {
        None => Stream::Plain(stream),
        Some(tls) => tls.connect(stream, host).await.map_err(|error| failed(error.into()))?,
    };
    let mut config = tokio_postgres::Config::new();
    // TLS is done below the library.
    config.user(role).dbname(database).ssl_mode(tokio_postgres::config::SslMode::Disable);
    if let Some(password) = password {
        config.password(password);
    }
    config.connect_raw(stream, NoTls).await.map_err(|error| failed(error.into()))
}

impl Target {
    fn new(
        port: Option<u16>,
        database: Option<&str>,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Self, ConnectError> {
        let or = |name: &str, default: &str| variable(name).unwrap_or_else(|| default.to_owned());
        let port = match (port, variable("PGPORT")) {
            (Some(port), _) => port,
            (None, Some(text)) => text.parse().map_err(|_| ConnectError::Port { text })?,
            (None, None) => DEFAULT_PORT,
        };
        let host = or("PGHOST", "127.0.0.1");
        if host.starts_with(['/', '@']) {
            return Err(ConnectError::SocketFolder { host });
        }
        let root = variable("PGSSLROOTCERT").map(PathBuf::from);
        let trust = match variable("PGSSLMODE").as_deref() {
            None | Some("disable" | "allow" | "prefer") => None,
            Some("require") => Some(Trust::Any),
            Some("verify-ca") => Some(Trust::Signed),
            Some("verify-full") => Some(Trust::SignedForHost),
            Some(other) => return Err(ConnectError::TlsMode { text: other.to_owned() }),
        };
        let tls = trust.map(|trust| Outward::load(trust, root.as_deref())).transpose();
        Ok(Self {
            host,
            port,
            role: or("PGUSER", "postgres"),
            database: database.map_or_else(|| or("PGDATABASE", "postgres"), str::to_owned),
            tls: tls.map_err(ConnectError::Root)?,
        })
    }

    /// The password in the password file for this target.
    fn password_of_file(
        &self,
        variable: impl Fn(&str) -> Option<String>,
    ) -> Result<Option<String>, ConnectError> {
        let named = variable("PGPASSFILE").map(PathBuf::from);
        let usual = || variable("HOME").map(|home| Path::new(&home).join(".pgpass"));
        let Some(path) = named.or_else(usual) else { return Ok(None) };
        let Ok(about) = std::fs::metadata(&path) else { return Ok(None) };
        if about.mode() & 0o077 != 0 {
            return Err(ConnectError::ExposedPasswords { path });
        }
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|source| ConnectError::UnreadablePasswords { path, source })?;
        Ok(text.lines().find_map(|line| self.password_of_line(line)))
    }

    /// Parses `host:port:database:user:password`. Each of the first four may be `*`. A backslash escapes the next
    /// letter.
    fn password_of_line(&self, line: &str) -> Option<String> {
        if line.starts_with('#') {
            return None;
        }
        let mut fields = vec![String::new()];
        let mut letters = line.chars();
        while let Some(letter) = letters.next() {
            match letter {
                // The rest is the password, with its colons.
                ':' if fields.len() < 5 => fields.push(String::new()),
                '\\' => fields.last_mut()?.extend(letters.next()),
                letter => fields.last_mut()?.push(letter),
            }
        }
        let [host, port, database, role, password] = fields.try_into().ok()?;
        let fits = |field: &str, wanted: &str| field == "*" || field == wanted;
        let is_here = fits(&host, &self.host) && fits(&port, &self.port.to_string());
        (is_here && fits(&database, &self.database) && fits(&role, &self.role)).then_some(password)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(port: Option<u16>, set: &[(&str, &str)]) -> Result<Target, ConnectError> {
        let variable =
            |name: &str| set.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned());
        Target::new(port, None, variable)
    }

    #[test]
    fn variables_mean_what_they_mean_for_psql() {
        let usual = target(None, &[]).unwrap();
        assert_eq!(
            (usual.host.as_str(), usual.port, usual.role.as_str()),
            ("127.0.0.1", DEFAULT_PORT, "postgres")
        );
        let set = [("PGHOST", "db"), ("PGPORT", "7"), ("PGUSER", "joe"), ("PGDATABASE", "shop")];
        let named = target(None, &set).unwrap();
        assert_eq!((named.host.as_str(), named.port, named.role.as_str()), ("db", 7, "joe"));
        assert_eq!(named.database, "shop");
        assert_eq!(target(Some(9), &set).unwrap().port, 9, "the flag counts more");
        assert!(target(None, &[("PGSSLMODE", "require")]).unwrap().tls.is_some());
        for (set, told) in [
            (("PGPORT", "many"), "PGPORT: \"many\" is not a port"),
            (("PGHOST", "/tmp"), "PGHOST: \"/tmp\" is a folder of sockets"),
            (("PGSSLMODE", "always"), "PGSSLMODE: \"always\" is not a mode of TLS"),
            (("PGSSLMODE", "verify-full"), "PGSSLROOTCERT: no root certificate"),
        ] {
            let error = target(None, &[set]).unwrap_err().to_string();
            assert!(error.starts_with(told), "{error}");
        }
    }

    #[test]
    fn a_line_of_the_password_file_fits_or_does_not() {
        let target = target(Some(5), &[("PGHOST", "a:b"), ("PGUSER", "joe")]).unwrap();
        for (line, password) in [
            ("*:*:*:*:secret", Some("secret")),
            ("a\\:b:5:postgres:joe:se:cr\\\\et", Some("se:cr\\et")),
            ("a\\:b:6:postgres:joe:secret", None),
            ("*:*:*:jim:secret", None),
            ("#*:*:*:*:secret", None),
            ("*:*:*", None),
        ] {
            assert_eq!(target.password_of_line(line).as_deref(), password, "{line}");
        }
    }
}
