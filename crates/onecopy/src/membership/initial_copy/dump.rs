//! Runs `pg_dump` to write the schema down. No other way yields all of it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use pgserver::program_folders;
use tokio::process::Command;

use super::error::{DumpError, InitialCopyError};
use crate::backend::{Address, BackendError, OwnConnection, Served};
use crate::membership::checksum::schema_checksums;
use crate::security::scram::Secret;

/// Settings under which values and definitions are written as the server reads them, as in `pg_dump`.
pub(super) const PIN: &str = "SET search_path = pg_catalog; SET row_security = off; SET DateStyle = ISO; SET IntervalStyle = postgres; \
    SET extra_float_digits = 3; SET bytea_output = hex; SET lc_monetary = 'C'; SET statement_timeout = 0; \
    SET idle_in_transaction_session_timeout = 0; SET quote_all_identifiers = off; SET default_toast_compression = pglz; SET xmlbinary = base64; SET TimeZone = 'UTC'";

/// How long `pg_dump` may take for a part of the schema.
const DEADLINE: Duration = Duration::from_mins(10);
/// How long `pg_dump` waits for locks.
const LOCK_PATIENCE: &str = "--lock-wait-timeout=10s";
/// `pg_dump` begins with this setting; the donor may be older than `pg_dump`. The second form does the same, also on
/// servers that do not know the setting.
const NO_LIMIT: &str = "\nSET transaction_timeout = 0;\n";
const NO_LIMIT_ANYWHERE: &str = "\nSELECT pg_catalog.set_config(name, '0', false) FROM pg_catalog.pg_settings WHERE name = 'transaction_timeout';\n";
/// Follows the limits at the beginning of a dump.
const AFTER_LIMITS: &str = "\nSET client_encoding = ";
/// A longer schema, as text, is rejected.
const SCHEMA_BYTES_MAX: usize = 512 << 20;

/// The donor's schema.
pub(super) struct Schema {
    /// The definitions that come before the rows.
    pub(super) before_rows: String,
    /// The definitions that come after the rows: indexes, triggers and the like.
    pub(super) after_rows: String,
    /// Checksums of the whole schema.
    pub(super) sums: BTreeMap<String, String>,
}

/// A `pg_dump` that can read the donor.
pub(super) struct Program {
    path: PathBuf,
    served: Served,
    donor: Address,
}

impl Program {
    /// Finds the oldest `pg_dump` that is not older than the donor.
    pub(super) async fn find(served: &Served, donor: &Address) -> Result<Self, InitialCopyError> {
        let lost = |source: BackendError| InitialCopyError::Donor { name: None, source };
        let mut connection = OwnConnection::open(donor, served, &[]).await.map_err(lost)?;
        let version = connection.query("SHOW server_version_num").await.map_err(lost)?;
        let version = version.into_iter().flatten().flatten().next().unwrap_or_default();
        let wanted = version.parse::<u32>().map_or(0, |version| version / 10_000);
        let mut fit = BTreeMap::new();
        for folder in program_folders() {
            let path = folder.join("pg_dump");
            if let Some(major) = major(&path).await.filter(|major| *major >= wanted) {
                fit.entry(major).or_insert(path);
            }
        }
        let (_, path) = fit.into_iter().next().ok_or(DumpError::NoProgram { major: wanted })?;
        Ok(Self { path, served: served.clone(), donor: donor.clone() })
    }

    /// Reads the schema in a snapshot.
    pub(super) async fn schema(
        &self,
        snapshot: &str,
        donor: &mut OwnConnection,
    ) -> Result<Schema, InitialCopyError> {
        let before_rows = self.section("pre-data", snapshot).await?;
        let after_rows = self.section("post-data", snapshot).await?;
        let lost = |source: BackendError| InitialCopyError::Donor { name: None, source };
        let sums = schema_checksums(donor).await.map_err(lost)?;
        // The checksums change settings for the whole transaction, which goes on.
        donor.query(PIN).await.map_err(lost)?;
        Ok(Schema { before_rows, after_rows, sums })
    }

