//! Unique values, and constraints that are checked at COMMIT.

use crate::scenarios::Closeness::{AsIf, Loses, Same, Waits};
use crate::scenarios::Scenario;

pub(crate) const UNIQUE: &[Scenario] = &[
    (
        "one unique value from two sides",
        Same,
        &[
            "a begin",
            "b begin",
            "a insert into p values (8, 8, 800)",
            "b update p set u = 800 where k = 2",
            "a commit",
            "b rollback",
        ],
    ),
    (
        "a unique value becomes free",
        AsIf(&[
            "b begin",
            "b insert into p values (9, 9, 100)",
            "a begin",
            "a update p set u = 111 where k = 1",
            "a commit",
            "b commit",
        ]),
        &[
            "a begin",
            "b begin",
            "a update p set u = 111 where k = 1",
            "b insert into p values (9, 9, 100)",
            "a commit",
            "b commit",
        ],
    ),
    (
        "who has failed holds nothing",
        Same,
        &[
            "a begin",
            "a update q set v = 0 where k = 1",
            "a insert into q values (2, 0)",
            "b update q set v = v + 1 where k = 1",
            "a commit",
        ],
    ),
    (
        "a unique value becomes free, and does not",
        Waits,
        &[
            "a begin",
            "b begin",
            "a delete from p where k = 3",
            "b insert into p values (9, 9, 300)",
            "a rollback",
            "b rollback",
        ],
    ),
    (
        "ON CONFLICT DO NOTHING",
        Same,
        &[
            "a begin",
            "b begin",
            "a insert into q values (9, 90)",
            "b insert into q values (9, 91), (10, 100) on conflict do nothing",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a deferred unique value twice",
        Waits,
        &[
            "a begin",
            "b begin",
            "a insert into late values (8, 80, null)",
            "b insert into late values (9, 80, null)",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a deferred unique value passed on",
        Loses,
        &[
            "a begin",
            "a insert into late values (8, 1, null)",
            "b update late set u = 2 where k = 1",
            "a commit",
        ],
    ),
    (
        "a deferred reference whose parent comes",
        Waits,
        &["a begin", "a insert into late values (8, 8, 8)", "b insert into p values (8, 8, 8)", "a commit"],
    ),
    (
        "a deferred reference whose parent goes",
        Waits,
        &["a begin", "a insert into late values (8, 8, 3)", "b delete from p where k = 3", "a commit"],
    ),
];
