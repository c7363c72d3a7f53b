//! Reads the file, variables and flags into raw values that remember their place.

mod placement;

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::{Path, PathBuf};

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::error::ConfigError;
use super::flags::Given;
use super::settings::SETTINGS;
pub(super) use placement::RawRule;

/// The variable that lists servers.
const REPLICAS_VARIABLE: &str = "ONECOPY_REPLICAS";
/// Greatest edit distance at which we suggest a setting's name.
const SLIP_MAX: usize = 3;

/// Whether a variable of this name changes a configuration.
pub(crate) fn is_variable(name: &str) -> bool {
    name == REPLICAS_VARIABLE || SETTINGS.iter().any(|setting| setting.variable() == name)
}

/// A value as it was written, and its place.
#[derive(Clone, Debug)]
pub(super) struct Raw {
    pub(super) text: String,
    place: Place,
}

#[derive(Clone, Debug)]
enum Place {
    File(File, Range<usize>),
    Elsewhere(String),
}

#[derive(Clone, Debug)]
struct File {
    path: PathBuf,
    text: std::rc::Rc<str>,
}

impl Raw {
    /// An error at this place.
    pub(super) fn mistake(&self, what: impl Into<String>, help: impl Into<String>) -> ConfigError {
        match &self.place {
            Place::File(file, span) => ConfigError::in_file(&file.path, &file.text, span.clone(), what, help),
            Place::Elsewhere(place) => ConfigError::elsewhere(place, what, help),
        }
    }

    /// The file and the line, as in `onecopy.toml:12`.
    pub(super) fn line(&self) -> String {
        match &self.place {
            Place::File(file, span) => {
                let before = file.text.get(..span.start).unwrap_or_default();
                format!("{}:{}", file.path.display(), before.matches('\n').count() + 1)
            }
            Place::Elsewhere(place) => place.clone(),
        }
    }

    /// Where it begins in the file.
    fn start(&self) -> usize {
        match &self.place {
            Place::File(_, span) => span.start,
            Place::Elsewhere(_) => 0,
        }
    }
}

/// A server as it was written.
#[derive(Clone, Debug)]
pub(super) struct RawReplica {
    pub(super) name: Option<Raw>,
    pub(super) url: Option<Raw>,
    pub(super) place: Raw,
}

impl RawReplica {
    /// The place for an error about the server as a whole.
    pub(super) fn url_or_table(&self) -> &Raw {
        self.url.as_ref().unwrap_or(&self.place)
    }
}

/// All values, only the one of highest rank for each setting.
#[derive(Debug)]
pub(super) struct Sources {
    values: BTreeMap<&'static str, Vec<Raw>>,
    pub(super) replicas: Vec<RawReplica>,
    pub(super) placement: Vec<RawRule>,
    path: Option<PathBuf>,
}

impl Sources {
    pub(super) fn get(&self, name: &str) -> Option<&[Raw]> {
        self.values.get(name).map(Vec::as_slice)
    }

    /// The error for a configuration without servers.
    pub(super) fn missing_replicas(&self) -> ConfigError {
        let place =
            self.path.as_ref().map_or_else(|| "no file".to_owned(), |path| path.display().to_string());
        let help = format!(
            "add [[replica]] with url = \"postgresql://host:5432\", or use --replica or {REPLICAS_VARIABLE}"
        );
        ConfigError::elsewhere(place, "no replica is named", help)
    }
}

/// Collects the values. Errors go to `mistakes`.
pub(super) fn collect(
    path: Option<&Path>,
    text: &str,
    environment: impl Fn(&str) -> Option<String>,
    flags: &Given,
    mistakes: &mut Vec<ConfigError>,
) -> Sources {
    let mut sources = Sources {
        values: BTreeMap::new(),
        replicas: Vec::new(),
        placement: Vec::new(),
        path: path.map(Path::to_owned),
    };
    if let Some(path) = path {
        let file = File { path: path.to_owned(), text: text.into() };
        read_file(&file, &mut sources, mistakes);
    }
    for setting in SETTINGS {
        let variable = setting.variable();
        let said = environment(&variable).map(|text| (text, variable));
        let flag = flags.values.get(setting.name).map(|text| (text.clone(), format!("--{}", setting.flag)));
        if let Some((text, place)) = flag.or(said) {
            sources.values.insert(setting.name, vec![Raw { text, place: Place::Elsewhere(place) }]);
        }
    }
    let listed = environment(REPLICAS_VARIABLE);
    let listed: Vec<String> =
        listed.iter().flat_map(|list| list.split(',')).map(|url| url.trim().to_owned()).collect();
    let (urls, place) =
        if flags.replicas.is_empty() { (&listed, REPLICAS_VARIABLE) } else { (&flags.replicas, "--replica") };
    if !urls.is_empty() {
        let raw = |text: &String| Raw { text: text.clone(), place: Place::Elsewhere(place.to_owned()) };
        let replica = |url: &String| RawReplica { name: None, url: Some(raw(url)), place: raw(url) };
        sources.replicas = urls.iter().map(replica).collect();
    }
    sources
}

