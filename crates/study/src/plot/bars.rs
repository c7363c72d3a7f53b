//! Bars in groups, each of parts that stand on each other.

use sim::paper::figures::Bars;

use super::canvas::{Anchor, Canvas};
use super::{BOTTOM, COLOURS, LEFT, RIGHT, TOP, frame, up};

/// Of the width that a bar has, so much is left free beside it, in parts of ten; a group has as much free as a bar.
const FREE: i32 = 2;
/// A line of letters.
const ROW: i32 = 18;
/// What is above the highest bar, for the legend.
const ABOVE: f64 = 1.25;

pub(super) fn chart(canvas: &mut impl Canvas, figure: &Bars) {
    let bars = || figure.groups.iter().flat_map(|group| &group.bars);
    let height = |parts: &[(usize, f64)]| parts.iter().map(|(_, high)| high).sum::<f64>();
    let most = bars().map(|bar| height(&bar.parts)).fold(0.0, f64::max).max(f64::MIN_POSITIVE) * ABOVE;
    frame(canvas, &format!("Figure {}: {}", figure.number, figure.title), &figure.unit, most);
    legend(canvas, &figure.legend);
    let count = |number: usize| i32::try_from(number).unwrap_or(i32::MAX);
    // A bar that is not there between two groups.
    let slots = count(bars().count() + figure.groups.len()).max(1);
    let slot = (RIGHT - LEFT) / slots;
    let has_names = bars().any(|bar| !bar.name.is_empty());
    let mut left = LEFT + slot / 2;
    for group in &figure.groups {
        let width = slot * count(group.bars.len());
        let below = if has_names { BOTTOM + 2 * ROW } else { BOTTOM };
        canvas.text((left + width / 2, below + ROW), &group.name, Anchor::Middle);
        for (bar, number) in group.bars.iter().zip(0..) {
            let from = left + slot * number;
            // Names of neighbours are one below the other, as each is wider than a bar.
            canvas.text((from + slot / 2, BOTTOM + ROW * (1 + number % 2)), &bar.name, Anchor::Middle);
            let mut foot = 0.0;
            for (colour, high) in &bar.parts {
                let (low, top) = (up(foot, most), up(foot + high, most));
                let sides = (from + slot * FREE / 20, from + slot - slot * FREE / 20);
                canvas.area((sides.0, top), (sides.1, low), COLOURS[colour % COLOURS.len()]);
                foot += high;
            }
        }
        left += width + slot;
    }
}

/// What the colours mean, in rows across the top.
fn legend(canvas: &mut impl Canvas, names: &[String]) {
    /// So many side by side.
    const ACROSS: i32 = 3;
    let across = (RIGHT - LEFT) / ACROSS;
    for ((number, name), colour) in (0..).zip(names).zip(COLOURS.into_iter().cycle()) {
        let x = LEFT + 12 + across * (number % ACROSS);
        let y = TOP + 16 + ROW * (number / ACROSS);
        canvas.line((x, y), (x + 24, y), colour, 6);
        canvas.text((x + 32, y + 4), name, Anchor::Start);
    }
}
