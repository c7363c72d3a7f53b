//! The output of pgbench and the node as a table.

use std::fmt;
use std::time::Duration;

use testbed::fault::Fault;

/// The transactions that clients have completed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Pace {
    /// The rate of each second, by its end.
    seconds: Vec<(f64, f64)>,
    /// Transactions in all.
    done: u64,
    /// Transactions that were told to run again, and did.
    retried: u64,
    /// Transactions whose client was told of an error.
    failed: u64,
}

impl Pace {
    /// Reads a report of pgbench's.
    pub(super) fn read(said: &str) -> Result<Self, Fault> {
        let number = |title: &str| {
            let line = said.lines().find_map(|line| line.strip_prefix(title)?.strip_prefix(": "));
            let digits: String = line?.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok()
        };
        let unreadable = || Fault::Unreadable { what: "the report of pgbench".into(), said: said.to_owned() };
        if said.contains(" aborted") {
            return Err(unreadable());
        }
        Ok(Self {
            seconds: seconds(said),
            done: number("number of transactions actually processed").ok_or_else(unreadable)?,
            failed: number("number of failed transactions").ok_or_else(unreadable)?,
            retried: number("number of transactions retried").unwrap_or_default(),
        })
    }

    /// The mean and the slowest second of a time, in transactions a second.
    fn between(&self, from_s: f64, upto_s: f64) -> Option<(f64, f64)> {
        let within = |at: f64| at > from_s && at <= upto_s;
        let rates: Vec<f64> =
            self.seconds.iter().filter(|(at, _)| within(*at)).map(|(_, rate)| *rate).collect();
        let slowest = rates.iter().copied().reduce(f64::min)?;
        Some((rates.iter().sum::<f64>() / rates.len() as f64, slowest))
    }
}

/// The rate of each second, by its end, as far as pgbench has reported.
pub(super) fn seconds(said: &str) -> Vec<(f64, f64)> {
    let second = |line: &str| {
        let mut parts = line.strip_prefix("progress: ")?.split(", ");
        let mut number = || parts.next()?.split(' ').next()?.parse::<f64>().ok();
        Some((number()?, number()?))
    };
    said.lines().filter_map(second).collect()
}

/// A replica, as SHOW REPLICAS has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Replica {
    pub(super) name: String,
    pub(super) state: String,
    pub(super) reads: u64,
    pub(super) writes: u64,
}

impl Replica {
    /// Reads a row.
    pub(super) fn read(row: &str) -> Result<Self, Fault> {
        let unreadable = || Fault::Unreadable { what: "a row of SHOW REPLICAS".into(), said: row.to_owned() };
        let fields: Vec<&str> = row.split('\t').collect();
        let [name, _, _, state, _, _, reads, writes, ..] = fields.as_slice() else {
            return Err(unreadable());
        };
        Ok(Self {
            name: (*name).to_owned(),
            state: (*state).to_owned(),
            reads: reads.parse().map_err(|_| unreadable())?,
            writes: writes.parse().map_err(|_| unreadable())?,
        })
    }

    /// The reads and writes that it has served since an earlier reading.
    pub(super) fn since(self, before: &Self) -> Self {
        let (reads, writes) =
            (self.reads.saturating_sub(before.reads), self.writes.saturating_sub(before.writes));
        Self { reads, writes, ..self }
    }
}

/// A server that the demonstration kills.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServerLoss {
    pub(super) name: String,
    /// Since the beginning.
    pub(super) killed: Option<Duration>,
    /// When it served again.
    pub(super) back: Option<Duration>,
}

/// Everything that came of a demonstration.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) version: String,
    pub(super) clients: u32,
    pub(super) alone: [Pace; 2],
    pub(super) seen: Pace,
    pub(super) loss: ServerLoss,
    pub(super) replicas: Vec<Replica>,
    pub(super) money: String,
    pub(super) compared: usize,
}

