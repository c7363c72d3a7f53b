//! The session's side of the result cache ([`crate::result_cache`]): who the session is, what its client asks just now, and
//! whether a kept answer is still the answer.

use std::sync::Arc;

use wire::backend::tag;
use wire::encode;

use crate::coordinator::Coordinator;
use crate::link::Link;
use crate::local::pins::Pin;
use crate::result_cache::answer::{Answer, Basis};
use crate::result_cache::request::{Question, Request};
use crate::result_cache::{Audience, Traits};

/// A setting on which no answer depends that is kept, and that many clients give values of their own.
const NAME_OF_CLIENT: &str = "application_name";

/// What a session remembers for the result cache.
#[derive(Debug, Default)]
pub(crate) struct Answers {
    /// What the server reported at the log-in: the values of settings that may come from its own files.
    greeting: Vec<u8>,
    /// The number of the session's audience, and when it holds.
    audience: Option<(Stamp, Audience)>,
    /// What the client asks at present, if a kept answer could have answered it.
    pub(crate) asked: Option<Asked>,
}

/// A session has one audience as long as none of these changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    settings: u64,
    defaults: u64,
    era: u64,
}

/// What a client asks.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) request: Request,
    pub(crate) form: Form,
    /// A kept answer, which a replica has to confirm. The client gets this one.
    pub(crate) audited: Option<Arc<Answer>>,
}

/// The messages that precede an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// None.
    Simple,
    /// Those of Bind, and of Parse if there was one.
    Extended { parses: bool },
}

impl Form {
    /// Appends the answer to a client's output.
    pub(crate) fn write(self, answer: &Answer, out: &mut Vec<u8>) {
        if let Self::Extended { parses } = self {
            if parses {
                encode::bare(out, tag::PARSE_COMPLETE);
            }
            encode::bare(out, tag::BIND_COMPLETE);
        }
        out.extend_from_slice(&answer.body);
    }
}

impl Answers {
    /// Takes what the server reported at the log-in.
    pub(crate) fn begin(&mut self, parameters: &[(Vec<u8>, Vec<u8>)]) {
        for (name, value) in parameters.iter().filter(|(name, _)| name != NAME_OF_CLIENT.as_bytes()) {
            self.greeting.extend([name.as_slice(), b"=", value, b"\0"].concat());
        }
    }

    /// What the server reported at the log-in, for another process.
    pub(crate) fn greeting(&self) -> &[u8] {
        &self.greeting
    }

    /// Those of a session that began in another process.
    pub(crate) fn resumed(greeting: Vec<u8>) -> Self {
        Self { greeting, ..Self::default() }
    }
}

impl Link {
    /// The request for the result cache; `None` if the session has state by which a server may answer it otherwise than
    /// others of its audience.
    pub(crate) fn request(&mut self, question: Question<'_>) -> Option<Request> {
        let is_unknown = self.servers.iter_mut().any(|server| server.pins.has(Pin::Unknown));
        if is_unknown
            || self.leftovers.pinned
            || self.settings.is_astray()
            || self.servers.has_other_defaults()
        {
            return None;
        }
        let audience = self.audience()?;
        Some(Request::new(audience, self.database().oid_edition(), question))
    }

    /// The session's audience. `None` before the settings of its role are known.
    fn audience(&mut self) -> Option<Audience> {
        let cache = &self.worker.local.result_cache;
        let stamp = Stamp {
            settings: self.settings.generation(),
            defaults: self.servers.defaults.edition(),
            era: cache.era(),
        };
        if let Some((of, audience)) = self.answers.audience
            && of == stamp
        {
            return Some(audience);
        }
        let mut traits = Traits::default();
        let options = self.settings.server_options();
        let start_up = self.settings.start_up(&options);
        let start_up = start_up.iter().filter(|(name, _)| *name != NAME_OF_CLIENT);
        traits.add_all(start_up.flat_map(|(name, value)| [name, value]).map(|text| text.as_bytes()));
        traits.add(self.settings.answer_relevant().as_bytes());
        traits.add_all(self.servers.defaults.own()?.iter().map(String::as_bytes));
        traits.add(&self.answers.greeting);
        let audience = cache.audience(traits);
        self.answers.audience = Some((stamp, audience));
        Some(audience)
    }

    /// The answer that was kept for a request, if it is still the answer.
    pub(crate) fn kept_answer(&self, request: &Request) -> Option<Arc<Answer>> {
        let cache = &self.worker.local.result_cache;
        let answer = cache.find(request)?;
        if is_valid(&answer, self.coordinator()) {
            return Some(answer);
        }
        cache.discard(request, &answer);
        None
    }
}

/// Whether a replica that has the version of the answer might serve the read now.
pub(crate) fn is_valid(answer: &Answer, coordinator: &Coordinator) -> bool {
    if !coordinator.view.has_lease() {
        return false;
    }
    // Read before the core is asked, so what the core says is true of this version, or of a later one.
    let durable = coordinator.view.durable();
    if answer.is_checked_at(durable) {
        return true;
    }
    let Basis::Rows { reads, as_of, generation } = &answer.basis else { return false };
    let needed = coordinator.core.answer_needs(reads, *generation);
    let is_valid = needed.is_some_and(|needed| needed <= *as_of);
    if is_valid {
        answer.note_checked(durable);
    }
    is_valid
}
