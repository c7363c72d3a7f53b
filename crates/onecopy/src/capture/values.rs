//! Checks that other servers will accept the values in row images.
//!
//! A server checks values from clients, but not stored values or results of its own functions. So a table can hold
//! values that the server sends and other replicas reject. Such a value must be found before it is in the log. Most
//! types with that problem travel as text, which the capture function checks (`carriage.sql`). Three are too common
//! for that and are checked here:
//!
//! - text that is not UTF-8, made by functions in C or accepted by old releases;
//! - `json` and `jsonb` nested deeper than a server parses, made by functions step by step;
//! - `tsvector` with unsorted lexemes: `array_to_tsvector` truncates long ones without sorting again.
//!
//! Domains, composites and user-defined types are not examined. With `json`, `jsonb` or `tsvector` inside, they
//! travel as text.

use cluster::record::Image;

/// The binary form of `jsonb` is text after a version byte.
const JSONB: u32 = 3802;

/// A server with PostgreSQL's default `max_stack_depth` of 2 MB parses two to three times as many levels.
pub(crate) const JSON_DEPTH_MAX: usize = 4_000;

/// The reason why other replicas would reject a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum InvalidValue {
    /// Text is not UTF-8.
    NotUtf8,
    /// JSON is nested too deeply.
    TooDeep,
    /// Lexemes of a `tsvector` are not sorted.
    UnsortedLexemes,
}

/// The first invalid value in a row. An unreadable row has none.
pub(super) fn first_invalid(image: &[u8]) -> Option<InvalidValue> {
    let image = Image::parse(image).ok()?;
    image.columns().find_map(|column| invalid_of_type(column.type_oid, column.value?))
}

fn invalid_of_type(type_oid: u32, value: &[u8]) -> Option<InvalidValue> {
    match type_oid {
        // name, text, xml, bpchar, varchar
        19 | 25 | 142 | 1042 | 1043 => std::str::from_utf8(value).is_err().then_some(InvalidValue::NotUtf8),
        // json
        114 => invalid_in_json(value),
        JSONB => invalid_in_json(value.get(1..).unwrap_or_default()),
        // tsvector
        3614 => (!is_ordered(value).unwrap_or(false)).then_some(InvalidValue::UnsortedLexemes),
        // Arrays of these types.
        143 | 199 | 1003 | 1009 | 1014 | 1015 | 3643 | 3807 => invalid_in_elements(value),
        _ => None,
    }
}

/// Counts brackets outside strings. The server has checked that the rest is JSON.
fn invalid_in_json(json: &[u8]) -> Option<InvalidValue> {
    if std::str::from_utf8(json).is_err() {
        return Some(InvalidValue::NotUtf8);
    }
    if json.len() < JSON_DEPTH_MAX {
        return None;
    }
    let (mut depth, mut is_in_string, mut bytes) = (0_usize, false, json.iter());
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => is_in_string = !is_in_string,
            b'\\' if is_in_string => _ = bytes.next(),
            b'[' | b'{' if !is_in_string => depth += 1,
            b']' | b'}' if !is_in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > JSON_DEPTH_MAX {
            return Some(InvalidValue::TooDeep);
        }
    }
    None
}

/// Whether a `tsvector` is sorted: the number of lexemes, then each with its end and its positions. Both must ascend.
/// `None` if it cannot be read.
fn is_ordered(vector: &[u8]) -> Option<bool> {
    let (count, mut rest) = word(vector)?;
    let mut last: &[u8] = b"";
    for _ in 0..count {
        let end = memchr::memchr(0, rest)?;
        let (lexeme, after) = rest.split_at(end);
        let (positions, after) = after.get(1..)?.split_first_chunk::<2>()?;
        let (positions, after) = after.split_at_checked(usize::from(u16::from_be_bytes(*positions)) * 2)?;
        // The upper two bits are a weight.
        let place = |pair: &[u8; 2]| u16::from_be_bytes(*pair) & 0x3fff;
        if lexeme <= last || !positions.as_chunks::<2>().0.is_sorted_by(|one, next| place(one) < place(next))
        {
            return Some(false);
        }
        (last, rest) = (lexeme, after);
    }
    Some(true)
}

