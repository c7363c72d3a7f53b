//! Asks a real etcd, by its JSON gateway: HTTP requests whose bodies are JSON.
//!
//! The gateway needs no generated code and no second HTTP library. Its rules: numbers are strings, fields that are zero, false or
//! empty are absent, keys and values are base64. A request for `lead` is `{"key":"bGVhZA=="}`.
//!
//! The client knows several members and asks one of them until that one fails; then the next call asks the next one. Each
//! call has a deadline. Connections are kept.
//!
//! Invariant: an answer that could mean "perhaps" is [`StoreError::Unreachable`], never a refusal. So are etcd's own time-outs: "etcdserver:
//! request timed out" says nothing about whether the request was carried out.
//!
//! Not here: retries. The caller knows what it may send again.

mod json;

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::{Value, json};
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::store::{Revision, SpaceUsed, Store, StoreError, Txn, TxnAnswer};

/// How long a connection may take to be made.
const CONNECT_DEADLINE: Duration = Duration::from_millis(500);
/// How long calls may take that write nothing.
const CALL_DEADLINE: Duration = Duration::from_secs(3);
/// The largest answer that is read.
const ANSWER_LIMIT_BYTES: u64 = 128 << 20;
/// The quota of an etcd that does not tell its own: the default since etcd 3.0.
const DEFAULT_QUOTA_BYTES: u64 = 2 << 30;

/// The code of gRPC for "carried out neither then nor later" in these cases.
const INVALID_ARGUMENT: i64 = 3;
const PERMISSION_DENIED: i64 = 7;
const RESOURCE_EXHAUSTED: i64 = 8;
const OUT_OF_RANGE: i64 = 11;
const UNIMPLEMENTED: i64 = 12;
const UNAUTHENTICATED: i64 = 16;

/// The files for a connection over TLS.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TlsFiles {
    /// The authorities that are trusted; those of the system if absent.
    pub authorities: Option<PathBuf>,
    /// The certificate that proves who we are, with its key.
    pub identity: Option<ClientIdentity>,
}

/// The certificate of a client.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientIdentity {
    /// The file with the chain.
    pub certificate: PathBuf,
    /// The file with the private key.
    pub key: PathBuf,
}

/// A client of the members of an etcd.
pub struct Gateway {
    agent: Agent,
    urls: Vec<String>,
    /// Which of them is asked.
    current: AtomicUsize,
}

/// What a member says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberStatus {
    /// The address that was asked.
    pub url: String,
    /// Its release, such as 3.7.3.
    pub version: String,
}

impl Gateway {
    /// A client for these addresses, such as `http://127.0.0.1:2379`.
    pub fn new(urls: &[String], tls: &TlsFiles) -> Result<Self, TlsError> {
        let agent = Agent::config_builder()
            .tls_config(tls_config(tls)?)
            .http_status_as_error(false)
            .timeout_connect(Some(CONNECT_DEADLINE))
            .max_redirects(0)
            .proxy(None)
            .build()
            .into();
        let urls = urls.iter().map(|url| url.trim_end_matches('/').to_owned()).collect();
        Ok(Self { agent, urls, current: AtomicUsize::new(0) })
    }

    /// Asks each member for its release. A member that does not answer is an error in its place.
    pub fn versions(&self) -> Vec<Result<MemberStatus, StoreError>> {
        let version_at = |url: &String| {
            let answer = self.agent.get(format!("{url}/version")).config();
            let answer = answer.timeout_global(Some(CALL_DEADLINE)).build().call();
            let answer = read(url, answer)?;
            let version = answer.get("etcdserver").and_then(Value::as_str);
            let version = version.ok_or_else(|| damaged(url, "no release is named"))?.to_owned();
            Ok(MemberStatus { url: url.clone(), version })
        };
        self.urls.iter().map(version_at).collect()
    }

    /// How many members etcd has, started or not.
    pub fn members(&self) -> Result<usize, StoreError> {
        let (url, answer) = self.post("/v3/cluster/member/list", &json!({}), CALL_DEADLINE)?;
        let members = answer.get("members").and_then(Value::as_array);
        members.map(Vec::len).ok_or_else(|| damaged(&url, "no members are listed"))
    }

    /// Raises the alarm for a lack of space, or lifts it.
    pub fn set_no_space(&self, has_no_space: bool) -> Result<(), StoreError> {
        let (_, answer) = self.post("/v3/cluster/member/list", &json!({}), CALL_DEADLINE)?;
        let members = answer.get("members").and_then(Value::as_array);
        for member in members.into_iter().flatten() {
            let action = if has_no_space { "ACTIVATE" } else { "DEACTIVATE" };
            let body = json!({ "action": action, "alarm": "NOSPACE", "memberID": member.get("ID") });
            self.post("/v3/maintenance/alarm", &body, CALL_DEADLINE)?;
        }
        Ok(())
    }

    /// Asks the current member; the next call asks another one if this one does not answer.
    fn post(&self, path: &str, body: &Value, deadline: Duration) -> Result<(String, Value), StoreError> {
        let at = self.current.load(Ordering::Relaxed);
        let Some(url) = self.urls.get(at % self.urls.len().max(1)) else {
            return Err(StoreError::Unreachable { url: "etcd".into(), reason: "no address is known".into() });
        };
        let body = body.to_string();
        let request = self.agent.post(format!("{url}{path}")).header("content-type", "application/json");
        let answer = request.config().timeout_global(Some(deadline)).build().send(body.as_bytes());
        let answer = read(url, answer);
        if answer.as_ref().is_err_and(StoreError::is_ambiguous) {
            // Unless another thread has gone on already.
            let next = (at + 1) % self.urls.len();
            let _ = self.current.compare_exchange(at, next, Ordering::Relaxed, Ordering::Relaxed);
        }
        Ok((url.clone(), answer?))
    }
}

