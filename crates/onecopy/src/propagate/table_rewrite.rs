//! Replicates the rows that a schema change writes.
//!
//! Row triggers do not see the rows that ALTER TABLE or CREATE TABLE AS write, and an expression such as `random()`
//! would give every replica other values. So the statement runs at the home as the client sent it, and the other
//! replicas get the home's rows:
//!
//! - A new column with one value in all rows gets that constant as its default elsewhere (`sql::freeze_defaults`).
//! - A rewritten table is emptied at the other replicas before the statement, so the statement computes no values
//!   there. Afterwards it is filled with the home's rows. DELETE empties it, because TRUNCATE stops at foreign keys and
//!   hides rows from older snapshots.
//! - A table made from a query is made elsewhere without the query, then filled.
//! - Only its query can fill a materialized view, so the query must give the same rows everywhere.
//!
//! Invariant: the rows that are read back are all that the statement wrote. The statement holds an exclusive lock, and
//! the reading query has a newer snapshot. At REPEATABLE READ it would not, so that is rejected.

use cluster::record::Statement as Recorded;
use serde::Deserialize;
use sql::refusal::{COMPUTED_ISOLATION, MATERIALIZED};
use sql::{Catalogue, Column, Determinism, Frozen, Isolation, Name, RowEffect, Subject, Table};

use crate::drive::definitions::{array, literal};
use crate::error::{Fault, Refusal, broken};
use crate::propagate::Recorder;
use crate::relay::{Expected, RowsOf};
use crate::transaction::open::Transaction;

/// Knowledge from before a statement that computes values.
pub(crate) struct Before {
    /// The columns that exist already, as the server's array of text.
    known: Option<String>,
}

/// The answer of `onecopy.computed`.
#[derive(Debug, Deserialize)]
struct Computed {
    frozen: Option<serde_json::Map<String, serde_json::Value>>,
    leaves: Vec<Leaf>,
}

/// A table whose rows have other values than before.
#[derive(Debug, Deserialize)]
struct Leaf {
    id: u32,
    /// The quoted name.
    name: String,
}

/// The answer of `onecopy.definition`.
#[derive(Debug, Deserialize)]
struct Definition {
    id: u32,
    name: String,
    text: String,
}

/// The answer of `onecopy.view_queries`.
#[derive(Debug, Deserialize)]
struct Filling {
    queries: Vec<String>,
    relations: Vec<Seen>,
    stranger: Option<String>,
}

/// A relation that one of these queries may read.
#[derive(Debug, Deserialize)]
struct Seen {
    schema: String,
    name: String,
    row_security: bool,
    columns: Vec<SeenColumn>,
}

#[derive(Debug, Deserialize)]
struct SeenColumn {
    name: String,
    type_oid: u32,
    type_mod: i32,
    deterministic: bool,
}

impl From<Seen> for Table {
    fn from(seen: Seen) -> Self {
        let column = |column: SeenColumn| Column {
            name: column.name,
            type_oid: column.type_oid,
            type_mod: column.type_mod,
            collation_deterministic: column.deterministic,
            ..Column::default()
        };
        Self {
            schema: seen.schema,
            name: seen.name,
            row_security: seen.row_security,
            columns: seen.columns.into_iter().map(column).collect(),
            ..Self::default()
        }
    }
}

