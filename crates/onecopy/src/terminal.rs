//! Output to the user. Only this file prints.
//!
//! On a terminal a long step shows a moving line, which its outcome replaces. Elsewhere (a pipe, a service log) every
//! step is one plain line when it begins. Results that a person or a script may use go to standard output, for example
//! the address to connect to. Progress and errors go to standard error. A closed pipe is not an error: output that
//! cannot be written is dropped, since the servers matter more than messages about them.
//!
//! Non-goal: tracing, which is for operators who look into a running node.

use std::fmt::{self, Display};
use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressDrawTarget, ProgressStyle};

/// The time between two drawings of the moving line.
const TICK: Duration = Duration::from_millis(120);

/// Reports progress, results and errors to the user.
#[derive(Clone, Debug)]
pub(crate) struct Progress {
    /// The moving lines; none when standard error is not a terminal.
    moving: Option<MultiProgress>,
}

impl Progress {
    /// Progress on standard error: moving lines on a terminal, plain lines elsewhere.
    pub(crate) fn new() -> Self {
        let moving = std::io::stderr()
            .is_terminal()
            .then(|| MultiProgress::with_draw_target(ProgressDrawTarget::stderr()));
        Self { moving }
    }

    /// Prints one line.
    pub(crate) fn say(&self, line: impl Display) {
        match &self.moving {
            Some(moving) => moving.suspend(|| to_stderr(&line)),
            None => to_stderr(&line),
        }
    }

    /// Begins a step that takes a while.
    pub(crate) fn step(&self, what: impl Into<String>) -> Step {
        let what = what.into();
        let Some(moving) = &self.moving else {
            self.say(format_args!("{what} .."));
            return Step { line: None, progress: self.clone() };
        };
        let line = moving.add(ProgressBar::new_spinner());
        if let Ok(style) = ProgressStyle::with_template("{spinner} {msg} ({elapsed})") {
            line.set_style(style);
        }
        line.set_message(what);
        line.enable_steady_tick(TICK);
        Step { line: Some(line), progress: self.clone() }
    }

    /// A result, on standard output.
    pub(crate) fn result(&self, line: impl Display) {
        match &self.moving {
            Some(moving) => moving.suspend(|| to_stdout(&line)),
            None => to_stdout(&line),
        }
    }

    /// The reason why the command ends without success.
    pub(crate) fn failure(&self, error: impl Display) {
        self.say(format_args!("onecopy: {error}"));
    }
}

/// A step that is under way; its line disappears when it is dropped.
#[derive(Debug)]
pub(crate) struct Step {
    line: Option<ProgressBar>,
    progress: Progress,
}

impl Step {
    /// Changes the moving line on a terminal. Elsewhere it prints no line.
    pub(crate) fn now(&self, what: impl Into<String>) {
        if let Some(line) = &self.line {
            line.set_message(what.into());
        }
    }

    /// Ends the step with a line of news.
    pub(crate) fn done(self, line: impl Display) {
        if let Some(moving) = &self.line {
            moving.finish_and_clear();
        }
        self.progress.say(line);
    }
}

impl pgserver::Progress for Progress {
    fn say(&self, line: fmt::Arguments<'_>) {
        Self::say(self, line);
    }

    fn step(&self, what: String) -> Box<dyn pgserver::Step> {
        Box::new(Self::step(self, what))
    }
}

impl pgserver::Step for Step {
    fn now(&self, what: String) {
        Self::now(self, what);
    }

    fn done(self: Box<Self>, line: fmt::Arguments<'_>) {
        Self::done(*self, line);
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if let Some(line) = &self.line {
            line.finish_and_clear();
        }
    }
}

fn to_stderr(line: &impl Display) {
    // A message about the closed pipe would reach no reader.
    let _ = writeln!(std::io::stderr().lock(), "{line}");
}

fn to_stdout(line: &impl Display) {
    // A message about the closed pipe would reach no reader.
    let _ = writeln!(std::io::stdout().lock(), "{line}");
}
