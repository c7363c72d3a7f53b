//! Tables while they are being put together, partitions and inheritance included.

use std::collections::{BTreeMap, BTreeSet};

use pg_query::NodeEnum;
use pg_query::protobuf::{
    AlterTableCmd, AlterTableStmt, AlterTableType, CreateSeqStmt, CreateStmt, Node, ObjectType, RangeVar,
};

use super::{DEFAULT_SCHEMA, Reader};
use crate::catalogue::{Column, ColumnDefault, Key, Parent, Reference, Table, TableId};
use crate::classify::relation_name;
use crate::name::Name;

/// A table, or a partitioned table that holds no rows itself.
#[derive(Debug, Default)]
pub(super) struct Building {
    pub(super) table: Table,
    partitioned: bool,
    /// What it is a partition of, or inherits from, by place.
    above: Vec<usize>,
    is_partition: bool,
    /// Functions that its defaults and checks call.
    pub(super) calls: BTreeSet<Name>,
}

/// All tables.
#[derive(Debug, Default)]
pub(super) struct Relations {
    pub(super) building: Vec<Building>,
    pub(super) tables: Vec<Table>,
    pub(super) parents: Vec<Parent>,
}

impl Relations {
    /// The place of the table that a name means.
    pub(super) fn find(&self, name: &Name) -> Option<usize> {
        let of = |schema: &str| {
            self.building.iter().position(|one| one.table.name == name.name && one.table.schema == schema)
        };
        match &name.schema {
            Some(schema) => of(schema),
            None => of(DEFAULT_SCHEMA)
                .or_else(|| self.building.iter().position(|one| one.table.name == name.name)),
        }
    }

    /// All that lies below a table, itself included, in the order in which it was made.
    fn below(&self, at: usize) -> Vec<usize> {
        let mut found = BTreeSet::from([at]);
        for (index, one) in self.building.iter().enumerate() {
            if one.above.iter().any(|above| found.contains(above)) {
                found.insert(index);
            }
        }
        found.into_iter().collect()
    }

    /// Below a table, those that hold rows.
    fn leaves(&self, at: usize) -> Vec<usize> {
        self.below(at).into_iter().filter(|&index| !self.building[index].partitioned).collect()
    }

    /// Partitions get the keys and references of what they are partitions of; then tables and parents are told apart.
    pub(super) fn finish(mut self, runs_code: &dyn Fn(&Name) -> bool) -> Self {
        self.inherit();
        self.spread_references();
        for at in 0..self.building.len() {
            let has_children = self.building.iter().any(|one| one.above.contains(&at));
            let Building { table, partitioned, .. } = &self.building[at];
            if *partitioned || has_children {
                let leaves = self.leaves(at).into_iter().map(|leaf| self.building[leaf].table.id).collect();
                self.parents.push(Parent { schema: table.schema.clone(), name: table.name.clone(), leaves });
            }
        }
        let referenced: BTreeSet<TableId> = self
            .building
            .iter()
            .flat_map(|one| one.table.references.iter().map(|reference| reference.parent))
            .collect();
        for Building { mut table, partitioned, calls, .. } in std::mem::take(&mut self.building) {
            table.keys.sort_by_key(|key| !key.primary);
            table.other_unique = table.keys.iter().any(|key| !key.primary);
            table.foreign_keys = !table.references.is_empty() || referenced.contains(&table.id);
            table.own_code |= calls.iter().any(runs_code);
            table.user_triggers |= table.own_code || !table.triggers.is_empty() || !table.rules.is_empty();
            if !partitioned {
                self.tables.push(table);
            }
        }
        self
    }

    fn inherit(&mut self) {
        for at in 0..self.building.len() {
            if !self.building[at].is_partition {
                continue;
            }
            for above in self.building[at].above.clone() {
                let (keys, references, calls) = {
                    let Building { table, calls, .. } = &self.building[above];
                    (
                        mapped_keys(table, &self.building[at].table),
                        mapped_references(table, &self.building[at].table),
                        calls.clone(),
                    )
                };
                let triggers = self.building[above].table.triggers.clone();
                let Building { table, calls: own, .. } = &mut self.building[at];
                own.extend(calls);
                table.triggers.extend(triggers);
                for key in keys {
                    if key.primary {
                        table.primary_key.clone_from(&key.columns);
                    }
                    if !table.keys.contains(&key) {
                        table.keys.push(key);
                    }
                }
                for reference in references {
                    if !table.references.contains(&reference) {
                        table.references.push(reference);
                    }
                }
            }
        }
    }

