//! A piece of work for a server connection: what to send, and what to expect back.

use super::prepared::Prepared;
use super::relay::Expected;
use super::servers::Server;
use wire::encode;

/// Something to be run, on whichever connection it is placed.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Work<'a> {
    /// One statement of the simple protocol.
    Query {
        /// The statement's own text.
        sql: &'a [u8],
        /// Characters of the query string before it.
        position_offset: usize,
    },
    /// Messages of the extended protocol, in order.
    Batch {
        /// Them.
        messages: &'a [Message],
        /// The session's statements, to prepare what is missing on the connection.
        prepared: &'a Prepared,
        /// Whether a Sync ends it.
        sync: bool,
    },
}

/// A message of the extended protocol that goes to a server.
#[derive(Clone, Debug)]
pub(crate) struct Message {
    /// The whole message.
    pub(crate) bytes: Vec<u8>,
    /// The statement that it parses, binds or describes, with the generation that is meant.
    pub(crate) statement: Option<(Vec<u8>, u64)>,
    /// It is a Parse.
    pub(crate) is_parse: bool,
    /// It closes this statement.
    pub(crate) closes: Option<Vec<u8>>,
}

impl Work<'_> {
    /// Appends the messages to the connection's output, and says what will come back.
    pub(crate) fn write(&self, server: &mut Server) -> Expected {
        match *self {
            Work::Query { sql, position_offset } => {
                server.query(sql);
                Expected { position_offset, ..Expected::default() }
            }
            Work::Batch { messages, prepared, sync } => {
                let mut expected = Expected::default();
                let mut count = messages.len();
                for message in messages {
                    count += write_message(server, message, prepared, &mut expected);
                }
                if sync {
                    encode::sync(&mut server.connection.output);
                } else {
                    encode::flush(&mut server.connection.output);
                    expected.completions = Some(count);
                }
                expected
            }
        }
    }
}

/// How many messages of our own had to go before the message.
fn write_message(
    server: &mut Server,
    message: &Message,
    prepared: &Prepared,
    expected: &mut Expected,
) -> usize {
    let output = &mut server.connection.output;
    let mut count = 0;
    if let Some((name, generation)) = &message.statement {
        if message.is_parse {
            expected.own_parses.push_back(false);
            server.prepared.insert(name.clone(), *generation);
        } else if server.prepared.get(name) != Some(generation)
            && let Some(known) = prepared.get(name)
        {
            if !name.is_empty() && server.prepared.contains_key(name) {
                // The name means something else here, or nobody knows whether it does: the old one has to go first.
                encode::close(output, wire::frontend::Target::Statement(name));
                expected.own_closes.push_back(true);
                count += 1;
            }
            encode::parse_raw(output, name, &known.sql, &known.types);
            expected.own_parses.push_back(true);
            server.prepared.insert(name.clone(), *generation);
            count += 1;
        }
    }
    if let Some(name) = &message.closes {
        server.prepared.remove(name);
    }
    if message.bytes.first() == Some(&wire::frontend::tag::CLOSE) {
        expected.own_closes.push_back(false);
    }
    output.extend_from_slice(&message.bytes);
    count
}

/// After an error nobody knows which of the messages took effect: what they prepared has to be prepared again.
pub(crate) fn doubt(server: &mut Server, messages: &[Message]) {
    const DOUBTFUL: u64 = 0;
    for (name, _) in messages.iter().filter_map(|message| message.statement.as_ref()) {
        server.prepared.insert(name.clone(), DOUBTFUL);
    }
}
