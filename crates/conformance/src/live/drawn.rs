//! Rows that draw their number from a sequence, at whatever home: no number is given out twice, and each that a client was
//! given with an acknowledged row is there, whatever was killed, drained or rebuilt meanwhile.

use std::collections::BTreeMap;

use testbed::refusal::Refusal;

use super::session::Session;
use super::tally::{Ending, Tally};
use super::{Course, DRAWN};

/// Where those who draw want their rows to be written: ranges are lent to other homes than the anchor only for `any`.
pub(super) const HOMES: [&str; 3] = ["any", "any", "auto"];

/// The numbers that one client was given.
pub(super) type Numbers = Vec<i64>;

/// Draws until the course is over.
pub(super) async fn work(number: u32, home: Option<&'static str>, course: &Course) -> (Numbers, Tally) {
    let (mut numbers, mut tally) = (Numbers::new(), Tally::default());
    if let Err(refusal) = run(number, home, course, &mut numbers, &mut tally).await {
        tally.wrong.push(format!("a client that draws at {} gave up: {refusal}", name(home)));
    }
    (numbers, tally)
}

async fn run(
    number: u32,
    home: Option<&str>,
    course: &Course,
    numbers: &mut Numbers,
    tally: &mut Tally,
) -> Result<(), Refusal> {
    let mut session = Session::of_client(number, course).await?;
    let mut is_told = false;
    while !course.is_over() {
        let begin_us = course.now_us();
        let drawn = draw(&session, home, &mut is_told).await;
        let (drawn, ended) = match drawn {
            Ok(drawn) => (drawn, Ok(())),
            Err(refusal) => (Numbers::new(), Err(refusal)),
        };
        tally.attempts.push(course.attempt(number, session.node, begin_us, Ending::of(&ended, true)));
        let ends = tally.kinds.entry(format!("draw at {}", name(home))).or_default();
        match ended {
            Ok(()) => {
                ends.committed += 1;
                numbers.extend(drawn);
            }
            Err(Refusal::Again(_)) => {
                ends.aborted += 1;
                tally.again += 1;
            }
            Err(Refusal::Told(text)) => {
                ends.aborted += 1;
                *tally.troubles.entry(text).or_default() += 1;
            }
            Err(Refusal::Lost(text)) => {
                ends.unknown += 1;
                *tally.troubles.entry(text).or_default() += 1;
                session.reopen().await?;
                is_told = false;
            }
            Err(stuck @ Refusal::Stuck(_)) => return Err(stuck),
        }
    }
    Ok(())
}

fn name(home: Option<&str>) -> &str {
    home.unwrap_or("no home")
}

async fn draw(session: &Session, home: Option<&str>, is_told: &mut bool) -> Result<Numbers, Refusal> {
    if let Some(home) = home.filter(|_| !*is_told) {
        session.simple(&format!("set onecopy.home = '{home}'")).await?;
        *is_told = true;
    }
    numbers_of(&session.simple(&format!("insert into {DRAWN} (v) values (1), (2) returning id")).await?)
}

/// The numbers that are there.
pub(super) async fn there(session: &Session) -> Result<Numbers, Refusal> {
    numbers_of(&session.simple(&format!("select id from {DRAWN} order by id")).await?)
}

fn numbers_of(rows: &[Vec<String>]) -> Result<Numbers, Refusal> {
    let numbers = rows.iter().map(|row| row.first()?.parse().ok()).collect::<Option<Numbers>>();
    numbers.ok_or_else(|| Refusal::Told("a row without a number".to_owned()))
}

/// Compares the values given to clients with those in the table at the end, in order, and returns the violations.
pub(super) fn judge(given: &[i64], there: &[i64]) -> Vec<String> {
    let mut times: BTreeMap<i64, u32> = BTreeMap::new();
    for number in given {
        *times.entry(*number).or_default() += 1;
    }
    let twice = times.iter().filter(|(_, times)| **times > 1);
    let mut wrong: Vec<String> = twice.map(|(number, _)| format!("{number} was given out twice")).collect();
    let lost = times.keys().filter(|number| there.binary_search(number).is_err());
    wrong.extend(lost.map(|number| format!("the row of the number {number} is lost")));
    wrong
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_twice_or_lost_is_wrong() {
        assert!(judge(&[1, 5, 3], &[1, 2, 3, 5]).is_empty());
        assert_eq!(judge(&[1, 5, 1], &[1, 5]), ["1 was given out twice"]);
        assert_eq!(judge(&[1, 5], &[1, 2]), ["the row of the number 5 is lost"]);
    }
}
