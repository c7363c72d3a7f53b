//! Transfers between accounts: every reader of all accounts sees the same sum.

use sim::dice::Dice;
use sim::history::Level;
use testbed::refusal::Refusal;

use super::plan::level_name;
use super::session::Session;
use super::tally::{Ending, Tally};
use super::{BANK, Course};

/// How many accounts there are.
pub(super) const ACCOUNTS: u64 = 8;
/// Initial balance of each account.
pub(super) const DEPOSIT: u64 = 100;
/// A reader in a transaction sums the accounts in two statements, split here.
const PART: u64 = ACCOUNTS / 2;

/// Transfers and looks until the course is over.
pub(super) async fn work(number: u32, course: &Course) -> Tally {
    let mut dice = Dice::new(course.seed.wrapping_mul(31).wrapping_add(u64::from(number)));
    let mut tally = Tally::default();
    if let Err(refusal) = run(number, &mut dice, course, &mut tally).await {
        tally.wrong.push(format!("bank client {number} gave up: {refusal}"));
    }
    tally
}

async fn run(number: u32, dice: &mut Dice, course: &Course, tally: &mut Tally) -> Result<(), Refusal> {
    let mut session = Session::of_client(number, course).await?;
    while !course.is_over() {
        let is_transfer = dice.percent(50);
        let begin_us = course.now_us();
        let ended = if is_transfer {
            transfer(&session, dice, course).await
        } else {
            look(&session, dice, course, tally).await
        };
        tally.attempts.push(course.attempt(number, session.node, begin_us, Ending::of(&ended, is_transfer)));
        let ends = tally.kinds.entry(if is_transfer { "transfer" } else { "balance" }.into()).or_default();
        match ended {
            Ok(()) => ends.committed += 1,
            Err(Refusal::Again(_)) => {
                ends.aborted += 1;
                tally.again += 1;
                let _ = session.simple("rollback").await;
            }
            Err(Refusal::Told(text)) => {
                ends.aborted += 1;
                *tally.troubles.entry(text).or_default() += 1;
                let _ = session.simple("rollback").await;
            }
            Err(Refusal::Lost(text)) => {
                ends.unknown += 1;
                *tally.troubles.entry(text).or_default() += 1;
                session.reopen().await?;
            }
            Err(stuck @ Refusal::Stuck(_)) => return Err(stuck),
        }
    }
    Ok(())
}

async fn transfer(session: &Session, dice: &mut Dice, course: &Course) -> Result<(), Refusal> {
    let level = *dice.pick(&[Level::ReadCommitted, Level::RepeatableRead, Level::Serializable]);
    let level = course.manner.asked(level);
    let from = dice.below(ACCOUNTS);
    let to = (from + dice.between(1, ACCOUNTS - 1)) % ACCOUNTS;
    let amount = dice.between(1, 20);
    if dice.percent(20) {
        let sql = format!(
            "update {BANK} set balance = balance + case k when {from} then -{amount} else {amount} end \
             where k in ({from}, {to})"
        );
        return session.simple(&sql).await.map(drop);
    }
    let declared =
        if course.manner.declares() { format!("/* onecopy: write {BANK} */ ") } else { String::new() };
    session.simple(&format!("begin {declared}isolation level {}", level_name(level))).await?;
    session.simple(&format!("update {BANK} set balance = balance - {amount} where k = {from}")).await?;
    session.simple(&format!("update {BANK} set balance = balance + {amount} where k = {to}")).await?;
    session.simple("commit").await.map(drop)
}

async fn look(session: &Session, dice: &mut Dice, course: &Course, tally: &mut Tally) -> Result<(), Refusal> {
    if dice.percent(50) || !course.manner.keeps_state() {
        let sum = sum(session, "true").await?;
        check(sum, "one statement", tally);
        return Ok(());
    }
    let level = *dice.pick(&[Level::RepeatableRead, Level::Serializable]);
    let only = if dice.percent(50) { " read only" } else { "" };
    session.simple(&format!("begin isolation level {}{only}", level_name(level))).await?;
    let low = sum(session, &format!("k < {PART}")).await?;
    let high = sum(session, &format!("k >= {PART}")).await?;
    session.simple("commit").await?;
    check(low + high, level_name(level), tally);
    Ok(())
}

/// The sum of some accounts.
pub(super) async fn sum(session: &Session, condition: &str) -> Result<i64, Refusal> {
    let rows = session.simple(&format!("select sum(balance) from {BANK} where {condition}")).await?;
    let sum = rows.first().and_then(|row| row.first()?.parse().ok());
    sum.ok_or_else(|| Refusal::Told(format!("no sum in {rows:?}")))
}

/// Notes a sum that is not the right one.
pub(super) fn check(sum: i64, who: &str, tally: &mut Tally) {
    if u64::try_from(sum) != Ok(ACCOUNTS * DEPOSIT) {
        tally.wrong.push(format!("bank: {who} sees {sum} in all accounts, not {}", ACCOUNTS * DEPOSIT));
    }
}
