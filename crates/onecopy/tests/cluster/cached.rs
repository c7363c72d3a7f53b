//! A cluster with a cache of answers, and the means to see what the cache does.

use std::time::{Duration, Instant};

use tokio_postgres::{Client, NoTls};

use super::cluster::{Cluster, rows, value};

/// An answer is kept within this time.
const WITHIN: Duration = Duration::from_mins(1);

/// The cluster, and a client of its admin database.
pub(crate) struct Cached {
    pub(crate) cluster: Cluster,
    pub(crate) admin: Client,
}

impl Cached {
    /// What a cluster does that was started with a cache.
    pub(crate) async fn of(cluster: Cluster) -> Self {
        let admin = cluster.try_client("onecopy").await.unwrap();
        Self { cluster, admin }
    }

    pub(crate) async fn client(&self) -> Client {
        self.cluster.client().await
    }

    /// A client with this role and these options at start-up.
    pub(crate) async fn client_as(&self, role: &str, options: &str) -> Client {
        let port = self.cluster.port;
        let settings = format!("host=127.0.0.1 port={port} user={role} dbname=postgres options='{options}'");
        let (client, connection) = tokio_postgres::connect(&settings, NoTls).await.unwrap();
        tokio::spawn(async move { drop(connection.await) });
        client
    }

    /// A row of SHOW CACHE.
    pub(crate) async fn count(&self, name: &str) -> u64 {
        let rows = rows(&self.admin, "SHOW CACHE").await;
        let row = rows.iter().find(|row| row["name"] == name);
        row.unwrap_or_else(|| panic!("SHOW CACHE has no {name}: {rows:?}"))["value"].parse().unwrap()
    }

    /// Asserts the answer of a query, and that the cache gives it.
    pub(crate) async fn is_given(&self, client: &Client, query: &str, expected: &str) {
        let before = self.count("hits").await;
        assert_eq!(value(client, query).await, expected, "{query}");
        assert_eq!(self.count("hits").await, before + 1, "a replica has answered {query}");
    }

    /// Asserts the answer of a query, and that a replica gives it.
    pub(crate) async fn is_read(&self, client: &Client, query: &str, expected: &str) {
        let before = self.count("hits").await;
        assert_eq!(value(client, query).await, expected, "{query}");
        assert_eq!(self.count("hits").await, before, "the cache has answered {query}");
    }

    /// Asserts that an answer is kept: after a replica has given it, the cache does. On a busy machine a replica may give it more than once,
    /// since an answer is not kept if something else was committed meanwhile.
    pub(crate) async fn is_kept(&self, client: &Client, query: &str, expected: &str) {
        self.is_read(client, query, expected).await;
        let (before, deadline) = (self.count("hits").await, Instant::now() + WITHIN);
        while self.count("hits").await == before {
            assert!(Instant::now() < deadline, "the cache never answers {query}");
            assert_eq!(value(client, query).await, expected, "{query}");
        }
    }

    /// Asserts that the answer of a query is never kept.
    pub(crate) async fn is_never_kept(&self, client: &Client, query: &str) {
        let before = (self.count("hits").await, self.count("kept").await);
        for _ in 0..3 {
            client.simple_query(query).await.unwrap();
        }
        assert_eq!((self.count("hits").await, self.count("kept").await), before, "{query}");
    }
}
