//! What a run of `check-live` says at its end: the counts, what is wrong, and the part of the history that shows it.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

use sim::check::Promise;
use sim::history::History;
use testbed::fault::Fault;

use super::fault_injector::{Counted, Kind};
use super::manner::Manner;
use super::several::{Struck, gaps, judge};
use super::{Options, Run, TOLD, stall, verdict};
use crate::cache_audit;

/// Judges and reports.
pub(super) fn conclude(options: &Options, run: &Run) -> Result<String, Fault> {
    let write = |path: &Path, history: &History| {
        fs::write(path, history.to_json_lines()).map_err(Fault::system(format!("write {}", path.display())))
    };
    if let Some(path) = &options.history {
        write(path, &run.history)?;
    }
    let begin = Instant::now();
    let verdict = verdict::condemn(&run.history, options.keys, &|history| {
        options.manner().judge(history, options.promise())
    });
    let mut report = tell(options, run);
    let mut is_wrong = !run.tally.wrong.is_empty();
    let mut line = |text: String| report.push_str(&(text + "\n"));
    line(format!("judged in {:.1} s", begin.elapsed().as_secs_f64()));
    for wrong in run.tally.wrong.iter().take(TOLD) {
        line(format!("WRONG {wrong}"));
    }
    if let Some(struck) = &run.struck {
        let found = judge::findings(&run.tally.attempts, &struck.strikes);
        is_wrong |= !found.is_empty() || !struck.wrong.is_empty();
        for wrong in struck.wrong.iter().chain(found.iter().take(TOLD)) {
            line(format!("WRONG {wrong}"));
        }
        if found.is_empty() {
            line(
                "no client of a living node had an unknown outcome, or an error that cannot be tried again"
                    .to_owned(),
            );
        }
    } else if !options.strikes() && !run.tally.troubles.is_empty() {
        is_wrong = true;
        line("WRONG unexpected errors".to_owned());
    }
    for columns in &run.verified {
        let is_same = columns.last().is_some_and(|result| result == "identical");
        is_wrong |= !is_same;
        line(format!("{}{}", if is_same { "verified " } else { "WRONG replicas: " }, columns.join(" | ")));
    }
    if cache_audit::is_on() {
        let audited = run.counted.audit.conclude();
        is_wrong |= audited.is_err();
        line(audited.unwrap_or_else(|wrong| format!("WRONG {wrong}")));
    }
    match &verdict {
        Err(verdict) => {
            is_wrong = true;
            let path = options.history.clone().map_or_else(
                || std::env::temp_dir().join(format!("onecopy-check-live-{}.jsonl", std::process::id())),
                |path| path.with_extension("finding.jsonl"),
            );
            write(&path, &verdict.shown_by)?;
            for finding in verdict.findings.iter().take(TOLD) {
                line(format!("WRONG {finding}"));
            }
            let count = verdict.findings.len();
            line(format!("{count} findings; T0 is the first line of {}", path.display()));
        }
        Ok(_) if matches!(options.manner(), Manner::CJdbc(..)) => {
            line("the history keeps the guarantees of its level and early response".to_owned());
        }
        Ok(allowed) if options.promise() == Promise::AsAsked => {
            line(format!("the history could be that of one PostgreSQL; it has {allowed}"));
        }
        Ok(allowed) => line(format!("the history keeps the promise {}; it has {allowed}", options.promise())),
    }
    if is_wrong { Err(Fault::Wrong(report)) } else { Ok(report) }
}

fn tell(options: &Options, run: &Run) -> String {
    let Options { seed, seconds, clients, protocol, .. } = options;
    let mut text = format!("{protocol}, seed {seed}, {seconds} s, {clients} clients\n");
    let _ = writeln!(text, "{:<28}{:>10}{:>10}{:>10}", "kind", "committed", "aborted", "unknown");
    for (kind, ends) in &run.tally.kinds {
        let _ = writeln!(text, "{kind:<28}{:>10}{:>10}{:>10}", ends.committed, ends.aborted, ends.unknown);
    }
    let elements: usize = run.history.finals.iter().map(|seen| seen.list.len()).sum();
    let _ = writeln!(text, "{elements} appends in {} lists", run.history.finals.len());
    let _ = writeln!(text, "{} numbers drawn from a sequence", run.given.len());
    let _ = writeln!(text, "{} aborted by 40001 or 40P01", run.tally.again);
    if options.kill {
        let _ = writeln!(text, "killed the servers of the replicas {:?}", run.kills);
    }
    if !run.strikes.is_empty() {
        text.push_str(&stall::table(&run.strikes, &run.history));
        let Counted { retried, takeovers, placed, unplaced, .. } = &run.counted;
        let _ =
            writeln!(text, "{retried} run again unseen, {takeovers} times another replica became the anchor");
        if run.strikes.iter().any(|strike| strike.kind == Kind::Place) {
            let _ = writeln!(text, "{placed} changes of a placement");
        }
        for (why, count) in unplaced {
            let _ = writeln!(text, "{count} times no change of a placement: {why}");
        }
    }
    if let Some(Struck { strikes, .. }) = &run.struck {
        let attempts = &run.tally.attempts;
        text.push_str(&gaps::table(attempts, strikes));
        text.push_str(&gaps::explain(attempts, strikes, &run.said, run.day_us));
        let unknown = judge::unknown_of_killed(attempts, strikes);
        let _ = writeln!(text, "{unknown} unknown outcomes of clients of killed nodes");
    }
    let servers = run.tally.servers.iter().map(|(port, count)| format!("{count} at port {port}"));
    let _ = writeln!(text, "reads of lists: {}", servers.collect::<Vec<_>>().join(", "));
    for (trouble, count) in &run.tally.troubles {
        let _ = writeln!(text, "{count} times: {trouble}");
    }
    text
}
