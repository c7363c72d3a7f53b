//! The sections of a plan that measure preventive replication, each on clusters of its own.

use std::path::Path;

use testbed::fault::Fault;
use testbed::postgres::Likeness;

use super::contestant::Contestant;
use super::result::Results;
use super::scaling::{self, Costs, Paid, Scaled};
use super::steady::{self, Trial};
use super::{Bench, Entrant, delay, origin, write};
use crate::nap::Nap;
use crate::plan::Prepared;
use crate::plan::stamped::{Cost, Delay, Origin, Scaling, Steady, Way};

impl Bench<'_> {
    /// All of them. What has been measured is kept, whatever happens later.
    pub(super) fn stamped(&mut self, results: &mut Results, folder: &Path) -> Result<(), Fault> {
        let plan = self.plan;
        for section in &plan.delays {
            self.delay(section, results)?;
            write(results, folder)?;
        }
        for section in &plan.scalings {
            self.scaling(section, results)?;
            write(results, folder)?;
        }
        for section in &plan.costs {
            self.cost(section, results)?;
            write(results, folder)?;
        }
        for section in &plan.origins {
            self.origin(section, results)?;
            write(results, folder)?;
        }
        Ok(())
    }

    fn delay(&mut self, section: &Delay, results: &mut Results) -> Result<(), Fault> {
        let entrant = Entrant::onecopy(section.replicas, None, section.words());
        let contestant = self.napping(&entrant)?;
        (self.news)(&format!("single calls of {:?} ms", section.times_ms));
        let delays = delay::run(section, self.plan.seed, self.limit(), &contestant, self.environment)?;
        results.stamped.delays.push(delays);
        Ok(())
    }

    fn scaling(&mut self, section: &Scaling, results: &mut Results) -> Result<(), Fault> {
        let Scaling { called, replicas, arguments, message_us, prepared, load, .. } = section;
        let mut points = Vec::new();
        for servers in replicas.iter().copied() {
            let entrant = entrant(servers, arguments, *message_us, load, prepared);
            let contestant = self.calling(&entrant, load)?;
            let readers = section.readers_per_server * usize::from(servers);
            let updating = section.warehouses.iter().map(|count| self.trial(load, *count, 0));
            let reading = section.reader_warehouses.iter().map(|count| self.trial(load, *count, readers));
            let trials: Vec<Trial<'_>> = updating.chain(reading).collect();
            self.warm(&trials, &contestant)?;
            for trial in trials {
                let Trial { warehouses, readers, .. } = trial;
                (self.news)(&format!("{called} x{servers}, {warehouses} warehouses, {readers} readers"));
                points.push(steady::run(&trial, &contestant, self.environment)?);
            }
        }
        results.stamped.scaled.push(Scaled {
            name: called.clone(),
            arguments: arguments.join(" "),
            rate: load.rate_total,
            message_us: *message_us,
            verdicts: scaling::verdicts(&points),
            points,
        });
        Ok(())
    }

    fn cost(&mut self, section: &Cost, results: &mut Results) -> Result<(), Fault> {
        let mut ways = Vec::new();
        for Way { called, arguments } in &section.ways {
            let entrant = entrant(section.replicas, arguments, None, &section.load, &Prepared::default());
            let contestant = self.calling(&entrant, &section.load)?;
            let trials = [self.trial(&section.load, section.load.scale, 0)];
            self.warm(&trials, &contestant)?;
            (self.news)(&format!("the cost of {called}"));
            let point = steady::run(&trials[0], &contestant, self.environment)?;
            ways.push(Paid { name: called.clone(), point });
        }
        results.stamped.costs.push(Costs {
            name: section.called.clone(),
            rate: section.load.rate_total,
            ways,
        });
        Ok(())
    }

    fn origin(&mut self, section: &Origin, results: &mut Results) -> Result<(), Fault> {
        let entrant = Entrant::onecopy(section.replicas, None, section.arguments.clone());
        let contestant = self.napping(&entrant)?;
        (self.news)("the home of a call is killed");
        results.stamped.lost.push(origin::run(section, &contestant, self.environment)?);
        Ok(())
    }

    /// A cluster with the procedure that takes a known time.
    fn napping(&mut self, entrant: &Entrant) -> Result<Contestant, Fault> {
        let started = self.start_filled(entrant, &Likeness::usual(), &Nap { ms: 0 }, "probe")?;
        started.ok_or_else(|| Fault::Missing("onecopy is not installed".into()))
    }

    /// A cluster with the tables and procedures of a load.
    fn calling(&mut self, entrant: &Entrant, load: &Steady) -> Result<Contestant, Fault> {
        let workload = load.workload();
        let started = self.start_filled(entrant, &Likeness::usual(), &*workload, load.tables())?;
        started.ok_or_else(|| Fault::Missing("onecopy is not installed".into()))
    }

    fn trial<'a>(&'a self, load: &'a Steady, warehouses: i32, readers: usize) -> Trial<'a> {
        Trial { plan: self.plan, load, warehouses, readers, limit: self.limit() }
    }

    fn warm(&self, trials: &[Trial<'_>], contestant: &Contestant) -> Result<(), Fault> {
        let widest = trials.iter().max_by_key(|trial| trial.warehouses);
        widest.map_or(Ok(()), |trial| steady::warm(trial, contestant, self.environment))
    }
}

/// Ourselves, with tables that are prepared once they are filled.
fn entrant(
    servers: u16,
    arguments: &[String],
    message_us: Option<u32>,
    load: &Steady,
    prepared: &Prepared,
) -> Entrant {
    Entrant::Onecopy {
        replicas: servers,
        pool_size: None,
        arguments: arguments.to_vec(),
        called: None,
        prepared: [(load.tables().to_owned(), prepared.clone())].into(),
        message_us,
        rule_off: None,
    }
}
