//! The SQL of a rewritten read.
//!
//! A step names its tables as the original does and shows what later steps and the last one need. The numbers of fed
//! parameters start above [`FED`] until the text is whole; then all are numbered from 1 in the order in which they occur.

use std::collections::{BTreeMap, BTreeSet};

use sql::anatomy::{ColumnPlace, Expression, SortBy, parameters, renumbered};

use crate::draft::Draft;
use crate::rewrite::{Feed, Rewritten, Step};

/// Above all numbers of parameters that PostgreSQL takes from a client.
const FED: u32 = 70_000;

/// What the steps show: the step and the name of each column.
#[derive(Default)]
struct Shown {
    /// The columns of each step.
    steps: Vec<Vec<ColumnPlace>>,
    /// The step that gives a column to the last one.
    from: BTreeMap<ColumnPlace, usize>,
}

/// An identifier, in quotes if it needs them.
pub(crate) fn quoted(name: &str) -> String {
    let plain = name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    if plain && !RESERVED.contains(&name) {
        name.to_owned()
    } else {
        format!("\"{}\"", name.replace('"', "\"\""))
    }
}

/// Words of SQL that people use as names, and that need quotes then.
const RESERVED: [&str; 12] = [
    "all",
    "check",
    "default",
    "desc",
    "end",
    "from",
    "group",
    "limit",
    "order",
    "references",
    "table",
    "user",
];

/// The steps and the combination of a draft that has its order.
pub(crate) fn write(draft: &Draft<'_>) -> Rewritten {
    let shown = shown(draft);
    let steps = (0..draft.placed.len()).map(|at| step(draft, &shown, at)).collect();
    let combine = combine(draft, &shown);
    let parameters = parameters(&combine);
    Rewritten { steps, combine: renumbered(&combine, &parameters), parameters }
}

fn alias(draft: &Draft<'_>, place: ColumnPlace) -> String {
    draft.query.anatomy.relations[place.relation].alias.clone()
}

/// The name of a column in an answer: its own, unless two tables of the read have it.
fn name(draft: &Draft<'_>, place: ColumnPlace) -> String {
    let own = draft.column(place).name;
    let relations = &draft.query.anatomy.relations;
    let has = |relation: &usize| {
        let table = draft.application.catalogue.table(relations[*relation].table);
        table.is_some_and(|table| table.columns.iter().any(|column| column.name == own))
    };
    if (0..relations.len()).filter(has).count() > 1 { format!("{}_{own}", alias(draft, place)) } else { own }
}

fn shown(draft: &Draft<'_>) -> Shown {
    let mut wanted: BTreeSet<ColumnPlace> = draft.sorted_by();
    for target in &draft.targets {
        let pushed = draft.pushed.is_some() && target.expression.has_aggregate();
        wanted.extend(target.expression.columns().into_iter().filter(|_| !pushed));
    }
    for (conjunct, local) in draft.plain.conjuncts.iter().zip(&draft.local) {
        if local.is_empty() {
            wanted.extend(conjunct.expression.columns());
        }
    }
    if draft.pushed.is_none() {
        wanted.extend(draft.plain.grouping.iter().flat_map(Expression::columns));
    } else if draft.is_aggregated() {
        let aggregated = draft.targets.iter().filter(|target| target.expression.has_aggregate());
        let sums: BTreeSet<ColumnPlace> = aggregated.flat_map(|target| target.expression.columns()).collect();
        let grouped: BTreeSet<ColumnPlace> =
            draft.plain.grouping.iter().flat_map(Expression::columns).collect();
        wanted.retain(|place| !sums.contains(place) || grouped.contains(place));
    }
    let mut shown = Shown::default();
    for (at, placed) in draft.placed.iter().enumerate() {
        let keys = draft.bridges.iter().filter(|bridge| bridge.conjunct.is_none()).map(|bridge| bridge.to);
        let keys: BTreeSet<ColumnPlace> = keys.filter(|place| draft.can_read(placed.part, *place)).collect();
        let first =
            |place: &&ColumnPlace| draft.can_read(placed.part, **place) && !shown.from.contains_key(place);
        let mut columns: BTreeSet<ColumnPlace> = wanted.iter().filter(first).copied().collect();
        columns.extend(keys);
        for &place in &columns {
            shown.from.entry(place).or_insert(at);
        }
        shown.steps.push(columns.into_iter().collect());
    }
    shown
}

