//! Reads a server's reply and passes it on to the client.
//!
//! One call of [`Relay::run`] handles one *unit*: the reply of a server up to ReadyForQuery, or, when no Sync was
//! sent, up to an expected number of completions. The relay walks the headers in the receive buffer, and copies what
//! belongs to the client once, in runs of whole messages. It removes notices of our capture function, replies to
//! messages of our own, and ReadyForQuery, whose status the session knows better.

pub(crate) mod canonical;
pub(crate) mod copy_in;
pub(crate) mod expected;
pub(crate) mod position;
pub(crate) mod work;

use std::sync::Arc;

use wire::backend::{Fields, Status, tag};
use wire::oids::Kind;
use wire::{encode, frame, sqlstate};

use crate::client::Client;
use crate::error::{Fault, Refusal};
use crate::pool::server::Server;
use crate::writeset::Capture;
use expected::is_completion;
pub(crate) use expected::{Audience, CloseReply, Expected, Hold, RowsOf};
use position::shift_position;

/// The relay holds back this many bytes of the reply to an update that has not committed.
pub(crate) const HOLD_BYTES: usize = 1 << 20;

/// How a unit ended.
#[derive(Debug, Default)]
pub(crate) struct Ended {
    /// The status in ReadyForQuery, if the unit has one.
    pub(crate) status: Option<Status>,
    /// The body of the first ErrorResponse.
    pub(crate) error: Option<Vec<u8>>,
    /// The last command tag.
    pub(crate) command: Vec<u8>,
    /// How many of the client's Parse messages were not completed.
    pub(crate) parses_left: usize,
    /// The server has ended the connection.
    is_fatal: bool,
    /// The error of a limit of the client's own, which ends the session as on one server.
    last_words: Option<Refusal>,
    /// A refresh has evicted the statement.
    pub(crate) is_evicted: bool,
    /// The client encoding of the connection is no longer UTF-8.
    lost_encoding: bool,
    /// The last row, for our own queries.
    pub(crate) row: Option<Vec<Option<Vec<u8>>>>,
}

impl Ended {
    /// The SQLSTATE of the error, if there was one.
    pub(crate) fn sqlstate(&self) -> Option<&[u8]> {
        self.error.as_deref().map(|body| Fields::new(body).sqlstate())
    }
}

/// How the unit continues after a message.
enum Flow {
    Continue,
    Done,
    CopyIn,
    /// The message has object ids of the server without known canonical ids.
    UnknownIds(Vec<(Kind, u32)>),
}

/// Reads one server for one client.
pub(crate) struct Relay<'a> {
    pub(crate) client: &'a mut Client,
    pub(crate) server: &'a mut Server,
    /// The row changes of the update transaction that is open on this connection.
    pub(crate) capture: Option<&'a mut Capture>,
    pub(crate) expected: Expected,
    ended: Ended,
    /// Bytes at the head of the input that were inspected and go to the client.
    pub(crate) run: usize,
    /// Ids that no server could resolve. A column of such a relation counts as computed.
    pub(crate) nameless: Vec<(Kind, u32)>,
    /// The core has recalled the transaction, so the statement was cancelled.
    is_recalled: bool,
}

impl<'a> Relay<'a> {
    pub(crate) fn new(
        client: &'a mut Client,
        server: &'a mut Server,
        capture: Option<&'a mut Capture>,
    ) -> Self {
        let (expected, ended) = (Expected::default(), Ended::default());
        Self { client, server, capture, expected, ended, run: 0, nameless: Vec::new(), is_recalled: false }
    }

