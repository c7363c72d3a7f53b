//! Keys and references.

use pg_query::NodeEnum;
use pg_query::protobuf::{ConstrType, Constraint, IndexElem, IndexStmt, Node};

use super::Reader;
use super::relation::{Building, position};
use crate::ast_scan::{AstScan, names_in};
use crate::catalogue::{Action, Key, Reference, Table};
use crate::classify::relation_name;

impl Reader {
    /// Constraints of a table, or of the one column that is named.
    pub(super) fn constraints(&mut self, building: &mut Building, nodes: &[Node], own: &[String]) {
        for node in nodes {
            let Some(NodeEnum::Constraint(constraint)) = &node.node else { continue };
            match ConstrType::try_from(constraint.contype) {
                Ok(ConstrType::ConstrPrimary | ConstrType::ConstrUnique) => {
                    self.unique(building, constraint, own);
                }
                Ok(ConstrType::ConstrExclusion) => self.exclusion(building, constraint),
                Ok(ConstrType::ConstrForeign) => self.foreign(building, constraint, own),
                Ok(ConstrType::ConstrCheck) => {
                    building.calls.extend(
                        constraint.raw_expr.as_deref().map(AstScan::of).unwrap_or_default().functions,
                    );
                }
                Ok(ConstrType::ConstrNotnull) if own.is_empty() => {
                    for name in names_in(&constraint.keys) {
                        if let Some(place) = position(&building.table.columns, &name) {
                            building.table.columns[place].not_null = true;
                        }
                    }
                }
                Ok(ConstrType::ConstrAttrDeferrable | ConstrType::ConstrAttrDeferred) => {
                    self.defer(building, own);
                }
                // What a column is has been told already.
                Ok(
                    ConstrType::ConstrNotnull
                    | ConstrType::ConstrNull
                    | ConstrType::ConstrDefault
                    | ConstrType::ConstrIdentity
                    | ConstrType::ConstrGenerated
                    | ConstrType::ConstrAttrNotDeferrable
                    | ConstrType::ConstrAttrImmediate,
                ) => {}
                _ => self.leave_out("a constraint"),
            }
        }
    }

    /// DEFERRABLE behind a column's constraint: that is the last one of the column.
    fn defer(&mut self, building: &mut Building, own: &[String]) {
        self.contents.has_deferrable = true;
        let Some(place) = own.first().and_then(|name| position(&building.table.columns, name)) else {
            return;
        };
        for key in &mut building.table.keys {
            key.deferrable |= key.columns == [place];
        }
        for reference in &mut building.table.references {
            reference.deferrable |= reference.columns == [place];
        }
    }

    fn unique(&mut self, building: &mut Building, constraint: &Constraint, own: &[String]) {
        let primary = constraint.contype == ConstrType::ConstrPrimary as i32;
        let listed = names_in(&constraint.keys);
        let names = if listed.is_empty() { own } else { &listed };
        let Some(columns) = self.places(&building.table, names) else { return };
        if !constraint.indexname.is_empty() {
            self.leave_out("the index that becomes a key");
            return;
        }
        self.contents.has_deferrable |= constraint.deferrable;
        if primary {
            for &column in &columns {
                building.table.columns[column].not_null = true;
            }
            building.table.primary_key.clone_from(&columns);
        }
        building.table.keys.push(Key {
            columns,
            primary,
            unique: true,
            exclusion: constraint.without_overlaps,
            deferrable: constraint.deferrable,
            nulls_not_distinct: constraint.nulls_not_distinct,
            ..Key::default()
        });
    }

    fn exclusion(&mut self, building: &mut Building, constraint: &Constraint) {
        self.contents.has_deferrable |= constraint.deferrable;
        building.table.keys.push(Key {
            // A caller that may not rely on equality need not know which operators exclude which columns.
            columns: (0..building.table.columns.len()).collect(),
            expression: true,
            exclusion: true,
            deferrable: constraint.deferrable,
            ..Key::default()
        });
    }

