//! The log of a running node, for its operators: lines of text, or JSON objects, on standard error.
//!
//! `ONECOPY_LOG` has the same form as in other programs that use `tracing` (`info`, `onecopy::replica=debug`), and
//! overrides the level of a configuration.
//!
//! Lines from a session name the session. A task inside a span enters and leaves it at every poll, which is expensive
//! and mostly produces no line. So a poll only notes the session's number ([`InSession`]), and each line makes its
//! span.

use std::cell::Cell;
use std::io::IsTerminal;
use std::pin::Pin;
use std::task::{Context, Poll};

use cluster::ids::SessionId;
use tracing::{Instrument, Span, Subscriber};
use tracing_subscriber::fmt::format::{FormatFields, JsonFields, Writer};
use tracing_subscriber::fmt::{FmtContext, FormatEvent};
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::util::SubscriberInitExt;
use tracing_subscriber::{EnvFilter, Registry, fmt, reload};

/// The variable that overrides every other level.
const VARIABLE: &str = "ONECOPY_LOG";
/// The name of a session's span.
const SESSION_SPAN: &str = "session";
/// The level without any setting.
pub(crate) const DEFAULT_LEVEL: &str = "warn";

/// Changes the level of a log that runs.
#[derive(Clone, Debug)]
pub(crate) struct Level(reload::Handle<EnvFilter, Registry>);

impl Level {
    /// Sets the level, unless the variable overrides it.
    pub(crate) fn set(&self, level: &str) {
        if let Err(error) = self.0.reload(filter(level)) {
            tracing::warn!(%error, "the level of the log stays as it is");
        }
    }
}

fn filter(level: &str) -> EnvFilter {
    EnvFilter::try_from_env(VARIABLE).unwrap_or_else(|_| EnvFilter::new(level))
}

/// Starts the log. Call it once.
pub(crate) fn start(level: &str, is_json: bool) -> Level {
    let (filter, handle) = reload::Layer::new(filter(level));
    let registry = tracing_subscriber::registry().with(filter);
    let lines = fmt::layer().with_writer(std::io::stderr);
    if is_json {
        let lines = lines.fmt_fields(JsonFields::new()).event_format(Named(fmt::format().json()));
        registry.with(lines).init();
    } else {
        let is_coloured = std::io::stderr().is_terminal();
        registry.with(lines.with_ansi(is_coloured).event_format(Named(fmt::format()))).init();
    }
    Level(handle)
}

thread_local! {
    /// The session for which this thread works at present.
    static SESSION: Cell<Option<SessionId>> = const { Cell::new(None) };
}

pin_project_lite::pin_project! {
    /// Work for a session: lines logged during it name the session.
    pub(crate) struct InSession<F> {
        id: SessionId,
        #[pin]
        work: F,
    }
}

impl<F> InSession<F> {
    pub(crate) fn new(id: SessionId, work: F) -> Self {
        Self { id, work }
    }
}

impl<F: Future> Future for InSession<F> {
    type Output = F::Output;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<F::Output> {
        let this = self.project();
        let before = SESSION.replace(Some(*this.id));
        let polled = this.work.poll(context);
        SESSION.set(before);
        polled
    }
}

/// Makes the span of a stage, inside the span of the session for which this thread works. If debug lines are off, the
/// span is disabled, and costs a comparison when it is made or entered.
macro_rules! stage_span {
    ($name:literal) => {
        tracing::debug_span!(parent: &$crate::logging::enclosing_span(), $name)
    };
}
pub(crate) use stage_span;

/// Runs the work of a stage inside its span. A span around the work itself would copy it twice, and most stages are 4 to
/// 8 kB: that was a thirtieth of the proxy's time. So this takes only work that is pinned.
pub(crate) fn in_stage<F: Future>(span: Span, work: Pin<&mut F>) -> impl Future<Output = F::Output> {
    work.instrument(span)
}

/// The span that encloses a new one: the present span, or else the session's.
pub(crate) fn enclosing_span() -> Span {
    let present = Span::current();
    if present.is_disabled() { session_span().unwrap_or(present) } else { present }
}

fn session_span() -> Option<Span> {
    SESSION.get().map(|id| tracing::error_span!(SESSION_SPAN, id = id.0))
}

/// Formats lines with `F`, inside the span of the session that logs them.
struct Named<F>(F);

impl<S, N, F> FormatEvent<S, N> for Named<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        writer: Writer<'_>,
        event: &tracing::Event<'_>,
    ) -> std::fmt::Result {
        // The span of a stage lies in the span of its session.
        let mut scope = context.event_scope().into_iter().flatten();
        let span = if scope.any(|span| span.name() == SESSION_SPAN) { None } else { session_span() };
        let _inside = span.as_ref().map(Span::enter);
        self.0.format_event(context, writer, event)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_span_of_a_stage_is_made_only_where_debug_lines_are_on() {
        for (level, is_made) in [("warn", false), ("info", false), ("debug", true)] {
            let registry = tracing_subscriber::registry().with(EnvFilter::new(level)).with(fmt::layer());
            tracing::subscriber::with_default(registry, || {
                assert_eq!(!stage_span!("execute").is_disabled(), is_made, "{level}");
            });
        }
    }
}