    /// Reads the replies to our own statements that were sent ahead, then one unit. After an error the connection
    /// cannot be used any more.
    pub(crate) async fn run(mut self, expected: Expected) -> Result<Ended, Fault> {
        while let Some(ahead) = self.server.own.next_ahead() {
            let completions = Some(ahead.completions);
            self.expected = Expected { completions, ..Expected::silent() };
            self.unit().await?;
            if self.ended.is_evicted {
                return Err(Fault::Evicted);
            }
            if let Some(body) = self.ended.error.take() {
                // A statement ahead failed, so the statements after it did not run properly.
                return Err(Fault::Server(body));
            }
            self.server.own.answered(ahead);
        }
        let lost_encoding = self.ended.lost_encoding;
        self.ended = Ended { lost_encoding, ..Ended::default() };
        self.expected = expected;
        if !self.expected.is_silent() {
            self.client.run_statement();
        }
        self.unit().await?;
        self.ended.parses_left = self.expected.parses_left();
        if self.ended.error.is_some() && self.expected.completions.is_some() {
            self.synchronise().await?;
        }
        if self.ended.is_evicted && !self.expected.may_be_evicted {
            return Err(Fault::Evicted);
        }
        if self.ended.lost_encoding {
            // The log would get rows in another encoding.
            return Err(Fault::Refused(Refusal::unsupported(
                "changing client_encoding in a function",
                "Use UTF8.",
            )));
        }
        Ok(self.ended)
    }

    /// Passes unasked messages on, such as notifications. The error is a limit of the client that has ended the
    /// connection.
    pub(crate) fn idle(mut self) -> Result<(), Fault> {
        self.walk()?;
        self.ended.last_words.map_or(Ok(()), |words| Err(Fault::Fatal(words)))
    }

    /// Sends the Sync that a server waits for after an error. Otherwise it would not answer a ROLLBACK, for instance.
    async fn synchronise(&mut self) -> Result<(), Fault> {
        encode::sync(&mut self.server.connection.output);
        let expected = std::mem::replace(&mut self.expected, Expected::silent());
        let synchronised = self.unit().await;
        self.expected = expected;
        synchronised
    }

    async fn unit(&mut self) -> Result<(), Fault> {
        let lost = Fault::Lost(self.server.replica);
        loop {
            let flow = self.walk()?;
            if let Some(signals) = &mut self.client.signals {
                signals.deliver()?;
            }
            if self.ended.is_fatal {
                let last_words = self.ended.last_words.take().map(Fault::Fatal);
                return Err(if self.ended.is_evicted { Fault::Evicted } else { last_words.unwrap_or(lost) });
            }
            match flow {
                Flow::Done => return Ok(()),
                Flow::CopyIn => {
                    self.copy_in().await?;
                    continue;
                }
                Flow::UnknownIds(wanted) => {
                    self.learn(wanted).await?;
                    continue;
                }
                Flow::Continue => {}
            }
            if let Some(capture) = &mut self.capture {
                capture.make_room().await?;
            }
            let hold = if self.expected.is_silent() { Hold::UntilCommit } else { self.expected.hold };
            let limit = hold.bytes();
            // After an error the caller may replace the reply. A COMMIT must not wait for the client to read.
            if self.client.out.len() >= limit && self.ended.error.is_none() && self.is_for_client() {
                self.show().await?;
            }
            self.receive().await?;
        }
    }

    /// Sends the client the replies so far. Meanwhile the relay does not read from the server, which slows the server
    /// down to the pace of the client. If the client is gone, its statement is cancelled.
    pub(crate) async fn show(&mut self) -> Result<(), Fault> {
        let shown = self.client.flush().await;
        if shown.is_err() {
            self.server.backend_registration.running.cancel().await;
        }
        shown
    }

