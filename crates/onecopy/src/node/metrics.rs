//! `/metrics` for Prometheus, `/health` and `/ready` for supervisors and load balancers, and `/nodes` for `onecopy connect`, over a
//! minimal HTTP.
//!
//! The admin database shows every number, too. Names follow Prometheus' rules: base units, and counters end in
//! `_total`. A connection answers one GET and ends. The number of connections and the time of each are limited. When
//! one exceeds the limit, the oldest is cut, so slow or idle connections block nothing.

use std::fmt::Write as _;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use cluster::parts::replica::State;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

use crate::accept::discovery::{self, Found};
use crate::config::runtime::LoginLimits;
use crate::coordinator::elasticity::Change;
use crate::coordinator::{Coordinator, Leader, Leading};
use crate::local::half_open::HalfOpen;
use crate::local::session_registry::Activity;

/// Longest request, in bytes.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// Time limit of one request.
const PATIENCE: Duration = Duration::from_secs(5);
/// Requests at a time, in all or from one address.
const LIMITS: LoginLimits = LoginLimits { total_max: 32, address_max: 32 };
/// Pause after accepting a connection failed.
const PAUSE: Duration = Duration::from_millis(100);

/// What the pages are about.
#[derive(Clone)]
pub(crate) struct Subject {
    /// What sessions of this node share.
    pub(crate) coordinator: Arc<Coordinator>,
    /// Who leads.
    pub(crate) leading: Arc<Leading>,
    /// Where clients are served.
    pub(crate) listens_on: SocketAddr,
}

/// Serves requests until the task is dropped.
pub(crate) async fn serve(of: Subject, listener: TcpListener) {
    let half_open = Arc::new(HalfOpen::default());
    loop {
        let Ok((stream, peer)) = listener.accept().await else {
            tokio::time::sleep(PAUSE).await;
            continue;
        };
        let place = half_open.enter(Some(peer.ip()), LIMITS);
        let of = of.clone();
        tokio::spawn(async move {
            // A failed request concerns only its client.
            tokio::select! {
                _ = tokio::time::timeout(PATIENCE, answer(&of, stream)) => {}
                () = place.is_cut() => {}
            }
        });
    }
}

async fn answer(of: &Subject, mut stream: TcpStream) -> std::io::Result<()> {
    let mut request = Vec::new();
    while !request.windows(4).any(|end| end == b"\r\n\r\n") {
        if request.len() >= REQUEST_BYTES_MAX || stream.read_buf(&mut request).await? == 0 {
            return Ok(());
        }
    }
    let (status, kind, body) = respond(of, &request, stream.local_addr()?.ip());
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}; charset=utf-8\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes()).await?;
    stream.write_all(body.as_bytes()).await?;
    stream.shutdown().await
}

fn respond(of: &Subject, request: &[u8], reached_at: IpAddr) -> (&'static str, &'static str, String) {
    const PLAIN: &str = "text/plain";
    let line = request.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let line = String::from_utf8_lossy(line);
    let mut words = line.split(' ');
    if words.next() != Some("GET") {
        return ("405 Method Not Allowed", PLAIN, "only GET\n".to_owned());
    }
    let path = words.next().unwrap_or_default();
    match path.split('?').next().unwrap_or_default() {
        "/metrics" => ("200 OK", "text/plain; version=0.0.4", metrics(of)),
        // The process answers, so it is alive. A node whose log has failed ends by itself.
        "/health" => ("200 OK", PLAIN, "alive\n".to_owned()),
        "/nodes" => ("200 OK", "application/json", format!("{}\n", nodes(of, reached_at))),
        "/ready" => match obstacle(&of.coordinator) {
            None => ("200 OK", PLAIN, "ready\n".to_owned()),
            Some(why) => ("503 Service Unavailable", PLAIN, format!("{why}\n")),
        },
        _ => ("404 Not Found", PLAIN, "/metrics, /health, /ready, /nodes\n".to_owned()),
    }
}

impl Subject {
    /// The load of the node, if it lets clients in and can serve them.
    pub(super) fn load(&self) -> Option<u64> {
        obstacle(&self.coordinator).is_none().then(|| discovery::load(&self.coordinator.local.sessions))
    }
}

/// This node, as a client finds it that reaches its pages at this address; none if it cannot serve.
fn nodes(of: &Subject, reached_at: IpAddr) -> serde_json::Value {
    let ip = Some(of.listens_on.ip()).filter(|ip| !ip.is_unspecified()).unwrap_or(reached_at);
    let address = SocketAddr::new(ip, of.listens_on.port());
    of.load().map(|load| Found { address, load }.to_json()).into_iter().collect()
}

/// The reason why `/ready` reports 503.
fn obstacle(coordinator: &Coordinator) -> Option<&'static str> {
    if !coordinator.local.sessions.takes_clients() {
        Some("no clients are let in: starting, stopping or drained")
    } else if coordinator.local.sessions.pauses.is_by_command() {
        Some("paused")
    } else if !coordinator.core.is_joined() {
        Some("no node leads, as far as this one knows")
    } else if !coordinator.view.has_lease() {
        Some("etcd does not confirm that this node leads")
    } else {
        replica_obstacle(coordinator)
    }
}

