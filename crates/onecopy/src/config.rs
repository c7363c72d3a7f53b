//! The configuration of `onecopy serve`: a file, overridden by environment variables, overridden by flags.
//!
//! One table ([`settings::SETTINGS`]) defines the name, kind, default and purpose of every setting. The file's keys,
//! the variables, the flags, their checks and docs/reference/configuration.md are made from it. Loading collects all
//! errors with their places, so one run reports every one. A configuration with an error is not used.

mod address;
pub(crate) mod c_jdbc;
mod elastic;
mod error;
mod file_error;
mod flags;
pub(crate) mod hba;
mod kinds;
pub(crate) mod log;
pub(crate) mod placement;
pub(crate) mod protocol;
mod read;
#[cfg(test)]
mod reference;
pub(crate) mod runtime;
pub(crate) mod settings;
mod units;
mod value_error;

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use pgserver::MAX_REPLICAS;

use crate::backend::Address;
use crate::security::scram::Secret;
use crate::security::tls::Identity;
pub(crate) use address::{AddressError, address_of};
pub(crate) use elastic::{ElasticConfig, ElasticFlags};
pub(crate) use error::{ConfigError, LoadError};
pub(crate) use file_error::ConfigFileError;
pub(crate) use flags::Given;
use hba::{Access, Rule};
use kinds::Value;
use placement::PlacementRules;
pub(crate) use read::is_variable;
use read::{Raw, RawReplica, Sources};
use settings::{SETTINGS, Setting};

/// A valid configuration. A setting is looked up by its name, and has the type that the table says.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    values: Vec<(&'static Setting, Value, String)>,
    /// The servers. The first one is the initial anchor.
    pub(crate) replicas: Vec<Replica>,
    /// Which replicas hold new tables.
    pub(crate) placement: PlacementRules,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Replica {
    /// Its name in SHOW and log lines.
    pub(crate) name: String,
    pub(crate) address: Address,
}

impl Config {
    /// Loads the configuration. Returns all errors, not only the first.
    pub(crate) fn load(
        file: Option<&Path>,
        environment: impl Fn(&str) -> Option<String>,
        flags: &Given,
    ) -> Result<Self, Vec<ConfigError>> {
        let mut mistakes = Vec::new();
        let text = match file.map(|path| (path, std::fs::read_to_string(path))) {
            None => String::new(),
            Some((_, Ok(text))) => text,
            Some((path, Err(error))) => {
                return Err(vec![ConfigError::whole_file(path, format!("cannot be read: {error}"))]);
            }
        };
        let sources = read::collect(file, &text, environment, flags, &mut mistakes);
        let config = Self::check(&sources, &mut mistakes);
        if mistakes.is_empty() { Ok(config) } else { Err(mistakes) }
    }

