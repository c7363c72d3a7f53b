//! How a visitor of RUBiS moves from page to page: the published tables, as their client reads them.
//!
//! A row is a page and where it leads to, in ten thousandths. The published columns do not sum to 1; the client that
//! came with them cuts off what is beyond, in the order of the pages, and stays where it is for what is missing. That
//! is kept here, because the mixes that the literature reports are those of that client.

use crate::walk::Table;

/// 15 % of the pages write, says the literature; by this table 9 %.
#[rustfmt::skip]
pub(super) const BIDDING: Table = &[
    ("Home", &[("Register", 700), ("Browse", 7000), ("Sell", 500), ("AboutMeAuth", 1500), ("STAY", 300)]),
    ("Register", &[("Home", 1), ("RegisterUser", 9900), ("Browse", 58), ("Sell", 5), ("AboutMeAuth", 15), ("STAY", 21)]),
    ("RegisterUser", &[("Home", 100), ("Browse", 5800), ("Sell", 500), ("AboutMeAuth", 1500), ("END", 2000), ("STAY", 100)]),
    ("Browse", &[("Home", 1), ("Register", 100), ("BrowseCategories", 7000), ("BrowseRegions", 2899)]),
    ("BrowseCategories", &[("Home", 1), ("Register", 100), ("Browse", 58), ("SearchItemsInCategory", 9841)]),
    ("SearchItemsInCategory", &[("Home", 1), ("Register", 100), ("Browse", 58), ("SearchItemsInCategory", 4000), ("ViewItem", 5000), ("PutBidAuth", 841)]),
    ("BrowseRegions", &[("Home", 1), ("Register", 100), ("Browse", 58), ("BrowseCategoriesInRegion", 9841)]),
    ("BrowseCategoriesInRegion", &[("Home", 1), ("Register", 100), ("Browse", 58), ("SearchItemsInRegion", 9841)]),
    ("SearchItemsInRegion", &[("Home", 1), ("Register", 100), ("Browse", 58), ("SearchItemsInRegion", 4000), ("ViewItem", 5000), ("PutBidAuth", 841)]),
    ("ViewItem", &[("Home", 1), ("Register", 100), ("Browse", 58), ("ViewUserInfo", 1000), ("ViewBidHistory", 500), ("BuyNowAuth", 1000), ("PutBidAuth", 2200), ("PutComment", 200), ("Sell", 5), ("AboutMeAuth", 15), ("BACK", 4921)]),
    ("ViewUserInfo", &[("Home", 1), ("Register", 100), ("Browse", 58), ("ViewUserInfo", 1900), ("Sell", 5), ("AboutMeAuth", 15), ("BACK", 7921)]),
    ("ViewBidHistory", &[("Home", 1), ("Register", 100), ("Browse", 58), ("ViewUserInfo", 1900), ("Sell", 5), ("AboutMeAuth", 15), ("BACK", 7921)]),
    ("BuyNowAuth", &[("Home", 1), ("Register", 100), ("Browse", 58), ("BuyNow", 9841)]),
    ("BuyNow", &[("Home", 1), ("Register", 100), ("Browse", 58), ("StoreBuyNow", 9841)]),
    ("StoreBuyNow", &[("Home", 100), ("Register", 100), ("Browse", 5800), ("Sell", 500), ("AboutMeAuth", 1500), ("END", 2000)]),
    ("PutBidAuth", &[("Home", 1), ("Register", 100), ("Browse", 58), ("PutBid", 9841)]),
    ("PutBid", &[("Home", 1), ("Register", 100), ("Browse", 58), ("ViewUserInfo", 500), ("ViewBidHistory", 1500), ("StoreBid", 7400), ("PutComment", 441)]),
    ("StoreBid", &[("Home", 100), ("Register", 100), ("Browse", 5800), ("Sell", 500), ("AboutMeAuth", 1500), ("END", 2000)]),
    ("PutCommentAuth", &[("Home", 1), ("Register", 100), ("Browse", 58), ("PutComment", 9841)]),
    ("PutComment", &[("Home", 1), ("Register", 100), ("Browse", 58), ("StoreComment", 9841)]),
    ("StoreComment", &[("Home", 100), ("Register", 100), ("Browse", 5800), ("Sell", 500), ("AboutMeAuth", 1500), ("END", 2000)]),
    ("Sell", &[("Home", 1), ("Register", 100), ("Browse", 58), ("Sell", 5), ("SelectCategoryToSellItem", 9836)]),
    ("SelectCategoryToSellItem", &[("Home", 1), ("Register", 100), ("Browse", 58), ("Sell", 5), ("SellItemForm", 9836)]),
    ("SellItemForm", &[("Home", 1), ("Register", 100), ("Browse", 58), ("Sell", 5), ("RegisterItem", 9836)]),
    ("RegisterItem", &[("Home", 100), ("Register", 100), ("Browse", 5800), ("Sell", 500), ("AboutMeAuth", 1500), ("END", 2000)]),
    ("AboutMeAuth", &[("Home", 1), ("Register", 100), ("Browse", 58), ("Sell", 5), ("AboutMeAuth", 15), ("AboutMe", 9821)]),
    ("AboutMe", &[("Home", 20), ("Register", 100), ("Browse", 1160), ("ViewItem", 6500), ("ViewUserInfo", 500), ("PutBidAuth", 1000), ("Sell", 100), ("AboutMeAuth", 300), ("END", 320)]),
];

