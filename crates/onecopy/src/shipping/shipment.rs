//! The form of a statement on its way to servers, and of its reply.

use std::sync::Arc;

use cluster::ids::SessionId;
use cluster::protocols::shipping::{Kind, StatementId};
use cluster::record::Shipped;
use sql::TemplateId;
use wire::encode;
use wire::frontend::Target;

use crate::client::prepared_statement::name_of;
use crate::pool::cached::Cached;

/// The settings of a session, in the form that travels with its statements.
#[derive(Debug, Default)]
pub(crate) struct SessionSettings {
    /// Generation of the session's settings.
    pub(crate) generation: u64,
    /// Statements that bring a connection of the session up to date.
    pub(crate) replay: String,
    /// Settings that affect a statement, as statements, for a replica that runs it from the log.
    pub(crate) shipped: String,
    /// Time-outs are set. They must not end statements that all replicas run.
    pub(crate) has_timeouts: bool,
}

/// The protocol form of a statement.
#[derive(Clone, Debug)]
pub(crate) enum Form {
    /// By the simple protocol.
    Simple,
    /// By the extended protocol.
    Extended {
        /// Declared types of parameters, as sent.
        types: Arc<[u8]>,
        /// Formats and values, as sent.
        values: Arc<[u8]>,
        /// The client wants to know the columns.
        describes: bool,
        /// The number by which servers may keep it parsed.
        number: Option<u64>,
    },
    /// COPY FROM STDIN, with all its data.
    Copy(Arc<[u8]>),
}

/// Takes the place of types in the log: the values are the data of a COPY.
pub(crate) const COPY_MARK: &[u8] = b"copy";
/// Bytes of COPY data in one message.
const COPY_CHUNK_BYTES: usize = 1 << 20;

/// COPY with its data, without waiting for the server to ask for them. A server that does not ask ignores them.
pub(crate) fn encode_copy(out: &mut Vec<u8>, text: &[u8], data: &[u8]) {
    encode::query(out, text);
    data.chunks(COPY_CHUNK_BYTES).for_each(|chunk| encode::copy_data(out, chunk));
    encode::copy_done(out);
}

/// Whether a transaction may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessMode {
    ReadWrite,
    ReadOnly,
}

impl AccessMode {
    /// Read only, if the argument is true.
    pub(crate) fn of(is_read_only: bool) -> Self {
        if is_read_only { Self::ReadOnly } else { Self::ReadWrite }
    }
}

/// The side effects of a statement beyond its execution kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SideEffects {
    None,
    /// It may change settings of its connection silently.
    Unproven,
    /// It locks rows or draws from a sequence, which a read-only transaction would reject.
    NeedsWrite,
}

/// One execution of a statement.
#[derive(Debug)]
pub(crate) struct Command {
    /// The role that runs it.
    pub(crate) role: Arc<str>,
    /// The settings under which it runs.
    pub(crate) settings: Arc<SessionSettings>,
    /// A query to run before it on the same connection.
    pub(crate) before: Option<String>,
    /// The text, the same for all replicas.
    pub(crate) text: Vec<u8>,
    pub(crate) form: Form,
    /// A query to run after it on the same connection.
    pub(crate) after: Option<String>,
    /// Its side effects.
    pub(crate) side_effects: SideEffects,
    /// Whether its transaction may write.
    pub(crate) mode: AccessMode,
    /// The template under which its duration is measured.
    pub(crate) template: TemplateId,
}

/// A command with the scheduler's name for it.
#[derive(Debug)]
pub(crate) struct Shipment {
    pub(crate) id: StatementId,
    /// The session that waits for its reply.
    pub(crate) session: SessionId,
    /// Whether it goes to one replica or to all.
    pub(crate) kind: Kind,
    pub(crate) command: Command,
}

impl Command {
    /// Encodes the messages of the statement itself, for a connection that has `cached` parsed. The caller calls
    /// [`Command::note_parsed`] when the server has parsed it.
    pub(crate) fn encode(&self, out: &mut Vec<u8>, cached: &mut Cached) {
        match &self.form {
            Form::Simple => encode::query(out, &self.text),
            Form::Copy(data) => encode_copy(out, &self.text, data),
            Form::Extended { types, values, describes, number } => {
                let name = number.map(name_of).unwrap_or_default();
                if !number.is_some_and(|number| cached.has(&name, number)) {
                    if let Some(gone) = number.and_then(|_| cached.evict()) {
                        encode::close(out, Target::Statement(&gone));
                    }
                    encode::parse_raw(out, &name, &self.text, types);
                }
                encode::bind_raw(out, b"", &name, values);
                if *describes {
                    encode::describe(out, Target::Portal(b""));
                }
                encode::execute(out, b"", 0);
                encode::sync(out);
            }
        }
    }

    /// Notes that a connection has parsed it.
    pub(crate) fn note_parsed(&self, cached: &mut Cached) {
        if let Form::Extended { number: Some(number), .. } = self.form {
            cached.insert(&name_of(number), number);
        }
    }

    /// The client wants to know the columns.
    pub(crate) fn describes(&self) -> bool {
        matches!(self.form, Form::Simple | Form::Extended { describes: true, .. })
    }

    /// Approximate size of its part of the log record.
    pub(crate) fn bytes(&self) -> usize {
        let parameters = match &self.form {
            Form::Simple => 0,
            Form::Copy(data) => data.len(),
            Form::Extended { types, values, .. } => types.len() + values.len(),
        };
        self.text.len()
            + parameters
            + self.settings.shipped.len()
            + self.before.as_ref().map_or(0, String::len)
    }

    /// The statements that the log keeps of it, in order.
    pub(crate) fn logged(&self) -> impl Iterator<Item = Shipped> + '_ {
        let plain = |text: &[u8]| Shipped {
            role: self.role.to_string(),
            settings: self.settings.shipped.clone(),
            text: text.to_vec(),
            is_extended: false,
            types: Vec::new(),
            values: Vec::new(),
            holders: None,
        };
        let own = match &self.form {
            Form::Simple => plain(&self.text),
            Form::Copy(data) => {
                Shipped { types: COPY_MARK.to_vec(), values: data.to_vec(), ..plain(&self.text) }
            }
            Form::Extended { types, values, .. } => Shipped {
                is_extended: true,
                types: types.to_vec(),
                values: values.to_vec(),
                ..plain(&self.text)
            },
        };
        self.before.iter().map(move |text| plain(text.as_bytes())).chain([own])
    }
}

/// The outcome of a statement at one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Reply {
    /// Messages for the client.
    pub(crate) bytes: Vec<u8>,
    /// Rows of the query after it, as text.
    pub(crate) asked: Vec<Vec<Option<String>>>,
    /// The body of the error that ended it.
    pub(crate) error: Option<Vec<u8>>,
    /// The part that all replicas must agree on: the command tag, or the SQLSTATE.
    pub(crate) outcome: Vec<u8>,
}
