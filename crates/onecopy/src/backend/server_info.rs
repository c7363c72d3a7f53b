//! What a server says of itself: which cluster it belongs to, and whether Onecopy can serve it at all.

use super::{BackendError, Connection};

/// The releases of PostgreSQL that are served.
const MAJORS: std::ops::RangeInclusive<u32> = 14..=18;

/// The question; `unfit` says which answers exclude a server.
const ABOUT: &str = "SELECT current_setting('server_version_num'), current_setting('server_encoding'), \
    current_setting('log_min_messages'), current_setting('is_superuser'), pg_is_in_recovery(), \
    to_regclass('onecopy.cluster') IS NOT NULL, session_user";

/// What a server says of itself.
pub(crate) struct ServerInfo {
    /// The cluster that it belongs to.
    pub(crate) cluster: Option<String>,
    /// Why it cannot be served as it is: a verb with its object.
    pub(crate) unfit: Option<String>,
}

impl ServerInfo {
    /// Asks a server about itself; nothing is changed there.
    pub(crate) async fn ask(connection: &mut Connection) -> Result<Self, BackendError> {
        let rows = connection.simple(ABOUT).await?;
        let row: Vec<String> = rows.into_iter().next().unwrap_or_default().into_iter().flatten().collect();
        let [version, encoding, messages, is_superuser, is_standby, is_installed, role] = row.as_slice()
        else {
            return Err(BackendError::Protocol("it gives no account of itself"));
        };
        let major = version.parse::<u32>().map_or(0, |number| number / 10_000);
        let is_chatty = messages == "info" || messages.starts_with("debug");
        let unfit = if !MAJORS.contains(&major) {
            format!("is PostgreSQL {major}; {} to {} are served", MAJORS.start(), MAJORS.end())
        } else if encoding != "UTF8" {
            format!("has server_encoding = {encoding}; it must be UTF8")
        } else if is_chatty {
            // Every captured row would be written to the server's log.
            format!("has log_min_messages = {messages}; it must be notice or higher")
        } else if is_superuser != "on" {
            format!("knows \"{role}\", but not as a superuser")
        } else if is_standby == "t" {
            "is a standby of another server; each replica of Onecopy is a server of its own".to_owned()
        } else {
            String::new()
        };
        let mut cluster = None;
        if is_installed == "t" {
            let rows = connection.simple("SELECT id FROM onecopy.cluster").await?;
            cluster = Some(rows.into_iter().flatten().flatten().next().unwrap_or_default());
        }
        Ok(Self { cluster, unfit: (!unfit.is_empty()).then_some(unfit) })
    }
}
