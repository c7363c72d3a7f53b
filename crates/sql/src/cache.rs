//! A bounded cache with the clock algorithm.
//!
//! Entries stand in a ring; a hit marks its entry, and the hand, when room is needed, clears marks until it finds an
//! entry without one. Both the number of entries and their bytes are bounded. A key is compared byte by byte; its hash
//! only finds the place, so two different keys can never be taken for one.

use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// Bytes that an entry takes beside its key and its value's own weight.
const ENTRY_OVERHEAD: usize = 96;

/// The cache.
pub(crate) struct Cache<V> {
    ring: IndexMap<Box<[u8]>, Slot<V>, FxBuildHasher>,
    hand: usize,
    bytes: usize,
    max_entries: usize,
    max_bytes: usize,
    evictions: u64,
}

struct Slot<V> {
    value: V,
    weight: usize,
    marked: bool,
}

impl<V> Cache<V> {
    pub(crate) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self { ring: IndexMap::default(), hand: 0, bytes: 0, max_entries, max_bytes, evictions: 0 }
    }

    pub(crate) fn get(&mut self, key: &[u8]) -> Option<&V> {
        let slot = self.ring.get_mut(key)?;
        slot.marked = true;
        Some(&slot.value)
    }

    /// Puts an entry in, unless it is larger than the whole cache may be. An entry that is there already is replaced.
    pub(crate) fn insert(&mut self, key: &[u8], value: V, weight: usize) {
        let weight = weight + key.len() + ENTRY_OVERHEAD;
        if weight > self.max_bytes || self.max_entries == 0 {
            return;
        }
        if let Some(old) = self.ring.swap_remove(key) {
            self.bytes -= old.weight;
        }
        while self.ring.len() >= self.max_entries || self.bytes + weight > self.max_bytes {
            self.evict();
        }
        self.bytes += weight;
        self.ring.insert(key.into(), Slot { value, weight, marked: false });
    }

    /// Takes the next unmarked entry out. There is one after at most one round, since a round clears all marks.
    fn evict(&mut self) {
        assert!(!self.ring.is_empty(), "an empty cache has room for any entry that fits");
        loop {
            if self.hand >= self.ring.len() {
                self.hand = 0;
            }
            let (_, slot) =
                self.ring.get_index_mut(self.hand).expect("the hand was set within the ring just above");
            if slot.marked {
                slot.marked = false;
                self.hand += 1;
                continue;
            }
            self.bytes -= slot.weight;
            self.ring.swap_remove_index(self.hand);
            self.evictions += 1;
            return;
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.ring.len()
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn evictions(&self) -> u64 {
        self.evictions
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_hold_and_used_entries_stay() {
        let mut cache = Cache::new(4, 10_000);
        for key in 0..4_u8 {
            cache.insert(&[key], key, 10);
        }
        assert_eq!(cache.get(&[2]), Some(&2));
        cache.insert(&[9], 9, 10);
        assert_eq!(cache.len(), 4);
        assert_eq!(cache.evictions(), 1);
        assert_eq!(cache.get(&[2]), Some(&2), "what was used lately stays");
        cache.insert(&[8], 8, 9_000);
        assert!(cache.bytes() <= 10_000);
        cache.insert(&[7], 7, 20_000);
        assert_eq!(cache.get(&[7]), None, "too large to be kept");
    }

    #[test]
    fn replacing_an_entry_keeps_the_count_of_bytes() {
        let mut cache = Cache::new(4, 10_000);
        cache.insert(b"a", 1, 10);
        let bytes = cache.bytes();
        cache.insert(b"a", 2, 10);
        assert_eq!((cache.bytes(), cache.len(), cache.get(b"a")), (bytes, 1, Some(&2)));
    }
}
