//! Know every statement: what kind it is, and what it may read and write.
//!
//! A query string is split and classified by PostgreSQL's own parser ([`Analyzer`]); the outcome is a [`Statement`], a
//! template shared by all texts that differ in constants only, and found again without parsing. With a [`Catalogue`]
//! a statement is then either proven to be a read of a bounded set of tables or left at the anchor ([`Access`]).
//!
//! The crate is pure: texts and catalogues come in, conclusions go out. Its one invariant is soundness: it never calls
//! something a bounded read that could write, or that could read anything not listed.

mod access;
pub mod accesses;
mod analyzer;
pub mod anatomy;
mod ast_scan;
mod body;
mod builtin;
mod cache;
mod calendar;
mod catalogue;
mod classify;
mod ddl;
pub mod definition;
mod determinism;
mod explain;
mod fleeting;
mod home;
mod lexer;
mod name;
mod parser;
pub mod profile;
mod qualified;
pub mod refusal;
mod schema;
mod script;
mod setting;
mod stand_ins;
mod statement;
mod system_catalogue;
mod table_effects;

pub use access::{Access, Because, Claims, Routing, Traces, access, claims};
pub use analyzer::{Analyzer, Limits, Statistics, Understood, Unknown};
pub use catalogue::{
    Action, Argument, ArgumentMode, Body, Catalogue, Column, ColumnDefault, Contents, DatabaseId, Draws,
    Function, HeadTypes, Key, Parent, Policy, Reference, Relation, Returns, Rule, Sequence, SequenceId,
    Table, TableId, Timing, Trigger, ViewDefinition, Volatility,
};
pub use ddl::{Frozen, Password, freeze_defaults, name_session_user, passwords, without_concurrently};
pub use determinism::{
    Bind, Clock, Determinism, Evaluate, Rewrite, RewriteError, SHIPPED_SETTINGS, Subject, Why, determinism,
    may_read_clock,
};
pub use explain::{Explained, explain, explained};
pub use fleeting::Fleeting;
pub use home::{draws, may_leave_anchor, only_asks_draws};
pub use lexer::Span;
pub use name::Name;
pub use parser::is_parser_busy;
pub use profile::TemplateId;
pub use qualified::unqualified;
pub use refusal::REFUSALS;
pub use schema::{LeftOut, Schema};
pub use script::{Part, Rejection, Script, SyntaxError};
pub use stand_ins::{Asks, SESSION_SETTINGS, StandIns, asks_of, stand_ins};
pub use statement::{
    CopyDirection, DdlFacts, Discard, Isolation, Maintenance, Naming, Opaque, RowEffect, SetValue,
    SettingCall, Statement, TransactionOptions, Verb,
};