impl Report {
    /// Whether nothing was lost, and the server came back.
    pub(super) fn is_right(&self) -> bool {
        self.money == "0" && self.compared > 0 && self.seen.done > 0 && self.loss.back.is_some()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { version, clients, seen, loss, replicas, money, compared, .. } = self;
        writeln!(
            f,
            "PostgreSQL {version}; {clients} clients, four of five transactions read an account, one moves money\n\n\
             {:<34}{:>16}{:>16}",
            "", "transactions/s", "slowest second"
        )?;
        let mut row = |what: &str, pace: Option<(f64, f64)>| match pace {
            Some((mean, slowest)) => writeln!(f, "{what:<34}{mean:>16.0}{slowest:>16.0}"),
            None => writeln!(f, "{what:<34}{:>16}{:>16}", "-", "-"),
        };
        let ever = f64::INFINITY;
        let [first, second] = &self.alone;
        row("one PostgreSQL, before", first.between(0.0, ever))?;
        row("one PostgreSQL, after", second.between(0.0, ever))?;
        row("onecopy over three", seen.between(0.0, ever))?;
        if let (Some(killed), Some(back)) = (loss.killed, loss.back) {
            let (killed, back) = (killed.as_secs_f64(), back.as_secs_f64());
            row("  before the loss", seen.between(0.0, killed))?;
            // A second in which it was away for a part counts to its absence.
            row(&format!("  without {}", loss.name), seen.between(killed, back.ceil()))?;
            row("  afterwards", seen.between(back.ceil(), ever))?;
            writeln!(
                f,
                "\n{} was killed (kill -9) after {killed:.1} s and served again after {back:.1} s",
                loss.name
            )?;
        } else {
            writeln!(f, "\n{} did not serve again before the end", loss.name)?;
        }
        writeln!(f, "\n{:<18}{:>10}{:>18}{:>16}", "", "state", "share of reads", "transactions")?;
        let reads: u64 = replicas.iter().map(|replica| replica.reads).sum();
        for Replica { name, state, reads: own, writes } in replicas {
            let share = format!("{} %", own * 100 / reads.max(1));
            writeln!(f, "{name:<18}{state:>10}{share:>18}{writes:>16}")?;
        }
        writeln!(f, "\ntransactions            {}", seen.done)?;
        writeln!(f, "told to run again       {}", seen.retried)?;
        writeln!(f, "errors                  {}", seen.failed)?;
        writeln!(f, "sum of all balances     {money} (0 at the beginning)")?;
        write!(f, "replicas                identical ({compared} things compared)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "pgbench (15.18)\nprogress: 1.0 s, 400.0 tps, lat 10.1 ms stddev 4.0, 0 failed, 0 retried, 0 retries\n\
        progress: 2.0 s, 100.0 tps, lat 19.9 ms stddev 2.1, 0 failed, 0 retried, 0 retries\nprogress: 3.0 s, 310.0 tps, lat\n\
        number of transactions actually processed: 810\nnumber of failed transactions: 1 (0.123%)\n\
        number of transactions retried: 3 (0.2%)\n";

    fn report(money: &str, back: Option<Duration>) -> Report {
        let pace = Pace::read(SAID).unwrap();
        let replicas = [
            "replica-1\tlocalhost\t1\tup\t9\t0\t30\t7\t0.1\tanchor\t",
            "replica-2\tlocalhost\t2\tup\t9\t0\t70\t5\t0.1\t\t",
        ];
        Report {
            version: "15.18".to_owned(),
            clients: 8,
            alone: [pace.clone(), pace.clone()],
            seen: pace,
            loss: ServerLoss {
                name: "replica-2".to_owned(),
                killed: Some(Duration::from_millis(1200)),
                back,
            },
            replicas: replicas.map(|row| Replica::read(row).unwrap()).to_vec(),
            money: money.to_owned(),
            compared: 4,
        }
    }

    #[test]
    fn what_pgbench_says_is_read() {
        let pace = Pace::read(SAID).unwrap();
        assert_eq!((pace.done, pace.failed, pace.retried), (810, 1, 3));
        assert_eq!(pace.between(0.0, f64::INFINITY), Some((270.0, 100.0)));
        assert_eq!(pace.between(1.2, 2.0), Some((100.0, 100.0)));
        assert_eq!(pace.between(7.0, 9.0), None);
        assert!(Pace::read("pgbench: error: client 2 script 0 aborted").is_err());
        assert!(Replica::read("replica-1").is_err());
    }

    #[test]
    fn the_table_says_what_was_lost() {
        let right = report("0", Some(Duration::from_millis(1900)));
        let text = right.to_string();
        assert!(
            right.is_right()
                && text.contains("replica-2 was killed (kill -9) after 1.2 s and served again after 1.9 s"),
            "{text}"
        );
        assert!(text.contains("replica-1                 up              30 %               7\n"), "{text}");
        assert!(
            text.contains("without replica-2                            100             100\n"),
            "{text}"
        );
        assert!(!report("-5", Some(Duration::from_secs(2))).is_right());
        let text = report("0", None).to_string();
        assert!(!report("0", None).is_right() && text.contains("replica-2 did not serve again"), "{text}");
    }
}
