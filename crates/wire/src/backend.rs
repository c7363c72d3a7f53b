//! Messages of a server: borrowing views of the few that a proxy must understand.

use crate::Malformed;
use crate::read::Reader;

/// Tags of server messages.
pub mod tag {
    #![expect(missing_docs, reason = "the names are the protocol's own")]
    pub const AUTHENTICATION: u8 = b'R';
    pub const BACKEND_KEY_DATA: u8 = b'K';
    pub const BIND_COMPLETE: u8 = b'2';
    pub const CLOSE_COMPLETE: u8 = b'3';
    pub const COMMAND_COMPLETE: u8 = b'C';
    pub const COPY_BOTH_RESPONSE: u8 = b'W';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_IN_RESPONSE: u8 = b'G';
    pub const COPY_OUT_RESPONSE: u8 = b'H';
    pub const DATA_ROW: u8 = b'D';
    pub const EMPTY_QUERY_RESPONSE: u8 = b'I';
    pub const ERROR_RESPONSE: u8 = b'E';
    pub const NO_DATA: u8 = b'n';
    pub const NOTICE_RESPONSE: u8 = b'N';
    pub const NOTIFICATION_RESPONSE: u8 = b'A';
    pub const PARAMETER_DESCRIPTION: u8 = b't';
    pub const PARAMETER_STATUS: u8 = b'S';
    pub const PARSE_COMPLETE: u8 = b'1';
    pub const PORTAL_SUSPENDED: u8 = b's';
    pub const READY_FOR_QUERY: u8 = b'Z';
    pub const ROW_DESCRIPTION: u8 = b'T';
}

/// The transaction status in ReadyForQuery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// No transaction is open.
    Idle,
    /// In a transaction.
    Open,
    /// In a transaction that can only be rolled back.
    Failed,
}

impl Status {
    /// The status byte as sent.
    pub fn byte(self) -> u8 {
        match self {
            Self::Idle => b'I',
            Self::Open => b'T',
            Self::Failed => b'E',
        }
    }

    /// Reads the body of a ReadyForQuery.
    pub fn parse(body: &[u8]) -> Result<Self, Malformed> {
        match body {
            [b'I'] => Ok(Self::Idle),
            [b'T'] => Ok(Self::Open),
            [b'E'] => Ok(Self::Failed),
            _ => Err(Malformed),
        }
    }
}

/// The fields of an ErrorResponse or NoticeResponse.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    /// Views a message body; bad bytes show as missing fields.
    pub fn new(body: &'a [u8]) -> Self {
        Self(body)
    }

    /// The first field with this code, for example `b'C'` for the SQLSTATE.
    pub fn get(&self, code: u8) -> Option<&'a [u8]> {
        self.iter().find(|(c, _)| *c == code).map(|(_, value)| value)
    }

    /// The five characters of the SQLSTATE; empty when missing.
    pub fn sqlstate(&self) -> &'a [u8] {
        self.get(b'C').unwrap_or_default()
    }

    /// The primary message, for logs.
    pub fn message(&self) -> String {
        String::from_utf8_lossy(self.get(b'M').unwrap_or_default()).into_owned()
    }

    /// All fields in the order sent: code and value.
    pub fn iter(&self) -> impl Iterator<Item = (u8, &'a [u8])> + use<'a> {
        let mut rest = Reader(self.0);
        std::iter::from_fn(move || {
            let code = rest.u8().ok().filter(|&c| c != 0)?;
            Some((code, rest.string().ok()?))
        })
    }
}

/// Name and value of a ParameterStatus.
pub fn parameter_status(body: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut reader = Reader(body);
    Ok((reader.string()?, reader.string()?))
}

/// Process id and secret of a BackendKeyData; the secret has 4 bytes before protocol 3.2.
pub fn backend_key_data(body: &[u8]) -> Result<(i32, &[u8]), Malformed> {
    let mut reader = Reader(body);
    Ok((reader.i32()?, reader.0))
}

/// The tag of a CommandComplete, for example `UPDATE 1`.
pub fn command_tag(body: &[u8]) -> &[u8] {
    body.strip_suffix(&[0]).unwrap_or(body)
}

/// A server's request at log-in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Authentication<'a> {
    /// Nothing (more).
    Ok,
    /// SASL, by one of the mechanisms that [`sasl_mechanisms`] reads.
    Sasl(&'a [u8]),
    /// The next step of SASL: what its mechanism says.
    SaslContinue(&'a [u8]),
    /// The last step of SASL: what its mechanism says.
    SaslFinal(&'a [u8]),
    /// A method by its protocol number that is not supported.
    Other(i32),
}

impl<'a> Authentication<'a> {
    /// Reads the body of an authentication request.
    pub fn parse(body: &'a [u8]) -> Result<Self, Malformed> {
        let mut reader = Reader(body);
        Ok(match reader.i32()? {
            0 => Self::Ok,
            10 => Self::Sasl(reader.0),
            11 => Self::SaslContinue(reader.0),
            12 => Self::SaslFinal(reader.0),
            other => Self::Other(other),
        })
    }
}

/// The names of the mechanisms of SASL that a server offers.
pub fn sasl_mechanisms(list: &[u8]) -> Result<Vec<&[u8]>, Malformed> {
    let mut reader = Reader(list);
    let mut names = Vec::new();
    loop {
        let name = reader.string()?;
        if name.is_empty() {
            return Ok(names);
        }
        names.push(name);
    }
}

/// The columns of a DataRow; `None` is NULL.
pub fn data_row(body: &[u8]) -> Result<Vec<Option<&[u8]>>, Malformed> {
    let mut reader = Reader(body);
    let count = reader.count()?;
    (0..count)
        .map(|_| match reader.i32()? {
            -1 => Ok(None),
            length => reader.bytes(usize::try_from(length).map_err(|_| Malformed)?).map(Some),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{encode, next_frame};

    #[test]
    fn fields_of_an_error() {
        let mut bytes = Vec::new();
        encode::error(&mut bytes, "ERROR", "40001", "no luck", Some("try again"));
        let frame = next_frame(&bytes).unwrap().unwrap();
        let fields = Fields::new(frame.body());
        assert_eq!(fields.sqlstate(), b"40001");
        assert_eq!(fields.message(), "no luck");
        assert_eq!(fields.get(b'H'), Some(&b"try again"[..]));
        assert_eq!(fields.get(b'P'), None);
        assert_eq!(Fields::new(b"Cabc").sqlstate(), b"");
    }

    #[test]
    fn rows_with_nulls() {
        let mut bytes = Vec::new();
        encode::data_row(&mut bytes, &[Some(b"a"), None, Some(b"")]);
        let frame = next_frame(&bytes).unwrap().unwrap();
        assert_eq!(data_row(frame.body()), Ok(vec![Some(&b"a"[..]), None, Some(&b""[..])]));
        assert_eq!(data_row(&[0, 1, 0, 0, 0, 9, 1]), Err(Malformed));
    }
}
