//! What is read of a schema, and what is said of the rest.

use super::*;
use crate::catalogue::{Action, Body, ColumnDefault, Table};

/// A schema as pg_dump writes one, in parts.
const DUMP: &str = r"
SET search_path = '';
SELECT pg_catalog.set_config('search_path', '', false);
CREATE TYPE public.mood AS ENUM ('sad', 'ok');
CREATE FUNCTION public.code(text) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE TABLE public.parent (
    id integer NOT NULL,
    name character varying(40) DEFAULT 'none'::character varying,
    made timestamp with time zone DEFAULT now() NOT NULL,
    price numeric(10,2) DEFAULT -1,
    kind text DEFAULT 'x'::text CHECK (public.code(kind) <> '')
);
ALTER TABLE public.parent OWNER TO joe;
CREATE SEQUENCE public.parent_id_seq AS integer START WITH 1;
ALTER SEQUENCE public.parent_id_seq OWNED BY public.parent.id;
ALTER TABLE ONLY public.parent ALTER COLUMN id SET DEFAULT nextval('public.parent_id_seq'::regclass);
CREATE TABLE public.child (id bigserial PRIMARY KEY, pid int, tag text UNIQUE DEFERRABLE, feels mood);
COPY public.child (id) FROM stdin;
ALTER TABLE ONLY public.parent ADD CONSTRAINT parent_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.child ADD CONSTRAINT fk FOREIGN KEY (pid) REFERENCES public.parent(id) ON DELETE CASCADE;
CREATE UNIQUE INDEX partly ON public.child USING btree (tag) WHERE (pid > 0);
CREATE UNIQUE INDEX folded ON public.child USING btree (lower(tag));
CREATE INDEX plain ON public.child USING btree (pid);
CREATE VIEW public.names AS SELECT name FROM public.parent;
GRANT SELECT ON public.parent TO PUBLIC;
COMMENT ON TABLE public.parent IS 'x';
";

fn read(text: &str) -> Schema {
    Schema::from_ddl(text).unwrap()
}

fn table<'a>(schema: &'a Schema, name: &str) -> &'a Table {
    schema.contents.tables.iter().find(|table| table.name == name).unwrap()
}

#[test]
fn a_dump_is_read_without_loss() {
    // COPY .. FROM stdin ends where the data would begin.
    let schema = read(DUMP);
    assert_eq!(schema.left_out, []);
    let parent = table(&schema, "parent");
    assert_eq!((parent.schema.as_str(), parent.primary_key.as_slice()), ("public", &[0][..]));
    let defaults: Vec<ColumnDefault> = parent.columns.iter().map(|column| column.default.clone()).collect();
    let wanted = [
        ColumnDefault::Sequence(Name::qualified("public", "parent_id_seq")),
        ColumnDefault::Constant("none".to_owned()),
        ColumnDefault::Expression("now()".to_owned()),
        ColumnDefault::Constant("-1".to_owned()),
        ColumnDefault::Constant("x".to_owned()),
    ];
    assert_eq!(defaults, wanted);
    assert_eq!([parent.columns[1].type_mod, parent.columns[3].type_mod], [44, (10 << 16 | 2) + 4]);
    assert!(parent.own_code && parent.user_triggers, "a check calls a user's function");
    let child = table(&schema, "child");
    assert!(child.user_types && child.foreign_keys && child.other_unique && parent.foreign_keys);
    assert_eq!((child.references[0].parent, child.references[0].on_delete), (parent.id, Action::Cascade));
    let keys: Vec<(bool, bool, bool, bool)> =
        child.keys.iter().map(|key| (key.primary, key.partial, key.expression, key.deferrable)).collect();
    let plain = (false, false, false);
    assert_eq!(keys[0], (true, plain.0, plain.1, plain.2));
    assert_eq!(
        keys[1..],
        [(false, false, false, true), (false, true, false, false), (false, false, true, false)]
    );
    assert_eq!(schema.contents.views[0].definition, "SELECT name FROM public.parent");
    assert_eq!(schema.contents.functions[0].body, Body::Sql("SELECT $1".to_owned()));
    assert!(schema.contents.has_deferrable);
}

#[test]
fn partitions_have_the_keys_of_the_whole() {
    let schema = read(
        "CREATE TABLE whole (a int, b int, PRIMARY KEY (b)) PARTITION BY LIST (b);
         CREATE TABLE one PARTITION OF whole FOR VALUES IN (1);
         CREATE TABLE two (b int NOT NULL, a int);
         ALTER TABLE whole ATTACH PARTITION two FOR VALUES IN (2);
         CREATE TABLE pointing (id int REFERENCES whole);",
    );
    assert_eq!(schema.left_out, []);
    assert_eq!(table(&schema, "one").primary_key, [1]);
    assert_eq!(table(&schema, "two").primary_key, [0], "columns are found by name");
    let leaves = [table(&schema, "one").id, table(&schema, "two").id];
    assert_eq!(schema.contents.parents[0].leaves, leaves);
    let parents: Vec<_> = table(&schema, "pointing").references.iter().map(|one| one.parent).collect();
    assert_eq!(parents, leaves);
}

#[test]
fn what_is_not_understood_is_said() {
    let schema = read(
        "CREATE TABLE t (id int);\n\n-- a comment\nDROP TABLE t;\nALTER TABLE nowhere ADD PRIMARY KEY (id);
CREATE TABLE u (LIKE t);\nCREATE TABLE v AS SELECT 1;\nCREATE TABLE w (x int REFERENCES missing);",
    );
    let left_out: Vec<(usize, &str)> =
        schema.left_out.iter().map(|one| (one.line, one.why.as_str())).collect();
    let wanted = [
        (4, "this kind of statement"),
        (5, "no table nowhere"),
        (6, "LIKE"),
        (7, "the columns of a table that is made by a query"),
        (8, "the table missing that is referenced"),
    ];
    assert_eq!(left_out, wanted);
    assert_eq!(schema.left_out[0].statement, "DROP TABLE t");
    assert!(table(&schema, "w").user_triggers, "an unknown reference is unknown code");
    assert!(Schema::from_ddl("CREATE TABLE (").is_err());
}
