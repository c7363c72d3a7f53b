//! Figures as SVG and PNG.
//!
//! One chart, drawn on either of two canvases with the same few strokes: lines, dots and letters. No font has to be
//! installed: an SVG keeps text as text, and the PNG's letters come from a small bitmap font.

mod canvas;

use std::fs;
use std::path::Path;

use canvas::{Anchor, Canvas, Colour, Pixels, Svg};
use sim::paper::figures::Figure;

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
pub(crate) fn draw(folder: &Path, figures: &[Figure]) -> Result<(), Error> {
    let wrong = |path: &Path, error: &dyn std::fmt::Display| Error::File(path.to_owned(), error.to_string());
    fs::create_dir_all(folder).map_err(|error| wrong(folder, &error))?;
    for figure in figures {
        let path = folder.join(format!("figure-{:02}.svg", figure.number));
        let mut svg = Svg::new(SIZE);
        chart(&mut svg, figure);
        fs::write(&path, svg.finish()).map_err(|error| wrong(&path, &error))?;
        let path = folder.join(format!("figure-{:02}.png", figure.number));
        let mut pixels = Pixels::new(SIZE);
        chart(&mut pixels, figure);
        let bytes = pixels.finish().map_err(|error| wrong(&path, &error))?;
        fs::write(&path, bytes).map_err(|error| wrong(&path, &error))?;
    }
    Ok(())
}

/// A round distance between marks.
fn step(most: f64) -> f64 {
    let rough = most / MARKS;
    let power = 10_f64.powf(rough.log10().floor());
    [1.0, 2.0, 5.0, 10.0].map(|factor| factor * power).into_iter().find(|s| *s >= rough).unwrap_or(rough)
}

fn chart(canvas: &mut impl Canvas, figure: &Figure) {
    let points = || figure.lines.iter().flat_map(|(_, points)| points);
    let most_x = points().map(|(x, _)| *x).fold(1.0, f64::max) * 1.02;
    let most_y = points().map(|(_, y)| *y).fold(1.0, f64::max) * 1.08;
    let across = |x: f64| LEFT + (f64::from(RIGHT - LEFT) * x / most_x).round() as i32;
    let up = |y: f64| BOTTOM - (f64::from(BOTTOM - TOP) * y / most_y).round() as i32;
    canvas.text((SIZE.0 / 2, 26), &format!("Figure {}: {}", figure.number, figure.title), Anchor::Middle);
    canvas.text((i32::midpoint(LEFT, RIGHT), BOTTOM + 42), "database replicas", Anchor::Middle);
    canvas.text((8, TOP - 12), "web interactions per second", Anchor::Start);
    let marks = |most: f64| {
        let step = step(most);
        (0..32).map(move |n| f64::from(n) * step).take_while(move |mark| *mark <= most)
    };
    for x in marks(most_x) {
        canvas.line((across(x), TOP), (across(x), BOTTOM), GREY, 1);
        canvas.text((across(x), BOTTOM + 20), &format!("{x}"), Anchor::Middle);
    }
    for y in marks(most_y) {
        canvas.line((LEFT, up(y)), (RIGHT, up(y)), GREY, 1);
        canvas.text((LEFT - 8, up(y) + 4), &format!("{y}"), Anchor::End);
    }
    canvas.line((LEFT, TOP), (LEFT, BOTTOM), BLACK, 1);
    canvas.line((LEFT, BOTTOM), (RIGHT, BOTTOM), BLACK, 1);
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
    use super::*;

    #[test]
    fn both_kinds_of_file_are_drawn_with_their_words() {
        let folder = std::env::temp_dir().join(format!("study-plot-{}", std::process::id()));
        let lines = vec![("a < b".to_owned(), vec![(1.0, 4.0), (8.0, 20.0)]), ("vr-l".to_owned(), vec![])];
        draw(&folder, &[Figure { number: 11, title: "a mix".to_owned(), lines }]).unwrap();
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
    fn marks_are_round() {
        assert_eq!([60.0, 7.0, 250.0, 1.0].map(|most| step(most).to_string()), ["10", "1", "50", "0.2"]);
    }
}
