//! Message framing: a tag byte, a big-endian length that counts itself, a body.
//!
//! The relay walks these five-byte headers over its receive buffer and forwards the bytes between them as they are.

/// The longest message that is accepted, in bytes. PostgreSQL's own limit for a message is just under 1 GiB.
pub const MESSAGE_BYTES_MAX: usize = 0x3fff_ffff;

/// Bytes of the tag and the length field.
pub const HEADER_BYTES: usize = 5;

/// One whole tagged message in a buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The message's type byte.
    pub tag: u8,
    /// The whole message, header included: what a relay forwards.
    pub bytes: &'a [u8],
}

impl<'a> Frame<'a> {
    /// The message without its header.
    pub fn body(&self) -> &'a [u8] {
        &self.bytes[HEADER_BYTES..]
    }
}

/// The peer sent something that cannot be a message; the connection is beyond repair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameError {
    /// The tag byte of the impossible message.
    pub tag: u8,
    /// Its claimed length.
    pub length: u32,
}

impl std::fmt::Display for FrameError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "invalid length {} of a message of type 0x{:02x}", self.length, self.tag)
    }
}

impl std::error::Error for FrameError {}

/// Reads the header at the start of `bytes`: the tag and the whole message's length in bytes, header included.
///
/// `None` when fewer than five bytes are there.
pub fn header(bytes: &[u8]) -> Result<Option<(u8, usize)>, FrameError> {
    let [tag, a, b, c, d, ..] = *bytes else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]);
    let total = length as usize + 1;
    if length < 4 || total > MESSAGE_BYTES_MAX {
        return Err(FrameError { tag, length });
    }
    Ok(Some((tag, total)))
}

/// Takes the first whole message off the front of `bytes`; `None` when it is not complete yet.
pub fn next_frame(bytes: &[u8]) -> Result<Option<Frame<'_>>, FrameError> {
    Ok(header(bytes)?.and_then(|(tag, total)| bytes.get(..total).map(|bytes| Frame { tag, bytes })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_over_whole_messages_and_stops_at_a_partial_one() {
        let mut bytes = Vec::new();
        crate::encode::query(&mut bytes, b"select 1");
        let whole = bytes.len();
        crate::encode::sync(&mut bytes);
        let first = next_frame(&bytes).unwrap().unwrap();
        assert_eq!((first.tag, first.bytes.len()), (b'Q', whole));
        assert_eq!(first.body(), b"select 1\0");
        assert_eq!(next_frame(&bytes[whole..whole + 3]), Ok(None));
        assert_eq!(next_frame(&bytes[whole..]).unwrap().unwrap().tag, b'S');
    }

    #[test]
    fn refuses_lengths_that_cannot_be() {
        assert_eq!(next_frame(&[b'Q', 0, 0, 0, 3]), Err(FrameError { tag: b'Q', length: 3 }));
        assert!(next_frame(&[b'Q', 0xff, 0xff, 0xff, 0xff]).is_err());
        assert!(next_frame(&[b'Q', 0x40, 0, 0, 0]).is_err());
    }
}
