//! Random statements over a random schema: queries and what they are made of.
//!
//! Every statement's own result is a function of the rows: what is limited is ordered by all that it returns, no join of
//! an UPDATE gives a row two partners, no scalar sub-query gives two rows, and nothing divides.

use sim::dice::Dice;

use super::constant::{Bound, Kind, element};
use super::schema::{Column, Relation, World};

/// A statement with its parameters.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    pub(crate) text: String,
    pub(crate) parameters: Vec<Bound>,
}

/// Where a statement is written.
pub(super) struct Writer<'a> {
    pub(super) dice: &'a mut Dice,
    pub(super) world: &'a World,
    pub(super) parameters: Vec<Bound>,
    /// Constants become parameters.
    binds: bool,
    names: u32,
}

/// A relation under a name.
#[derive(Clone)]
pub(super) struct Source<'a> {
    pub(super) name: String,
    pub(super) relation: &'a Relation,
}

impl Draft {
    /// Draws one.
    pub(crate) fn draw(dice: &mut Dice, world: &World) -> Self {
        let binds = dice.percent(40);
        let mut writer = Writer { dice, world, parameters: Vec::new(), binds, names: 0 };
        let text = writer.statement();
        Self { text, parameters: writer.parameters }
    }
}

impl<'a> Writer<'a> {
    pub(super) fn percent(&mut self, chance: u64) -> bool {
        self.dice.percent(chance)
    }

