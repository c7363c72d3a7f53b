//! Random statements that change rows.

use super::draft::{Source, Writer};
use super::schema::{Column, Relation};

impl<'a> Writer<'a> {
    /// A statement of any kind.
    pub(super) fn statement(&mut self) -> String {
        match self.dice.below(20) {
            0..6 => self.query(),
            6..10 => self.insert(),
            10..14 => self.update(),
            14..17 => self.delete(),
            17 => self.merge(),
            18 => self.inside_with(),
            _ if self.percent(30) => self.truncate(),
            _ => self.update(),
        }
    }

    fn writable(&mut self) -> &'a Relation {
        loop {
            let relation = self.relation();
            if relation.is_writable {
                return relation;
            }
        }
    }

    /// The columns that a statement can set, in order: all, or some.
    fn settable(&mut self, relation: &'a Relation) -> Vec<&'a Column> {
        let all = self.percent(70);
        let columns = relation.columns.iter().filter(|column| !column.generated);
        columns.filter(|column| all || column.name == "k" || self.dice.percent(60)).collect()
    }

    fn returning(&mut self) -> &'static str {
        self.dice.pick::<&str>(&["", "", " RETURNING *", " RETURNING k", " RETURNING a"])
    }

    fn insert(&mut self) -> String {
        let relation = self.writable();
        let columns = self.settable(relation);
        let names = columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        let rows = match self.dice.below(20) {
            0..14 => self.rows(&columns),
            14..17 => self.selected(&columns),
            _ => self.given_rows(&columns),
        };
        let conflict = self.on_conflict(relation, &columns);
        format!("INSERT INTO {} AS me ({names}) {rows}{conflict}{}", relation.name, self.returning())
    }

    fn rows(&mut self, columns: &[&'a Column]) -> String {
        let rows = if self.percent(70) { 1 } else { 2 };
        let rows: Vec<String> = (0..rows)
            .map(|_| {
                let values: Vec<String> = columns
                    .iter()
                    .map(|column| match self.dice.below(20) {
                        0 => "DEFAULT".to_owned(),
                        1..8 => column.kind.plain(self.dice),
                        _ if rows > 1 => column.kind.plain(self.dice),
                        _ => self.constant(column.kind),
                    })
                    .collect();
                format!("({})", values.join(", "))
            })
            .collect();
        format!("VALUES {}", rows.join(", "))
    }

    /// Rows of another table, ordered so that the first of two equal keys is always the same.
    fn selected(&mut self, columns: &[&'a Column]) -> String {
        let source = self.source();
        let outputs: Vec<String> = columns
            .iter()
            .map(|column| {
                let same = source.relation.columns.iter().find(|other| other.kind == column.kind);
                match same {
                    Some(other) if self.dice.percent(70) => format!("{}.{}", source.name, other.name),
                    _ => format!("{}::{}", column.kind.plain(self.dice), column.kind.sql()),
                }
            })
            .collect();
        let condition = self.condition(std::slice::from_ref(&source));
        let order: Vec<String> = (1..=outputs.len()).map(|at| at.to_string()).collect();
        format!(
            "SELECT {} FROM {} {}{condition} ORDER BY {}",
            outputs.join(", "),
            source.relation.name,
            source.name,
            order.join(", ")
        )
    }

    fn on_conflict(&mut self, relation: &'a Relation, columns: &[&'a Column]) -> String {
        if self.percent(60) {
            return String::new();
        }
        if relation.targets.is_empty() || self.percent(30) {
            return " ON CONFLICT DO NOTHING".to_owned();
        }
        let target = self.dice.pick(&relation.targets);
        if self.percent(30) {
            return format!(" ON CONFLICT {target} DO NOTHING");
        }
        let column = self.dice.pick(columns);
        let value = match self.dice.below(3) {
            0 => format!("excluded.{}", column.name),
            1 => column.kind.plain(self.dice),
            _ => format!("me.{}", column.name),
        };
        let me = Source { name: "me".to_owned(), relation };
        let condition = if self.percent(40) { self.condition(&[me]) } else { String::new() };
        format!(" ON CONFLICT {target} DO UPDATE SET {} = {value}{condition}", column.name)
    }

    /// `column = value` for one or two columns.
    fn assignments(&mut self, source: &Source<'a>) -> String {
        let columns: Vec<&Column> =
            source.relation.columns.iter().filter(|column| !column.generated).collect();
        let first = self.dice.index(columns.len());
        let mut set = vec![self.assignment(source, columns[first])];
        if self.percent(30) {
            let second = (first + 1) % columns.len();
            set.push(self.assignment(source, columns[second]));
        }
        set.join(", ")
    }

    fn assignment(&mut self, source: &Source<'a>, column: &'a Column) -> String {
        let (name, kind) = (column.name, column.kind);
        let same: Vec<&Column> = source.relation.columns.iter().filter(|other| other.kind == kind).collect();
        match self.dice.below(8) {
            0 => format!("{name} = {}.{}", source.name, self.dice.pick(&same).name),
            1 if name == "a" => format!("a = {}.a + 1", source.name),
            2 => format!("{name} = DEFAULT"),
            3 if name == "a" => {
                let inner = self.source();
                let inside = self.predicate(std::slice::from_ref(&inner), 1);
                let inner_name = &inner.name;
                format!(
                    "a = (SELECT max({inner_name}.a) FROM {} {inner_name} WHERE {inside})",
                    inner.relation.name
                )
            }
            4 => format!(
                "{name} = CASE WHEN {} THEN {} ELSE {}.{name} END",
                self.predicate(std::slice::from_ref(source), 0),
                kind.plain(self.dice),
                source.name
            ),
            _ => format!("{name} = {}", kind.plain(self.dice)),
        }
    }

    fn target(&mut self) -> Source<'a> {
        Source { name: "me".to_owned(), relation: self.writable() }
    }

    /// A table of which at most one row has a given value in a column, and that column.
    fn partner(&mut self, me: &Source<'a>) -> Option<(Source<'a>, String)> {
        let source = self.source();
        let [key] = source.relation.key[..] else { return None };
        let column = &source.relation.columns[key];
        let mine: Vec<&Column> =
            me.relation.columns.iter().filter(|other| other.kind == column.kind).collect();
        if mine.is_empty() || self.world.relations.iter().any(|relation| relation.name == "heir") {
            return None;
        }
        let condition = format!("{}.{} = me.{}", source.name, column.name, self.dice.pick(&mine).name);
        Some((source, condition))
    }

    fn update(&mut self) -> String {
        let me = self.target();
        let partner = if self.percent(20) { self.partner(&me) } else { None };
        let only = if me.relation.is_table && self.percent(8) { "ONLY " } else { "" };
        if let Some((other, condition)) = partner {
            let set = self.assignments(&me);
            let inside = self.predicate(&[me.clone(), other.clone()], 1);
            return format!(
                "UPDATE {} AS me SET {set} FROM {} {} WHERE {condition} AND {inside}",
                me.relation.name, other.relation.name, other.name
            );
        }
        let set = self.assignments(&me);
        if self.percent(15) {
            return self.change_by_given(&me, Some(set));
        }
        let condition = self.condition(std::slice::from_ref(&me));
        format!("UPDATE {only}{} AS me SET {set}{condition}{}", me.relation.name, self.returning())
    }

    fn delete(&mut self) -> String {
        let me = self.target();
        if self.percent(20)
            && let Some((other, condition)) = self.partner(&me)
        {
            let inside = self.predicate(&[me.clone(), other.clone()], 1);
            return format!(
                "DELETE FROM {} AS me USING {} {} WHERE {condition} AND {inside}",
                me.relation.name, other.relation.name, other.name
            );
        }
        if self.percent(15) {
            return self.change_by_given(&me, None);
        }
        let condition = self.condition(std::slice::from_ref(&me));
        format!("DELETE FROM {} AS me{condition}{}", me.relation.name, self.returning())
    }

    fn merge(&mut self) -> String {
        let me = self.target();
        if !me.relation.is_table {
            return self.delete();
        }
        let Some((other, condition)) = self.partner(&me) else { return self.update() };
        let extra = if self.percent(50) {
            format!(" AND {}", self.predicate(&[me.clone(), other.clone()], 0))
        } else {
            String::new()
        };
        let matched = match self.dice.below(3) {
            0 => "DELETE".to_owned(),
            1 => "DO NOTHING".to_owned(),
            _ => format!("UPDATE SET {}", self.assignments(&me)),
        };
        let columns = self.settable(me.relation);
        let names = columns.iter().map(|column| column.name).collect::<Vec<_>>().join(", ");
        let values: Vec<String> = columns.iter().map(|column| column.kind.plain(self.dice)).collect();
        let unmatched = if self.percent(60) {
            format!(" WHEN NOT MATCHED THEN INSERT ({names}) VALUES ({})", values.join(", "))
        } else {
            String::new()
        };
        format!(
            "MERGE INTO {} AS me USING {} {} ON {condition} WHEN MATCHED{extra} THEN {matched}{unmatched}",
            me.relation.name, other.relation.name, other.name
        )
    }

    /// A change in a WITH query, and a query or a change of another relation beside it.
    fn inside_with(&mut self) -> String {
        let me = self.target();
        let condition = self.condition(std::slice::from_ref(&me));
        let change = if self.percent(50) {
            format!("DELETE FROM {} AS me{condition} RETURNING a, k", me.relation.name)
        } else {
            format!(
                "UPDATE {} AS me SET {}{condition} RETURNING a, k",
                me.relation.name,
                self.assignments(&me)
            )
        };
        let other = self.source();
        let (relation, name) = (&other.relation.name, &other.name);
        if self.percent(50) {
            format!(
                "WITH w AS ({change}) SELECT {name}.k, w.a FROM {relation} {name} JOIN w ON w.a = {name}.a"
            )
        } else {
            format!("WITH w AS ({change}) SELECT count(*) FROM w")
        }
    }

    fn truncate(&mut self) -> String {
        let tables: Vec<&Relation> =
            self.world.relations.iter().filter(|relation| relation.is_table).collect();
        let cascade = if self.percent(60) { " CASCADE" } else { "" };
        format!("TRUNCATE {}{cascade}", self.dice.pick(&tables).name)
    }
}
