//! Random small schemas with rows over tiny domains, so that statements meet often.
//!
//! Two to four tables refer to each other; beside them there may be views, a partition tree, an inheritance child, a
//! trigger and a function that writes. There are no sequences: what they give is no function of the rows.

use sim::dice::Dice;

use super::constant::Kind;

/// A column.
#[derive(Clone, Debug)]
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) generated: bool,
}

/// Something that statements can name.
#[derive(Clone, Debug)]
pub(super) struct Relation {
    pub(super) name: String,
    pub(super) columns: Vec<Column>,
    /// The columns of the primary key; empty without one.
    pub(super) key: Vec<usize>,
    /// Possible targets of ON CONFLICT.
    pub(super) targets: Vec<String>,
    /// Statements can change it.
    pub(super) is_writable: bool,
    /// It is a table.
    pub(super) is_table: bool,
}

/// A schema with its rows.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    /// One statement each.
    pub(crate) ddl: Vec<String>,
    /// One INSERT each; the server may refuse some.
    pub(crate) rows: Vec<String>,
    pub(super) relations: Vec<Relation>,
    /// Functions of one `int` that write.
    pub(super) functions: Vec<&'static str>,
}

const ACTIONS: [&str; 5] = ["NO ACTION", "RESTRICT", "CASCADE", "SET NULL", "SET DEFAULT"];
/// The types of primary keys; integers are the most frequent.
const KEYS: [Kind; 9] = [
    Kind::Int,
    Kind::Int,
    Kind::Int,
    Kind::Bigint,
    Kind::Text,
    Kind::Varchar,
    Kind::Char,
    Kind::Numeric,
    Kind::Date,
];

impl World {
    /// Draws one.
    pub(crate) fn draw(dice: &mut Dice) -> Self {
        let mut world = Self::default();
        for number in 0..dice.between(2, 4) {
            world.table(dice, &format!("t{number}"));
        }
        if dice.percent(40) {
            world.partitions(dice);
        }
        if dice.percent(30) {
            world.heir(dice);
        }
        if dice.percent(40) {
            world.views(dice);
        }
        if dice.percent(40) {
            world.trigger(dice);
        }
        if dice.percent(40) {
            world.function(dice);
        }
        for relation in world.relations.clone().iter().filter(|relation| relation.is_table) {
            for _ in 0..dice.between(2, 4) {
                world.rows.push(row(dice, relation));
            }
        }
        world
    }

    fn table(&mut self, dice: &mut Dice, name: &str) {
        let mut columns = vec![column("k", *dice.pick(&KEYS))];
        let mut lines = vec![format!("k {} NOT NULL", columns[0].kind.sql())];
        let mut key = vec![0];
        if dice.percent(25) {
            columns.push(column("l", Kind::draw(dice)));
            lines.push(format!("l {} NOT NULL", columns[1].kind.sql()));
            key.push(1);
        }
        columns.push(column("a", Kind::Int));
        lines.push(if dice.percent(30) { "a int DEFAULT 1".to_owned() } else { "a int".to_owned() });
        for name in ["b", "c"] {
            let kind = Kind::draw(dice);
            let default =
                if dice.percent(30) { format!(" DEFAULT {}", kind.plain(dice)) } else { String::new() };
            let not_null = if dice.percent(15) { " NOT NULL" } else { "" };
            lines.push(format!("{name} {}{not_null}{default}", kind.sql()));
            columns.push(column(name, kind));
        }
        self.reference(dice, &mut columns, &mut lines);
        if dice.percent(15) {
            lines.push("g int GENERATED ALWAYS AS (a + 1) STORED".to_owned());
            columns.push(Column { generated: true, ..column("g", Kind::Int) });
        }
        let listed = key.iter().map(|&at| columns[at].name).collect::<Vec<_>>().join(", ");
        let mut targets = Vec::new();
        if dice.percent(85) {
            lines.push(format!("PRIMARY KEY ({listed})"));
            targets.push(format!("({listed})"));
        } else {
            key.clear();
        }
        if dice.percent(15) {
            lines.push(format!("CHECK (a < {})", dice.between(2, 4)));
        }
        if dice.percent(25) {
            let nulls = if dice.percent(20) { "NULLS NOT DISTINCT " } else { "" };
            lines.push(format!("UNIQUE {nulls}(b)"));
            targets.push("(b)".to_owned());
        }
        self.ddl.push(format!("CREATE TABLE {name} ({})", lines.join(", ")));
        self.indexes(dice, name, &columns, &mut targets);
        self.relations.push(Relation {
            name: name.to_owned(),
            columns,
            key,
            targets,
            is_writable: true,
            is_table: true,
        });
    }

    /// A foreign key to a table that is there already.
    fn reference(&self, dice: &mut Dice, columns: &mut Vec<Column>, lines: &mut Vec<String>) {
        let parents: Vec<&Relation> =
            self.relations.iter().filter(|relation| relation.key.len() == 1).collect();
        if parents.is_empty() || dice.percent(25) {
            return;
        }
        let parent = dice.pick(&parents);
        let kind = parent.columns[0].kind;
        let default = if dice.percent(40) { format!(" DEFAULT {}", kind.plain(dice)) } else { String::new() };
        lines.push(format!(
            "r {}{default} REFERENCES {} ON DELETE {} ON UPDATE {}",
            kind.sql(),
            parent.name,
            dice.pick(&ACTIONS),
            dice.pick(&ACTIONS)
        ));
        columns.push(column("r", kind));
    }

