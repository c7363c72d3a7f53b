//! Progress while servers are fetched, made and started. The program that uses this crate shows it.

use std::fmt;

/// Shows lines to a person.
pub trait Progress: fmt::Debug + Send + Sync {
    /// Shows one line of news.
    fn say(&self, line: fmt::Arguments<'_>);

    /// Begins a step that takes a while, for example `starting 3 PostgreSQL 15.14 servers`.
    fn step(&self, what: String) -> Box<dyn Step>;
}

/// A step that is under way. Dropping it ends it without news.
pub trait Step: Send {
    /// Replaces the text of the step, for example by how far a download has come.
    fn now(&self, what: String);

    /// Ends the step with a line of news.
    fn done(self: Box<Self>, line: fmt::Arguments<'_>);
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn say(&self, _line: fmt::Arguments<'_>) {}

    fn step(&self, _what: String) -> Box<dyn Step> {
        Box::new(Self)
    }
}

impl Step for Silent {
    fn now(&self, _what: String) {}

    fn done(self: Box<Self>, _line: fmt::Arguments<'_>) {}
}
