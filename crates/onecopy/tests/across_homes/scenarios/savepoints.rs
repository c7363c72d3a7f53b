//! Savepoints, and errors behind them.

use crate::scenarios::Closeness::{Same, Waits};
use crate::scenarios::Scenario;

pub(crate) const SAVEPOINTS: &[Scenario] = &[
    (
        "what a savepoint took back is free",
        Waits,
        &[
            "a begin",
            "a savepoint s",
            "a update q set v = 0 where k = 1",
            "a rollback to s",
            "b update q set v = v + 1 where k = 1",
            "a update q set v = 0 where k = 2",
            "a commit",
        ],
    ),
    (
        "a savepoint before and after",
        Same,
        &[
            "a begin",
            "a update q set v = v + 1 where k = 1",
            "a savepoint s",
            "a update q set v = v + 1 where k = 2",
            "a insert into q values (1, 0)",
            "a rollback to s",
            "b update q set v = v * 2 where k = 1",
            "a insert into q values (7, 70)",
            "a commit",
            "b select v from q where k = 1",
        ],
    ),
    (
        "savepoints of two that do not meet",
        Same,
        &[
            "a begin",
            "a savepoint s",
            "a update q set v = 1 where k = 1",
            "b begin",
            "b savepoint s",
            "b update q set v = 2 where k = 2",
            "b release s",
            "b commit",
            "a rollback to s",
            "a commit",
        ],
    ),
    (
        "an error after a savepoint, and on",
        Same,
        &[
            "a begin",
            "a savepoint s",
            "b insert into q values (8, 80)",
            "a insert into q values (8, 81)",
            "a rollback to s",
            "a update q set v = 82 where k = 8",
            "a commit",
        ],
    ),
];