    pub(super) fn relation(&mut self) -> &'a Relation {
        self.dice.pick(&self.world.relations)
    }

    pub(super) fn source(&mut self) -> Source<'a> {
        let relation = self.relation();
        self.names += 1;
        Source { name: format!("x{}", self.names), relation }
    }

    pub(super) fn constant(&mut self, kind: Kind) -> String {
        if self.binds && self.dice.percent(75) {
            self.parameters.push(Bound::draw(self.dice, kind));
            return format!("${}", self.parameters.len());
        }
        if self.dice.percent(4) { "NULL".to_owned() } else { kind.written(self.dice) }
    }

    pub(super) fn column(&mut self, source: &Source<'a>) -> (String, &'a Column) {
        let column = if self.dice.percent(35) {
            &source.relation.columns[0]
        } else {
            self.dice.pick(&source.relation.columns)
        };
        (format!("{}.{}", source.name, column.name), column)
    }

    /// The relation of a column that compares with a kind, and that column.
    fn comparable(&mut self, kind: Kind) -> Option<(Source<'a>, String)> {
        let source = self.source();
        let columns: Vec<&Column> =
            source.relation.columns.iter().filter(|column| column.kind.compares_with(kind)).collect();
        if columns.is_empty() {
            return None;
        }
        let name = format!("{}.{}", source.name, self.dice.pick(&columns).name);
        Some((source, name))
    }

    /// WHERE, or nothing.
    pub(super) fn condition(&mut self, sources: &[Source<'a>]) -> String {
        if self.percent(12) { String::new() } else { format!(" WHERE {}", self.predicate(sources, 2)) }
    }

    pub(super) fn predicate(&mut self, sources: &[Source<'a>], depth: u32) -> String {
        let kind = self.dice.below(if depth == 0 { 10 } else { 18 });
        match kind {
            0..10 => self.comparison(sources),
            10..12 => {
                format!("({} AND {})", self.predicate(sources, depth - 1), self.predicate(sources, depth - 1))
            }
            12..14 => {
                format!("({} OR {})", self.predicate(sources, depth - 1), self.predicate(sources, depth - 1))
            }
            14 => format!("NOT ({})", self.predicate(sources, depth - 1)),
            15 => format!("({}) IS NOT TRUE", self.predicate(sources, depth - 1)),
            _ => self.subquery(sources),
        }
    }

    fn comparison(&mut self, sources: &[Source<'a>]) -> String {
        let source = self.dice.pick(sources).clone();
        let (name, column) = self.column(&source);
        let kind = column.kind;
        match self.dice.below(16) {
            0..5 => format!("{name} = {}", self.constant(kind)),
            5 => format!("{} = {name}", self.constant(kind)),
            6 => format!("{name} IN ({}, {})", self.constant(kind), self.constant(kind)),
            7 => {
                let (one, other) = (element(&kind.bare(self.dice)), element(&kind.bare(self.dice)));
                match self.dice.below(3) {
                    0 => format!("{name} = ANY ('{{{one},{other}}}')"),
                    1 => {
                        format!("{name} = ANY (ARRAY[{}, {}])", kind.plain(self.dice), kind.plain(self.dice))
                    }
                    _ => format!("{name} <> ALL ('{{{one}}}')"),
                }
            }
            8 if self.binds => {
                self.parameters.push(Bound::array(self.dice, kind));
                format!("{name} = ANY (${})", self.parameters.len())
            }
            8 => format!("{name} BETWEEN {} AND {}", self.constant(kind), self.constant(kind)),
            9 => format!("{name} IS NULL"),
            10 => format!("{name} IS NOT DISTINCT FROM {}", self.constant(kind)),
            11 => {
                let (second, other) = self.column(&source);
                let (one, two) = (self.constant(kind), self.constant(other.kind));
                let operator = self.dice.pick(&["=", "=", "=", "<>", "<"]);
                format!("({name}, {second}) {operator} ({one}, {two})")
            }
            12 => format!(
                "{name} {} {}",
                self.dice.pick(&["<>", "<", ">=", "IS DISTINCT FROM"]),
                self.constant(kind)
            ),
            13 => format!("{name}::text = '{}'", kind.bare(self.dice)),
            14 => match kind {
                Kind::Int | Kind::Bigint => format!("{name} + 1 = {}", self.constant(kind)),
                Kind::Bool => format!("NOT {name}"),
                _ => format!("coalesce({name}, {}) = {}", kind.plain(self.dice), self.constant(kind)),
            },
            _ => {
                let other = self.dice.pick(sources).clone();
                let (second, other) = self.column(&other);
                if other.kind.compares_with(kind) {
                    format!("{name} = {second}")
                } else {
                    format!("{second} IS NOT NULL")
                }
            }
        }
    }

    fn subquery(&mut self, sources: &[Source<'a>]) -> String {
        let outer = self.dice.pick(sources).clone();
        let (name, column) = self.column(&outer);
        let Some((source, inner)) = self.comparable(column.kind) else {
            return format!("{name} IS NOT NULL");
        };
        let (relation, alias) = (&source.relation.name, source.name.clone());
        let inside = self.predicate(&[source], 0);
        let not = if self.percent(25) { "NOT " } else { "" };
        match self.dice.below(4) {
            0 => format!("{not}EXISTS (SELECT FROM {relation} {alias} WHERE {inner} = {name} AND {inside})"),
            1 => format!("{name} {not}IN (SELECT {inner} FROM {relation} {alias} WHERE {inside})"),
            2 => format!("{not}EXISTS (SELECT 1 FROM {relation} {alias} WHERE {inside})"),
            _ => format!(
                "{not}(SELECT count(*) FROM {relation} {alias} WHERE {inner} = {name} AND {inside}) = 1"
            ),
        }
    }

    /// Some columns of the sources, each of a name of its own.
    fn outputs(&mut self, sources: &[Source<'a>]) -> String {
        let count = self.dice.between(1, 3);
        let outputs: Vec<String> = (0..count)
            .map(|_| {
                let source = self.dice.pick(sources).clone();
                self.column(&source).0
            })
            .collect();
        outputs.join(", ")
    }

    pub(super) fn query(&mut self) -> String {
        match self.dice.below(14) {
            0..4 => self.plain_query(),
            4..7 => self.join(),
            7..9 => self.by_given(),
            9 => self.aggregate(),
            10 => self.lateral(),
            11 => {
                let source = self.source();
                let condition = self.condition(std::slice::from_ref(&source));
                let outer = self.predicate(&[Source { name: "w".to_owned(), relation: source.relation }], 1);
                let (relation, name) = (&source.relation.name, &source.name);
                format!(
                    "WITH w AS (SELECT {name}.* FROM {relation} {name}{condition}) SELECT * FROM w WHERE {outer}"
                )
            }
            12 => {
                let (left, right) = (self.plain_count(), self.plain_count());
                format!("{left} {} {right}", self.dice.pick(&["UNION", "UNION ALL", "EXCEPT", "INTERSECT"]))
            }
            _ => match self.world.functions.first() {
                Some(name) => format!("SELECT {name}({})", self.dice.below(5)),
                None => self.plain_query(),
            },
        }
    }

    fn plain_count(&mut self) -> String {
        let source = self.source();
        let condition = self.condition(std::slice::from_ref(&source));
        format!("SELECT {}.a FROM {} {}{condition}", source.name, source.relation.name, source.name)
    }

    fn plain_query(&mut self) -> String {
        let source = self.source();
        let sources = std::slice::from_ref(&source);
        let condition = self.condition(sources);
        let (relation, name) = (&source.relation.name, &source.name);
        let only = if source.relation.is_table && self.percent(10) { "ONLY " } else { "" };
        match self.dice.below(10) {
            0..3 => format!("SELECT * FROM {only}{relation} {name}{condition}"),
            3 => format!("SELECT DISTINCT {} FROM {only}{relation} {name}{condition}", self.outputs(sources)),
            4 => {
                let numbers: Vec<String> =
                    (1..=source.relation.columns.len()).map(|n| n.to_string()).collect();
                let limit = self.dice.between(1, 2);
                format!(
                    "SELECT * FROM {relation} {name}{condition} ORDER BY {} LIMIT {limit}",
                    numbers.join(", ")
                )
            }
            5 if source.relation.is_table => {
                let strength = self.dice.pick(&["UPDATE", "NO KEY UPDATE", "SHARE", "KEY SHARE"]);
                format!("SELECT {name}.k FROM {relation} {name}{condition} FOR {strength}")
            }
            _ => format!("SELECT {} FROM {only}{relation} {name}{condition}", self.outputs(sources)),
        }
    }

    fn join(&mut self) -> String {
        let left = self.source();
        let (name, column) = self.column(&left);
        let Some((right, other)) = self.comparable(column.kind) else { return self.plain_query() };
        let sources = [left.clone(), right.clone()];
        let outputs = self.outputs(&sources);
        let condition = self.condition(&sources);
        let (one, two) = (
            format!("{} {}", left.relation.name, left.name),
            format!("{} {}", right.relation.name, right.name),
        );
        let a_kind = |source: &Source<'_>| source.relation.columns.iter().any(|column| column.name == "a");
        match self.dice.below(5) {
            0 => format!("SELECT {outputs} FROM {one} LEFT JOIN {two} ON {name} = {other}{condition}"),
            1 => {
                let inside = self.predicate(std::slice::from_ref(&right), 0);
                format!("SELECT {outputs} FROM {one} FULL JOIN {two} ON {name} = {other} AND {inside}")
            }
            2 if a_kind(&left) && a_kind(&right) => {
                format!("SELECT a, {}.k FROM {one} JOIN {two} USING (a){condition}", left.name)
            }
            3 => {
                let inside = self.predicate(&sources, 1);
                format!("SELECT {outputs} FROM {one}, {two} WHERE {name} = {other} AND {inside}")
            }
            _ => format!("SELECT {outputs} FROM {one} JOIN {two} ON {name} = {other}{condition}"),
        }
    }

    fn aggregate(&mut self) -> String {
        let source = self.source();
        let condition = self.condition(std::slice::from_ref(&source));
        let (relation, name) = (&source.relation.name, &source.name);
        if self.percent(50) {
            format!("SELECT count(*), sum({name}.a), min({name}.k::text) FROM {relation} {name}{condition}")
        } else {
            format!(
                "SELECT {name}.a, count(*) FROM {relation} {name}{condition} GROUP BY {name}.a HAVING count(*) > {}",
                self.dice.below(2)
            )
        }
    }

    fn lateral(&mut self) -> String {
        let (left, right) = (self.source(), self.source());
        let inside = self.predicate(std::slice::from_ref(&right), 0);
        let condition = self.condition(std::slice::from_ref(&left));
        format!(
            "SELECT {left}.k, z.n FROM {one} {left}, LATERAL (SELECT count(*) AS n FROM {two} {right} \
             WHERE {right}.a = {left}.a AND {inside}) z{condition}",
            left = left.name,
            right = right.name,
            one = left.relation.name,
            two = right.relation.name,
        )
    }
}
