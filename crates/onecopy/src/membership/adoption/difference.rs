//! The differences between servers that should become one cluster, and how to remove them.

use std::fmt;

use crate::membership::checksum::PASSWORDS;

/// Servers hold different data, so they cannot become a cluster. Their operator has to make them the same.
#[derive(Debug)]
pub(crate) struct Difference {
    pub(super) pairs: Vec<DifferingPair>,
    /// The servers whose database is not empty.
    pub(super) with_data: Vec<String>,
}

/// Two servers that hold different data.
#[derive(Debug)]
pub(super) struct DifferingPair {
    pub(super) servers: [String; 2],
    /// Some of the objects that differ.
    pub(super) named: Vec<String>,
    /// How many more do.
    pub(super) more: usize,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the servers do not hold the same, so nothing was changed")?;
        for DifferingPair { servers: [first, other], named, more } in &self.pairs {
            write!(f, "\n{first} and {other} differ in {}", named.join(", "))?;
            if *more > 0 {
                write!(f, " and {more} more")?;
            }
        }
        match self.with_data.as_slice() {
            [only] => write!(
                f,
                "\nonly {only} has data: copy it to the others first, while no client writes (pg_dumpall from {only} into each)"
            )?,
            _ => f.write_str(
                "\nmake them identical while no client writes: empty all but one, and restore a dump of that one",
            )?,
        }
        if self.pairs.iter().flat_map(|pair| &pair.named).any(|name| name.contains(PASSWORDS)) {
            f.write_str(
                "\neach server stores a password with a salt of its own, so setting it anew does not help: ALTER ROLE with \
                 what one server has in pg_authid.rolpassword, as pg_dumpall --roles-only writes it",
            )?;
        }
        Ok(())
    }
}
