//! What the catalogue says of a real server's schema.

use sql::{Action, Catalogue, ColumnDefault, Key, Name, Table};

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

async fn catalogue(schema: &[&str]) -> (Pair, Box<Catalogue>) {
    let mut pair = Pair::start().await;
    for sql in schema {
        pair.ddl(sql).await;
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
    assert_eq!(deterministic.iter().position(|is| !is), Some(2));
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
