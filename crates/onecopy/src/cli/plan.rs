//! `onecopy plan`: the data services of an application, from its schema and workload. Needs no server.
//!
//! Only files are read and written here; the crate `planner` does the rest.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use clap::Args;
use planner::{
    Application, ApplicationError, BUILTIN, BoundariesError, Column, Expectation, Group, Plan, Texts, builtin,
};

use crate::terminal::Progress;

/// Flags of `onecopy plan`.
#[derive(Debug, Clone, Args)]
pub(crate) struct PlanFlags {
    /// Folder with schema.sql, transactions.sql and perhaps application.toml, or one of tpcw, rubis and rubbos, whose
    /// files are built in.
    #[arg(value_name = "FOLDER|NAME")]
    source: PathBuf,

    /// Boundaries of transactions: `application`, those of transactions.sql; `paper`, those of boundaries-paper.toml; or
    /// a file.
    #[arg(long, value_name = "WHICH", default_value = "application")]
    boundaries: PathBuf,

    /// Compare the services with a file, or with services-paper.toml if this is `paper`; fail if they differ in a way
    /// that the file does not explain.
    #[arg(long, value_name = "FILE|paper")]
    expect: Option<PathBuf>,

    /// Say what keeps two columns, each as table.column, in one service. Can be given twice or more.
    #[arg(long, value_names = ["COLUMN", "COLUMN"], num_args = 2)]
    why: Vec<String>,

    /// Folder for services.toml, report.txt, rewritten.sql and picture.svg, created if it is missing.
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

/// An application was not planned, or the plan is not what was expected.
#[derive(Debug)]
pub(crate) enum PlanError {
    Unreadable { path: PathBuf, source: io::Error },
    Unwritable { path: PathBuf, source: io::Error },
    Texts { source: PathBuf, error: BoundariesError },
    Plan(ApplicationError),
    NoColumn(String),
    Differs { count: usize },
}

impl fmt::Display for PlanError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable { path, source } => {
                let names: Vec<&str> = BUILTIN.iter().map(|builtin| builtin.name).collect();
                write!(
                    f,
                    "cannot read {}: {source}\nName a folder, or one of {}.",
                    path.display(),
                    names.join(", ")
                )
            }
            Self::Unwritable { path, source } => write!(f, "cannot write {}: {source}", path.display()),
            Self::Texts { source, error } => write!(f, "{}: {error}", source.display()),
            Self::Plan(error) => error.fmt(f),
            Self::NoColumn(text) => write!(f, "`{text}` is not a column of the schema; write table.column"),
            Self::Differs { count } => write!(
                f,
                "the plan differs from the expectation in {count} ways, which are listed above; explain each that is \
                 right with a [[difference]], and remove explanations of differences that do not occur"
            ),
        }
    }
}

impl std::error::Error for PlanError {}

/// Plans, prints the report, and writes files if asked to.
pub(crate) fn command(flags: &PlanFlags, progress: &Progress) -> Result<(), PlanError> {
    let texts = texts(flags)?;
    let bad = |error| PlanError::Texts { source: flags.source.clone(), error };
    let name = flags.source.file_name().unwrap_or(flags.source.as_os_str()).to_string_lossy();
    let application = texts.application(&name).map_err(bad)?;
    let plan = planner::plan(&application).map_err(PlanError::Plan)?;
    let report = planner::report(&application, &plan);
    progress.result(report.trim_end());
    for pair in flags.why.chunks_exact(2) {
        why(&application, &plan, pair, progress)?;
    }
    if let Some(folder) = &flags.out {
        write(folder, &application, &plan, &report)?;
    }
    match &flags.expect {
        Some(file) => compare(flags, file, &application, &plan, progress),
        None => Ok(()),
    }
}

fn read(path: &Path) -> Result<String, PlanError> {
    std::fs::read_to_string(path).map_err(|source| PlanError::Unreadable { path: path.to_owned(), source })
}

