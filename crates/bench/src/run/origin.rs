//! The server where a call runs is killed in the middle of the call.
//!
//! The call is known as a whole, and its rows are not in the log yet. So it runs again elsewhere with a new stamp, and the client
//! gets the reply of the second run. It must not get an error, 40001 included, and the row must be updated once.

use std::time::Duration;

use serde::Serialize;
use testbed::fault::Fault;
use tokio::time::{Instant, sleep, timeout};
use tokio_postgres::Client;

use super::contestant::{Contestant, Environment};
use super::elastic::{admin, rows};
use super::failure::settled;
use super::result::Verdict;
use crate::drive::Ledger;
use crate::judge;
use crate::load::{open, runtime};
use crate::nap::Nap;
use crate::plan::stamped::Origin;

/// Between two looks for the home of a call.
const LOOK: Duration = Duration::from_millis(10);
/// How long a reply may take.
const REPLY_MAX: Duration = Duration::from_mins(1);

/// The results.
#[derive(Debug, Serialize)]
pub(crate) struct Lost {
    pub(crate) contestant: String,
    /// The time that the call takes by itself.
    pub(crate) call_ms: u32,
    pub(crate) kills: Vec<Kill>,
    pub(crate) verdicts: Vec<Verdict>,
    pub(crate) wrong: Vec<String>,
}

/// One call and its end.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Kill {
    /// The replica where it ran.
    pub(crate) home: String,
    /// Its age when that was killed.
    pub(crate) killed_ms: f64,
    /// The time from there to the reply.
    pub(crate) reply_ms: f64,
    /// What the client was told instead of a reply.
    pub(crate) error: Option<String>,
}

/// Kills again and again; each time all servers serve again before the next call.
pub(super) fn run(
    origin: &Origin,
    contestant: &Contestant,
    environment: &Environment<'_>,
) -> Result<Lost, Fault> {
    let (mut kills, mut ledger) = (Vec::new(), Ledger::default());
    let mut wrong = runtime()?.block_on(async {
        let client = open(&contestant.endpoints.main).await?;
        let before = judge::counts(&client, &Nap { ms: 0 }).await?;
        for _ in 0..origin.times {
            environment.interrupt.check()?;
            let kill = kill(origin, contestant, &client).await?;
            match kill.error {
                None => ledger.tell(&[("calls", 1)]),
                Some(_) => ledger.doubt(&[("calls", 1)]),
            }
            kills.push(kill);
            settled(contestant).await?;
        }
        judge::wrong(&client, &Nap { ms: 0 }, &before, &ledger).await
    })?;
    wrong.extend(contestant.differences(environment)?);
    let (name, verdicts) = (contestant.name.clone(), verdicts(&kills));
    Ok(Lost { contestant: name, call_ms: origin.call_ms, kills, verdicts, wrong })
}

/// One call, whose home is killed.
async fn kill(origin: &Origin, contestant: &Contestant, client: &Client) -> Result<Kill, Fault> {
    let admin = admin(contestant).await?;
    let caller = open(&contestant.endpoints.main).await?;
    let text = format!("CALL probe(1, {})", origin.call_ms);
    let sent = Instant::now();
    let call = tokio::spawn(async move { caller.batch_execute(&text).await });
    let home = home(&admin).await?;
    sleep(Duration::from_millis(u64::from(origin.killed_ms)).saturating_sub(sent.elapsed())).await;
    let number = home.rsplit('-').next().and_then(|number| number.parse().ok());
    let absence = number.and_then(|number| contestant.kill(number));
    // From here on the server can be started again.
    drop(absence.ok_or_else(|| Fault::Missing(format!("{home}, which was to be killed, does not run")))?);
    let killed = Instant::now();
    let reply = timeout(REPLY_MAX, call).await;
    let error = match reply {
        Ok(Ok(Ok(()))) => None,
        Ok(Ok(Err(error))) => {
            Some(error.as_db_error().map_or_else(|| error.to_string(), ToString::to_string))
        }
        Ok(Err(error)) => Some(error.to_string()),
        Err(_) => Some(format!("no reply within {} s", REPLY_MAX.as_secs())),
    };
    let ms = |time: Duration| time.as_secs_f64() * 1e3;
    let reply_ms = ms(killed.elapsed());
    // The session of the checks has lost its connection to that server, too.
    let said = |error: tokio_postgres::Error| Fault::Database(format!("after the kill: {error}"));
    client.simple_query("SELECT 1").await.map_err(said)?;
    Ok(Kill { home, killed_ms: ms(killed - sent), reply_ms, error })
}

/// The replica where the one open transaction runs.
async fn home(admin: &Client) -> Result<String, Fault> {
    let end = Instant::now() + REPLY_MAX;
    while Instant::now() < end {
        let shown = rows(admin, "SHOW TRANSACTIONS").await?;
        let mut open = shown.iter().filter(|row| row.get(2).is_some_and(|state| state == "open"));
        if let Some(home) = open.find_map(|row| row.get(1)) {
            return Ok(home.clone());
        }
        sleep(LOOK).await;
    }
    Err(Fault::Missing("SHOW TRANSACTIONS shows no open transaction".into()))
}

fn verdicts(kills: &[Kill]) -> Vec<Verdict> {
    let answered = kills.iter().filter(|kill| kill.error.is_none()).count();
    let is_conflict = |kill: &&Kill| {
        kill.error.as_ref().is_some_and(|error| error.contains("40001") || error.contains("serializ"))
    };
    let conflicts = kills.iter().filter(is_conflict).count();
    let verdict =
        |claim: &str, measured: String, is_met: bool| Verdict { claim: claim.to_owned(), measured, is_met };
    vec![
        verdict(
            "the client gets its reply",
            format!("{answered} of {}", kills.len()),
            answered == kills.len(),
        ),
        verdict("no 40001", conflicts.to_string(), conflicts == 0),
    ]
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A call that was answered, or failed with these words.
    pub(in crate::run) fn lost(error: Option<&str>) -> Kill {
        Kill {
            home: "replica-2".into(),
            killed_ms: 700.0,
            reply_ms: 1_700.0,
            error: error.map(str::to_owned),
        }
    }

    #[test]
    fn each_claim_can_be_missed() {
        let met =
            |kills: &[Kill]| -> Vec<bool> { verdicts(kills).iter().map(|verdict| verdict.is_met).collect() };
        assert_eq!(met(&[lost(None), lost(None)]), [true, true]);
        assert_eq!(met(&[lost(None), lost(Some("08006: connection lost"))]), [false, true]);
        assert_eq!(met(&[lost(Some("ERROR: could not serialize access (40001)"))]), [false, false]);
    }
}
