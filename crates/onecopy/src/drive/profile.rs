//! The client's declaration about the open transaction, and the prediction of the workload statistics
//! ([`crate::transaction::profile`]).

use std::sync::Arc;

use cluster::ids::Version;
use sql::accesses::{Arguments, Parameter};
use sql::profile::{Declaration, DeclarationError, declaration_of};
use sql::{Catalogue, SetValue, Verb};
use wire::{encode, sqlstate};

use crate::classify::requirements::Requirements;
use crate::client::own_settings::ACCESS_SETTING;
use crate::client::sent::Sent;
use crate::drive::Driver;
use crate::error::{Fault, Refusal};
use crate::relay::Ended;
use crate::transaction::open::Transaction;
use crate::transaction::profile::{Origin, Prediction};
use crate::transaction::view::View;

/// A prediction of at least this confidence decides where a transaction begins. Ten of ten transactions reach it.
const SURE: u32 = 800;

/// Later statements of a transaction do not enter the statistics.
const STEPS_MAX: usize = 512;

/// EXPLAIN (ROUTING) lists at most this many accesses.
const LISTED_MAX: usize = 20;

/// The session keeps the parameter values of this many first statements.
const BEGINNING_MAX: usize = 4;

impl View<'_> {
    /// The accesses that the open transaction will probably make. `None` without a declaration and without similar
    /// transactions.
    pub(crate) fn prediction(self) -> Option<Prediction> {
        self.predict(&self.link.database().catalogue(), &self.txn.txn_profile.beginning)
    }

    fn predict(self, catalogue: &Catalogue, beginning: &[Sent]) -> Option<Prediction> {
        if let Some(declared) = &self.txn.txn_profile.declared {
            let accesses = declared.resolve(catalogue).accesses();
            return Some(Prediction { accesses, origin: Origin::Declared });
        }
        let templates: Vec<_> = beginning.iter().map(|sent| sent.statement().template).collect();
        let prediction = self.link.database().workload.predict(&templates)?;
        let parameters: Vec<Vec<Parameter<'_>>> = beginning.iter().map(Sent::parameters).collect();
        let arguments: Vec<Arguments<'_>> =
            beginning.iter().zip(&parameters).map(|(sent, parameters)| sent.arguments(parameters)).collect();
        let mut accesses = prediction.accesses(catalogue, &arguments);
        for (sent, arguments) in beginning.iter().zip(&arguments) {
            accesses.add(sent.statement().outline(catalogue).bind(arguments));
        }
        let origin = Origin::WorkloadStats { confidence: prediction.confidence, seen: prediction.seen };
        Some(Prediction { accesses, origin })
    }

    /// Whether the open transaction is likely to read only.
    pub(crate) fn expects_only_reads(self) -> bool {
        if let Some(declared) = &self.txn.txn_profile.declared {
            return declared.writes.is_empty();
        }
        let templates: Vec<_> =
            self.txn.txn_profile.beginning.iter().map(|sent| sent.statement().template).collect();
        self.link.database().workload.predict(&templates).is_some_and(|prediction| {
            prediction.confidence >= SURE && prediction.only_reads(&self.link.database().catalogue())
        })
    }

    /// Lines of EXPLAIN (ROUTING) about the profile: of the open transaction, or of one that begins with the
    /// statement.
    pub(crate) fn tell_profile(self, catalogue: &Catalogue, explained: Option<&Sent>) -> Vec<String> {
        let is_open =
            !matches!(self.txn.state, Transaction::None) && !self.txn.txn_profile.beginning.is_empty();
        let told = |word: &str, what: &str| format!("{word:<12}{what}");
        let of = if is_open { "this transaction" } else { "a transaction that begins so" };
        let foreseen = if is_open {
            self.prediction()
        } else {
            self.predict(catalogue, explained.map_or(&[], std::slice::from_ref))
        };
        let Some(foreseen) = foreseen else {
            return vec![told(
                "profile",
                "none: nothing was declared, and nothing that begins so has committed",
            )];
        };
        let mut lines = vec![match foreseen.origin {
            Origin::Declared => told("profile", &format!("declared: {}", self.txn.declared_access())),
            Origin::WorkloadStats { confidence, seen } => told(
                "profile",
                &format!("learned of {of}: {seen} seen, {}.{} % foreseen", confidence / 10, confidence % 10),
            ),
        }];
        let listed = foreseen.accesses.describe(catalogue);
        lines.extend(listed.iter().take(LISTED_MAX).map(|line| told("expected", line)));
        if listed.len() > LISTED_MAX {
            lines.push(told("expected", &format!("and {} more", listed.len() - LISTED_MAX)));
        }
        lines
    }
}

