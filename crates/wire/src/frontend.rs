//! Messages of a client after start-up, as borrowing views.
//!
//! Names and texts are bytes: nothing says that they are UTF-8, and the server is the authority on that.

use crate::frame::{self, MESSAGE_BYTES_MAX};
use crate::read::Reader;
use crate::{Frame, FrameError, Malformed};

/// The longest message that holds no more than names and numbers, without its tag: as PostgreSQL's `PQ_SMALL_MESSAGE_LIMIT`.
pub const SMALL_MESSAGE_BYTES_MAX: usize = 10_000;

/// Reads the header of a client's message, as [`frame::header`] does. A kind that does not exist, or a length that the
/// kind cannot have, is an error before more of the message has come.
pub fn header(bytes: &[u8]) -> Result<Option<(u8, usize)>, HeaderError> {
    let header = frame::header(bytes).map_err(HeaderError::Length)?;
    let Some((tag, total)) = header else { return Ok(None) };
    let bytes_max = match tag {
        tag::BIND | tag::COPY_DATA | tag::FUNCTION_CALL | tag::PARSE | tag::QUERY => MESSAGE_BYTES_MAX - 1,
        tag::CLOSE
        | tag::COPY_DONE
        | tag::COPY_FAIL
        | tag::DESCRIBE
        | tag::EXECUTE
        | tag::FLUSH
        | tag::PASSWORD
        | tag::SYNC
        | tag::TERMINATE => SMALL_MESSAGE_BYTES_MAX,
        _ => return Err(HeaderError::Type(tag)),
    };
    let length = total - 1;
    if length > bytes_max {
        let length = u32::try_from(length).unwrap_or(u32::MAX);
        return Err(HeaderError::Length(FrameError { tag, length }));
    }
    Ok(header)
}

/// The client's bytes cannot begin a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderError {
    /// A message of this kind cannot be so long, or so short.
    Length(FrameError),
    /// There is no such kind.
    Type(u8),
}

impl std::fmt::Display for HeaderError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Length(error) => error.fmt(f),
            Self::Type(tag) => write!(f, "invalid frontend message type {tag}"),
        }
    }
}

impl std::error::Error for HeaderError {}

/// Tags of client messages.
pub mod tag {
    #![expect(missing_docs, reason = "the names are the protocol's own")]
    pub const BIND: u8 = b'B';
    pub const CLOSE: u8 = b'C';
    pub const COPY_DATA: u8 = b'd';
    pub const COPY_DONE: u8 = b'c';
    pub const COPY_FAIL: u8 = b'f';
    pub const DESCRIBE: u8 = b'D';
    pub const EXECUTE: u8 = b'E';
    pub const FLUSH: u8 = b'H';
    pub const FUNCTION_CALL: u8 = b'F';
    pub const PARSE: u8 = b'P';
    pub const PASSWORD: u8 = b'p';
    pub const QUERY: u8 = b'Q';
    pub const SYNC: u8 = b'S';
    pub const TERMINATE: u8 = b'X';
}

