//! Time as the core sees it: an argument, never a clock.

use serde::{Deserialize, Serialize};

/// Microseconds since some start that the driver chose; monotonic.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default, Serialize, Deserialize)]
pub struct Time {
    /// Microseconds.
    pub us: u64,
}

impl Time {
    /// Microseconds from `earlier` to `self`; 0 if it was later.
    pub fn since_us(self, earlier: Self) -> u64 {
        self.us.saturating_sub(earlier.us)
    }

    /// So many microseconds later.
    #[must_use]
    pub fn after_us(self, us: u64) -> Self {
        Self { us: self.us.saturating_add(us) }
    }
}
