//! Schema changes: ordered statements, and maintenance that every replica does for itself.
//!
//! A schema change runs at the home inside the client's transaction, with the token that lets it pass our event
//! trigger; then new tables get their capture triggers, and the statement goes into the record with the role, search
//! path and settings that it ran under. Everywhere else it is run from the record, in version order.

use std::sync::Arc;

use cluster::event::{Event, Reads};
use cluster::ids::{ReplicaId, Version};
use sql::{Name, Statement};
use wire::encode;

use super::demand::Demand;
use super::fault::Fault;
use super::relay::Ended;
use super::session::{Placed, Session, Transaction};
use super::transaction::broken;
use super::work::Work;
use crate::capture;

/// Settings that can change what a schema change means.
const RECORDED_SETTINGS: [&str; 8] = [
    "DateStyle",
    "TimeZone",
    "IntervalStyle",
    "check_function_bodies",
    "standard_conforming_strings",
    "default_tablespace",
    "default_table_access_method",
    "createrole_self_grant",
];

impl Session {
    /// Runs one schema change in the open transaction, or in one of its own.
    pub(crate) async fn ddl(
        &mut self,
        statement: &Arc<Statement>,
        text: &[u8],
        work: Work<'_>,
        alone: bool,
    ) -> Result<Ended, Fault> {
        // Only a transaction that begins here ends here.
        let alone = alone && matches!(self.transaction, Transaction::None);
        match &self.transaction {
            Transaction::None => {
                crate::hub::count(&self.hub().stats.anchor_update);
                let options = self.resolve(sql::TransactionOptions::default());
                self.open_update(options, Reads::All, true).await?;
            }
            Transaction::Begun(_) => self.start_transaction(&Demand::one(statement)).await?,
            Transaction::Update(_) => self.gate(Reads::All).await?,
            Transaction::Read(_) | Transaction::Lost(_) => {
                return self.run(&Demand::one(statement), work, false).await;
            }
        }
        let result = self.ddl_at_home(text, work).await;
        match result {
            Ok(ended) if alone && ended.error.is_none() => {
                self.commit_home().await?;
                Ok(ended)
            }
            Ok(ended) => {
                if alone {
                    self.roll_back_home().await;
                }
                Ok(ended)
            }
            Err(fault) => {
                if alone {
                    self.roll_back_home().await;
                }
                Err(fault)
            }
        }
    }

    async fn ddl_at_home(&mut self, text: &[u8], work: Work<'_>) -> Result<Ended, Fault> {
        let token = capture::ddl_token(self.hub().cluster_id);
        self.own_query(format!("SET LOCAL {} = '{token}'", capture::DDL_SETTING).as_bytes()).await?;
        let ended = self.at_home(work, true).await?;
        if ended.error.is_some() {
            return Ok(ended);
        }
        let circumstances = self.own_query(circumstances_sql().as_bytes()).await?.row.unwrap_or_default();
        self.own_query(format!("SET LOCAL {} = ''", capture::DDL_SETTING).as_bytes()).await?;
        let record =
            recorded(text, circumstances).ok_or_else(|| broken("a schema change has no circumstances"))?;
        let Transaction::Update(update) = &mut self.transaction else {
            return Err(broken("no update transaction is open"));
        };
        update.has_ddl = true;
        update.claims.add_everything();
        update
            .capture
            .record
            .push_statement(&record)
            .map_err(|_| broken("a statement is too long for a record"))?;
        Ok(ended)
    }

    /// Whether any of these names is a temporary relation of this session.
    pub(crate) async fn names_temporary(&mut self, names: &[Name]) -> Result<bool, Fault> {
        if names.is_empty() || !self.must_stay_home().await? {
            return Ok(false);
        }
        let list = names
            .iter()
            .filter(|name| name.schema.as_deref().is_none_or(|schema| schema.starts_with("pg_temp")))
            .map(|name| format!("'{}'", name.name.replace('\'', "''")))
            .collect::<Vec<_>>()
            .join(",");
        if list.is_empty() {
            return Ok(false);
        }
        let anchor = self.anchor();
        let Some(server) = self.servers.find(anchor) else { return Ok(false) };
        if server.own_units > 0 {
            return Ok(false);
        }
        let sql = format!(
            "SELECT 1 FROM pg_catalog.pg_class WHERE relnamespace = pg_catalog.pg_my_temp_schema() \
             AND relname IN ({list}) LIMIT 1"
        );
        let rows = server.connection.simple(&sql).await.map_err(Fault::at(anchor))?;
        Ok(!rows.is_empty())
    }

