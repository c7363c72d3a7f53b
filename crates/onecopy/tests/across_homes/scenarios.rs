//! Scripts of two or three clients, step by step, at READ COMMITTED.

#[path = "scenarios/computed.rs"]
mod computed;
#[path = "scenarios/groups.rs"]
mod groups;
#[path = "scenarios/locks.rs"]
mod locks;
#[path = "scenarios/references.rs"]
mod references;
#[path = "scenarios/savepoints.rs"]
mod savepoints;
#[path = "scenarios/unique.rs"]
mod unique;

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
    /// The same, or a transaction fails with 40001, because Onecopy could not predict the rows that it wrote.
    Loses,
}

/// A name, how close Onecopy must come, and the steps.
pub(crate) type Scenario = (&'static str, Closeness, &'static [&'static str]);

/// All of them.
pub(crate) fn all() -> impl Iterator<Item = &'static Scenario> {
    [
        references::REFERENCES,
        unique::UNIQUE,
        savepoints::SAVEPOINTS,
        locks::LOCKS,
        groups::GROUPS,
        computed::COMPUTED,
    ]
    .into_iter()
    .flatten()
}
