//! The tables that a statement can touch: those that it names, and those behind the names.
//!
//! A view is read as its query. A function runs its code, row security adds its policies, and a change fires triggers,
//! checks foreign keys and cascades. The walk follows all of these until it finds nothing new. It visits each view and
//! table once, so recursion ends by itself. A name means every object of that name, as everywhere in this crate.
//!
//! Invariant: one part that the walk does not understand makes the whole unbounded. [`TableEffects`] answers two
//! questions apart: whether the statement can run as a read at any replica (`because`), and whether it may touch data
//! that is not listed (`unbounded`). `random()` is an obstacle to the first only.
//!
//! The rows and columns of these tables are found in [`crate::accesses`].

use std::collections::BTreeSet;

use crate::access::{
    Because, Traces, built_in, built_in_touches_data, cast, is_harmful_column, operator, stands_for_relation,
};
use crate::body::{Code, Words};
use crate::builtin::{self, OBJECT_ID_TYPES, SYSTEM_COLUMNS};
use crate::catalogue::{Action, Catalogue, HeadTypes, Relation, Table, TableId, Trigger, Volatility};
use crate::definition;
use crate::fleeting::{self, Fleeting};
use crate::name::{Name, SYSTEM_SCHEMA};
use crate::statement::{Statement, Verb};

/// More statements of views, functions and policies, and tables, are not looked at.
const MAX_SEEN: usize = 20_000;

/// Trigger functions of the server's own that do nothing but alter or drop the row.
const HARMLESS_TRIGGERS: [&str; 3] =
    ["suppress_redundant_updates_trigger", "tsvector_update_trigger", "tsvector_update_trigger_column"];

/// The effects that a statement can have on tables and on its session.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct TableEffects {
    /// Tables that may be read.
    pub(crate) reads: BTreeSet<TableId>,
    /// Tables of which rows may be written.
    pub(crate) writes: BTreeSet<TableId>,
    /// Tables of which rows may be locked without being written. (Writing a reference locks its parent; which rows those
    /// are, the rows that are written tell.)
    pub(crate) locks: BTreeSet<TableId>,
    /// The worst reason why it is no bounded read, its kind aside.
    pub(crate) because: Option<Because>,
    /// It may read, write or lock data that is not listed.
    pub(crate) unbounded: bool,
    /// It calls a function with users' types in its head.
    pub(crate) user_types: bool,
    /// Something in it tells when the transaction began.
    pub(crate) transaction_time: bool,
    /// Something in it makes its answer fleeting.
    pub(crate) fleeting: Option<Fleeting>,
    /// Something in it asks what the session has drawn from sequences.
    pub(crate) asks_draws: bool,
    /// Defaults of the columns that it writes may be computed.
    pub(crate) fills_defaults: bool,
    /// The targets that it names are tables or views which the catalogue has.
    pub(crate) targets_known: bool,
    /// Session state that may stay on the connection.
    pub(crate) traces: Traces,
    /// The relations that it names, or that views and functions do.
    pub(crate) relations: BTreeSet<u64>,
    /// Names that could come to mean something else.
    pub(crate) mentioned: BTreeSet<u64>,
}

/// Follows a statement to every table behind its names.
pub(crate) fn table_effects(statement: &Statement, catalogue: &Catalogue) -> TableEffects {
    let mut walk = Walk::new(catalogue);
    walk.truncates = statement.verb == Verb::Truncate;
    walk.is_below = false;
    walk.visit(statement);
    walk.is_below = true;
    walk.finish()
}

struct Walk<'a> {
    catalogue: &'a Catalogue,
    effects: TableEffects,
    /// TRUNCATE: with CASCADE it empties all that refers to its targets.
    truncates: bool,
    /// The walk is not in the statement itself but in the body behind one of its names.
    is_below: bool,
    /// Statements by their addresses, and tables by their numbers, that were looked at in some way.
    seen: BTreeSet<(Use, usize)>,
    /// Names of the users' functions that were followed.
    functions: BTreeSet<String>,
    todo: Vec<&'a Statement>,
}

/// In which way something was looked at.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Use {
    Run,
    LockBelow,
    WriteBelow,
    Read,
}

impl<'a> Walk<'a> {
    fn new(catalogue: &'a Catalogue) -> Self {
        Self {
            catalogue,
            effects: TableEffects { targets_known: true, ..TableEffects::default() },
            truncates: false,
            is_below: true,
            seen: BTreeSet::new(),
            functions: BTreeSet::new(),
            todo: Vec::new(),
        }
    }

