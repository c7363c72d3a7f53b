//! What is held where in a check, and how that changes while clients work.
//!
//! Under most protocols tables are split, and their parts move. Under C-JDBC each table has so many holders: with `--placement one`
//! one (RAIDb-0), with `few` two (RAIDb-2). For example, `PLACE TABLE check_live_list ON replica-2, replica-4`.

use sim::dice::Dice;

use super::{BANK, DRAWN, LISTS};
use crate::split::DEALINGS;

/// The tables that C-JDBC places.
const TABLES: [&str; 3] = [LISTS, BANK, DRAWN];

/// What moves.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) enum Moves {
    /// Nothing.
    #[default]
    Nothing,
    /// Parts of these tables, each with its column as in PLACE TABLE.
    Parts(Vec<String>),
    /// Whole tables, each at so many of the replicas.
    Tables { copies: u64, replicas: u64 },
}

impl Moves {
    /// Those of C-JDBC that `--placement` chooses by this word.
    pub(super) fn of_tables(word: &str, replicas: u64) -> Option<Self> {
        match word {
            "one" => Some(Self::Tables { copies: 1, replicas }),
            "few" => Some(Self::Tables { copies: 2, replicas }),
            _ => None,
        }
    }

    /// The commands before clients begin: no two tables have the same holders.
    pub(super) fn first(&self) -> Vec<String> {
        let Self::Tables { copies, replicas } = *self else { return Vec::new() };
        let order = |(at, table): (u64, &str)| place(table, (at..at + copies).map(|one| one % replicas + 1));
        (0..).zip(TABLES).map(order).collect()
    }

    /// The commands of one change.
    pub(super) fn draw(&self, dice: &mut Dice) -> Vec<String> {
        match self {
            Self::Nothing => Vec::new(),
            Self::Parts(_) if dice.percent(50) => vec![(*dice.pick(&DEALINGS)).to_owned()],
            Self::Parts(tables) => {
                let wish = dice.pick(tables);
                let table = wish.split_once(" BY ").map_or(wish.as_str(), |(table, _)| table);
                vec![format!("PLACE TABLE {table} EVERYWHERE"), format!("PLACE TABLE {wish}")]
            }
            Self::Tables { .. } if dice.percent(20) => {
                vec![format!("PLACE TABLE {} EVERYWHERE", TABLES[dice.index(TABLES.len())])]
            }
            Self::Tables { copies, replicas } => {
                let mut left: Vec<u64> = (1..=*replicas).collect();
                let holders: Vec<u64> =
                    (0..*copies).map(|_| left.swap_remove(dice.index(left.len()))).collect();
                vec![place(TABLES[dice.index(TABLES.len())], holders)]
            }
        }
    }
}

fn place(table: &str, holders: impl IntoIterator<Item = u64>) -> String {
    let names: Vec<String> = holders.into_iter().map(|number| format!("replica-{number}")).collect();
    format!("PLACE TABLE {table} ON {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_table_has_its_own_holders_at_first_and_others_later() {
        let moves = Moves::of_tables("few", 4).expect("a word of c-jdbc");
        assert_eq!(
            moves.first(),
            [
                "PLACE TABLE check_live_list ON replica-1, replica-2",
                "PLACE TABLE check_live_bank ON replica-2, replica-3",
                "PLACE TABLE check_live_drawn ON replica-3, replica-4",
            ]
        );
        let mut dice = Dice::new(1);
        let drawn: Vec<String> = (0..100).flat_map(|_| moves.draw(&mut dice)).collect();
        assert!(drawn.iter().any(|sql| sql.ends_with("EVERYWHERE")));
        assert!(
            drawn.iter().any(|sql| sql.starts_with("PLACE TABLE check_live_bank ON replica-4, ")),
            "{drawn:?}"
        );
        assert_eq!(Moves::of_tables("parts", 4), None);
    }
}
