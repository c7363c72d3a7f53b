//! Checks a database against the rules of its workload and the acknowledgements of its clients.

use std::collections::BTreeMap;

use testbed::fault::Fault;
use tokio_postgres::{Client, SimpleQueryMessage};

use crate::drive::{Ledger, Workload};

/// How many rows that break a rule are looked at.
const ROWS_MAX: usize = 3;

/// How many there are of everything that the workload can count.
pub(crate) async fn counts(
    client: &Client,
    workload: &dyn Workload,
) -> Result<BTreeMap<&'static str, i64>, Fault> {
    let mut counts = BTreeMap::new();
    for account in workload.accounts() {
        let row = client.query_one(account.sql, &[]).await.map_err(|error| said(account.name, &error))?;
        // A sum over nothing is null.
        let count = row.try_get::<_, Option<i64>>(0).map_err(|error| said(account.name, &error))?;
        counts.insert(account.name, count.unwrap_or_default());
    }
    Ok(counts)
}

/// In words, each rule that does not hold.
pub(crate) async fn broken(client: &Client, workload: &dyn Workload) -> Result<Vec<String>, Fault> {
    let mut broken = Vec::new();
    for rule in workload.rules() {
        let sql = format!("SELECT to_jsonb(x)::text FROM ({}) AS x LIMIT {ROWS_MAX}", rule.sql);
        let answer = client.simple_query(&sql).await.map_err(|error| said(&rule.name, &error))?;
        let rows: Vec<&str> = answer
            .iter()
            .filter_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            })
            .collect();
        if !rows.is_empty() {
            broken.push(format!("{}: not so for {}", rule.name, rows.join(", ")));
        }
    }
    Ok(broken)
}

/// In words, everything that is wrong after a course.
pub(crate) async fn wrong(
    client: &Client,
    workload: &dyn Workload,
    before: &BTreeMap<&'static str, i64>,
    ledger: &Ledger,
) -> Result<Vec<String>, Fault> {
    let mut wrong = ledger.judge(before, &counts(client, workload).await?);
    wrong.extend(broken(client, workload).await?);
    Ok(wrong)
}

fn said(what: &str, error: &tokio_postgres::Error) -> Fault {
    let said = error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string);
    Fault::Database(format!("{what}: {said}"))
}
