//! The contents of the catalogue for the schema of a real server.

use std::fmt::Write as _;

use sql::{
    Access, Action, Analyzer, Because, Catalogue, Claims, ColumnDefault, Key, Limits, Name, Routing, Table,
    Trigger,
};

use super::{AgentEvent, Command, Pair};

const SCHEMA: &[&str] = &[
    "CREATE COLLATION blind (provider = icu, locale = 'und-u-ks-level2', deterministic = false)",
    "CREATE TABLE groups (a int, b text, PRIMARY KEY (b, a))",
    "CREATE TABLE people (id serial PRIMARY KEY, number int GENERATED ALWAYS AS IDENTITY, \
     name text COLLATE blind DEFAULT 'it''s', code char(3) DEFAULT 'x', price numeric(10, 2) DEFAULT 1.5, \
     made timestamptz DEFAULT now(), ga int, gb text, boss int REFERENCES people ON DELETE SET NULL, \
     twice int GENERATED ALWAYS AS (ga * 2) STORED, \
     FOREIGN KEY (ga, gb) REFERENCES groups (a, b) MATCH FULL ON UPDATE CASCADE DEFERRABLE, \
     UNIQUE (code, ga) DEFERRABLE)",
    "CREATE UNIQUE INDEX people_lower ON people (lower(name), id)",
    "CREATE UNIQUE INDEX people_some ON people (gb) INCLUDE (boss) WHERE ga > 0",
    "CREATE UNIQUE INDEX people_c ON people (name COLLATE \"C\")",
    "CREATE TABLE booked (during tsrange, room int, EXCLUDE USING gist (during WITH &&))",
    "CREATE TABLE whole (id int PRIMARY KEY, v int) PARTITION BY RANGE (id)",
    "CREATE TABLE low PARTITION OF whole FOR VALUES FROM (0) TO (10)",
    "CREATE TABLE high (v int, gone int, id int NOT NULL)",
    "ALTER TABLE high DROP COLUMN gone",
    "ALTER TABLE whole ATTACH PARTITION high FOR VALUES FROM (10) TO (20)",
    "CREATE TABLE into_parts (x int, p int REFERENCES whole ON DELETE CASCADE) PARTITION BY LIST (x)",
    "CREATE TABLE into_one PARTITION OF into_parts DEFAULT",
];

