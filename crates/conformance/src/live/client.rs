//! A client of the lists: does what its plan says, and writes down what it saw and when.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use sim::dice::Dice;
use sim::history::{Element, Level, Outcome, Seen, Statement, Transaction, Write};
use testbed::refusal::Refusal;

use super::plan::{Action, Plan};
use super::session::{Session, Value};
use super::tally::{Ending, Tally};
use super::{Course, LENGTH, LISTS, now_us};

/// How many transactions declare their tables, where that matters.
const DECLARED_PERCENT: u64 = 70;
/// How often a plan is tried.
const TRIES: u32 = 3;

/// The SQLSTATE of a statement in a transaction that has failed.
const FAILED_BLOCK: &str = "25P02";

/// The state that all clients share.
#[derive(Debug)]
pub(super) struct Shelf {
    clock: Instant,
    element: AtomicU64,
    keys: u32,
    /// Appends to each list that is in use; full lists are put away, so that they stay short.
    appends: Vec<AtomicU64>,
    rows: u32,
}

impl Shelf {
    /// Lists that are numbered from 0, of which `keys` are in use at a time.
    pub(super) fn new(keys: u32, rows: u32) -> Self {
        let appends = (0..keys).map(|_| AtomicU64::new(0)).collect();
        Self { clock: Instant::now(), element: AtomicU64::new(1), keys, appends, rows }
    }

    /// Of all times in the history.
    pub(super) fn clock(&self) -> Instant {
        self.clock
    }

    /// The lists in use now; none when all are full.
    fn open(&self) -> Option<Vec<u32>> {
        (0..self.keys)
            .zip(&self.appends)
            .map(|(slot, appends)| {
                let generation = u32::try_from(appends.load(Ordering::Relaxed) / LENGTH).ok()?;
                generation.checked_mul(self.keys)?.checked_add(slot).filter(|row| *row < self.rows)
            })
            .collect()
    }

    /// An element that no transaction has appended yet.
    fn element(&self, row: u32) -> Element {
        self.appends[(row % self.keys) as usize].fetch_add(1, Ordering::Relaxed);
        self.element.fetch_add(1, Ordering::Relaxed)
    }

    fn now_us(&self) -> u64 {
        now_us(self.clock)
    }
}

/// Works until the course is over.
pub(super) async fn work(number: u32, course: &Course, shelf: &Shelf) -> (Vec<Transaction>, Tally) {
    let mut dice = Dice::new(course.seed.wrapping_add(u64::from(number)));
    let mut client =
        Client { number, shelf, done: Vec::new(), tally: Tally::default(), before: String::new() };
    if let Err(refusal) = client.work(&mut dice, course).await {
        client.tally.wrong.push(format!("client {number} gave up: {refusal}"));
    }
    (client.done, client.tally)
}

struct Client<'a> {
    number: u32,
    shelf: &'a Shelf,
    done: Vec<Transaction>,
    tally: Tally,
    /// How the transaction before ended.
    before: String,
}

