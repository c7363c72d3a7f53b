//! The flags of `onecopy serve`: one for each setting, and one for servers.

use std::collections::BTreeMap;

use clap::{Arg, ArgAction, ArgMatches, Command};

use super::settings::SETTINGS;

/// The values of the flags.
#[derive(Clone, Debug, Default)]
pub(crate) struct Given {
    /// Values by the setting's name.
    pub(crate) values: BTreeMap<&'static str, String>,
    /// URLs of servers.
    pub(crate) replicas: Vec<String>,
}

const REPLICA: &str = "replica";

impl clap::FromArgMatches for Given {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let mut given = Self::default();
        given.update_from_arg_matches(matches)?;
        Ok(given)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        for setting in SETTINGS {
            if let Some(value) = matches.get_one::<String>(setting.name) {
                self.values.insert(setting.name, value.clone());
            }
        }
        self.replicas.extend(matches.get_many::<String>(REPLICA).into_iter().flatten().cloned());
        Ok(())
    }
}

impl clap::Args for Given {
    fn augment_args(command: Command) -> Command {
        let replica = Arg::new(REPLICA)
            .long(REPLICA)
            .value_name("URL")
            .action(ArgAction::Append)
            .help("URL of a server, the anchor first; replaces those of the file")
            .help_heading("Settings");
        SETTINGS.iter().fold(command.arg(replica), |command, setting| {
            let about = setting.about.split(". ").next().unwrap_or_default().trim_end_matches('.');
            let default = if setting.default.is_empty() { "none" } else { setting.default };
            command.arg(
                Arg::new(setting.name)
                    .long(setting.flag)
                    .value_name("VALUE")
                    .help(format!("{about} [default: {default}]"))
                    .help_heading("Settings"),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}
