//! Locks of rows, of tables and of the application; temporary tables; TRUNCATE.

use crate::scenarios::Closeness::{Same, Waits};
use crate::scenarios::Scenario;

pub(crate) const LOCKS: &[Scenario] = &[
    (
        "FOR SHARE and FOR SHARE",
        Same,
        &[
            "a begin",
            "b begin",
            "a select v from q where k = 1 for share",
            "b select v from q where k = 1 for share",
            "b commit",
            "c update q set v = 0 where k = 1",
            "a commit",
        ],
    ),
    (
        "FOR UPDATE and FOR UPDATE",
        Same,
        &[
            "a begin",
            "b begin",
            "a select v from q where k = 1 for update",
            "b select v from q where k = 1 for update",
            "a update q set v = v + 1 where k = 1",
            "a commit",
            "b update q set v = v + 1 where k = 1",
            "b commit",
        ],
    ),
    (
        "FOR UPDATE of a parent, and a child",
        Same,
        &[
            "a begin",
            "a select v from p where k = 3 for update",
            "b insert into falls values (9, 3, 0)",
            "a commit",
        ],
    ),
    (
        "FOR NO KEY UPDATE of a parent, and a child",
        Waits,
        &[
            "a begin",
            "a select v from p where k = 3 for no key update",
            "b insert into falls values (9, 3, 0)",
            "a commit",
        ],
    ),
    (
        "FOR KEY SHARE and UPDATE",
        Waits,
        &[
            "a begin",
            "a select v from q where k = 1 for key share",
            "b update q set v = 0 where k = 1",
            "a select v from q where k = 1",
            "a commit",
        ],
    ),
    (
        "FOR UPDATE NOWAIT",
        Same,
        &[
            "a begin",
            "a select v from q where k = 1 for update",
            "b begin",
            "b select v from q where k = 2 for update nowait",
            "b select v from q where k = 1 for update nowait",
            "b rollback",
            "b select v from q where k = 1 for share nowait",
            "a commit",
            "b select v from q where k = 1 for update nowait",
        ],
    ),
    (
        "FOR UPDATE NOWAIT of an updated row",
        Same,
        &[
            "a begin",
            "a update q set v = 0 where k = 1",
            "b select v from q where k = 1 for update nowait",
            "a rollback",
        ],
    ),
    (
        "LOCK TABLE",
        Same,
        &[
            "a begin",
            "a lock table q in exclusive mode",
            "b update q set v = 0 where k = 1",
            "c select v from q where k = 1",
            "a commit",
        ],
    ),
    (
        "LOCK TABLE of what somebody changes",
        Same,
        &["b begin", "b update q set v = 0 where k = 1", "a begin", "a lock table q", "b commit", "a commit"],
    ),
    (
        "advisory locks of sessions",
        Same,
        &[
            "a select pg_advisory_lock(7)",
            "b select pg_try_advisory_lock(7)",
            "b select pg_advisory_lock(7)",
            "a select pg_advisory_unlock(7)",
            "a select pg_try_advisory_lock(7)",
            "b select pg_advisory_unlock(7)",
        ],
    ),
    (
        "advisory locks of transactions",
        Same,
        &[
            "a begin",
            "a select pg_advisory_xact_lock(8)",
            "b begin",
            "b select pg_try_advisory_xact_lock(8)",
            "b select pg_advisory_xact_lock(8)",
            "a update q set v = 0 where k = 1",
            "a commit",
            "b select v from q where k = 1",
            "b commit",
        ],
    ),
    (
        "a temporary table",
        Same,
        &[
            "a create temp table mine (k int, v int)",
            "a insert into mine values (1, 5)",
            "b begin",
            "b update q set v = v + 1 where k = 1",
            "a update q set v = q.v + mine.v from mine where q.k = mine.k",
            "b commit",
            "a select v from q where k = 1",
        ],
    ),
    (
        "everything is emptied, and somebody writes",
        Same,
        &[
            "b begin",
            "b insert into q values (8, 80)",
            "a truncate q",
            "b commit",
            "a select count(*) from q",
        ],
    ),
];
