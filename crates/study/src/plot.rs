//! Figures as SVG and PNG.
//!
//! One chart, drawn on either of two canvases with the same few strokes: lines, dots and letters. No font has to be
//! installed: an SVG keeps text as text, and the PNG's letters come from a small bitmap font.

mod bars;
mod canvas;

use std::fs;
use std::path::Path;

use canvas::{Anchor, Canvas, Colour, Pixels, Svg};
use sim::paper::figures::{Bars, Figure};

use crate::command::Error;

/// Width and height of a figure.
const SIZE: (i32, i32) = (900, 600);
/// Where the axes begin and end.
const LEFT: i32 = 80;
const RIGHT: i32 = 880;
const TOP: i32 = 50;
const BOTTOM: i32 = 540;
/// About so many marks on an axis.
const MARKS: f64 = 8.0;
const BLACK: Colour = Colour(0, 0, 0);
const GREY: Colour = Colour(225, 225, 225);
/// One for each line, told apart also by people who do not see all colours.
const COLOURS: [Colour; 7] = [
    Colour(0, 114, 178),
    Colour(230, 159, 0),
    Colour(0, 158, 115),
    Colour(204, 121, 167),
    Colour(213, 94, 0),
    BLACK,
    Colour(86, 180, 233),
];

/// Draws every figure into the folder, which is made if it is not there.
pub(crate) fn draw(folder: &Path, figures: &[Figure], bars: &[Bars]) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| Error::File(folder.to_owned(), error.to_string()))?;
    for figure in figures {
        both(folder, figure.number, |canvas| chart(canvas, figure), |canvas| chart(canvas, figure))?;
    }
    for figure in bars {
        both(
            folder,
            figure.number,
            |canvas| bars::chart(canvas, figure),
            |canvas| bars::chart(canvas, figure),
        )?;
    }
    Ok(())
}

/// One figure, on either canvas.
fn both(
    folder: &Path,
    number: u8,
    as_text: impl Fn(&mut Svg),
    as_pixels: impl Fn(&mut Pixels),
) -> Result<(), Error> {
    let wrong = |path: &Path, error: &dyn std::fmt::Display| Error::File(path.to_owned(), error.to_string());
    let path = folder.join(format!("figure-{number:02}.svg"));
    let mut svg = Svg::new(SIZE);
    as_text(&mut svg);
    fs::write(&path, svg.finish()).map_err(|error| wrong(&path, &error))?;
    let path = folder.join(format!("figure-{number:02}.png"));
    let mut pixels = Pixels::new(SIZE);
    as_pixels(&mut pixels);
    let bytes = pixels.finish().map_err(|error| wrong(&path, &error))?;
    fs::write(&path, bytes).map_err(|error| wrong(&path, &error))
}

/// A round distance between marks.
fn step(most: f64) -> f64 {
    let rough = most / MARKS;
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|s| *s >= rough).unwrap_or(rough)
}

/// Where the axes' marks are.
fn marks(most: f64) -> impl Iterator<Item = f64> {
    let step = step(most);
    (0..32).map(move |n| f64::from(n) * step).take_while(move |mark| *mark <= most)
}

/// How far down something so high is, where this is the most.
fn up(y: f64, most: f64) -> i32 {
    BOTTOM - (f64::from(BOTTOM - TOP) * y / most).round() as i32
}

/// Title and the axis upwards.
fn frame(canvas: &mut impl Canvas, title: &str, unit: &str, most: f64) {
    canvas.text((SIZE.0 / 2, 20), title, Anchor::Middle);
    canvas.text((8, TOP - 10), unit, Anchor::Start);
    for y in marks(most) {
        canvas.line((LEFT, up(y, most)), (RIGHT, up(y, most)), GREY, 1);
        // Sums of steps are not round to the last bit.
        let mark = (y * 1e6).round() / 1e6;
        canvas.text((LEFT - 8, up(y, most) + 4), &format!("{mark}"), Anchor::End);
    }
    canvas.line((LEFT, TOP), (LEFT, BOTTOM), BLACK, 1);
    canvas.line((LEFT, BOTTOM), (RIGHT, BOTTOM), BLACK, 1);
}

