//! How a visitor of RUBBoS moves from page to page: the published tables, as their client reads them.
//!
//! A row is a page and where it leads to, in ten thousandths. The published columns do not sum to 1; the client that
//! came with them cuts off what is beyond, in the order of the pages, and stays where it is for what is missing. That
//! is kept here, because the mixes that the literature reports are those of that client.

use crate::walk::Table;

/// Visitors who read, comment and submit.
#[rustfmt::skip]
pub(super) const USER: Table = &[
    ("StoriesOfTheDay", &[("Register", 300), ("Browse", 1200), ("ViewStory", 6000), ("SubmitStory", 600), ("Search", 900), ("END", 1000)]),
    ("Register", &[("RegisterUser", 9900), ("Browse", 40), ("SubmitStory", 20), ("Search", 30), ("STAY", 10)]),
    ("RegisterUser", &[("StoriesOfTheDay", 2000), ("Register", 700), ("Browse", 2800), ("SubmitStory", 1400), ("Search", 2100), ("END", 1000)]),
    ("Browse", &[("StoriesOfTheDay", 1900), ("Register", 10), ("Browse", 40), ("BrowseCategories", 4000), ("OlderStories", 4000), ("SubmitStory", 20), ("Search", 30)]),
    ("BrowseCategories", &[("Register", 10), ("Browse", 40), ("BrowseStoriesInCategory", 9900), ("SubmitStory", 20), ("Search", 30)]),
    ("BrowseStoriesInCategory", &[("StoriesOfTheDay", 1000), ("Register", 10), ("Browse", 40), ("BrowseStoriesInCategory", 3000), ("ViewStory", 4400), ("SubmitStory", 20), ("Search", 30), ("BACK", 1000), ("END", 500)]),
    ("OlderStories", &[("StoriesOfTheDay", 1000), ("Register", 10), ("Browse", 40), ("OlderStories", 3500), ("ViewStory", 4900), ("SubmitStory", 20), ("Search", 30), ("END", 500)]),
    ("ViewStory", &[("StoriesOfTheDay", 1000), ("Register", 10), ("Browse", 40), ("PostComment", 2500), ("ViewComment", 3900), ("SubmitStory", 20), ("Search", 30), ("BACK", 1500), ("END", 1000)]),
    ("PostComment", &[("Register", 10), ("Browse", 40), ("StoreComment", 9900), ("SubmitStory", 20), ("Search", 30)]),
    ("StoreComment", &[("StoriesOfTheDay", 2000), ("Register", 700), ("Browse", 2800), ("SubmitStory", 1400), ("Search", 2100), ("END", 1000)]),
    ("ViewComment", &[("StoriesOfTheDay", 1000), ("Register", 10), ("Browse", 40), ("PostComment", 2500), ("ViewComment", 3400), ("SubmitStory", 20), ("Search", 30), ("BACK", 2000), ("END", 1000)]),
    ("ModerateComment", &[("StoriesOfTheDay", 100), ("Register", 10), ("Browse", 40), ("StoreModeratorLog", 9800), ("SubmitStory", 20), ("Search", 30)]),
    ("StoreModeratorLog", &[("StoriesOfTheDay", 2000), ("Register", 700), ("Browse", 2800), ("SubmitStory", 1400), ("Search", 2100), ("END", 1000)]),
    ("SubmitStory", &[("StoriesOfTheDay", 100), ("Register", 10), ("Browse", 40), ("SubmitStory", 1400), ("StoreStory", 8450)]),
    ("StoreStory", &[("StoriesOfTheDay", 2000), ("Register", 700), ("Browse", 2800), ("SubmitStory", 1400), ("Search", 2100), ("END", 1000)]),
    ("Search", &[("StoriesOfTheDay", 1000), ("Register", 10), ("Browse", 40), ("SubmitStory", 20), ("SearchInStories", 5000), ("SearchInComments", 3000), ("SearchInUsers", 900), ("STAY", 30)]),
    ("SearchInStories", &[("StoriesOfTheDay", 1000), ("Register", 10), ("Browse", 40), ("ViewStory", 4900), ("SubmitStory", 20), ("Search", 30), ("SearchInStories", 3000), ("END", 1000)]),
    ("SearchInComments", &[("StoriesOfTheDay", 1000), ("Register", 10), ("Browse", 40), ("ViewComment", 4900), ("SubmitStory", 20), ("Search", 30), ("SearchInComments", 3000), ("END", 1000)]),
    ("SearchInUsers", &[("StoriesOfTheDay", 1000), ("Register", 10), ("Browse", 40), ("ViewStory", 4900), ("SubmitStory", 20), ("Search", 30), ("SearchInUsers", 3000), ("END", 1000)]),
    ("AuthorLogin", &[("StoriesOfTheDay", 100), ("Register", 10), ("Browse", 40), ("SubmitStory", 20), ("Search", 30), ("AuthorTasks", 9800)]),
    ("AuthorTasks", &[("StoriesOfTheDay", 100), ("Register", 10), ("Browse", 40), ("SubmitStory", 20), ("Search", 30), ("ReviewStories", 9800)]),
    ("ReviewStories", &[("StoriesOfTheDay", 1000), ("Register", 10), ("Browse", 40), ("SubmitStory", 20), ("Search", 30), ("AcceptStory", 5000), ("RejectStory", 2900), ("END", 1000)]),
    ("AcceptStory", &[("StoriesOfTheDay", 2000), ("Register", 400), ("Browse", 1600), ("SubmitStory", 800), ("Search", 1200), ("BACK", 3500), ("END", 500)]),
    ("RejectStory", &[("StoriesOfTheDay", 2000), ("Register", 400), ("Browse", 1600), ("SubmitStory", 800), ("Search", 1200), ("BACK", 3500), ("END", 500)]),
];