fn read_file(file: &File, sources: &mut Sources, mistakes: &mut Vec<ConfigError>) {
    let (table, errors) = DeTable::parse_recoverable(&file.text);
    for error in errors {
        let span = error.span().unwrap_or_default();
        mistakes.push(ConfigError::in_file(&file.path, &file.text, span, error.message(), "this is no TOML"));
    }
    for (key, value) in table.get_ref() {
        let name: &str = key.get_ref();
        if name == "replica" {
            read_replicas(file, value, sources, mistakes);
        } else if name == "placement" {
            sources.placement = placement::read(file, value, mistakes);
        } else if let DeValue::Table(entries) = value.get_ref()
            && is_table(name)
        {
            for (key, value) in entries {
                let name = format!("{name}.{}", key.get_ref());
                read_setting(file, &name, key.span(), value, sources, mistakes);
            }
        } else {
            read_setting(file, name, key.span(), value, sources, mistakes);
        }
    }
}

/// Whether settings have their names in a table of this name, such as `[elastic]`.
fn is_table(name: &str) -> bool {
    SETTINGS.iter().any(|setting| setting.name.split_once('.').is_some_and(|(table, _)| table == name))
}

fn read_setting(
    file: &File,
    name: &str,
    span: Range<usize>,
    value: &Spanned<DeValue<'_>>,
    sources: &mut Sources,
    mistakes: &mut Vec<ConfigError>,
) {
    let Some(setting) = SETTINGS.iter().find(|setting| setting.name == name) else {
        let known = SETTINGS.iter().map(|setting| setting.name).chain(["replica", "placement"]);
        mistakes.push(unknown(file, span, name, known));
        return;
    };
    let raw = raws(file, value, mistakes);
    if !raw.is_empty() {
        sources.values.insert(setting.name, raw);
    }
}

fn unknown<'a>(
    file: &File,
    span: Range<usize>,
    name: &str,
    known: impl Iterator<Item = &'a str>,
) -> ConfigError {
    let nearest = known.map(|word| (distance(word, name), word)).min();
    let help = match nearest {
        Some((far, word)) if far <= SLIP_MAX => format!("did you mean {word}?"),
        _ => "docs/reference/configuration.md lists the settings".to_owned(),
    };
    ConfigError::in_file(&file.path, &file.text, span, format!("there is no setting \"{name}\""), help)
}

fn read_replicas(
    file: &File,
    value: &Spanned<DeValue<'_>>,
    sources: &mut Sources,
    mistakes: &mut Vec<ConfigError>,
) {
    let tables = match value.get_ref() {
        DeValue::Array(array) => array.iter().collect(),
        _ => vec![value],
    };
    for table in tables {
        let DeValue::Table(entries) = table.get_ref() else {
            let help = "write [[replica]] on a line of its own, and name and url below";
            mistakes.push(ConfigError::in_file(
                &file.path,
                &file.text,
                table.span(),
                "a replica is a table",
                help,
            ));
            continue;
        };
        let place = Raw { text: String::new(), place: Place::File(file.clone(), table.span()) };
        let mut replica = RawReplica { name: None, url: None, place };
        for (key, value) in entries {
            let name: &str = key.get_ref();
            let mut raw = raws(file, value, mistakes);
            match name {
                "name" => replica.name = raw.pop(),
                "url" => replica.url = raw.pop(),
                _ => mistakes.push(unknown(file, key.span(), name, ["name", "url"].into_iter())),
            }
        }
        sources.replicas.push(replica);
    }
}

/// The texts of a value: one, or the elements of a list.
fn raws(file: &File, value: &Spanned<DeValue<'_>>, mistakes: &mut Vec<ConfigError>) -> Vec<Raw> {
    let raw = |text: &str| Raw { text: text.to_owned(), place: Place::File(file.clone(), value.span()) };
    match value.get_ref() {
        DeValue::String(text) => vec![raw(text)],
        DeValue::Integer(number) => vec![raw(number.as_str())],
        DeValue::Float(number) => vec![raw(number.as_str())],
        DeValue::Boolean(is_true) => vec![raw(if *is_true { "true" } else { "false" })],
        DeValue::Array(array) => array.iter().flat_map(|item| raws(file, item, mistakes)).collect(),
        other => {
            let what = format!("a {} is no value of a setting", other.type_str());
            mistakes.push(ConfigError::in_file(
                &file.path,
                &file.text,
                value.span(),
                what,
                "write it as a text in quotes",
            ));
            Vec::new()
        }
    }
}

/// The edit distance (Levenshtein) between two words.
fn distance(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (i, a) in from.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, b) in to.iter().enumerate() {
            let changed = diagonal + usize::from(a != *b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(row[j] + 1).min(diagonal + 1);
        }
    }
    row[to.len()]
}
