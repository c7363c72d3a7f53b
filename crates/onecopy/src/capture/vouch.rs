//! Tickets that prove to a server that a connection is Onecopy's, although it has logged in as a client's role.
//!
//! A role that logs in directly at the server must neither write there nor see capture messages. So the functions in
//! the server rely on a setting that only a superuser can set:
//!
//! - Each start of Onecopy draws a secret. After the fence, agents store it in a table that no role may read.
//! - On a new connection a session sends a ticket: a hash of the secret, the backend's process number and its start
//!   time. It is useless on another connection.
//! - `onecopy.vouch` checks the ticket, enters the backend in a table, and sets [`SETTING`] as superuser. The capture
//!   functions read the setting for each row, which is cheap. RESET ALL may remove it; then they read the table.
//!
//! Onecopy cannot define a setting that only superusers may set, so it uses `backtrace_functions`. That one takes any
//! words, and they have no effect unless they name C functions of the server.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::token::token;
use cluster::ids::{ClusterId, CrewId};

/// The setting that marks a connection of Onecopy's.
pub(crate) const SETTING: &str = "backtrace_functions";

/// The value of [`SETTING`]. It is no secret.
pub(super) fn mark(cluster: ClusterId) -> String {
    format!("onecopy_session_{}", token(cluster, "session"))
}

/// The start-up option that marks a superuser's connection as Onecopy's.
pub(crate) fn own_option(cluster: ClusterId) -> String {
    format!("-c {SETTING}={}", mark(cluster))
}

/// The secret of tickets, drawn at each start.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Voucher([u8; 32]);

impl Voucher {
    /// Draws a new secret.
    pub(crate) fn draw() -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        Ok(Self(secret))
    }

    /// The statements with which an agent gives its server this secret, and invalidates earlier ones.
    pub(crate) fn install_sql(&self) -> String {
        format!(
            "BEGIN; TRUNCATE onecopy_capture.voucher, onecopy_capture.vouched, onecopy_capture.lost_crews; \
             INSERT INTO onecopy_capture.voucher VALUES ('\\x{}'); COMMIT",
            const_hex::encode(self.0)
        )
    }

    /// The query that returns a row if the server has this secret: it was installed, and the server has not crashed since.
    pub(crate) fn is_installed_sql(&self) -> String {
        let secret = const_hex::encode(self.0);
        format!("SELECT 1 FROM onecopy_capture.voucher WHERE secret = '\\x{secret}'::pg_catalog.bytea")
    }

    /// The statements that mark the backend as Onecopy's. `started` is the answer to [`STARTED_SQL`] there.
    pub(crate) fn vouch_sql(&self, pid: i32, started: &str) -> String {
        self.vouch_and(pid, started, "")
    }

    /// The same for a backend that may be ended with all others of its crew.
    pub(crate) fn vouch_in_crew_sql(&self, pid: i32, started: &str, crew: CrewId) -> String {
        self.vouch_and(pid, started, &format!("SELECT onecopy.belong({}); ", crew.0))
    }

    fn vouch_and(&self, pid: i32, started: &str, and: &str) -> String {
        let secret = const_hex::encode(self.0);
        let ticket = Sha256::digest(format!("{secret} {pid} {started}"));
        format!(
            "BEGIN READ WRITE; SET LOCAL statement_timeout = 0; SELECT onecopy.vouch('{}'::pg_catalog.text); {and}COMMIT",
            const_hex::encode(ticket)
        )
    }
}

impl std::fmt::Debug for Voucher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Voucher(..)")
    }
}

/// Start time of the backend, to the microsecond.
pub(crate) const STARTED_SQL: &str = "SELECT pg_catalog.encode(pg_catalog.timestamptz_send(started.backend_start), 'hex') \
    FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) AS started";