/// Authors, who moderate and review besides.
#[rustfmt::skip]
pub(super) const AUTHOR: Table = &[
    ("StoriesOfTheDay", &[("Browse", 900), ("ViewStory", 6000), ("SubmitStory", 300), ("Search", 600), ("AuthorLogin", 1200), ("END", 1000)]),
    ("Register", &[("RegisterUser", 9900), ("Browse", 30), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40)]),
    ("RegisterUser", &[("StoriesOfTheDay", 2000), ("Browse", 2100), ("SubmitStory", 700), ("Search", 1400), ("AuthorLogin", 2800), ("END", 1000)]),
    ("Browse", &[("StoriesOfTheDay", 1900), ("Browse", 30), ("BrowseCategories", 4000), ("OlderStories", 4000), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40)]),
    ("BrowseCategories", &[("Browse", 30), ("BrowseStoriesInCategory", 9900), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40)]),
    ("BrowseStoriesInCategory", &[("StoriesOfTheDay", 1000), ("Browse", 30), ("BrowseStoriesInCategory", 3000), ("ViewStory", 4400), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40), ("BACK", 1000), ("END", 500)]),
    ("OlderStories", &[("StoriesOfTheDay", 1000), ("Browse", 30), ("OlderStories", 3500), ("ViewStory", 4900), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40), ("END", 500)]),
    ("ViewStory", &[("StoriesOfTheDay", 1000), ("Browse", 30), ("PostComment", 1000), ("ViewComment", 2900), ("ModerateComment", 2500), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40), ("BACK", 1500), ("END", 1000)]),
    ("PostComment", &[("Browse", 30), ("StoreComment", 9900), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40)]),
    ("StoreComment", &[("StoriesOfTheDay", 2000), ("Browse", 2100), ("SubmitStory", 700), ("Search", 1400), ("AuthorLogin", 2800), ("END", 1000)]),
    ("ViewComment", &[("StoriesOfTheDay", 1000), ("Browse", 30), ("PostComment", 1000), ("ViewComment", 2400), ("ModerateComment", 2500), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40), ("BACK", 2000), ("END", 1000)]),
    ("ModerateComment", &[("StoriesOfTheDay", 100), ("Browse", 30), ("StoreModeratorLog", 9800), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40)]),
    ("StoreModeratorLog", &[("StoriesOfTheDay", 2000), ("Browse", 2100), ("SubmitStory", 700), ("Search", 1400), ("AuthorLogin", 2800), ("END", 1000)]),
    ("SubmitStory", &[("StoriesOfTheDay", 100), ("Browse", 30), ("SubmitStory", 700), ("StoreStory", 9170)]),
    ("StoreStory", &[("StoriesOfTheDay", 2000), ("Browse", 2100), ("SubmitStory", 700), ("Search", 1400), ("AuthorLogin", 2800), ("END", 1000)]),
    ("Search", &[("StoriesOfTheDay", 1000), ("Browse", 30), ("SubmitStory", 10), ("SearchInStories", 5000), ("SearchInComments", 3000), ("SearchInUsers", 900), ("AuthorLogin", 40), ("STAY", 20)]),
    ("SearchInStories", &[("StoriesOfTheDay", 1000), ("Browse", 30), ("ViewStory", 4900), ("SubmitStory", 10), ("Search", 20), ("SearchInStories", 3000), ("AuthorLogin", 40), ("END", 1000)]),
    ("SearchInComments", &[("StoriesOfTheDay", 1000), ("Browse", 30), ("ViewComment", 4900), ("SubmitStory", 10), ("Search", 20), ("SearchInComments", 3000), ("AuthorLogin", 40), ("END", 1000)]),
    ("SearchInUsers", &[("StoriesOfTheDay", 1000), ("Browse", 30), ("ViewStory", 4900), ("SubmitStory", 10), ("Search", 20), ("SearchInUsers", 3000), ("AuthorLogin", 40), ("END", 1000)]),
    ("AuthorLogin", &[("StoriesOfTheDay", 100), ("Browse", 30), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40), ("AuthorTasks", 9800)]),
    ("AuthorTasks", &[("StoriesOfTheDay", 100), ("Browse", 30), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40), ("ReviewStories", 9800)]),
    ("ReviewStories", &[("StoriesOfTheDay", 1000), ("Browse", 30), ("SubmitStory", 10), ("Search", 20), ("AuthorLogin", 40), ("AcceptStory", 5000), ("RejectStory", 2900), ("END", 1000)]),
    ("AcceptStory", &[("StoriesOfTheDay", 2000), ("Browse", 1200), ("SubmitStory", 400), ("Search", 800), ("AuthorLogin", 1600), ("BACK", 3500), ("END", 500)]),
    ("RejectStory", &[("StoriesOfTheDay", 2000), ("Browse", 1200), ("SubmitStory", 400), ("Search", 800), ("AuthorLogin", 1600), ("BACK", 3500), ("END", 500)]),
];

