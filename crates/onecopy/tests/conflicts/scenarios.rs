//! Scripts of two or three clients, step by step.

use crate::cluster::script::Stage;

/// A parent with two keys, and a child.
pub(crate) const FAMILY: Stage = Stage {
    before: "drop table if exists child, t;
             create table t (k int primary key, v int, u int unique);
             create table child (k int primary key, t int references t);
             insert into t values (1, 10, 100), (2, 20, 200), (3, 30, 300);
             insert into child values (1, 1)",
    after: "select 't', k, v, u from t union all select 'child', k, t, null from child order by 1, 2",
};

/// The two rows of Hermitage.
pub(crate) const PAIR: Stage = Stage {
    before: "drop table if exists test;
             create table test (id int primary key, value int);
             insert into test values (1, 10), (2, 20)",
    after: "select id, value from test order by id",
};

/// Two clients.
pub(crate) const SCENARIOS: [(&str, &[&str]); 13] = [
    (
        "both add to a row",
        &[
            "a begin",
            "b begin",
            "a update t set v = v + 1 where k = 1",
            "b update t set v = v + 10 where k = 1",
            "a commit",
            "b commit",
        ],
    ),
    (
        "the first rolls back",
        &[
            "a begin",
            "b begin",
            "a update t set v = v + 1 where k = 1",
            "b update t set v = v + 10 where k = 1",
            "a rollback",
            "b commit",
        ],
    ),
    (
        "a read sees what is committed, or its snapshot",
        &[
            "a begin",
            "a select v from t where k = 1",
            "b update t set v = 99 where k = 1",
            "a select v from t where k = 1",
            "a select count(*) from t",
            "b insert into t values (4, 40, 400)",
            "a select count(*) from t",
            "a commit",
            "a select v from t where k = 1",
        ],
    ),
    (
        "a snapshot begins with the first statement",
        &["a begin", "b update t set v = 99 where k = 1", "a select v from t where k = 1", "a commit"],
    ),
    (
        "one sees its own writes",
        &[
            "a begin",
            "a update t set v = 99 where k = 1",
            "a select v from t where k = 1",
            "b select v from t where k = 1",
            "a savepoint s",
            "a delete from t where k = 2",
            "a rollback to s",
            "a select count(*) from t",
            "a commit",
            "b select count(*), sum(v) from t",
        ],
    ),
    (
        "the same key twice",
        &[
            "a begin",
            "b begin",
            "a insert into t values (5, 50, 500)",
            "b insert into t values (5, 55, 555)",
            "a commit",
            "b commit",
        ],
    ),
    (
        "the same key twice, the first rolls back",
        &[
            "a begin",
            "b begin",
            "a insert into t values (5, 50, 500)",
            "b insert into t values (6, 55, 500)",
            "a rollback",
            "b commit",
        ],
    ),
    (
        "insert on conflict",
        &[
            "a begin",
            "b begin",
            "a insert into t values (5, 50, 500)",
            "b insert into t values (5, 55, 555) on conflict (k) do update set v = t.v + 1",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a parent goes while a child comes",
        &[
            "a begin",
            "b begin",
            "a delete from t where k = 3",
            "b insert into child values (2, 3)",
            "a commit",
            "b commit",
        ],
    ),
    (
        "a child comes while the parent goes",
        &[
            "a begin",
            "b begin",
            "b insert into child values (2, 3)",
            "a delete from t where k = 3",
            "b commit",
            "a commit",
        ],
    ),
    (
        "select for update",
        &[
            "a begin",
            "b begin",
            "a select v from t where k = 1 for update",
            "b update t set v = v + 1 where k = 1",
            "a update t set v = v * 2 where k = 1",
            "a commit",
            "b commit",
        ],
    ),
    (
        "tried, and taken back",
        &[
            "a begin",
            "b begin",
            "a select v from t where k = 1",
            "b delete from t where k = 3",
            "b commit",
            "a savepoint s",
            "a insert into t values (3, 31, 301)",
            "a rollback to s",
            "a select count(*) from t where k = 3",
            "a commit",
        ],
    ),
    (
        "autocommit waits for a transaction",
        &[
            "a begin",
            "a update t set v = v + 1 where k = 1",
            "b update t set v = v + 10 where k = 1",
            "a commit",
            "b select v from t where k = 1",
        ],
    ),
];

/// Hermitage: the anomalies of Adya's thesis as interleavings, by their names there.
pub(crate) const HERMITAGE: [(&str, &[&str]); 15] = [
    (
        "G0: write cycles",
        &[
            "a begin",
            "b begin",
            "a update test set value = 11 where id = 1",
            "b update test set value = 12 where id = 1",
            "a update test set value = 21 where id = 2",
            "a commit",
            "a select * from test order by id",
            "b update test set value = 22 where id = 2",
            "b commit",
        ],
    ),
    (
        "G1a: aborted reads",
        &[
            "a begin",
            "b begin",
            "a update test set value = 101 where id = 1",
            "b select * from test order by id",
            "a rollback",
            "b select * from test order by id",
            "b commit",
        ],
    ),
    (
        "G1b: intermediate reads",
        &[
            "a begin",
            "b begin",
            "a update test set value = 101 where id = 1",
            "b select * from test order by id",
            "a update test set value = 11 where id = 1",
            "a commit",
            "b select * from test order by id",
            "b commit",
        ],
    ),
    (
        "G1c: circular information flow",
        &[
            "a begin",
            "b begin",
            "a update test set value = 11 where id = 1",
            "b update test set value = 22 where id = 2",
            "a select * from test where id = 2",
            "b select * from test where id = 1",
            "a commit",
            "b commit",
        ],
    ),
    (
        "OTV: observed transaction vanishes",
        &[
            "a begin",
            "b begin",
            "c begin",
            "a update test set value = 11 where id = 1",
            "a update test set value = 19 where id = 2",
            "b update test set value = 12 where id = 1",
            "a commit",
            "c select * from test where id = 1",
            "b update test set value = 18 where id = 2",
            "c select * from test where id = 2",
            "b commit",
            "c select * from test where id = 2",
            "c select * from test where id = 1",
            "c commit",
        ],
    ),
    (
        "PMP: predicate with many preceders",
        &[
            "a begin",
            "b begin",
            "a select * from test where value = 30",
            "b insert into test values (3, 30)",
            "b commit",
            "a select * from test where value % 3 = 0",
            "a commit",
        ],
    ),
    (
        "PMP, write predicates",
        &[
            "a begin",
            "b begin",
            "a update test set value = value + 10",
            "b select * from test where value = 20",
            "b delete from test where value = 20",
            "a commit",
            "b select * from test where value = 20",
            "b commit",
        ],
    ),
    (
        "P4: lost update",
        &[
            "a begin",
            "b begin",
            "a select * from test where id = 1",
            "b select * from test where id = 1",
            "a update test set value = 11 where id = 1",
            "b update test set value = 11 where id = 1",
            "a commit",
            "b commit",
        ],
    ),
    (
        "G-single: read skew",
        &[
            "a begin",
            "b begin",
            "a select * from test where id = 1",
            "b select * from test where id = 1",
            "b select * from test where id = 2",
            "b update test set value = 12 where id = 1",
            "b update test set value = 18 where id = 2",
            "b commit",
            "a select * from test where id = 2",
            "a commit",
        ],
    ),
    (
        "G-single, predicate dependencies",
        &[
            "a begin",
            "b begin",
            "a select * from test where value % 5 = 0",
            "b update test set value = 12 where value = 10",
            "b commit",
            "a select * from test where value % 3 = 0",
            "a commit",
        ],
    ),
    (
        "G-single, write predicate",
        &[
            "a begin",
            "b begin",
            "a select * from test where id = 1",
            "b select * from test order by id",
            "b update test set value = 12 where id = 1",
            "b update test set value = 18 where id = 2",
            "b commit",
            "a delete from test where value = 20",
            "a commit",
        ],
    ),
    (
        "G2-item: write skew",
        &[
            "a begin",
            "b begin",
            "a select * from test where id in (1, 2) order by id",
            "b select * from test where id in (1, 2) order by id",
            "a update test set value = 11 where id = 1",
            "b update test set value = 21 where id = 2",
            "a commit",
            "b commit",
        ],
    ),
    (
        "G2-item, promoted: an update that changes nothing",
        &[
            "a begin",
            "b begin",
            "a select * from test where id in (1, 2) order by id",
            "b select * from test where id in (1, 2) order by id",
            "a update test set value = value where id = 2",
            "a update test set value = 11 where id = 1",
            "a commit",
            "b update test set value = 21 where id = 2",
            "b commit",
        ],
    ),
    (
        "G2: anti-dependency cycles",
        &[
            "a begin",
            "b begin",
            "a select * from test where value % 3 = 0",
            "b select * from test where value % 3 = 0",
            "a insert into test values (3, 30)",
            "b insert into test values (4, 42)",
            "a commit",
            "b commit",
        ],
    ),
    (
        "G2, two edges",
        &[
            "a begin",
            "a select * from test order by id",
            "b begin",
            "b update test set value = value + 5 where id = 2",
            "b commit",
            "c begin",
            "c select * from test order by id",
            "c commit",
            "a update test set value = 0 where id = 1",
            "a commit",
        ],
    ),
];
