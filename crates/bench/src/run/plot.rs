//! Charts of a run: throughput against servers, response times, and the timeline of a loss.

use std::path::Path;

use chart::{Chart, ChartError, Lines, Series};

use super::report::{lost, unique};
use super::result::{Loss, Results};
use crate::spread::Spread;

/// A chart and the name of its files, without an extension.
struct Picture {
    file: String,
    lines: Lines,
}

/// Draws every chart into the folder, as SVG and PNG; returns the names of the SVG files.
pub(crate) fn draw(results: &Results, folder: &Path) -> Result<Vec<String>, ChartError> {
    let mut names = Vec::new();
    for Picture { file, lines } in pictures(results) {
        chart::write(&Chart::Lines(lines), &folder.join(&file))?;
        names.push(format!("{file}.svg"));
    }
    Ok(names)
}

fn pictures(results: &Results) -> Vec<Picture> {
    let mut pictures = Vec::new();
    for load in unique(results.runs.iter().map(|run| run.load.clone())) {
        pictures.push(throughput(results, &load));
        pictures.push(times(results, &load));
    }
    for loss in &results.losses {
        pictures.extend(timeline(loss));
    }
    pictures
}

fn throughput(results: &Results, load: &str) -> Picture {
    let runs = || results.runs.iter().filter(|run| run.load == load && run.counts());
    let series = unique(runs().map(|run| run.family.clone())).into_iter().map(|family| {
        let mut servers: Vec<u16> =
            runs().filter(|run| run.family == family).map(|run| run.servers).collect();
        servers.sort_unstable();
        servers.dedup();
        let point = |servers: u16| {
            let same = runs().filter(|run| run.family == family && run.servers == servers);
            Spread::of(same.map(|run| run.throughput)).map(|spread| (f64::from(servers), spread.median))
        };
        Series { points: servers.into_iter().filter_map(point).collect(), name: family }
    });
    let lines = Lines {
        title: format!("{load}: interactions in a second"),
        x: "servers".into(),
        y: "a second".into(),
        series: series.collect(),
        has_marks: true,
    };
    Picture { file: format!("throughput-{}", file_name(load)), lines }
}

fn times(results: &Results, load: &str) -> Picture {
    let runs = || results.runs.iter().filter(|run| run.load == load && run.counts());
    let there = |name: &&String| runs().any(|run| run.contestant == **name);
    let series = results.contestants.iter().filter(there).cloned().map(|name| {
        let median = |value: &dyn Fn(&super::result::Quantiles) -> f64| {
            let same = runs().filter(|run| run.contestant == name);
            Spread::of(same.map(|run| value(&run.response_ms))).map_or(0.0, |spread| spread.median)
        };
        let points = vec![(50.0, median(&|q| q.p50)), (90.0, median(&|q| q.p90)), (99.0, median(&|q| q.p99))];
        Series { name, points }
    });
    let lines = Lines {
        title: format!("{load}: response times"),
        x: "percentile".into(),
        y: "ms".into(),
        series: series.collect(),
        has_marks: true,
    };
    Picture { file: format!("times-{}", file_name(load)), lines }
}

/// The name of a load without what does not belong into the name of a file.
fn file_name(load: &str) -> String {
    load.replace(", ", "-").replace(' ', "-")
}

fn timeline(loss: &Loss) -> Vec<Picture> {
    let picture = |what: &str, title: &str, y: &str, value: &dyn Fn(&super::result::Piece) -> f64| {
        let points: Vec<(f64, f64)> = loss.timeline.iter().map(|piece| (piece.at_s, value(piece))).collect();
        let top = points.iter().map(|(_, y)| *y).fold(0.0, f64::max);
        let mark = |name: &str, at: f64| Series { name: name.into(), points: vec![(at, 0.0), (at, top)] };
        let mut series = vec![Series { name: loss.load.clone(), points }, mark("killed", loss.killed_s)];
        if loss.away_s > 0.0 {
            series.push(mark("may start again", loss.killed_s + loss.away_s));
        }
        series.extend(loss.back_s.map(|back| mark("back", back)));
        let file = format!("failure-{}-{what}", loss.killed);
        let title = format!("{} is lost: {title}", lost(loss.killed));
        Picture { file, lines: Lines { title, x: "s".into(), y: y.into(), series, has_marks: false } }
    };
    vec![
        picture("throughput", "interactions", "in 100 ms", &|piece| piece.done as f64),
        picture("times", "mean response time in 100 ms", "ms", &|piece| piece.mean_ms),
    ]
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::report::tests::results;
    use super::*;
    use testbed::scratch::Scratch;

    #[test]
    fn charts_are_drawn_in_both_forms() {
        let scratch = Scratch::new().unwrap();
        assert_eq!(draw(&results(), scratch.top()).unwrap(), ["throughput-l.svg", "times-l.svg"]);
        let svg = fs::read_to_string(scratch.path("times-l.svg")).unwrap();
        assert!(svg.contains("response times"), "{svg}");
        let png = fs::read(scratch.path("throughput-l.png")).unwrap();
        assert!(png.starts_with(b"\x89PNG") && png.len() > 2_000);
    }
}