/// Code of every kind, around the tables above.
const CODE: &[&str] = &[
    "CREATE SCHEMA other",
    "CREATE TYPE mood AS ENUM ('sad', 'ok')",
    "CREATE DOMAIN positive AS int CHECK (VALUE > 0)",
    "CREATE TABLE log (at timestamptz DEFAULT now(), what text)",
    "CREATE TABLE other.items (id int PRIMARY KEY, price int, left_over int DEFAULT 3)",
    "CREATE TABLE orders (id bigserial PRIMARY KEY, item int REFERENCES other.items, n int, owner text)",
    "CREATE SEQUENCE other.odd AS smallint START 5 INCREMENT -2 MINVALUE -9 MAXVALUE 99 CYCLE CACHE 7",
    "CREATE VIEW dear AS SELECT * FROM other.items WHERE price > 10",
    "CREATE VIEW summary WITH (security_barrier) AS SELECT d.id, sum(o.n) FROM dear d JOIN orders o ON o.item = d.id GROUP BY 1",
    "CREATE VIEW sizes AS SELECT relname FROM pg_class",
    "CREATE FUNCTION price_of(item int) RETURNS int STABLE LANGUAGE sql AS 'SELECT price FROM other.items WHERE id = item'",
    "CREATE FUNCTION price_of(item text, VARIADIC more int[] DEFAULT '{}') RETURNS int LANGUAGE sql RETURN (SELECT max(price) FROM other.items)",
    "CREATE FUNCTION total(p int, OUT n int, OUT cost int) RETURNS SETOF record LANGUAGE plpgsql SET search_path = other, public AS \
     $$ DECLARE r items%ROWTYPE; BEGIN FOR r IN SELECT * FROM items WHERE id = p LOOP n := 1; cost := price_of(r.id); RETURN NEXT; END LOOP; END $$",
    "CREATE FUNCTION spend(p positive) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION kind_of(regclass) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE DOMAIN checked_int AS int CHECK (price_of(VALUE) > 0)",
    "CREATE FUNCTION risky(checked_int[]) RETURNS int LANGUAGE sql AS 'SELECT 1'",
    "CREATE FUNCTION dynamic() RETURNS int LANGUAGE plpgsql AS $$ BEGIN EXECUTE 'SELECT 1'; RETURN 1; END $$",
    "CREATE FUNCTION item_row(int) RETURNS other.items LANGUAGE sql AS 'SELECT * FROM other.items WHERE id = $1'",
    "CREATE PROCEDURE refill(INOUT n int) LANGUAGE plpgsql AS $$ BEGIN UPDATE other.items SET left_over = n; END $$",
    "CREATE FUNCTION logged() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO log (what) VALUES (TG_OP); RETURN NULL; END $$",
    "CREATE FUNCTION stamped() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.owner := current_user; RETURN NEW; END; $$",
    "CREATE TRIGGER logging AFTER INSERT OR DELETE ON orders FOR EACH STATEMENT EXECUTE FUNCTION logged()",
    "CREATE TRIGGER stamping BEFORE UPDATE OF n ON orders FOR EACH ROW WHEN (NEW.n > 0) EXECUTE FUNCTION stamped()",
    "CREATE TRIGGER off BEFORE INSERT ON other.items FOR EACH ROW EXECUTE FUNCTION logged()",
    "ALTER TABLE other.items DISABLE TRIGGER off",
    "CREATE CONSTRAINT TRIGGER late AFTER UPDATE ON booked DEFERRABLE INITIALLY DEFERRED FOR EACH ROW WHEN (price_of(1) > 1) EXECUTE FUNCTION logged()",
    "CREATE TRIGGER instead INSTEAD OF INSERT ON summary FOR EACH ROW EXECUTE FUNCTION logged()",
    "CREATE RULE quiet AS ON DELETE TO whole DO INSTEAD NOTHING",
    "CREATE FUNCTION parts_written() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$",
    "CREATE TRIGGER on_parts AFTER INSERT ON into_parts FOR EACH STATEMENT EXECUTE FUNCTION parts_written()",
    "CREATE TRIGGER on_rows AFTER INSERT ON into_parts FOR EACH ROW EXECUTE FUNCTION parts_written()",
    "ALTER TABLE groups ENABLE ROW LEVEL SECURITY",
    "CREATE POLICY own ON groups USING (b = current_user) WITH CHECK (a IN (SELECT id FROM other.items))",
    "CREATE FUNCTION checked(int) RETURNS boolean IMMUTABLE LANGUAGE sql AS 'SELECT $1 > 0'",
    "CREATE TABLE careful (id int PRIMARY KEY CHECK (checked(id)))",
];

async fn catalogue(schema: &[&str]) -> (Pair, Box<Catalogue>) {
    let mut pair = Pair::start().await;
    let mut superuser = pair.servers[0].connect("").await;
    let found = superuser
        .simple("SELECT 1 FROM pg_collation WHERE collprovider = 'i' OFFSET 9 LIMIT 1")
        .await
        .unwrap();
    for sql in schema {
        // A build without ICU has hardly any of its collations, and only deterministic ones.
        if !found.is_empty() {
            pair.ddl(sql).await;
        } else if !sql.starts_with("CREATE COLLATION") {
            pair.ddl(&sql.replace(" COLLATE blind", "")).await;
        }
    }
    let load = Command::LoadCatalogue { incarnation: pair.second.incarnation, generation: 42 };
    pair.second.commands.send(load).await.unwrap();
    let AgentEvent::Catalogue { catalogue } = pair.second.event().await else { panic!("no catalogue") };
    (pair, catalogue)
}

fn table<'a>(catalogue: &'a Catalogue, name: &str) -> &'a Table {
    catalogue.tables().find(|table| table.name == name).unwrap_or_else(|| panic!("{name}"))
}