    /// Follows what is left to follow.
    fn finish(mut self) -> TableEffects {
        while let Some(next) = self.todo.pop() {
            if self.is_new(Use::Run, next) {
                self.visit(next);
            }
        }
        if self.catalogue.has_user_casts() {
            self.note(Because::Unknown);
            self.effects.traces.add(Traces::ANYTHING);
            self.effects.unbounded |= !self.effects.writes.is_empty();
        }
        self.effects
    }

    /// All reasons are gathered, since only a statement without any other one is proven to be a catalogue read.
    fn note(&mut self, reason: Because) {
        if self.effects.because != Some(Because::Unknown) {
            self.effects.because = Some(reason);
        }
    }

    fn note_unknown(&mut self) {
        self.effects.fills_defaults = true;
        self.note(Because::Unknown);
        self.effects.unbounded = true;
        self.effects.traces.add(Traces::ANYTHING);
    }

    /// Whether this is the first look at a statement of the catalogue's in this way. There is a limit to them.
    fn is_new(&mut self, way: Use, statement: &'a Statement) -> bool {
        if self.seen.len() >= MAX_SEEN {
            self.note_unknown();
            return false;
        }
        self.seen.insert((way, std::ptr::from_ref(statement).addr()))
    }

    fn fleets(&mut self, reason: Option<Fleeting>) {
        self.effects.fleeting = self.effects.fleeting.take().or(reason);
    }

    fn visit(&mut self, statement: &'a Statement) {
        if statement.system_columns {
            self.note(Because::Catalogue);
        }
        if statement.opaque.is_some() {
            self.note_unknown();
        }
        match (&statement.verb, &statement.block) {
            (_, Some(block)) => {
                self.todo.extend(&block.statements);
                let is_below = std::mem::replace(&mut self.is_below, true);
                self.words(&block.words);
                self.is_below = is_below;
            }
            (Verb::Do, None) => self.note_unknown(),
            _ => {}
        }
        self.effects.transaction_time |= statement.transaction_time;
        self.fleets(statement.fleeting.verdict(self.is_below));
        self.effects.fills_defaults |=
            statement.fills_defaults || !matches!(statement.verb, Verb::Select | Verb::Update | Verb::Delete);
        for name in &statement.reads {
            self.read(Some(statement), name);
        }
        for name in &statement.row_locks {
            self.lock(statement, name);
        }
        for name in &statement.writes {
            self.write(name);
        }
        for name in &statement.functions {
            self.call(name);
        }
        for name in &statement.types {
            self.check(cast(self.catalogue, name));
        }
        for name in &statement.operators {
            self.check(operator(self.catalogue, name));
        }
        for name in &statement.column_names {
            self.column(name);
        }
    }

    /// Something that is harmless, a look at the catalogue, or may do anything.
    fn check(&mut self, verdict: Result<(), Because>) {
        match verdict {
            Ok(()) => {}
            Err(Because::Unknown) => self.note_unknown(),
            Err(because) => self.note(because),
        }
    }

    /// The tables behind a name in FROM; views are followed.
    fn tables(&mut self, statement: Option<&Statement>, name: &Name) -> BTreeSet<TableId> {
        let mut tables = BTreeSet::new();
        match stands_for_relation(statement, self.catalogue, name) {
            Ok(true) => {}
            Ok(false) => return tables,
            Err(because) => {
                self.check(Err(because));
                return tables;
            }
        }
        let mut known = false;
        self.effects.relations.insert(definition::of_relation(&name.name));
        for relation in self.catalogue.named(name.schema.as_deref(), &name.name) {
            known = true;
            match relation {
                Relation::Table(table) => {
                    tables.insert(table.id);
                }
                Relation::Parent(parent) => tables.extend(parent.leaves.iter().copied()),
                Relation::View(_) => {}
                Relation::Other => self.note_unknown(),
            }
        }
        if !known {
            self.note_unknown();
        }
        tables
    }

