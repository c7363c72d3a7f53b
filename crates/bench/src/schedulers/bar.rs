//! The bars, and the order in which they take turns.

use std::fmt;

use super::site::Kind;

/// A bar of figure 10.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Bar {
    /// The paper's "unreliable".
    NotLogged,
    /// One node whose log is in files.
    Filed,
    /// Clients at so many of three nodes, whose log is on etcd.
    Nodes(u16),
}

impl Bar {
    /// From left to right.
    pub(super) const ALL: [Self; 5] =
        [Self::NotLogged, Self::Filed, Self::Nodes(1), Self::Nodes(2), Self::Nodes(3)];

    /// Its number, from 1.
    pub(super) fn number(self) -> u8 {
        match self {
            Self::NotLogged => 1,
            Self::Filed => 2,
            Self::Nodes(1) => 3,
            Self::Nodes(2) => 4,
            Self::Nodes(_) => 5,
        }
    }

    /// What it is measured on.
    pub(super) fn kind(self) -> Kind {
        match self {
            Self::NotLogged => Kind::NotLogged,
            Self::Filed => Kind::Filed,
            Self::Nodes(_) => Kind::Nodes,
        }
    }
}

impl fmt::Display for Bar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotLogged => f.write_str("not logged"),
            Self::Filed => f.write_str("log in files"),
            Self::Nodes(1) => f.write_str("log on etcd"),
            Self::Nodes(count) => write!(f, "{count} schedulers"),
        }
    }
}

/// The bars in the order of a round: each round begins with another one, and every second one goes backwards. So no bar always follows
/// the same one.
pub(super) fn turns(bars: &[Bar], round: u32) -> Vec<Bar> {
    let mut turns = bars.to_vec();
    let count = turns.len().max(1);
    turns.rotate_left(round as usize % count);
    if round.is_multiple_of(2) {
        turns.reverse();
    }
    turns
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_round_has_all_bars_in_another_order() {
        let numbers = |round| turns(&Bar::ALL, round).into_iter().map(Bar::number).collect::<Vec<_>>();
        assert_eq!(numbers(1), [2, 3, 4, 5, 1]);
        assert_eq!(numbers(2), [2, 1, 5, 4, 3]);
        assert_eq!(numbers(3), [4, 5, 1, 2, 3]);
        assert_eq!(turns(&[], 1), []);
    }
}