    /// A reference to a partitioned table is one to each of its leaves.
    fn spread_references(&mut self) {
        let mut leaves: BTreeMap<TableId, Vec<TableId>> = BTreeMap::new();
        for (at, one) in self.building.iter().enumerate().filter(|(_, one)| one.partitioned) {
            let below = self.leaves(at).into_iter().map(|leaf| self.building[leaf].table.id).collect();
            leaves.insert(one.table.id, below);
        }
        for one in &mut self.building {
            let references = std::mem::take(&mut one.table.references);
            for reference in references {
                match leaves.get(&reference.parent) {
                    Some(below) => one
                        .table
                        .references
                        .extend(below.iter().map(|&parent| Reference { parent, ..reference.clone() })),
                    None => one.table.references.push(reference),
                }
            }
        }
    }
}

/// The places of columns in another table that has them by the same names.
fn mapped(columns: &[usize], from: &Table, to: &Table) -> Option<Vec<usize>> {
    let place = |&column: &usize| to.columns.iter().position(|own| own.name == from.columns[column].name);
    columns.iter().map(place).collect()
}

fn mapped_keys(from: &Table, to: &Table) -> Vec<Key> {
    let key = |key: &Key| Some(Key { columns: mapped(&key.columns, from, to)?, ..key.clone() });
    from.keys.iter().filter_map(key).collect()
}

fn mapped_references(from: &Table, to: &Table) -> Vec<Reference> {
    let reference =
        |one: &Reference| Some(Reference { columns: mapped(&one.columns, from, to)?, ..one.clone() });
    from.references.iter().filter_map(reference).collect()
}

impl Reader {
    /// CREATE TABLE.
    pub(super) fn table(&mut self, create: &CreateStmt) {
        let Some(relation) = &create.relation else { return };
        let name = made(relation);
        if self.relations.find(&name).is_some() {
            self.leave_out("a table of this name is there");
            return;
        }
        let number = u32::try_from(self.relations.building.len()).unwrap_or(u32::MAX).saturating_add(1);
        let mut building = Building {
            table: Table {
                id: self.contents.database.table(number),
                schema: name.schema.unwrap_or_default(),
                name: name.name,
                ..Table::default()
            },
            partitioned: create.partspec.is_some(),
            is_partition: create.partbound.is_some(),
            ..Building::default()
        };
        self.take_over(create, &mut building);
        for element in &create.table_elts {
            match &element.node {
                Some(NodeEnum::ColumnDef(column)) => self.column(&mut building, column),
                Some(NodeEnum::Constraint(_)) => {}
                _ => self.leave_out("LIKE"),
            }
        }
        for element in &create.table_elts {
            match &element.node {
                Some(NodeEnum::ColumnDef(column)) => {
                    let own = [column.colname.clone()];
                    self.constraints(&mut building, &column.constraints, &own);
                }
                Some(NodeEnum::Constraint(_)) => {
                    self.constraints(&mut building, std::slice::from_ref(element), &[]);
                }
                _ => {}
            }
        }
        if create.of_typename.is_some() {
            self.leave_out("the columns of its type");
        }
        self.relations.building.push(building);
    }

    /// Columns of what a table inherits from or is a partition of.
    fn take_over(&mut self, create: &CreateStmt, building: &mut Building) {
        for parent in &create.inh_relations {
            let Some(NodeEnum::RangeVar(parent)) = &parent.node else { continue };
            let Some(above) = self.relations.find(&relation_name(parent)) else {
                self.leave_out(format!("its parent {}", parent.relname));
                continue;
            };
            building.above.push(above);
            let from = &self.relations.building[above].table;
            building.table.user_types |= from.user_types;
            for column in &from.columns {
                if building.table.columns.iter().all(|own| own.name != column.name) {
                    building.table.columns.push(column.clone());
                }
            }
        }
    }