/// Why no replica can serve a client.
fn replica_obstacle(coordinator: &Coordinator) -> Option<&'static str> {
    let replicas = coordinator.replicas();
    let mut up = replicas.iter().filter(|status| status.state == State::Up);
    if coordinator.kind.needs_anchor() {
        let anchor = coordinator.view.anchor();
        (!up.any(|status| status.replica == anchor)).then_some("the anchor is not up")
    } else {
        up.next().is_none().then_some("no replica is up")
    }
}

/// A page of metrics in Prometheus' text format.
struct Page(String);

impl Page {
    fn family(&mut self, name: &str, kind: &str, help: &str) {
        // Writing to a String cannot fail.
        let _ = writeln!(self.0, "# HELP onecopy_{name} {help}\n# TYPE onecopy_{name} {kind}");
    }

    fn number(&mut self, name: &str, label: Option<(&str, &str)>, value: f64) {
        let label = label.map(|(key, text)| format!("{{{key}=\"{}\"}}", escape(text))).unwrap_or_default();
        let _ = writeln!(self.0, "onecopy_{name}{label} {value}");
    }

    fn single(&mut self, name: &str, kind: &str, help: &str, value: f64) {
        self.family(name, kind, help);
        self.number(name, None, value);
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn metrics(of: &Subject) -> String {
    let (coordinator, leader) = (&of.coordinator, of.leading.get());
    let mut page = Page(String::new());
    page.family("info", "gauge", "The version.");
    page.number("info", Some(("version", env!("CARGO_PKG_VERSION"))), 1.0);
    let leads = f64::from(u8::from(leader.is_some()));
    page.single("leads", "gauge", "Whether this node leads.", leads);
    replicas(coordinator, &mut page);
    if let Some(leader) = &leader {
        elastic(leader, &mut page);
    }
    statements(coordinator, &mut page);
    clients(coordinator, &mut page);
    let durable = coordinator.view.durable().0 as f64;
    page.single("log_durable_version", "gauge", "The newest durable version.", durable);
    if let Some(ends_s) = coordinator.local.runtime_config.identity().and_then(|identity| identity.ends_s()) {
        page.single(
            "tls_certificate_expiry_timestamp_seconds",
            "gauge",
            "When the certificate that clients see expires, in seconds since 1970.",
            ends_s as f64,
        );
    }
    if let Some(leader) = &leader {
        log(leader, &mut page);
    }
    page.0
}

fn log(leader: &Leader, page: &mut Page) {
    page.single(
        "log_first_version",
        "gauge",
        "The oldest version that the log has.",
        leader.log.first_retained().0 as f64,
    );
    page.single("log_bytes", "gauge", "Size of the log on disk.", leader.log.bytes() as f64);
    page.family("replica_parked", "gauge", "Whether the replica is parked.");
    for seat in leader.seats.iter() {
        let is_parked = leader.parking.state(seat.replica).is_parked();
        page.number("replica_parked", Some(("replica", &seat.name)), f64::from(u8::from(is_parked)));
    }
}

fn replicas(coordinator: &Coordinator, page: &mut Page) {
    let replicas = coordinator.replicas();
    let mut family =
        |name: &str, kind: &str, help: &str, value: &dyn Fn(&cluster::protocols::ReplicaStatus) -> f64| {
            page.family(name, kind, help);
            for status in &replicas {
                page.number(name, Some(("replica", &coordinator.seats[status.replica].name)), value(status));
            }
        };
    family("replica_up", "gauge", "Whether the replica serves.", &|r| {
        f64::from(u8::from(r.state == State::Up))
    });
    family("replica_quarantined", "gauge", "Whether the replica must be rebuilt.", &|r| {
        f64::from(u8::from(r.state == State::Quarantined))
    });
    family("replica_applied_version", "gauge", "The version up to which the replica has everything.", &|r| {
        r.applied.0 as f64
    });
    family("replica_lag_versions", "gauge", "How many versions the replica lacks.", &|r| r.lag as f64);
    family("replica_reads_total", "counter", "Reads that the replica has served.", &|r| r.reads as f64);
    family("replica_writes_total", "counter", "Update transactions that executed at the replica.", &|r| {
        r.writes as f64
    });
    family(
        "replica_load_seconds",
        "gauge",
        "Expected wait at the replica: outstanding statements, and waits for a connection.",
        &|r| r.expected_wait_us as f64 / 1e6,
    );
}

fn elastic(leader: &Leader, page: &mut Page) {
    let elasticity = &leader.elasticity;
    page.family(
        "replica_busy_ratio",
        "gauge",
        "Busy share of the replica, if replicas come and go with the load.",
    );
    for (replica, sample) in elasticity.loads() {
        let label = ("replica", leader.seats[replica].name.as_str());
        page.number("replica_busy_ratio", Some(label), f64::from(sample.busy_permille) / 1e3);
    }
    page.family("elastic_changes_total", "counter", "Decisions to change the number of replicas.");
    for change in Change::ALL {
        let label = ("decision", change.word());
        page.number("elastic_changes_total", Some(label), elasticity.changes(change) as f64);
    }
    let failures = elasticity.failures() as f64;
    page.single(
        "elastic_failures_total",
        "counter",
        "Such decisions that could not be carried out.",
        failures,
    );
    let usage = elasticity.since_start();
    let seconds = Duration::from_millis(usage.replica_ms).as_secs_f64();
    page.single("replica_seconds_total", "counter", "The sum of the times for which servers ran.", seconds);
    let cost = elasticity.price_per_hour().unwrap_or_default() * usage.replica_hours();
    page.single("cost_total", "counter", "The cost of the servers, by elastic.price_per_hour.", cost);
}

fn cache(coordinator: &Coordinator, page: &mut Page) {
    let cache = &coordinator.local.result_cache;
    let (entries, bytes, _) = cache.in_memory();
    page.single("cache_answers", "gauge", "Answers in the result cache.", entries as f64);
    page.single("cache_bytes", "gauge", "Memory that they take.", bytes as f64);
    page.family("cache_total", "counter", "What became of reads and of their answers, as in SHOW CACHE.");
    for (event, count) in cache.counts.shown() {
        page.number("cache_total", Some(("event", event)), count as f64);
    }
}

fn statements(coordinator: &Coordinator, page: &mut Page) {
    let load = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed) as f64;
    let stats = &coordinator.local.stats;
    page.single(
        "reads_spread_total",
        "counter",
        "Reads that any fresh replica could serve.",
        load(&stats.reads),
    );
    page.single(
        "reads_placed_total",
        "counter",
        "Those of them that were placed without a question to the scheduler, or to the leader.",
        load(&stats.reads_placed),
    );
    page.family("anchor_total", "counter", "Transactions that ran at the anchor, by reason.");
    for (because, counter) in [
        ("update", &stats.anchor_update),
        ("unknown", &stats.anchor_unknown),
        ("interactive", &stats.anchor_interactive),
        ("catalogue", &stats.anchor_catalogue),
        ("waits", &stats.anchor_waits),
        ("chosen", &stats.anchor_chosen),
    ] {
        page.number("anchor_total", Some(("because", because)), load(counter));
    }
    cache(coordinator, page);
    page.single("records_total", "counter", "Update transactions in the log.", load(&stats.records));
    page.single(
        "retried_total",
        "counter",
        "Transactions that Onecopy ran again, transparently.",
        load(&stats.retried),
    );
    page.single("aborted_total", "counter", "Errors 40001 that Onecopy gave.", load(&stats.aborted));
}

fn clients(coordinator: &Coordinator, page: &mut Page) {
    let entries = coordinator.local.sessions.entries();
    page.family("sessions", "gauge", "Sessions, by what they do.");
    for activity in Activity::ALL {
        let count = entries.iter().filter(|entry| entry.activity() == activity).count();
        page.number("sessions", Some(("doing", activity.word())), count as f64);
    }
    let servers: usize = entries.iter().map(|entry| entry.servers().len()).sum();
    page.single("server_connections", "gauge", "Connections of sessions to servers.", servers as f64);
    let open = coordinator.local.memory_budget.show().len();
    page.single("update_transactions_open", "gauge", "Open update transactions.", open as f64);
    let (logins, logins_cut) = coordinator.local.half_open.counts();
    page.single("logins", "gauge", "Connections that have not logged in yet.", logins as f64);
    let help = "Connections closed before they logged in, because there were too many.";
    page.single("logins_cut_total", "counter", help, logins_cut as f64);
    page.single(
        "paused",
        "gauge",
        "Whether PAUSE is in force.",
        f64::from(u8::from(coordinator.local.sessions.pauses.is_by_command())),
    );
    let totals = coordinator.local.sessions.totals();
    for (name, help, value) in [
        ("client_transactions_total", "Transactions of clients that have ended.", totals.transactions as f64),
        ("client_queries_total", "Queries, and batches of the extended protocol.", totals.queries as f64),
        ("client_received_bytes_total", "Bytes from clients.", totals.received_bytes as f64),
        ("client_sent_bytes_total", "Bytes to clients.", totals.sent_bytes as f64),
        ("client_transaction_seconds_total", "Time in transactions.", totals.transaction_us as f64 / 1e6),
        ("client_query_seconds_total", "Time in queries.", totals.query_us as f64 / 1e6),
        ("client_wait_seconds_total", "Time of waiting for a replica.", totals.wait_us as f64 / 1e6),
        (
            "server_connections_opened_total",
            "Connections to servers that were opened.",
            totals.connections as f64,
        ),
    ] {
        page.single(name, "counter", help, value);
    }
}