    async fn section(&self, section: &str, snapshot: &str) -> Result<String, DumpError> {
        let mut command = Command::new(&self.path);
        command
            .args(["--no-password", "--no-tablespaces", "--encoding=UTF8", LOCK_PATIENCE])
            .args(["--exclude-schema=onecopy", "--exclude-schema=onecopy_capture", "--no-subscriptions"])
            .arg(format!("--section={section}"))
            .arg(format!("--snapshot={snapshot}"));
        self.reach(&mut command);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true);
        let output = match tokio::time::timeout(DEADLINE, command.output()).await {
            Ok(output) => output.map_err(|source| DumpError::NotRun { path: self.path.clone(), source })?,
            Err(_) => return Err(DumpError::TimedOut { seconds: DEADLINE.as_secs() }),
        };
        if !output.status.success() {
            let stderr = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            return Err(DumpError::Failed { stderr });
        }
        if output.stdout.len() > SCHEMA_BYTES_MAX {
            return Err(DumpError::TooLarge { bytes_max: SCHEMA_BYTES_MAX });
        }
        let text = String::from_utf8(output.stdout).map_err(|_| DumpError::NotUtf8)?;
        Ok(for_any_release(without_psql(&text)))
    }

    /// Tells `pg_dump` the donor's address and password by the environment, since others can see a process's arguments.
    fn reach(&self, command: &mut Command) {
        for (name, _) in std::env::vars_os() {
            if name.to_str().is_some_and(|name| name.starts_with("PG")) {
                command.env_remove(name);
            }
        }
        let (host, port, tls) = match &self.donor {
            Address::Unix { socket_dir, port } => (socket_dir.display().to_string(), port, None),
            Address::Tcp { host, port, tls } => (host.clone(), port, tls.as_ref()),
        };
        command.env("PGHOST", host).env("PGPORT", port.to_string());
        command.env("PGUSER", &self.served.superuser).env("PGDATABASE", &self.served.database);
        command.env("PGSSLMODE", tls.map_or("disable", |tls| tls.mode())).env("PGGSSENCMODE", "disable");
        command.env("PGAPPNAME", "onecopy filling").env("PGCONNECT_TIMEOUT", "10");
        if let Some(root) = tls.and_then(|tls| tls.root()) {
            command.env("PGSSLROOTCERT", root);
        }
        if let Secret::Password(password) = &self.served.secret {
            command.env("PGPASSWORD", password);
        }
    }
}

async fn major(path: &Path) -> Option<u32> {
    let output = Command::new(path).arg("--version").stdin(Stdio::null()).kill_on_drop(true).output();
    let output = tokio::time::timeout(Duration::from_secs(10), output).await.ok()?.ok()?;
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let digits: String =
        said.trim().rsplit(' ').find(|word| word.starts_with(|c: char| c.is_ascii_digit()))?.into();
    // Some distributions add words of their own behind the number.
    let number = said.split_whitespace().find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
    number.unwrap_or(&digits).split(|c: char| !c.is_ascii_digit()).next()?.parse().ok()
}

/// Removes the two lines that are orders to psql alone. Only lines with the dump's own key are removed, so equal words
/// between them stay.
fn without_psql(text: &str) -> String {
    let restricted = text.lines().find_map(|line| line.strip_prefix("\\restrict "));
    let Some(key) = restricted else { return text.to_owned() };
    let orders = [format!("\\restrict {key}"), format!("\\unrestrict {key}")];
    let mut kept = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        if !orders.iter().any(|order| line.trim_end() == order) {
            kept.push_str(line);
        }
    }
    kept
}

fn for_any_release(text: String) -> String {
    match text.find(AFTER_LIMITS).and_then(|end| text[..=end].find(NO_LIMIT)) {
        Some(start) => [&text[..start], NO_LIMIT_ANYWHERE, &text[start + NO_LIMIT.len()..]].concat(),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_is_lifted_where_servers_know_it() {
        let lines = |limit: &str| {
            format!(
                "--\nSET lock_timeout = 0;{limit}SET client_encoding = 'UTF8';\nCREATE FUNCTION f() AS '{NO_LIMIT}';\n"
            )
        };
        assert_eq!(for_any_release(lines(NO_LIMIT)), lines(NO_LIMIT_ANYWHERE));
        assert_eq!(for_any_release(lines("\n")), lines("\n"));
    }

    #[test]
    fn orders_to_psql_are_left_out_and_nothing_else() {
        let text = "--\n\\restrict aB3\nCREATE FUNCTION f() AS '\n\\restrict other\n';\n\\unrestrict aB3\n";
        assert_eq!(without_psql(text), "--\nCREATE FUNCTION f() AS '\n\\restrict other\n';\n");
        assert_eq!(without_psql("SELECT 1;"), "SELECT 1;");
    }
}