/// The kind of object that a Describe or Close names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target<'a> {
    /// A prepared statement by name; empty is the unnamed one.
    Statement(&'a [u8]),
    /// A portal by name; empty is the unnamed one.
    Portal(&'a [u8]),
}

/// A client message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Frontend<'a> {
    /// Simple protocol: a string of statements.
    Query {
        /// The text, without its final NUL.
        sql: &'a [u8],
    },
    /// Prepare a statement.
    Parse {
        /// Name of the statement; empty is the unnamed one.
        name: &'a [u8],
        /// The text.
        sql: &'a [u8],
        /// Count and OIDs of the declared parameter types, as sent.
        types: &'a [u8],
    },
    /// Make a portal from a statement and parameters.
    Bind {
        /// Name of the portal.
        portal: &'a [u8],
        /// Name of the statement.
        statement: &'a [u8],
        /// Formats and values, as sent.
        rest: &'a [u8],
    },
    /// Ask for the shape of a statement or portal.
    Describe(Target<'a>),
    /// Forget a statement or portal.
    Close(Target<'a>),
    /// Run a portal.
    Execute {
        /// Name of the portal.
        portal: &'a [u8],
        /// Most rows to return; 0 is no limit.
        rows_max: i32,
    },
    /// Send what is there.
    Flush,
    /// End of a batch.
    Sync,
    /// Bytes of a COPY.
    CopyData,
    /// The COPY is complete.
    CopyDone,
    /// The COPY failed at the client.
    CopyFail,
    /// An answer to an authentication request.
    Password,
    /// The old fast-path call.
    FunctionCall,
    /// Good bye.
    Terminate,
}

impl<'a> Frontend<'a> {
    /// Understands one message; an unknown tag is malformed, too.
    pub fn parse(frame: Frame<'a>) -> Result<Self, Malformed> {
        let mut body = Reader(frame.body());
        let message = match frame.tag {
            tag::QUERY => Self::Query { sql: body.string()? },
            tag::PARSE => {
                let (name, sql) = (body.string()?, body.string()?);
                let types = body.0;
                let count = Reader(types).count()?;
                if usize::from(count) * 4 + 2 != types.len() {
                    return Err(Malformed);
                }
                return Ok(Self::Parse { name, sql, types });
            }
            tag::BIND => {
                let (portal, statement) = (body.string()?, body.string()?);
                return Ok(Self::Bind { portal, statement, rest: body.0 });
            }
            tag::DESCRIBE => Self::Describe(target(&mut body)?),
            tag::CLOSE => Self::Close(target(&mut body)?),
            tag::EXECUTE => Self::Execute { portal: body.string()?, rows_max: body.i32()? },
            tag::FLUSH => Self::Flush,
            tag::SYNC => Self::Sync,
            tag::COPY_DATA => return Ok(Self::CopyData),
            tag::COPY_DONE => Self::CopyDone,
            tag::COPY_FAIL => return Ok(Self::CopyFail),
            tag::PASSWORD => return Ok(Self::Password),
            tag::FUNCTION_CALL => return Ok(Self::FunctionCall),
            tag::TERMINATE => Self::Terminate,
            _ => return Err(Malformed),
        };
        body.end()?;
        Ok(message)
    }
}

/// A client's first SASL message: the name of the mechanism, and its data.
pub fn sasl_initial(body: &[u8]) -> Result<(&[u8], &[u8]), Malformed> {
    let mut reader = Reader(body);
    let mechanism = reader.string()?;
    let length = usize::try_from(reader.i32()?).map_err(|_| Malformed)?;
    let said = reader.bytes(length)?;
    reader.end()?;
    Ok((mechanism, said))
}

/// A value of a Bind: whether it is in binary form, and its bytes, none for NULL.
pub type BoundValue<'a> = (bool, Option<&'a [u8]>);

/// The values of a Bind, less its names.
pub fn bound_values(rest: &[u8]) -> Result<Vec<BoundValue<'_>>, Malformed> {
    let mut rest = Reader(rest);
    let mut formats = Vec::new();
    for _ in 0..rest.count()? {
        formats.push(rest.i16()? != 0);
    }
    let mut values = Vec::new();
    for index in 0..usize::from(rest.count()?) {
        let length = rest.i32()?;
        let value = if length < 0 {
            None
        } else {
            Some(rest.bytes(usize::try_from(length).map_err(|_| Malformed)?)?)
        };
        // One format stands for all.
        let format = if formats.len() == 1 { formats.first() } else { formats.get(index) };
        values.push((format.copied().unwrap_or(false), value));
    }
    Ok(values)
}