    /// ALTER TABLE and its like, as far as dumps and migrations use it.
    pub(super) fn alter(&mut self, alter: &AlterTableStmt) {
        let Some(relation) = &alter.relation else { return };
        let commands: Vec<&AlterTableCmd> = alter
            .cmds
            .iter()
            .filter_map(|command| match &command.node {
                Some(NodeEnum::AlterTableCmd(command)) if !has_no_part(command) => Some(&**command),
                _ => None,
            })
            .collect();
        // An index of a partition is attached to one that the partition has already by its parent's key.
        if commands.is_empty() || ObjectType::try_from(alter.objtype) == Ok(ObjectType::ObjectIndex) {
            return;
        }
        let Some(at) = self.relations.find(&relation_name(relation)) else {
            self.leave_out(format!("no table {}", relation.relname));
            return;
        };
        let mut building = std::mem::take(&mut self.relations.building[at]);
        for command in commands {
            self.command(&mut building, command, at);
        }
        self.relations.building[at] = building;
    }

    fn command(&mut self, building: &mut Building, command: &AlterTableCmd, at: usize) {
        let definition = command.def.as_deref();
        let place = building.table.columns.iter().position(|column| column.name == command.name);
        match AlterTableType::try_from(command.subtype) {
            Ok(AlterTableType::AtAddColumn) => {
                if let Some(NodeEnum::ColumnDef(column)) = definition.and_then(|node| node.node.as_ref()) {
                    self.column(building, column);
                    self.constraints(building, &column.constraints, std::slice::from_ref(&column.colname));
                }
            }
            Ok(AlterTableType::AtAddConstraint) => {
                let constraint = definition.map_or(&[][..], std::slice::from_ref);
                self.constraints(building, constraint, &[]);
            }
            Ok(AlterTableType::AtColumnDefault) => match (place, definition) {
                (Some(place), Some(expression)) => {
                    super::column::set_default(building, place, expression);
                }
                (Some(place), None) => building.table.columns[place].default = ColumnDefault::None,
                (None, _) => self.leave_out(format!("no column {}", command.name)),
            },
            Ok(AlterTableType::AtAddIdentity) => match (place, definition.map(|node| &node.node)) {
                (Some(place), Some(Some(NodeEnum::Constraint(constraint)))) => {
                    self.identity(building, place, constraint);
                }
                _ => self.leave_out(format!("no column {}", command.name)),
            },
            Ok(AlterTableType::AtSetNotNull) => match place {
                Some(place) => building.table.columns[place].not_null = true,
                None => self.leave_out(format!("no column {}", command.name)),
            },
            Ok(AlterTableType::AtAttachPartition) => self.attach(definition, at),
            Ok(AlterTableType::AtEnableRowSecurity | AlterTableType::AtForceRowSecurity) => {
                building.table.row_security = true;
            }
            _ => self.leave_out("this kind of ALTER TABLE"),
        }
    }

    fn attach(&mut self, definition: Option<&Node>, above: usize) {
        let name = match definition.map(|node| &node.node) {
            Some(Some(NodeEnum::PartitionCmd(part))) => part.name.as_ref().map(relation_name),
            _ => None,
        };
        match name.and_then(|name| self.relations.find(&name)) {
            Some(part) => {
                self.relations.building[part].above.push(above);
                self.relations.building[part].is_partition = true;
            }
            None => self.leave_out("the partition"),
        }
    }

    /// CREATE SEQUENCE.
    pub(super) fn sequence(&mut self, sequence: &CreateSeqStmt) {
        if let Some(relation) = &sequence.sequence {
            self.other_relation(&made(relation));
        }
    }

    /// A relation that is no table.
    pub(super) fn other_relation(&mut self, name: &Name) {
        let schema = name.schema.clone().unwrap_or_else(|| DEFAULT_SCHEMA.to_owned());
        self.contents.other_relations.push((schema, name.name.clone()));
    }
}

/// Commands that change nothing which a catalogue holds, on whatever kind of relation.
fn has_no_part(command: &AlterTableCmd) -> bool {
    matches!(
        AlterTableType::try_from(command.subtype),
        Ok(AlterTableType::AtChangeOwner
            | AlterTableType::AtValidateConstraint
            | AlterTableType::AtSetStatistics
            | AlterTableType::AtSetStorage
            | AlterTableType::AtSetRelOptions
            | AlterTableType::AtReplicaIdentity
            | AlterTableType::AtClusterOn)
    )
}

/// The name of something new, with a schema.
pub(super) fn made(relation: &RangeVar) -> Name {
    let Name { schema, name } = relation_name(relation);
    Name { schema: Some(schema.unwrap_or_else(|| DEFAULT_SCHEMA.to_owned())), name }
}

/// A column by its name.
pub(super) fn position(columns: &[Column], name: &str) -> Option<usize> {
    columns.iter().position(|column| column.name == name)
}
