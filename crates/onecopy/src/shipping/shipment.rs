//! What travels to a server for one statement, and what comes back.

use std::sync::Arc;

use cluster::ids::SessionId;
use cluster::protocols::shipping::StatementId;
use cluster::record::Shipped;
use sql::TemplateId;
use wire::encode;
use wire::frontend::Target;

use crate::client::prepared_statement::name_of;
use crate::pool::cached::Cached;

/// The settings that a session has put into force, as they travel with its statements.
#[derive(Debug)]
pub(crate) struct Setup {
    /// Which state of the session's settings this is.
    pub(crate) generation: u64,
    /// Statements that bring a connection of the session's own to it.
    pub(crate) replay: String,
    /// The values on which the effect of a statement depends, as statements: for whoever runs it in the session's place.
    pub(crate) shipped: String,
    /// Time-outs are set, which must not end what all replicas have to do.
    pub(crate) has_timeouts: bool,
}

/// How a statement came.
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

/// COPY with its data, without waiting for the server to ask for them: it passes them over if it does not.
pub(super) fn encode_copy(out: &mut Vec<u8>, text: &[u8], data: &[u8]) {
    encode::query(out, text);
    data.chunks(COPY_CHUNK_BYTES).for_each(|chunk| encode::copy_data(out, chunk));
    encode::copy_done(out);
}

/// One execution of a statement.
#[derive(Debug)]
pub(crate) struct Shipment {
    /// Its name, whose it is, and whether it goes to all replicas: given when it is handed over.
    pub(crate) id: StatementId,
    pub(crate) session: SessionId,
    pub(crate) is_write: bool,
    /// Who runs it.
    pub(crate) role: Arc<str>,
    /// Under which settings.
    pub(crate) setup: Arc<Setup>,
    /// What is run before it, where it is run.
    pub(crate) before: Option<String>,
    /// The text, the same for all replicas.
    pub(crate) text: Vec<u8>,
    /// How it came.
    pub(crate) form: Form,
    /// What is asked after it on the same connection.
    pub(crate) after: Option<String>,
    /// It takes locks of rows, or draws from a sequence: a read-only transaction would refuse it.
    pub(crate) needs_write: bool,
    /// It may set something on its connection, unseen.
    pub(crate) is_unproven: bool,
    /// The transaction writes nothing.
    pub(crate) is_read_only: bool,
    /// By which it is measured.
    pub(crate) template: TemplateId,
}

impl Shipment {
    /// Puts the messages of the statement itself into a buffer, for a connection that has these parsed. Whoever hears that it
    /// was parsed calls [`Shipment::note_parsed`].
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

    /// A connection has it parsed from now on.
    pub(crate) fn note_parsed(&self, cached: &mut Cached) {
        if let Form::Extended { number: Some(number), .. } = self.form {
            cached.insert(&name_of(number), number);
        }
    }

    /// The client wants to know the columns.
    pub(crate) fn describes(&self) -> bool {
        matches!(self.form, Form::Simple | Form::Extended { describes: true, .. })
    }

    /// How many bytes of it go into the log, roughly.
    pub(crate) fn bytes(&self) -> usize {
        let parameters = match &self.form {
            Form::Simple => 0,
            Form::Copy(data) => data.len(),
            Form::Extended { types, values, .. } => types.len() + values.len(),
        };
        self.text.len() + parameters + self.setup.shipped.len() + self.before.as_ref().map_or(0, String::len)
    }

    /// What the log keeps of it, in order.
    pub(crate) fn logged(&self) -> impl Iterator<Item = Shipped> + '_ {
        let plain = |text: &[u8]| Shipped {
            role: self.role.to_string(),
            settings: self.setup.shipped.clone(),
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
pub(crate) struct Reply {
    /// Messages for the client.
    pub(crate) bytes: Vec<u8>,
    /// Rows of what was asked after it, as text.
    pub(crate) asked: Vec<Vec<Option<String>>>,
    /// The body of the error that ended it.
    pub(crate) error: Option<Vec<u8>>,
    /// What all replicas must agree on: the command tag, or the SQLSTATE.
    pub(crate) outcome: Vec<u8>,
}
