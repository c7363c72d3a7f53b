//! Rows of other nodes' transactions that are too many for a record: the leader keeps them where its log is.
//!
//! A session of another node sends chunk after chunk, each when the one before is kept. For example, a COPY of 20 MB at a node that
//! follows becomes five chunks and a record at the leader. The queue of a crew keeps its chunks apart from its events, since a disk may be
//! slow.
//!
//! Invariant: rows are complete before the record is appended, since the session sends its Finish after the answer to
//! [`SpillPart::Finish`]. Rows of a transaction without a record are deleted: with the writer, or when the session removes them.

use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;

use cluster::ids::{CrewId, Identity};
use commitlog::{SpillStore, SpillWriter};
use tokio::sync::mpsc;

use super::crews::Crews;
use super::node_link::{Answer, SpillPart, SpillProblem, ToNode};

/// Parts that can wait. A session waits for the answer to each.
const PARTS_MAX: usize = 1 << 14;

/// A part that waits to be kept.
#[derive(Debug)]
pub(super) struct PartOf {
    pub(super) number: u64,
    pub(super) identity: Identity,
    pub(super) part: SpillPart,
}

/// Starts to keep the rows of a crew, until the queue is dropped.
pub(super) fn begin(store: Arc<dyn SpillStore>, crews: Arc<Crews>, crew: CrewId) -> mpsc::Sender<PartOf> {
    let (sender, mut queue) = mpsc::channel(PARTS_MAX);
    tokio::spawn(async move {
        let mut writers = BTreeMap::new();
        while let Some(PartOf { number, identity, part }) = queue.recv().await {
            let kept = keep(store.as_ref(), &mut writers, identity, part).await;
            if let Err(error) = &kept {
                tracing::warn!(%identity, %error, "the rows of a transaction of another node are not kept");
            }
            let answer = Answer::Spilled(kept.err().map(|error| SpillProblem::of(&error)));
            crews.tell(crew, ToNode::Answer { number, answer });
        }
    });
    sender
}

async fn keep(
    store: &dyn SpillStore,
    writers: &mut BTreeMap<Identity, Box<dyn SpillWriter>>,
    identity: Identity,
    part: SpillPart,
) -> io::Result<()> {
    match part {
        SpillPart::Chunk(chunk) => {
            let mut writer = match writers.remove(&identity) {
                Some(writer) => writer,
                None => store.create(identity).await?,
            };
            // After an error the writer is dropped, and its rows are deleted.
            writer.append(chunk).await?;
            writers.insert(identity, writer);
            Ok(())
        }
        SpillPart::Finish => match writers.remove(&identity) {
            Some(writer) => writer.finish().await,
            None => Err(io::ErrorKind::NotFound.into()),
        },
        SpillPart::Remove => match writers.remove(&identity) {
            Some(_) => Ok(()),
            None => store.remove(identity).await,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_is_the_same_at_the_other_node() {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::PermissionDenied] {
            let told = SpillProblem::of(&io::Error::new(kind, "why")).error();
            assert_eq!(told.kind() == io::ErrorKind::StorageFull, kind == io::ErrorKind::StorageFull);
            assert!(told.to_string().contains("why"), "{told}");
        }
    }
}
