//! The settings of the table `elastic`, for `onecopy serve` from its configuration, for `onecopy up` from flags.

use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, ArgMatches, Command};

use super::Config;
use super::kinds::{MILLIONTHS, Value};
use super::settings::{SETTINGS, elastic_of_up};

/// The settings of the table `elastic`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct ElasticConfig {
    /// The least and the largest number of replicas. `None`: replicas come and go by command only.
    pub(crate) replicas: Option<(u16, u16)>,
    /// The busy share from which another replica is wanted, in permille.
    pub(crate) busy_permille: u32,
    /// The statements that a replica runs at a time when it is fully busy.
    pub(crate) statements: u32,
    pub(crate) grow_after: Duration,
    pub(crate) shrink_after: Duration,
    pub(crate) spares: u16,
    /// The price of a server for an hour, or zero.
    pub(crate) price_per_hour: f64,
    /// The command that provides servers.
    pub(crate) provision: Option<String>,
}

impl ElasticConfig {
    fn of(value: impl Fn(&str) -> Value) -> Self {
        let duration = |name: &str| match value(name) {
            Value::Duration(duration) => duration,
            other => unreachable!("{name} is no length of time: {other:?}"),
        };
        let number = |name: &str| match value(name) {
            Value::Number(number) => number,
            other => unreachable!("{name} is no number: {other:?}"),
        };
        let small = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
        let Value::Range(replicas) = value("elastic.replicas") else {
            unreachable!("elastic.replicas is a range")
        };
        let Value::Text(provision) = value("elastic.provision") else {
            unreachable!("elastic.provision is a text")
        };
        Self {
            replicas,
            busy_permille: small("elastic.busy") / 1_000,
            statements: small("elastic.statements"),
            grow_after: duration("elastic.grow_after"),
            shrink_after: duration("elastic.shrink_after"),
            spares: u16::try_from(number("elastic.spares")).unwrap_or(u16::MAX),
            price_per_hour: number("elastic.price_per_hour") as f64 / MILLIONTHS as f64,
            provision: Some(provision).filter(|command| !command.trim().is_empty()),
        }
    }
}

impl Config {
    /// The settings of the table `elastic`.
    pub(crate) fn elastic(&self) -> ElasticConfig {
        ElasticConfig::of(|name| self.value(name).clone())
    }
}

/// The same settings as flags of `onecopy up`, without the command that provides servers.
#[derive(Clone, Debug)]
pub(crate) struct ElasticFlags {
    /// The values, with defaults for flags that were not given.
    pub(crate) config: ElasticConfig,
}

impl clap::FromArgMatches for ElasticFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        for setting in elastic_of_up() {
            let Some(text) = matches.get_one::<String>(setting.name) else { continue };
            if let Err(error) = setting.kind.parse(text) {
                let text = format!("--{}: {error}; {}\n", setting.flag, error.help());
                return Err(clap::Error::raw(ErrorKind::ValueValidation, text));
            }
        }
        let value = |name: &str| {
            let setting = SETTINGS.iter().find(|setting| setting.name == name);
            let setting = setting.expect("only settings of the table are asked for");
            let given = elastic_of_up().any(|known| known.name == name);
            let given = if given { matches.get_one::<String>(name) } else { None };
            let parsed = given.and_then(|text| setting.kind.parse(text).ok());
            parsed.unwrap_or_else(|| setting.parse_default())
        };
        Ok(Self { config: ElasticConfig::of(value) })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl clap::Args for ElasticFlags {
    fn augment_args(command: Command) -> Command {
        elastic_of_up().fold(command, |command, setting| {
            let about = setting.about.split(". ").next().unwrap_or_default().trim_end_matches('.');
            let default = if setting.default.is_empty() { "none" } else { setting.default };
            command.arg(
                Arg::new(setting.name)
                    .long(setting.flag)
                    .value_name("VALUE")
                    .help(format!("{about} [default: {default}]"))
                    .help_heading("Elastic replicas"),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
