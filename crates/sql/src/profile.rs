//! Profiles: what a transaction is going to do, known or guessed when it begins.
//!
//! A conflict-aware scheduler wants the whole access set of a transaction at its first statement. Applications can say
//! it themselves ([`Declaration`]: a comment on BEGIN, or a setting); for the others it is learned ([`Profiles`]): a
//! client runs few kinds of transactions, and those that begin alike go on alike. (The conflict-aware scheduler of the
//! seeds declares tables by hand, Gargamel, section III.C, has a table of classes made by hand; both leave the learning
//! as future work.)
//!
//! Invariant: nothing here is believed. A transaction that goes beyond what was declared or predicted is no error; it
//! has to wait where it would not have had to, and that is all. So templates may be told apart by a hash, and values by
//! theirs.
//!
//! Non-goals: keeping what was learned over a restart; learning how many rows a transaction takes, or how long.

mod declared;
mod learned;
mod predicted;

pub use declared::{Declaration, DeclarationError, Declared, declaration_of, table_names};
pub use learned::{Digests, ProfileLimits, ProfileStatistics, Profiles, Step};
pub use predicted::{Expected, Place, Prediction, Source};

/// The number of a template: a hash of its exact key.
///
/// A number that the cache of an analyzer counts out would be smaller, but each thread has an analyzer of its own, and
/// each forgets: what one session learned would mean nothing to another, or something else after an eviction. The hash
/// is the same for the same key everywhere and always; that two keys share one is unlikely, and costs a wrong guess.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TemplateId(pub u64);

/// A hash of bytes that is the same on every machine and in every run (FNV-1a).
pub(crate) fn hash(bytes: &[u8]) -> u64 {
    const OFFSET: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    bytes.iter().fold(OFFSET, |hash, &byte| (hash ^ u64::from(byte)).wrapping_mul(PRIME))
}
