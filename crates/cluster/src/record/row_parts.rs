//! The parts that a row change concerns.

use crate::ids::PartId;

/// The parts of a row before and after a change; `None` where there is no row, or where its part is not known.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct RowParts {
    /// Of the row as it was.
    pub old: Option<PartId>,
    /// Of the row as it is.
    pub new: Option<PartId>,
}

impl RowParts {
    /// The parts that the change concerns.
    pub fn iter(self) -> impl Iterator<Item = PartId> {
        self.old.into_iter().chain(self.new)
    }
}