/// An array: dimensions, whether there are NULLs, the element type, two numbers for each dimension, the elements.
fn invalid_in_elements(array: &[u8]) -> Option<InvalidValue> {
    let (dimensions, rest) = word(array)?;
    let (type_oid, rest) = word(rest.get(4..)?)?;
    let mut rest = rest.get(usize::try_from(dimensions).ok()?.checked_mul(8)?..)?;
    while let Some((length, after)) = word(rest) {
        rest = after;
        if length != u32::MAX {
            let (value, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            let invalid = invalid_of_type(type_oid, value);
            if invalid.is_some() {
                return invalid;
            }
            rest = after;
        }
    }
    None
}

fn word(bytes: &[u8]) -> Option<(u32, &[u8])> {
    let (four, rest) = bytes.split_first_chunk::<4>()?;
    Some((u32::from_be_bytes(*four), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn image(columns: &[(u32, &[u8])]) -> Vec<u8> {
        let mut image = (columns.len() as u32).to_be_bytes().to_vec();
        for (oid, value) in columns {
            image.extend_from_slice(&oid.to_be_bytes());
            image.extend_from_slice(&(value.len() as u32).to_be_bytes());
            image.extend_from_slice(value);
        }
        image
    }

    fn array(type_oid: u32, value: &[u8]) -> Vec<u8> {
        let mut array = Vec::new();
        for number in [1, 1, type_oid, 2, 1, u32::MAX, value.len() as u32] {
            array.extend_from_slice(&number.to_be_bytes());
        }
        [&array, value].concat()
    }

    #[test]
    fn text_that_no_server_takes_is_found() {
        let bad: &[u8] = b"a\xc3";
        for oid in [19, 25, 114, 142, 1042, 1043, JSONB] {
            assert_eq!(
                first_invalid(&image(&[(23, b"\0\0\0\x07"), (oid, bad)])),
                Some(InvalidValue::NotUtf8),
                "{oid}"
            );
            assert_eq!(first_invalid(&image(&[(oid, "\u{1}ä".as_bytes())])), None, "{oid}");
        }
        assert_eq!(first_invalid(&image(&[(17, bad)])), None, "bytea is no text");
        assert_eq!(first_invalid(&image(&[(1009, &array(25, bad))])), Some(InvalidValue::NotUtf8));
        assert_eq!(first_invalid(&image(&[(1009, &array(25, b"good"))])), None);
        assert_eq!(first_invalid(b"no row"), None);
    }

    #[test]
    fn json_that_is_too_deep_is_found() {
        let nested = |depth: usize| ["[".repeat(depth), "]".repeat(depth)].concat();
        let (deep, shallow) = (nested(JSON_DEPTH_MAX + 1), nested(JSON_DEPTH_MAX));
        let in_string = format!("[\"\\\"{deep}\", {shallow}]");
        for (json, expected) in [
            (&deep, Some(InvalidValue::TooDeep)),
            (&shallow, None),
            (&in_string, Some(InvalidValue::TooDeep)),
        ] {
            assert_eq!(first_invalid(&image(&[(114, json.as_bytes())])), expected);
            let binary = ["\u{1}", json].concat();
            assert_eq!(first_invalid(&image(&[(JSONB, binary.as_bytes())])), expected);
            assert_eq!(first_invalid(&image(&[(3807, &array(JSONB, binary.as_bytes()))])), expected);
        }
        let text = format!("{{\"a\": \"\\\\\", \"b\": \"\\\"{deep}\"}}");
        assert_eq!(
            first_invalid(&image(&[(114, text.as_bytes())])),
            None,
            "what is in strings does not count"
        );
    }

    #[test]
    fn lexemes_out_of_order_are_found() {
        let vector = |lexemes: &[(&[u8], &[u16])]| {
            let mut vector = (lexemes.len() as u32).to_be_bytes().to_vec();
            for (lexeme, positions) in lexemes {
                vector.extend_from_slice(lexeme);
                vector.push(0);
                vector.extend_from_slice(&(positions.len() as u16).to_be_bytes());
                vector.extend(positions.iter().flat_map(|position| position.to_be_bytes()));
            }
            vector
        };
        let found = |lexemes: &[(&[u8], &[u16])]| first_invalid(&image(&[(3614, &vector(lexemes))]));
        assert_eq!(found(&[]), None);
        assert_eq!(found(&[(b"a", &[1, 0xc002]), (b"aa", &[]), (b"b", &[0x3fff])]), None);
        assert_eq!(found(&[(b"", &[])]), Some(InvalidValue::UnsortedLexemes));
        assert_eq!(found(&[(b"x", &[]), (b"", &[])]), Some(InvalidValue::UnsortedLexemes));
        assert_eq!(found(&[(b"x", &[]), (b"x", &[])]), Some(InvalidValue::UnsortedLexemes));
        assert_eq!(found(&[(b"x", &[0xc002, 2])]), Some(InvalidValue::UnsortedLexemes));
        assert_eq!(first_invalid(&image(&[(3614, b"\0\0\0\x01a")])), Some(InvalidValue::UnsortedLexemes));
    }
}
