//! The cases: operations that could change data on one replica only (docs/explanation/pitfalls.md 1 and 2, and the table of
//! what each way of capture sees).

/// The expected outcome of a case.
pub(crate) enum Outcome {
    /// The same output as from a plain server.
    Same,
    /// No error; the output may differ (random values, times, object ids).
    Own,
    /// One error, with this SQLSTATE.
    Refused(&'static str),
}

use Outcome::{Own, Refused, Same};

/// Name, outcome, script for psql. Each runs in a schema of its own, `c`.
pub(crate) type Case = (&'static str, Outcome, &'static str);

pub(crate) const CASES: &[Case] = &[
    (
        "INSERT, UPDATE, DELETE by primary key",
        Same,
        "create table t (k int primary key, v text); insert into t values (1, 'a'), (2, null), (3, '');
         update t set v = v || 'x'; delete from t where k = 2; table t order by k;",
    ),
    (
        "UPDATE of the primary key, swaps and shifts",
        Same,
        "create table t (k int primary key deferrable, v int); insert into t select g, g from generate_series(1, 9) g;
         update t set k = k + 1; update t set k = 11 - k; update t set k = -k where k > 5; table t order by k;",
    ),
    (
        "a deferrable primary key shifted by one statement",
        Same,
        "create table t (k int primary key deferrable, v int); insert into t select g, g from generate_series(1, 9) g;
         update t set k = k + 1; table t order by k;",
    ),
    (
        "a deferrable primary key swapped by one statement, beside another unique key",
        Same,
        "create table t (k int primary key deferrable, u text unique, v int); insert into t select g, chr(64 + g), g from generate_series(1, 9) g;
         update t set k = 10 - k; begin; update t set k = k + 1; update t set k = k - 1, u = lower(u); commit; table t order by k;",
    ),
    (
        "a deferred primary key held twice between statements, a schema change among them",
        Same,
        "create table t (k int primary key deferrable initially deferred, v int); insert into t values (1, 1), (2, 2), (3, 3);
         begin; insert into t values (2, 20), (2, 21); create table u (k int); delete from t where v in (2, 20); update t set k = 3 where v = 21;
         insert into t values (2, 4); update t set k = 1 where v = 3; delete from t where v = 1; commit; table t order by k;",
    ),
    (
        "unique values exchanged by one statement",
        Same,
        "create table t (k int primary key, u int unique deferrable, v int); insert into t select g, g, g from generate_series(1, 9) g;
         update t set u = 10 - u; update t set u = u + 1, v = -v where k > 4; table t order by k;",
    ),
    (
        "a trigger that moves the next row on to another key",
        Same,
        "create table t (k int primary key, v int); insert into t values (1, 1), (11, 2), (20, 0);
         create function f() returns trigger language plpgsql as $$ begin if new.v = 1 then update c.t set k = 30 where k = 12; end if; return null; end $$;
         create trigger a after update on t for each row execute function f(); update t set k = k + 1 where k < 20; table t order by k;",
    ),
    (
        "foreign keys: cascade, set null, set default, restrict, self-reference",
        Same,
        "create table p (k int primary key); create table a (k int primary key, p int references p on delete cascade on update cascade);
         create table b (k int, p int references p on delete set null); create table d (k int, p int default 1 references p on delete set default);
         create table r (p int references p); create table s (k int primary key, up int references s on delete cascade);
         insert into p values (1), (2), (3); insert into a values (1, 2), (2, 2), (3, 3); insert into b values (1, 2); insert into d values (1, 2);
         insert into r values (3); insert into s values (1, null), (2, 1), (3, 2);
         delete from p where k = 2; delete from p where k = 3; update p set k = 7 where k = 1; update p set k = 8 where k = 3; delete from s where k = 1;
         select * from a, b, d, p; table s; insert into a values (9, 99);",
    ),
    (
        "row and statement triggers that write other tables",
        Same,
        "create table t (k int primary key, v int); create table l (n int generated always as identity, what text, v int); create table n (c int); insert into n values (0);
         create function f() returns trigger language plpgsql as $$ begin insert into c.l (what, v) values (tg_op, coalesce(new.v, old.v)); return null; end $$;
         create function g() returns trigger language plpgsql as $$ begin update c.n set c = c + 1; return null; end $$;
         create trigger f after insert or update or delete on t for each row execute function f();
         create trigger g after insert or update or delete or truncate on t execute function g();
         insert into t select g, g * g from generate_series(1, 5) g; update t set v = 0 where k < 3; delete from t where k = 5; truncate t;
         select what, v from l order by n; table n;",
    ),
    (
        "BEFORE trigger that changes the row, or skips it",
        Same,
        "create table t (k int primary key, v int);
         create function f() returns trigger language plpgsql as $$ begin if new.k = 2 then return null; end if; new.v := new.v * 10; return new; end $$;
         create trigger f before insert or update on t for each row execute function f();
         insert into t values (1, 1), (2, 2), (3, 3); update t set v = v + 1; table t order by k;",
    ),
    (
        "AFTER trigger that updates its own row",
        Same,
        "create table t (k int primary key, v text);
         create function f() returns trigger language plpgsql as $$ begin update c.t set v = 'nested' where k = new.k; return null; end $$;
         create trigger f after insert on t for each row execute function f(); insert into t values (1, 'orig'), (2, 'orig'); table t order by k;",
    ),
    (
        "deferred constraint trigger that writes",
        Same,
        "create table t (k int primary key); create table l (k int);
         create function f() returns trigger language plpgsql as $$ begin insert into c.l values (new.k); return null; end $$;
         create constraint trigger f after insert on t deferrable initially deferred for each row execute function f();
         begin; insert into t values (1); table l; commit; insert into t values (2); table l order by k;",
    ),
    (
        "deferred foreign and unique keys, violated at COMMIT",
        Same,
        "create table p (k int primary key deferrable initially deferred); create table t (p int references p deferrable initially deferred);
         begin; insert into t values (1); insert into p values (1); commit; begin; insert into t values (2); commit;
         begin; insert into p values (1); update p set k = k + 1; commit; begin; insert into p values (5), (5); commit; select * from p, t;",
    ),
    (
        "SELECT of a function that writes",
        Same,
        "create table t (k int primary key); create function f(int) returns int language sql as 'insert into c.t values ($1) returning k';
         select f(1); select f(g) from generate_series(2, 4) g; begin; select f(5); rollback; table t order by k;",
    ),
    (
        "functions in PL/pgSQL, SQL procedures, CALL, DO, dynamic SQL",
        Same,
        "create table t (k int primary key, v int);
         create procedure p(int) language plpgsql as $$ begin execute 'insert into c.t values ($1, 1)' using $1; end $$;
         create function u(int) returns setof c.t language sql as 'update c.t set v = v + 1 where k = $1 returning *';
         call p(1); call p(2); do $$ begin for i in 3..6 loop call c.p(i); end loop; end $$; select * from u(1); begin; call p(7); commit; table t order by k;",
    ),
    (
        "rolled-back savepoints",
        Same,
        "create table t (k int primary key); begin; insert into t values (1); savepoint a; insert into t values (2); savepoint b; delete from t; rollback to b;
         insert into t values (3); rollback to a; insert into t values (4); release a; commit; table t order by k;",
    ),
    (
        "exception blocks that undo writes",
        Same,
        "create table t (k int primary key, v int); insert into t values (1, 0), (2, 0);
         do $$ begin for i in 1..6 loop begin insert into c.t values (i, i); update c.t set v = v + 1; if i % 2 = 0 then raise 'no'; end if;
         exception when others then update c.t set v = v + 100 where k = 1; end; end loop; end $$; table t order by k;",
    ),
    (
        "INSERT .. ON CONFLICT",
        Same,
        "create table t (k int primary key, u int unique, v int); insert into t values (1, 1, 1), (2, 2, 2);
         insert into t values (1, 9, 9) on conflict do nothing; insert into t values (2, 8, 8), (3, 3, 3) on conflict (k) do update set v = t.v + excluded.v, u = excluded.u;
         insert into t values (7, 8, 0) on conflict (u) do update set k = excluded.k; table t order by k;",
    ),
    (
        "MERGE",
        Same,
        "create table t (k int primary key, v int); create table s (k int, v int); insert into t values (1, 1), (2, 2), (3, 3); insert into s values (2, 20), (3, null), (4, 40);
         merge into t using s on t.k = s.k when matched and s.v is null then delete when matched then update set v = s.v when not matched then insert values (s.k, s.v); table t order by k;",
    ),
    (
        "data-modifying WITH queries",
        Same,
        "create table a (k int primary key); create table b (k int primary key); insert into a select generate_series(1, 5);
         with moved as (delete from a where k > 2 returning k), put as (insert into b select k from moved returning k) select count(*) from put;
         with x as (update a set k = k + 10 returning k) insert into b select k from x; table a order by k; table b order by k;",
    ),
    (
        "UPDATE .. FROM, DELETE .. USING, sub-selects, RETURNING",
        Same,
        "create table t (k int primary key, v int); create table s (k int primary key, v int); insert into t select g, 0 from generate_series(1, 6) g; insert into s select g, g * g from generate_series(2, 4) g;
         update t set v = s.v from s where s.k = t.k returning t.*; delete from t using s where t.k = s.k and s.v > 5 returning t.k; update t set v = (select max(v) from s) where k in (select k from t order by k desc limit 1); table t order by k;",
    ),
    (
        "COPY FROM in text, CSV and with a column list",
        Same,
        "create table t (k int primary key, v text default 'd', w text);
         copy t from stdin;\n1\ta\\tb\t\\N\n2\t\\\\\tx\n\\.\ncopy t (w, k) from stdin with (format csv);\n\"a,\"\"b\",3\n,4\n\\.\ntable t order by k;
         copy t from stdin;\n5\tonly two\n\\.\ntable t order by k;",
    ),
    ("COPY into a table with triggers, generated columns and defaults", Same,
        "create table t (k int primary key, v int, g int generated always as (v * 2) stored, d timestamptz default '2001-01-01 00:00:00+00'); create table l (k int);
         create function f() returns trigger language plpgsql as $$ begin insert into c.l values (new.k); return null; end $$; create trigger f after insert on t for each row execute function f();
         copy t (k, v) from stdin;\n1\t10\n2\t20\n\\.\nset timezone = 'UTC'; table t order by k; table l order by k;"),
    ("COPY (query) TO, COPY table TO", Same,
        "create table t (k int primary key, v text); insert into t values (1, 'x'), (2, null); copy t to stdout; copy (select * from t order by k desc) to stdout with (format csv, header);"),
    (
        "TRUNCATE, of several tables, CASCADE, in a rolled-back transaction",
        Same,
        "create table p (k int primary key); create table f (p int references p); create table o (k int); insert into p values (1); insert into f values (1); insert into o values (1);
         truncate p; begin; truncate o; rollback; table o; truncate p cascade; table f; truncate o, p, f; table o; insert into p values (2); truncate only o; table p;",
    ),
    ("TRUNCATE .. RESTART IDENTITY", Same,
        "create table t (k int generated by default as identity primary key, v int); insert into t (v) values (1), (2); truncate t restart identity; insert into t (v) values (3); table t;"),
    (
        "tables without a primary key, with equal rows",
        Same,
        "create table t (a int, b text); insert into t values (1, 'x'), (1, 'x'), (1, 'x'), (2, null), (2, null); delete from t where ctid = (select min(ctid) from t where a = 1);
         update t set b = 'y' where ctid = (select min(ctid) from t where a = 2); update t set a = a + 1 where b = 'x'; select * from t order by a, b;",
    ),
    ("tables without a primary key and with types that have no equality", Same,
        "create table t (j json, p point, x xml, n float8); insert into t values ('{\"a\": 1}', '(1,2)', '<a/>', 'NaN'), (null, null, null, '-0'), ('{\"a\":  1}', '(1,2)', '<a/>', 'Infinity');
         update t set n = 1 where p is null; delete from t where n = 'Infinity'; update t set j = '[]' where n = 'NaN'; select * from t order by n;"),
    ("tables without columns", Same, "create table t (); insert into t default values; insert into t default values; select count(*) from t; delete from t; select count(*) from t;"),
    (
        "generated and identity columns",
        Same,
        "create table t (k int generated always as identity primary key, v int, g int generated always as (v + 1) stored, h text generated always as (upper(v::text)) stored);
         insert into t (v) values (1), (2); insert into t (k, v) overriding system value values (10, 3); update t set v = 7 where k = 1; update t set k = default where k = 2; table t order by k; insert into t (k) values (5);",
    ),
    ("serial columns and sequences in defaults", Same,
        "create table t (k serial primary key, b bigserial, v int); insert into t (v) values (1), (2) returning k; create sequence s start 100 increment 5; alter table t alter v set default nextval('c.s');
         insert into t default values; insert into t default values returning *; select currval('s'), lastval(); table t order by k;"),
    ("nextval, setval, currval, lastval, CYCLE, descending, MINVALUE, RESTART", Same,
        "create sequence s increment -2 maxvalue 5 minvalue 0 start 5 cycle; select nextval('s'), nextval('s'), nextval('s'), nextval('s'); create sequence u cache 10; select nextval('u'); select setval('u', 50); select nextval('u'); select setval('u', 70, false); select nextval('u');
         alter sequence u restart with 7; select nextval('u'); create sequence m as smallint maxvalue 2; select nextval('m'); select nextval('m'); select nextval('m'); select lastval();"),
    ("views that can be updated, WITH CHECK OPTION", Same,
        "create table t (k int primary key, v int); create view w as select k, v from t where v > 0 with check option; insert into w values (1, 1), (2, 2); update w set v = 5 where k = 1; delete from w where k = 2; insert into w values (3, -1); table t;"),
    ("INSTEAD OF triggers", Same,
        "create table t (k int primary key); create view w as select k from t; create function f() returns trigger language plpgsql as $$ begin insert into c.t values (new.k * 2); return new; end $$;
         create trigger f instead of insert on w for each row execute function f(); insert into w values (1), (2); table t order by k;"),
    ("rules: DO ALSO, DO INSTEAD, DO INSTEAD NOTHING", Same,
        "create table t (k int primary key); create table l (k int); create rule a as on insert to t do also insert into c.l values (new.k); insert into t values (1), (2); create rule b as on delete to t do instead insert into c.l values (-old.k); delete from t;
         create rule n as on update to t do instead nothing; update t set k = 9; table t order by k; table l order by k;"),
    ("partitions: rows routed and moved, a default, ATTACH, DETACH, truncated", Same,
        "create table t (k int, v int, primary key (k)) partition by range (k); create table t1 partition of t for values from (0) to (10); create table t2 partition of t for values from (10) to (20) partition by hash (k);
         create table t2a partition of t2 for values with (modulus 2, remainder 0); create table t2b partition of t2 for values with (modulus 2, remainder 1); create table td partition of t default;
         insert into t select g, g from generate_series(0, 30, 3) g; update t set k = k + 10 where k < 6; create table t3 (k int primary key, v int); insert into t3 values (105, 1); alter table t attach partition t3 for values from (100) to (110);
         insert into t values (106, 2); alter table t detach partition t1; truncate t2; select tableoid::regclass, * from t order by k; table t1 order by k;"),
    ("inheritance: rows of parent and child, ONLY, a child with more columns", Same,
        "create table p (k int primary key, v int); create table ch (w text) inherits (p); insert into p values (1, 1); insert into ch values (2, 2, 'x'); update p set v = v + 1; update only p set v = v * 10; delete from p where k = 2; insert into ch values (3, 3, 'y'); select * from p order by k; table ch;"),
    ("unchanged TOASTed columns", Same,
        "create table t (k int primary key, n int, b text); insert into t select g, 0, string_agg(md5((g * 1000 + i)::text), '') from generate_series(1, 3) g, generate_series(1, 400) i group by g; update t set n = n + 1; update t set n = 5 where k = 2; select k, n, md5(b), length(b) from t order by k;"),
    ("arrays, ranges, jsonb, bytea, numeric specials, infinite times", Same,
        "create table t (k int primary key, a int[], b text[][], r int4range, m int4multirange, j jsonb, y bytea, n numeric, f float4, d date, z timestamptz, i interval, u uuid, ip inet, bi bit(5), tv tsvector);
         set timezone = 'UTC'; insert into t values (1, '{1,null,3}', '{{a,\"b c\"},{\"\",null}}', '[1,5)', '{[1,2],[5,7)}', '{\"b\": [1, 2.50]}', '\\x00ff', 'NaN', 'Infinity', 'infinity', '-infinity', '1 mon -3 days', '00000000-0000-0000-0000-000000000001', '10.0.0.1/8', B'10101', 'a:1 b:2'), (2, '{}', null, 'empty', '{}', 'null', '', '1.10', '-0', '4713-01-01 BC', '2000-01-01 00:00:00.000001+00', '0', null, '::1', B'00000', '');
         update t set a = a || 7, n = n + 1, j = coalesce(j, '{}'); table t order by k;"),
    ("enums, domains, composites and arrays of them", Same,
        "create type mood as enum ('sad', 'happy'); create domain pos as int check (value > 0); create type pair as (a int, m mood); create table t (k int primary key, m mood, ms mood[], p pos, c pair, cs pair[]);
         insert into t values (1, 'happy', '{sad,happy}', 5, '(1,sad)', array['(2,happy)'::pair, null]); update t set m = 'sad', c.a = 9, ms = ms || 'happy'; select * from t where m = 'sad'; insert into t (k, p) values (2, -1); alter type mood add value 'so' before 'happy'; insert into t (k, m) values (3, 'so'); select k, m from t order by m;
         insert into t (k, c) select g, row(g, 'sad')::pair from generate_series(10, 30) g; update t set p = 7, c.a = k + 1 where k >= 10; delete from t where k > 25; table t order by k;
         create domain couple as pair; create table u (p pair primary key, d couple, ms mood[] unique, v int); insert into u select row(g, 'sad')::pair, row(g, 'happy')::pair::couple, array['sad', 'happy']::mood[] || array_fill('sad'::mood, array[g]), g from generate_series(1, 9) g;
         update u set v = v + 1; update u set p.a = 10 + (p).a, d.m = 'sad', ms = ms || 'happy'; delete from u where (p).a > 15; table u order by v;"),
    ("columns of types without a binary form: aclitem, seg, arrays of them, as keys, without a key",
        Same,
        "create extension seg schema c; create domain width as c.seg; \
         create table t (k int primary key, a aclitem, b aclitem[], \"s'%é\\ x\" c.seg, w width, g int generated always as (k + 1) stored); \
         insert into t values (1, 'postgres=r/postgres', '{postgres=rw/postgres,=r/postgres}', '1.50 .. 2', '3'), (2, null, '{}', null, null); \
         insert into t select i, null, null, (i || ' .. ' || i + 1)::c.seg, '<5' from generate_series(3, 40) i; \
         update t set a = '=w/postgres', w = '~7' where k = 2; update t set k = k + 100 where k > 30; delete from t where k = 4; \
         alter table t rename a to acl; insert into t (k, acl) values (50, 'postgres=X/postgres'); alter table t drop b, add e c.seg default '1'; \
         update t set \"s'%é\\ x\" = '9(+-)1' where k < 10; table t order by k; \
         create table keyed (s c.seg primary key, v int); insert into keyed values ('1', 1), ('2 .. 3', 2), ('4', 4); \
         update keyed set s = '7' where v = 1; delete from keyed where s = '4'; table keyed order by s; \
         create table bare (s c.seg, v c.seg[]); insert into bare values ('1', '{1,2}'), ('1', '{1,2}'), (null, '{}'); \
         delete from bare where ctid = (select min(ctid) from bare); update bare set v = '{3}' where s is null; \
         create table made as select * from t; alter table made add at timestamptz default now(); alter table made drop at; \
         copy t (k, w) from stdin;\n60\t1.25\n61\t\\N\n\\.\ntable bare; select count(*) from made, keyed;",
    ),
    ("keys of which equal values look different: -0, 1.00, char(n), interval, jsonb, timetz", Same,
        "create table t1 (k float8 primary key, v int); insert into t1 values (0, 1), ('NaN', 2), ('Infinity', 3); update t1 set k = '-0' where k = 0; update t1 set v = v + 1; update t1 set k = 0, v = 9 where k = 0; delete from t1 where k = 'NaN'; insert into t1 values ('NaN', 5);
         create table t2 (k numeric primary key, v int); insert into t2 values (1.0, 1), (2.50, 2), ('NaN', 3); update t2 set k = k + 0.00; update t2 set v = v + 1; delete from t2 where k = 'NaN'; begin; delete from t2 where k = 1; insert into t2 values (1, 7); commit;
         create table t3 (k interval primary key, j jsonb unique, z timetz unique, c char(5) unique, v int); insert into t3 values ('1 mon', '{\"a\": 1.0}', '10:00+00', 'a', 1), ('2 days', '[1]', '12:00+02:30', 'b', 2), ('3 days', '[2]', '12:00+03', null, 3);
         update t3 set k = '30 days', j = '{\"a\": 1.00}', z = '12:00+02', c = 'a  ' where v = 1; update t3 set v = v + 1; begin; delete from t3 where v = 2; insert into t3 values ('720:00:00', '{\"a\": 1}', '08:00-02', 'a', 5); commit;
         table t1 order by k; table t2 order by k; table t3 order by k;"),
    ("partitions with columns in another order, dropped ones, and a key", Same,
        "create table p (id int, junk int, v text, k int) partition by list (k); alter table p drop column junk; create table p1 (k int, v text, gone int, id int); alter table p1 drop column gone; alter table p attach partition p1 for values in (1); create table p2 partition of p for values in (2); alter table p add primary key (id, k);
         insert into p values (1, 'a', 1), (2, 'b', 2), (3, 'c', 1), (4, 'd', 1); update p set k = 3 - k; update p set v = v || '!'; insert into p (k, id, v) values (1, 7, 'z') on conflict (id, k) do update set v = 'again'; insert into p (k, id, v) values (1, 7, 'z') on conflict (id, k) do update set v = 'again'; delete from p where id = 2; table p order by id, k;"),
    ("values that a server stores in another form than it is sent", Same,
        "create table t (a int[], v int); insert into t select (array[g, null]::int[])[1:1], g from generate_series(1, 5) g; set onecopy.home = 'replica-2'; update t set v = v + 10 where v = 1; delete from t where v = 3; set onecopy.home = 'replica-3'; update t set v = v + 10 where v = 2; set onecopy.home = 'replica-1'; delete from t where v = 4; set onecopy.home to default;
         create table k (a int[] primary key, v int); insert into k select (array[g, null]::int[])[1:1], g from generate_series(1, 3) g; set onecopy.home = 'replica-2'; update k set v = v + 1; set onecopy.home = 'replica-3'; update k set v = v * 2; set onecopy.home = 'replica-2'; update k set v = v + 1; set onecopy.home to default; table t order by a; table k order by a;"),
    ("unique keys with NULLs, NULLS NOT DISTINCT, replica identities", Same,
        "create table t (a int, b int, v int, unique nulls not distinct (a, b)); insert into t values (1, null, 1), (null, null, 2), (1, 1, 3); update t set v = v + 1; update t set a = 2 where b is null and a = 1; delete from t where a is null; create table n (k int primary key, a int, b int, unique (a, b)); insert into n values (1, null, 1), (2, null, 1), (3, 1, 1);
         begin; update n set a = 1, b = null where k = 3; update n set a = 1 where k = 1; commit; alter table n replica identity full; update n set b = b + 1; alter table n replica identity nothing; update n set k = k + 10; delete from n where k = 12; table t order by v; table n order by k;"),
    ("a key that is an enum, text, numeric, an array, char(n)", Same,
        "create type e as enum ('a', 'b'); create table t1 (k e primary key, v int); create table t2 (k text primary key, v int); create table t3 (k numeric primary key, v int); create table t4 (k int[] primary key, v int); create table t5 (k char(4) primary key, v int);
         insert into t1 values ('a', 1); insert into t2 values ('ä', 1); insert into t3 values (1.0, 1); insert into t4 values ('{1}', 1); insert into t5 values ('x', 1); update t1 set v = 2 where k = 'a'; update t2 set v = 2; update t3 set k = 1.00, v = 2; update t4 set k = k || 2; update t5 set v = 2 where k = 'x'; select * from t1, t2, t3, t4, t5;"),
    ("unique values that wander within one transaction", Same,
        "create table t (k int primary key, u int unique); insert into t values (1, 5), (2, 7); begin; update t set u = 6 where k = 1; update t set u = 5 where k = 2; commit; begin; update t set u = null where k = 1; update t set u = 6 where k = 2; update t set u = 5 where k = 1; commit; table t order by k;"),
    ("exclusion constraints, partial and expression indexes, NULLS NOT DISTINCT aside", Same,
        "create table t (k int primary key, r int4range, e text, exclude using gist (r with &&)); create unique index on t (lower(e)); create unique index on t (e) where k > 5; insert into t values (1, '[1,3)', 'A'), (2, '[3,5)', 'b'); insert into t values (3, '[2,4)', 'c'); insert into t values (3, '[9,10)', 'a');
         begin; update t set r = '[7,8)' where k = 1; update t set r = '[1,3)' where k = 2; commit; table t order by k;"),
    ("a non-deterministic collation in a key", Same,
        "create collation ci (provider = icu, locale = 'und-u-ks-level2', deterministic = false); create table t (k text collate ci primary key, v int); insert into t values ('a', 1), ('b', 1); update t set v = 2 where k = 'A'; update t set k = 'B' where k = 'b'; insert into t values ('A', 3); table t order by k;"),
    ("many rows with a key of several columns", Same,
        "create table t (a int, b text, v int, primary key (a, b)); insert into t select g, 'x' || g, 0 from generate_series(1, 500) g; update t set v = 1 where a > 100; delete from t where a > 300; update t set b = b || 'y' where a < 200; select count(*), sum(v), min(b), max(b) from t;"),
    ("code of indexes, CHECKs and domains that names functions without a schema", Same,
        "create function low(text) returns text immutable language sql as 'select lower($1)'; create function plainly(text) returns text immutable language plpgsql as 'begin return low($1); end';
         create table t (k int primary key, v text check (plainly(v) <> 'x')); create index on t (plainly(v)); create domain d as text check (plainly(value) <> 'y'); create table u (k int primary key, v d);
         insert into t values (1, 'A'); update t set v = 'B'; insert into u values (1, 'c'); insert into t select g, 'z' || g from generate_series(2, 300) g; delete from t where k = 5; update u set v = 'E';
         begin; insert into u values (2, 'f'); insert into t values (400, 'G'); commit; select * from t where plainly(v) in ('b', 'g') order by k; table u;"),
    ("row security", Same,
        "create role rls_joe; grant usage on schema c to rls_joe; create table t (k int primary key, o text); grant all on t to rls_joe; alter table t enable row level security; create policy p on t using (o = current_user); insert into t values (1, 'rls_joe'), (2, 'x'); set role rls_joe; update t set k = k + 10; insert into t values (3, 'y'); table t; reset role; table t order by k; drop table t; drop owned by rls_joe; drop role rls_joe;"),
    ("SECURITY DEFINER functions and SET ROLE", Same,
        "create role sd_joe; grant usage on schema c to sd_joe; create table t (k int primary key, w text); create function f(int) returns void language sql security definer as 'insert into c.t values ($1, current_user)'; set role sd_joe; select f(1); insert into t values (2, 'no'); reset role; table t; drop owned by sd_joe; drop role sd_joe;"),
    ("random(), clock_timestamp(), gen_random_uuid(), now() in rows", Own,
        "create table t (k int primary key, r float8 default random(), c timestamptz default clock_timestamp(), u uuid default gen_random_uuid(), n timestamptz default now()); insert into t (k) select generate_series(1, 20); update t set r = random() where k < 5; insert into t values (30, random(), now(), gen_random_uuid(), clock_timestamp()); delete from t where r < 0.5;"),
    ("LIMIT without ORDER BY, rows in no order", Own,
        "create table t (k int primary key, v int); insert into t select g, 0 from generate_series(1, 100) g; update t set v = 1 where k in (select k from t limit 10); delete from t where ctid in (select ctid from t limit 10); insert into t select 1000 + row_number() over (), v from t limit 5;"),
    ("temporary tables beside lasting ones", Same,
        "create temp table x (k int primary key, v int); create table t (k int primary key, v int); insert into x values (1, 1); begin; insert into t select * from x; update x set v = 2; commit; table x; table t; drop table x;"),
    ("CREATE TABLE AS, SELECT INTO", Own, "create table s (k int, v float8); insert into s values (1, 1), (2, 2); create table t as select k, v, random() as r from s; select * into u from s; create table w as table s with no data; insert into w values (9, 9); create temp table y as select * from s; alter table t add primary key (k); update t set v = v + 1;"),
    ("ADD COLUMN with a default that is stable or volatile, serial, identity", Own,
        "create table t (k int primary key); insert into t select generate_series(1, 50); alter table t add a timestamptz default now(); alter table t add b float8 default random(); alter table t add c uuid not null default gen_random_uuid(); alter table t add d serial; alter table t add e int generated always as identity; alter table t add f int default 7 not null; insert into t (k) values (100);"),
    ("ALTER COLUMN TYPE .. USING", Same,
        "create table t (k int primary key, a text, b int, d text); insert into t values (1, '12', 3, '2020-01-02'), (2, '-4', null, null); alter table t alter a type int using a::int * 2; alter table t alter b type text; alter table t alter d type date using d::date; table t order by k;"),
    ("ALTER TABLE of all kinds, mixed with rows in one transaction", Same,
        "create table t (k int primary key, a int, b text); insert into t values (1, 1, 'x'); begin; alter table t add x int; update t set x = a * 2; alter table t drop b; insert into t values (2, 2, 4); alter table t rename x to y; alter table t alter y set not null, add check (y > 0), add unique (a); create index on t (y); update t set y = y + 1; commit; alter table t rename to u; insert into u values (3, 3, 6); alter table u set schema public; alter table public.u set schema c; insert into u values (4, 3, 6); table u order by k;"),
    ("schema changes undone by ROLLBACK and by savepoints", Same,
        "create table t (k int primary key); begin; alter table t add x int; insert into t values (1, 1); rollback; insert into t values (2); begin; savepoint a; create table u (k int); insert into u values (1); rollback to a; create table w (k int); insert into w values (2); commit; table t; table w; table u;"),
    ("dropped and re-added columns, many columns", Same,
        "create table t (a int, k int primary key, b int); insert into t values (1, 1, 1); alter table t drop a; alter table t add a text default 'n'; insert into t values (2, 2, 'x'); update t set b = b + 1; alter table t drop b; update t set a = a || '!'; table t order by k;"),
    ("quoted names, names with dots and quotes, key words", Same,
        "create schema \"S.x\"; create table \"S.x\".\"a\"\"b.c\" (\"select\" int primary key, \"K y\" text); insert into \"S.x\".\"a\"\"b.c\" values (1, 'x'); update \"S.x\".\"a\"\"b.c\" set \"K y\" = 'z'; table \"S.x\".\"a\"\"b.c\"; drop schema \"S.x\" cascade;"),
    ("materialized views", Same, "create table t (k int primary key, v int); insert into t values (1, 1), (2, 2); create materialized view m as select k, v * 2 as w from t; select * from m order by k; insert into t values (3, 3); select count(*) from m; refresh materialized view m; create unique index on m (k); refresh materialized view concurrently m; select * from m order by k; drop materialized view m;"),
    ("statements in a batch, implicit transactions", Same, "create table t (k int primary key); insert into t values (1)\\; insert into t values (2)\\; insert into t values (1); table t; insert into t values (3)\\; insert into t values (4); table t order by k;"),
    ("PREPARE and EXECUTE, cursors, WHERE CURRENT OF", Same, "create table t (k int primary key, v int); prepare i as insert into t values ($1, $2); execute i(1, 1); execute i(2, 2); begin; declare q cursor for select * from t order by k for update; fetch q; update t set v = 10 where current of q; fetch q; delete from t where current of q; commit; table t;"),
    ("NOTIFY, advisory locks, FOR UPDATE, LOCK TABLE", Same, "create table t (k int primary key, v int); insert into t values (1, 1); begin; lock table t in share row exclusive mode; select * from t for update; select pg_advisory_xact_lock(5); notify c_ch, 'x'; update t set v = 2; commit; select pg_try_advisory_lock(6), pg_advisory_unlock(6); table t;"),
    ("comments, owners, privileges, statistics, storage options", Same, "create role own_joe; create table t (k int primary key, v text); comment on table t is 'it''s'; comment on column t.v is 'v'; grant select (k), update on t to own_joe; alter table t owner to own_joe; alter table t set (fillfactor = 70), alter v set storage external, alter v set statistics 5; create statistics st on k, v from t; alter default privileges in schema c grant select on tables to own_joe; insert into t values (1, 'x'); drop owned by own_joe cascade; drop role own_joe; select to_regclass('c.t');"),
    ("operators, aggregates, casts and text search of users", Same, "create function add2(int, int) returns int immutable language sql as 'select $1 + $2 + 1'; create operator +++ (function = add2, leftarg = int, rightarg = int); create aggregate total(int) (sfunc = add2, stype = int, initcond = 0); create table t (k int primary key, v int); insert into t values (1, 2 +++ 3); update t set v = v +++ 1; select total(v) from t; create text search configuration ts (copy = simple); select to_tsvector('c.ts', 'A b');"),
    ("extensions that are trusted", Own, "create extension if not exists pg_trgm schema c; create extension if not exists citext schema c; create table t (k citext primary key, v text); insert into t values ('A', 'x'); update t set v = 'y' where k = 'a'; create index on t using gin (v gin_trgm_ops); delete from t where k = 'a'; drop table t; drop extension citext; drop extension pg_trgm;"),
    ("VACUUM, ANALYZE, REINDEX, CLUSTER", Same, "create table t (k int primary key, v int); insert into t values (1, 1); vacuum t; vacuum (full, analyze) t; analyze t; analyze; reindex table t; cluster t using t_pkey; create table p (k int primary key) partition by range (k); create table p1 partition of p for values from (0) to (9); reindex table p; reindex index p_pkey; begin; reindex table t; commit; checkpoint; update t set v = 2; table t;"),
    ("CREATE INDEX CONCURRENTLY, DROP INDEX CONCURRENTLY, REINDEX CONCURRENTLY", Own, "create table t (k int primary key, v int); insert into t values (1, 1), (2, 2); create unique index concurrently i on t (v); reindex index concurrently i; insert into t values (3, 3); drop index concurrently i;"),
    ("unlogged tables", Refused("0A000"), "create unlogged table t (k int primary key);"),
    ("ALTER TABLE .. SET UNLOGGED", Refused("0A000"), "create table t (k int primary key); alter table t set unlogged;"),
    ("foreign keys between temporary tables", Refused("0A000"), "begin; create temp table p (k int primary key) on commit delete rows; create temp table q (k int references p); commit;"),
    ("large objects", Refused("0A000"), "select lo_create(0);"),
    ("large objects made by a function", Refused("0A000"), "do $$ begin perform lo_from_bytea(0, '\\x00'); end $$;"),
    ("composites and ranges of types without a binary form",
        Same,
        "create type pair as (a int, b aclitem); create table t (k int primary key, p pair); \
         insert into t values (1, row(1, 'postgres=r/postgres')), (2, null); update t set p = row(2, null) where k = 2; table t order by k;",
    ),
    ("values that no other server would take back",
        Refused("0A000"),
        "create table t (k int, c circle); insert into t values (1, circle(point(0, 0), 1)), (2, circle(point(0, 0), -1));",
    ),
    ("columns of types that no server takes", Refused("0A000"), "create table t (k int, v pg_node_tree);"),
    ("bounds of partitions that are computed", Refused("0A000"), "create table t (at timestamptz) partition by range (at); create table t1 partition of t for values from (minvalue) to ('2020-01-01'::timestamptz + '1 day'::interval); create table t2 partition of t for values from (current_timestamp) to (maxvalue);"),
    ("columns of regclass and its kin", Refused("0A000"), "create table t (k int primary key, r regclass);"),
    ("hash partitions by an enum", Refused("0A000"), "create type m as enum ('a', 'b'); create table t (k int, v m) partition by hash (k, v);"),
    ("list partitions by an enum, hash partitions by other types", Same,
        "create type m as enum ('a', 'b', 'c'); create table t (k int, v m, w text) partition by list (v);
         create table ta partition of t for values in ('a', 'b'); create table tc partition of t for values in ('c') partition by hash (w, k);
         create table tc0 partition of tc for values with (modulus 2, remainder 0); create table tc1 partition of tc for values with (modulus 2, remainder 1);
         insert into t select g, (array['a', 'b', 'c'])[1 + g % 3]::m, g from generate_series(1, 90) g; update t set v = 'c', w = w || '!' where k < 40;
         select tableoid::regclass, count(*) from t group by 1 order by 1;"),
    ("bounds of partitions that are object ids", Refused("0A000"), "create table t (k oid) partition by list (k); create table t1 partition of t for values in ('pg_class'::regclass);"),
    ("generated columns that depend on object ids", Refused("0A000"), "create table t (k int, o bigint generated always as (tableoid::bigint) stored);"),
    ("indexes that depend on object ids", Refused("0A000"), "create type m as enum ('a'); create table t (k int, v m); create unique index on t ((hashenum(v) % 100));"),
    ("CHECKs that depend on object ids, held against rows that are there", Refused("0A000"), "create table t (k int); insert into t values (1); alter table t add check (tableoid <> 7);"),
    ("materialized views that depend on object ids", Refused("0A000"), "create type m as enum ('a'); create table t (v m); create materialized view w as select hashenum(v) from t;"),
    ("schema changes that compute rows from object ids", Own,
        "create type m as enum ('a', 'b'); create table t (k int primary key, v m, w m); insert into t values (1, 'a', 'b'), (2, 'b', 'a'); alter table t alter v type int using hashenum(v);
         alter table t add o oid default 'c.t'::regclass::oid; alter table t add h bigint default hashenum('a'::c.m); alter table t alter w type bigint using tableoid::bigint;"),
    ("default_toast_compression", Refused("0A000"), "set default_toast_compression = lz4;"),
    ("index entries that fit only if they are compressed by lz4", Same,
        "create table t (k int primary key, v text compression lz4); create index on t (v);
         insert into t select 1, string_agg(repeat(md5((g * 2)::text), 2), '') from generate_series(1, 72) g; select length(v) from t;"),
    ("SESSION_USER and CURRENT_USER as roles, after SET ROLE", Same,
        "create role su_joe; create role su_jim; grant su_jim to su_joe; grant all on schema c to su_jim; set session authorization su_joe; set role su_jim;
         create table t (k int); create table u (k int); grant select on t to session_user; grant update on t to current_user; grant delete on t to current_role with grant option;
         create policy p on t to session_user using (true); reset session authorization;
         select relacl from pg_class where oid = 't'::regclass; select polroles::regrole[] from pg_policy;"),
    ("indexes whose functions write, when ANALYZE calls them", Refused("25006"),
        "create table j (k int); create table t (k int primary key);
         create function w(int) returns int language plpgsql as 'begin if current_setting(''c.writes'', true) = ''on'' then insert into c.j values ($1); end if; return $1; end';
         create function q(int) returns int immutable language plpgsql as 'begin return c.w($1); end'; create index on t (q(k)); insert into t values (1);
         set c.writes = 'on'; select set_config('default_transaction_' || 'read_only', 'off', false); analyze t;"),
    ("PREPARE TRANSACTION", Refused("0A000"), "create table t (k int); begin; insert into t values (1); prepare transaction 'x';"),
    ("procedures that COMMIT", Refused("2D000"), "create table t (k int); create procedure p() language plpgsql as $$ begin insert into c.t values (1); commit; end $$; call p();"),
    ("DO blocks that COMMIT", Refused("2D000"), "create table t (k int); do $$ begin insert into c.t values (1); commit; end $$;"),
    ("schema changes inside functions and DO blocks", Refused("0A000"), "do $$ begin create table c.t (k int); end $$;"),
    ("role changes inside functions and DO blocks", Refused("0A000"), "do $$ begin create role inside; end $$;"),
    ("switching capture off", Refused("0A000"), "create table t (k int); alter table t disable trigger all;"),
    ("switching capture off inside a function", Refused("0A000"), "create table t (k int); do $$ begin alter table c.t disable trigger all; end $$;"),
    ("session_replication_role", Refused("0A000"), "set session_replication_role = replica;"),
    ("another client encoding", Refused("0A000"), "set client_encoding = 'LATIN1';"),
    ("TRUNCATE inside a function", Refused("0A000"), "create table t (k int); do $$ begin truncate c.t; end $$;"),
    ("TRUNCATE of several tables, of which a trigger fills one again", Refused("0A000"),
        "create table p (k int primary key); create table q (k int primary key, p int references p); insert into p values (1); insert into q values (1, 1);
         create function f() returns trigger language plpgsql as $$ begin insert into c.q values (100, null); return null; end $$; create trigger a after truncate on p for each statement execute function f(); truncate p, q; table q;"),
    ("TRUNCATE with triggers that keep a journal", Same,
        "create table p (k int primary key); create table q (k int primary key, p int references p); create table j (n int generated always as identity primary key, what text); insert into p values (1); insert into q values (1, 1);
         create function f() returns trigger language plpgsql as $$ begin insert into c.j (what) values (tg_table_name); return null; end $$; create trigger a after truncate on p for each statement execute function f(); create trigger b before truncate on q for each statement execute function f();
         truncate p, q; begin; insert into p values (2); truncate q; insert into q values (5, 2); truncate p cascade; insert into p values (3); commit; table p; table q; table j order by n;"),
    ("CREATE DATABASE", Refused("0A000"), "create database other;"),
    ("ALTER SYSTEM", Refused("0A000"), "alter system set work_mem = '1MB';"),
    ("CREATE TABLESPACE", Refused("0A000"), "create tablespace s location '/nowhere';"),
    ("foreign servers and tables", Refused("0A000"), "create foreign data wrapper w;"),
    ("dblink", Refused("0A000"), "create extension dblink;"),
    ("publications and subscriptions", Refused("0A000"), "create publication p for all tables;"),
    ("event triggers", Refused("0A000"), "create function f() returns event_trigger language plpgsql as 'begin end'; create event trigger e on ddl_command_start execute function f();"),
    ("COPY from or to files and programs", Refused("0A000"), "create table t (k int); copy t from '/etc/hostname';"),
    ("WITH HOLD cursors in a transaction that writes", Refused("0A000"), "create table t (k int); begin; insert into t values (1); declare q cursor with hold for select 1; commit;"),
    ("writing to system catalogues", Refused("0A000"), "update pg_class set relname = 'x' where false;"),
    ("onecopy's own objects", Refused("0A000"), "drop schema onecopy cascade;"),
    ("temporal constants in definitions: 'now'", Refused("0A000"), "create table t (k int, d timestamptz default 'now');"),
    ("LOAD", Refused("0A000"), "load 'auto_explain';"),
    ("SET TRANSACTION SNAPSHOT", Refused("0A000"), "begin isolation level repeatable read; set transaction snapshot '00000003-0000001B-1';"),
];
