//! What `onecopy serve` is told: by its file, the environment and flags, in rising rank.
//!
//! One table ([`settings::SETTINGS`]) says for every setting its name, its kind, its default and what it is for. The file's keys,
//! the variables, the flags, their checks and docs/reference/configuration.md are all made from it. Whatever is wrong is
//! collected, so that one run names every mistake, with its place; a configuration with a mistake is not used at all.

pub(crate) mod hba;
mod mistake;
mod read;
#[cfg(test)]
mod reference;
pub(crate) mod runtime;
pub(crate) mod settings;
mod units;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pgserver::MAX_REPLICAS;

use crate::backend::Address;
use crate::security::scram::Secret;
use crate::security::tls::{Identity, Outward, Trust};
use hba::{Access, Rule};
pub(crate) use mistake::Mistake;
use read::{Raw, RawReplica, Sources};
pub(crate) use settings::Given;
use settings::{SETTINGS, Setting, Value};

/// A configuration without mistakes. A setting is asked for by its name, and has the type that the table says.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    values: Vec<(&'static Setting, Value, String)>,
    /// The servers; the first is the home of updates.
    pub(crate) replicas: Vec<Replica>,
}

/// One server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    /// The name that people use.
    pub(crate) name: String,
    /// Where it listens.
    pub(crate) address: Address,
}

