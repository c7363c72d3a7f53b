//! Where the transaction of a record ran, and what it claimed: all that the order of later transactions needs of it.
//!
//! Example: a node takes over as leader. From the origins of the last records it knows which rows they have written and at which home, so
//! it can certify transactions that were open before ([`crate::parts::version_index`]). Without them it would have to fail these.
//!
//! A node that is alone writes none, since no transaction outlives it.
//!
//! ```text
//! home, 2 bytes | number of statements' claims, 4
//! for each: turn, 4 | bit 0 held, bit 1 everything | rows, shared, groups: 4 for the number, then 12 each | tables: 4, then 4 each
//! number of updated tables, 4 | table, 4, and its changed columns, 8, each
//! ```

use super::TableId;
use crate::claims::{Claimed, Claims, ColumnSet};
use crate::ids::ReplicaId;

/// The bit that says: the claims are of a table that home holds.
pub(super) const IS_HELD: u8 = 1;
/// The bit that says: it claimed everything.
pub(super) const EVERYTHING: u8 = 2;

/// The origin of a record.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Origin {
    /// The replica where the transaction ran.
    pub home: ReplicaId,
    /// The claims of its statements, in their order.
    pub claims: Vec<Claimed>,
    /// Tables whose rows were only updated, with the columns that changed.
    pub changed: Vec<(TableId, ColumnSet)>,
}

impl Origin {
    /// The item's content.
    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { home, claims, changed } = self;
        let mut bytes = home.0.to_le_bytes().to_vec();
        put_count(&mut bytes, claims.len());
        for Claimed { turn, is_held, claims } in claims {
            let Claims { rows, shared, groups, tables, everything } = claims;
            bytes.extend_from_slice(&turn.to_le_bytes());
            bytes.push(u8::from(*is_held) * IS_HELD + u8::from(*everything) * EVERYTHING);
            for list in [rows, shared, groups] {
                put_count(&mut bytes, list.len());
                for (table, hash) in list {
                    bytes.extend_from_slice(&table.number.to_le_bytes());
                    bytes.extend_from_slice(&hash.to_le_bytes());
                }
            }
            put_count(&mut bytes, tables.len());
            for table in tables {
                bytes.extend_from_slice(&table.number.to_le_bytes());
            }
        }
        put_count(&mut bytes, changed.len());
        for (table, columns) in changed {
            bytes.extend_from_slice(&table.number.to_le_bytes());
            bytes.extend_from_slice(&columns.bits().to_le_bytes());
        }
        bytes
    }
}

fn put_count(bytes: &mut Vec<u8>, count: usize) {
    let count = u32::try_from(count).expect("claims are bounded by the limit of a body");
    bytes.extend_from_slice(&count.to_le_bytes());
}
