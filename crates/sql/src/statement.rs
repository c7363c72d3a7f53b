//! One statement, as far as it can be known without a catalogue.
//!
//! A [`Statement`] is the template of all texts that differ from it in constants only: its kind and every name it
//! mentions. It is immutable and shared. Its lists are unions over the whole tree, sub-queries and data-modifying
//! WITH queries included, so that a conclusion from them can only be too cautious.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::access::{Routing, routing};
use crate::accesses::{Outline, Shape, outline};
use crate::body::Code;
use crate::catalogue::Catalogue;
use crate::definition::Scope;
use crate::determinism::{Determinism, Subject, determinism};
use crate::fleeting::Hints;
use crate::name::Name;
use crate::profile::TemplateId;

/// The template of one statement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Statement {
    /// The number of the template; texts that differ in constants only have the same.
    pub template: TemplateId,
    /// Its kind.
    pub verb: Verb,
    /// Relations read: everything in FROM and the like that is not the target of a modification.
    pub reads: Vec<Name>,
    /// Names of WITH queries; an unqualified name in `reads` that is among them may mean that query.
    pub with_names: Vec<String>,
    /// Targets of INSERT, UPDATE, DELETE, MERGE, COPY FROM, TRUNCATE, wherever they stand.
    pub writes: Vec<Name>,
    /// Relations locked by LOCK TABLE, or by FOR UPDATE and its kin (then all that the statement reads).
    pub row_locks: Vec<Name>,
    /// Locks that cannot be had at once are an error: NOWAIT.
    pub nowait: bool,
    /// Functions called.
    pub functions: Vec<Name>,
    /// Operators used.
    pub operators: Vec<Name>,
    /// Types named in casts and the like.
    pub types: Vec<Name>,
    /// Last names of qualified column references and field selections: they could be calls in functional notation.
    pub column_names: Vec<String>,
    /// A modification stands inside a WITH query, a rule or the query of another statement.
    pub modifies_inside: bool,
    /// A column is read whose value is the server's own affair (ctid, xmin, tableoid, ...).
    pub system_columns: bool,
    /// Defaults of columns may be computed: there is an INSERT, a MERGE or the word DEFAULT in it, or it is not known.
    pub fills_defaults: bool,
    /// Something is called whose value is that of the transaction's beginning: `now()` and its kin. It may be too much.
    pub transaction_time: bool,
    /// What in it makes its answer fleeting.
    pub(crate) fleeting: Hints,
    /// The settings that set_config calls at the top of a SELECT list would set; such a statement is keyed by its exact text.
    pub settings: Vec<SettingCall>,
    /// Why this statement cannot be analysed, if so: nothing may be concluded from the lists then.
    pub opaque: Option<Opaque>,
    /// The statement inside EXPLAIN, PREPARE and DECLARE CURSOR.
    pub inner: Option<Arc<Self>>,
    pub(crate) shape: Option<Arc<Shape>>,
    /// The code of a DO block, if it is understood.
    pub(crate) block: Option<Arc<Code>>,
    pub(crate) routing: Cell<Routing>,
    pub(crate) outline: Cell<Outline>,
}

/// Why a statement cannot be analysed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Opaque {
    /// The tree has something that is not understood; the name of the node.
    Node(&'static str),
    /// Nested too deeply, or too long, to be looked at.
    Size,
    /// Not UTF-8.
    Encoding,
}

/// A call of set_config: its arguments where they are constants.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SettingCall {
    /// The setting's name.
    pub name: Option<String>,
    /// The value as text.
    pub value: Option<String>,
    /// Whether it lasts until the end of the transaction only.
    pub local: Option<bool>,
}

