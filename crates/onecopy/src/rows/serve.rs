//! Serves a client of a node that propagates rows, from its log-in to the end of its session.
//!
//! The first server connection of the session goes to the home, because the client gets that connection's settings.
//! The home also decides whether the role may log in.

use std::rc::Rc;
use std::sync::Arc;

use cluster::ids::ReplicaId;
use tokio::time::Instant;
use wire::sqlstate;

use crate::client::cancel::pid_of;
use crate::client::own_settings::Severity;
use crate::client::prepared::Prepared;
use crate::client::signals::Signals;
use crate::client::{DEFAULTS_SQL, welcome};
use crate::error::{Fault, Refusal};
use crate::link::answers::Answers;
use crate::link::node_kind::{LoggedIn, Origin, Unserved};
use crate::link::{Leftovers, Link, SessionRegistration, Worker};
use crate::logging::InSession;
use crate::pool::servers::Servers;
use crate::pool::sharing::Sharing;
use crate::session::Session;
use crate::session::passing::Turn;
use crate::transaction::open::OpenTransaction;

/// Reads the role, whether it may log in, and its default settings.
const STANDING_SQL: &str = "SELECT pg_catalog.concat_ws(' ', r.oid, r.rolcanlogin, \
     pg_catalog.has_database_privilege(pg_catalog.current_database(), 'CONNECT'), \
     (SELECT pg_catalog.array_agg(s.setconfig::pg_catalog.text ORDER BY s.setrole, s.setdatabase) FROM pg_catalog.pg_db_role_setting s \
      WHERE s.setrole OPERATOR(pg_catalog.=) ANY (ARRAY['0', r.oid]) \
      AND s.setdatabase OPERATOR(pg_catalog.=) ANY (ARRAY['0', (SELECT oid FROM pg_catalog.pg_database \
          WHERE datname OPERATOR(pg_catalog.=) pg_catalog.current_database())]))) \
     FROM pg_catalog.pg_roles r WHERE r.rolname OPERATOR(pg_catalog.=) session_user";
/// Most new connections that are made because the role has changed meanwhile.
const DOUBTS_MAX: u32 = 10;

/// Serves a client that has logged in.
pub(super) async fn serve(worker: Rc<Worker>, client: LoggedIn) -> Result<(), Box<Unserved>> {
    let LoggedIn { client, settings, client_info, secret, origin } = client;
    let keys = Arc::clone(&worker.keys);
    let coordinator = Arc::clone(&worker.coordinator);
    let performances = Arc::clone(&worker.performances);
    let (id, mailbox) = match &origin {
        Origin::LogIn => coordinator.open_session_with(performances),
        Origin::Predecessor(begun) => coordinator.reopen_session(begun.number, performances),
    };
    let pid = pid_of(id);
    let registered = match &origin {
        Origin::LogIn => keys.register(pid, Arc::clone(&mailbox)),
        Origin::Predecessor(begun) => Ok(keys.register_again(pid, begun.key, Arc::clone(&mailbox))),
    };
    let cancel = match registered {
        Ok(cancel) => cancel,
        Err(error) => {
            coordinator.close_session(id);
            let refusal = Refusal::plain(sqlstate::INTERNAL_ERROR, format!("no random number: {error}"));
            return Err(Box::new(Unserved { client, fault: Fault::Fatal(refusal) }));
        }
    };
    let entry = coordinator.local.sessions.register(id, client_info);
    let (thread, keys_of_all) = (worker.thread, Arc::clone(&keys));
    let anchor = coordinator.view.anchor();
    let progress = coordinator.local.memory_budget.register(id);
    let signals = Signals::new(id, Arc::clone(&coordinator), keys_of_all);
    let sharing = Sharing::of(&worker.pools, thread, &settings, &secret);
    let servers = Servers::new(&coordinator, sharing, Arc::clone(&entry), secret);
    let mut client = client.of_session(&mailbox).with_signals(signals);
    client.may_be_recalled = coordinator.kind.choices().is_some_and(|choices| choices.order.recalls());
    let link = Link {
        worker,
        id,
        session_registration: SessionRegistration { mailbox, cancel, entry, progress, ending: None },
        client,
        servers,
        settings,
        prepared: Prepared::default(),
        leftovers: Leftovers::default(),
        answers: Answers::default(),
        settling: None,
        tenancy: None,
    };
    let mut session =
        Session { link, txn: OpenTransaction::none(anchor), skipping: false, turn: Turn::Session };
    let serving = async {
        let begun = match origin {
            Origin::LogIn => session.greet().await,
            Origin::Predecessor(begun) => session.resume(*begun).await,
        };
        let served = match begun {
            Ok(()) => {
                session.serve().await;
                Ok(())
            }
            Err(fault) => {
                coordinator.close_session(id);
                Err(Box::new(Unserved { client: session.link.client, fault }))
            }
        };
        tracing::info!("session ended");
        served
    };
    let served = InSession::new(id, serving).await;
    keys.remove(pid);
    served
}

