//! Points in a plane, connected by lines.

use plotters::coord::Shift;
use plotters::prelude::*;

use super::{COLOURS, FONT, LEFT, MARGIN, Painted, TEXT_SIZE, TITLE_SIZE, mark};

/// The height below the horizontal axis for its numbers and its description, in pixels.
const BELOW: u32 = 44;
/// Both axes end a little beyond the last point.
const RIGHT_FACTOR: f64 = 1.05;
const TOP_FACTOR: f64 = 1.1;
/// Lines without marks fill the height, so they leave more of it to the legend.
const TOP_FACTOR_UNMARKED: f64 = 1.4;
const DOT_RADIUS: i32 = 4;
/// The length of a line in the legend, in pixels.
const SAMPLE: i32 = 18;

/// A chart of lines. Both axes begin at 0.
#[derive(Clone, PartialEq, Debug)]
pub struct Lines {
    /// The line above the chart.
    pub title: String,
    /// The description of the horizontal axis.
    pub x: String,
    /// The description of the vertical axis.
    pub y: String,
    /// The lines, in the order of the legend. Those without points are left out.
    pub series: Vec<Series>,
    /// Marks every point with a dot.
    pub has_marks: bool,
}

/// Points of one colour, connected by a line.
#[derive(Clone, PartialEq, Debug)]
pub struct Series {
    /// The name in the legend.
    pub name: String,
    /// The points from left to right.
    pub points: Vec<(f64, f64)>,
}

pub(super) fn paint<B: DrawingBackend>(lines: &Lines, area: &DrawingArea<B, Shift>) -> Painted<B> {
    let points = || lines.series.iter().flat_map(|series| &series.points);
    let right = points().map(|(x, _)| *x).fold(1.0, f64::max) * RIGHT_FACTOR;
    let top = points().map(|(_, y)| *y).fold(f64::MIN_POSITIVE, f64::max)
        * if lines.has_marks { TOP_FACTOR } else { TOP_FACTOR_UNMARKED };
    let mut chart = ChartBuilder::on(area)
        .caption(&lines.title, (FONT, TITLE_SIZE))
        .margin(MARGIN)
        .x_label_area_size(BELOW)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..right, 0.0..top)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .x_label_formatter(&|x| mark(*x))
        .y_label_formatter(&|y| mark(*y))
        .x_desc(&lines.x)
        .y_desc(&lines.y)
        .label_style((FONT, TEXT_SIZE))
        .axis_desc_style((FONT, TEXT_SIZE))
        .draw()?;
    let drawn = lines.series.iter().filter(|series| !series.points.is_empty());
    for (series, colour) in drawn.zip(COLOURS.into_iter().cycle()) {
        let line = LineSeries::new(series.points.iter().copied(), colour.stroke_width(2));
        chart
            .draw_series(line)?
            .label(&series.name)
            .legend(move |(x, y)| PathElement::new([(x, y), (x + SAMPLE, y)], colour.stroke_width(3)));
        if lines.has_marks {
            let dots = series.points.iter().map(|point| Circle::new(*point, DOT_RADIUS, colour.filled()));
            chart.draw_series(dots)?;
        }
    }
    chart
        .configure_series_labels()
        .position(SeriesLabelPosition::UpperLeft)
        .background_style(WHITE.mix(0.8))
        .border_style(BLACK)
        .label_font((FONT, TEXT_SIZE))
        .draw()
}
