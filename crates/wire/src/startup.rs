//! The untagged beginning of a connection: start-up, encryption requests, cancel requests.

use crate::Malformed;
use crate::read::Reader;

/// Protocol version 3.0.
pub const PROTOCOL_3_0: u32 = 0x0003_0000;
/// The code of a CancelRequest.
pub const CANCEL_REQUEST: u32 = 80_877_102;
/// The code of an SSLRequest.
pub const SSL_REQUEST: u32 = 80_877_103;
/// The code of a GSSENCRequest.
pub const GSSENC_REQUEST: u32 = 80_877_104;

/// The longest start-up packet that is accepted, in bytes (PostgreSQL has the same limit).
pub const STARTUP_BYTES_MAX: usize = 10_000;

/// A client's first message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Opening<'a> {
    /// Wants TLS.
    Ssl,
    /// Wants GSSAPI encryption.
    Gssenc,
    /// Wants another connection's statement cancelled.
    Cancel {
        /// The other connection's process id.
        pid: i32,
        /// Its secret.
        secret: &'a [u8],
    },
    /// Wants a session.
    Startup {
        /// Requested minor version of protocol 3; newer than 0 is to be negotiated down.
        minor: u16,
        /// Names and values, in the order sent.
        parameters: Vec<(&'a str, &'a str)>,
    },
}

/// Why an opening is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpeningError {
    /// The length cannot be.
    Length,
    /// A protocol that we do not speak, by its major version.
    Protocol(u16),
    /// The body has the wrong form.
    Malformed,
}

impl From<Malformed> for OpeningError {
    fn from(_: Malformed) -> Self {
        Self::Malformed
    }
}

/// Reads an opening from the front of `bytes` and says how many bytes it took; `None` when it is not complete yet.
pub fn opening(bytes: &[u8]) -> Result<Option<(Opening<'_>, usize)>, OpeningError> {
    let [a, b, c, d, ..] = *bytes else { return Ok(None) };
    let length = u32::from_be_bytes([a, b, c, d]) as usize;
    if !(8..=STARTUP_BYTES_MAX).contains(&length) {
        return Err(OpeningError::Length);
    }
    let Some(packet) = bytes.get(4..length) else { return Ok(None) };
    let mut reader = Reader(packet);
    let code = u32::from_be_bytes(reader.i32()?.to_be_bytes());
    let opening = match code {
        SSL_REQUEST => Opening::Ssl,
        GSSENC_REQUEST => Opening::Gssenc,
        CANCEL_REQUEST => Opening::Cancel { pid: reader.i32()?, secret: reader.0 },
        version if version >> 16 == 3 => {
            Opening::Startup { minor: (version & 0xffff) as u16, parameters: parameters(reader)? }
        }
        version => return Err(OpeningError::Protocol((version >> 16) as u16)),
    };
    Ok(Some((opening, length)))
}

fn parameters(mut reader: Reader<'_>) -> Result<Vec<(&str, &str)>, Malformed> {
    let mut parameters = Vec::new();
    loop {
        let name = reader.string()?;
        if name.is_empty() {
            reader.end()?;
            return Ok(parameters);
        }
        let value = reader.string()?;
        let text = |bytes| std::str::from_utf8(bytes).map_err(|_| Malformed);
        parameters.push((text(name)?, text(value)?));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::encode;

    #[test]
    fn reads_a_start_up_message() {
        let mut bytes = Vec::new();
        encode::startup(&mut bytes, &[("user", "joe"), ("database", "shop")]);
        let expected = Opening::Startup { minor: 0, parameters: vec![("user", "joe"), ("database", "shop")] };
        assert_eq!(opening(&bytes), Ok(Some((expected, bytes.len()))));
        assert_eq!(opening(&bytes[..bytes.len() - 1]), Ok(None));
    }

    #[test]
    fn reads_a_cancel_request() {
        let mut bytes = Vec::new();
        encode::cancel_request(&mut bytes, 7, &[1, 2, 3, 4]);
        let expected = Opening::Cancel { pid: 7, secret: &[1, 2, 3, 4] };
        assert_eq!(opening(&bytes), Ok(Some((expected, 16))));
    }

    #[test]
    fn refuses_nonsense() {
        assert_eq!(opening(&[0, 0, 0, 3]), Err(OpeningError::Length));
        assert_eq!(opening(b"GET / HTTP/1.1\r\n"), Err(OpeningError::Length));
        assert_eq!(opening(&[0, 0, 0, 8, 0, 2, 0, 0]), Err(OpeningError::Protocol(2)));
        assert_eq!(opening(&[0, 0, 0, 9, 0, 3, 0, 0, b'x']), Err(OpeningError::Malformed));
    }
}
