//! Limits the connections whose clients have not authenticated.
//!
//! Any peer can open such a connection, and each costs a descriptor and memory. When one exceeds the limit, another
//! is cut: the oldest of the address that has the most. A client that proceeds with its log-in needs milliseconds. So
//! it gets in beside thousands of idle connections, even if a proxy gives all of them one address.
//!
//! Invariant: the limits hold at all times, both for one address and for all together.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use crate::config::runtime::LoginLimits;

/// An IPv6 host or site chooses these low bits of its address itself.
const OWN_BITS: u32 = 64;

/// The connections that have not authenticated.
#[derive(Debug, Default)]
pub(crate) struct HalfOpen {
    slots: Mutex<Slots>,
}

#[derive(Debug, Default)]
struct Slots {
    /// Cancels a connection: by address, then in order of arrival. No entry is empty.
    waiting: BTreeMap<Origin, BTreeMap<u64, Arc<Notify>>>,
    count: usize,
    next: u64,
    cut: u64,
}

/// The unit that the limit of one address counts: an IPv4 address, an IPv6 network, or `None` for Unix sockets.
type Origin = Option<IpAddr>;

impl HalfOpen {
    /// Registers a connection, and cuts others if there are too many now.
    pub(crate) fn enter(self: &Arc<Self>, address: Option<IpAddr>, limits: LoginLimits) -> LoginSlot {
        let (origin, cut) = (address.map(network), Arc::new(Notify::new()));
        let mut slots = self.slots();
        let number = slots.next;
        slots.next += 1;
        slots.count += 1;
        let of_origin = slots.waiting.entry(origin).or_default();
        of_origin.insert(number, Arc::clone(&cut));
        if of_origin.len() > limits.address_max {
            slots.cut_oldest(origin);
        }
        while slots.count > limits.total_max {
            slots.cut_one();
        }
        drop(slots);
        LoginSlot { half_open: Arc::clone(self), origin, number, cut }
    }

    /// Cuts up to `count` connections, because descriptors ran out.
    pub(crate) fn make_room(&self, count: usize) {
        let mut slots = self.slots();
        (0..count.min(slots.count)).for_each(|_| slots.cut_one());
    }

    /// Number of connections, and number of those that were cut so far.
    pub(crate) fn counts(&self) -> (usize, u64) {
        let slots = self.slots();
        (slots.count, slots.cut)
    }

    fn slots(&self) -> MutexGuard<'_, Slots> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Slots {
    fn cut_one(&mut self) {
        // Among addresses with equally many, take the one whose oldest connection has waited longest.
        let oldest = |of_origin: &BTreeMap<u64, _>| Reverse(of_origin.keys().next().copied());
        let fullest = self.waiting.iter().max_by_key(|(_, of_origin)| (of_origin.len(), oldest(of_origin)));
        if let Some(origin) = fullest.map(|(origin, _)| *origin) {
            self.cut_oldest(origin);
        }
    }

    fn cut_oldest(&mut self, origin: Origin) {
        let oldest = self.waiting.get(&origin).and_then(|of_origin| of_origin.keys().next().copied());
        if let Some(cut) = oldest.and_then(|number| self.remove(origin, number)) {
            cut.notify_one();
            self.cut += 1;
        }
    }

    fn remove(&mut self, origin: Origin, number: u64) -> Option<Arc<Notify>> {
        let of_origin = self.waiting.get_mut(&origin)?;
        let removed = of_origin.remove(&number)?;
        if of_origin.is_empty() {
            self.waiting.remove(&origin);
        }
        self.count -= 1;
        Some(removed)
    }
}

/// The place of one connection, until its client has authenticated.
#[derive(Debug)]
pub(crate) struct LoginSlot {
    half_open: Arc<HalfOpen>,
    origin: Origin,
    number: u64,
    cut: Arc<Notify>,
}

impl LoginSlot {
    /// Returns when the connection is cut.
    pub(crate) async fn is_cut(&self) {
        self.cut.notified().await;
    }
}

impl Drop for LoginSlot {
    fn drop(&mut self) {
        self.half_open.slots().remove(self.origin, self.number);
    }
}

fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> OWN_BITS << OWN_BITS)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: LoginLimits = LoginLimits { total_max: 6, address_max: 4 };

    fn address(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn is_cut(place: &LoginSlot) -> bool {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        std::pin::pin!(place.is_cut()).poll(&mut context).is_ready()
    }

    fn enter(half_open: &Arc<HalfOpen>, text: &str, count: usize) -> Vec<LoginSlot> {
        (0..count).map(|_| half_open.enter(Some(address(text)), LIMITS)).collect()
    }

    #[test]
    fn the_oldest_of_the_address_with_the_most_is_cut() {
        let half_open = Arc::new(HalfOpen::default());
        let few = enter(&half_open, "10.0.0.1", 2);
        let many = enter(&half_open, "10.0.0.2", 4);
        assert!(few.iter().chain(&many).all(|place| !is_cut(place)));
        let late = enter(&half_open, "10.0.0.3", 1);
        let cut = |places: &[LoginSlot]| places.iter().map(is_cut).collect::<Vec<_>>();
        assert_eq!(cut(&many), [true, false, false, false]);
        assert_eq!((cut(&few), cut(&late)), (vec![false, false], vec![false]));
        assert_eq!(half_open.counts(), (6, 1));
        // The same address may open more: its own connections are cut.
        let same = enter(&half_open, "10.0.0.2", 1);
        assert_eq!((is_cut(&many[1]), is_cut(&same[0])), (true, false));
        half_open.make_room(100);
        assert_eq!(half_open.counts(), (0, 8));
        assert!(few.iter().chain(&late).chain(&same).all(is_cut));
        drop((few, many, late, same));
        assert_eq!(half_open.counts(), (0, 8));
    }

    #[test]
    fn one_address_has_a_limit_of_its_own() {
        let half_open = Arc::new(HalfOpen::default());
        let places = enter(&half_open, "10.0.0.1", 5);
        assert!(is_cut(&places[0]) && !is_cut(&places[1]));
        assert_eq!(half_open.counts(), (4, 1));
        drop(places);
        assert_eq!(half_open.counts(), (0, 1));
        assert!(half_open.slots().waiting.is_empty());
    }

    #[test]
    fn whoever_has_most_addresses_loses_the_oldest() {
        let half_open = Arc::new(HalfOpen::default());
        let places: Vec<_> =
            (1..8).map(|n| half_open.enter(Some(address(&format!("10.0.0.{n}"))), LIMITS)).collect();
        assert!(is_cut(&places[0]) && places[1..].iter().all(|place| !is_cut(place)));
    }

    #[test]
    fn addresses_of_one_network_are_one() {
        let same = |one: &str, other: &str| network(address(one)) == network(address(other));
        assert!(same("::ffff:10.0.0.1", "10.0.0.1"));
        assert!(same("2001:db8:1:2::1", "2001:db8:1:2:ffff::9"));
        assert!(!same("2001:db8:1:2::1", "2001:db8:1:3::1"));
        assert!(!same("10.0.0.1", "10.0.0.2"));
    }
}
