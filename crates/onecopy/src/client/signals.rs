//! `pg_terminate_backend` and `pg_cancel_backend`: one session ends another, or its statement.
//!
//! Onecopy replaces both in the client's statement by functions of its own ([`crate::session::stand_ins`]). These
//! check the caller's rights in the server, as PostgreSQL does. Then they name the target in a message on the
//! caller's connection: a session by its number, or the server process that works for it. The server learns the roles
//! of sessions from a setting that Onecopy sets before the statement. A client could change that setting.
//!
//! Invariant: a message counts only if its context proves that our function raised it. A session that is named by its
//! number must also have the role for which the function has checked the rights.

use std::sync::Arc;

use cluster::ids::{ReplicaId, SessionId};
use wire::backend::Fields;

use super::cancel::{CancelKeys, PID_BASE, pid_of, session_of};
use super::ending::ended;
use crate::coordinator::Coordinator;
use crate::coordinator::mailbox::End;
use crate::error::Fault;
use crate::local::session_registry::SessionRegistry;

/// SQLSTATE of the messages. It proves nothing.
const SQLSTATE: &[u8] = b"OC002";
/// Beginning and end of the first line of their context.
const CONTEXT: &[u8] = b"PL/pgSQL function onecopy.signal_session(integer,text) line ";
const CONTEXT_END: &[u8] = b" at RAISE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    Cancel,
    Terminate,
}

/// The request in one message.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Signal {
    action: Action,
    /// Number of a session, or of a server process.
    pid: i32,
    /// The role for which the rights were checked.
    role: String,
    /// The server that sent it.
    replica: ReplicaId,
}

impl Signal {
    /// Reads a notice; `None` if our function did not raise it.
    fn read(body: &[u8], replica: ReplicaId) -> Option<Self> {
        let fields = Fields::new(body);
        if fields.sqlstate() != SQLSTATE || !is_our_context(fields.get(b'W')?) {
            return None;
        }
        let text = std::str::from_utf8(fields.get(b'M')?).ok()?;
        let mut parts = text.splitn(3, '|');
        let action = match parts.next()? {
            "cancel" => Action::Cancel,
            "terminate" => Action::Terminate,
            _ => return None,
        };
        let pid = parts.next()?.parse().ok()?;
        Some(Self { action, pid, role: parts.next()?.to_owned(), replica })
    }

    /// The target, if it still exists.
    fn target(&self, clients: &SessionRegistry) -> Option<SessionId> {
        let session = if self.pid < PID_BASE {
            clients.backends().get(&(self.replica, self.pid)).copied()?
        } else {
            session_of(self.pid)
        };
        let is_meant = |entry: &Arc<crate::local::session_registry::SessionEntry>| {
            entry.id == session && entry.client_info.user == self.role
        };
        clients.entries().iter().any(is_meant).then_some(session)
    }
}

fn is_our_context(context: &[u8]) -> bool {
    let first = context.split(|&byte| byte == b'\n').next().unwrap_or_default();
    let line = first.strip_prefix(CONTEXT).and_then(|rest| rest.strip_suffix(CONTEXT_END));
    line.is_some_and(|line| !line.is_empty() && line.iter().all(u8::is_ascii_digit))
}

/// The requests of one session.
#[derive(Debug)]
pub(crate) struct Signals {
    own: SessionId,
    coordinator: Arc<Coordinator>,
    keys: Arc<CancelKeys>,
    asked: Vec<Signal>,
}

impl Signals {
    pub(crate) fn new(own: SessionId, coordinator: Arc<Coordinator>, keys: Arc<CancelKeys>) -> Self {
        Self { own, coordinator, keys, asked: Vec::new() }
    }

    /// Takes a notice of a server; `true` if it was a request.
    pub(crate) fn take(&mut self, body: &[u8], replica: ReplicaId) -> bool {
        let signal = Signal::read(body, replica);
        let is_ours = signal.is_some();
        self.asked.extend(signal);
        is_ours
    }

    /// Carries out the requests.
    ///
    /// # Errors
    /// If the session has ended itself.
    pub(crate) fn deliver(&mut self) -> Result<(), Fault> {
        for signal in std::mem::take(&mut self.asked) {
            let Some(session) = signal.target(&self.coordinator.local.sessions) else { continue };
            if (signal.action, session) == (Action::Terminate, self.own) {
                return Err(Fault::Fatal(ended(End::Killed)));
            }
            let (keys, pid) = (Arc::clone(&self.keys), pid_of(session));
            tokio::spawn(async move {
                match signal.action {
                    Action::Cancel => keys.cancel_statement(pid).await,
                    Action::Terminate => drop(keys.kill(pid).await),
                }
            });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notice(code: &str, text: &str, context: &str) -> Vec<u8> {
        let mut body = Vec::new();
        for (field, value) in [(b'S', "INFO"), (b'C', code), (b'M', text), (b'W', context)] {
            body.push(field);
            body.extend_from_slice(value.as_bytes());
            body.push(0);
        }
        body.push(0);
        body
    }

    #[test]
    fn only_our_own_function_is_believed() {
        const OURS: &str = "PL/pgSQL function onecopy.signal_session(integer,text) line 30 at RAISE\n\
                            SQL function \"pg_terminate_backend\" statement 1";
        let read = |code, text, context| Signal::read(&notice(code, text, context), ReplicaId(1));
        let signal = read("OC002", "terminate|17|a|b", OURS).unwrap();
        assert_eq!((signal.action, signal.pid, signal.role.as_str()), (Action::Terminate, 17, "a|b"));
        for context in [
            "PL/pgSQL function signal_session(integer,text) line 30 at RAISE",
            "PL/pgSQL function \"onecopy.signal_session\"(integer,text) line 30 at RAISE",
            "PL/pgSQL function joe.f() line 1 at RAISE\nPL/pgSQL function onecopy.signal_session(integer,text) line 3 at RAISE",
        ] {
            assert_eq!(read("OC002", "terminate|17|joe", context), None, "{context}");
        }
        assert_eq!(read("OC001", "terminate|17|joe", OURS), None);
        assert_eq!(read("OC002", "promote|17|joe", OURS), None);
    }
}
