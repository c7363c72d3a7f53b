//! Calls that take a known time and hardly any processor: `CALL probe(id, ms)` updates its row, and then sleeps.
//!
//! The row is an argument, so the rows of a call are known before it runs. Each client has rows of its own, and no two clients
//! conflict. The sum over all rows is the number of calls that were committed.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

use futures_util::future::LocalBoxFuture;
use sim::dice::Dice;
use testbed::fault::Fault;
use testbed::refusal::Refusal;

use crate::drive::{Account, Actor, Added, Call, Fill, Next, Rule, Session, Texts, Workload};

/// Rows, each with a counter.
const ROWS: i32 = 1_000;

const SCHEMA: &str = "
CREATE TABLE probed (id int PRIMARY KEY, n int NOT NULL);
INSERT INTO probed SELECT g, 0 FROM generate_series(1, 1000) AS g;
CREATE PROCEDURE probe(p_id int, p_ms int) LANGUAGE plpgsql AS $$
BEGIN
    UPDATE probed SET n = n + 1 WHERE id = p_id;
    PERFORM pg_sleep(p_ms / 1000.0);
END
$$;
";

/// The workload.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Nap {
    /// The time that each call takes.
    pub(crate) ms: i32,
}

impl Workload for Nap {
    fn name(&self) -> String {
        format!("probe of {} ms", self.ms)
    }

    fn texts(&self) -> Texts {
        Rc::new(BTreeMap::from([("probe", "CALL probe($1, $2)".to_owned())]))
    }

    fn populate<'a>(&'a self, fill: &'a Fill<'a>) -> LocalBoxFuture<'a, Result<(), Fault>> {
        Box::pin(fill.say(SCHEMA))
    }

    fn actor(&self, number: usize, _dice: Dice) -> Box<dyn Actor> {
        let id = i32::try_from(number).unwrap_or(i32::MAX) % ROWS + 1;
        Box::new(Sleeper { ms: self.ms, id })
    }

    fn accounts(&self) -> Vec<Account> {
        vec![Account { name: "calls", sql: "SELECT sum(n)::bigint FROM probed" }]
    }

    fn rules(&self) -> Vec<Rule> {
        let (name, sql) =
            ("no row is lost", format!("SELECT 1 WHERE (SELECT count(*) FROM probed) <> {ROWS}"));
        vec![Rule { name: name.to_owned(), sql }]
    }
}

/// One client.
struct Sleeper {
    ms: i32,
    id: i32,
}

impl Actor for Sleeper {
    fn draw(&mut self) -> Next {
        Next { kind: "probe", think: Duration::ZERO }
    }

    fn act<'a>(&'a mut self, session: &'a mut Session) -> LocalBoxFuture<'a, Result<(), Refusal>> {
        let (id, ms) = (self.id, self.ms);
        Box::pin(async move {
            let call =
                Call { name: "probe", values: &[&id, &ms], entered: ("calls", Added::One), undone_by: None };
            session.call(call).await
        })
    }
}