    /// Waits for more of the reply, and sends the rest of the request meanwhile. About once a second it checks that
    /// the client is still connected and the session was not killed. Otherwise it cancels the statement, which would
    /// keep its locks. It also cancels the statement if the core recalls the transaction.
    async fn receive(&mut self) -> Result<(), Fault> {
        loop {
            let listens = self.capture.is_some() && self.client.may_be_recalled && !self.is_recalled;
            let call = listens.then(|| Arc::clone(&self.client.call));
            tokio::select! {
                biased;
                filled = self.server.connection.fill() => {
                    return filled.map_err(|_| Fault::Lost(self.server.replica));
                }
                () = async { if let Some(call) = &call { call.recalled().await } }, if listens => {
                    self.is_recalled = true;
                    self.server.backend_registration.running.cancel().await;
                }
                () = self.client.time_to_look() => {
                    if self.is_recalled {
                        // The first request may have come before the statement.
                        self.server.backend_registration.running.cancel().await;
                    }
                    self.look_after_client().await?;
                }
            }
        }
    }

    /// Whether code of the client runs. Queries of our own are short, and must not be cut off around a COMMIT.
    fn is_for_client(&self) -> bool {
        self.expected.audience != Audience::Onecopy
    }

    pub(crate) async fn look_after_client(&mut self) -> Result<(), Fault> {
        if !self.is_for_client() {
            return Ok(());
        }
        if let Some(fault) = self.client.leaves() {
            self.server.backend_registration.running.cancel().await;
            return Err(fault);
        }
        Ok(())
    }

    /// Handles every whole message in the buffer.
    fn walk(&mut self) -> Result<Flow, Fault> {
        let broken = Fault::Lost(self.server.replica);
        loop {
            let data = &self.server.connection.input.data()[self.run..];
            let Ok(header) = frame::header(data) else { return Err(broken) };
            let Some((tag, total)) = header.filter(|(_, total)| data.len() >= *total) else {
                self.pass();
                return Ok(Flow::Continue);
            };
            if matches!(tag, tag::ROW_DESCRIPTION | tag::PARAMETER_DESCRIPTION) && !self.expected.is_silent()
            {
                let unknown = self.rename(tag, total)?;
                if !unknown.is_empty() {
                    self.pass();
                    return Ok(Flow::UnknownIds(unknown));
                }
            }
            let keep = self.look(tag, total);
            if keep && !self.expected.is_silent() {
                self.run += total;
            } else {
                self.pass();
                self.server.connection.input.consume(total);
            }
            if let flow @ (Flow::Done | Flow::CopyIn) = self.after(tag) {
                self.pass();
                return Ok(flow);
            }
        }
    }

    /// Copies the run to the client.
    pub(crate) fn pass(&mut self) {
        if self.run > 0 {
            let input = &mut self.server.connection.input;
            self.client.out.extend_from_slice(&input.data()[..self.run]);
            input.consume(self.run);
            self.run = 0;
        }
    }

    /// Whether the message after the run belongs to the client.
    pub(crate) fn look(&mut self, tag: u8, total: usize) -> bool {
        if tag == tag::ERROR_RESPONSE && self.is_ours_to_tell(total) {
            return false;
        }
        let data = &self.server.connection.input.data()[self.run..self.run + total];
        let body = &data[frame::HEADER_BYTES..];
        match tag {
            tag::NOTICE_RESPONSE => self.hear(total),
            tag::READY_FOR_QUERY => {
                self.ended.status = Status::parse(body).ok();
                self.server.connection.note_ready(self.ended.status);
                false
            }
            tag::PARSE_COMPLETE => !self.expected.own_parses.pop_front().unwrap_or(false),
            tag::CLOSE_COMPLETE => match self.expected.own_closes.pop_front() {
                None | Some(CloseReply::Client) => true,
                Some(CloseReply::Ours) => false,
                Some(CloseReply::AsParse) => {
                    self.pass();
                    encode::bare(&mut self.client.out, tag::PARSE_COMPLETE);
                    false
                }
            },
            tag::PARAMETER_STATUS => {
                let (name, value) = wire::backend::parameter_status(body).unwrap_or_default();
                self.ended.lost_encoding |= name == b"client_encoding" && value != b"UTF8";
                let is_shown = name != b"default_transaction_read_only";
                if is_shown && self.expected.is_silent() {
                    self.client.out.extend_from_slice(data);
                }
                is_shown
            }
            tag::NOTIFICATION_RESPONSE => {
                if self.expected.is_silent() {
                    self.client.out.extend_from_slice(data);
                }
                true
            }
            tag::COMMAND_COMPLETE => {
                self.ended.command = wire::backend::command_tag(body).to_vec();
                true
            }
            tag::DATA_ROW if self.expected.rows_of.is_some() => {
                if let (Some(rows), Some(capture)) = (self.expected.rows_of, self.capture.as_deref_mut()) {
                    capture.take_row(rows.table, rows.xid, body);
                }
                false
            }
            tag::DATA_ROW if self.expected.is_silent() => {
                self.ended.row = wire::backend::data_row(body)
                    .ok()
                    .map(|row| row.into_iter().map(|value| value.map(<[u8]>::to_vec)).collect());
                false
            }
            tag::ERROR_RESPONSE => {
                if self.ended.error.is_none() {
                    self.ended.error = Some(body.to_vec());
                }
                let shifted = (self.expected.position_offset > 0)
                    .then(|| shift_position(body, self.expected.position_offset));
                if let (Some(message), false) = (shifted, self.expected.is_silent()) {
                    self.pass();
                    self.client.out.extend_from_slice(&message);
                    return false;
                }
                true
            }
            _ => true,
        }
    }

