//! Bars in groups, each bar a stack of parts.

use plotters::coord::Shift;
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

use super::{COLOURS, FONT, LEFT, MARGIN, Painted, TEXT_SIZE, TITLE_SIZE, mark};

/// The free part of a bar's width, on each of its sides.
const FREE: f64 = 0.1;
/// The height of a line of text, in pixels.
const ROW: i32 = 18;
/// The height below the axis for names, in pixels: two rows of bars' names and one of groups'.
const BELOW: u32 = 64;
/// The axis ends above the highest bar, which leaves room for the legend.
const TOP_FACTOR: f64 = 1.25;
/// The number of legend entries side by side.
const ACROSS: u32 = 3;

/// A chart of bars. The vertical axis begins at 0.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// The line above the chart.
    pub title: String,
    /// The description of the vertical axis.
    pub y: String,
    /// The meaning of the colours.
    pub legend: Vec<String>,
    /// The groups from left to right.
    pub groups: Vec<Group>,
}

/// Bars that stand together.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The name below the group.
    pub name: String,
    /// The bars from left to right.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// The name below the bar; empty where the colour tells it.
    pub name: String,
    /// From the foot: the number of the part's colour in the legend, and its height.
    pub parts: Vec<(usize, f64)>,
}

pub(super) fn paint<B: DrawingBackend>(chart: &Bars, area: &DrawingArea<B, Shift>) -> Painted<B> {
    let bars = || chart.groups.iter().flat_map(|group| &group.bars);
    let height = |bar: &Bar| bar.parts.iter().map(|(_, height)| height).sum::<f64>();
    let top = bars().map(height).fold(0.0, f64::max).max(f64::MIN_POSITIVE) * TOP_FACTOR;
    // The width of one bar is left free between two groups.
    let slots = (bars().count() + chart.groups.len()).max(1) as f64;
    let mut plane = ChartBuilder::on(area)
        .caption(&chart.title, (FONT, TITLE_SIZE))
        .margin(MARGIN)
        .x_label_area_size(BELOW)
        .y_label_area_size(LEFT)
        .build_cartesian_2d(0.0..slots, 0.0..top)?;
    plane
        .configure_mesh()
        .disable_x_mesh()
        .x_labels(0)
        .light_line_style(TRANSPARENT)
        .y_label_formatter(&|y| mark(*y))
        .y_desc(&chart.y)
        .label_style((FONT, TEXT_SIZE))
        .axis_desc_style((FONT, TEXT_SIZE))
        .draw()?;
    let centred = (FONT, TEXT_SIZE).into_text_style(area).pos(Pos::new(HPos::Center, VPos::Center));
    let group_row = if bars().any(|bar| !bar.name.is_empty()) { 3 } else { 1 };
    let mut left = 0.5;
    for group in &chart.groups {
        let width = group.bars.len() as f64;
        let (x, y) = plane.backend_coord(&(left + width / 2.0, 0.0));
        area.draw(&Text::new(group.name.as_str(), (x, y + group_row * ROW), centred.clone()))?;
        for (bar, number) in group.bars.iter().zip(0_i32..) {
            let from = left + f64::from(number);
            let (x, y) = plane.backend_coord(&(from + 0.5, 0.0));
            // Names are wider than bars, so those of neighbours alternate between two rows.
            area.draw(&Text::new(bar.name.as_str(), (x, y + (1 + number % 2) * ROW), centred.clone()))?;
            let mut foot = 0.0;
            let parts = bar.parts.iter().map(|(colour, height)| {
                let corners = [(from + FREE, foot), (from + 1.0 - FREE, foot + height)];
                foot += height;
                Rectangle::new(corners, COLOURS[colour % COLOURS.len()].filled())
            });
            plane.draw_series(parts)?;
        }
        left += width + 1.0;
    }
    legend(&chart.legend, &plane.plotting_area().strip_coord_spec())
}

/// Names the colours, in rows across the top.
fn legend<B: DrawingBackend>(names: &[String], area: &DrawingArea<B, Shift>) -> Painted<B> {
    let style = (FONT, TEXT_SIZE).into_text_style(area).pos(Pos::new(HPos::Left, VPos::Center));
    let (width, _) = area.dim_in_pixel();
    let columns = (0..ACROSS).map(|column| (ROW.cast_unsigned() + width / ACROSS * column).cast_signed());
    let entries = names.chunks(ACROSS as usize).zip(1..).flat_map(|(names, row)| {
        names.iter().zip(columns.clone()).map(move |(name, x)| (name, x, ROW * row))
    });
    for ((name, x, y), colour) in entries.zip(COLOURS.into_iter().cycle()) {
        // Keeps the lines of the mesh out of the text.
        let right = x + (width / ACROSS).cast_signed() - ROW;
        area.draw(&Rectangle::new([(x, y - ROW / 2), (right, y + ROW / 2)], WHITE.filled()))?;
        area.draw(&Rectangle::new([(x, y - 3), (x + 24, y + 3)], colour.filled()))?;
        area.draw(&Text::new(name.as_str(), (x + 32, y), style.clone()))?;
    }
    Ok(())
}
