//! COPY FROM STDIN: carries the client's data to the server in the middle of a unit of [`crate::relay`].

use wire::backend::tag;
use wire::frontend::tag as client;
use wire::{encode, frame};

use super::{HOLD_BYTES, Relay};
use crate::client::FLUSH_BYTES;
use crate::error::Fault;

impl Relay<'_> {
    /// Carries the client's CopyData to the server until it ends, and reads notices meanwhile: a server that cannot
    /// send its notices stops reading.
    pub(crate) async fn copy_in(&mut self) -> Result<(), Fault> {
        self.show().await?;
        let mut ending = false;
        loop {
            if !self.server.connection.has_output() {
                if ending {
                    return Ok(());
                }
                ending = self.take_copy_data()?;
            }
            let is_idle = !self.server.connection.has_output();
            let hear = async {
                if is_idle {
                    return self.client.fill().await;
                }
                self.client.time_to_look().await;
                Ok(())
            };
            tokio::select! {
                moved = self.server.connection.advance() => {
                    moved.map_err(|_| Fault::Lost(self.server.replica))?;
                    if self.walk_copy()? {
                        // The server skips the rest of the data, but a half-sent message has to be completed.
                        return Ok(());
                    }
                    if let Some(capture) = &mut self.capture {
                        capture.make_room().await?;
                    }
                    if self.client.out.len() >= HOLD_BYTES {
                        self.show().await?;
                    }
                    // The next message of the client may take long.
                    self.client.tell_notices()?;
                }
                heard = hear => {
                    heard?;
                    if !is_idle {
                        self.look_after_client().await?;
                    }
                }
            }
        }
    }

    /// Handles messages that arrive during a COPY. Returns whether the server ended it with an error, which stays in
    /// the buffer.
    fn walk_copy(&mut self) -> Result<bool, Fault> {
        loop {
            let data = self.server.connection.input.data();
            let Ok(header) = frame::header(data) else { return Err(Fault::Lost(self.server.replica)) };
            let Some((tag, total)) = header.filter(|(_, total)| data.len() >= *total) else {
                return Ok(false);
            };
            if tag == tag::ERROR_RESPONSE {
                return Ok(true);
            }
            if self.look(tag, total) && !self.expected.is_silent() {
                self.run = total;
                self.pass();
            } else {
                self.server.connection.input.consume(total);
            }
        }
    }

    /// Moves whole COPY messages of the client into the server's output. Returns whether the last one was among them.
    fn take_copy_data(&mut self) -> Result<bool, Fault> {
        let output = &mut self.server.connection.output;
        while let Some((tag, total)) = self.client.ready()? {
            let bytes = &self.client.input.data()[..total];
            match tag {
                client::COPY_DATA => output.extend_from_slice(bytes),
                client::COPY_DONE | client::COPY_FAIL => {
                    output.extend_from_slice(bytes);
                    self.client.input.consume(total);
                    if self.expected.completions.is_some() {
                        // The COPY has swallowed the Flush before it.
                        encode::flush(output);
                    }
                    return Ok(true);
                }
                client::FLUSH | client::SYNC => {}
                _ => return Err(Fault::Client),
            }
            self.client.input.consume(total);
            if output.len() >= FLUSH_BYTES * 4 {
                break;
            }
        }
        Ok(false)
    }
}
