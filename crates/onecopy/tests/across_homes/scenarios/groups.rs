//! Rows by predicate, keys that change, and groups of rows.

use crate::scenarios::Closeness::{Same, Waits};
use crate::scenarios::Scenario;

pub(crate) const GROUPS: &[Scenario] = &[
    (
        "a row by its predicate, three at it",
        Waits,
        &[
            "a begin",
            "b begin",
            "a update q set v = v + 1 where k = 1",
            "b update q set v = v + 2 where k = 2",
            "c update q set v = v * 10 where v > 20",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a moved key",
        Same,
        &[
            "a begin",
            "b begin",
            "a update q set k = 11 where k = 1",
            "b update q set v = v + 1 where k = 1",
            "a commit",
            "b update q set v = v + 1 where k = 11",
            "b commit",
        ],
    ),
    (
        "groups of rows apart",
        Same,
        &[
            "a begin",
            "b begin",
            "a delete from lines where a = 1",
            "b delete from lines where a = 2",
            "c insert into lines values (3, 1, 10)",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a group falls, a row of it changes",
        Same,
        &[
            "a begin",
            "a delete from lines where a = 1",
            "b update lines set c = 9 where a = 1 and b = 2",
            "a commit",
        ],
    ),
    (
        "a row changes, its group falls",
        Same,
        &[
            "b begin",
            "b update lines set c = 9 where a = 1 and b = 2",
            "a delete from lines where a = 1",
            "b commit",
        ],
    ),
    (
        "groups by different columns with a row in common",
        Same,
        &[
            "a begin",
            "a update lines set b = b + 5 where c = 20",
            "b update lines set c = c + 1 where a = 1",
            "a commit",
            "b select a, b, c from lines order by 1, 2",
        ],
    ),
    (
        "a group is locked, a row of it changes",
        Same,
        &[
            "a begin",
            "a select b from lines where a = 1 order by b for share",
            "b update lines set c = 9 where a = 1 and b = 2",
            "c delete from lines where a = 2",
            "a commit",
        ],
    ),
    (
        "a row comes into a group that falls",
        Waits,
        &[
            "a begin",
            "a delete from lines where a = 1",
            "b insert into lines values (1, 9, 90)",
            "a commit",
            "b select count(*) from lines where a = 1",
        ],
    ),
    (
        "a row moves into a group that falls",
        Waits,
        &[
            "b begin",
            "b update lines set a = 2 where a = 1 and b = 1",
            "a delete from lines where a = 2",
            "b commit",
        ],
    ),
];
