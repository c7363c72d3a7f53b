//! Removes rows from the record that were captured, and then rolled back by an exception block inside a function.
//!
//! The session sees the client's SAVEPOINT, but not a PL/pgSQL block with EXCEPTION, whose notices have been sent
//! before the rollback. Each notice carries the (sub)transaction that wrote the row, and the server knows which of
//! these are aborted (pitfalls 1.11). Only rows written inside a function, trigger or cascade can be concerned, so
//! most transactions never ask.

use cluster::record::Span;
use wire::sqlstate;

use crate::capture::{Captured, InvalidValue, JSON_DEPTH_MAX};
use crate::error::{Fault, Refusal, broken};
use crate::propagate::Recorder;
use crate::transaction::open::Transaction;
use crate::writeset::runs::Run;
use crate::writeset::{Capture, too_large};

/// A transaction with more (sub)transactions is rejected, since each has to be looked up.
const SUBTRANSACTIONS_MAX: usize = 1_000;

impl Recorder<'_> {
    /// Rejects writes that cannot be replicated, and removes rolled-back rows from the record.
    pub(crate) async fn check_capture(&mut self) -> Result<(), Fault> {
        let Transaction::Update(update) = &self.txn.state else {
            return Err(broken("no update transaction is open"));
        };
        if let Some(why) = update.capture.broken {
            return Err(Fault::Refused(refusal(why)));
        }
        if !update.capture.runs.has_nested() {
            return Ok(());
        }
        if update.capture.truncates.has_nested {
            return Err(Fault::Refused(Refusal::unsupported(
                "TRUNCATE inside a function",
                "Whether an exception block undid it cannot be told. Run it on its own, or use DELETE.",
            )));
        }
        if update.capture.truncates.has_torn {
            return Err(Fault::Refused(Refusal::unsupported(
                "TRUNCATE of several tables with a trigger that writes rows of one of them",
                "Truncate them in statements of their own, or use DELETE.",
            )));
        }
        let mut xids: Vec<u32> = update.capture.runs.nested().map(|run| run.xid).collect();
        xids.sort_unstable();
        xids.dedup();
        if xids.len() > SUBTRANSACTIONS_MAX {
            return Err(Fault::Refused(Refusal::new(
                sqlstate::PROGRAM_LIMIT_EXCEEDED,
                format!("the transaction wrote rows in more than {SUBTRANSACTIONS_MAX} subtransactions"),
                "Use fewer exception blocks in one transaction.",
            )));
        }
        let list = xids.iter().map(u32::to_string).collect::<Vec<_>>().join(",");
        // The server counts with 64 bits, and a subtransaction comes after its transaction.
        let sql = format!(
            "WITH top AS (SELECT id, id OPERATOR(pg_catalog.%) 4294967296 AS low \
                 FROM (SELECT pg_catalog.pg_current_xact_id()::pg_catalog.text::bigint AS id) AS present) \
             SELECT pg_catalog.array_to_string(onecopy.xact_status(pg_catalog.array_agg( \
                 (id OPERATOR(pg_catalog.-) low) OPERATOR(pg_catalog.+) xid OPERATOR(pg_catalog.+) \
                 CASE WHEN xid OPERATOR(pg_catalog.<) low THEN 4294967296 ELSE 0::bigint END ORDER BY number)), ',') \
             FROM top, pg_catalog.unnest('{{{list}}}'::bigint[]) WITH ORDINALITY AS v(xid, number)"
        );
        let ended = self.driver().own_query(&sql).await?;
        let row = ended.row.unwrap_or_default();
        let answer = row.into_iter().next().flatten().unwrap_or_default();
        let answer = String::from_utf8_lossy(&answer).into_owned();
        let verdicts: Vec<(u32, Verdict)> =
            xids.into_iter().zip(answer.split(',').map(Verdict::of)).collect();
        let Transaction::Update(update) = &mut self.txn.state else {
            return Err(broken("the update transaction is gone"));
        };
        take_undone_out(&mut update.capture, &verdicts)
    }
}

/// The state of a (sub)transaction at the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Verdict {
    Alive,
    Undone,
    /// It belongs to another transaction.
    Stranger,
}

impl Verdict {
    fn of(word: &str) -> Self {
        match word {
            "in progress" => Self::Alive,
            "aborted" => Self::Undone,
            _ => Self::Stranger,
        }
    }
}

fn take_undone_out(capture: &mut Capture, verdicts: &[(u32, Verdict)]) -> Result<(), Fault> {
    let with = |verdict: Verdict| -> Vec<u32> {
        verdicts.iter().filter(|(_, v)| *v == verdict).map(|(xid, _)| *xid).collect()
    };
    let (alive, undone) = (with(Verdict::Alive), with(Verdict::Undone));
    let clear = |run: &Run| alive.contains(&run.xid) || (undone.contains(&run.xid) && !run.has_deletes);
    let nested = capture.runs.nested();
    if !nested.clone().all(clear) {
        return Err(Fault::Refused(Refusal::unsupported(
            "deleting a locked row inside a function while a transaction uses exception blocks",
            "It cannot be told whether the deletion was undone. Delete the row outside of the function.",
        )));
    }
    if undone.is_empty() {
        return Ok(());
    }
    let spans: Vec<Span> = nested
        .filter(|run| undone.contains(&run.xid))
        .map(|run| Span { from: run.from, to: run.to })
        .collect();
    capture.record.drop_rows(&spans);
    Ok(())
}

fn refusal(why: Captured) -> Refusal {
    match why {
        Captured::TooLarge => too_large(),
        Captured::Invalid(InvalidValue::TooDeep) => Refusal::unsupported(
            format!("writing, changing or deleting a row with JSON of more than {JSON_DEPTH_MAX} levels"),
            "Other replicas might not parse it. Nest it less deeply.",
        ),
        Captured::Invalid(InvalidValue::UnsortedLexemes) => Refusal::unsupported(
            "writing, changing or deleting a row with a tsvector whose lexemes are not in order",
            "Other replicas would put them in order. array_to_tsvector makes it of lexemes longer than 2046 bytes.",
        ),
        Captured::Invalid(InvalidValue::NotUtf8) => Refusal::new(
            sqlstate::CHARACTER_NOT_IN_REPERTOIRE,
            "a row that was written has, or had, text that is not valid UTF-8; the transaction is rolled back",
            "Other replicas would not take such text. A function in C has made it, or it came with data of an old release.",
        ),
        _ => Refusal::plain(
            sqlstate::INTERNAL_ERROR,
            "a captured row could not be understood; the transaction is rolled back",
        ),
    }
}
