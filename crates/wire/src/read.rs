//! Checked reading of message bodies.

/// A message whose body does not have the form its type demands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

impl std::fmt::Display for Malformed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("malformed protocol message")
    }
}

impl std::error::Error for Malformed {}

/// A cursor over a message body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader<'a>(pub(crate) &'a [u8]);

impl<'a> Reader<'a> {
    pub(crate) fn bytes(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (head, rest) = self.0.split_at_checked(count).ok_or(Malformed)?;
        self.0 = rest;
        Ok(head)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        self.bytes(1).map(|b| b[0])
    }

    pub(crate) fn i16(&mut self) -> Result<i16, Malformed> {
        self.bytes(2).map(|b| i16::from_be_bytes([b[0], b[1]]))
    }

    /// How many of something follow: the protocol's counts have 16 bits and no sign.
    pub(crate) fn count(&mut self) -> Result<u16, Malformed> {
        self.bytes(2).map(|b| u16::from_be_bytes([b[0], b[1]]))
    }

    pub(crate) fn i32(&mut self) -> Result<i32, Malformed> {
        self.bytes(4).map(|b| i32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        self.bytes(4).map(|b| u32::from_be_bytes([b[0], b[1], b[2], b[3]]))
    }

    /// The bytes up to the next NUL, which is skipped.
    pub(crate) fn string(&mut self) -> Result<&'a [u8], Malformed> {
        let end = memchr::memchr(0, self.0).ok_or(Malformed)?;
        let text = &self.0[..end];
        self.0 = &self.0[end + 1..];
        Ok(text)
    }

    /// The rest must be empty.
    pub(crate) fn end(self) -> Result<(), Malformed> {
        if self.0.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}
