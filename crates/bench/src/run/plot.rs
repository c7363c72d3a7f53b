//! Plots as SVG and PNG: throughput against servers, response times, and the timeline of a loss.
//!
//! Text needs a font, which is looked for on the machine; without one there are no plots, and the report says so.

use std::error::Error;
use std::fs;
use std::path::{Path, PathBuf};

use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

use super::report::{lost, unique};
use super::result::{Loss, Results};
use crate::spread::Spread;

/// In pixels.
const SIZE: (u32, u32) = (900, 520);
const FONT: &str = "plots";
/// Where fonts lie, and how deep is looked.
const FONTS: [&str; 3] = ["/usr/share/fonts", "/usr/local/share/fonts", "/System/Library/Fonts"];
const DEPTH: u32 = 4;
/// Names of fonts that will do, the best first.
const GOOD: [&str; 4] = ["DejaVuSans.ttf", "LiberationSans-Regular.ttf", "NotoSans-Regular.ttf", "Arial.ttf"];
const COLOURS: [RGBColor; 6] = [
    RGBColor(31, 119, 180),
    RGBColor(255, 127, 14),
    RGBColor(44, 160, 44),
    RGBColor(214, 39, 40),
    RGBColor(148, 103, 189),
    RGBColor(120, 120, 120),
];

/// Points of one colour, which a line connects.
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// What one picture shows.
struct Picture {
    file: String,
    title: String,
    x: String,
    y: String,
    series: Vec<Series>,
    /// Whether single points are marked.
    has_marks: bool,
}

/// Draws everything into the folder; the names of the SVG files, or why there are none.
pub(crate) fn draw(results: &Results, folder: &Path) -> Result<Vec<String>, String> {
    let font = font().ok_or("no font was found, so there are no plots")?;
    let bytes = fs::read(&font).map_err(|error| format!("{}: {error}", font.display()))?;
    // It is needed as long as the process lives.
    register_font(FONT, FontStyle::Normal, Box::leak(bytes.into_boxed_slice()))
        .map_err(|_| format!("{} is no font that can be used", font.display()))?;
    let mut names = Vec::new();
    for picture in pictures(results) {
        let path = folder.join(&picture.file);
        let told = |error: Box<dyn Error>| format!("{}: {error}", path.display());
        let svg = path.with_extension("svg");
        paint(&picture, &SVGBackend::new(&svg, SIZE).into_drawing_area()).map_err(told)?;
        let png = path.with_extension("png");
        paint(&picture, &BitMapBackend::new(&png, SIZE).into_drawing_area()).map_err(told)?;
        names.push(format!("{}.svg", picture.file));
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
    Picture {
        file: format!("throughput-{load}"),
        title: format!("{load}: interactions in a second"),
        x: "servers".into(),
        y: "a second".into(),
        series: series.collect(),
        has_marks: true,
    }
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
    Picture {
        file: format!("times-{load}"),
        title: format!("{load}: response times"),
        x: "percentile".into(),
        y: "ms".into(),
        series: series.collect(),
        has_marks: true,
    }
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
        Picture { file, title, x: "s".into(), y: y.into(), series, has_marks: false }
    };
    vec![
        picture("throughput", "interactions", "in 100 ms", &|piece| piece.done as f64),
        picture("times", "mean response time in 100 ms", "ms", &|piece| piece.mean_ms),
    ]
}

fn paint<B: DrawingBackend>(
    picture: &Picture,
    area: &DrawingArea<B, plotters::coord::Shift>,
) -> Result<(), Box<dyn Error>>
where
    B::ErrorType: 'static,
{
    area.fill(&WHITE)?;
    let points = || picture.series.iter().flat_map(|series| &series.points);
    let right = points().map(|(x, _)| *x).fold(1.0, f64::max) * 1.05;
    let top = points().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max)
        * if picture.has_marks { 1.1 } else { 1.4 };
    let mut chart = ChartBuilder::on(area)
        .caption(&picture.title, (FONT, 22))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(72)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart
        .configure_mesh()
        .x_desc(&picture.x)
        .y_desc(&picture.y)
        .label_style((FONT, 14))
        .axis_desc_style((FONT, 16))
        .draw()?;
    for (number, series) in picture.series.iter().enumerate() {
        let colour = COLOURS[number % COLOURS.len()];
        let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
        chart
            .draw_series(line)?
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + 18, y)], colour.stroke_width(3)));
        if picture.has_marks {
            chart.draw_series(series.points.iter().map(|point| Circle::new(*point, 4, colour.filled())))?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .label_font((FONT, 14))
        .draw()?;
    area.present()?;
    Ok(())
}

/// The best font that lies on this machine.
fn font() -> Option<PathBuf> {
    let mut found = Vec::new();
    for folder in FONTS {
        fonts(Path::new(folder), DEPTH, &mut found);
    }
    let rank = |path: &PathBuf| GOOD.iter().position(|good| path.ends_with(good)).unwrap_or(GOOD.len());
    found.into_iter().min_by_key(|path| (rank(path), path.clone()))
}

fn fonts(folder: &Path, depth: u32, found: &mut Vec<PathBuf>) {
    let Some(deeper) = depth.checked_sub(1) else { return };
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            fonts(&path, deeper, found);
        } else if path.extension().is_some_and(|extension| extension == "ttf") {
            found.push(path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::tests::results;
    use super::*;
    use crate::scratch::Scratch;

    #[test]
    fn pictures_are_drawn_in_both_forms_where_there_is_a_font() {
        let scratch = Scratch::new().unwrap();
        match draw(&results(), scratch.top()) {
            Ok(names) => {
                assert_eq!(names, ["throughput-l.svg", "times-l.svg"]);
                let svg = fs::read_to_string(scratch.path("times-l.svg")).unwrap();
                assert!(svg.contains("response times"), "{svg}");
                let png = fs::read(scratch.path("throughput-l.png")).unwrap();
                assert!(png.starts_with(b"\x89PNG") && png.len() > 2_000);
            }
            Err(why) => assert!(why.contains("no font") && font().is_none(), "{why}"),
        }
    }
}
