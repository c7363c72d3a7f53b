//! Promise: an answer of the result cache is the one that a replica would give at that moment, to that session.
//!
//! Each test makes an answer be kept, and sees that it is given again; then it changes something on which the answer
//! depends, and asks again. What must not be kept is asked for twice, too.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "result_cache/audiences.rs"]
mod audiences;
mod cluster;
#[path = "result_cache/requests.rs"]
mod requests;
#[path = "result_cache/writes.rs"]
mod writes;

use cluster::{Cluster, rows, value};
use tokio_postgres::{Client, NoTls};

const REPLICAS: usize = 3;

/// A cluster with a cache, and the means to see what the cache does.
struct Cached {
    cluster: Cluster,
    admin: Client,
}

impl Cached {
    async fn start() -> Self {
        let cluster = Cluster::start_as(REPLICAS, &[], &["--result-cache-mb", "16"]).await;
        let admin = cluster.try_client("onecopy").await.unwrap();
        Self { cluster, admin }
    }

    async fn client(&self) -> Client {
        self.cluster.client().await
    }

    /// A client with this role and these options at start-up.
    async fn client_as(&self, role: &str, options: &str) -> Client {
        let port = self.cluster.port;
        let settings = format!("host=127.0.0.1 port={port} user={role} dbname=postgres options='{options}'");
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// A row of SHOW CACHE.
    async fn count(&self, name: &str) -> u64 {
        let rows = rows(&self.admin, "SHOW CACHE").await;
        let row = rows.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("SHOW CACHE has no {name}: {rows:?}"))["value"].parse().unwrap()
    }

    /// Asserts the answer of a query, and that the cache gives it.
    async fn is_given(&self, client: &Client, query: &str, expected: &str) {
        let before = self.count("hits").await;
        assert_eq!(value(client, query).await, expected, "{query}");
        assert_eq!(self.count("hits").await, before + 1, "a replica has answered {query}");
    }

    /// Asserts the answer of a query, and that a replica gives it.
    async fn is_read(&self, client: &Client, query: &str, expected: &str) {
        let before = self.count("hits").await;
        assert_eq!(value(client, query).await, expected, "{query}");
        assert_eq!(self.count("hits").await, before, "the cache has answered {query}");
    }

    /// Asserts that an answer is kept: the second time the cache gives it.
    async fn is_kept(&self, client: &Client, query: &str, expected: &str) {
        self.is_read(client, query, expected).await;
        self.is_given(client, query, expected).await;
    }

    /// Asserts that the answer of a query is never kept.
    async fn is_never_kept(&self, client: &Client, query: &str) {
        let before = (self.count("hits").await, self.count("kept").await);
        for _ in 0..3 {
            client.simple_query(query).await.unwrap();
        }
        assert_eq!((self.count("hits").await, self.count("kept").await), before, "{query}");
    }
}
