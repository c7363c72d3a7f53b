//! Decodes the messages of the capture function into a record.
//!
//! A message is `<table>|<operation>|<transaction>|<image>`; an update has the old image before the new one. The rows
//! of an INSERT are one `bytea`, image after image; each image contains its length. Images are texts of `bytea`:
//! hexadecimal, or in escape form if the client has set that. Both are decoded; the first is the hot path.

use cluster::ids::{DatabaseId, PartId, TableId};
use cluster::record::{Change, RecordBuilder, RowChange, RowParts, TooLarge};
use wire::backend::Fields;

use super::values;
use super::values::InvalidValue;

/// The SQLSTATE of capture messages. It proves nothing, because any client can raise it.
pub(crate) const SQLSTATE: &[u8] = b"OC001";

/// Beginnings of the context's first line: for rewritten tables, for rows, for the rows of an INSERT, for TRUNCATE.
const CONTEXTS: [&[u8]; 4] = [
    b"PL/pgSQL function onecopy_capture.note_rewrite() line ",
    b"PL/pgSQL function onecopy_capture.cap() line ",
    b"PL/pgSQL function onecopy_capture.cap_inserted() line ",
    b"PL/pgSQL function onecopy_capture.cap_truncate() line ",
];

/// End of that line, after the line number.
const CONTEXT_END: &[u8] = b" at RAISE";

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    Insert,
    /// Rows of one INSERT.
    Inserts,
    Update,
    Delete,
    /// All rows of a table were removed.
    Truncate,
    /// A schema change rewrote a table. The number is the relation's OID.
    Rewrite,
}

/// A parsed message. Images are still text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Message<'a> {
    pub(crate) table: TableId,
    pub(crate) operation: Operation,
    /// The (sub)transaction that wrote the row. It can be a multixact's id if the transaction had locked a row before
    /// it deleted it. It is zero for rows of an INSERT outside functions.
    pub(crate) xid: u32,
    /// The image, or both images.
    pub(crate) images: &'a [u8],
}

/// A message of our function does not have the expected form.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The result of examining a notice.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Captured {
    /// Not a capture message: relay it to the client.
    NotOurs,
    /// One change, or those of one statement, were added to the record.
    Row {
        table: TableId,
        /// See [`Message::xid`].
        xid: u32,
        operation: Operation,
        /// A function, trigger or cascade wrote it, so an exception block may have rolled it back.
        nested: bool,
    },
    /// A schema change rewrote the relation with this OID.
    Rewritten(u32),
    /// Our function raised it, but it cannot be parsed: the transaction must abort.
    Malformed,
    /// It contains a value that other replicas would reject: the transaction must abort.
    Invalid(InvalidValue),
    /// The record cannot hold it: the transaction must abort.
    TooLarge,
}

/// The rows of a message could not be added to the record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum CaptureError {
    Malformed,
    Invalid(InvalidValue),
    TooLarge,
}

impl From<Malformed> for CaptureError {
    fn from(Malformed: Malformed) -> Self {
        Self::Malformed
    }
}

impl From<TooLarge> for CaptureError {
    fn from(TooLarge: TooLarge) -> Self {
        Self::TooLarge
    }
}

impl From<CaptureError> for Captured {
    fn from(error: CaptureError) -> Self {
        match error {
            CaptureError::Malformed => Self::Malformed,
            CaptureError::Invalid(invalid) => Self::Invalid(invalid),
            CaptureError::TooLarge => Self::TooLarge,
        }
    }
}

/// Tells the parts of captured rows.
pub(crate) trait TellsParts {
    /// The part of a row by its image; `None` if its table is not split, or the image does not tell.
    fn part(&self, table: TableId, image: &[u8]) -> Option<PartId>;
}

/// Decodes notices into row changes. Reuses its buffers.
#[derive(Debug, Default)]
pub(crate) struct Decoder {
    old: Vec<u8>,
    new: Vec<u8>,
}

