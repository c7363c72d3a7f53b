//! Opening a connection to a server: the proofs of both sides, and the settings with which it begins.
//!
//! A session keeps the settings of its role and database (ALTER ROLE and ALTER DATABASE .. SET) with which it began. A
//! connection that is opened later may begin with others, at least until its replica has applied the change. So each
//! connection is compared with the one to the anchor; if they differ, the session stays at the anchor for a while.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::ServerPlace;
use super::cached::Cached;
use super::carried::CarriedHere;
use super::own_statements::OwnStatements;
use super::servers::{AnchorOids, Registration, Server, Servers};
use crate::backend::{BackendError, Connection, assert_qualified};
use crate::capture::vouch::STARTED_SQL;
use crate::client::cancel::Running;
use crate::client::settings::Settings;
use crate::coordinator::Coordinator;
use crate::error::Fault;
use crate::local::pins::Pins;
use crate::local::session_registry::SessionEntry;
use crate::security::scram::Secret;

/// Attempts to connect while the server is not ready.
const ATTEMPTS: u32 = 3;
/// How long the session stays at the anchor before it tries another replica again.
const OTHER_DEFAULTS_PAUSE: Duration = Duration::from_secs(10);

/// The settings of ALTER ROLE and ALTER DATABASE for a new connection, weakest first.
const ALTERED_SQL: &str = "SELECT pg_catalog.unnest(setconfig) FROM pg_catalog.pg_db_role_setting \
     WHERE setrole OPERATOR(pg_catalog.=) ANY (ARRAY['0', \
         (SELECT oid FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) session_user)]) \
     AND setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY['0', (SELECT oid FROM pg_catalog.pg_database \
         WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())]) \
     ORDER BY setrole OPERATOR(pg_catalog.<>) '0', setdatabase OPERATOR(pg_catalog.<>) '0'";

/// The settings with which a connection has begun, as far as role and database set them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Defaults(Vec<String>);

/// The defaults of the session, and whether another server has others.
#[derive(Debug, Default)]
pub(crate) struct SessionDefaults {
    /// The defaults of the connection to the anchor.
    own: Option<Defaults>,
    /// When another replica had others.
    differed: Option<Instant>,
}

impl SessionDefaults {
    /// Whether a connection has the session's defaults.
    pub(crate) fn are(&self, defaults: &Defaults) -> bool {
        self.own.as_ref().is_none_or(|own| own == defaults)
    }

    /// Whether a new connection to another replica than the anchor has them; if not, the session avoids it for a while.
    pub(crate) fn suit(&mut self, defaults: &Defaults) -> bool {
        let suits = self.are(defaults);
        if !suits {
            self.differed = Some(Instant::now());
        }
        suits
    }

    /// Takes the defaults of the connection to the anchor; returns whether they have changed.
    pub(crate) fn take(&mut self, defaults: &Defaults) -> bool {
        let is_new = !self.are(defaults);
        if is_new || self.own.is_none() {
            *self = Self { own: Some(defaults.clone()), differed: None };
        }
        is_new
    }

    fn differ(&self) -> bool {
        self.differed.is_some_and(|since| since.elapsed() < OTHER_DEFAULTS_PAUSE)
    }
}

impl Servers {
    /// Whether other replicas have other defaults than the session.
    pub(crate) fn has_other_defaults(&self) -> bool {
        self.defaults.differ()
    }

    /// Closes connections to other replicas whose defaults differ from those of a new connection to the anchor.
    pub(crate) fn close_unsuited(&mut self) {
        let Self { all, defaults, .. } = self;
        for slot in all {
            drop(slot.take_if(|server| !defaults.are(&server.defaults) && server.connection.is_at_rest()));
        }
    }
}

/// Checks that the server has not restarted, and proves to the server that the connection is ours. Returns the defaults with
/// which it has begun; none if the server has restarted.
async fn prove(
    coordinator: &Coordinator,
    connection: &mut Connection,
    proof: &str,
) -> Result<Option<Defaults>, BackendError> {
    let question = format!("{proof}; {STARTED_SQL}; {ALTERED_SQL}");
    assert_qualified(&question);
    let rows = connection.simple(&question).await?;
    let mut answers = rows.into_iter().flatten();
    let (Some(_), Some(Some(started))) = (answers.next(), answers.next()) else { return Ok(None) };
    let vouch = coordinator.local.voucher.vouch_sql(connection.pid, &started);
    assert_qualified(&vouch);
    connection.simple(&vouch).await?;
    Ok(Some(Defaults(answers.flatten().collect())))
}

/// The session that opens a connection.
#[derive(Clone, Copy)]
pub(crate) struct Opener<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) entry: &'a Arc<SessionEntry>,
    pub(crate) secret: &'a Secret,
}

/// Opens a connection of a session to one run of a replica.
pub(crate) async fn open(
    coordinator: &Coordinator,
    opener: Opener<'_>,
    place: ServerPlace,
) -> Result<Server, Fault> {
    let Opener { settings, entry, secret } = opener;
    let ServerPlace { replica, incarnation } = place;
    let seat = &coordinator.seats[usize::from(replica.0)];
    let options = settings.server_options();
    let parameters = settings.start_up(&options);
    let mut failed = None;
    for _ in 0..ATTEMPTS {
        match Connection::open(&seat.address, secret, &parameters).await {
            Ok(mut connection) => {
                let line = seat.lines.enter(&connection).map_err(|_| Fault::Lost(replica))?;
                // After the entry: a driver that gave the server up before it has removed the proof.
                let proof = seat.proof_of(incarnation).ok_or(Fault::Lost(replica))?;
                let proven = prove(coordinator, &mut connection, &proof).await.map_err(Fault::at(replica))?;
                let defaults = proven.ok_or(Fault::Lost(replica))?;
                let running = Running::new(seat.address.clone(), &connection);
                return Ok(Server {
                    registration: Registration {
                        shown: Some(entry.connect(replica, connection.pid)),
                        _line: line,
                        running: Arc::new(running),
                        evictions: Arc::clone(&seat.evictions),
                    },
                    shared: None,
                    replica,
                    incarnation,
                    defaults,
                    connection,
                    prepared: Cached::default(),
                    settings: 0,
                    own: OwnStatements::default(),
                    pins: Pins::default(),
                    carried: CarriedHere::default(),
                    has_draws: false,
                    oids: AnchorOids::of(coordinator, replica),
                });
            }
            Err(error) => failed = Some(error),
        }
        let is_final = matches!(&failed, Some(BackendError::LogIn(_)))
            || failed.as_ref().and_then(BackendError::sqlstate).is_some_and(|code| code != b"57P03");
        if is_final {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Err(match failed {
        // The server is stopping, or starting: it will be back, or the agent will say so.
        Some(error) if error.sqlstate().is_some_and(|code| code.starts_with(b"57P")) => Fault::Lost(replica),
        Some(error @ (BackendError::Server(_) | BackendError::LogIn(_))) => Fault::at(replica)(error),
        _ => Fault::Lost(replica),
    })
}
