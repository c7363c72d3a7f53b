//! Work for a server connection: the messages to send, and the reply to expect.

use std::rc::Rc;
use std::sync::Arc;

use wire::encode;
use wire::frontend::Target;

use super::{CloseReply, Expected};
use crate::client::prepared_statement::PreparedStatement;
use crate::pool::cached::NOTHING;
use crate::pool::server::Server;

/// Work that can run on any connection.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    /// One statement of the simple protocol.
    Query {
        /// The statement's own text.
        sql: &'a [u8],
        /// Characters of the query string before it.
        position_offset: usize,
        /// Values for its stand-ins, which go ahead of it.
        stand_in_values: Option<&'a str>,
    },
    /// Messages of the extended protocol, in order.
    Batch {
        /// The messages.
        messages: &'a [Message],
        /// Whether a Sync ends it.
        sync: bool,
        /// Values for their stand-ins, which go ahead of them.
        stand_in_values: Option<&'a str>,
    },
    /// A statement without a reply to the client. Its parameters are NULL, and it returns at most one row.
    Unseen {
        /// The statement's own text.
        sql: &'a [u8],
        /// The types of its parameters; 0 leaves one to the server.
        types: &'a [u32],
    },
}

/// The same, for as long as its session is elsewhere.
#[derive(Clone, Debug)]
pub(crate) enum OwnedWork {
    /// [`Work::Query`].
    Query { sql: Rc<[u8]>, stand_in_values: Option<Rc<str>> },
    /// [`Work::Batch`] with a Sync.
    Batch { messages: Vec<Message>, stand_in_values: Option<Rc<str>> },
}

impl OwnedWork {
    /// The work of a whole transaction; `None` if more messages are to follow, or nothing of it is the client's.
    pub(crate) fn of(work: Work<'_>) -> Option<Self> {
        match work {
            Work::Query { sql, stand_in_values, .. } => {
                Some(Self::Query { sql: sql.into(), stand_in_values: stand_in_values.map(Rc::from) })
            }
            Work::Batch { messages, sync: true, stand_in_values } => Some(Self::Batch {
                messages: messages.to_vec(),
                stand_in_values: stand_in_values.map(Rc::from),
            }),
            Work::Batch { .. } | Work::Unseen { .. } => None,
        }
    }

    /// The work.
    pub(crate) fn as_work(&self) -> Work<'_> {
        match self {
            Self::Query { sql, stand_in_values } => {
                Work::Query { sql, position_offset: 0, stand_in_values: stand_in_values.as_deref() }
            }
            Self::Batch { messages, stand_in_values } => {
                Work::Batch { messages, sync: true, stand_in_values: stand_in_values.as_deref() }
            }
        }
    }

    /// Its messages in the extended protocol.
    pub(crate) fn messages(&self) -> &[Message] {
        match self {
            Self::Query { .. } => &[],
            Self::Batch { messages, .. } => messages,
        }
    }
}

/// The portal of a statement without a reply to the client. It leaves the client's portals alone.
const UNSEEN_PORTAL: &[u8] = b"onecopy unseen";

/// A message of the extended protocol that goes to a server.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The whole message.
    pub(crate) bytes: Rc<[u8]>,
    /// The statement that it parses, binds or describes.
    pub(crate) statement: Option<Arc<PreparedStatement>>,
    /// It is a Parse.
    pub(crate) is_parse: bool,
    /// It closes this statement.
    pub(crate) closes: Option<Vec<u8>>,
}

impl Work<'_> {
    /// Appends the messages to the output of the connection. Returns the expected reply.
    pub(crate) fn write(&self, server: &mut Server) -> Expected {
        match *self {
            Work::Query { sql, position_offset, stand_in_values } => {
                server.tell(stand_in_values);
                server.query(sql);
                Expected { position_offset, ..Expected::default() }
            }
            Work::Batch { messages, sync, stand_in_values } => {
                server.tell(stand_in_values);
                let mut expected = Expected::default();
                let mut count = messages.len();
                server.connection.output.reserve(messages.iter().map(|message| message.bytes.len()).sum());
                for message in messages {
                    count += write_message(server, message, &mut expected);
                }
                if sync {
                    encode::sync(&mut server.connection.output);
                } else {
                    encode::flush(&mut server.connection.output);
                    expected.completions = Some(count);
                }
                expected
            }
            Work::Unseen { sql, types } => {
                server.prepared.remove(b"");
                let output = &mut server.connection.output;
                let values = vec![None; types.len()];
                encode::parse(output, b"", sql, types);
                encode::bind(output, UNSEEN_PORTAL, b"", &values, encode::Format::Text);
                encode::execute(output, UNSEEN_PORTAL, 1);
                encode::close(output, Target::Portal(UNSEEN_PORTAL));
                encode::sync(output);
                Expected::of_client_code()
            }
        }
    }
}

/// Appends one message. Returns how many messages of our own go before it.
fn write_message(server: &mut Server, message: &Message, expected: &mut Expected) -> usize {
    let Server { connection, prepared, .. } = server;
    let output = &mut connection.output;
    let mut count = 0;
    if let Some(known) = &message.statement {
        let (name, generation) = (known.server_name.as_slice(), known.generation);
        let is_there = prepared.has(name, generation);
        if message.is_parse && is_there && !name.is_empty() {
            // The statement is prepared already, by this session or by another one.
            encode::close(output, Target::Statement(NOTHING));
            expected.own_closes.push_back(CloseReply::AsParse);
            return 0;
        }
        if !is_there {
            while let Some(old) = prepared.evict() {
                encode::close(output, Target::Statement(&old));
                expected.own_closes.push_back(CloseReply::Ours);
                count += 1;
            }
            if !name.is_empty() && prepared.may_have(name) {
                // The name may have another meaning on this connection, so the old statement is closed first.
                encode::close(output, Target::Statement(name));
                expected.own_closes.push_back(CloseReply::Ours);
                count += 1;
            }
            if !message.is_parse {
                encode::parse_raw(output, name, known.server_sql(), &known.types);
                count += 1;
            }
        }
        if message.is_parse || !is_there {
            expected.own_parses.push_back(!message.is_parse);
            prepared.insert(name, generation);
        }
    }
    if let Some(name) = &message.closes {
        prepared.remove(name);
    }
    if message.bytes.first() == Some(&wire::frontend::tag::CLOSE) {
        expected.own_closes.push_back(CloseReply::Client);
    }
    output.extend_from_slice(&message.bytes);
    count
}

/// Marks statements as doubtful after an error, since some of the messages may not have taken effect. They are
/// prepared again.
pub(crate) fn doubt(server: &mut Server, messages: &[Message]) {
    const DOUBTFUL: u64 = 0;
    for known in messages.iter().filter_map(|message| message.statement.as_ref()) {
        server.prepared.insert(&known.server_name, DOUBTFUL);
    }
}