    /// VACUUM and the like: at the home first, whose reply the client gets, then at the others, each when it is
    /// fresh. A replica where it fails is named in a warning; the data are not concerned.
    pub(crate) async fn maintenance(&mut self, text: &[u8], work: Work<'_>) -> Result<Ended, Fault> {
        let anchor = self.anchor();
        let mark = self.client.out.len();
        let ended = self.run_at_home_alone(work).await?;
        if ended.error.is_some() {
            return Ok(ended);
        }
        let reply = self.client.out.split_off(mark.min(self.client.out.len()));
        for index in 0..self.hub().seats.len() {
            let replica = ReplicaId(u16::try_from(index).unwrap_or(u16::MAX));
            if replica == anchor {
                continue;
            }
            if let Err(reason) = self.maintain_replica(replica, text).await {
                let text = format!("it was not done at {}: {reason}", self.hub().seats[index].name);
                self.warn(wire::sqlstate::CONNECTION_FAILURE, &text);
            }
        }
        self.client.out.extend_from_slice(&reply);
        Ok(ended)
    }

    async fn maintain_replica(&mut self, replica: ReplicaId, text: &[u8]) -> Result<(), String> {
        let event = Event::Read {
            session: self.id,
            reads: Reads::All,
            at: Some(replica),
            cost_us: 1,
            catalogue: Version(u64::MAX),
        };
        let Ok(Placed::At(place)) = self.place(event).await else { return Err("it is not up".into()) };
        let Self { worker, servers, settings, .. } = &mut *self;
        let result = match servers.ensure(&worker.hub, settings, replica, place.incarnation).await {
            Ok(server) => {
                let sql = String::from_utf8_lossy(text).into_owned();
                server.prepared.remove(&b""[..]);
                server.connection.simple(&sql).await.map(|_| ()).map_err(|error| error.to_string())
            }
            Err(_) => Err("no connection".into()),
        };
        self.executed();
        result
    }

    /// One statement at the home, outside of any transaction of ours.
    pub(crate) async fn run_at_home_alone(&mut self, work: Work<'_>) -> Result<Ended, Fault> {
        if self.is_settling {
            self.settle().await;
        }
        let anchor = self.anchor();
        let started = tokio::time::Instant::now();
        loop {
            match self.read_at(anchor, work).await {
                Err(Fault::Unplaced(_)) if started.elapsed() < super::session::WAIT_MAX => {
                    tokio::time::sleep(super::session::RETRY_PAUSE).await;
                }
                other => return other,
            }
        }
    }
}

fn circumstances_sql() -> String {
    let mut sql =
        "SELECT onecopy.install(), current_user, pg_catalog.current_setting('search_path')".to_owned();
    for name in RECORDED_SETTINGS {
        sql.push_str(&format!(", pg_catalog.current_setting('{name}', true)"));
    }
    sql
}

fn recorded(text: &[u8], row: Vec<Option<Vec<u8>>>) -> Option<cluster::record::Statement> {
    let mut columns = row.into_iter().map(|value| value.map(|v| String::from_utf8_lossy(&v).into_owned()));
    columns.next()?;
    let (role, search_path) = (columns.next()??, columns.next()??);
    let settings = RECORDED_SETTINGS
        .iter()
        .zip(columns)
        .filter_map(|(name, value)| Some(((*name).to_owned(), value?)))
        .collect();
    let text = String::from_utf8_lossy(text).into_owned();
    Some(cluster::record::Statement { text, role, search_path, settings })
}

/// Appends an empty description of a statement without parameters and rows.
pub(crate) fn describe_nothing(out: &mut Vec<u8>, of_statement: bool) {
    if of_statement {
        encode::parameter_description_empty(out);
    }
    encode::bare(out, wire::backend::tag::NO_DATA);
}
