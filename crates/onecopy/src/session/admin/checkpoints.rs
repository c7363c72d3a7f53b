//! CREATE CHECKPOINT, DROP CHECKPOINT, REBUILD REPLICA .. FROM CHECKPOINT and SHOW CHECKPOINTS.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use tokio::task::JoinHandle;
use wire::sqlstate;

use super::asker::Asker;
use super::membership::{awake, rebuilt_row, unquoted, watched};
use crate::calendar;
use crate::coordinator::Leader;
use crate::coordinator::checkpoints::Checkpoint;
use crate::error::Refusal;
use crate::membership::checkpoint::{self, CheckpointError, NAME_BYTES_MAX};

/// The columns of a list of checkpoints.
pub(super) const COLUMNS: &str = "name version taken replica megabytes records_after";

/// A command about checkpoints.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// Make one of this name.
    Create(String),
    /// Remove one.
    Drop(String),
    /// Put a replica's data back to one.
    Restore { replica: String, checkpoint: String },
}

/// Reads the order in a statement; `None` if it is no such order. Names keep their case.
pub(super) fn parse(sql: &[u8]) -> Result<Option<Order>, Refusal> {
    let text = String::from_utf8_lossy(sql);
    let words: Vec<&str> = text.trim_end_matches([';', ' ', '\n', '\t']).split_whitespace().collect();
    let upper: Vec<String> = words.iter().map(|word| word.to_ascii_uppercase()).collect();
    let upper: Vec<&str> = upper.iter().map(String::as_str).collect();
    let order = match (upper.as_slice(), words.as_slice()) {
        (["CREATE", "CHECKPOINT", _], [.., name]) => Order::Create(checkpoint_name(name)?),
        (["DROP", "CHECKPOINT", _], [.., name]) => Order::Drop(checkpoint_name(name)?),
        (["REBUILD", "REPLICA", _, "FROM", "CHECKPOINT", _], [_, _, replica, _, _, name]) => {
            Order::Restore { replica: unquoted(replica, '"')?, checkpoint: checkpoint_name(name)? }
        }
        _ => return Ok(None),
    };
    Ok(Some(order))
}

/// A name, which is also that of a folder.
fn checkpoint_name(word: &str) -> Result<String, Refusal> {
    let name = unquoted(word, '"')?;
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
    if name.len() <= NAME_BYTES_MAX && name.chars().all(fits) {
        return Ok(name);
    }
    Err(Refusal::new(
        sqlstate::SYNTAX_ERROR,
        format!("\"{name}\" is no name for a checkpoint"),
        format!("A name has up to {NAME_BYTES_MAX} letters without accents, digits, - and _."),
    ))
}

impl Order {
    pub(super) fn tag(&self) -> &'static str {
        match self {
            Self::Create(_) => "CREATE CHECKPOINT",
            Self::Drop(_) => "DROP CHECKPOINT",
            Self::Restore { .. } => "REBUILD",
        }
    }

    pub(super) fn columns(&self) -> &'static str {
        match self {
            Self::Create(_) => COLUMNS,
            Self::Drop(_) => "",
            Self::Restore { .. } => "replica donor megabytes version",
        }
    }
}

/// Carries an order out. It goes on when its client goes away.
pub(super) async fn run(
    leader: &Arc<Leader>,
    order: &Order,
    asker: &mut Asker<'_>,
) -> Result<Vec<Vec<String>>, Refusal> {
    let node = Arc::clone(leader);
    match order.clone() {
        Order::Create(name) => {
            let refused =
                |error: CheckpointError| error.refusal(&format!("checkpoint \"{name}\" cannot be made"));
            let task = tokio::spawn(checkpoint::create(node, name.clone()));
            let made = ended(task).await?.map_err(refused)?;
            Ok(vec![row(leader, &made)])
        }
        Order::Drop(name) => {
            let refused =
                |error: CheckpointError| error.refusal(&format!("checkpoint \"{name}\" cannot be dropped"));
            let task = tokio::spawn(checkpoint::remove(node, name.clone()));
            ended(task).await?.map_err(refused)?;
            Ok(Vec::new())
        }
        Order::Restore { replica: name, checkpoint } => {
            let replica = awake(leader, &name, "rebuilt")?;
            let refused =
                |error: CheckpointError| error.refusal(&format!("replica \"{name}\" cannot be rebuilt"));
            let task = tokio::spawn(checkpoint::restore(node, replica, checkpoint));
            let rebuilt = watched(leader, replica, task, asker).await?;
            Ok(rebuilt_row(&name, rebuilt.map_err(refused)?))
        }
    }
}

async fn ended<T>(task: JoinHandle<T>) -> Result<T, Refusal> {
    task.await.map_err(|error| Refusal::plain(sqlstate::INTERNAL_ERROR, format!("it broke off: {error}")))
}

/// The rows of SHOW CHECKPOINTS, the oldest first.
pub(super) fn rows(leader: &Leader) -> Vec<Vec<String>> {
    leader.checkpoints.all().iter().map(|checkpoint| row(leader, checkpoint)).collect()
}

fn row(leader: &Leader, checkpoint: &Checkpoint) -> Vec<String> {
    let Checkpoint { name, version, copy } = checkpoint;
    let taken = SystemTime::UNIX_EPOCH + Duration::from_secs(copy.taken_s);
    vec![
        name.clone(),
        version.to_string(),
        calendar::shown(taken.into()),
        copy.replica.clone(),
        (copy.bytes >> 20).to_string(),
        checkpoint::records_after(leader, *version).to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_checkpoint_is_one_of_a_folder() {
        let parsed = |sql: &str| parse(sql.as_bytes());
        assert_eq!(parsed("create checkpoint Nightly-1 ;\n"), Ok(Some(Order::Create("Nightly-1".into()))));
        assert_eq!(parsed("DROP CHECKPOINT \"a_b\""), Ok(Some(Order::Drop("a_b".into()))));
        let restore = Order::Restore { replica: "replica-2".into(), checkpoint: "a".into() };
        assert_eq!(parsed("REBUILD replica replica-2 from Checkpoint a;"), Ok(Some(restore)));
        for other in ["CHECKPOINT", "CREATE CHECKPOINT", "DROP CHECKPOINT a b", "REBUILD REPLICA a"] {
            assert_eq!(parsed(other), Ok(None), "{other}");
        }
        let long = "a".repeat(NAME_BYTES_MAX + 1);
        for name in ["..", "a/b", "a.unfinished", "\"a", "é", &long] {
            assert!(parse(format!("CREATE CHECKPOINT {name}").as_bytes()).is_err(), "{name}");
        }
    }
}
