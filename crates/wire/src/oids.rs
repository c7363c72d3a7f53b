//! The object ids inside descriptions, for a proxy whose servers number their objects differently.
//!
//! RowDescription names, per column, the relation it comes from and its type; ParameterDescription names types. An id
//! has four bytes whatever its value, so it is replaced where it stands. Ids of objects that come with the server are
//! the same everywhere and are never asked about.

use crate::Malformed;
use crate::backend::tag;
use crate::read::Reader;

/// Ids from here on do not come with the server.
pub const FIRST_USER_OID: u32 = 16384;

/// The kind of object that an id names. The numbers of the two kinds are not related.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A data type.
    Type,
    /// A table, view or the like.
    Relation,
}

/// Calls `visit` with every user's object id in the body of a RowDescription or ParameterDescription, in order; what it
/// returns is put in its place. Bodies of other messages have none.
pub fn visit(tag: u8, body: &mut [u8], mut visit: impl FnMut(Kind, u32) -> u32) -> Result<(), Malformed> {
    let total = body.len();
    let mut reader = Reader(body);
    let mut places = Vec::new();
    let place = |reader: &Reader<'_>| total - reader.0.len();
    match tag {
        tag::ROW_DESCRIPTION => {
            for _ in 0..reader.count()? {
                reader.string()?;
                note(&mut places, Kind::Relation, place(&reader), reader.u32()?);
                reader.i16()?;
                note(&mut places, Kind::Type, place(&reader), reader.u32()?);
                reader.bytes(8)?;
            }
        }
        tag::PARAMETER_DESCRIPTION => {
            for _ in 0..reader.count()? {
                note(&mut places, Kind::Type, place(&reader), reader.u32()?);
            }
        }
        _ => return Ok(()),
    }
    for (kind, at, oid) in places {
        body[at..at + 4].copy_from_slice(&visit(kind, oid).to_be_bytes());
    }
    Ok(())
}

/// Whether a Bind, less its names, may have a value in binary form, or asks for one; so does what cannot be read.
pub fn has_binary(rest: &[u8]) -> bool {
    binary(Reader(rest)).unwrap_or(true)
}

fn binary(mut rest: Reader<'_>) -> Result<bool, Malformed> {
    let mut found = false;
    for _ in 0..rest.count()? {
        found |= rest.i16()? != 0;
    }
    for _ in 0..rest.count()? {
        let length = rest.i32()?;
        rest.bytes(usize::try_from(length).unwrap_or(0))?;
    }
    for _ in 0..rest.count()? {
        found |= rest.i16()? != 0;
    }
    Ok(found)
}

/// Whether a Parse declares a parameter of a user's type; `types` as sent, with their count in front.
pub fn declares_users(types: &[u8]) -> bool {
    let types = types.get(2..).unwrap_or_default();
    types.chunks_exact(4).any(|oid| u32::from_be_bytes([oid[0], oid[1], oid[2], oid[3]]) >= FIRST_USER_OID)
}

fn note(places: &mut Vec<(Kind, usize, u32)>, kind: Kind, at: usize, oid: u32) {
    if oid >= FIRST_USER_OID {
        places.push((kind, at, oid));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row_description(fields: &[(&str, u32, u32)]) -> Vec<u8> {
        let mut body = i16::try_from(fields.len()).unwrap().to_be_bytes().to_vec();
        for (name, relation, type_oid) in fields {
            body.extend_from_slice(name.as_bytes());
            body.push(0);
            body.extend_from_slice(&relation.to_be_bytes());
            body.extend_from_slice(&1i16.to_be_bytes());
            body.extend_from_slice(&type_oid.to_be_bytes());
            body.extend_from_slice(&[0, 4, 0xff, 0xff, 0xff, 0xff, 0, 0]);
        }
        body
    }

    #[test]
    fn ids_of_users_objects_are_replaced_by_kind_and_those_of_the_server_stay() {
        let mut body = row_description(&[("a", 16500, 23), ("mood", 16500, 16600), ("c", 0, 25)]);
        let mut seen = Vec::new();
        visit(tag::ROW_DESCRIPTION, &mut body, |kind, oid| {
            seen.push((kind, oid));
            oid + 1000
        })
        .unwrap();
        assert_eq!(seen, [(Kind::Relation, 16500), (Kind::Relation, 16500), (Kind::Type, 16600)]);
        assert_eq!(body, row_description(&[("a", 17500, 23), ("mood", 17500, 17600), ("c", 0, 25)]));
    }

    #[test]
    fn parameters_have_types_only() {
        let mut body = [0, 2, 0, 0, 0, 23, 0, 0, 0x40, 0x01].to_vec();
        visit(tag::PARAMETER_DESCRIPTION, &mut body, |kind, oid| {
            assert_eq!((kind, oid), (Kind::Type, 16385));
            7
        })
        .unwrap();
        assert_eq!(body, [0, 2, 0, 0, 0, 23, 0, 0, 0, 7]);
    }

    #[test]
    fn declared_types_and_binary_values_are_seen() {
        assert!(!declares_users(&[0, 2, 0, 0, 0, 23, 0, 0, 0x3f, 0xff]));
        assert!(declares_users(&[0, 2, 0, 0, 0, 23, 0, 0, 0x40, 0]));
        let text = [0, 1, 0, 0, 0, 1, 0, 0, 0, 1, b'x', 0, 0];
        assert!(!has_binary(&text));
        let mut parameter = text;
        parameter[3] = 1;
        assert!(has_binary(&parameter));
        assert!(has_binary(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 1]));
        assert!(!has_binary(&[0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff, 0, 1, 0, 0]));
        assert!(has_binary(&text[..5]), "what cannot be read may be anything");
    }

    #[test]
    fn a_short_body_is_malformed_and_left_alone() {
        let whole = row_description(&[("a", 16500, 16600), ("b", 16500, 16600)]);
        for length in 0..whole.len() {
            let mut body = whole[..length].to_vec();
            assert_eq!(visit(tag::ROW_DESCRIPTION, &mut body, |_, _| 0), Err(Malformed));
            assert_eq!(body, whole[..length]);
        }
    }
}
