//! What travels to a server for one statement, and what comes back.

use std::sync::Arc;

use cluster::ids::SessionId;
use cluster::protocols::shipping::{Kind, StatementId};
use cluster::record::Shipped;
use sql::TemplateId;
use wire::encode;
use wire::frontend::Target;

use crate::client::prepared_statement::name_of;
use crate::pool::cached::Cached;

/// The settings of a session, as they travel with its statements.
#[derive(Debug, Default)]
pub(super) struct SessionSettings {
    /// Counts the changes of the session's settings.
    pub(super) generation: u64,
    /// Statements that bring a connection of the session's own to it.
    pub(super) replay: String,
    /// The values on which the effect of a statement depends, as statements: for a replica that runs it from the log.
    pub(super) shipped: String,
    /// Time-outs are set. They must not end what all replicas have to do.
    pub(super) has_timeouts: bool,
}

/// How a statement came.
#[derive(Clone, Debug)]
pub(super) enum Form {
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
        /// The number under which servers may keep it parsed.
        number: Option<u64>,
    },
    /// COPY FROM STDIN, with all that came of it.
    Copy(Arc<[u8]>),
}

/// In place of types in the log: the values are the data of a COPY.
pub(super) const COPY_MARK: &[u8] = b"copy";
/// So much of them is put into one message.
const COPY_CHUNK_BYTES: usize = 1 << 20;

/// COPY with its data, without waiting for the server to ask for them. A server that does not ask ignores them.
pub(super) fn encode_copy(out: &mut Vec<u8>, text: &[u8], data: &[u8]) {
    encode::query(out, text);
    data.chunks(COPY_CHUNK_BYTES).for_each(|chunk| encode::copy_data(out, chunk));
    encode::copy_done(out);
}

/// Whether a transaction may write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AccessMode {
    /// It may.
    ReadWrite,
    /// It reads only.
    ReadOnly,
}

impl AccessMode {
    /// Read only, if this says so.
    pub(super) fn of(is_read_only: bool) -> Self {
        if is_read_only { Self::ReadOnly } else { Self::ReadWrite }
    }
}

/// What a statement may do beside what it is taken for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SideEffects {
    /// Nothing.
    None,
    /// It may set something on its connection, unseen.
    Unproven,
    /// It takes locks of rows, or draws from a sequence, which a read-only transaction would refuse.
    NeedsWrite,
}

/// One execution of a statement, as a session wants it.
#[derive(Debug)]
pub(super) struct Command {
    /// The role that runs it.
    pub(super) role: Arc<str>,
    /// The settings under which it runs.
    pub(super) settings: Arc<SessionSettings>,
    /// What is run before it, where it is run.
    pub(super) before: Option<String>,
    /// The text, the same for all replicas.
    pub(super) text: Vec<u8>,
    /// How it came.
    pub(super) form: Form,
    /// What is asked after it on the same connection.
    pub(super) after: Option<String>,
    /// What it may do beside reading or writing.
    pub(super) side_effects: SideEffects,
    /// Whether its transaction may write.
    pub(super) mode: AccessMode,
    /// The template under which its time is measured.
    pub(super) template: TemplateId,
}

/// A command that was handed to the scheduler, under the name that the scheduler knows.
#[derive(Debug)]
pub(super) struct Shipment {
    /// Its name.
    pub(super) id: StatementId,
    /// The session that waits for its reply.
    pub(super) session: SessionId,
    /// Whether it goes to one replica or to all.
    pub(super) kind: Kind,
    /// The command.
    pub(super) command: Command,
}

impl Command {
    /// Puts the messages of the statement itself into a buffer, for a connection that has `cached` parsed. The caller calls
    /// [`Command::note_parsed`] when the server has parsed it.
    pub(super) fn encode(&self, out: &mut Vec<u8>, cached: &mut Cached) {
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

    /// A connection has it parsed from now on.
    pub(super) fn note_parsed(&self, cached: &mut Cached) {
        if let Form::Extended { number: Some(number), .. } = self.form {
            cached.insert(&name_of(number), number);
        }
    }

    /// The client wants to know the columns.
    pub(super) fn describes(&self) -> bool {
        matches!(self.form, Form::Simple | Form::Extended { describes: true, .. })
    }

    /// How many bytes of it go into the log, roughly.
    pub(super) fn bytes(&self) -> usize {
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

    /// What the log keeps of it, in order.
    pub(super) fn logged(&self) -> impl Iterator<Item = Shipped> + '_ {
        let plain = |text: &[u8]| Shipped {
            role: self.role.to_string(),
            settings: self.settings.shipped.clone(),
            text: text.to_vec(),
            is_extended: false,
            types: Vec::new(),
            values: Vec::new(),
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

/// What a statement came to at one replica.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reply {
    /// Messages for the client.
    pub(super) bytes: Vec<u8>,
    /// Rows of what was asked after it, as text.
    pub(super) asked: Vec<Vec<Option<String>>>,
    /// The body of the error that ended it.
    pub(super) error: Option<Vec<u8>>,
    /// What all replicas must agree on: the command tag, or the SQLSTATE.
    pub(super) outcome: Vec<u8>,
}
