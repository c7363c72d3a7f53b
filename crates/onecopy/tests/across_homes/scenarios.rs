//! What two or three clients do, step by step.

use crate::cluster::script::Stage;

/// Parents with all kinds of references to them, and a table by itself.
pub(crate) const TABLES: Stage = Stage {
    before: "delete from falls; delete from loses; delete from moves; delete from late; delete from notes; delete from p; delete from q;
             delete from lines; insert into lines values (1, 1, 10), (1, 2, 20), (2, 1, 20), (2, 2, 30);
             insert into p values (1, 10, 100), (2, 20, 200), (3, 30, 300);
             insert into falls values (1, 1, 0), (2, 1, 0), (3, 2, 0);
             insert into loses values (1, 1, 0), (2, 2, 0);
             insert into moves values (1, 1, 0), (2, 2, 0);
             insert into late values (1, 1, 1);
             insert into q select n, n * 10 from generate_series(1, 5) n",
    after: "select 'p', k, v, u from p union all select 'falls', k, p, v from falls
            union all select 'loses', k, p, v from loses union all select 'moves', k, p, v from moves
            union all select 'notes', p, v, null from notes
            union all select 'late', k, u, p from late union all select 'q', k, v, null from q
            union all select 'lines', a, b, c from lines order by 1, 2, 3",
};

/// Run once.
pub(crate) const SCHEMA: &str = "
create table p (k int primary key, v int, u int unique);
create table falls (k int primary key, p int references p on delete cascade, v int);
create table loses (k int primary key, p int references p on delete set null, v int);
create table moves (k int primary key, p int references p on update cascade on delete cascade, v int);
create table late (k int primary key, u int unique deferrable initially deferred,
                   p int references p deferrable initially deferred);
create table notes (p int references p, v int);
create table q (k int primary key, v int);
create table lines (a int, b int, c int, primary key (a, b));
create index on lines (c);
";

/// How close it must come to one PostgreSQL.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Closeness {
    /// The same answers and the same waits.
    Same,
    /// It may wait where PostgreSQL does not, or elsewhere, and then answers as if it had been sent later.
    Waits,
    /// As if the steps had come in this order.
    AsIf(&'static [&'static str]),
    /// The same, or a transaction loses because nobody could foresee what it wrote.
    Loses,
}

use Closeness::{AsIf, Loses, Same, Waits};

/// At READ COMMITTED.
pub(crate) const SCENARIOS: &[(&str, Closeness, &[&str])] = &[
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
    (
        "keys that only the rows tell",
        Same,
        &[
            "a begin",
            "a insert into q select 9, 90",
            "b insert into q select n, 1 from generate_series(8, 9) n",
            "a commit",
            "b select count(*), sum(v) from q",
        ],
    ),
    (
        "keys that only the rows tell, and they go",
        Same,
        &[
            "a begin",
            "a insert into q select 9, 90",
            "b begin",
            "b insert into q select n, 1 from generate_series(8, 9) n returning k",
            "a rollback",
            "b commit",
            "a select count(*), sum(v) from q",
        ],
    ),
    (
        "a key that is told, and one that only the rows tell",
        Same,
        &[
            "b begin",
            "b insert into q values (9, 90)",
            "a begin",
            "a savepoint s",
            "a insert into q select 9, 91",
            "b commit",
            "a rollback to s",
            "a insert into q select k + 10, v from q where k < 3 order by k returning k",
            "a update q set v = v + 1 where k = 9",
            "a commit",
            "b select count(*), sum(v) from q",
        ],
    ),
    (
        "ON CONFLICT with keys that only the rows tell",
        Same,
        &[
            "a begin",
            "b begin",
            "a insert into q select 9, 90",
            "b insert into q select n, 1 from generate_series(8, 9) n on conflict (k) do update set v = q.v + 1",
            "a commit",
            "b commit",
            "a select k, v from q where k > 5 order by k",
        ],
    ),
    (
        "unique values that are computed",
        Same,
        &[
            "a begin",
            "b begin",
            "a update p set u = u + 700 where k = 1",
            "b update p set u = 400 + u * 2 where k = 2",
            "a commit",
            "b rollback",
        ],
    ),
    (
        "a unique value that is computed, and one that is told",
        Same,
        &[
            "a begin",
            "b begin",
            "b update p set u = 800 where k = 2",
            "a update p set u = u + 700 where k = 1",
            "b rollback",
            "a commit",
        ],
    ),
    (
        "a reference that only the rows tell, its parent falls",
        Same,
        &[
            "a begin",
            "b begin",
            "a insert into falls select 9, 3, 0",
            "b delete from p where k = 3",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a parent falls, a reference to it that only the rows tell",
        Same,
        &[
            "a begin",
            "b begin",
            "b delete from p where k = 3",
            "a insert into falls select 9, 3, 0",
            "b commit",
            "a rollback",
        ],
    ),
    (
        "a reference that is computed",
        Same,
        &[
            "a begin",
            "b begin",
            "a update falls set p = p + 2 where k = 1",
            "b delete from p where k = 3",
            "a commit",
            "b commit",
            "a select count(*) from falls",
        ],
    ),
    (
        "rows that are merged",
        Same,
        &[
            "a begin",
            "a merge into q using (select 9 as k) s on q.k = s.k when not matched then insert values (s.k, 90)",
            "b begin",
            "b insert into q values (9, 1)",
            "a commit",
            "b rollback",
        ],
    ),
    (
        "savepoints between statements that nobody could foresee",
        Same,
        &[
            "a begin",
            "a insert into q select k + 100, v from q where k < 3",
            "a savepoint s",
            "a update p set u = u + 1 where k = 3",
            "a savepoint t",
            "a insert into q select k + 200, v from q where k < 3",
            "a rollback to t",
            "a insert into q select k + 300, v from q where k < 3",
            "a release t",
            "a rollback to s",
            "a insert into q select k + 400, v from q where k < 3",
            "a rollback to s",
            "a update p set u = u + 2 where k = 3",
            "a commit",
        ],
    ),
    (
        "in one statement both ways",
        Same,
        &[
            "a begin",
            "a with gone as (delete from q where k = 1 returning v) insert into q select 9, v from gone",
            "b insert into q values (1, 1)",
            "c insert into q values (9, 1)",
            "a commit",
        ],
    ),
];
