//! Moves from page to page by a table, as the clients of RUBiS and RUBBoS make them.
//!
//! A page leads to others, back to the page before, to the end of the session, or nowhere. Pages from which one can go
//! back are remembered on a stack; a page from which one cannot empties it. After the end a new session begins on the
//! first page.

use sim::dice::Dice;

/// Pages, and where each leads to, in ten thousandths. BACK, END and STAY are moves.
pub(crate) type Table = &'static [(&'static str, &'static [(&'static str, u16)])];

/// Every row sums to this.
const PARTS: u64 = 10_000;
/// A session ends after so many moves.
const MOVES_MAX: u32 = 1_000;
const BACK: &str = "BACK";
const END: &str = "END";
const STAY: &str = "STAY";

/// A visitor who moves.
#[derive(Debug)]
pub(crate) struct Walk {
    table: Table,
    page: &'static str,
    before: Vec<&'static str>,
    moves: u32,
}

/// The result of a move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Moved {
    /// To a page within the session.
    On,
    /// To the first page of a new one.
    Anew,
}

impl Walk {
    /// On the first page.
    pub(crate) fn new(table: Table) -> Self {
        Self { table, page: table[0].0, before: Vec::new(), moves: 0 }
    }

    /// Where it is.
    pub(crate) fn page(&self) -> &'static str {
        self.page
    }

    /// Gives up the session.
    pub(crate) fn restart(&mut self) {
        *self = Self::new(self.table);
    }

    /// Moves.
    pub(crate) fn go(&mut self, dice: &mut Dice) -> Moved {
        self.moves += 1;
        let drawn = dice.below(PARTS);
        let mut sum = 0;
        let found = self.row(self.page).iter().find(|(_, parts)| {
            sum += u64::from(*parts);
            sum > drawn
        });
        let target = found.map_or(STAY, |(target, _)| *target);
        match target {
            _ if self.moves > MOVES_MAX => self.anew(),
            END => self.anew(),
            STAY => Moved::On,
            BACK => match self.before.pop() {
                Some(page) => {
                    self.page = page;
                    Moved::On
                }
                None => self.anew(),
            },
            page => {
                let leads_back = self.row(page).iter().any(|(target, _)| *target == BACK);
                if leads_back {
                    self.before.push(self.page);
                } else {
                    self.before.clear();
                }
                self.page = page;
                Moved::On
            }
        }
    }

    fn anew(&mut self) -> Moved {
        self.restart();
        Moved::Anew
    }

    fn row(&self, page: &str) -> &'static [(&'static str, u16)] {
        self.table.iter().find(|(known, _)| *known == page).map_or(&[], |(_, row)| *row)
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Rows are whole and lead to pages, and in the long run pages have these shares, in percent.
    pub(crate) fn assert_shares(table: Table, wanted: &[(&str, f64)]) {
        for (page, row) in table {
            assert_eq!(row.iter().map(|(_, parts)| u64::from(*parts)).sum::<u64>(), PARTS, "{page}");
            let is_known =
                |target: &str| [BACK, END, STAY].contains(&target) || table.iter().any(|(p, _)| *p == target);
            assert!(row.iter().all(|(target, _)| is_known(target)), "{page}");
        }
        let (mut walk, mut dice, mut seen) = (Walk::new(table), Dice::new(4), BTreeMap::new());
        let visits = 2_000_000;
        for _ in 0..visits {
            *seen.entry(walk.page()).or_insert(0_u32) += 1;
            walk.go(&mut dice);
        }
        for (page, percent) in wanted {
            let share = f64::from(seen.get(page).copied().unwrap_or_default()) * 100.0 / f64::from(visits);
            assert!((share - percent).abs() < 1.0, "{page}: {share:.2} and not {percent}");
        }
    }

    #[test]
    fn one_goes_back_the_way_one_came() {
        const TABLE: Table =
            &[("a", &[("b", 10_000)]), ("b", &[("c", 10_000), (BACK, 0)]), ("c", &[(BACK, 10_000)])];
        let (mut walk, mut dice) = (Walk::new(TABLE), Dice::new(1));
        let mut pages = Vec::new();
        for _ in 0..4 {
            pages.push(walk.page());
            walk.go(&mut dice);
        }
        assert_eq!(pages, ["a", "b", "c", "b"]);
        walk.restart();
        assert_eq!(walk.page(), "a");
    }
}