impl Client<'_> {
    async fn work(&mut self, dice: &mut Dice, course: &Course) -> Result<(), Refusal> {
        let mut session = Session::of_client(self.number, course).await?;
        while !course.is_over() {
            let Some(rows) = self.shelf.open() else { return Ok(()) };
            let mut plan = Plan::draw(dice, &rows);
            plan.is_declared = course.manner.declares() && dice.percent(DECLARED_PERCENT);
            plan.level = course.manner.asked(plan.level);
            for _ in 0..TRIES {
                let level = course.manner.given(plan.level);
                let mut transaction = self.blank(level);
                let begin_us = course.now_us();
                let ended = self.run(&session, &plan, &mut transaction).await;
                let ends = self.tally.kinds.entry(plan.kind()).or_default();
                match transaction.outcome {
                    Outcome::Committed => ends.committed += 1,
                    Outcome::Aborted => ends.aborted += 1,
                    Outcome::Unknown => ends.unknown += 1,
                }
                let ending = Ending::of(&ended, transaction.outcome == Outcome::Unknown);
                self.tally.attempts.push(course.attempt(self.number, session.node, begin_us, ending));
                self.done.push(transaction);
                let before = std::mem::replace(&mut self.before, format!("{plan:?} ended with {ended:?}"));
                match ended {
                    Ok(()) => break,
                    Err(Refusal::Again(_)) => self.tally.again += 1,
                    Err(Refusal::Told(text)) if text.starts_with(FAILED_BLOCK) => {
                        // An error ends a transaction's statements, not one after its COMMIT or ROLLBACK.
                        let wrong =
                            format!("client {} is in a failed transaction after {before}", self.number);
                        self.tally.wrong.push(wrong);
                        session.reopen().await?;
                        break;
                    }
                    Err(Refusal::Told(text)) => {
                        *self.tally.troubles.entry(text).or_default() += 1;
                        break;
                    }
                    Err(Refusal::Lost(text)) => {
                        *self.tally.troubles.entry(text).or_default() += 1;
                        session.reopen().await?;
                        break;
                    }
                    Err(stuck @ Refusal::Stuck(_)) => return Err(stuck),
                }
            }
        }
        Ok(())
    }

    fn blank(&self, level: Level) -> Transaction {
        Transaction {
            session: self.number,
            level,
            outcome: Outcome::Aborted,
            finish_us: 0,
            end_us: 0,
            statements: Vec::new(),
        }
    }

    async fn run(&mut self, session: &Session, plan: &Plan, done: &mut Transaction) -> Result<(), Refusal> {
        if plan.is_single {
            done.finish_us = self.shelf.now_us();
            let ended = self.act(session, plan, &plan.actions[0], &mut done.statements).await;
            return self.conclude(done, ended);
        }
        session.simple(&plan.begin()).await?;
        for action in &plan.actions {
            if let Err(refusal) = self.act(session, plan, action, &mut done.statements).await {
                // Its client has not sent COMMIT, so it is rolled back whatever becomes of the connection.
                (done.finish_us, done.end_us) = (self.shelf.now_us(), self.shelf.now_us());
                if matches!(refusal, Refusal::Again(_) | Refusal::Told(_)) {
                    session.simple("rollback").await?;
                }
                return Err(refusal);
            }
        }
        done.finish_us = self.shelf.now_us();
        if plan.is_given_up {
            session.simple("rollback").await?;
            done.end_us = self.shelf.now_us();
            return Ok(());
        }
        let ended = session.simple("commit").await;
        self.conclude(done, ended.map(drop))
    }

    /// Writes down how the request to commit ended.
    fn conclude(&self, done: &mut Transaction, ended: Result<(), Refusal>) -> Result<(), Refusal> {
        let is_told = !matches!(ended, Err(Refusal::Lost(_) | Refusal::Stuck(_)));
        done.outcome = match ended {
            Ok(()) => Outcome::Committed,
            Err(_) if is_told => Outcome::Aborted,
            Err(_) => Outcome::Unknown,
        };
        done.end_us = if is_told { self.shelf.now_us() } else { 0 };
        ended
    }

    async fn act(
        &mut self,
        session: &Session,
        plan: &Plan,
        action: &Action,
        into: &mut Vec<Statement>,
    ) -> Result<(), Refusal> {
        let (sql, values) = self.words(action, into);
        let place = into.len() - 1;
        let statement = &mut into[place];
        statement.begin_us = self.shelf.now_us();
        let answer = session.ask(&sql, &values, plan.is_extended).await;
        if !matches!(answer, Err(Refusal::Lost(_) | Refusal::Stuck(_))) {
            statement.end_us = self.shelf.now_us();
        }
        let rows = answer?;
        if let [row, ..] = &rows[..]
            && let Some(port) = row.get(2)
        {
            *self.tally.servers.entry(port.clone()).or_default() += 1;
        }
        if let Err(why) = note(statement, action, &rows) {
            self.tally.wrong.push(format!("client {}: `{sql}` {values:?}: {why}", self.number));
        }
        Ok(())
    }

    /// The statement in SQL, and its place in the history.
    fn words(&self, action: &Action, into: &mut Vec<Statement>) -> (String, Vec<Value>) {
        let key = |row: &u32| Value::Key(i32::try_from(*row).unwrap_or(i32::MAX));
        let look = format!("select k::text, v, current_setting('port') from {LISTS} where k");
        let mut statement = Statement::default();
        let words = match action {
            Action::Read(rows) => {
                let places: Vec<String> = (1..=rows.len()).map(|place| format!("${place}")).collect();
                let condition =
                    if rows.len() == 1 { "= $1".into() } else { format!("in ({})", places.join(", ")) };
                (format!("{look} {condition}"), rows.iter().map(key).collect())
            }
            Action::Lock(row) => (format!("{look} = $1 for update"), vec![key(row)]),
            Action::Append { row, is_shown } => {
                let element = self.shelf.element(*row);
                statement.writes.push(Write { row: *row, element, ..Write::default() });
                let shown = if *is_shown { " returning k::text, v" } else { "" };
                let sql = format!("update {LISTS} set v = v || $1 where k = $2{shown}");
                (sql, vec![Value::Text(format!("{element},")), key(row)])
            }
        };
        into.push(statement);
        words
    }
}

