//! The end of an adoption: the servers are compared once more, before the first client.

use super::NodeError;
use crate::backend::Served;
use crate::config::Replica;
use crate::coordinator::Leader;
use crate::membership::adoption;
use crate::membership::cluster_file::Membership;
use crate::membership::verify;
use crate::terminal::Progress;

/// The last look before the first client: everything is the same everywhere, or nothing is left of us.
pub(super) async fn adopt(
    leader: &Leader,
    membership: &Membership,
    served: &Served,
    replicas: &[Replica],
    progress: &Progress,
) -> Result<(), NodeError> {
    let step = progress.step("comparing the servers once more");
    let found = verify::run(leader).await;
    let error = match found {
        Ok(rows) => {
            let names: Vec<String> =
                rows.iter().filter(|row| row[2] != "identical").map(|row| row[0].clone()).collect();
            if names.is_empty() {
                step.done(format_args!(
                    "{} servers are adopted, {} things compared",
                    replicas.len(),
                    rows.len()
                ));
                return Ok(adoption::complete(&leader.term.register, membership).await?);
            }
            NodeError::WrittenMeanwhile { names }
        }
        Err(refusal) => NodeError::NotCompared(Box::new(refusal)),
    };
    adoption::undo(served, replicas).await;
    Err(error)
}