    fn foreign(&mut self, building: &mut Building, constraint: &Constraint, own: &[String]) {
        let Some(parent) = constraint.pktable.as_ref().map(relation_name) else { return };
        let listed = names_in(&constraint.fk_attrs);
        let names = if listed.is_empty() { own } else { &listed };
        let Some(columns) = self.places(&building.table, names) else { return };
        let itself = building.table.name == parent.name
            && parent.schema.as_ref().is_none_or(|schema| *schema == building.table.schema);
        let place = if itself { None } else { self.relations.find(&parent) };
        let target = match place {
            Some(place) => self.relations.building[place].table.clone(),
            None if itself => building.table.clone(),
            None => {
                building.table.own_code = true;
                self.leave_out(format!("the table {parent} that is referenced"));
                return;
            }
        };
        let named = names_in(&constraint.pk_attrs);
        let parent_columns =
            if named.is_empty() { Some(target.primary_key.clone()) } else { self.places(&target, &named) };
        let Some(parent_columns) = parent_columns.filter(|found| found.len() == columns.len()) else {
            building.table.own_code = true;
            self.leave_out("the columns that are referenced");
            return;
        };
        self.contents.has_deferrable |= constraint.deferrable;
        building.table.references.push(Reference {
            columns,
            parent: target.id,
            parent_columns,
            on_delete: action(&constraint.fk_del_action),
            on_update: action(&constraint.fk_upd_action),
            deferrable: constraint.deferrable,
            matches_full: constraint.fk_matchtype == "f",
            period: constraint.fk_with_period || constraint.pk_with_period,
        });
    }

    /// The places of columns; tells when one is missing.
    fn places(&mut self, table: &Table, names: &[String]) -> Option<Vec<usize>> {
        let places: Option<Vec<usize>> = names.iter().map(|name| position(&table.columns, name)).collect();
        if places.is_none() {
            self.leave_out(format!("a column of {} that is not there", table.name));
        }
        places
    }

    /// CREATE INDEX: only unique ones matter, and what all of them call.
    pub(super) fn index(&mut self, index: &IndexStmt) {
        let Some(at) = index.relation.as_ref().and_then(|name| self.relations.find(&relation_name(name)))
        else {
            self.leave_out("the table of an index");
            return;
        };
        let mut building = std::mem::take(&mut self.relations.building[at]);
        let parts = index.index_params.iter().filter_map(|part| match &part.node {
            Some(NodeEnum::IndexElem(part)) => Some(&**part),
            _ => None,
        });
        let parts: Vec<&IndexElem> = parts.collect();
        for part in &parts {
            building.calls.extend(part.expr.as_deref().map(AstScan::of).unwrap_or_default().functions);
        }
        building.calls.extend(index.where_clause.as_deref().map(AstScan::of).unwrap_or_default().functions);
        if index.unique {
            self.unique_index(&mut building.table, index, &parts);
        }
        self.relations.building[at] = building;
    }

    fn unique_index(&mut self, table: &mut Table, index: &IndexStmt, parts: &[&IndexElem]) {
        let plain =
            |part: &&IndexElem| part.expr.is_none() && part.opclass.is_empty() && part.collation.is_empty();
        let expression = !parts.iter().all(plain);
        let names: Vec<String> =
            parts.iter().map(|part| part.name.clone()).filter(|name| !name.is_empty()).collect();
        // A key that has expressions is said to have all columns: which of them they mention is not looked at.
        let columns =
            if expression { Some((0..table.columns.len()).collect()) } else { self.places(table, &names) };
        let Some(columns) = columns else { return };
        table.keys.push(Key {
            columns,
            unique: true,
            partial: index.where_clause.is_some(),
            expression,
            nulls_not_distinct: index.nulls_not_distinct,
            ..Key::default()
        });
    }
}

/// What a letter in the parser's tree means.
fn action(letter: &str) -> Action {
    match letter {
        "r" => Action::Restrict,
        "c" => Action::Cascade,
        "n" => Action::SetNull,
        "d" => Action::SetDefault,
        _ => Action::NoAction,
    }
}