impl Session {
    /// Connects to the home. A pooled connection may be older than a change of the role. It is used only if the role
    /// is the same, may still log in, and has the same default settings.
    async fn connect_first(&mut self) -> Result<ReplicaId, Fault> {
        let started = Instant::now();
        let mut doubts = 0;
        loop {
            let anchor = match self.executor().connect_home().await {
                Err(Fault::Unplaced(_) | Fault::Lost(_))
                    if started.elapsed() < crate::link::wait::WAIT_MAX =>
                {
                    tokio::time::sleep(crate::transaction::open::RETRY_PAUSE).await;
                    continue;
                }
                other => other?,
            };
            if !self.link.servers.is_shared() {
                return Ok(anchor);
            }
            let said = self.link.servers.get(anchor).ask(STANDING_SQL).await;
            if self.link.servers.note_role(anchor, said) {
                return Ok(anchor);
            }
            doubts += 1;
            if doubts == DOUBTS_MAX {
                let text = "the role was changed at every attempt to log in";
                return Err(Fault::Fatal(Refusal::plain(sqlstate::CANNOT_CONNECT_NOW, text)));
            }
        }
    }

    /// Connects to the home, and reads the settings that a session begins with. If the connection is lost meanwhile, tries again.
    async fn first_settings(&mut self) -> Result<(ReplicaId, Vec<String>), Fault> {
        let started = Instant::now();
        loop {
            let anchor = self.connect_first().await?;
            match self.link.servers.get(anchor).ask(DEFAULTS_SQL).await.map_err(Fault::at(anchor)) {
                Err(Fault::Lost(_)) if started.elapsed() < crate::link::wait::WAIT_MAX => {
                    self.link.servers.close(anchor);
                    tokio::time::sleep(crate::transaction::open::RETRY_PAUSE).await;
                }
                defaults => return Ok((anchor, defaults?.into_iter().flatten().flatten().collect())),
            }
        }
    }

    /// Connects to the home and sends its settings to the client.
    async fn greet(&mut self) -> Result<(), Fault> {
        self.link.session_registration.entry.tell_beginning();
        let (anchor, defaults) = self.first_settings().await?;
        self.link.settings.begin_with(&defaults);
        let useless = self.placer().begin_with_own()?;
        let connection = &self.link.servers.get(anchor).connection;
        self.link.answers.begin(&connection.process.parameters);
        welcome(
            &mut self.link.client,
            connection,
            self.link.settings.defaults.read_only,
            &self.link.session_registration.cancel,
        );
        for refusal in useless {
            let Refusal { sqlstate, message, hint, .. } = refusal;
            self.link.tell_client(Severity::Warning, sqlstate, &message, hint.as_deref());
        }
        self.ready();
        Ok(())
    }
}