impl Recorder<'_> {
    /// Asks the home for the facts that are needed before the statement runs.
    pub(crate) async fn before_rows(&mut self, effect: &RowEffect) -> Result<Before, Fault> {
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        update.capture.rewritten.clear();
        let RowEffect::Computed { table, added, .. } = effect else { return Ok(Before { known: None }) };
        if update.options.isolation >= Some(Isolation::RepeatableRead) {
            let (what, hint) = COMPUTED_ISOLATION;
            return Err(Refusal::unsupported(what, hint).into());
        }
        if added.is_empty() {
            return Ok(Before { known: None });
        }
        let sql = format!("SELECT onecopy.known_columns({}, {})", oid_of(table), array(added));
        Ok(Before { known: Some(self.driver().own_text(&sql).await?) })
    }

    /// Adds the statement and the rows that it wrote to the record, after it ran at the home.
    pub(crate) async fn record_rows(
        &mut self,
        effect: &RowEffect,
        before: Before,
        is_new: bool,
        mut recorded: Recorded,
    ) -> Result<(), Fault> {
        match effect {
            RowEffect::Same => self.txn.push_statement(&recorded),
            RowEffect::Viewed(view) => {
                self.check_view(view).await?;
                self.txn.push_statement(&recorded)
            }
            // IF NOT EXISTS, and it did.
            RowEffect::Made(_) if !is_new => Ok(()),
            RowEffect::Made(table) => {
                let sql = format!("SELECT onecopy.definition({})", oid_of(table));
                let made: Definition = self.own_json(&sql).await?;
                recorded.text = made.text;
                self.txn.push_statement(&recorded)?;
                self.ship(&[Leaf { id: made.id, name: made.name }]).await
            }
            RowEffect::Computed { table, added, only_adds, .. } => {
                let computed = self.computed(table, added, before).await?;
                self.record_computed(computed, *only_adds, recorded).await
            }
        }
    }

    async fn computed(&mut self, table: &Name, added: &[String], before: Before) -> Result<Computed, Fault> {
        let Transaction::Update(update) = &self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        let oids: Vec<String> = update.capture.rewritten.iter().map(u32::to_string).collect();
        let known = before.known.unwrap_or_else(|| "{}".to_owned());
        self.own_json(&format!(
            "SELECT onecopy.computed({}, {}, {}, '{{{}}}')",
            oid_of(table),
            array(added),
            literal(&known),
            oids.join(",")
        ))
        .await
    }

    async fn record_computed(
        &mut self,
        computed: Computed,
        only_adds: bool,
        mut recorded: Recorded,
    ) -> Result<(), Fault> {
        let frozen: Option<Vec<Frozen>> = computed.frozen.map(|columns| {
            let frozen = |(column, value): (String, serde_json::Value)| Frozen {
                column,
                value: value.as_str().unwrap_or("NULL").to_owned(),
            };
            columns.into_iter().map(frozen).collect()
        });
        if let Some(frozen) = frozen.filter(|_| only_adds) {
            if frozen.is_empty() {
                return self.txn.push_statement(&recorded);
            }
            if let Some(text) =
                sql::freeze_defaults(&recorded.text, self.link.settings.noted.conforming, &frozen)
            {
                recorded.text = text;
                return self.txn.push_statement(&recorded);
            }
        }
        if !computed.leaves.is_empty() {
            let emptied: Vec<String> =
                computed.leaves.iter().map(|leaf| format!("DELETE FROM ONLY {}", leaf.name)).collect();
            // Without a role it is the applier's own: no policy and no missing privilege is in its way.
            self.txn.push_statement(&recorded_text(emptied.join("; ")))?;
        }
        self.txn.push_statement(&recorded)?;
        // The positions of new columns' sequences go into the record at the end, as always.
        self.ship(&computed.leaves).await
    }

    /// Puts all rows of tables into the record.
    async fn ship(&mut self, leaves: &[Leaf]) -> Result<(), Fault> {
        let xid = self.driver().own_text("SELECT pg_catalog.pg_current_xact_id()").await?;
        // The lower half of the number tells the rows apart.
        let xid = xid.parse::<u64>().map_err(|_| broken("a transaction has no number"))? as u32;
        let policies = self.driver().own_text("SELECT pg_catalog.current_setting('row_security')").await?;
        // If policies apply, the query fails instead of leaving rows out.
        self.driver().own_query("SET LOCAL row_security = off").await?;
        let database = self.link.coordinator().database.served.id;
        for leaf in leaves {
            let table = database.table(leaf.id);
            let name = leaf.name.replace('\'', "''");
            let row = self
                .driver()
                .own_text(&format!("SELECT onecopy.captured_row('{name}'::pg_catalog.regclass)"))
                .await?;
            let sql = format!("SELECT pg_catalog.record_send({row}) FROM ONLY {} AS onecopy_row", leaf.name);
            let ended = self
                .driver()
                .exchange_home(|server| {
                    server.query_own(&sql);
                    Expected { rows_of: Some(RowsOf { table, xid }), ..Expected::silent() }
                })
                .await?;
            if let Some(body) = ended.error {
                return Err(Fault::Server(body));
            }
        }
        self.driver().own_query(&format!("SET LOCAL row_security = {policies}")).await?;
        Ok(())
    }

    /// Rejects a materialized view whose query could give each replica other rows.
    async fn check_view(&mut self, view: &Name) -> Result<(), Fault> {
        let sql = format!("SELECT onecopy.view_queries({})", oid_of(view));
        let Filling { queries, relations, stranger } = self.own_json(&sql).await?;
        let catalogue =
            self.link.database().catalogue().of_relations(relations.into_iter().map(Table::from).collect());
        let doubt = stranger.map(|stranger| format!("it uses {stranger}"));
        let doubt = doubt.or_else(|| queries.iter().find_map(|query| doubt_of(query, &catalogue)));
        doubt.map_or(Ok(()), |why| {
            let (what, hint) = MATERIALIZED;
            Err(Refusal::unsupported(format!("{what} ({why})"), hint).into())
        })
    }

    async fn own_json<T: serde::de::DeserializeOwned>(&mut self, sql: &str) -> Result<T, Fault> {
        let text = self.driver().own_text(sql).await?;
        serde_json::from_str(&text).map_err(|_| broken("a query of our own gave something unexpected"))
    }
}

/// The reason why a query, as the server shows it, may give each replica other rows. The definition keeps the text of
/// the query, so no value in it can be replaced.
fn doubt_of(query: &str, catalogue: &Catalogue) -> Option<String> {
    match sql::determinism(&Subject::new(query.trim_end().trim_end_matches(';')), catalogue) {
        Ok(Determinism::Deterministic) => None,
        Ok(Determinism::AfterRewrite(_)) => Some("it depends on the time".to_owned()),
        Ok(Determinism::No(reasons)) => reasons.first().map(ToString::to_string),
        Err(_) => Some("it is not understood".to_owned()),
    }
}

/// An expression for the OID of a relation, resolved by the search path of the session.
pub(crate) fn oid_of(name: &Name) -> String {
    let quoted = crate::capture::quoting::quoted;
    let name = match &name.schema {
        Some(schema) => format!("{}.{}", quoted(schema), quoted(&name.name)),
        None => quoted(&name.name),
    };
    format!("pg_catalog.to_regclass({})::pg_catalog.oid", literal(&name))
}

/// A statement of our own, which the applier runs under its own role.
pub(crate) fn recorded_text(text: String) -> cluster::record::Statement {
    let search_path = "pg_catalog".to_owned();
    cluster::record::Statement { text, role: String::new(), search_path, settings: Vec::new() }
}