fn step(draft: &Draft<'_>, shown: &Shown, at: usize) -> Step {
    let placed = &draft.placed[at];
    let part = &draft.parts[placed.part];
    let named = |place: ColumnPlace| (alias(draft, place), draft.column(place).name);
    let own = |place: ColumnPlace| {
        format!("{}.{}", quoted(&alias(draft, place)), quoted(&draft.column(place).name))
    };
    let mut items: Vec<String> = shown.steps[at]
        .iter()
        .map(|&place| match name(draft, place) {
            name if name == draft.column(place).name => own(place),
            name => format!("{} AS {}", own(place), quoted(&name)),
        })
        .collect();
    let pushes = draft.pushed == Some(placed.part);
    if pushes {
        let aggregated = draft.targets.iter().filter(|target| target.expression.has_aggregate());
        items.extend(
            aggregated
                .map(|target| format!("{} AS {}", target.expression.text(&named), quoted(&target.name))),
        );
    }
    if items.is_empty() {
        items.push("1 AS one".to_owned());
    }
    let from: Vec<String> = part.mentions.iter().map(|&mention| relation(draft, mention)).collect();
    let mut conditions: Vec<String> = Vec::new();
    for (conjunct, local) in draft.plain.conjuncts.iter().zip(&draft.local) {
        if local.contains(&placed.part) {
            conditions.push(conjunct.expression.text(&named));
        }
    }
    let mut fed = Vec::new();
    for feed in &placed.fed {
        let number = FED + u32::try_from(fed.len()).unwrap_or_default();
        conditions.push(format!("{} = ANY(${number})", own(feed.bridge.to)));
        let step = draft.placed.iter().position(|done| done.part == feed.by).map_or(0, |step| step + 1);
        let columns = feed.bridge.from.iter().map(|&place| name(draft, place)).collect();
        fed.push(Feed::Columns { step, columns });
    }
    let mut text = format!("SELECT {} FROM {}", items.join(", "), from.join(", "));
    if !conditions.is_empty() {
        text.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
    }
    if pushes {
        let grouped: Vec<String> = shown.steps[at].iter().map(|&place| own(place)).collect();
        if draft.is_aggregated() && !grouped.is_empty() {
            text.push_str(&format!(" GROUP BY {}", grouped.join(", ")));
        }
        text.push_str(&order(draft, &|expression| expression.text(&named), true));
        text.push_str(&bounds(draft, true));
    }
    let numbers = parameters(&text);
    let parameters = numbers.iter().map(|&number| match number.checked_sub(FED) {
        Some(at) => fed[at as usize].clone(),
        None => Feed::Parameter(number),
    });
    Step { service: part.service, text: renumbered(&text, &numbers), parameters: parameters.collect() }
}

fn relation(draft: &Draft<'_>, mention: usize) -> String {
    let mention = &draft.query.anatomy.relations[mention];
    let table = draft.application.catalogue.table(mention.table).map_or("", |table| table.name.as_str());
    if table == mention.alias {
        quoted(table)
    } else {
        format!("{} AS {}", quoted(table), quoted(&mention.alias))
    }
}

/// ORDER BY. A sum has the name of its item.
fn order(draft: &Draft<'_>, text: &dyn Fn(&Expression) -> String, names_sums: bool) -> String {
    let keys = draft.plain.order.iter().map(|key| {
        let by = match &key.by {
            SortBy::Target(at) => {
                let target = &draft.plain.targets[*at];
                let named = names_sums && target.expression.has_aggregate();
                if named { quoted(&target.name) } else { text(&target.expression) }
            }
            SortBy::Expression(expression) => text(expression),
        };
        by + &key.suffix
    });
    let keys: Vec<String> = keys.collect();
    if keys.is_empty() { String::new() } else { format!(" ORDER BY {}", keys.join(", ")) }
}

/// LIMIT and OFFSET, neither of which can have columns.
fn bounds(draft: &Draft<'_>, with_offset: bool) -> String {
    let text = |expression: &Option<Expression>, word: &str| {
        let expression = expression.as_ref().map(|one| one.text(&|_| (String::new(), String::new())));
        expression.map_or_else(String::new, |text| format!(" {word} {text}"))
    };
    let offset = if with_offset { text(&draft.plain.offset, "OFFSET") } else { String::new() };
    text(&draft.plain.limit, "LIMIT") + &offset
}

fn combine(draft: &Draft<'_>, shown: &Shown) -> String {
    let step_of = |place: ColumnPlace| shown.from.get(&place).map_or(0, |at| at + 1);
    let named = |place: ColumnPlace| (format!("step{}", step_of(place)), name(draft, place));
    let pushed = draft.pushed.and_then(|part| draft.placed.iter().position(|done| done.part == part));
    let reckoned = |target: &sql::anatomy::Target| match pushed {
        Some(at) if target.expression.has_aggregate() => {
            Some(format!("step{}.{}", at + 1, quoted(&target.name)))
        }
        _ => None,
    };
    let items = draft.targets.iter().map(|target| {
        let text = reckoned(target).unwrap_or_else(|| target.expression.text(&named));
        format!("{text} AS {}", quoted(&target.name))
    });
    let items: Vec<String> = items.collect();
    let from: Vec<String> = (1..=draft.placed.len()).map(|step| format!("step{step}")).collect();
    let mut conditions: Vec<String> = Vec::new();
    for (conjunct, local) in draft.plain.conjuncts.iter().zip(&draft.local) {
        if local.is_empty() {
            conditions.push(conjunct.expression.text(&named));
        }
    }
    for bridge in draft.bridges.iter().filter(|bridge| bridge.conjunct.is_none()) {
        let first = step_of(bridge.to);
        let others = shown
            .steps
            .iter()
            .enumerate()
            .filter(|(at, shows)| at + 1 != first && shows.contains(&bridge.to));
        let name = quoted(&name(draft, bridge.to));
        conditions.extend(others.map(|(at, _)| format!("step{}.{name} = step{first}.{name}", at + 1)));
    }
    let mut text = format!("SELECT {} FROM {}", items.join(", "), from.join(", "));
    if !conditions.is_empty() {
        text.push_str(&format!(" WHERE {}", conditions.join(" AND ")));
    }
    if draft.is_aggregated() && pushed.is_none() && !draft.plain.grouping.is_empty() {
        let grouped: Vec<String> = draft.plain.grouping.iter().map(|one| one.text(&named)).collect();
        text.push_str(&format!(" GROUP BY {}", grouped.join(", ")));
    }
    text.push_str(&order(draft, &|expression| expression.text(&named), pushed.is_some()));
    text.push_str(&bounds(draft, pushed.is_none()));
    text
}
