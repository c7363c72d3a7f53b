//! Built-in types by the names that the parser gives them.

use pg_query::protobuf::{Node, TypeName};

use crate::ast_scan::{names_in, number_in};

/// Where users' object numbers begin.
pub(crate) const FIRST_USER_OID: u32 = 16_384;

/// Name, OID, OID of the array.
const TYPES: [(&str, u32, u32); 44] = [
    ("bit", 1560, 1561),
    ("bool", 16, 1000),
    ("box", 603, 1020),
    ("bpchar", 1042, 1014),
    ("bytea", 17, 1001),
    ("char", 18, 1002),
    ("cidr", 650, 651),
    ("circle", 718, 719),
    ("date", 1082, 1182),
    ("daterange", 3912, 3913),
    ("float4", 700, 1021),
    ("float8", 701, 1022),
    ("inet", 869, 1041),
    ("int2", 21, 1005),
    ("int4", 23, 1007),
    ("int4range", 3904, 3905),
    ("int8", 20, 1016),
    ("int8range", 3926, 3927),
    ("interval", 1186, 1187),
    ("json", 114, 199),
    ("jsonb", 3802, 3807),
    ("jsonpath", 4072, 4073),
    ("line", 628, 629),
    ("lseg", 601, 1018),
    ("macaddr", 829, 1040),
    ("macaddr8", 774, 775),
    ("money", 790, 791),
    ("name", 19, 1003),
    ("numeric", 1700, 1231),
    ("numrange", 3906, 3907),
    ("oid", 26, 1028),
    ("path", 602, 1019),
    ("point", 600, 1017),
    ("polygon", 604, 1027),
    ("text", 25, 1009),
    ("time", 1083, 1183),
    ("timestamp", 1114, 1115),
    ("timestamptz", 1184, 1185),
    ("timetz", 1266, 1270),
    ("tsrange", 3908, 3909),
    ("tstzrange", 3910, 3911),
    ("tsvector", 3614, 3643),
    ("uuid", 2950, 2951),
    ("varchar", 1043, 1015),
];

/// Pseudo-types that make a sequence, with what they are.
const SERIALS: [(&str, u32); 6] = [
    ("bigserial", 20),
    ("serial", 23),
    ("serial2", 21),
    ("serial4", 23),
    ("serial8", 20),
    ("smallserial", 21),
];

/// A column's type.
pub(super) struct Type {
    pub(super) oid: u32,
    pub(super) modifier: i32,
    /// It has a sequence of its own.
    pub(super) serial: bool,
}

/// The type that a name means; a name that is not built in gets the number of the first user's object.
pub(super) fn type_of(kind: &TypeName) -> Type {
    let name = names_in(&kind.names).pop().unwrap_or_default();
    if let Some((_, oid)) = SERIALS.iter().find(|(serial, _)| *serial == name) {
        return Type { oid: *oid, modifier: -1, serial: true };
    }
    let found = TYPES.iter().find(|(known, ..)| *known == name);
    let oid = found.map_or(
        FIRST_USER_OID,
        |(_, plain, array)| if kind.array_bounds.is_empty() { *plain } else { *array },
    );
    Type { oid, modifier: modifier(&name, &kind.typmods), serial: false }
}

/// Length of strings, precision and scale of numbers, as the server keeps them.
fn modifier(name: &str, modifiers: &[Node]) -> i32 {
    const HEADER: i32 = 4;
    let numbers: Vec<i32> =
        modifiers.iter().map(|node| i32::try_from(number_in(node)).unwrap_or_default()).collect();
    match (name, numbers.as_slice()) {
        ("bpchar" | "varchar", [length]) => length.saturating_add(HEADER),
        ("numeric", [precision]) => (precision << 16).saturating_add(HEADER),
        ("numeric", [precision, scale]) => (precision << 16 | (scale & 0x7ff)).saturating_add(HEADER),
        (_, [number]) => *number,
        _ => -1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_type_is_listed_twice() {
        assert!(TYPES.is_sorted_by_key(|(name, ..)| *name));
        let mut oids: Vec<u32> = TYPES.iter().flat_map(|(_, plain, array)| [*plain, *array]).collect();
        oids.sort_unstable();
        oids.dedup();
        assert_eq!(oids.len(), 2 * TYPES.len());
    }
}
