//! A client that shows the messages themselves.

use std::io::{Read, Write};
use std::net::TcpStream;

use wire::backend::tag;

/// A connection after start-up.
pub(crate) struct Raw(TcpStream);

impl Raw {
    /// Connects as `postgres`.
    pub(crate) fn connect(port: u16) -> Self {
        Self::connect_as(port, &[("user", "postgres"), ("database", "postgres")]).0
    }

    /// Connects with these start-up parameters; what it is told, too.
    pub(crate) fn connect_as(port: u16, parameters: &[(&str, &str)]) -> (Self, Vec<(u8, Vec<u8>)>) {
        let stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
        stream.set_read_timeout(Some(std::time::Duration::from_mins(2))).unwrap();
        let mut raw = Self(stream);
        let told = raw.exchange(|out| wire::encode::startup(out, parameters));
        (raw, told)
    }

    /// Sends what `write` puts there, and does not wait for anything.
    pub(crate) fn send(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::new();
        write(&mut out);
        self.0.write_all(&out).unwrap();
    }

    /// Reads up to ReadyForQuery; how many messages came before it.
    pub(crate) fn skip_to_ready(&mut self) -> u64 {
        let (mut count, mut input, mut more) = (0, Vec::new(), vec![0; 1 << 16]);
        loop {
            let mut done = 0;
            while let Some(frame) = wire::next_frame(&input[done..]).unwrap() {
                if frame.tag == tag::READY_FOR_QUERY {
                    return count;
                }
                count += 1;
                done += frame.bytes.len();
            }
            input.drain(..done);
            let read = self.0.read(&mut more).unwrap();
            assert!(read > 0, "the connection ended after {count} messages");
            input.extend_from_slice(&more[..read]);
        }
    }

    /// Sends what `write` puts there; tags and bodies of what comes back before ReadyForQuery.
    pub(crate) fn exchange(&mut self, write: impl FnOnce(&mut Vec<u8>)) -> Vec<(u8, Vec<u8>)> {
        let mut out = Vec::new();
        write(&mut out);
        self.0.write_all(&out).unwrap();
        let mut messages = Vec::new();
        let mut input = Vec::new();
        loop {
            while let Some(frame) = wire::next_frame(&input).unwrap() {
                if frame.tag == tag::READY_FOR_QUERY {
                    return messages;
                }
                messages.push((frame.tag, frame.body().to_vec()));
                let length = frame.bytes.len();
                input.drain(..length);
            }
            let mut more = [0; 8192];
            let count = self.0.read(&mut more).unwrap();
            assert!(count > 0, "the connection ended after {messages:?}");
            input.extend_from_slice(&more[..count]);
        }
    }
}
