//! Promise: an answer of the result cache is the one that a replica would give at that moment, to that session.
//!
//! Each test makes an answer be kept, and sees that it is given again; then it changes something on which the answer
//! depends, and asks again. What must not be kept is asked for twice, too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "result_cache/audiences.rs"]
mod audiences;
#[path = "cluster/cached.rs"]
mod cached;
mod cluster;
#[path = "result_cache/requests.rs"]
mod requests;
#[path = "result_cache/writes.rs"]
mod writes;

use cached::Cached;
use cluster::Cluster;

const REPLICAS: usize = 3;

async fn started() -> Cached {
    Cached::of(Cluster::start_as(REPLICAS, &[], &["--result-cache-mb", "16"]).await).await
}
