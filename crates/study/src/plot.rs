//! Figures as SVG and PNG.
//!
//! The same drawing goes to both. A bitmap has no fonts of its own, and system fonts differ from machine to machine, so
//! the PNG's letters are drawn from a small bitmap font.

mod surface;

use std::fs;
use std::path::Path;

use plotters::coord::Shift;
use plotters::prelude::*;
use sim::paper::figures::Figure;

use crate::command::Error;
use surface::Surface;

/// Width and height, in pixels.
const SIZE: (u32, u32) = (900, 600);
/// One for each protocol, told apart also by people who do not see all colours.
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(230, 159, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(213, 94, 0),
    RGBColor(0, 0, 0),
    RGBColor(86, 180, 233),
];

/// Draws every figure into the folder, which is made if it is not there.
pub(crate) fn draw(folder: &Path, figures: &[Figure]) -> Result<(), Error> {
    let wrong = |path: &Path, error: &dyn std::fmt::Display| Error::File(path.to_owned(), error.to_string());
    fs::create_dir_all(folder).map_err(|error| wrong(folder, &error))?;
    for figure in figures {
        let path = folder.join(format!("figure-{:02}.svg", figure.number));
        let mut text = String::new();
        let root = Surface::of_text(SVGBackend::with_string(&mut text, SIZE)).into_drawing_area();
        chart(&root, figure).map_err(|error| wrong(&path, &error))?;
        drop(root);
        fs::write(&path, text).map_err(|error| wrong(&path, &error))?;
        let path = folder.join(format!("figure-{:02}.png", figure.number));
        let mut pixels = vec![0; SIZE.0 as usize * SIZE.1 as usize * 3];
        let root = Surface::of_pixels(BitMapBackend::with_buffer(&mut pixels, SIZE)).into_drawing_area();
        chart(&root, figure).map_err(|error| wrong(&path, &error))?;
        drop(root);
        let bytes = surface::encode(&pixels, SIZE).map_err(|error| wrong(&path, &error))?;
        fs::write(&path, bytes).map_err(|error| wrong(&path, &error))?;
    }
    Ok(())
}

fn chart<B: DrawingBackend>(
    root: &DrawingArea<B, Shift>,
    figure: &Figure,
) -> Result<(), DrawingAreaErrorKind<B::ErrorType>> {
    let points = || figure.lines.iter().flat_map(|(_, points)| points);
    let most_x = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let most_y = points().map(|(_, y)| *y).fold(1.0, f64::max);
    root.fill(&WHITE)?;
    let mut chart = ChartBuilder::on(root)
        .caption(format!("Figure {}: {}", figure.number, figure.title), ("sans-serif", 20))
        .margin(12)
        .x_label_area_size(44)
        .y_label_area_size(64)
        .build_cartesian_2d(0.0..most_x * 1.02, 0.0..most_y * 1.08)?;
    chart
        .configure_mesh()
        .x_desc("database replicas")
        .y_desc("web interactions per second")
        .light_line_style(RGBColor(236, 236, 236))
        .label_style(("sans-serif", 15))
        .axis_desc_style(("sans-serif", 16))
        .draw()?;
    for (index, (name, points)) in figure.lines.iter().enumerate().filter(|(_, (_, p))| !p.is_empty()) {
        let style = COLOURS[index % COLOURS.len()].stroke_width(2);
        chart
            .draw_series(LineSeries::new(points.iter().copied(), style))?
            .label(name)
            .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 20, y)], style));
        let dots = points.iter().map(|point| Circle::new(*point, 3, style.filled()));
        chart.draw_series(dots)?;
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.85))
        .border_style(RGBColor(200, 200, 200))
        .label_font(("sans-serif", 15))
        .draw()?;
    root.present()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_file_are_drawn_with_their_words() {
        let folder = std::env::temp_dir().join(format!("study-plot-{}", std::process::id()));
        let lines = vec![("eager".to_owned(), vec![(1.0, 4.0), (8.0, 20.0)]), ("vr-l".to_owned(), vec![])];
        draw(&folder, &[Figure { number: 11, title: "a mix".to_owned(), lines }]).unwrap();
        let svg = fs::read_to_string(folder.join("figure-11.svg")).unwrap();
        let png = fs::read(folder.join("figure-11.png")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        for word in ["<svg", "polyline", "eager", "database replicas", "a mix"] {
            assert!(svg.contains(word), "{word}");
        }
        assert_eq!(png[..8], *b"\x89PNG\r\n\x1a\n");
        let mut reader = png::Decoder::new(std::io::Cursor::new(png)).read_info().unwrap();
        let mut pixels = vec![0; reader.output_buffer_size().unwrap()];
        reader.next_frame(&mut pixels).unwrap();
        let dark = pixels.chunks_exact(3).filter(|p| p.iter().all(|c| *c < 60)).count();
        assert!(dark > 500, "axes and letters are there: {dark}");
    }
}