/// A statement showed rows that it must not have shown.
#[derive(Debug)]
enum WrongRows {
    /// Some row is no list.
    NoList(Vec<Vec<String>>),
    /// Rows are missing, or there are others.
    Others {
        /// The keys that were asked for.
        wanted: Vec<u32>,
        /// The rows that came.
        seen: Vec<Seen>,
    },
    /// An append does not show its own element at the end.
    OwnWriteMissing(u64),
}

impl fmt::Display for WrongRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoList(rows) => write!(f, "shows what is no list: {rows:?}"),
            Self::Others { wanted, seen } => write!(f, "shows other rows than {wanted:?}: {seen:?}"),
            Self::OwnWriteMissing(element) => write!(f, "does not show {element} at the end"),
        }
    }
}

/// Adds the rows that a statement showed to the history.
fn note(statement: &mut Statement, action: &Action, rows: &[Vec<String>]) -> Result<(), WrongRows> {
    let seen = rows.iter().map(|row| seen(row)).collect::<Option<Vec<Seen>>>();
    let mut seen = seen.ok_or_else(|| WrongRows::NoList(rows.to_vec()))?;
    seen.sort_unstable_by_key(|seen| seen.row);
    let wanted: Vec<u32> = match action {
        Action::Read(rows) => rows.clone(),
        Action::Lock(row) | Action::Append { row, is_shown: true } => vec![*row],
        Action::Append { is_shown: false, .. } => Vec::new(),
    };
    if seen.iter().map(|seen| seen.row).ne(wanted.iter().copied()) {
        return Err(WrongRows::Others { wanted, seen });
    }
    match action {
        Action::Read(_) => statement.reads = seen,
        Action::Lock(_) => statement.locked = seen,
        Action::Append { .. } => {
            for (write, mut seen) in statement.writes.iter_mut().zip(seen) {
                if seen.list.pop() != Some(write.element) {
                    return Err(WrongRows::OwnWriteMissing(write.element));
                }
                write.base = Some(seen.list);
            }
        }
    }
    Ok(())
}

/// A row of the table of lists.
pub(super) fn seen(row: &[String]) -> Option<Seen> {
    let elements = row.get(1)?.split(',').filter(|element| !element.is_empty());
    let list = elements.map(str::parse).collect::<Result<_, _>>().ok()?;
    Some(Seen { row: row.first()?.parse().ok()?, list })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(key: &str, list: &str) -> Vec<String> {
        vec![key.to_owned(), list.to_owned()]
    }

    #[test]
    fn what_is_shown_is_noted() {
        let mut statement = Statement::default();
        note(&mut statement, &Action::Read(vec![3, 4]), &[row("4", ""), row("3", "7,9,")]).unwrap();
        assert_eq!(statement.reads, [Seen { row: 3, list: vec![7, 9] }, Seen { row: 4, list: vec![] }]);
        assert!(note(&mut statement, &Action::Read(vec![3]), &[]).is_err(), "a row is missing");
        assert!(note(&mut statement, &Action::Read(vec![3]), &[row("3", "x")]).is_err(), "no list");

        let append = Action::Append { row: 3, is_shown: true };
        statement.writes.push(Write { row: 3, element: 11, ..Write::default() });
        note(&mut statement, &append, &[row("3", "7,9,11,")]).unwrap();
        assert_eq!(statement.writes[0].base, Some(vec![7, 9]));
        assert!(note(&mut statement, &append, &[row("3", "7,9,")]).is_err(), "its own write is missing");
    }

    #[test]
    fn full_lists_are_put_away() {
        let shelf = Shelf::new(2, 5);
        assert_eq!(shelf.open(), Some(vec![0, 1]));
        assert_eq!((0..LENGTH).map(|_| shelf.element(1)).last(), Some(LENGTH));
        assert_eq!(shelf.open(), Some(vec![0, 3]));
        assert_eq!((0..LENGTH).map(|_| shelf.element(3)).last(), Some(2 * LENGTH));
        assert_eq!(shelf.open(), None, "there is no row 5");
    }
}