impl Config {
    /// Reads everything. All mistakes are returned, not only the first.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
        flags: &Given,
    ) -> Result<Self, Vec<Mistake>> {
        let mut mistakes = Vec::new();
        let text = match file.map(|path| (path, std::fs::read_to_string(path))) {
            None => String::new(),
            Some((_, Ok(text))) => text,
            Some((path, Err(error))) => {
                return Err(vec![Mistake::whole_file(path, format!("cannot be read: {error}"))]);
            }
        };
        let sources = read::collect(file, &text, environment, flags, &mut mistakes);
        let config = Self::check(&sources, &mut mistakes);
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }

    fn check(sources: &Sources, mistakes: &mut Vec<Mistake>) -> Self {
        let mut values = Vec::new();
        for setting in SETTINGS {
            let default = || setting.parse_default();
            let (value, text) = match sources.get(setting.name) {
                None => (default(), setting.default.to_owned()),
                Some(raw) => (
                    parse(setting, raw, mistakes).unwrap_or_else(default),
                    raw.iter().map(|item| item.text.as_str()).collect::<Vec<_>>().join(", "),
                ),
            };
            values.push((setting, value, text));
        }
        let mut config = Self { values, replicas: Vec::new() };
        for raw in &sources.replicas {
            if let Some(replica) = config.replica(raw, mistakes) {
                config.replicas.push(replica);
            }
        }
        config.check_trust(sources, mistakes);
        if sources.replicas.is_empty() {
            mistakes.push(sources.missing_replicas());
        }
        if sources.replicas.len() > usize::from(MAX_REPLICAS) {
            let raw = &sources.replicas[usize::from(MAX_REPLICAS)];
            mistakes.push(
                raw.url_or_table()
                    .mistake(format!("more than {MAX_REPLICAS} replicas"), "one node serves no more"),
            );
        }
        config
    }

    fn replica(&self, raw: &RawReplica, mistakes: &mut Vec<Mistake>) -> Option<Replica> {
        let Some(url) = &raw.url else {
            mistakes
                .push(raw.place.mistake("a replica without a url", "add url = \"postgresql://host:5432\""));
            return None;
        };
        let address = match address_of(&url.text, self.text("database"), self.text("superuser")) {
            Ok(address) => address,
            Err((what, help)) => {
                mistakes.push(url.mistake(what, help));
                return None;
            }
        };
        if let Some(twin) = self.replicas.iter().find(|other| other.address == address) {
            mistakes.push(url.mistake(format!("the same server as {}", twin.name), "name each server once"));
        }
        let name = raw
            .name
            .as_ref()
            .map_or_else(|| format!("replica-{}", self.replicas.len() + 1), |name| name.text.clone());
        let is_word = !name.is_empty()
            && name.len() <= NAME_BYTES_MAX
            && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'));
        if let Some(place) = raw.name.as_ref().filter(|_| !is_word) {
            mistakes.push(place.mistake(
                format!("\"{name}\" is not a name for a replica"),
                format!("use up to {NAME_BYTES_MAX} letters, digits, dots and dashes"),
            ));
        }
        if self.replicas.iter().any(|other| other.name == name) {
            let place = raw.name.as_ref().unwrap_or(url);
            mistakes.push(place.mistake(format!("two replicas are named {name}"), "give each its own name"));
        }
        Some(Replica { name, address })
    }

    fn value(&self, name: &str) -> &Value {
        let found = self.values.iter().find(|(setting, ..)| setting.name == name);
        &found.expect("only settings of the table are asked for").1
    }

    /// A setting that is a text, or a word.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Text(text) => text,
            other => unreachable!("{name} is no text: {other:?}"),
        }
    }

    /// A setting that is a folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(self.text(name))
    }

    /// A setting that is a length of time.
    pub(crate) fn duration(&self, name: &str) -> Duration {
        match self.value(name) {
            Value::Duration(duration) => *duration,
            other => unreachable!("{name} is no length of time: {other:?}"),
        }
    }

    /// A setting that is a number, or a size in bytes.
    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Number(number) => *number,
            other => unreachable!("{name} is no number: {other:?}"),
        }
    }

    /// A setting that is a list of addresses.
    pub(crate) fn addresses(&self, name: &str) -> &[SocketAddr] {
        match self.value(name) {
            Value::Addresses(addresses) => addresses,
            other => unreachable!("{name} is no list of addresses: {other:?}"),
        }
    }

    /// Who may come in.
    pub(crate) fn access(&self) -> Access {
        let roles = |name: &str| match self.value(name) {
            Value::Roles(roles) => roles.clone(),
            other => unreachable!("{name} is no list of roles: {other:?}"),
        };
        let Value::Rules(rules) = self.value("hba") else { unreachable!("hba is a list of rules") };
        Access {
            rules: rules.clone(),
            admins: roles("admin_users"),
            readers: roles("stats_users"),
            is_open: false,
        }
    }

    /// What opens the servers to the superuser.
    pub(crate) fn secret(&self) -> Result<Secret, String> {
        let path = self.path("superuser_password_file");
        if path.as_os_str().is_empty() {
            let password = std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty());
            return Ok(password.map_or(Secret::None, Secret::Password));
        }
        must_be_private(&path)?;
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
        Ok(Secret::Password(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// Whether the files that it names can be used, so that this is known before anything is touched.
    pub(crate) fn check_files(&self) -> Result<(), String> {
        let wrong: Vec<String> = [self.secret().err(), self.identity().err()].into_iter().flatten().collect();
        if wrong.is_empty() { Ok(()) } else { Err(wrong.join("\n")) }
    }

    /// The certificate that clients see.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, String> {
        let (certificate, key) = (self.path("tls_certificate_file"), self.path("tls_key_file"));
        match (certificate.as_os_str().is_empty(), key.as_os_str().is_empty()) {
            (true, true) => return Ok(None),
            (false, false) => {}
            _ => return Err("tls_certificate_file and tls_key_file go together: name both".to_owned()),
        }
        must_be_private(&key)?;
        Identity::load(&certificate, &key).map(Some)
    }

    /// Whoever can reach us from another machine has to prove who he is, unless it is said which networks are trusted.
    fn check_trust(&self, sources: &Sources, mistakes: &mut Vec<Mistake>) {
        let Value::Rules(rules) = self.value("hba") else { unreachable!("hba is a list of rules") };
        let is_reachable = self.addresses("listen").iter().any(|address| !address.ip().is_loopback());
        if let Some(raw) = sources.get("hba").and_then(<[Raw]>::first)
            && is_reachable
            && rules.iter().any(Rule::trusts_anybody)
        {
            let help = "name the networks that are trusted, or listen on 127.0.0.1 only";
            mistakes.push(raw.mistake("hba: everybody who can reach it is let in without a password", help));
        }
    }

    /// Every setting: its name, value and default as text, and whether it can change while the node runs.
    pub(crate) fn shown(&self) -> Vec<[String; 4]> {
        let row = |(setting, _, text): &(&Setting, Value, String)| {
            let changeable = if setting.can_reload { "yes" } else { "no" };
            [setting.name.to_owned(), text.clone(), setting.default.to_owned(), changeable.to_owned()]
        };
        self.values.iter().map(row).collect()
    }

    /// Which settings differ from another configuration's although they only count at the start.
    pub(crate) fn fixed_that_differ(&self, other: &Self) -> Vec<&'static str> {
        let pairs = self.values.iter().zip(&other.values);
        let differ =
            pairs.filter(|((setting, mine, _), (_, theirs, _))| !setting.can_reload && mine != theirs);
        let mut names: Vec<&str> = differ.map(|((setting, ..), _)| setting.name).collect();
        if self.replicas != other.replicas {
            names.push("replica");
        }
        names
    }
}

/// A secret that others can read is none. As PostgreSQL does, the group may read a file of root's.
fn must_be_private(path: &Path) -> Result<(), String> {
    let shown = path.display();
    let about = std::fs::metadata(path).map_err(|error| format!("{shown} cannot be read: {error}"))?;
    let forbidden = if about.uid() == 0 { 0o037 } else { 0o077 };
    if about.mode() & forbidden == 0 {
        return Ok(());
    }
    Err(format!("{shown} can be read by others than its owner: chmod 600 {shown}"))
}