/// The kinds of statements.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Verb {
    /// SELECT, VALUES, TABLE, with or without WITH.
    Select,
    /// INSERT.
    Insert,
    /// UPDATE.
    Update,
    /// DELETE.
    Delete,
    /// MERGE.
    Merge,
    /// COPY of a table or a query from or to the client. Server files and programs are refused.
    Copy {
        /// The table; none for COPY (query).
        table: Option<Name>,
        /// Which way.
        direction: CopyDirection,
        /// STDIN or STDOUT; always true, since everything else is refused.
        stdio: bool,
        /// FREEZE was asked for: the statement must not be wrapped in a savepoint.
        freeze: bool,
        /// The number of columns that are listed; 0 without a list.
        columns: usize,
        /// The data are in binary form.
        binary: bool,
    },
    /// BEGIN or START TRANSACTION.
    Begin(TransactionOptions),
    /// COMMIT or END.
    Commit {
        /// AND CHAIN.
        chain: bool,
    },
    /// ROLLBACK or ABORT.
    Rollback {
        /// AND CHAIN.
        chain: bool,
    },
    /// SAVEPOINT.
    Savepoint(String),
    /// RELEASE SAVEPOINT.
    Release(String),
    /// ROLLBACK TO SAVEPOINT.
    RollbackTo(String),
    /// SET, including SET TIME ZONE (`timezone`), NAMES (`client_encoding`), ROLE (`role`), SESSION AUTHORIZATION
    /// (`session_authorization`), SCHEMA (`search_path`).
    Set {
        /// The setting's name, folded to lower case.
        name: String,
        /// The new value.
        value: SetValue,
        /// SET LOCAL.
        local: bool,
    },
    /// RESET of one setting, or of all.
    Reset(Option<String>),
    /// SET TRANSACTION.
    SetTransaction(TransactionOptions),
    /// SET SESSION CHARACTERISTICS AS TRANSACTION.
    SetSessionCharacteristics(TransactionOptions),
    /// SET CONSTRAINTS.
    SetConstraints,
    /// SHOW of a setting, its name folded to lower case (`all` for SHOW ALL).
    Show(String),
    /// DISCARD.
    Discard(Discard),
    /// PREPARE; the statement itself is `inner`.
    Prepare {
        /// The prepared statement's name.
        name: String,
    },
    /// EXECUTE.
    Execute {
        /// The prepared statement's name.
        name: String,
    },
    /// DEALLOCATE of one, or of all.
    Deallocate(Option<String>),
    /// DECLARE CURSOR; the query is `inner`.
    DeclareCursor {
        /// The cursor's name.
        name: String,
        /// WITH HOLD.
        hold: bool,
    },
    /// FETCH or MOVE.
    Fetch,
    /// CLOSE.
    ClosePortal,
    /// LISTEN.
    Listen,
    /// UNLISTEN.
    Unlisten,
    /// NOTIFY.
    Notify,
    /// LOCK TABLE.
    Lock,
    /// TRUNCATE.
    Truncate,
    /// EXPLAIN; the statement is `inner`.
    Explain {
        /// ANALYZE: the statement is really run.
        analyze: bool,
    },
    /// EXPLAIN (ROUTING): what Onecopy makes of the statement inside; no server sees it.
    ExplainRouting,
    /// Work that each replica does for itself, without a version.
    Maintenance(Maintenance),
    /// DO.
    Do,
    /// CALL.
    Call,
    /// A change of the schema, of roles or of comments.
    Ddl(DdlFacts),
    /// Not offered; the session answers with SQLSTATE 0A000.
    Refused {
        /// The construct that is refused.
        what: &'static str,
        /// The advice to the client.
        hint: &'static str,
    },
    /// Nothing but white space and comments.
    Empty,
}

impl Verb {
    /// Whether it is SELECT, INSERT, UPDATE, DELETE or MERGE.
    pub fn is_dml(&self) -> bool {
        matches!(self, Self::Select | Self::Insert | Self::Update | Self::Delete | Self::Merge)
    }
}

/// Which way COPY goes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CopyDirection {
    /// FROM STDIN: a write.
    From,
    /// TO STDOUT: a read.
    To,
}

/// The levels of isolation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, serde::Serialize, serde::Deserialize)]
pub enum Isolation {
    /// READ UNCOMMITTED, which PostgreSQL runs as READ COMMITTED.
    ReadUncommitted,
    /// READ COMMITTED.
    ReadCommitted,
    /// REPEATABLE READ.
    RepeatableRead,
    /// SERIALIZABLE.
    Serializable,
}