    fn views(&self, name: &Name) -> Vec<Option<&'a [Statement]>> {
        self.catalogue.views_named(name).into_iter().map(|(_, query)| query).collect()
    }

    fn read(&mut self, statement: Option<&Statement>, name: &Name) {
        for id in self.tables(statement, name) {
            self.read_table(id);
        }
        // Such a name cannot be a view's if it is the system's or a WITH query's alone; then there is none.
        for query in self.views(name) {
            self.follow(query);
        }
    }

    fn follow(&mut self, statements: Option<&'a [Statement]>) {
        match statements {
            Some(statements) => {
                self.todo.extend(statements);
            }
            None => self.note_unknown(),
        }
    }

    fn read_table(&mut self, id: TableId) {
        self.effects.reads.insert(id);
        if !self.seen.insert((Use::Read, id.number as usize)) {
            return;
        }
        match self.catalogue.table(id) {
            Some(table) => {
                if table.coded_types {
                    self.note(Because::Unknown);
                    self.effects.traces.add(Traces::ANYTHING);
                }
                self.fleets(fleeting::table(table));
                self.secure(table);
            }
            None => self.note_unknown(),
        }
    }

    /// The policies of a table run with every access to it.
    fn secure(&mut self, table: &Table) {
        if table.row_security {
            self.follow(self.catalogue.policies(table));
        }
    }

    fn lock(&mut self, statement: &Statement, name: &Name) {
        let tables = self.tables(Some(statement), name);
        self.effects.locks.extend(tables);
        if matches!(stands_for_relation(Some(statement), self.catalogue, name), Err(Because::Catalogue)) {
            self.effects.unbounded = true;
        }
        for query in self.views(name) {
            match query {
                Some(query) => self.lock_below(query),
                None => self.note_unknown(),
            }
        }
    }

    /// Locking a view locks what it reads.
    fn lock_below(&mut self, query: &'a [Statement]) {
        for statement in query {
            if self.is_new(Use::LockBelow, statement) {
                for name in &statement.reads {
                    self.lock(statement, name);
                }
            }
        }
    }

    fn write(&mut self, name: &Name) {
        self.effects.relations.insert(definition::of_relation(&name.name));
        let mut known = name.schema.as_deref() != Some(SYSTEM_SCHEMA);
        let mut found = false;
        for relation in self.catalogue.named(name.schema.as_deref(), &name.name) {
            found = true;
            match relation {
                Relation::Table(table) => self.write_table(table.id),
                Relation::Parent(parent) => {
                    for id in &parent.leaves {
                        self.write_table(*id);
                    }
                }
                Relation::View(_) => {}
                Relation::Other => known = false,
            }
        }
        for (view, query) in self.catalogue.views_named(name) {
            if !view.rules.is_empty() {
                self.note_unknown();
            }
            self.fire(&view.triggers);
            match query {
                Some(query) => self.write_below(query),
                None => known = false,
            }
        }
        if !known || !found {
            self.effects.targets_known = false;
            self.note_unknown();
        }
    }

    /// A change of a view is one of a table that its query reads. Which one is not looked into.
    fn write_below(&mut self, query: &'a [Statement]) {
        self.follow(Some(query));
        for statement in query {
            if self.is_new(Use::WriteBelow, statement) {
                for name in &statement.reads {
                    self.write(name);
                }
            }
        }
    }

    fn write_table(&mut self, id: TableId) {
        if !self.effects.writes.insert(id) {
            return;
        }
        let Some(table) = self.catalogue.table(id) else { return self.note_unknown() };
        let unexplained = table.own_code
            || !table.rules.is_empty()
            || (table.user_triggers && table.triggers.is_empty())
            || !self.catalogue.knows_references(table);
        if unexplained {
            self.note_unknown();
        }
        if table.coded_types {
            self.effects.unbounded = true;
            self.effects.traces.add(Traces::ANYTHING);
        }
        self.secure(table);
        self.fire(&table.triggers);
        // The server looks references up as the tables' owner, so no policy runs for them.
        self.effects.reads.extend(table.references.iter().map(|reference| reference.parent));
        for (child, reference) in self.catalogue.referenced_by(id) {
            self.effects.reads.insert(child.id);
            let refuses = |action| matches!(action, Action::NoAction | Action::Restrict);
            self.effects.fills_defaults |=
                [reference.on_delete, reference.on_update].contains(&Action::SetDefault);
            if self.truncates || !refuses(reference.on_delete) || !refuses(reference.on_update) {
                self.write_table(child.id);
            }
        }
    }

    fn fire(&mut self, triggers: &[Trigger]) {
        for trigger in triggers.iter().filter(|trigger| trigger.enabled) {
            if trigger.condition_runs_code {
                self.note_unknown();
            }
            let name = &trigger.function;
            let harmless = HARMLESS_TRIGGERS.contains(&name.name.as_str());
            if self.catalogue.is_user_function(&name.name) {
                self.run(&name.name);
            } else if name.schema.as_deref() != Some(SYSTEM_SCHEMA) || !harmless {
                self.note_unknown();
            }
        }
    }

    fn call(&mut self, name: &Name) {
        self.fleets(fleeting::call(self.catalogue, name, self.is_below));
        self.effects.mentioned.insert(definition::of_function(&name.name));
        let is_users = self.catalogue.is_user_function(&name.name);
        if is_users {
            self.run(&name.name);
        }
        let is_built_in = name.may_be_built_in() && self.catalogue.builtin_volatility(&name.name).is_some();
        if is_built_in && !is_users && builtin::asks_draws(&name.name) {
            self.effects.asks_draws = true;
        } else if is_built_in || !is_users {
            if let Err(because) = built_in(self.catalogue, name) {
                self.note(because);
            }
            self.effects.unbounded |= built_in_touches_data(self.catalogue, name);
            self.leave(name, is_built_in);
        }
    }

    /// Notes the traces that a call of a built-in or unknown function leaves on the connection.
    fn leave(&mut self, name: &Name, is_built_in: bool) {
        let volatility = self.catalogue.builtin_volatility(&name.name).filter(|_| is_built_in);
        let Some(volatility) = volatility else { return self.effects.traces.add(Traces::ANYTHING) };
        let mut traces = builtin::traces(&name.name, volatility == Volatility::Volatile);
        // What the statement itself sets is told by its text.
        traces.hidden &= self.is_below || !builtin::sets_setting(&name.name);
        self.effects.traces.add(traces);
    }

    /// Follows all users' functions of a name.
    fn run(&mut self, name: &str) {
        self.effects.mentioned.insert(definition::of_function(name));
        if !self.functions.insert(name.to_owned()) {
            return;
        }
        let Some(overloads) = self.catalogue.code(name) else { return self.note_unknown() };
        for (function, Code { statements, words, .. }) in overloads {
            match function.types {
                HeadTypes::BuiltIn => {}
                HeadTypes::Plain => self.effects.user_types = true,
                HeadTypes::Objects => self.note(Because::Catalogue),
                HeadTypes::Coded => self.note_unknown(),
            }
            self.todo.extend(statements);
            let is_below = std::mem::replace(&mut self.is_below, true);
            self.words(words);
            self.is_below = is_below;
        }
    }

    /// A column name could be a call in functional notation.
    fn column(&mut self, name: &str) {
        self.fleets(fleeting::column(self.catalogue, name));
        self.effects.mentioned.insert(definition::of_function(name));
        if self.catalogue.is_user_function(name) {
            self.run(name);
        }
        if is_harmful_column(self.catalogue, name) {
            self.note_unknown();
        }
    }

    /// Whatever has the name of something is taken for it.
    fn words(&mut self, words: &Words) {
        self.effects.fills_defaults = true;
        for word in &words.names {
            let meanings = [definition::of_relation(word), definition::of_function(word)];
            self.effects.mentioned.extend(meanings);
            let name = Name::bare(word);
            let called = words.called.contains(word);
            if self.catalogue.named(None, word).next().is_some() {
                self.read(None, &name);
            }
            if self.catalogue.is_user_function(word) {
                self.run(word);
            }
            if called && self.catalogue.builtin_volatility(word).is_some() {
                self.call(&name);
            }
            if self.catalogue.is_declared_type(word) && !self.catalogue.is_plain_type(word) {
                self.note_unknown();
            }
            let system = builtin::is_system_relation(word) && !called && word != SYSTEM_SCHEMA;
            let element = word.strip_prefix('_').unwrap_or(word);
            let oid = element == "oid"
                || OBJECT_ID_TYPES.contains(&element)
                || word == "tg_relid"
                || word == "information_schema";
            if system || oid || SYSTEM_COLUMNS.contains(&word.as_str()) {
                self.note(Because::Catalogue);
            }
        }
        for symbol in &words.symbols {
            if self.catalogue.is_user_operator(symbol) {
                self.note_unknown();
            }
        }
    }
}
