//! Random statements in which constants reach a column by way of another query: VALUES, sub-queries in FROM, WITH, UNION.
//!
//! Of several rows the constants may become one type together, and a join may put NULL in the place of one.

use super::constant::Kind;
use super::draft::{Source, Writer};
use super::schema::Column;

/// A table expression with a column `v.c` of constants.
struct Given {
    with: String,
    from: String,
}

impl<'a> Writer<'a> {
    /// A constant of a kind, or one that becomes another when it meets others.
    fn loose(&mut self, kind: Kind) -> String {
        if self.percent(12) {
            let is_text = matches!(kind, Kind::Text | Kind::Varchar | Kind::Char);
            let odd = if is_text { ["'01'", "1", "1.0"] } else { ["'1'", "1.0", "NULL"] };
            return (*self.dice.pick(&odd)).to_owned();
        }
        self.constant(kind)
    }

    fn given(&mut self, kind: Kind) -> Given {
        let (one, other) = (self.loose(kind), self.loose(kind));
        let here = |from: String| Given { with: String::new(), from };
        let before = |with: String| Given { with, from: "v".to_owned() };
        match self.dice.below(6) {
            0 => here(format!("(SELECT {one} AS c) v")),
            1 => here(format!("(VALUES ({one}), ({other})) v (c)")),
            2 => here(format!("(SELECT {one} AS c UNION ALL SELECT {other}) v")),
            3 => before(format!("WITH v (c) AS (VALUES ({one}), ({other})) ")),
            4 => before(format!("WITH v AS (SELECT {one} AS c UNION SELECT {other}) ")),
            _ => before(format!("WITH w AS (SELECT {one} AS c), v AS (SELECT w.c FROM w) ")),
        }
    }

    /// A query that compares a column with constants of another query.
    pub(super) fn by_given(&mut self) -> String {
        let source = self.source();
        let (name, column) = self.column(&source);
        let Given { with, from } = self.given(column.kind);
        let (relation, alias) = (&source.relation.name, &source.name);
        let inside = self.predicate(std::slice::from_ref(&source), 1);
        match self.dice.below(5) {
            0 => format!(
                "{with}SELECT {alias}.k, v.c FROM {relation} {alias} LEFT JOIN {from} ON {name} = v.c WHERE {inside}"
            ),
            1 => format!(
                "{with}SELECT {alias}.k FROM {from} LEFT JOIN {relation} {alias} ON {name} = v.c AND {inside}"
            ),
            2 => format!(
                "{with}SELECT {alias}.* FROM {relation} {alias} WHERE {name} IN (SELECT v.c FROM {from}) AND {inside}"
            ),
            3 => format!(
                "{with}SELECT {alias}.* FROM {relation} {alias} FULL JOIN {from} ON true WHERE {name} = v.c AND {inside}"
            ),
            _ => format!(
                "{with}SELECT {alias}.* FROM {relation} {alias}, {from} WHERE {name} = v.c AND {inside}"
            ),
        }
    }

    /// A change of the rows in which a column equals constants of another query.
    pub(super) fn change_by_given(&mut self, me: &Source<'a>, set: Option<String>) -> String {
        let (name, column) = self.column(me);
        let Given { with, from } = self.given(column.kind);
        let relation = &me.relation.name;
        match set {
            Some(set) => format!("{with}UPDATE {relation} AS me SET {set} FROM {from} WHERE {name} = v.c"),
            None => format!("{with}DELETE FROM {relation} AS me USING {from} WHERE {name} = v.c"),
        }
    }

    /// Rows of constants for an INSERT.
    pub(super) fn given_rows(&mut self, columns: &[&'a Column]) -> String {
        let row =
            |writer: &mut Self| columns.iter().map(|column| writer.loose(column.kind)).collect::<Vec<_>>();
        let (one, other) = (row(self), row(self));
        let numbers = (1..=columns.len()).map(|at| format!("c{at}")).collect::<Vec<_>>().join(", ");
        let (first, second) = (one.join(", "), other.join(", "));
        let order = (1..=columns.len()).map(|at| at.to_string()).collect::<Vec<_>>().join(", ");
        match self.dice.below(5) {
            0 => format!("SELECT {first}"),
            1 => format!("SELECT {first} UNION ALL SELECT {second} ORDER BY {order}"),
            2 => format!("SELECT * FROM (VALUES ({first}), ({second})) v ({numbers}) ORDER BY {order}"),
            3 => format!("WITH v ({numbers}) AS (SELECT {first}) SELECT v.* FROM v"),
            _ => {
                // What must not be NULL stands for itself.
                let outputs = columns.iter().zip(&one).enumerate().map(|(at, (column, value))| {
                    if matches!(column.name, "k" | "l") { value.clone() } else { format!("v.c{}", at + 1) }
                });
                let outputs = outputs.collect::<Vec<_>>().join(", ");
                let source = self.source();
                let inside = self.predicate(std::slice::from_ref(&source), 0);
                let (relation, alias) = (&source.relation.name, &source.name);
                format!(
                    "SELECT {outputs} FROM (SELECT count(*) AS n FROM {relation} {alias} WHERE {inside}) z \
                     LEFT JOIN (VALUES ({second})) v ({numbers}) ON z.n > 1"
                )
            }
        }
    }
}