    /// Handles a notice. Returns whether it belongs to the client.
    fn hear(&mut self, total: usize) -> bool {
        let data = &self.server.connection.input.data()[self.run..self.run + total];
        let body = &data[frame::HEADER_BYTES..];
        let is_ours = self.capture.as_deref_mut().is_some_and(|capture| capture.take(body))
            || self.client.signals.as_mut().is_some_and(|signals| signals.take(body, self.server.replica));
        if is_ours || !self.is_for_client() || !self.client.hear_notice(data) {
            return false;
        }
        if self.expected.is_silent() {
            self.client.out.extend_from_slice(data);
        }
        true
    }

    /// Whether an error is hidden from the client: because the connection ends after it, or because Onecopy has caused
    /// it.
    fn is_ours_to_tell(&mut self, total: usize) -> bool {
        let data = &self.server.connection.input.data()[self.run..self.run + total];
        let body = &data[frame::HEADER_BYTES..];
        let fields = Fields::new(body);
        let is_fatal = matches!(fields.get(b'V'), Some(b"FATAL" | b"PANIC"));
        let is_cancelled = fields.sqlstate() == sqlstate::QUERY_CANCELED.as_bytes();
        let is_evicted = (is_fatal || is_cancelled) && self.server.take_eviction();
        if is_evicted {
            self.ended.error = Some(body.to_vec());
        }
        if is_fatal {
            self.ended.last_words = limit_of_client(&fields);
        }
        self.ended.is_fatal |= is_fatal;
        self.ended.is_evicted |= is_evicted;
        is_fatal || is_evicted
    }

    /// Whether the unit ends with this message.
    fn after(&mut self, tag: u8) -> Flow {
        match (tag, &mut self.expected.completions) {
            (tag::COPY_IN_RESPONSE, _) => Flow::CopyIn,
            (tag::READY_FOR_QUERY, None) | (tag::ERROR_RESPONSE, Some(_)) => Flow::Done,
            (_, Some(left)) if is_completion(tag) => {
                *left -= 1;
                if *left == 0 { Flow::Done } else { Flow::Continue }
            }
            _ => Flow::Continue,
        }
    }
}

/// The error that ends the session, if it is a time limit of the client. Then the transaction is not run again.
fn limit_of_client(fields: &Fields<'_>) -> Option<Refusal> {
    let limits = [sqlstate::IDLE_IN_TRANSACTION_SESSION_TIMEOUT, sqlstate::TRANSACTION_TIMEOUT];
    let limit = limits.into_iter().find(|code| code.as_bytes() == fields.sqlstate())?;
    Some(Refusal::plain(limit, fields.message()))
}
