//! Text in row images: whether every server would take it.
//!
//! A server checks what comes from clients, and not what is there already: functions in C, and data of old releases that
//! were taken over, can leave text in its tables that is not UTF-8. It sends such a row without a word, and no replica
//! takes it back. So it must be found before it is in the log.
//!
//! Not looked into are domains, composites and types that did not come with the server.

use cluster::record::Image;

/// `jsonb` travels as text after a byte with its version.
const JSONB: u32 = 3802;

/// Whether all text in a row is UTF-8. What cannot be read as a row has none.
pub(super) fn is_utf8(image: &[u8]) -> bool {
    let Ok(image) = Image::parse(image) else { return true };
    image.columns().all(|column| column.value.is_none_or(|value| holds(column.type_oid, value)))
}

fn holds(type_oid: u32, value: &[u8]) -> bool {
    match type_oid {
        // name, text, json, xml, bpchar, varchar
        19 | 25 | 114 | 142 | 1042 | 1043 => std::str::from_utf8(value).is_ok(),
        JSONB => std::str::from_utf8(value.get(1..).unwrap_or_default()).is_ok(),
        // The arrays of these.
        143 | 199 | 1003 | 1009 | 1014 | 1015 | 3807 => elements(value).is_none_or(|sound| sound),
        _ => true,
    }
}

/// An array: dimensions, whether there are NULLs, the type of the elements, two numbers for each dimension, elements.
fn elements(array: &[u8]) -> Option<bool> {
    let (dimensions, rest) = word(array)?;
    let (type_oid, rest) = word(rest.get(4..)?)?;
    let mut rest = rest.get(usize::try_from(dimensions).ok()?.checked_mul(8)?..)?;
    while let Some((length, after)) = word(rest) {
        rest = after;
        if length != u32::MAX {
            let (value, after) = rest.split_at_checked(usize::try_from(length).ok()?)?;
            if !holds(type_oid, value) {
                return Some(false);
            }
            rest = after;
        }
    }
    Some(true)
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

    #[test]
    fn text_that_no_server_takes_is_found() {
        let bad: &[u8] = b"a\xc3";
        for oid in [19, 25, 114, 142, 1042, 1043, JSONB] {
            assert!(!is_utf8(&image(&[(23, b"\0\0\0\x07"), (oid, bad)])), "{oid}");
            assert!(is_utf8(&image(&[(oid, "\u{1}ä".as_bytes())])), "{oid}");
        }
        assert!(is_utf8(&image(&[(17, bad)])), "bytea is no text");
        let array = |value: &[u8]| {
            let mut array = Vec::new();
            for number in [1, 1, 25, 2, 1, u32::MAX, value.len() as u32] {
                array.extend_from_slice(&number.to_be_bytes());
            }
            [&array, value].concat()
        };
        assert!(!is_utf8(&image(&[(1009, &array(bad))])));
        assert!(is_utf8(&image(&[(1009, &array(b"good"))])));
        assert!(is_utf8(b"no row"));
    }
}
