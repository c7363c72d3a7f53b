//! The settings of a session that say where its transactions run, and for what they wait: `onecopy.home`,
//! `onecopy.sequences` and `onecopy.ordering`.
//!
//! Example: `SET onecopy.home = 'replica-2'` makes update transactions of the session begin at replica 2, unless they
//! need the anchor. Onecopy answers SET, RESET and SHOW of these settings itself; no server gets them.

use cluster::ids::ReplicaId;
use sql::{SetValue, Verb};
use wire::{encode, sqlstate};

use crate::client::forbidden::ValueError;
use crate::client::own_settings::{
    HOME_SETTING, ORDER_CHAINS, ORDER_SETTING, ORDER_STATEMENTS, SEQUENCES_LENT, SEQUENCES_SETTING, is_kept,
};
use crate::error::{Fault, Refusal};
use crate::place::Placer;
use crate::relay::Ended;
use crate::transaction::open::Transaction;
use crate::transaction::view::View;

/// The default of `onecopy.home`.
const HOME_AUTO: &str = "auto";
/// The value of `onecopy.sequences` that makes all draws happen at the anchor, in order.
const SEQUENCES_ANCHOR: &str = "anchor";

/// The place where the session's update transactions begin, if they may run there.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum HomePreference {
    /// The core chooses, once it is known that such transactions do not need the anchor.
    #[default]
    Auto,
    /// At the anchor.
    Anchor,
    /// The core chooses.
    Any,
    /// At this replica.
    At(ReplicaId),
}

impl View<'_> {
    /// Whether rows that draw from sequences may be written where a range is leased.
    pub(crate) fn uses_leases(self) -> bool {
        let is_chosen = || self.link.local().runtime_config.lends_sequences();
        self.link.coordinator().core.is_here() && self.link.settings.noted.borrows.unwrap_or_else(is_chosen)
    }

    /// Rejects a value that the setting cannot have.
    fn check_kept(self, name: &str, text: &str) -> Result<(), Refusal> {
        let hint = match name {
            HOME_SETTING if self.parse_home_preference(text).is_none() => {
                "It is auto, any, anchor, or the name of a replica."
            }
            SEQUENCES_SETTING
                if ![SEQUENCES_LENT, SEQUENCES_ANCHOR].iter().any(|w| w.eq_ignore_ascii_case(text)) =>
            {
                "It is lent or anchor."
            }
            ORDER_SETTING
                if ![ORDER_CHAINS, ORDER_STATEMENTS].iter().any(|w| w.eq_ignore_ascii_case(text)) =>
            {
                "It is statements or chains."
            }
            HOME_SETTING | SEQUENCES_SETTING | ORDER_SETTING => return Ok(()),
            _ => {
                return Err(Refusal::unsupported(
                    format!("changing {name}"),
                    "Use SET LOCAL in each transaction.",
                ));
            }
        };
        let message = format!("invalid value for parameter \"{name}\": \"{text}\"");
        Err(Refusal::new(sqlstate::INVALID_PARAMETER_VALUE, message, hint))
    }

    /// The value that SHOW prints.
    fn kept_value(self, name: &str) -> String {
        match name {
            HOME_SETTING => self.link.settings.noted.home.as_deref().unwrap_or(HOME_AUTO).to_owned(),
            ORDER_SETTING if self.link.waits_in_chains() => ORDER_CHAINS.to_owned(),
            ORDER_SETTING => ORDER_STATEMENTS.to_owned(),
            _ => if self.uses_leases() { SEQUENCES_LENT } else { SEQUENCES_ANCHOR }.to_owned(),
        }
    }

    /// Whether an update transaction that may leave the anchor begins elsewhere although it is not known how such transactions go on.
    pub(crate) fn leaves_unknown(self) -> bool {
        match self.home_preference() {
            HomePreference::Any | HomePreference::At(_) => true,
            HomePreference::Auto => self.link.has_local_replica(),
            HomePreference::Anchor => false,
        }
    }

    /// The place where the session wants its update transactions to begin.
    pub(crate) fn home_preference(self) -> HomePreference {
        self.link
            .settings
            .noted
            .home
            .as_deref()
            .and_then(|text| self.parse_home_preference(text))
            .unwrap_or_default()
    }

    fn parse_home_preference(self, text: &str) -> Option<HomePreference> {
        let words = [
            (HOME_AUTO, HomePreference::Auto),
            ("anchor", HomePreference::Anchor),
            ("any", HomePreference::Any),
        ];
        let word = words.into_iter().find(|(word, _)| word.eq_ignore_ascii_case(text));
        let named = || self.link.coordinator().seats.named(text).map(|seat| HomePreference::At(seat.replica));
        word.map(|(_, wish)| wish).or_else(named)
    }
}

impl Placer<'_> {
    /// Handles settings of our own: `onecopy.access` and those that the session keeps.
    pub(crate) fn own_setting(&mut self, verb: &Verb) -> Result<Option<Ended>, Fault> {
        if let Some(ended) = self.driver().access_setting(verb)? {
            return Ok(Some(ended));
        }
        self.session_setting(verb)
    }

    /// Handles SET, RESET and SHOW of a setting that the session keeps.
    fn session_setting(&mut self, verb: &Verb) -> Result<Option<Ended>, Fault> {
        let tag = match verb {
            Verb::Set { name, value, local } if is_kept(name) => {
                self.set_kept(name, value, *local)?;
                "SET"
            }
            Verb::Reset(Some(name)) if is_kept(name) => {
                self.stage_kept(name, None);
                "RESET"
            }
            Verb::Show(name) if is_kept(name) => {
                let value = self.view().kept_value(name);
                self.link.show_value(name, &value);
                return Ok(Some(Ended::default()));
            }
            _ => return Ok(None),
        };
        encode::command_complete(&mut self.link.client.out, tag);
        Ok(Some(Ended::default()))
    }

    fn set_kept(&mut self, name: &str, value: &SetValue, local: bool) -> Result<(), Fault> {
        if local {
            let what = format!("SET LOCAL {name}");
            return Err(Refusal::unsupported(what, "Use SET before the transaction.").into());
        }
        match value {
            SetValue::Default => self.stage_kept(name, None),
            SetValue::Text(text) => {
                self.view().check_kept(name, text)?;
                self.stage_kept(name, Some(text));
            }
            _ => return Err(ValueError::NotConstant { name: name.to_owned() }.into()),
        }
        Ok(())
    }

    fn stage_kept(&mut self, name: &str, value: Option<&str>) {
        self.link.settings.stage(name, value, "");
        if matches!(self.txn.state, Transaction::None) {
            self.link.settings.keep_staged();
        }
    }

    /// Begins with the values that the start-up message, ALTER ROLE and ALTER DATABASE give to Onecopy's settings. A
    /// wrong value from the client ends the session. A wrong value from the other two is returned as a warning, as in
    /// PostgreSQL.
    pub(crate) fn begin_with_own(&mut self) -> Result<Vec<Refusal>, Fault> {
        let mut useless = Vec::new();
        for said in self.link.settings.take_own() {
            match self.view().check_kept(&said.name, &said.value) {
                Ok(()) => self.link.settings.begin_with_own(&said),
                Err(refusal) if said.is_clients => return Err(Fault::Fatal(refusal)),
                Err(refusal) => useless.push(refusal),
            }
        }
        Ok(useless)
    }
}
