//! Parents and the rows that refer to them.

use crate::scenarios::Closeness::{Same, Waits};
use crate::scenarios::Scenario;

pub(crate) const REFERENCES: &[Scenario] = &[
    (
        "a parent falls, a child changes",
        Same,
        &["a begin", "a delete from p where k = 1", "b update falls set v = 9 where k = 1", "a commit"],
    ),
    (
        "a parent falls, and does not",
        Same,
        &["a begin", "a delete from p where k = 1", "b update falls set v = 9 where k = 1", "a rollback"],
    ),
    (
        "a child changes, its parent falls",
        Same,
        &["b begin", "b update falls set v = 9 where k = 1", "a delete from p where k = 1", "b commit"],
    ),
    (
        "a parent falls, a child comes",
        Same,
        &["a begin", "a delete from p where k = 1", "b insert into falls values (9, 1, 0)", "a commit"],
    ),
    (
        "a child comes, its parent falls",
        Same,
        &["b begin", "b insert into falls values (9, 1, 0)", "a delete from p where k = 1", "b commit"],
    ),
    (
        "rows without a key come, of one parent",
        Same,
        &[
            "a begin",
            "a insert into notes values (1, 1)",
            "b begin",
            "b insert into notes values (1, 2)",
            "b commit",
            "a commit",
        ],
    ),
    (
        "a parent falls, a row without a key comes",
        Same,
        &["a begin", "a delete from p where k = 1", "b insert into notes values (1, 0)", "a commit"],
    ),
    (
        "a row without a key comes, its parent falls",
        Same,
        &["b begin", "b insert into notes values (1, 0)", "a delete from p where k = 1", "b commit"],
    ),
    (
        "rows without a key come while all of them change",
        Waits,
        &[
            "b insert into notes values (1, 0)",
            "a begin",
            "a insert into notes values (1, 1)",
            "b update notes set v = v + 10",
            "a commit",
        ],
    ),
    (
        "a reference is lost, the row changes",
        Same,
        &["a begin", "a delete from p where k = 1", "b update loses set v = 9 where k = 1", "a commit"],
    ),
    (
        "a row changes, its reference is lost",
        Same,
        &["b begin", "b update loses set v = 9 where k = 1", "a delete from p where k = 1", "b commit"],
    ),
    (
        "a reference is pointed elsewhere, its parent falls",
        Same,
        &["b begin", "b update falls set p = 2 where k = 1", "a delete from p where k = 1", "b commit"],
    ),
    (
        "a reference is pointed to what falls",
        Same,
        &["a begin", "a delete from p where k = 2", "b update falls set p = 2 where k = 1", "a commit"],
    ),
    (
        "a parent has another key, a child comes",
        Same,
        &["a begin", "a update p set k = 7 where k = 3", "b insert into moves values (9, 3, 0)", "a commit"],
    ),
    (
        "a parent has another key, a child changes",
        Waits,
        &["a begin", "a update p set k = 7 where k = 3", "b insert into moves values (9, 7, 0)", "a commit"],
    ),
    (
        "children come to one parent at once",
        Same,
        &[
            "a begin",
            "b begin",
            "a insert into falls values (8, 3, 0)",
            "b insert into falls values (9, 3, 0)",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a parent changes, a child comes",
        Same,
        &["a begin", "a update p set v = 0 where k = 3", "b insert into falls values (9, 3, 0)", "a commit"],
    ),
    (
        "a parent comes, its child too early",
        Waits,
        &[
            "a begin",
            "a insert into p values (9, 9, 9)",
            "b insert into falls values (9, 9, 0)",
            "a commit",
            "b insert into falls values (9, 9, 0)",
        ],
    ),
];