impl Decoder {
    /// Examines a notice, and adds its change to the record if capture raised it.
    pub(crate) fn capture(
        &mut self,
        fields: Fields<'_>,
        parts: &impl TellsParts,
        record: &mut RecordBuilder,
    ) -> Captured {
        let mut state: &[u8] = b"";
        let mut text: &[u8] = b"";
        let mut context: &[u8] = b"";
        for (code, value) in fields.iter() {
            match code {
                b'C' => state = value,
                b'M' => text = value,
                b'W' => context = value,
                _ => {}
            }
        }
        if state != SQLSTATE || !is_capture_context(context) {
            return Captured::NotOurs;
        }
        let Ok(message) = parse_message(text, record.database()) else { return Captured::Malformed };
        if message.operation == Operation::Rewrite {
            return Captured::Rewritten(message.table.number);
        }
        match self.push(message, parts, record) {
            Ok(()) => Captured::Row {
                table: message.table,
                xid: message.xid,
                nested: context.contains(&b'\n'),
                operation: message.operation,
            },
            Err(error) => error.into(),
        }
    }

    /// Adds a row in text form of a `bytea`, as an insertion.
    pub(crate) fn row(
        &mut self,
        table: TableId,
        image: &[u8],
        parts: &impl TellsParts,
        record: &mut RecordBuilder,
    ) -> Captured {
        let operation = Operation::Insert;
        match self.push(Message { table, operation, xid: 0, images: image }, parts, record) {
            Ok(()) => Captured::Row { table, xid: 0, operation, nested: false },
            Err(error) => error.into(),
        }
    }

    fn push(
        &mut self,
        message: Message<'_>,
        parts: &impl TellsParts,
        record: &mut RecordBuilder,
    ) -> Result<(), CaptureError> {
        let (table, images) = (message.table, message.images);
        match message.operation {
            Operation::Insert => {
                decode(images, &mut self.new)?;
                push_change(table, Change::Insert { new: checked(&self.new)? }, parts, record)?;
            }
            Operation::Inserts => self.push_all(table, images, parts, record)?,
            Operation::Delete => {
                decode(images, &mut self.old)?;
                push_change(table, Change::Delete { old: checked(&self.old)? }, parts, record)?;
            }
            Operation::Update => {
                self.decode_pair(images)?;
                let (old, new) = (checked(&self.old)?, checked(&self.new)?);
                push_change(table, Change::Update { old, new }, parts, record)?;
            }
            Operation::Truncate if images.is_empty() => record.push_truncate(table)?,
            Operation::Truncate | Operation::Rewrite => return Err(CaptureError::Malformed),
        }
        Ok(())
    }

    /// Adds several new rows. After an error the earlier ones do not matter, because the transaction aborts.
    fn push_all(
        &mut self,
        table: TableId,
        images: &[u8],
        parts: &impl TellsParts,
        record: &mut RecordBuilder,
    ) -> Result<(), CaptureError> {
        decode(images, &mut self.new)?;
        let mut rest = &self.new[..];
        loop {
            let (image, more) = rest.split_at(image_bytes(rest).ok_or(Malformed)?);
            push_change(table, Change::Insert { new: checked(image)? }, parts, record)?;
            if more.is_empty() {
                return Ok(());
            }
            rest = more;
        }
    }

    fn decode_pair(&mut self, images: &[u8]) -> Result<(), Malformed> {
        if images.starts_with(HEX) {
            let cut = memchr::memchr(b'|', images).ok_or(Malformed)?;
            decode(&images[..cut], &mut self.old)?;
            return decode(&images[cut + 1..], &mut self.new);
        }
        // In the escape form the separator can occur inside an image, so the image's own length decides.
        let mut both = Vec::new();
        decode(images, &mut both)?;
        let cut = image_bytes(&both).ok_or(Malformed)?;
        if both.get(cut) != Some(&b'|') {
            return Err(Malformed);
        }
        self.new.clear();
        self.new.extend_from_slice(&both[cut + 1..]);
        both.truncate(cut);
        self.old = both;
        Ok(())
    }
}

