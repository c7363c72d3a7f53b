//! The facts that decide whether Onecopy can serve a server: its cluster, release, encoding and role.

use super::{BackendError, OwnConnection};

/// The releases of PostgreSQL that are served.
const MAJORS: std::ops::RangeInclusive<u32> = 14..=18;

/// The question; [`Unservable`] says which answers exclude a server.
const ABOUT: &str = "SELECT current_setting('server_version_num'), current_setting('server_encoding'), \
    current_setting('log_min_messages'), current_setting('is_superuser'), pg_is_in_recovery(), \
    to_regclass('onecopy.cluster') IS NOT NULL, session_user";

/// The facts about a server.
pub(crate) struct ServerInfo {
    /// The cluster that it belongs to.
    pub(crate) cluster: Option<String>,
    /// Why it cannot be served as it is.
    pub(crate) unservable: Option<Unservable>,
}

/// Onecopy cannot serve a server as it is. Its operator has to change it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Unservable {
    /// Its release is too old or too new.
    Release { major: u32 },
    /// It has another encoding than UTF-8.
    Encoding { found: String },
    /// It would write every captured row to its log.
    LogsRows { log_min_messages: String },
    /// The role that Onecopy uses is not a superuser there.
    NoSuperuser { role: String },
    /// It follows another server.
    Standby,
}

/// The sentence lacks its subject, the server.
impl std::fmt::Display for Unservable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Release { major } => {
                write!(f, "is PostgreSQL {major}; {} to {} are served", MAJORS.start(), MAJORS.end())
            }
            Self::Encoding { found } => write!(f, "has server_encoding = {found}; it must be UTF8"),
            Self::LogsRows { log_min_messages } => {
                write!(f, "has log_min_messages = {log_min_messages}; it must be notice or higher")
            }
            Self::NoSuperuser { role } => write!(f, "knows \"{role}\", but not as a superuser"),
            Self::Standby => {
                f.write_str("is a standby of another server; each replica of Onecopy is a server of its own")
            }
        }
    }
}

impl ServerInfo {
    /// Asks a server about itself; nothing is changed there.
    pub(crate) async fn ask(connection: &mut OwnConnection) -> Result<Self, BackendError> {
        let rows = connection.query(ABOUT).await?;
        let row: Vec<String> = rows.into_iter().next().unwrap_or_default().into_iter().flatten().collect();
        let [version, encoding, messages, is_superuser, is_standby, is_installed, role] = row.as_slice()
        else {
            return Err(BackendError::Protocol("it gives no account of itself"));
        };
        let major = version.parse::<u32>().map_or(0, |number| number / 10_000);
        let is_chatty = messages == "info" || messages.starts_with("debug");
        let unservable = if !MAJORS.contains(&major) {
            Some(Unservable::Release { major })
        } else if encoding != "UTF8" {
            Some(Unservable::Encoding { found: encoding.clone() })
        } else if is_chatty {
            Some(Unservable::LogsRows { log_min_messages: messages.clone() })
        } else if is_superuser != "on" {
            Some(Unservable::NoSuperuser { role: role.clone() })
        } else if is_standby == "t" {
            Some(Unservable::Standby)
        } else {
            None
        };
        let mut cluster = None;
        if is_installed == "t" {
            let rows = connection.query("SELECT id FROM onecopy.cluster").await?;
            cluster = Some(rows.into_iter().flatten().flatten().next().unwrap_or_default());
        }
        Ok(Self { cluster, unservable })
    }
}
