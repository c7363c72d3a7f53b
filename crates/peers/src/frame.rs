//! A frame: the length of its body as u32, big-endian, then a message in the encoding of postcard.

use bytes::{Buf, BytesMut};
use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The longest body of a frame.
pub const FRAME_BYTES_MAX: usize = 64 << 20;
const HEADER_BYTES: usize = 4;

/// Why a message became no frame.
#[derive(Debug)]
pub(crate) enum EncodeError {
    TooLong,
    Unencodable(String),
}

/// Encodes a message as a frame.
pub(crate) fn encode<M: Serialize>(message: &M) -> Result<Vec<u8>, EncodeError> {
    let frame = Limited { bytes: vec![0; HEADER_BYTES] };
    let mut frame = match postcard::serialize_with_flavor(message, frame) {
        Ok(frame) => frame,
        Err(postcard::Error::SerializeBufferFull) => return Err(EncodeError::TooLong),
        Err(error) => return Err(EncodeError::Unencodable(error.to_string())),
    };
    let length = u32::try_from(frame.len() - HEADER_BYTES).map_err(|_| EncodeError::TooLong)?;
    frame[..HEADER_BYTES].copy_from_slice(&length.to_be_bytes());
    Ok(frame)
}

/// Takes the next frame off the bytes read; `None` if it is not complete. Gives the message and the length of the frame.
pub(crate) fn decode<M: DeserializeOwned>(bytes: &mut BytesMut) -> Result<Option<(M, usize)>, String> {
    let Some(header) = bytes.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
    let length = u32::from_be_bytes(*header) as usize;
    if length > FRAME_BYTES_MAX {
        return Err(format!("a frame of {length} bytes, at most {FRAME_BYTES_MAX} are allowed"));
    }
    let end = HEADER_BYTES + length;
    let Some(body) = bytes.get(HEADER_BYTES..end) else { return Ok(None) };
    let (message, rest) = postcard::take_from_bytes::<M>(body).map_err(|error| error.to_string())?;
    if !rest.is_empty() {
        return Err(format!("{} bytes follow the message in its frame", rest.len()));
    }
    bytes.advance(end);
    Ok(Some((message, end)))
}

/// Bytes up to the limit.
struct Limited {
    bytes: Vec<u8>,
}

impl Flavor for Limited {
    type Output = Vec<u8>;

    fn try_extend(&mut self, data: &[u8]) -> postcard::Result<()> {
        if self.bytes.len() + data.len() > HEADER_BYTES + FRAME_BYTES_MAX {
            return Err(postcard::Error::SerializeBufferFull);
        }
        self.bytes.extend_from_slice(data);
        Ok(())
    }

    fn try_push(&mut self, data: u8) -> postcard::Result<()> {
        self.try_extend(&[data])
    }

    fn finalize(self) -> postcard::Result<Vec<u8>> {
        Ok(self.bytes)
    }
}