/// The options of BEGIN and its kin; `None` where they leave one out.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TransactionOptions {
    /// The level of isolation.
    pub isolation: Option<Isolation>,
    /// READ ONLY or READ WRITE.
    pub read_only: Option<bool>,
    /// DEFERRABLE or NOT DEFERRABLE.
    pub deferrable: Option<bool>,
}

/// The value of SET.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SetValue {
    /// TO DEFAULT.
    Default,
    /// FROM CURRENT.
    Current,
    /// A constant as PostgreSQL would store it; lists are joined by commas.
    Text(String),
    /// Something that is not a plain constant, such as an interval: only the statement's own text says it.
    Expression,
}

/// The object of DISCARD.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Discard {
    /// DISCARD ALL.
    All,
    /// DISCARD PLANS.
    Plans,
    /// DISCARD SEQUENCES.
    Sequences,
    /// DISCARD TEMP.
    Temporary,
}

/// The kinds of [`Verb::Maintenance`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Maintenance {
    /// VACUUM, with FULL or without.
    Vacuum,
    /// ANALYZE.
    Analyze,
    /// CHECKPOINT.
    Checkpoint,
    /// REINDEX of a schema, database or system: not possible inside a transaction block.
    Reindex,
    /// CLUSTER without a table: not possible inside a transaction block.
    Cluster,
}

/// The effects of a schema change, as far as they are known.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DdlFacts {
    /// It concerns temporary objects of the session only and leaves no trace in the log.
    pub temporary: bool,
    /// PostgreSQL's name of the node, such as `CreateStmt`.
    pub tag: &'static str,
    /// Every relation that is named as such: a session that owns a temporary one of that name must treat the
    /// statement as temporary.
    pub relations: Vec<Name>,
    /// Its effect on rows that no trigger sees.
    pub rows: RowEffect,
    /// CONCURRENTLY was asked for, which cannot run inside a transaction.
    pub concurrently: bool,
    /// The names that it defines anew.
    pub scope: Scope,
}

impl DdlFacts {
    /// Whether it changes nothing but where rows and the entries of indexes lie. Of partitioned tables that is not possible
    /// inside a transaction block.
    pub fn rearranges(&self) -> bool {
        matches!(self.tag, "ReindexStmt" | "ClusterStmt")
    }

    /// Its effect on names that other statements may use.
    pub fn naming(&self) -> Naming<'_> {
        match (self.tag, &self.scope) {
            (
                "AlterExtensionContentsStmt"
                | "AlterExtensionStmt"
                | "AlterObjectSchemaStmt"
                | "CreateCastStmt"
                | "CreateExtensionStmt"
                | "CreateSchemaStmt"
                | "DefineStmt"
                | "DropOwnedStmt"
                | "RenameStmt",
                _,
            )
            | ("DropStmt", Scope::Anything) => Naming::Changes,
            (_, Scope::Anything) => Naming::Adds(Vec::new()),
            (_, Scope::These(changes)) => {
                let names = changes.made.iter().chain(&changes.functions).chain(&changes.types);
                Naming::Adds(names.map(String::as_str).collect())
            }
        }
    }

    /// What the schema change of this text does to rows, under a catalogue that knows all functions, operators, casts and
    /// columns that there are.
    pub fn effect(&self, subject: &Subject<'_>, catalogue: &Catalogue) -> &RowEffect {
        let computes = matches!(self.rows, RowEffect::Computed { .. });
        match determinism(subject, catalogue) {
            Ok(Determinism::Deterministic) if computes => &RowEffect::Same,
            _ => &self.rows,
        }
    }
}

/// The effect of a schema change on names that other statements may use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Naming<'a> {
    /// A name may lose its meaning, or mean something else.
    Changes,
    /// These names get a meaning, as far as the text tells. If another object has such a name already, the search path
    /// decides which one a statement means.
    Adds(Vec<&'a str>),
}