impl Driver<'_> {
    /// Reads a declaration in a comment, before the first statement or on BEGIN.
    pub(crate) fn take_declaration(&mut self, text: &str) {
        match declaration_of(text) {
            None => {}
            Some(Ok(declaration)) => self.declare(declaration),
            Some(Err(error)) => {
                let text = format!("the comment \"onecopy:\" declares nothing: {error}");
                self.link.warn(sqlstate::WARNING, &text);
            }
        }
    }

    fn declare(&mut self, declaration: Declaration) {
        let catalogue = self.link.database().catalogue();
        // Right after a schema change the catalogue may lack new tables.
        let is_present = !self.link.coordinator().view.is_outdated(Version(catalogue.generation()));
        let unknown = declaration.resolve(&catalogue).unknown;
        for name in unknown.into_iter().filter(|_| is_present) {
            let text = format!("the declared table \"{name}\" is not known, so nothing follows from it");
            self.link.warn(sqlstate::WARNING, &text);
        }
        self.txn.txn_profile.declared = Some(declaration);
    }

    /// Handles SET LOCAL, RESET and SHOW of onecopy.access; `None` for any other statement.
    pub(crate) fn access_setting(&mut self, verb: &Verb) -> Result<Option<Ended>, Fault> {
        match verb {
            Verb::Set { name, value, local } if name == ACCESS_SETTING => {
                self.set_access(value, *local)?;
                encode::command_complete(&mut self.link.client.out, "SET");
            }
            Verb::Reset(Some(name)) if name == ACCESS_SETTING => {
                self.txn.txn_profile.declared = None;
                encode::command_complete(&mut self.link.client.out, "RESET");
            }
            Verb::Show(name) if name == ACCESS_SETTING => {
                let declared = self.txn.declared_access();
                self.link.show_value(name, &declared);
            }
            _ => return Ok(None),
        }
        Ok(Some(Ended::default()))
    }

    fn set_access(&mut self, value: &SetValue, local: bool) -> Result<(), Fault> {
        if !local {
            let what = format!("SET {ACCESS_SETTING} without LOCAL");
            return Err(Refusal::unsupported(what, "Use SET LOCAL in each transaction.").into());
        }
        let invalid = |why: String| {
            let text = format!("invalid value for parameter \"{ACCESS_SETTING}\": {why}");
            Refusal::new(
                sqlstate::INVALID_PARAMETER_VALUE,
                text,
                "It is like 'read item, author; write orders'.",
            )
        };
        let declaration = match value {
            SetValue::Default => None,
            SetValue::Text(text) => {
                let read = Declaration::parse(text);
                Some(read.map_err(|error: DeclarationError| invalid(error.to_string()))?)
            }
            SetValue::Current | SetValue::Expression => return Err(invalid("no constant".to_owned()).into()),
        };
        if matches!(self.txn.state, Transaction::None) || self.txn.is_implicit() {
            let text = "SET LOCAL can only be used in transaction blocks";
            self.link.warn(sqlstate::NO_ACTIVE_SQL_TRANSACTION, text);
        } else if let Some(declaration) = declaration {
            self.declare(declaration);
        } else {
            self.txn.txn_profile.declared = None;
        }
        Ok(())
    }

    /// Adds statements to the profile of the open transaction, before they run.
    pub(crate) fn note_steps(&mut self, requirements: &Requirements) {
        let is_first = matches!(self.txn.state, Transaction::Begun(_));
        if (matches!(self.txn.state, Transaction::None) || self.txn.is_implicit()) && !is_first {
            return;
        }
        for sent in requirements.sent.iter().filter(|sent| is_step(&sent.statement().verb)) {
            if self.txn.txn_profile.steps.is_empty()
                && self.txn.txn_profile.declared.is_none()
                && let Some(text) = sent.with_comments()
            {
                self.take_declaration(text);
            }
            if self.txn.txn_profile.steps.len() < STEPS_MAX {
                self.txn.txn_profile.steps.push((Arc::clone(sent.statement()), sent.digests()));
            }
            if self.txn.txn_profile.beginning.len() < BEGINNING_MAX {
                self.txn.txn_profile.beginning.push(sent.clone());
            }
        }
    }
}

/// Whether a statement characterises the kind of its transaction.
fn is_step(verb: &Verb) -> bool {
    verb.is_dml()
        || matches!(
            verb,
            Verb::Copy { .. }
                | Verb::DeclareCursor { .. }
                | Verb::Execute { .. }
                | Verb::Lock
                | Verb::Truncate
                | Verb::Do
                | Verb::Call
                | Verb::Ddl(_)
        )
}
