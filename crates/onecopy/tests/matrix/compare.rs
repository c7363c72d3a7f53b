//! Runs a case of the matrix through Onecopy and on one plain server.

use crate::cases::{Case, Outcome};
use crate::cluster::Cluster;
use crate::cluster::plain::Plain;
use crate::cluster::programs::{psql, text};

/// What is wrong with a case: another outcome than expected, or replicas that differ after it.
pub(crate) async fn complaints(cluster: &Cluster, plain: &Plain, case: &Case) -> Vec<String> {
    let (name, outcome, script) = case;
    let script = format!(
        "\\set VERBOSITY sqlstate\nset client_min_messages = error;\n\\pset null NULL\ncreate schema c; set search_path = c, public;\n{script}\n"
    );
    let ours = text(&psql(cluster.port, &script).await);
    let complaint = match outcome {
        Outcome::Same => {
            let theirs = text(&psql(plain.port, &script).await);
            (ours != theirs).then(|| format!("--- onecopy:\n{ours}\n--- PostgreSQL:\n{theirs}"))
        }
        Outcome::Own => ours.contains("ERROR").then(|| ours.clone()),
        Outcome::Refused(code) => {
            let errors: Vec<_> = ours.lines().filter(|line| line.contains("ERROR: ")).collect();
            let only = matches!(errors.as_slice(), [error] if error.ends_with(code));
            (!only).then(|| format!("no error {code}, or another one:\n{ours}"))
        }
    };
    let mut wrong: Vec<String> = complaint.map(|text| format!("=== {name}\n{text}")).into_iter().collect();
    let verified = cluster.try_verify().await;
    wrong.extend(verified.err().map(|text| format!("=== {name}\nreplicas differ: {text}")));
    let clean = "drop schema if exists c cascade";
    let _ = tokio::join!(psql(cluster.port, clean), psql(plain.port, clean));
    wrong
}