/// The effect of a schema change on rows that no trigger sees.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RowEffect {
    /// Nothing, or the same at every replica.
    Same,
    /// It computes values for the rows of a table, which could be others at each replica: see [`DdlFacts::effect`].
    Computed {
        /// The table, or the parent of those concerned.
        table: Name,
        /// Columns whose values would come from their defaults.
        added: Vec<String>,
        /// It computes nothing but the values of these columns.
        only_adds: bool,
    },
    /// It makes a table and fills it from a query.
    Made(Name),
    /// It fills a materialized view from the view's query.
    Viewed(Name),
}

impl Statement {
    /// A statement of a kind, with nothing else known of it.
    pub(crate) fn of(verb: Verb) -> Self {
        Self {
            template: TemplateId::default(),
            verb,
            reads: Vec::new(),
            with_names: Vec::new(),
            writes: Vec::new(),
            row_locks: Vec::new(),
            nowait: false,
            functions: Vec::new(),
            operators: Vec::new(),
            types: Vec::new(),
            column_names: Vec::new(),
            modifies_inside: false,
            system_columns: false,
            fills_defaults: true,
            transaction_time: false,
            fleeting: Hints::default(),
            settings: Vec::new(),
            opaque: None,
            inner: None,
            shape: None,
            block: None,
            routing: Cell::default(),
            outline: Cell::default(),
        }
    }

    /// A statement of a kind that could not be looked into.
    pub(crate) fn opaque(verb: Verb, why: Opaque) -> Self {
        Self { opaque: Some(why), ..Self::of(verb) }
    }

    /// Where the statement may run and what it touches, computed once for each generation of the catalogue.
    pub fn routing(&self, catalogue: &Catalogue) -> Arc<Routing> {
        self.routing.get(catalogue, || routing(self, catalogue))
    }

    /// The accesses of the statement, its values still open, computed once for each generation of the catalogue.
    pub fn outline(&self, catalogue: &Catalogue) -> Arc<Outline> {
        self.outline.get(catalogue, || outline(self, catalogue))
    }

    /// Roughly the bytes that it takes.
    pub(crate) fn bytes(&self) -> usize {
        const NAME_BYTES: usize = 64;
        let names = self.reads.len()
            + self.with_names.len()
            + self.writes.len()
            + self.row_locks.len()
            + self.functions.len()
            + self.operators.len()
            + self.types.len()
            + self.column_names.len();
        // A shape says most of these names again, and has about as much beside them.
        let shape = if self.shape.is_some() { names * NAME_BYTES * 2 } else { 0 };
        let inner = self.inner.as_deref().map_or(0, Self::bytes);
        let block = self.block.as_deref().map_or(&[][..], |code| &code.statements);
        let block: usize = block.iter().map(Self::bytes).sum();
        size_of::<Self>() + names * NAME_BYTES + shape + inner + block
    }

    /// Whether a function of this name is called, in whatever schema.
    pub fn calls(&self, name: &str) -> bool {
        self.functions.iter().any(|function| function.name == name)
    }
}

/// The last conclusion drawn, with the catalogue's generation. No part of a statement's value.
pub(crate) struct Cell<T>(Mutex<Option<(u64, Arc<T>)>>);

impl<T> Cell<T> {
    fn get(&self, catalogue: &Catalogue, compute: impl FnOnce() -> T) -> Arc<T> {
        let mut cached = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match &*cached {
            Some((generation, known)) if *generation == catalogue.generation() => Arc::clone(known),
            _ => {
                let fresh = Arc::new(compute());
                *cached = Some((catalogue.generation(), Arc::clone(&fresh)));
                fresh
            }
        }
    }
}

impl<T> Default for Cell<T> {
    fn default() -> Self {
        Self(Mutex::new(None))
    }
}

impl<T> Clone for Cell<T> {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl<T> PartialEq for Cell<T> {
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl<T> Eq for Cell<T> {}

impl<T> fmt::Debug for Cell<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("..")
    }
}
