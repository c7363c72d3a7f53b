//! Random choices that can be repeated: the seed is printed, and `ONECOPY_TEST_SEED` sets it.

use super::folder::say;

/// A small generator (xorshift64*); enough to choose moments and rows.
pub(crate) struct Random(u64);

impl Random {
    /// From the environment, or from the system.
    pub(crate) fn new() -> Self {
        let seed = match std::env::var("ONECOPY_TEST_SEED") {
            Ok(text) => text.parse().expect("ONECOPY_TEST_SEED is a number"),
            Err(_) => getrandom::u64().expect("the system has random numbers"),
        };
        say(&format!("ONECOPY_TEST_SEED={seed}"));
        Self(seed.max(1))
    }

    /// From a number, for a generator of one's own in each task.
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15).max(1))
    }

    /// A number below the limit.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 16) % limit
    }
}