fn chart(canvas: &mut impl Canvas, figure: &Figure) {
    let points = || figure.lines.iter().flat_map(|(_, points)| points);
    let most_x = points().map(|(x, _)| *x).fold(1.0, f64::max) * 1.02;
    let most_y = points().map(|(_, y)| *y).fold(1.0, f64::max) * 1.08;
    let across = |x: f64| LEFT + (f64::from(RIGHT - LEFT) * x / most_x).round() as i32;
    let up = |y: f64| up(y, most_y);
    let title = format!("Figure {}: {}", figure.number, figure.title);
    frame(canvas, &title, "web interactions per second", most_y);
    canvas.text((i32::midpoint(LEFT, RIGHT), BOTTOM + 42), "database replicas", Anchor::Middle);
    for x in marks(most_x) {
        canvas.line((across(x), TOP), (across(x), BOTTOM - 1), GREY, 1);
        canvas.text((across(x), BOTTOM + 20), &format!("{x}"), Anchor::Middle);
    }
    let drawn = figure.lines.iter().filter(|(_, points)| !points.is_empty());
    for ((index, (name, points)), colour) in (0..).zip(drawn).zip(COLOURS.into_iter().cycle()) {
        for pair in points.windows(2) {
            let [from, to] = [pair[0], pair[1]].map(|(x, y)| (across(x), up(y)));
            canvas.line(from, to, colour, 2);
        }
        for (x, y) in points {
            canvas.dot((across(*x), up(*y)), colour);
        }
        let y = TOP + 16 + index * 18;
        canvas.line((LEFT + 12, y), (LEFT + 36, y), colour, 2);
        canvas.text((LEFT + 44, y + 4), name, Anchor::Start);
    }
}

#[cfg(test)]
mod tests {
    use sim::paper::figures::{Bar, Group};

    use super::*;

    #[test]
    fn both_kinds_of_file_are_drawn_with_their_words() {
        let folder = std::env::temp_dir().join(format!("study-plot-{}", std::process::id()));
        let lines = vec![("a < b".to_owned(), vec![(1.0, 4.0), (8.0, 20.0)]), ("vr-l".to_owned(), vec![])];
        draw(&folder, &[Figure { number: 11, title: "a mix".to_owned(), lines }], &[]).unwrap();
        let svg = fs::read_to_string(folder.join("figure-11.svg")).unwrap();
        let png = fs::read(folder.join("figure-11.png")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        for word in ["<svg", "<line", "a &lt; b", "database replicas", "a mix", "</svg>"] {
            assert!(svg.contains(word), "{word}");
        }
        assert!(!svg.contains("vr-l"), "what has no points has no name");
        assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let count = |test: &dyn Fn(&[u8]) -> bool| pixels.chunks_exact(3).filter(|p| test(p)).count();
        assert!(count(&|p| p.iter().all(|c| *c < 60)) > 1_500, "axes and letters");
        assert!(count(&|p| p == [0, 114, 178]) > 500, "the line");
    }

    #[test]
    fn bars_stand_on_each_other() {
        let folder = std::env::temp_dir().join(format!("study-bars-{}", std::process::id()));
        let bar = |name: &str, reads: f64| Bar {
            name: name.to_owned(),
            parts: vec![(0, reads), (1, 100.0 - reads)],
        };
        let group =
            |name: &str| Group { name: name.to_owned(), bars: vec![bar("eager", 25.0), bar("vr-l", 75.0)] };
        let figure = Bars {
            number: 14,
            title: "what they do".to_owned(),
            unit: "percent".to_owned(),
            legend: vec!["reads".to_owned(), "writes".to_owned()],
            groups: vec![group("browsing x1"), group("browsing x60")],
        };
        draw(&folder, &[], &[figure]).unwrap();
        let svg = fs::read_to_string(folder.join("figure-14.svg")).unwrap();
        let png = fs::read(folder.join("figure-14.png")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        for word in ["Figure 14: what they do", "percent", "reads", "writes", "browsing x60", "vr-l"] {
            assert!(svg.contains(word), "{word}");
        }
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let count = |colour: [u8; 3]| pixels.chunks_exact(3).filter(|p| *p == colour).count() as f64;
        let ratio = count([0, 114, 178]) / count([230, 159, 0]);
        assert!((0.9..1.1).contains(&ratio), "half of all bars are reads: {ratio}");
    }

    #[test]
    fn marks_are_round() {
        assert_eq!([60.0, 7.0, 250.0, 1.0].map(|most| step(most).to_string()), ["10", "1", "50", "0.2"]);
    }
}