impl Store for Gateway {
    fn txn(&self, txn: &Txn, deadline: Duration) -> Result<TxnAnswer, StoreError> {
        let (url, answer) = self.post("/v3/kv/txn", &json::txn(txn), deadline)?;
        json::txn_answer(&answer).map_err(|reason| damaged(&url, &reason))
    }

    fn compact(&self, revision: Revision) -> Result<(), StoreError> {
        let body = json!({ "revision": revision.to_string() });
        match self.post("/v3/kv/compaction", &body, CALL_DEADLINE) {
            // It was done before.
            Err(StoreError::Refused { reason, .. }) if reason.contains("compacted") => Ok(()),
            other => other.map(|_| ()),
        }
    }

    fn space(&self) -> Result<SpaceUsed, StoreError> {
        let (url, status) = self.post("/v3/maintenance/status", &json!({}), CALL_DEADLINE)?;
        let (_, alarms) = self.post("/v3/maintenance/alarm", &json!({ "action": "GET" }), CALL_DEADLINE)?;
        let number = |name| json::number(&status, name).map_err(|reason| damaged(&url, &reason));
        let quota = number("dbSizeQuota")?;
        let is_no_space = |alarm: &Value| alarm.get("alarm").and_then(Value::as_str) == Some("NOSPACE");
        let alarms = alarms.get("alarms").and_then(Value::as_array);
        Ok(SpaceUsed {
            used_bytes: number("dbSizeInUse")?.unsigned_abs(),
            quota_bytes: if quota > 0 { quota.unsigned_abs() } else { DEFAULT_QUOTA_BYTES },
            has_no_space: alarms.is_some_and(|alarms| alarms.iter().any(is_no_space)),
        })
    }
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("urls", &self.urls).finish_non_exhaustive()
    }
}

fn damaged(url: &str, reason: &str) -> StoreError {
    StoreError::Damaged { url: url.to_owned(), reason: reason.to_owned() }
}

/// The body of an answer, or the error that it is.
fn read(
    url: &str,
    answer: Result<ureq::http::Response<ureq::Body>, ureq::Error>,
) -> Result<Value, StoreError> {
    let unreachable = |reason: String| StoreError::Unreachable { url: url.to_owned(), reason };
    let mut answer = answer.map_err(|error| unreachable(error.to_string()))?;
    let status = answer.status();
    let body = answer.body_mut().with_config().limit(ANSWER_LIMIT_BYTES).read_to_vec();
    let body = body.map_err(|error| unreachable(error.to_string()))?;
    let parsed = serde_json::from_slice::<Value>(&body);
    if status.is_success() {
        return parsed.map_err(|error| damaged(url, &format!("no JSON: {error}")));
    }
    let answer = parsed.unwrap_or_default();
    let reason = answer.get("message").or_else(|| answer.get("error")).and_then(Value::as_str);
    let reason = reason.map_or_else(|| format!("status {status}"), str::to_owned);
    let refused = |reason: String| StoreError::Refused { url: url.to_owned(), reason };
    Err(match answer.get("code").and_then(Value::as_i64) {
        Some(RESOURCE_EXHAUSTED) if reason.contains("space exceeded") => StoreError::NoSpace,
        Some(INVALID_ARGUMENT | PERMISSION_DENIED | OUT_OF_RANGE | UNIMPLEMENTED | UNAUTHENTICATED) => {
            refused(reason)
        }
        Some(_) => unreachable(reason),
        None => damaged(url, &reason),
    })
}

/// Why the files for TLS cannot be used.
#[derive(Debug)]
pub enum TlsError {
    /// A file cannot be read.
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The answer of the system.
        source: std::io::Error,
    },
    /// A file holds something else.
    Content {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        expected: &'static str,
    },
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, source } => write!(f, "cannot read {}: {source}", path.display()),
            Self::Content { path, expected } => {
                write!(f, "{} holds no {expected} in PEM form", path.display())
            }
        }
    }
}

impl std::error::Error for TlsError {}

fn tls_config(files: &TlsFiles) -> Result<TlsConfig, TlsError> {
    let roots = match &files.authorities {
        None => RootCerts::PlatformVerifier,
        Some(path) => RootCerts::new_with_certs(&certificates(path)?),
    };
    let identity = match &files.identity {
        None => None,
        Some(identity) => {
            let key = PrivateKey::from_pem(&contents(&identity.key)?);
            let key =
                key.map_err(|_| TlsError::Content { path: identity.key.clone(), expected: "private key" })?;
            Some(ClientCert::new_with_certs(&certificates(&identity.certificate)?, key))
        }
    };
    Ok(TlsConfig::builder().root_certs(roots).client_cert(identity).build())
}

fn contents(path: &Path) -> Result<Vec<u8>, TlsError> {
    std::fs::read(path).map_err(|source| TlsError::Unreadable { path: path.to_owned(), source })
}

fn certificates(path: &Path) -> Result<Vec<Certificate<'static>>, TlsError> {
    let found: Vec<_> = parse_pem(&contents(path)?)
        .filter_map(|item| match item {
            Ok(PemItem::Certificate(certificate)) => Some(certificate),
            _ => None,
        })
        .collect();
    if found.is_empty() {
        return Err(TlsError::Content { path: path.to_owned(), expected: "certificate" });
    }
    Ok(found)
}