/// Nothing is written.
#[rustfmt::skip]
pub(super) const BROWSING: Table = &[
    ("StoriesOfTheDay", &[("Browse", 1500), ("ViewStory", 6000), ("Search", 1500), ("END", 1000)]),
    ("Register", &[("STAY", 10000)]),
    ("RegisterUser", &[("END", 1000), ("STAY", 9000)]),
    ("Browse", &[("StoriesOfTheDay", 1900), ("BrowseCategories", 4000), ("OlderStories", 4000), ("Search", 50), ("STAY", 50)]),
    ("BrowseCategories", &[("Browse", 50), ("BrowseStoriesInCategory", 9900), ("Search", 50)]),
    ("BrowseStoriesInCategory", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("BrowseStoriesInCategory", 3000), ("ViewStory", 4400), ("Search", 50), ("BACK", 1000), ("END", 500)]),
    ("OlderStories", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("OlderStories", 3500), ("ViewStory", 4900), ("Search", 50), ("END", 500)]),
    ("ViewStory", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("ViewComment", 4900), ("Search", 50), ("BACK", 3000), ("END", 1000)]),
    ("PostComment", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("StoreComment", 8950)]),
    ("StoreComment", &[("StoriesOfTheDay", 1000), ("Browse", 5000), ("Search", 4000)]),
    ("ViewComment", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("ViewComment", 3000), ("Search", 50), ("BACK", 5000), ("END", 900)]),
    ("ModerateComment", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("StoreModeratorLog", 8900), ("Search", 50)]),
    ("StoreModeratorLog", &[("StoriesOfTheDay", 1000), ("Browse", 5000), ("Search", 4000)]),
    ("SubmitStory", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("StoreStory", 8900), ("Search", 50)]),
    ("StoreStory", &[("StoriesOfTheDay", 1000), ("Browse", 5000), ("Search", 4000)]),
    ("Search", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("SearchInStories", 5000), ("SearchInComments", 3000), ("SearchInUsers", 900), ("STAY", 50)]),
    ("SearchInStories", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("ViewStory", 4900), ("Search", 50), ("SearchInStories", 3000), ("END", 1000)]),
    ("SearchInComments", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("ViewComment", 4900), ("Search", 50), ("SearchInComments", 3000), ("END", 1000)]),
    ("SearchInUsers", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("ViewStory", 4900), ("Search", 50), ("SearchInUsers", 3000), ("END", 1000)]),
    ("AuthorLogin", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("Search", 50), ("AuthorTasks", 8900)]),
    ("AuthorTasks", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("Search", 50), ("ReviewStories", 8900)]),
    ("ReviewStories", &[("StoriesOfTheDay", 1000), ("Browse", 50), ("Search", 50), ("AcceptStory", 5000), ("RejectStory", 3900)]),
    ("AcceptStory", &[("StoriesOfTheDay", 1000), ("Browse", 5000), ("Search", 4000)]),
    ("RejectStory", &[("StoriesOfTheDay", 1000), ("Browse", 5000), ("Search", 4000)]),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::walk::tests::assert_shares;

    #[test]
    fn pages_are_visited_as_often_as_the_published_client_visits_them() {
        assert_shares(
            USER,
            &[
                ("ViewStory", 17.71),
                ("StoriesOfTheDay", 17.36),
                ("ViewComment", 13.61),
                ("PostComment", 7.76),
                ("StoreComment", 7.68),
                ("Browse", 5.71),
                ("Search", 4.27),
                ("BrowseStoriesInCategory", 4.26),
            ],
        );
        assert_shares(
            AUTHOR,
            &[
                ("StoriesOfTheDay", 16.23),
                ("ViewStory", 14.8),
                ("ReviewStories", 7.55),
                ("ViewComment", 6.95),
                ("AuthorLogin", 5.68),
                ("AuthorTasks", 5.57),
                ("ModerateComment", 5.47),
                ("StoreModeratorLog", 5.36),
            ],
        );
        assert_shares(
            BROWSING,
            &[
                ("ViewComment", 27.82),
                ("ViewStory", 26.63),
                ("StoriesOfTheDay", 22.06),
                ("SearchInStories", 3.84),
                ("Search", 3.74),
                ("Browse", 3.72),
                ("BrowseStoriesInCategory", 3.58),
                ("OlderStories", 3.35),
            ],
        );
    }
}
