//! Hashes of runs, so that a commit that only moves or renames code can prove that it changes no decision.
//!
//! `crates/sim/hashes.txt` holds one hash for each of the first [`SEEDS`] seeds. A hash covers what clients sent, saw and
//! were told, each with its time, and the bytes of every record that was appended to the log. It covers no text that
//! contains a name of the code: no trace, no `Debug` output, no count of inner events. Every field is written here by
//! hand, with a tag and a fixed width, so a field or a variant can be renamed without changing a hash.

use sha2::{Digest, Sha256};

use crate::history::{ClientError, History, Level, Outcome, Scan, Seen, Statement, Transaction, Write};
use crate::rules::Rules;
use crate::run::{Verdict, run_seed};

/// How many seeds the stored table covers.
pub const SEEDS: u64 = 2_000;

/// How many hashes stand in a line of the file, after the number of the first seed.
const PER_LINE: usize = 10;

/// The stored table.
const STORED: &str = include_str!("../hashes.txt");

/// The hash of one run: the first 32 bits of a SHA-256.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RunHash(u32);

impl RunHash {
    /// Runs a seed with all rules on.
    pub fn of_seed(seed: u64) -> Self {
        Self::of(&run_seed(seed, Rules::default(), false))
    }

    fn of(verdict: &Verdict) -> Self {
        let mut encoder = Encoder::default();
        encoder.history(&verdict.history);
        encoder.list(b'E', &verdict.errors, Encoder::error);
        encoder.number(b'L', verdict.appended.len() as u64);
        encoder.hash.update(&verdict.appended);
        let digest = encoder.hash.finalize();
        Self(u32::from_be_bytes([digest[0], digest[1], digest[2], digest[3]]))
    }
}

/// Runs these seeds and returns those whose hash differs from the stored one.
pub fn differences(seeds: impl Iterator<Item = u64>) -> impl Iterator<Item = Difference> {
    let stored = stored();
    seeds.filter_map(move |seed| {
        let (stored, found) = (stored.get(seed as usize).copied(), RunHash::of_seed(seed));
        (stored != Some(found)).then_some(Difference { seed, stored, found })
    })
}

/// A seed whose hash differs from the stored one.
#[derive(Clone, Copy, Debug)]
pub struct Difference {
    /// The seed.
    pub seed: u64,
    /// The stored hash, if there is one.
    pub stored: Option<RunHash>,
    /// The hash now.
    pub found: RunHash,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let stored = self.stored.map_or_else(|| "nothing".to_owned(), |hash| format!("{:08x}", hash.0));
        write!(f, "seed {}: stored {stored}, now {:08x}", self.seed, self.found.0)
    }
}

/// The text of the table as the code is now.
pub fn table() -> String {
    let hashes: Vec<RunHash> = (0..SEEDS).map(RunHash::of_seed).collect();
    let mut text = String::new();
    for (line, hashes) in hashes.chunks(PER_LINE).enumerate() {
        text.push_str(&(line * PER_LINE).to_string());
        for hash in hashes {
            text.push_str(&format!(" {:08x}", hash.0));
        }
        text.push('\n');
    }
    text
}

fn stored() -> Vec<RunHash> {
    let words = STORED.lines().flat_map(|line| line.split_whitespace().skip(1));
    words.map_while(|word| u32::from_str_radix(word, 16).ok().map(RunHash)).collect()
}

/// Feeds a hash with fields. Each has a tag and a fixed width, each list its length, so no two runs encode alike.
#[derive(Default)]
struct Encoder {
    hash: Sha256,
}

impl Encoder {
    fn number(&mut self, tag: u8, number: u64) {
        self.hash.update([tag]);
        self.hash.update(number.to_le_bytes());
    }

    fn list<T>(&mut self, tag: u8, items: &[T], mut encode: impl FnMut(&mut Self, &T)) {
        self.number(tag, items.len() as u64);
        for item in items {
            encode(self, item);
        }
    }

    fn optional(&mut self, tag: u8, number: Option<u64>) {
        self.number(tag, u64::from(number.is_some()));
        self.number(tag, number.unwrap_or_default());
    }

    fn history(&mut self, history: &History) {
        self.list(b'T', &history.transactions, Self::transaction);
        self.list(b'F', &history.finals, Self::seen);
        self.optional(b'M', history.total.map(i64::cast_unsigned));
    }

    fn transaction(&mut self, transaction: &Transaction) {
        self.number(b'c', u64::from(transaction.session));
        let level = match transaction.level {
            Level::ReadCommitted => 1,
            Level::RepeatableRead => 2,
            Level::Serializable => 3,
        };
        self.number(b'i', level);
        let outcome = match transaction.outcome {
            Outcome::Committed => 1,
            Outcome::Aborted => 2,
            Outcome::Unknown => 3,
        };
        self.number(b'o', outcome);
        self.number(b'f', transaction.finish_us);
        self.number(b'e', transaction.end_us);
        self.list(b'S', &transaction.statements, Self::statement);
    }

    fn statement(&mut self, statement: &Statement) {
        self.number(b'b', statement.begin_us);
        self.number(b'e', statement.end_us);
        self.list(b'R', &statement.reads, Self::seen);
        self.list(b'N', &statement.latest, Self::seen);
        self.list(b'K', &statement.locked, Self::seen);
        self.list(b'P', &statement.scans, Self::scan);
        self.optional(b't', statement.total.map(i64::cast_unsigned));
        self.number(b'm', u64::from(statement.moves));
        self.number(b's', u64::from(statement.is_control));
        self.optional(b'u', statement.undone_by.map(|number| number as u64));
        self.list(b'W', &statement.writes, Self::write);
    }

    fn seen(&mut self, seen: &Seen) {
        self.number(b'r', u64::from(seen.row));
        self.elements(&seen.list);
    }

    fn elements(&mut self, list: &[u64]) {
        self.list(b'l', list, |encoder, element| encoder.number(b'x', *element));
    }

    fn scan(&mut self, scan: &Scan) {
        self.list(b'p', &scan.of, |encoder, row| encoder.number(b'r', u64::from(*row)));
        self.list(b'q', &scan.found, Self::seen);
    }

    fn write(&mut self, write: &Write) {
        self.number(b'r', u64::from(write.row));
        self.number(b'x', write.element);
        self.number(b'h', u64::from(write.base.is_some()));
        self.elements(write.base.as_deref().unwrap_or_default());
        self.number(b'g', u64::from(write.is_gone));
    }

    fn error(&mut self, error: &ClientError) {
        self.number(b'n', error.transaction as u64);
        self.number(b'a', error.at_us);
        self.list(b'C', error.code.as_bytes(), |encoder, byte| encoder.number(b'y', u64::from(*byte)));
    }
}
