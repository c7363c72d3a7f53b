//! The report: ratios of bars within a round beside the paper's and the simulation's, and the loss of a node.

use std::fmt;

use super::bar::Bar;
use super::loss::{Fate, Loss};
use super::{KILLED_UNDER, MIXES, Options};
use crate::run::result::Run;
use crate::spread::{Cell, Spread};
use crate::tpcw::Mix;

/// One run of a bar.
pub(super) struct Measured {
    pub(super) mix: Mix,
    pub(super) bar: Bar,
    pub(super) run: Run,
    /// Whether the same node has led from the beginning to the end.
    pub(super) is_led_on: bool,
}

impl Measured {
    fn counts(&self) -> bool {
        self.run.counts() && self.is_led_on
    }
}

/// A bar and the one that it is compared with.
struct Comparison {
    bar: Bar,
    with: Bar,
    /// What the paper states for browsing, shopping and ordering (section 8.4).
    stated: [&'static str; 3],
    /// Our simulation's, with 8 replicas (`docs/explanation/protocols/conflict-aware.md`).
    simulated: Option<[f64; 3]>,
}

const COMPARISONS: [Comparison; 4] = [
    Comparison {
        bar: Bar::Filed,
        with: Bar::NotLogged,
        stated: ["1", "1", "0.84"],
        simulated: Some([0.99, 0.98, 0.86]),
    },
    Comparison { bar: Bar::Nodes(1), with: Bar::Filed, stated: ["-"; 3], simulated: None },
    Comparison {
        bar: Bar::Nodes(2),
        with: Bar::Nodes(1),
        stated: [">= 0.95"; 3],
        simulated: Some([1.00, 1.00, 1.01]),
    },
    Comparison {
        bar: Bar::Nodes(3),
        with: Bar::Nodes(1),
        stated: [">= 0.95"; 3],
        simulated: Some([1.00, 0.97, 0.99]),
    },
];

/// Everything that was found.
pub(super) struct Report<'a> {
    pub(super) options: &'a Options,
    pub(super) circumstances: &'a str,
    pub(super) measured: &'a [Measured],
    pub(super) loss: Option<&'a Loss>,
}

impl Report<'_> {
    /// Whether an answer was wrong, or a commit is lost.
    pub(super) fn is_wrong(&self) -> bool {
        self.measured.iter().any(|one| !one.run.wrong.is_empty())
            || self.loss.is_some_and(|loss| !loss.wrong.is_empty())
    }

    /// The runs of a bar that count.
    fn runs(&self, mix: Mix, bar: Bar) -> impl Iterator<Item = &Run> {
        let of = move |one: &&Measured| one.mix == mix && one.bar == bar && one.counts();
        self.measured.iter().filter(of).map(|one| &one.run)
    }

    /// The ratios of a comparison in each round.
    fn ratios(&self, mix: Mix, bar: Bar, with: Bar) -> Option<Spread> {
        let pairs = self.runs(mix, bar).filter_map(|run| {
            let other = self.runs(mix, with).find(|other| other.round == run.round)?;
            Some(run.throughput / other.throughput)
        });
        Spread::of(pairs)
    }

    /// How much of their shares the servers used.
    fn used(&self, mix: Mix, bar: Bar) -> Option<Spread> {
        let given = self.options.limit().given();
        let used = |run: &Run| run.servers_cores.iter().sum::<f64>() / run.servers_cores.len() as f64 / given;
        Spread::of(self.runs(mix, bar).map(used))
    }

    fn compared(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "| mix | throughput | live | simulated | paper |\n|---|---|---|---|---|")?;
        for (at, mix) in MIXES.into_iter().enumerate() {
            for Comparison { bar, with, stated, simulated } in &COMPARISONS {
                let Some(ratios) = self.ratios(mix, *bar, *with) else { continue };
                let simulated = simulated.map_or_else(|| "-".to_owned(), |all| format!("{:.2}", all[at]));
                let (mix, stated) = (mix.name(), stated[at]);
                writeln!(f, "| {mix} | {bar} : {with} | {ratios} | {simulated} | {stated} |")?;
            }
        }
        writeln!(f)
    }

    fn shares(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bars = self.options.bars();
        write!(
            f,
            "The servers used this much of their shares. Below 0.9 something else was the limit: locks, or waits.\n\n| mix |"
        )?;
        bars.iter().try_for_each(|bar| write!(f, " {bar} |"))?;
        writeln!(f, "\n|---{}|", "|---".repeat(bars.len()))?;
        for mix in MIXES {
            write!(f, "| {} |", mix.name())?;
            bars.iter().try_for_each(|bar| write!(f, " {} |", Cell(self.used(mix, *bar), 2)))?;
            writeln!(f)?;
        }
        writeln!(f)
    }

    fn remarks(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(strangers) = Spread::of(self.measured.iter().map(|one| one.run.strangers)) {
            writeln!(f, "Other programs used {strangers} of the machine.")?;
        }
        for Measured { mix, bar, run, is_led_on } in self.measured {
            let at = format!("{}, {bar}, round {}", mix.name(), run.round);
            for beyond in &run.beyond {
                writeln!(f, "{at} does not count: {beyond}.")?;
            }
            if !is_led_on {
                writeln!(f, "{at} does not count: another node leads than at its beginning.")?;
            }
            for wrong in &run.wrong {
                writeln!(f, "WRONG: {at}: {wrong}")?;
            }
        }
        Ok(())
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Options { rounds, seconds, clients, replicas, cores_per_server, protocol, .. } = self.options;
        writeln!(
            f,
            "{}. TPC-W under protocol {protocol}; {replicas} servers with {cores_per_server} of a processor each, {clients} busy clients, \
             {rounds} rounds of {seconds} s. Throughput as a ratio within a round: median (least-most). Paper and simulation have 8 \
             replicas.\n",
            self.circumstances
        )?;
        self.compared(f)?;
        self.shares(f)?;
        self.remarks(f)?;
        self.loss.map_or(Ok(()), |loss| write!(f, "\n{loss}"))
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mix = KILLED_UNDER.name();
        write!(
            f,
            "A node that follows is killed (SIGKILL) under the {mix} mix, a third of the clients at it. Servers are not limited here. \
             Throughput as a ratio to that before:\n\n\
             | clients of | all seconds after | each second after | longest time without success before, s | after, s | failed |\n\
             |---|---|---|---|---|---|\n"
        )?;
        for (whose, fate) in [("living nodes", &self.living), ("the killed node", &self.lost)] {
            let Fate { ratio, seconds, silence_before_s, silence_after_s, failed } = fate;
            let seconds: Vec<String> = seconds.iter().map(|ratio| format!("{ratio:.2}")).collect();
            writeln!(
                f,
                "| {whose} | {ratio:.2} | {} | {silence_before_s:.1} | {silence_after_s:.1} | {failed} |",
                seconds.join(" ")
            )?;
        }
        let back = if self.is_back { "serves again" } else { "**does not serve again within a minute**" };
        writeln!(
            f,
            "\nThe killed node {back}. Clients do not know the outcome of {} changes.",
            self.doubtful
        )?;
        if self.wrong.is_empty() {
            return writeln!(
                f,
                "Every acknowledged commit is there, nothing twice, and all replicas are identical."
            );
        }
        self.wrong.iter().try_for_each(|wrong| writeln!(f, "WRONG: after the kill: {wrong}"))
    }
}