#[tokio::test]
async fn keys_references_and_defaults_are_known() {
    let (_pair, catalogue) = catalogue(SCHEMA).await;
    let people = table(&catalogue, "people");
    let unique = |columns: &[usize]| Key { columns: columns.to_vec(), unique: true, ..Key::default() };
    let keys = [
        Key { primary: true, ..unique(&[0]) },
        Key { deferrable: true, ..unique(&[3, 6]) },
        Key { expression: true, ..unique(&[0, 2]) },
        Key { partial: true, ..unique(&[6, 7, 8]) },
        Key { expression: true, ..unique(&[2]) },
    ];
    assert_eq!(people.keys, keys);
    let key = &table(&catalogue, "booked").keys[0];
    assert!(key.exclusion && !key.unique && key.columns == [0]);

    let defaults: Vec<_> = people.columns.iter().map(|column| column.default.clone()).collect();
    let constant = |text: &str| ColumnDefault::Constant(text.to_owned());
    let expression = |text: &str| ColumnDefault::Expression(text.to_owned());
    let sequence = |name: &str| ColumnDefault::Sequence(Name::qualified("public", name));
    let none = ColumnDefault::None;
    let wanted = [
        sequence("people_id_seq"),
        sequence("people_number_seq"),
        constant("it's"),
        constant("x"),
        constant("1.5"),
        expression("now()"),
        none.clone(),
        none.clone(),
        none,
        expression("(ga * 2)"),
    ];
    assert_eq!(defaults, wanted);
    let deterministic: Vec<_> = people.columns.iter().map(|c| c.collation_deterministic).collect();
    assert!(deterministic.iter().enumerate().all(|(at, is)| *is || at == 2), "{deterministic:?}");
    assert_eq!(
        (people.columns[3].type_mod, people.columns[4].type_mod, people.columns[0].type_mod),
        (7, 655_366, -1)
    );

    let groups = table(&catalogue, "groups").id;
    let mut references = people.references.clone();
    references.sort_by_key(|reference| reference.columns.len());
    assert_eq!((references[0].columns.as_slice(), references[0].parent), (&[8][..], people.id));
    assert_eq!((references[0].on_delete, references[0].on_update), (Action::SetNull, Action::NoAction));
    let second = &references[1];
    assert_eq!((second.columns.as_slice(), second.parent_columns.as_slice()), (&[6, 7][..], &[0, 1][..]));
    assert_eq!((second.parent, second.on_update), (groups, Action::Cascade));
    assert!(second.deferrable && second.matches_full && !second.period && references.len() == 2);

    let (low, high, one) =
        (table(&catalogue, "low"), table(&catalogue, "high"), table(&catalogue, "into_one"));
    let mut pointed: Vec<_> =
        one.references.iter().map(|r| (r.parent, r.columns.clone(), r.parent_columns.clone())).collect();
    pointed.sort();
    let mut expected = [(low.id, vec![1], vec![0]), (high.id, vec![1], vec![1])];
    expected.sort();
    assert_eq!(pointed, expected);
    let back: Vec<_> = catalogue.referenced_by(high.id).map(|(table, r)| (table.id, r.on_delete)).collect();
    assert_eq!(back, [(one.id, Action::Cascade)]);
    assert!(!one.user_triggers && !high.user_triggers);
    assert_eq!(high.keys, [Key { primary: true, ..unique(&[1]) }]);
}

fn trigger(trigger: &Trigger) -> String {
    let events = [
        (trigger.on_insert, "insert"),
        (trigger.on_update, "update"),
        (trigger.on_delete, "delete"),
        (trigger.on_truncate, "truncate"),
    ];
    let events: Vec<_> = events.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    let flags = [
        (trigger.each_row, "row"),
        (!trigger.enabled, "off"),
        (trigger.deferrable, "deferrable"),
        (trigger.condition_runs_code, "calls"),
    ];
    let flags: Vec<_> = flags.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
    let (name, timing, function) = (&trigger.name, trigger.timing, &trigger.function);
    format!("trigger {name} {timing:?} {events:?} {flags:?} {function}")
}