    fn indexes(&mut self, dice: &mut Dice, name: &str, columns: &[Column], targets: &mut Vec<String>) {
        if dice.percent(20) {
            let at = columns.iter().position(|column| column.name == "b").expect("every table has a b");
            let predicate = if dice.percent(50) {
                format!("b = {}", columns[at].kind.plain(dice))
            } else {
                "b IS NOT NULL".to_owned()
            };
            self.ddl.push(format!("CREATE UNIQUE INDEX ON {name} (a) WHERE {predicate}"));
            targets.push(format!("(a) WHERE {predicate}"));
        }
        if dice.percent(15) {
            self.ddl.push(format!("CREATE UNIQUE INDEX ON {name} ((a % 3))"));
            targets.push("((a % 3))".to_owned());
        }
        if dice.percent(15) {
            self.ddl.push(format!("CREATE UNIQUE INDEX ON {name} (a, c)"));
            targets.push("(a, c)".to_owned());
        }
    }

    fn partitions(&mut self, dice: &mut Dice) {
        let kind = Kind::draw(dice);
        self.ddl.push(format!(
            "CREATE TABLE p (k int PRIMARY KEY, a int, b {}) PARTITION BY LIST (k)",
            kind.sql()
        ));
        self.ddl.push("CREATE TABLE p1 PARTITION OF p FOR VALUES IN (0, 1)".to_owned());
        self.ddl.push("CREATE TABLE p2 PARTITION OF p DEFAULT".to_owned());
        for name in ["p", "p1"] {
            self.relations.push(Relation {
                name: name.to_owned(),
                columns: vec![column("k", Kind::Int), column("a", Kind::Int), column("b", kind)],
                key: vec![0],
                targets: vec!["(k)".to_owned()],
                is_writable: true,
                is_table: true,
            });
        }
    }

    fn heir(&mut self, dice: &mut Dice) {
        let parent = dice.pick(&self.relations[..2]).clone();
        self.ddl.push(format!("CREATE TABLE heir (x int) INHERITS ({})", parent.name));
        let mut columns = parent.columns;
        columns.push(column("x", Kind::Int));
        self.relations.push(Relation {
            name: "heir".to_owned(),
            columns,
            key: Vec::new(),
            targets: Vec::new(),
            is_writable: true,
            is_table: true,
        });
    }

    fn views(&mut self, dice: &mut Dice) {
        let base = dice.pick(&self.relations).clone();
        let check = if dice.percent(50) { " WITH CHECK OPTION" } else { "" };
        let limit = dice.between(1, 3);
        self.ddl.push(format!("CREATE VIEW v AS SELECT k, a, b FROM {} WHERE a < {limit}{check}", base.name));
        let columns = ["k", "a", "b"].map(|name| {
            base.columns.iter().find(|column| column.name == name).expect("every table has them").clone()
        });
        let view = |name: &str, columns: Vec<Column>, is_writable| Relation {
            name: name.to_owned(),
            columns,
            key: Vec::new(),
            targets: Vec::new(),
            is_writable,
            is_table: false,
        };
        self.relations.push(view("v", columns.to_vec(), true));
        let counted = dice.pick(&self.relations).clone();
        self.ddl.push(format!("CREATE VIEW s AS SELECT a, count(*) AS k FROM {} GROUP BY a", counted.name));
        let columns = vec![column("a", Kind::Int), column("k", Kind::Bigint)];
        self.relations.push(view("s", columns, false));
    }

    /// On the last of the first tables, writing the first or a log.
    fn trigger(&mut self, dice: &mut Dice) {
        let (first, second) = (self.relations[0].name.clone(), self.relations[1].name.clone());
        let body = if dice.percent(50) {
            self.ddl.push("CREATE TABLE log (k int, a int)".to_owned());
            "INSERT INTO log VALUES (1, NEW.a);".to_owned()
        } else {
            format!("UPDATE {first} SET a = NEW.a WHERE a = 2;")
        };
        self.ddl.push(format!(
            "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN {body} RETURN NEW; END$$"
        ));
        let event = dice.pick(&["INSERT", "UPDATE", "INSERT OR UPDATE", "UPDATE OF a"]);
        let when = dice.pick(&["BEFORE", "AFTER"]);
        self.ddl.push(format!(
            "CREATE TRIGGER note {when} {event} ON {second} FOR EACH ROW EXECUTE FUNCTION note()"
        ));
    }

    fn function(&mut self, dice: &mut Dice) {
        let name = &self.relations[dice.index(2)].name;
        let body = match dice.below(3) {
            0 => format!("UPDATE {name} SET a = 3 WHERE a = $1; SELECT 1"),
            1 => format!("DELETE FROM {name} WHERE a = $1; SELECT 2"),
            _ => format!("UPDATE {name} SET a = $1 WHERE a = 0; SELECT count(*)::int FROM {name}"),
        };
        self.ddl.push(format!("CREATE FUNCTION act(int) RETURNS int LANGUAGE sql AS $${body}$$"));
        self.functions.push("act");
    }
}

fn column(name: &'static str, kind: Kind) -> Column {
    Column { name, kind, generated: false }
}

fn row(dice: &mut Dice, relation: &Relation) -> String {
    let given: Vec<&Column> = relation.columns.iter().filter(|column| !column.generated).collect();
    let names = given.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
    let values: Vec<String> = given
        .iter()
        .map(|column| {
            let is_null = column.name != "k" && dice.percent(15);
            if is_null { "NULL".to_owned() } else { column.kind.plain(dice) }
        })
        .collect();
    format!("INSERT INTO {} ({names}) VALUES ({})", relation.name, values.join(", "))
}
