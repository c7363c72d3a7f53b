//! Tickets that prove to a server that a connection is Onecopy's own, although a client's role has logged in on it.
//!
//! A role that logs in at the server's own port must neither write there nor see what capture reports. So the functions in
//! the server rely on a setting that only a superuser can set:
//!
//! - Each start of Onecopy draws a secret. After the fence its agents put the secret into a table that no role may read.
//! - On a new connection a session sends a ticket: a hash over the secret, the backend's process number and the time at which
//!   the backend started. A ticket is of no use on another connection.
//! - `onecopy.vouch` checks the ticket, enters the backend in a table, and sets [`SETTING`] in it as superuser. The capture
//!   functions read that setting for each row, which costs what reading any setting costs. RESET ALL may take the setting away;
//!   then they look into the table.
//!
//! Onecopy cannot define a setting of its own that only superusers may set. `backtrace_functions` is such a setting. It
//! takes any words, and has no effect unless they are names of C functions of the server.

use sha2::{Digest, Sha256};

use super::token::token;
use cluster::ids::ClusterId;

/// The setting by which a connection of Onecopy's own is known.
pub(crate) const SETTING: &str = "backtrace_functions";

/// The value of [`SETTING`]. It is no secret.
pub(super) fn mark(cluster: ClusterId) -> String {
    format!("onecopy_session_{}", token(cluster, "session"))
}

/// The start-up option that makes a connection of a superuser one of Onecopy's own.
pub(crate) fn own_option(cluster: ClusterId) -> String {
    format!("-c {SETTING}={}", mark(cluster))
}

/// What tickets are made from; drawn at each start.
#[derive(Clone)]
pub(crate) struct Voucher([u8; 32]);

impl Voucher {
    /// A new one.
    pub(crate) fn draw() -> Result<Self, getrandom::Error> {
        let mut secret = [0; 32];
        getrandom::fill(&mut secret)?;
        Ok(Self(secret))
    }

    /// The statements by which an agent lets its server know this one, and none of before.
    pub(crate) fn install_sql(&self) -> String {
        format!(
            "BEGIN; TRUNCATE onecopy_capture.voucher, onecopy_capture.vouched; \
             INSERT INTO onecopy_capture.voucher VALUES ('\\x{}'); COMMIT",
            const_hex::encode(self.0)
        )
    }

    /// The statements that make the backend one of Onecopy's own; `started` is what [`STARTED_SQL`] says there.
    pub(crate) fn vouch_sql(&self, pid: i32, started: &str) -> String {
        let secret = const_hex::encode(self.0);
        let ticket = Sha256::digest(format!("{secret} {pid} {started}"));
        format!(
            "BEGIN READ WRITE; SET LOCAL statement_timeout = 0; SELECT onecopy.vouch('{}'::pg_catalog.text); COMMIT",
            const_hex::encode(ticket)
        )
    }
}

impl std::fmt::Debug for Voucher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Voucher(..)")
    }
}

/// When the backend started, to the microsecond.
pub(crate) const STARTED_SQL: &str = "SELECT pg_catalog.encode(pg_catalog.timestamptz_send(started.backend_start), 'hex') \
    FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) AS started";
