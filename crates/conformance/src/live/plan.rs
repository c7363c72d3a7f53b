//! The plan of a client, drawn before it is carried out, so that it can be repeated after an abort.

use sim::dice::Dice;
use sim::history::Level;

use super::LISTS;

/// How many statements a transaction has at most.
const STATEMENTS_MAX: u64 = 4;
/// How many rows one statement reads at most.
const ROWS_MAX: u64 = 3;

/// One statement on the lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Action {
    /// Reads rows in one statement.
    Read(Vec<u32>),
    /// Reads a row and locks it.
    Lock(u32),
    /// Appends to a row, and asks what came out or does not.
    Append { row: u32, is_shown: bool },
}

/// One transaction.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Plan {
    /// At which level.
    pub(super) level: Level,
    /// One statement without BEGIN.
    pub(super) is_single: bool,
    /// Declared READ ONLY.
    pub(super) is_read_only: bool,
    /// It is rolled back at the end.
    pub(super) is_given_up: bool,
    /// With parameters in the extended protocol, or as text in the simple one.
    pub(super) is_extended: bool,
    /// Its tables are declared.
    pub(super) is_declared: bool,
    /// Its actions.
    pub(super) actions: Vec<Action>,
}

impl Plan {
    /// Draws a transaction over these rows.
    pub(super) fn draw(dice: &mut Dice, rows: &[u32]) -> Self {
        let is_single = dice.percent(50);
        let is_read_only = !is_single && dice.percent(30);
        let levels = [Level::ReadCommitted, Level::RepeatableRead, Level::Serializable];
        let level = if is_single { Level::ReadCommitted } else { *dice.pick(&levels) };
        let count = if is_single { 1 } else { dice.between(1, STATEMENTS_MAX) };
        let actions = (0..count).map(|_| action(dice, rows, is_read_only, is_single)).collect();
        Self {
            level,
            is_single,
            is_read_only,
            is_given_up: !is_single && dice.percent(5),
            is_extended: dice.percent(50),
            is_declared: false,
            actions,
        }
    }

    /// The statement that opens it.
    pub(super) fn begin(&self) -> String {
        let only = if self.is_read_only { " read only" } else { "" };
        let declared = match (self.is_declared, self.is_read_only) {
            (false, _) => String::new(),
            (true, true) => format!(" /* onecopy: read {LISTS} */"),
            (true, false) => format!(" /* onecopy: write {LISTS} */"),
        };
        format!("begin{declared} isolation level {}{only}", level_name(self.level))
    }

    /// The name of its kind in the report.
    pub(super) fn kind(&self) -> String {
        if self.is_single {
            let is_read = matches!(self.actions[..], [Action::Read(_)]);
            return if is_read { "single read".into() } else { "single append".into() };
        }
        let only = if self.is_read_only { ", read only" } else { "" };
        format!("{}{only}", level_name(self.level))
    }
}

/// As SQL has it.
pub(super) fn level_name(level: Level) -> &'static str {
    match level {
        Level::ReadCommitted => "read committed",
        Level::RepeatableRead => "repeatable read",
        Level::Serializable => "serializable",
    }
}

fn action(dice: &mut Dice, rows: &[u32], is_read_only: bool, is_single: bool) -> Action {
    if is_read_only || dice.percent(50) {
        let mut chosen: Vec<u32> = (0..dice.between(1, ROWS_MAX)).map(|_| *dice.pick(rows)).collect();
        chosen.sort_unstable();
        chosen.dedup();
        return Action::Read(chosen);
    }
    let row = *dice.pick(rows);
    // A lock by itself ends with its statement.
    if !is_single && dice.percent(15) {
        return Action::Lock(row);
    }
    Action::Append { row, is_shown: dice.percent(50) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_drawn_and_nothing_writes_in_read_only() {
        let mut dice = Dice::new(3);
        let plans: Vec<Plan> = (0..2_000).map(|_| Plan::draw(&mut dice, &[4, 5, 6])).collect();
        let kinds: std::collections::BTreeSet<String> = plans.iter().map(Plan::kind).collect();
        assert_eq!(kinds.len(), 8, "{kinds:?}");
        let is_read = |action: &Action| matches!(action, Action::Read(_));
        assert!(plans.iter().filter(|plan| plan.is_read_only).all(|plan| plan.actions.iter().all(is_read)));
        assert!(plans.iter().any(|plan| plan.actions.iter().any(|a| matches!(a, Action::Lock(_)))));
    }
}