/// Longest name of a replica.
const NAME_BYTES_MAX: usize = 40;

fn parse(setting: &Setting, raw: &[Raw], mistakes: &mut Vec<Mistake>) -> Option<Value> {
    let mut whole = None;
    for item in raw {
        let value = match setting.kind.parse(&item.text) {
            Ok(value) => value,
            Err((what, help)) => {
                mistakes.push(item.mistake(format!("{}: {what}", setting.name), help));
                return None;
            }
        };
        match (&mut whole, value) {
            (None, value) => whole = Some(value),
            (Some(Value::Addresses(all)), Value::Addresses(mut more)) => all.append(&mut more),
            (Some(Value::Roles(all)), Value::Roles(mut more)) => all.append(&mut more),
            (Some(Value::Rules(all)), Value::Rules(mut more)) => all.append(&mut more),
            _ => {
                mistakes
                    .push(item.mistake(format!("{} takes one value", setting.name), "leave the others out"));
                return None;
            }
        }
    }
    whole
}

/// Where the server of a URL listens; else what is wrong, and what to write instead.
/// Where the server of a URL is; else what is wrong with it, and what to write instead.
pub(crate) fn address_of(url: &str, database: &str, superuser: &str) -> Result<Address, (String, String)> {
    use tokio_postgres::config::Host;
    let wanted = || {
        "write postgresql://host:5432, or postgresql://%2Frun%2Fpostgresql:5432 for a Unix socket".to_owned()
    };
    if !url.starts_with("postgresql://") && !url.starts_with("postgres://") {
        return Err((format!("\"{url}\" is not the URL of a server"), wanted()));
    }
    let (url, tls) = without_tls(url)?;
    let config: tokio_postgres::Config =
        url.parse().map_err(|error| (format!("not the URL of a server: {error}"), wanted()))?;
    if config.get_password().is_some() {
        let help = "put it into the file that superuser_password_file names";
        return Err(("a password in a URL".to_owned(), help.to_owned()));
    }
    for (what, found, expected) in
        [("database", config.get_dbname(), database), ("superuser", config.get_user(), superuser)]
    {
        if let Some(found) = found.filter(|found| *found != expected) {
            let text = format!("the URL says \"{found}\", but {what} = \"{expected}\"");
            return Err((text, format!("leave it out of the URL, and set {what} for all replicas")));
        }
    }
    let port = config.get_ports().first().copied().unwrap_or(5432);
    match config.get_hosts() {
        [Host::Tcp(host)] => Ok(Address::Tcp { host: host.clone(), port, tls }),
        [Host::Unix(_)] if tls.is_some() => {
            let help = "leave sslmode out: a Unix socket needs no encryption";
            Err(("TLS over a Unix socket".to_owned(), help.to_owned()))
        }
        [Host::Unix(folder)] => Ok(Address::Unix { socket_dir: folder.clone(), port }),
        [] => Err(("a URL without a host".to_owned(), wanted())),
        _ => Err(("a URL with several hosts".to_owned(), "each server is a replica of its own".to_owned())),
    }
}

/// The URL without what it says about encryption, and that.
fn without_tls(url: &str) -> Result<(String, Option<Outward>), (String, String)> {
    let Some((place, parameters)) = url.split_once('?') else { return Ok((url.to_owned(), None)) };
    let (mut mode, mut root, mut others) = (None, None, Vec::new());
    for parameter in parameters.split('&') {
        match parameter.split_once('=') {
            Some(("sslmode", value)) => mode = Some(value),
            Some(("sslrootcert", value)) => root = Some(PathBuf::from(value.replace("%2F", "/"))),
            _ => others.push(parameter),
        }
    }
    let mut rest = place.to_owned();
    if !others.is_empty() {
        rest = format!("{place}?{}", others.join("&"));
    }
    let trust = match mode {
        None | Some("disable") => return Ok((rest, None)),
        Some("require") => Trust::Any,
        Some("verify-ca") => Trust::Signed,
        Some("verify-full") => Trust::SignedForHost,
        Some(other) => {
            let help = "it is one of disable, require, verify-ca, verify-full; nothing falls back";
            return Err((format!("sslmode={other} is not offered"), help.to_owned()));
        }
    };
    if trust != Trust::Any && root.is_none() {
        let help = "add &sslrootcert= and the file with the certificate that is believed";
        return Err(("a certificate is to be checked, and none is believed".to_owned(), help.to_owned()));
    }
    let tls = Outward::load(trust, root.as_deref())
        .map_err(|error| (error, "name a file with certificates as PEM".to_owned()))?;
    Ok((rest, Some(tls)))
}
