//! What is true of every plan, over random small applications.
//!
//! Each application is made from a seed, together with a plain record of what its statements read and write. The rules are
//! checked on that record, so a mistake in how the planner reads statements shows, too.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod sketch;

use std::collections::{BTreeMap, BTreeSet};

use planner::{Answer, Column, Plan, plan, services_file};
use sketch::{COLUMNS, Dice, Sketch, column};
use sql::anatomy::anatomy;

const SEEDS: u64 = 150;
fn homes(plan: &Plan) -> BTreeMap<Column, usize> {
    let homes = plan.services.iter().enumerate();
    homes.flat_map(|(at, service)| service.columns.iter().map(move |column| (column.clone(), at))).collect()
}

/// 4.1: "cluster the data into services such that no transaction overlaps multiple data services".
#[test]
fn no_transaction_spans_two_services() {
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, true);
        let plan = plan(&sketch.application()).unwrap();
        let homes = homes(&plan);
        for kept in sketch.kept() {
            let services: BTreeSet<usize> = kept.iter().map(|column| homes[column]).collect();
            assert!(services.len() <= 1, "seed {seed}: {kept:?}");
        }
    }
}

#[test]
fn every_column_has_one_home_and_keys_are_repeated() {
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, true);
        let plan = plan(&sketch.application()).unwrap();
        let total: usize = plan.services.iter().map(|service| service.columns.len()).sum();
        let homes = homes(&plan);
        assert_eq!(total, homes.len(), "seed {seed}: a column has two homes");
        let grown = sketch.grown();
        for table in &sketch.tables {
            for name in COLUMNS {
                let repeated = name == "k" && !grown.contains(table.as_str());
                assert_ne!(homes.contains_key(&column(table, name)), repeated, "seed {seed}: {table}.{name}");
            }
        }
    }
}

/// 4.1: "the largest possible number of services": no part of a service could be a service of its own. Without reads, so
/// that only the rules of 4.1 are at work.
#[test]
fn splitting_a_service_breaks_a_rule() {
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, false);
        let plan = plan(&sketch.application()).unwrap();
        let mut kept = sketch.kept();
        kept.extend(plan.merges.iter().map(|merge| merge.columns.clone()));
        let mut dice = Dice(seed);
        for service in plan.services.iter().filter(|service| service.updated && service.columns.len() > 1) {
            for _ in 0..10 {
                let mut columns: Vec<&Column> = service.columns.iter().collect();
                dice.shuffle(&mut columns);
                let part: BTreeSet<&Column> =
                    columns[..=dice.below(columns.len() - 1)].iter().copied().collect();
                let splits = |kept: &&BTreeSet<Column>| {
                    let inside = kept.iter().filter(|column| part.contains(column)).count();
                    inside > 0 && inside < kept.len()
                };
                assert!(
                    kept.iter().any(|kept| splits(&kept)),
                    "seed {seed}: {part:?} of {:?}",
                    service.columns
                );
            }
        }
    }
}

/// 4.2: "each sub-query can execute in one data service".
#[test]
fn every_statement_finds_what_it_reads_in_its_service() {
    let mut rewritten_reads = 0;
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, true);
        let application = sketch.application();
        let plan = plan(&application).unwrap();
        let finds = |service: usize, columns: &BTreeSet<Column>| {
            let service = &plan.services[service];
            let here: BTreeSet<&Column> =
                service.columns.iter().chain(service.copies.iter().map(|copy| &copy.column)).collect();
            let has = |column: &Column| {
                here.contains(column)
                    || (column.name == "k" && here.iter().any(|other| other.table == column.table))
            };
            assert!(columns.iter().all(has), "seed {seed}: {columns:?} in {here:?}");
        };
        for (name, answer) in &plan.answers {
            match answer {
                Answer::Whole(service) => finds(service.unwrap(), &sketch.made(name).reads),
                Answer::Rewritten(rewritten) => {
                    rewritten_reads += 1;
                    for step in &rewritten.steps {
                        let read = anatomy(&step.text, &application.catalogue).unwrap();
                        let columns = read.output.iter().chain(&read.deciding).map(|place| {
                            let table = read.relations[place.relation].table;
                            let table = application.catalogue.table(table).unwrap();
                            column(&table.name, &table.columns[place.column].name)
                        });
                        finds(step.service, &columns.collect());
                    }
                }
            }
        }
        assert_eq!(plan.answers.len(), sketch.made.len());
    }
    assert!(rewritten_reads > 20, "only {rewritten_reads} reads were rewritten");
}

/// A copy is never where its column is at home, and a read that is answered whole needs none of its own making.
#[test]
fn copies_are_of_columns_of_other_services() {
    for seed in 0..SEEDS {
        let plan = plan(&Sketch::new(seed, true).application()).unwrap();
        for service in &plan.services {
            assert!(service.copies.iter().all(|copy| !service.columns.contains(&copy.column)), "seed {seed}");
            assert!(service.copies.iter().all(|copy| copy.updates == 0.0), "seed {seed}: rates are all one");
        }
    }
}

#[test]
fn the_order_of_the_input_does_not_matter() {
    for seed in 0..SEEDS {
        let sketch = Sketch::new(seed, true);
        let mut other = sketch.clone();
        let mut dice = Dice(!seed);
        dice.shuffle(&mut other.tables);
        dice.shuffle(&mut other.made);
        dice.shuffle(&mut other.units);
        let [one, other] = [sketch, other].map(|sketch| sketch.application());
        let plans = [plan(&one).unwrap(), plan(&other).unwrap()];
        assert_eq!(plans[0], plans[1], "seed {seed}");
        assert_eq!(services_file(&one, &plans[0]), services_file(&other, &plans[1]), "seed {seed}");
    }
}