    fn check(sources: &Sources, mistakes: &mut Vec<ConfigError>) -> Self {
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
        let mut config = Self { values, replicas: Vec::new(), placement: PlacementRules::default() };
        for raw in &sources.replicas {
            if let Some(replica) = config.replica(raw, mistakes) {
                config.replicas.push(replica);
            }
        }
        // Without the names of all replicas a rule cannot be checked.
        if config.replicas.len() == sources.replicas.len() {
            config.placement = PlacementRules::check(&sources.placement, &config.replicas, mistakes);
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

    fn replica(&self, raw: &RawReplica, mistakes: &mut Vec<ConfigError>) -> Option<Replica> {
        let Some(url) = &raw.url else {
            mistakes
                .push(raw.place.mistake("a replica without a url", "add url = \"postgresql://host:5432\""));
            return None;
        };
        let address = match address_of(&url.text, self.text("database"), self.text("superuser")) {
            Ok(address) => address,
            Err(error) => {
                mistakes.push(url.mistake(error.to_string(), error.help()));
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

    /// Value of a setting that is a text or a word.
    pub(crate) fn text(&self, name: &str) -> &str {
        match self.value(name) {
            Value::Text(text) => text,
            other => unreachable!("{name} is no text: {other:?}"),
        }
    }

    /// Value of a setting that is a folder.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        PathBuf::from(self.text(name))
    }

    /// Value of a setting that is a length of time.
    pub(crate) fn duration(&self, name: &str) -> Duration {
        match self.value(name) {
            Value::Duration(duration) => *duration,
            other => unreachable!("{name} is no length of time: {other:?}"),
        }
    }

    /// Value of a setting that is a number or a size in bytes.
    pub(crate) fn number(&self, name: &str) -> u64 {
        match self.value(name) {
            Value::Number(number) => *number,
            other => unreachable!("{name} is no number: {other:?}"),
        }
    }

    /// Value of a setting that is a list of addresses.
    pub(crate) fn addresses(&self, name: &str) -> &[SocketAddr] {
        match self.value(name) {
            Value::Addresses(addresses) => addresses,
            other => unreachable!("{name} is no list of addresses: {other:?}"),
        }
    }

    /// The rules and rights of clients.
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

    /// The password or certificate for superuser connections to servers.
    pub(crate) fn secret(&self) -> Result<Secret, ConfigFileError> {
        let path = self.path("superuser_password_file");
        if path.as_os_str().is_empty() {
            let password = std::env::var("PGPASSWORD").ok().filter(|password| !password.is_empty());
            return Ok(password.map_or(Secret::None, Secret::Password));
        }
        file_error::check_private(&path)?;
        let text = std::fs::read_to_string(&path);
        let text = text.map_err(|source| ConfigFileError::Unreadable { path, source })?;
        Ok(Secret::Password(text.trim_end_matches(['\r', '\n']).to_owned()))
    }

    /// Checks that all named files can be used, before the node changes anything.
    pub(crate) fn check_files(&self) -> Result<(), Vec<ConfigFileError>> {
        let errors: Vec<ConfigFileError> = [
            self.secret().err(),
            self.identity().err(),
            self.key("etcd_key_file").err(),
            self.key("link_key_file").err(),
        ]
        .into_iter()
        .flatten()
        .collect();
        if errors.is_empty() { Ok(()) } else { Err(errors) }
    }

    /// Checks that the key for etcd, or for links, is private.
    fn key(&self, setting: &str) -> Result<(), ConfigFileError> {
        let path = self.path(setting);
        if path.as_os_str().is_empty() { Ok(()) } else { file_error::check_private(&path) }
    }

    /// The certificate for clients.
    pub(crate) fn identity(&self) -> Result<Option<Identity>, ConfigFileError> {
        let (certificate, key) = (self.path("tls_certificate_file"), self.path("tls_key_file"));
        match (certificate.as_os_str().is_empty(), key.as_os_str().is_empty()) {
            (true, true) => return Ok(None),
            (false, false) => {}
            _ => return Err(ConfigFileError::HalfOfAPair),
        }
        file_error::check_private(&key)?;
        Ok(Some(Identity::load(&certificate, &key)?))
    }

    /// Rejects a rule that trusts every address, if the node listens beyond the loopback. The operator must name the
    /// trusted networks.
    fn check_trust(&self, sources: &Sources, mistakes: &mut Vec<ConfigError>) {
        let Value::Rules(rules) = self.value("hba") else { unreachable!("hba is a list of rules") };
        let is_reachable = self.addresses("listen").iter().any(|address| !address.ip().is_loopback());
        if let Some(raw) = sources.get("hba").and_then(<[Raw]>::first)
            && is_reachable
            && rules.iter().any(Rule::trusts_anybody)
        {
            let help = "name the networks that are trusted, or listen on 127.0.0.1 only";
            mistakes.push(
                raw.mistake(
                    "hba: a trust rule admits every client from any address without a password",
                    help,
                ),
            );
        }
    }

    /// Every setting as text: name, value, default, whether it can change while the node runs.
    pub(crate) fn shown(&self) -> Vec<[String; 4]> {
        let row = |(setting, _, text): &(&Setting, Value, String)| {
            let changeable = if setting.can_reload { "yes" } else { "no" };
            [setting.name.to_owned(), text.clone(), setting.default.to_owned(), changeable.to_owned()]
        };
        self.values.iter().map(row).collect()
    }

    /// Settings that differ from the other configuration, but take effect only at a restart.
    pub(crate) fn fixed_that_differ(&self, other: &Self) -> Vec<&'static str> {
        let pairs = self.values.iter().zip(&other.values);
        let differ =
            pairs.filter(|((setting, mine, _), (_, theirs, _))| !setting.can_reload && mine != theirs);
        let mut names: Vec<&str> = differ.map(|((setting, ..), _)| setting.name).collect();
        if self.replicas != other.replicas {
            names.push("replica");
        }
        if !self.placement.equal(&other.placement) {
            names.push("placement");
        }
        names
    }
}

/// Longest name of a replica, in bytes.
const NAME_BYTES_MAX: usize = 40;

fn parse(setting: &Setting, raw: &[Raw], mistakes: &mut Vec<ConfigError>) -> Option<Value> {
    let mut whole = None;
    for item in raw {
        let value = match setting.kind.parse(&item.text) {
            Ok(value) => value,
            Err(error) => {
                mistakes.push(item.mistake(format!("{}: {error}", setting.name), error.help()));
                return None;
            }
        };
        match (&mut whole, value) {
            (None, value) => whole = Some(value),
            (Some(Value::Addresses(all)), Value::Addresses(mut more)) => all.append(&mut more),
            (Some(Value::Roles(all)), Value::Roles(mut more))
            | (Some(Value::Urls(all)), Value::Urls(mut more)) => all.append(&mut more),
            (Some(Value::Nodes(all)), Value::Nodes(mut more)) => all.append(&mut more),
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
