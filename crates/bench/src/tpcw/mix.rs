//! The three mixes: where a browser goes from where it is.
//!
//! For each interaction, an upper threshold for each next one: a number is drawn from 1 to 9,999, and the first of them
//! whose threshold is not 0 and not below it is next. The tables are those of the specification as `workloads/tpcw.md`
//! found them in published implementations; in the shopping mix SHOP goes HOME up to 9,552, because the 9,992 that some
//! of them have does not give the specified shares.

use clap::ValueEnum;
use sim::dice::Dice;

/// Every row ends with this.
const DRAWN_MAX: u64 = 9_999;
/// How many interactions there are.
pub(super) const COUNT: usize = 14;

/// The interactions, in the order of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Page {
    AdminConfirm,
    AdminRequest,
    BestSellers,
    BuyConfirm,
    BuyRequest,
    CustomerRegistration,
    Home,
    NewProducts,
    OrderDisplay,
    OrderInquiry,
    ProductDetail,
    SearchRequest,
    SearchResults,
    ShoppingCart,
}

/// All of them.
pub(super) const PAGES: [Page; COUNT] = [
    Page::AdminConfirm,
    Page::AdminRequest,
    Page::BestSellers,
    Page::BuyConfirm,
    Page::BuyRequest,
    Page::CustomerRegistration,
    Page::Home,
    Page::NewProducts,
    Page::OrderDisplay,
    Page::OrderInquiry,
    Page::ProductDetail,
    Page::SearchRequest,
    Page::SearchResults,
    Page::ShoppingCart,
];

impl Page {
    /// Its usual short name.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::AdminConfirm => "ADMC",
            Self::AdminRequest => "ADMR",
            Self::BestSellers => "BESS",
            Self::BuyConfirm => "BUYC",
            Self::BuyRequest => "BUYR",
            Self::CustomerRegistration => "CREG",
            Self::Home => "HOME",
            Self::NewProducts => "NEWP",
            Self::OrderDisplay => "ORDD",
            Self::OrderInquiry => "ORDI",
            Self::ProductDetail => "PROD",
            Self::SearchRequest => "SREQ",
            Self::SearchResults => "SRES",
            Self::ShoppingCart => "SHOP",
        }
    }

    /// Seconds that nine in ten of them may take.
    pub(super) fn limit_s(self) -> u64 {
        match self {
            Self::AdminConfirm => 20,
            Self::SearchResults => 10,
            Self::NewProducts | Self::BestSellers | Self::BuyConfirm => 5,
            _ => 3,
        }
    }

    /// Whether it counts as browsing, not as ordering.
    #[cfg(test)]
    pub(super) fn is_browsing(self) -> bool {
        matches!(
            self,
            Self::Home
                | Self::NewProducts
                | Self::BestSellers
                | Self::ProductDetail
                | Self::SearchRequest
                | Self::SearchResults
        )
    }
}

/// A mix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Mix {
    /// 95 % browsing: WIPSb.
    Browsing,
    /// 80 % browsing: WIPS.
    Shopping,
    /// 50 % browsing: WIPSo.
    Ordering,
}

impl Mix {
    /// In lower case.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Browsing => "browsing",
            Self::Shopping => "shopping",
            Self::Ordering => "ordering",
        }
    }

    /// Draws where a browser goes.
    pub(super) fn next(self, from: Page, dice: &mut Dice) -> Page {
        let drawn = 1 + dice.below(DRAWN_MAX);
        let row = &self.table()[from as usize];
        let found = PAGES.iter().zip(row).find(|(_, threshold)| u64::from(**threshold) >= drawn);
        found.map_or(Page::Home, |(page, _)| *page)
    }

    fn table(self) -> &'static [[u16; COUNT]; COUNT] {
        match self {
            Self::Browsing => &BROWSING,
            Self::Shopping => &SHOPPING,
            Self::Ordering => &ORDERING,
        }
    }
}

