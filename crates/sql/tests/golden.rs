//! Every statement of `golden/statements.txt` with what is concluded about it.
//!
//! In that file a statement is a paragraph; the lines that begin with `=>` after it say the outcome. Run with
//! `UPDATE_GOLDEN=1` to write the outcomes anew, then read the difference.

use std::fmt::Write as _;
use std::path::Path;

use sql::{Access, Analyzer, Catalogue, Claims, Limits, Name, RowEffect, Statement, TableId, Verb};

mod fixture;

fn tables(ids: &[TableId], catalogue: &Catalogue) -> String {
    let names = ids.iter().map(|id| catalogue.table(*id).map_or("?", |table| table.name.as_str()));
    names.collect::<Vec<_>>().join(" ")
}

fn names(names: &[Name]) -> String {
    names.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

fn kind(verb: &Verb) -> String {
    match verb {
        Verb::Copy { table, direction, freeze, .. } => {
            let table = table.as_ref().map_or_else(|| "query".to_owned(), ToString::to_string);
            format!("Copy {direction:?} {table}{}", if *freeze { " frozen" } else { "" })
        }
        verb => format!("{verb:?}"),
    }
}

fn outcome(statement: &Statement, catalogue: &Catalogue) -> String {
    match &statement.verb {
        Verb::Refused { what, .. } => return format!("=> refused: {what}"),
        Verb::Ddl(facts) => {
            let kind = if facts.temporary { "temporary ddl" } else { "ddl" };
            let rows = match &facts.rows {
                RowEffect::Same => String::new(),
                effect => format!(" {effect:?}"),
            };
            let plain = if facts.concurrently { " concurrently" } else { "" };
            return format!("=> {kind} {} [{}]{rows}{plain}", facts.tag, names(&facts.relations));
        }
        verb @ (Verb::Begin(_) | Verb::Set { .. } | Verb::Maintenance(_)) => return format!("=> {verb:?}"),
        _ => {}
    }
    let routing = statement.routing(catalogue);
    let mut line = vec![format!("=> {}", kind(&statement.verb))];
    line.push(match &routing.access {
        Access::Read(ids) => format!("read [{}]", tables(ids, catalogue)),
        Access::Anchor(because) => format!("anchor {because:?}"),
    });
    line.push(match &routing.claims {
        Claims::Tables(ids) => format!("claims [{}]", tables(ids, catalogue)),
        claims => format!("claims {claims:?}"),
    });
    for (label, list) in [("writes", &statement.writes), ("locks", &statement.row_locks)] {
        if !list.is_empty() {
            line.push(format!("{label} [{}]", names(list)));
        }
    }
    line.extend(statement.settings.iter().map(|call| format!("{call:?}")));
    line.extend(statement.opaque.map(|why| format!("{why:?}")));
    line.join(" | ")
}

#[test]
fn outcomes_are_as_written() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/statements.txt");
    let golden = std::fs::read_to_string(&path).unwrap();
    let catalogue = fixture::catalogue();
    let mut analyzer = Analyzer::new(Limits::default());
    let mut fresh = String::new();
    for paragraph in golden.split("\n\n") {
        let lines: Vec<&str> = paragraph.lines().filter(|line| !line.starts_with("=>")).collect();
        let text = lines.join("\n");
        if text.trim().is_empty() {
            continue;
        }
        writeln!(fresh, "{text}").unwrap();
        if lines.iter().all(|line| line.starts_with("##")) {
            fresh.push('\n');
            continue;
        }
        match analyzer.script(text.as_bytes(), true) {
            Ok(script) => {
                for part in &script.statements {
                    writeln!(fresh, "{}", outcome(&part.statement, &catalogue)).unwrap();
                }
            }
            Err(error) => writeln!(fresh, "=> error: {error}").unwrap(),
        }
        fresh.push('\n');
    }
    let fresh = format!("{}\n", fresh.trim_end());
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &fresh).unwrap();
        return;
    }
    for (line, (old, new)) in golden.lines().zip(fresh.lines()).enumerate() {
        assert_eq!(old, new, "line {}", line + 1);
    }
    assert_eq!(golden.lines().count(), fresh.lines().count());
}