/// Everything of a catalogue beside columns, keys and references, one thing a line.
fn shown(catalogue: &Catalogue) -> String {
    let mut text = String::new();
    for table in catalogue.tables() {
        let code = [(table.user_triggers, "code"), (table.own_code, "own"), (table.row_security, "secured")];
        let code: Vec<_> = code.iter().filter(|(on, _)| *on).map(|(_, name)| *name).collect();
        writeln!(text, "table {}.{} {code:?}", table.schema, table.name).unwrap();
        table.triggers.iter().for_each(|t| writeln!(text, "    {}", trigger(t)).unwrap());
        table.rules.iter().for_each(|rule| writeln!(text, "    rule {}", rule.name).unwrap());
        for policy in &table.policies {
            writeln!(text, "    policy {} {:?}", policy.name, policy.expressions).unwrap();
        }
    }
    for view in catalogue.views() {
        let query = view.definition.split_whitespace().collect::<Vec<_>>().join(" ");
        writeln!(text, "view {}.{} {query}", view.schema, view.name).unwrap();
        view.triggers.iter().for_each(|t| writeln!(text, "    {}", trigger(t)).unwrap());
    }
    for f in catalogue.functions().filter(|f| !f.schema.starts_with("onecopy")) {
        let arguments: Vec<_> = f.arguments.iter().map(|a| format!("{:?} {}", a.mode, a.name)).collect();
        let body = format!("{:?}", f.body);
        let body = body.split_whitespace().collect::<Vec<_>>().join(" ");
        let set = if f.returns_set { " set of" } else { "" };
        writeln!(
            text,
            "function {}.{} {:?} {arguments:?}{set} {:?} {:?} default [{}] set {:?}\n    {}",
            f.schema, f.name, f.volatility, f.returns, f.types, f.defaults, f.settings, body
        )
        .unwrap();
    }
    for s in catalogue.sequences() {
        let drawn = catalogue.drawn_from(&s.schema, &s.name).len();
        writeln!(
            text,
            "sequence {}.{} {} from {} by {} in {}..{} cycle {} cache {} owned {} identity {} drawn {drawn}",
            s.schema,
            s.name,
            s.type_name,
            s.start,
            s.increment,
            s.min,
            s.max,
            s.cycle,
            s.cache,
            s.owner.is_some(),
            s.identity
        )
        .unwrap();
    }
    // Only older servers name a column's table where there is no other.
    text.replace("items.price", "price")
        .replace("items.id", "id")
        .replace("items.left", "left")
        .replace("pg_class.", "")
}

/// `catalogue.txt` holds the expected text.
#[tokio::test]
async fn code_is_known() {
    let schema: Vec<_> = SCHEMA.iter().chain(CODE).copied().collect();
    let (_pair, catalogue) = catalogue(&schema).await;
    let shown = shown(&catalogue);
    assert_eq!(shown, include_str!("catalogue.txt"), "it is:\n{shown}");

    let routing = |text: &str| -> Routing {
        let script = Analyzer::new(Limits::default()).script(text.as_bytes(), true).unwrap();
        Routing::clone(&script.statements[0].statement.routing(&catalogue))
    };
    let ids = |names: &[&str]| {
        let mut ids: Vec<_> = names.iter().map(|name| table(&catalogue, name).id).collect();
        ids.sort();
        ids
    };
    let reads: [(&str, &[&str]); 8] = [
        ("SELECT * FROM dear", &["items"]),
        ("SELECT * FROM summary", &["items", "orders"]),
        ("SELECT price_of(1), price_of('a', 2)", &["items"]),
        ("SELECT * FROM total(1)", &["items"]),
        ("SELECT item_row(1)", &["items"]),
        ("SELECT spend(1)", &[]),
        ("SELECT * FROM whole", &["low", "high"]),
        ("SELECT * FROM groups", &["groups", "items"]),
    ];
    for (text, wanted) in reads {
        assert_eq!(routing(text).access, Access::Read(ids(wanted)), "{text}");
    }
    let anchored = [
        ("SELECT * FROM sizes", Because::Catalogue),
        ("SELECT kind_of('log')", Because::Catalogue),
        ("SELECT risky('{1}')", Because::Unknown),
        ("SELECT dynamic()", Because::Unknown),
        ("SELECT last_value FROM other.odd", Because::Unknown),
    ];
    for (text, because) in anchored {
        assert_eq!(routing(text).access, Access::Anchor(because), "{text}");
    }
    let insert = routing("INSERT INTO orders (item) VALUES (1)");
    assert_eq!((insert.writes, insert.claims), (Some(ids(&["orders", "log"])), Claims::Rows));
    let call = routing("CALL refill(1)");
    assert_eq!((call.writes, call.claims), (Some(ids(&["items"])), Claims::Rows));
    let delete = routing("DELETE FROM into_parts");
    assert_eq!((delete.writes, delete.claims), (Some(ids(&["into_one"])), Claims::Rows));
    for text in ["UPDATE booked SET room = 1", "DELETE FROM whole", "INSERT INTO careful VALUES (1)"] {
        assert_eq!(routing(text).claims, Claims::Everything, "{text}");
    }
}