#[rustfmt::skip]
const BROWSING: [[u16; COUNT]; COUNT] = [
    [0, 0, 0, 0, 0, 0, 9877, 0, 0, 0, 0, 9999, 0, 0], // ADMC
    [8999, 0, 0, 0, 0, 0, 9999, 0, 0, 0, 0, 0, 0, 0], // ADMR
    [0, 0, 0, 0, 0, 0, 4607, 0, 0, 0, 5259, 9942, 0, 9999], // BESS
    [0, 0, 0, 0, 0, 0, 342, 0, 0, 0, 0, 9999, 0, 0], // BUYC
    [0, 0, 0, 9199, 0, 0, 9595, 0, 0, 0, 0, 0, 0, 9999], // BUYR
    [0, 0, 0, 0, 9145, 0, 9619, 0, 0, 0, 0, 9999, 0, 0], // CREG
    [0, 0, 3792, 0, 0, 0, 0, 7585, 0, 7688, 0, 9559, 0, 9999], // HOME
    [0, 0, 0, 0, 0, 0, 299, 0, 0, 0, 9867, 9941, 0, 9999], // NEWP
    [0, 0, 0, 0, 0, 0, 802, 0, 0, 0, 0, 9999, 0, 0], // ORDD
    [0, 0, 0, 0, 0, 0, 523, 0, 8856, 0, 0, 9999, 0, 0], // ORDI
    [0, 47, 0, 0, 0, 0, 8346, 0, 0, 0, 9749, 9890, 0, 9999], // PROD
    [0, 0, 0, 0, 0, 0, 788, 0, 0, 0, 0, 0, 9955, 9999], // SREQ
    [0, 0, 0, 0, 0, 0, 3674, 0, 0, 0, 9868, 9942, 0, 9999], // SRES
    [0, 0, 0, 0, 0, 4099, 8883, 0, 0, 0, 0, 0, 0, 9999], // SHOP
];

#[rustfmt::skip]
const SHOPPING: [[u16; COUNT]; COUNT] = [
    [0, 0, 0, 0, 0, 0, 9952, 0, 0, 0, 0, 9999, 0, 0], // ADMC
    [8999, 0, 0, 0, 0, 0, 9999, 0, 0, 0, 0, 0, 0, 0], // ADMR
    [0, 0, 0, 0, 0, 0, 167, 0, 0, 0, 472, 9927, 0, 9999], // BESS
    [0, 0, 0, 0, 0, 0, 84, 0, 0, 0, 0, 9999, 0, 0], // BUYC
    [0, 0, 0, 4614, 0, 0, 6546, 0, 0, 0, 0, 0, 0, 9999], // BUYR
    [0, 0, 0, 0, 8666, 0, 8760, 0, 0, 0, 0, 9999, 0, 0], // CREG
    [0, 0, 3124, 0, 0, 0, 0, 6249, 0, 6718, 0, 7026, 0, 9999], // HOME
    [0, 0, 0, 0, 0, 0, 156, 0, 0, 0, 9735, 9784, 0, 9999], // NEWP
    [0, 0, 0, 0, 0, 0, 69, 0, 0, 0, 0, 9999, 0, 0], // ORDD
    [0, 0, 0, 0, 0, 0, 72, 0, 8872, 0, 0, 9999, 0, 0], // ORDI
    [0, 58, 0, 0, 0, 0, 832, 0, 0, 0, 1288, 8603, 0, 9999], // PROD
    [0, 0, 0, 0, 0, 0, 635, 0, 0, 0, 0, 0, 9135, 9999], // SREQ
    [0, 0, 0, 0, 0, 0, 2657, 0, 0, 0, 9294, 9304, 0, 9999], // SRES
    [0, 0, 0, 0, 0, 2585, 9552, 0, 0, 0, 0, 0, 0, 9999], // SHOP
];