/// Nothing is written.
#[rustfmt::skip]
pub(super) const BROWSING: Table = &[
    ("Home", &[("Browse", 10000)]),
    ("Register", &[("Home", 5), ("RegisterUser", 9900), ("Browse", 75), ("STAY", 20)]),
    ("RegisterUser", &[("Home", 500), ("Browse", 7500), ("END", 2000)]),
    ("Browse", &[("Home", 5), ("BrowseCategories", 7000), ("BrowseRegions", 2900), ("STAY", 95)]),
    ("BrowseCategories", &[("Home", 5), ("Browse", 75), ("SearchItemsInCategory", 9900), ("STAY", 20)]),
    ("SearchItemsInCategory", &[("Home", 5), ("Browse", 75), ("SearchItemsInCategory", 4400), ("ViewItem", 5500), ("END", 20)]),
    ("BrowseRegions", &[("Home", 5), ("Browse", 75), ("BrowseCategoriesInRegion", 9900), ("STAY", 20)]),
    ("BrowseCategoriesInRegion", &[("Home", 5), ("Browse", 75), ("SearchItemsInRegion", 9900), ("STAY", 20)]),
    ("SearchItemsInRegion", &[("Home", 5), ("Browse", 75), ("SearchItemsInRegion", 4400), ("ViewItem", 5500), ("END", 20)]),
    ("ViewItem", &[("Home", 5), ("Browse", 75), ("ViewUserInfo", 1500), ("ViewBidHistory", 1000), ("BACK", 7400), ("END", 20)]),
    ("ViewUserInfo", &[("Home", 5), ("Browse", 75), ("ViewUserInfo", 1900), ("BACK", 8000), ("END", 20)]),
    ("ViewBidHistory", &[("Home", 5), ("Browse", 75), ("ViewUserInfo", 1900), ("BACK", 8000), ("STAY", 20)]),
    ("BuyNowAuth", &[("Home", 5), ("Browse", 75), ("BuyNow", 9900), ("STAY", 20)]),
    ("BuyNow", &[("Home", 5), ("Browse", 75), ("StoreBuyNow", 9900), ("STAY", 20)]),
    ("StoreBuyNow", &[("Home", 500), ("Browse", 7500), ("END", 2000)]),
    ("PutBidAuth", &[("Home", 5), ("Browse", 75), ("PutBid", 9900), ("STAY", 20)]),
    ("PutBid", &[("Home", 5), ("Browse", 75), ("ViewUserInfo", 500), ("ViewBidHistory", 1500), ("StoreBid", 7400), ("PutComment", 500), ("STAY", 20)]),
    ("StoreBid", &[("Home", 500), ("Browse", 7500), ("END", 2000)]),
    ("PutCommentAuth", &[("Home", 5), ("Browse", 75), ("PutComment", 9900), ("STAY", 20)]),
    ("PutComment", &[("Home", 5), ("Browse", 75), ("StoreComment", 9900), ("STAY", 20)]),
    ("StoreComment", &[("Home", 500), ("Browse", 7500), ("END", 2000)]),
    ("Sell", &[("Home", 5), ("Browse", 75), ("SelectCategoryToSellItem", 9900), ("STAY", 20)]),
    ("SelectCategoryToSellItem", &[("Home", 5), ("Browse", 75), ("SellItemForm", 9900), ("STAY", 20)]),
    ("SellItemForm", &[("Home", 5), ("Browse", 75), ("RegisterItem", 9900), ("STAY", 20)]),
    ("RegisterItem", &[("Home", 500), ("Browse", 7500), ("END", 2000)]),
    ("AboutMeAuth", &[("Home", 5), ("Browse", 75), ("AboutMe", 9900), ("STAY", 20)]),
    ("AboutMe", &[("Home", 100), ("Browse", 1500), ("ViewItem", 7500), ("ViewUserInfo", 500), ("END", 400)]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::tests::assert_shares;

    #[test]
    fn pages_are_visited_as_often_as_the_published_client_visits_them() {
        assert_shares(
            BIDDING,
            &[
                ("SearchItemsInCategory", 16.79),
                ("ViewItem", 16.33),
                ("Browse", 7.64),
                ("PutBid", 7.15),
                ("SearchItemsInRegion", 6.94),
                ("PutBidAuth", 5.86),
                ("BrowseCategories", 5.34),
                ("StoreBid", 5.29),
            ],
        );
        assert_shares(
            BROWSING,
            &[
                ("ViewItem", 35.2),
                ("SearchItemsInCategory", 34.81),
                ("SearchItemsInRegion", 13.24),
                ("ViewUserInfo", 9.9),
                ("ViewBidHistory", 4.36),
                ("Browse", 0.99),
                ("BrowseCategories", 0.7),
                ("BrowseRegions", 0.29),
            ],
        );
    }
}