fn is_word(path: &Path, word: &str) -> bool {
    path.as_os_str() == word
}

fn texts(flags: &PlanFlags) -> Result<Texts, PlanError> {
    let own = is_word(&flags.boundaries, "application");
    let paper = is_word(&flags.boundaries, "paper");
    let known = flags.source.to_str().and_then(builtin).filter(|_| !flags.source.is_dir());
    let mut texts = if let Some(builtin) = known {
        builtin.texts(paper)
    } else {
        let facts = flags.source.join("application.toml");
        Texts {
            schema: read(&flags.source.join("schema.sql"))?,
            transactions: read(&flags.source.join("transactions.sql"))?,
            application: facts.exists().then(|| read(&facts)).transpose()?,
            boundaries: None,
        }
    };
    if paper && known.is_none() {
        texts.boundaries = Some(read(&flags.source.join("boundaries-paper.toml"))?);
    } else if !own && !paper {
        texts.boundaries = Some(read(&flags.boundaries)?);
    }
    Ok(texts)
}

fn why(
    application: &Application,
    plan: &Plan,
    pair: &[String],
    progress: &Progress,
) -> Result<(), PlanError> {
    let column = |text: &String| {
        let (table, name) = text.split_once('.')?;
        let group = Group { table: table.to_owned(), columns: Some(vec![name.to_owned()]) };
        application.columns_of(&group, "--why").ok().map(|_| Column::new(table, name))
    };
    let column = |text: &String| column(text).ok_or_else(|| PlanError::NoColumn(text.clone()));
    let [one, other] = [column(&pair[0])?, column(&pair[1])?];
    match plan.why(&one, &other) {
        Some(chain) => {
            progress.result(format_args!("\n{one} and {other} are in one service:"));
            for joint in chain {
                progress.result(format_args!("  {joint}"));
            }
        }
        None => progress.result(format_args!("\nNothing keeps {one} and {other} in one service.")),
    }
    Ok(())
}

fn write(folder: &Path, application: &Application, plan: &Plan, report: &str) -> Result<(), PlanError> {
    let unwritable = |path: &Path| {
        let path = path.to_owned();
        move |source| PlanError::Unwritable { path, source }
    };
    std::fs::create_dir_all(folder).map_err(unwritable(folder))?;
    for (name, text) in [
        ("services.toml", planner::services_file(application, plan)),
        ("report.txt", report.to_owned()),
        ("rewritten.sql", planner::rewritten_file(plan)),
        ("picture.svg", planner::picture(application, plan)),
    ] {
        let file = folder.join(name);
        std::fs::write(&file, text).map_err(unwritable(&file))?;
    }
    Ok(())
}

fn compare(
    flags: &PlanFlags,
    file: &Path,
    application: &Application,
    plan: &Plan,
    progress: &Progress,
) -> Result<(), PlanError> {
    let known = flags.source.to_str().and_then(builtin).filter(|_| !flags.source.is_dir());
    let text = match known {
        Some(builtin) if is_word(file, "paper") => builtin.expectation.to_owned(),
        None if is_word(file, "paper") => read(&flags.source.join("services-paper.toml"))?,
        _ => read(file)?,
    };
    let bad = |error| PlanError::Texts { source: file.to_owned(), error };
    let comparison = Expectation::read(&text)
        .map_err(bad)?
        .compare(application, plan)
        .map_err(|error| bad(BoundariesError::Application(error)))?;
    progress.result("");
    for [what, why] in &comparison.explained {
        progress.result(format_args!("expected otherwise, explained: {what}: {why}"));
    }
    for what in &comparison.unexplained {
        progress.result(format_args!("expected otherwise: {what}"));
    }
    for what in &comparison.stale {
        progress.result(format_args!("explained, but not so: {what}"));
    }
    if comparison.passes() {
        progress.result("The services are as expected.");
        return Ok(());
    }
    Err(PlanError::Differs { count: comparison.unexplained.len() + comparison.stale.len() })
}