fn target<'a>(body: &mut Reader<'a>) -> Result<Target<'a>, Malformed> {
    match body.u8()? {
        b'S' => Ok(Target::Statement(body.string()?)),
        b'P' => Ok(Target::Portal(body.string()?)),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{encode, next_frame};

    fn one(build: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = Vec::new();
        build(&mut bytes);
        bytes
    }

    #[test]
    fn a_length_that_a_kind_cannot_have_is_refused_by_the_header() {
        let of = |tag: u8, length: u32| header(&[&[tag][..], &length.to_be_bytes()].concat());
        for tag in *b"CcDEfHpSX" {
            assert_eq!(of(tag, 10_000), Ok(Some((tag, 10_001))), "{}", char::from(tag));
            assert_eq!(of(tag, 10_001), Err(HeaderError::Length(FrameError { tag, length: 10_001 })));
            assert_eq!(header(&[tag, 0, 0]), Ok(None));
        }
        for tag in *b"BdFPQ" {
            assert_eq!(of(tag, 0x3fff_fffe), Ok(Some((tag, MESSAGE_BYTES_MAX))), "{}", char::from(tag));
            assert!(matches!(of(tag, 0x3fff_ffff), Err(HeaderError::Length(_))));
            assert!(matches!(of(tag, 3), Err(HeaderError::Length(_))));
        }
        assert_eq!(of(b'z', 4), Err(HeaderError::Type(b'z')));
    }

    #[test]
    fn counts_have_no_sign() {
        let types = vec![23; 40_000];
        let parse = one(|b| encode::parse(b, b"s1", b"select 1", &types));
        let read = Frontend::parse(next_frame(&parse).unwrap().unwrap());
        assert!(matches!(read, Ok(Frontend::Parse { types, .. }) if types.len() == 2 + 4 * 40_000));
        let bind = one(|b| {
            encode::bind(b, b"", b"s1", &vec![Some(b"7".as_slice()); 40_000], encode::Format::Binary);
        });
        let Ok(Frontend::Bind { rest, .. }) = Frontend::parse(next_frame(&bind).unwrap().unwrap()) else {
            panic!("a Bind");
        };
        assert_eq!(bound_values(rest).unwrap().len(), 40_000);
        assert!(crate::oids::has_binary(rest), "the result is asked for in binary form");
    }

    #[test]
    fn reads_what_encode_writes() {
        let parse = one(|b| encode::parse(b, b"s1", b"select $1", &[23]));
        assert_eq!(
            Frontend::parse(next_frame(&parse).unwrap().unwrap()),
            Ok(Frontend::Parse { name: b"s1", sql: b"select $1", types: &[0, 1, 0, 0, 0, 23] })
        );
        let bind = one(|b| encode::bind(b, b"", b"s1", &[Some(b"7")], encode::Format::Text));
        assert!(matches!(
            Frontend::parse(next_frame(&bind).unwrap().unwrap()),
            Ok(Frontend::Bind { portal: b"", statement: b"s1", .. })
        ));
        let describe = one(|b| encode::describe(b, Target::Portal(b"p")));
        assert_eq!(
            Frontend::parse(next_frame(&describe).unwrap().unwrap()),
            Ok(Frontend::Describe(Target::Portal(b"p")))
        );
        let execute = one(|b| encode::execute(b, b"", 5));
        assert_eq!(
            Frontend::parse(next_frame(&execute).unwrap().unwrap()),
            Ok(Frontend::Execute { portal: b"", rows_max: 5 })
        );
    }

    #[test]
    fn values_are_bound_in_one_form_or_each_in_its_own() {
        let bind = one(|b| encode::bind(b, b"", b"", &[Some(b"7"), None], encode::Format::Binary));
        let Frontend::Bind { rest, .. } = Frontend::parse(next_frame(&bind).unwrap().unwrap()).unwrap()
        else {
            panic!("a Bind was written");
        };
        assert_eq!(bound_values(rest), Ok(vec![(true, Some(&b"7"[..])), (true, None)]));
        let each = b"\0\x02\0\0\0\x01\0\x02\0\0\0\x01a\0\0\0\0\0\0";
        assert_eq!(bound_values(each), Ok(vec![(false, Some(&b"a"[..])), (true, Some(&b""[..]))]));
        let none = b"\0\0\0\x01\0\0\0\x01a\0\0";
        assert_eq!(bound_values(none), Ok(vec![(false, Some(&b"a"[..]))]));
        assert_eq!(bound_values(b"\0\0\0\x01\0\0\0\x09a"), Err(Malformed));
    }

    #[test]
    fn malformed_bodies_are_errors() {
        for bytes in [
            &b"Q\0\0\0\x05x"[..],
            b"P\0\0\0\x07\0\0\0",
            b"D\0\0\0\x06Z\0",
            b"S\0\0\0\x05!",
            b"?\0\0\0\x04",
            b"E\0\0\0\x05\0",
        ] {
            let frame = next_frame(bytes).unwrap().unwrap();
            assert_eq!(Frontend::parse(frame), Err(Malformed), "{bytes:?}");
        }
    }
}