#[rustfmt::skip]
const ORDERING: [[u16; COUNT]; COUNT] = [
    [0, 0, 0, 0, 0, 0, 8348, 0, 0, 0, 0, 9999, 0, 0], // ADMC
    [8999, 0, 0, 0, 0, 0, 9999, 0, 0, 0, 0, 0, 0, 0], // ADMR
    [0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 333, 9998, 0, 9999], // BESS
    [0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 9999, 0, 0], // BUYC
    [0, 0, 0, 7999, 0, 0, 9453, 0, 0, 0, 0, 0, 0, 9999], // BUYR
    [0, 0, 0, 0, 9899, 0, 9901, 0, 0, 0, 0, 9999, 0, 0], // CREG
    [0, 0, 499, 0, 0, 0, 0, 999, 0, 1269, 0, 1295, 0, 9999], // HOME
    [0, 0, 0, 0, 0, 0, 504, 0, 0, 0, 9942, 9976, 0, 9999], // NEWP
    [0, 0, 0, 0, 0, 0, 9939, 0, 0, 0, 0, 9999, 0, 0], // ORDD
    [0, 0, 0, 0, 0, 0, 1168, 0, 9968, 0, 0, 9999, 0, 0], // ORDI
    [0, 99, 0, 0, 0, 0, 3750, 0, 0, 0, 5621, 6341, 0, 9999], // PROD
    [0, 0, 0, 0, 0, 0, 815, 0, 0, 0, 0, 0, 9815, 9999], // SREQ
    [0, 0, 0, 0, 0, 0, 486, 0, 0, 0, 7817, 9998, 0, 9999], // SRES
    [0, 0, 0, 0, 0, 9499, 9918, 0, 0, 0, 0, 0, 0, 9999], // SHOP
];

#[cfg(test)]
mod tests {
    use super::*;

    /// The shares in the specification, in percent, in the order of the tables.
    const TARGETS: [(Mix, [f64; COUNT]); 3] = [
        (
            Mix::Browsing,
            [0.09, 0.10, 11.00, 0.69, 0.75, 0.82, 29.00, 11.00, 0.25, 0.30, 21.00, 12.00, 11.00, 2.00],
        ),
        (
            Mix::Shopping,
            [0.09, 0.10, 5.00, 1.20, 2.60, 3.00, 16.00, 5.00, 0.66, 0.75, 17.00, 20.00, 17.00, 11.60],
        ),
        (
            Mix::Ordering,
            [0.11, 0.12, 0.46, 10.18, 12.73, 12.86, 9.12, 0.46, 0.22, 0.25, 12.35, 14.53, 13.08, 13.53],
        ),
    ];

    /// The shares in the long run, by going on from anywhere for long.
    fn shares(mix: Mix) -> [f64; COUNT] {
        let mut shares = [1.0 / COUNT as f64; COUNT];
        for _ in 0..5_000 {
            let mut next = [0.0; COUNT];
            for (share, row) in shares.iter().zip(mix.table()) {
                let mut below = 0;
                for (sum, threshold) in next.iter_mut().zip(row).filter(|(_, threshold)| **threshold > 0) {
                    *sum += share * f64::from(threshold - below) / DRAWN_MAX as f64;
                    below = *threshold;
                }
                assert_eq!(u64::from(below), DRAWN_MAX, "every row must end there");
            }
            shares = next;
        }
        shares
    }

    #[test]
    fn the_shares_in_the_long_run_are_those_of_the_specification() {
        for (mix, targets) in TARGETS {
            for ((page, share), target) in PAGES.iter().zip(shares(mix)).zip(targets) {
                assert!((share * 100.0 - target).abs() < 0.006, "{mix:?} {page:?}: {share} {target}");
            }
        }
    }

    #[test]
    fn what_is_drawn_has_these_shares() {
        for (mix, targets) in TARGETS {
            let (mut dice, mut page, mut seen) = (Dice::new(9), Page::Home, [0_u32; COUNT]);
            for _ in 0..400_000 {
                page = mix.next(page, &mut dice);
                seen[page as usize] += 1;
            }
            for ((page, seen), target) in PAGES.iter().zip(seen).zip(targets) {
                assert!(
                    (f64::from(seen) / 4_000.0 - target).abs() < 0.5,
                    "{mix:?} {page:?}: {seen} {target}"
                );
            }
            let browsing: u32 =
                PAGES.iter().zip(seen).filter(|(page, _)| page.is_browsing()).map(|(_, n)| n).sum();
            let wanted = [95.0, 80.0, 50.0][mix as usize];
            assert!((f64::from(browsing) / 4_000.0 - wanted).abs() < 1.0, "{mix:?}: {browsing}");
        }
    }
}