/// Adds a change, with the parts of the row if its table is split.
fn push_change(
    table: TableId,
    change: Change<'_>,
    parts: &impl TellsParts,
    record: &mut RecordBuilder,
) -> Result<(), TooLarge> {
    let (old, new) = match change {
        Change::Insert { new } => (None, Some(new)),
        Change::Update { old, new } => (Some(old), Some(new)),
        Change::Delete { old } => (Some(old), None),
        Change::Truncate => (None, None),
    };
    let part = |image: Option<&[u8]>| image.map(|image| parts.part(table, image));
    let parts = match (part(old), part(new)) {
        // What is known of one image alone is of no use.
        (Some(None), _) | (_, Some(None)) => RowParts::default(),
        (old, new) => RowParts { old: old.flatten(), new: new.flatten() },
    };
    record.push_change(RowChange { table, change, parts })
}

/// Whether the context proves that our function raised the message.
pub(crate) fn is_capture_context(context: &[u8]) -> bool {
    let first = context.split(|&byte| byte == b'\n').next().unwrap_or_default();
    CONTEXTS.iter().any(|start| {
        first
            .strip_prefix(*start)
            .and_then(|rest| rest.strip_suffix(CONTEXT_END))
            .is_some_and(|line| !line.is_empty() && line.iter().all(u8::is_ascii_digit))
    })
}

/// Parses the text of a message of our function in this database.
pub(crate) fn parse_message(text: &[u8], database: DatabaseId) -> Result<Message<'_>, Malformed> {
    let mut fields = text.splitn(4, |&byte| byte == b'|');
    let mut field = || fields.next().ok_or(Malformed);
    let table = database.table(number(field()?)?);
    let operation = match field()? {
        b"I" => Operation::Insert,
        b"B" => Operation::Inserts,
        b"U" => Operation::Update,
        b"D" => Operation::Delete,
        b"T" => Operation::Truncate,
        b"W" => Operation::Rewrite,
        _ => return Err(Malformed),
    };
    let xid = number(field()?)?;
    let images = fields.next().unwrap_or_default();
    Ok(Message { table, operation, xid, images })
}

fn number(digits: &[u8]) -> Result<u32, Malformed> {
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(Malformed);
    }
    std::str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).ok_or(Malformed)
}

/// Prefix of the hexadecimal form. The escape form never has it: it doubles backslashes.
const HEX: &[u8] = b"\\x";

/// Replaces the contents of `out` by the bytes of a `bytea` in text form.
pub(super) fn decode(text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    out.clear();
    let Some(digits) = text.strip_prefix(HEX) else { return decode_escaped(text, out) };
    if digits.len() % 2 != 0 {
        return Err(Malformed);
    }
    out.resize(digits.len() / 2, 0);
    const_hex::decode_to_slice(digits, out).map_err(|_| Malformed)
}

fn decode_escaped(mut text: &[u8], out: &mut Vec<u8>) -> Result<(), Malformed> {
    out.reserve(text.len());
    loop {
        match text {
            [] => return Ok(()),
            [b'\\', b'\\', rest @ ..] => {
                out.push(b'\\');
                text = rest;
            }
            [b'\\', a @ b'0'..=b'3', b @ b'0'..=b'7', c @ b'0'..=b'7', rest @ ..] => {
                out.push((a - b'0') << 6 | (b - b'0') << 3 | (c - b'0'));
                text = rest;
            }
            [b'\\', ..] => return Err(Malformed),
            [byte, rest @ ..] => {
                out.push(*byte);
                text = rest;
            }
        }
    }
}

/// Rejects a row that other replicas would reject.
fn checked(image: &[u8]) -> Result<&[u8], CaptureError> {
    values::first_invalid(image).map_or(Ok(image), |invalid| Err(CaptureError::Invalid(invalid)))
}

/// Length of the row image at the start of `bytes`, by its own account.
fn image_bytes(bytes: &[u8]) -> Option<usize> {
    let word = |at: usize| {
        let four = bytes.get(at..at.checked_add(4)?)?;
        Some(i32::from_be_bytes([four[0], four[1], four[2], four[3]]))
    };
    let mut at = 4;
    for _ in 0..word(0)? {
        let length = word(at + 4)?;
        at += 8 + if length == -1 { 0 } else { usize::try_from(length).ok()? };
    }
    (at <= bytes.len()).then_some(at)
}
