//! Charts of lines and of bars, as SVG and PNG files.
//!
//! `plotters` draws them. A PNG and the layout of an SVG need the shapes of letters, so DejaVu Sans is linked in: charts
//! look the same on a machine without fonts. An SVG keeps its text as text, in the viewer's own sans-serif font.

mod bars;
mod lines;

use std::fmt;
use std::path::{Path, PathBuf};

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::{FontStyle, register_font};

pub use bars::{Bar, Bars, Group};
pub use lines::{Lines, Series};

/// Width and height of a chart, in pixels.
const SIZE: (u32, u32) = (900, 600);
/// The generic name, which every viewer of an SVG knows.
const FONT: &str = "sans-serif";
const TITLE_SIZE: u32 = 20;
const TEXT_SIZE: u32 = 14;
/// The free border around everything, in pixels.
const MARGIN: u32 = 12;
/// The width left of the vertical axis for its numbers and its description, in pixels.
const LEFT: u32 = 72;
/// The palette of Okabe and Ito, whose colours differ for colour-blind people, too.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    BLACK,
    RGBColor(86, 180, 233),
];

/// A chart of either kind.
#[derive(Clone, PartialEq, Debug)]
pub enum Chart {
    /// Points of one or more series, connected by lines.
    Lines(Lines),
    /// Bars in groups.
    Bars(Bars),
}

/// The reason why a chart was not written.
#[derive(Debug)]
pub enum ChartError {
    /// `plotters` does not accept the font that is linked in.
    Font,
    /// The file cannot be drawn or written.
    File(PathBuf, String),
}

impl fmt::Display for ChartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Font => f.write_str("the font of charts cannot be used"),
            Self::File(path, cause) => write!(f, "{}: {cause}", path.display()),
        }
    }
}

impl std::error::Error for ChartError {}

/// Writes a chart into two files: the path with the extension `svg`, and with `png`.
pub fn write(chart: &Chart, path: &Path) -> Result<(), ChartError> {
    register_font(FONT, FontStyle::Normal, dejavu::sans::regular()).map_err(|_| ChartError::Font)?;
    let svg = path.with_extension("svg");
    paint(chart, &SVGBackend::new(&svg, SIZE).into_drawing_area())
        .map_err(|error| ChartError::File(svg.clone(), error.to_string()))?;
    let png = path.with_extension("png");
    paint(chart, &BitMapBackend::new(&png, SIZE).into_drawing_area())
        .map_err(|error| ChartError::File(png.clone(), error.to_string()))
}

type Painted<B> = Result<(), DrawingAreaErrorKind<<B as DrawingBackend>::ErrorType>>;

fn paint<B: DrawingBackend>(chart: &Chart, area: &DrawingArea<B, Shift>) -> Painted<B> {
    area.fill(&WHITE)?;
    match chart {
        Chart::Lines(lines) => lines::paint(lines, area)?,
        Chart::Bars(bars) => bars::paint(bars, area)?,
    }
    area.present()
}

/// A number of an axis. Sums of steps are not round to the last bit.
fn mark(number: f64) -> String {
    ((number * 1e6).round() / 1e6).to_string()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// The pixels of a chart, red, green and blue.
    fn pixels(chart: &Chart) -> Vec<[u8; 3]> {
        register_font(FONT, FontStyle::Normal, dejavu::sans::regular()).map_err(|_| "font").unwrap();
        let mut bytes = vec![0; (SIZE.0 * SIZE.1 * 3) as usize];
        paint(chart, &BitMapBackend::with_buffer(&mut bytes, SIZE).into_drawing_area()).unwrap();
        bytes.chunks_exact(3).map(|pixel| [pixel[0], pixel[1], pixel[2]]).collect()
    }

    #[test]
    fn both_files_hold_the_chart() {
        let folder = std::env::temp_dir().join(format!("chart-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let lines = Lines {
            title: "a mix".to_owned(),
            x: "database replicas".to_owned(),
            y: "a second".to_owned(),
            series: vec![
                Series { name: "a < b".to_owned(), points: vec![(1.0, 4.0), (8.0, 20.0)] },
                Series { name: "vr-l".to_owned(), points: vec![] },
            ],
            has_marks: true,
        };
        let chart = Chart::Lines(lines);
        write(&chart, &folder.join("x")).unwrap();
        let svg = fs::read_to_string(folder.join("x.svg")).unwrap();
        let png = fs::read(folder.join("x.png")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        for word in ["<svg", "a &lt; b", "database replicas", "a mix", "sans-serif", "</svg>"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(!svg.contains("vr-l"), "a series without points has no name");
        assert!(png.starts_with(b"\x89PNG\r\n\x1a\n") && png.len() > 2_000);
        let pixels = pixels(&chart);
        assert!(pixels.iter().filter(|pixel| pixel.iter().all(|part| *part < 60)).count() > 1_500, "letters");
        assert!(pixels.iter().filter(|pixel| **pixel == [0, 114, 178]).count() > 500, "the line");
    }

    #[test]
    fn parts_of_a_bar_are_stacked() {
        let bar = |name: &str, reads: f64| Bar {
            name: name.to_owned(),
            parts: vec![(0, reads), (1, 100.0 - reads)],
        };
        let group =
            |name: &str| Group { name: name.to_owned(), bars: vec![bar("eager", 25.0), bar("vr-l", 75.0)] };
        let chart = Chart::Bars(Bars {
            title: "what they do".to_owned(),
            y: "percent".to_owned(),
            legend: vec!["reads".to_owned(), "writes".to_owned()],
            groups: vec![group("browsing x1"), group("browsing x60")],
        });
        let pixels = pixels(&chart);
        let count = |colour: [u8; 3]| pixels.iter().filter(|pixel| **pixel == colour).count() as f64;
        let ratio = count([0, 114, 178]) / count([230, 159, 0]);
        assert!((0.9..1.1).contains(&ratio), "half of all bars are reads: {ratio}");
    }

    #[test]
    fn a_file_that_cannot_be_written_is_named() {
        let bars = Bars { title: String::new(), y: String::new(), legend: vec![], groups: vec![] };
        let error = write(&Chart::Bars(bars), Path::new("/nowhere/x")).unwrap_err().to_string();
        assert!(error.starts_with("/nowhere/x.svg: "), "{error}");
    }

    #[test]
    fn marks_are_round() {
        assert_eq!([0.1 + 0.2, 10.0, 0.0].map(mark), ["0.3", "10", "0"]);
    }
}
