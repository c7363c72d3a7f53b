//! What a session is between two transactions, without its socket: what another process needs to go on with it.
//!
//! A node that is restarted passes its sessions to the process that takes its place ([`crate::session::passing`]), also to one
//! of another release. The client notices a pause.
//!
//! Invariant: each encoding has a number of its own, [`FORMAT`]. A process ends sessions in an encoding that it does not know.

use serde::{Deserialize, Serialize};

use super::settings::Settings;
use crate::local::session_registry::ClientInfo;
use crate::security::scram::Secret;

/// The number of the encoding of [`PassedSession`].
pub(crate) const FORMAT: u32 = 1;

/// A session that goes on in another process. It has no open transaction, and no state on a server connection but what is
/// listed here.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PassedSession {
    /// Its number, which is in the client's cancel key.
    pub(crate) number: u64,
    /// The secret in the client's cancel key.
    pub(crate) key: [u8; 4],
    /// Bytes of the client that were received and not read yet.
    pub(crate) input: Vec<u8>,
    pub(crate) settings: Settings,
    pub(crate) client_info: ClientInfo,
    /// Opens the servers to its role.
    pub(crate) secret: Secret,
    /// The prepared statements of the protocol.
    pub(crate) statements: Vec<PassedStatement>,
    /// Those of SQL's PREPARE: name and text.
    pub(crate) prepares: Vec<(String, String)>,
    /// Whether the session has drawn from a sequence. No other connection knows the value.
    pub(crate) draws: PassedDraws,
    /// What the server reported at the log-in, for [`crate::link::answers`].
    pub(crate) greeting: Vec<u8>,
}

/// A prepared statement, as its Parse said it.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct PassedStatement {
    pub(crate) name: Vec<u8>,
    pub(crate) sql: Vec<u8>,
    /// The declared types of its parameters, as in Parse.
    pub(crate) types: Vec<u8>,
}

/// Whether `currval` had an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PassedDraws {
    None,
    /// The value is lost, and who asks for it gets an error.
    Lost,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A session with a value in each place.
    fn session() -> PassedSession {
        let parameters = [("application_name".to_owned(), "app".to_owned())];
        let mut settings = Settings::new(&parameters, "joe", "shop").unwrap();
        settings.begin_with(&["default_transaction_isolation=serializable".to_owned()]);
        settings.stage("work_mem", Some("1MB"), "SET work_mem = '1MB'");
        settings.keep_staged();
        PassedSession {
            number: 7,
            key: [1, 2, 3, 4],
            input: b"Q".to_vec(),
            settings,
            client_info: ClientInfo {
                user: "joe".to_owned(),
                application_name: "app".to_owned(),
                peer: Some(([127, 0, 0, 1], 5).into()),
                local: None,
            },
            secret: Secret::Password("x".to_owned()),
            statements: vec![PassedStatement {
                name: b"s".to_vec(),
                sql: b"SELECT 1".to_vec(),
                types: vec![0, 0],
            }],
            prepares: vec![("p".to_owned(), "PREPARE p AS SELECT 2".to_owned())],
            draws: PassedDraws::Lost,
            greeting: b"TimeZone=UTC\0".to_vec(),
        }
    }

    #[test]
    fn the_settings_of_a_session_pass_with_it() {
        let bytes = postcard::to_allocvec(&session()).unwrap();
        let mut passed: PassedSession = postcard::from_bytes(&bytes).unwrap();
        assert_eq!(&*passed.settings.dress(), "SET work_mem = '1MB'\n;");
        assert_eq!(passed.settings.defaults.isolation, sql::Isolation::Serializable);
        assert_eq!(passed.settings.replay(), "SET work_mem = '1MB'\n;");
        let options = passed.settings.server_options();
        assert!(passed.settings.start_up(&options).contains(&("application_name", "app")));
        passed.settings.reset();
        assert_eq!(passed.settings.defaults.isolation, sql::Isolation::Serializable);
    }

    /// If this fails, the encoding has changed: raise [`FORMAT`], and write the new digest here.
    #[test]
    fn the_format_has_a_number() {
        use sha2::Digest;
        let bytes = postcard::to_allocvec(&session()).unwrap();
        let digest = const_hex::encode(sha2::Sha256::digest(&bytes));
        assert_eq!((FORMAT, &digest[..16]), (1, "37358b5462e16546"));
    }
}
