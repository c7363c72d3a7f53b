//! A client that shows the protocol messages themselves.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use wire::backend::{Fields, tag};
use wire::encode::{self, Format};

/// How long anything may take.
const PATIENCE: Duration = Duration::from_mins(2);

/// The SQLSTATE and message of the error with which a connection ends.
pub(crate) fn read_error(stream: &mut TcpStream) -> [String; 2] {
    let mut rest = Vec::new();
    // A reset connection has no more data.
    let _ = stream.read_to_end(&mut rest);
    let at = rest.windows(7).position(|bytes| bytes[..5] == *b"SFATA" && bytes[5..] == *b"L\0");
    let fields = Fields::new(&rest[at.unwrap_or_else(|| panic!("no error in {rest:?}"))..]);
    [fields.sqlstate(), fields.message().as_bytes()].map(|text| String::from_utf8_lossy(text).into_owned())
}

/// A connection after start-up.
pub(crate) struct Raw {
    stream: TcpStream,
    /// Received bytes, of which the first `done` are consumed.
    input: Vec<u8>,
    done: usize,
}

impl Raw {
    /// Connects as `postgres`.
    pub(crate) fn connect(port: u16) -> Self {
        Self::connect_as(port, &[("user", "postgres"), ("database", "postgres")]).0
    }

    /// Connects with these start-up parameters; also returns the messages before ReadyForQuery.
    pub(crate) fn connect_as(port: u16, parameters: &[(&str, &str)]) -> (Self, Vec<(u8, Vec<u8>)>) {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_write_timeout(Some(PATIENCE)).unwrap();
        let mut raw = Self { stream, input: Vec::new(), done: 0 };
        let told = raw.exchange(|out| encode::startup(out, parameters));
        (raw, told)
    }

    /// Sends the bytes of `write` and reads nothing.
    pub(crate) fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.stream.write_all(&out).unwrap();
    }

    /// The same connection, for another thread to send on.
    pub(crate) fn sender(&self) -> Self {
        Self { stream: self.stream.try_clone().unwrap(), input: Vec::new(), done: 0 }
    }

    /// The last whole message before the connection ends; none if it ends in the middle of one.
    pub(crate) fn last(&mut self) -> Option<(u8, Vec<u8>)> {
        let mut rest = self.input.split_off(self.done);
        // A reset connection has no more data.
        let _ = self.stream.read_to_end(&mut rest);
        let (mut at, mut last) = (0, None);
        while let Some(frame) = wire::next_frame(&rest[at..]).unwrap() {
            at += frame.bytes.len();
            last = Some((frame.tag, frame.body().to_vec()));
        }
        last.filter(|_| at == rest.len())
    }

    /// Reads up to ReadyForQuery; how many messages came before it.
    pub(crate) fn skip_to_ready(&mut self) -> u64 {
        let mut count = 0;
        while self.next().0 != tag::READY_FOR_QUERY {
            count += 1;
        }
        count
    }

    /// Sends the bytes of `write`; returns tags and bodies of the messages before ReadyForQuery.
    pub(crate) fn exchange(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<(u8, Vec<u8>)> {
        self.send(write);
        let mut messages = Vec::new();
        loop {
            match self.next() {
                (tag::READY_FOR_QUERY, _) => return messages,
                message => messages.push(message),
            }
        }
    }

    /// Sends statements as one pipeline with a Sync; returns the command tag or SQLSTATE of each.
    pub(crate) fn pipeline(&mut self, statements: &[&str]) -> Vec<String> {
        let told = self.exchange(|out| {
            for sql in statements {
                encode::parse(out, b"", sql.as_bytes(), &[]);
                encode::bind(out, b"", b"", &[], Format::Text);
                encode::execute(out, b"", 0);
            }
            encode::sync(out);
        });
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim_end_matches('\0').to_owned();
        let answer = |(tag, body): (u8, Vec<u8>)| match tag {
            tag::COMMAND_COMPLETE => Some(text(&body)),
            tag::ERROR_RESPONSE => Some(text(Fields::new(&body).sqlstate())),
            _ => None,
        };
        told.into_iter().filter_map(answer).collect()
    }

    /// The next message: its tag and body.
    pub(crate) fn next(&mut self) -> (u8, Vec<u8>) {
        self.next_or_end().expect("the connection goes on")
    }

    /// The next message; none if the connection ends before it.
    pub(crate) fn next_or_end(&mut self) -> Option<(u8, Vec<u8>)> {
        loop {
            if let Some(frame) = wire::next_frame(&self.input[self.done..]).unwrap() {
                self.done += frame.bytes.len();
                return Some((frame.tag, frame.body().to_vec()));
            }
            self.input.drain(..std::mem::take(&mut self.done));
            let mut more = vec![0; 1 << 16];
            let count = self.stream.read(&mut more).unwrap();
            if count == 0 {
                assert!(self.input.is_empty(), "the connection ended after {:?}", self.input);
                return None;
            }
            self.input.extend_from_slice(&more[..count]);
        }
    }
}
