//! Two things to draw on.

use font8x8::{BASIC_FONTS, UnicodeFonts};

/// Red, green, blue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Colour(pub(super) u8, pub(super) u8, pub(super) u8);

/// Which end of a text is where it is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Anchor {
    Start,
    Middle,
    End,
}

/// Width and height of a letter.
const LETTER: i32 = 8;
const DOT_RADIUS: i32 = 3;

/// Across from the left, down from the top.
type Place = (i32, i32);

/// What charts are made with.
pub(super) trait Canvas {
    fn line(&mut self, from: Place, to: Place, colour: Colour, width: i32);
    fn dot(&mut self, at: Place, colour: Colour);
    /// A filled rectangle between two corners.
    fn area(&mut self, from: Place, to: Place, colour: Colour);
    /// The place is at the foot of the letters.
    fn text(&mut self, at: Place, text: &str, anchor: Anchor);
}

/// A drawing as text.
pub(super) struct Svg(String);

impl Svg {
    pub(super) fn new((width, height): (i32, i32)) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             font-family=\"sans-serif\" font-size=\"14\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        ))
    }

    pub(super) fn finish(mut self) -> String {
        self.0.push_str("</svg>\n");
        self.0
    }
}

impl Canvas for Svg {
    fn line(&mut self, from: Place, to: Place, Colour(r, g, b): Colour, width: i32) {
        let ((x1, y1), (x2, y2)) = (from, to);
        self.0.push_str(&format!(
            "<line x1=\"{x1}\" y1=\"{y1}\" x2=\"{x2}\" y2=\"{y2}\" stroke=\"rgb({r},{g},{b})\" \
             stroke-width=\"{width}\"/>\n"
        ));
    }

    fn dot(&mut self, (x, y): Place, Colour(red, green, blue): Colour) {
        self.0.push_str(&format!(
            "<circle cx=\"{x}\" cy=\"{y}\" r=\"{DOT_RADIUS}\" fill=\"rgb({red},{green},{blue})\"/>\n"
        ));
    }

    fn area(&mut self, (left, top): Place, (right, bottom): Place, Colour(r, g, b): Colour) {
        let (width, height) = (right - left, bottom - top);
        self.0.push_str(&format!(
            "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{height}\" fill=\"rgb({r},{g},{b})\"/>\n"
        ));
    }

    fn text(&mut self, (x, y): Place, text: &str, anchor: Anchor) {
        let anchor = match anchor {
            Anchor::Start => "start",
            Anchor::Middle => "middle",
            Anchor::End => "end",
        };
        let text = text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
        self.0.push_str(&format!("<text x=\"{x}\" y=\"{y}\" text-anchor=\"{anchor}\">{text}</text>\n"));
    }
}

/// A drawing as pixels.
pub(super) struct Pixels {
    size: (i32, i32),
    bytes: Vec<u8>,
}

impl Pixels {
    pub(super) fn new(size: (i32, i32)) -> Self {
        let count = usize::try_from(size.0 * size.1).unwrap_or_default();
        Self { size, bytes: vec![255; count * 3] }
    }

    /// The drawing as a PNG file.
    pub(super) fn finish(self) -> Result<Vec<u8>, png::EncodingError> {
        let mut file = Vec::new();
        let mut encoder =
            png::Encoder::new(&mut file, self.size.0.unsigned_abs(), self.size.1.unsigned_abs());
        encoder.set_color(png::ColorType::Rgb);
        encoder.set_depth(png::BitDepth::Eight);
        let mut writer = encoder.write_header()?;
        writer.write_image_data(&self.bytes)?;
        writer.finish()?;
        Ok(file)
    }

    fn pixel(&mut self, (x, y): Place, Colour(red, green, blue): Colour) {
        if (0..self.size.0).contains(&x) && (0..self.size.1).contains(&y) {
            let at = usize::try_from((y * self.size.0 + x) * 3).unwrap_or_default();
            self.bytes[at..at + 3].copy_from_slice(&[red, green, blue]);
        }
    }
}

impl Canvas for Pixels {
    fn line(&mut self, from: Place, to: Place, colour: Colour, width: i32) {
        let (dx, dy) = (to.0 - from.0, to.1 - from.1);
        let steps = dx.abs().max(dy.abs()).max(1);
        for step in 0..=steps {
            let (x, y) = (from.0 + dx * step / steps, from.1 + dy * step / steps);
            for side in 0..width {
                // Wider across the direction in which it runs.
                let place = if dx.abs() >= dy.abs() { (x, y + side) } else { (x + side, y) };
                self.pixel(place, colour);
            }
        }
    }

    fn dot(&mut self, (x, y): Place, colour: Colour) {
        for (dx, dy) in
            (-DOT_RADIUS..=DOT_RADIUS).flat_map(|dx| (-DOT_RADIUS..=DOT_RADIUS).map(move |dy| (dx, dy)))
        {
            if dx * dx + dy * dy <= DOT_RADIUS * DOT_RADIUS + 1 {
                self.pixel((x + dx, y + dy), colour);
            }
        }
    }

    fn area(&mut self, (left, top): Place, (right, bottom): Place, colour: Colour) {
        for y in top..bottom {
            (left..right).for_each(|x| self.pixel((x, y), colour));
        }
    }

    fn text(&mut self, (x, y): Place, text: &str, anchor: Anchor) {
        let width = LETTER * i32::try_from(text.chars().count()).unwrap_or_default();
        let left = match anchor {
            Anchor::Start => x,
            Anchor::Middle => x - width / 2,
            Anchor::End => x - width,
        };
        for (letter, number) in text.chars().zip(0..) {
            let rows = BASIC_FONTS.get(letter).or_else(|| BASIC_FONTS.get('?')).unwrap_or_default();
            for (row, down) in rows.into_iter().zip(0..) {
                for across in (0..LETTER).filter(|across| row & (1 << across) != 0) {
                    let place = (left + number * LETTER + across, y - LETTER + down);
                    self.pixel(place, Colour(0, 0, 0));
                }
            }
        }
    }
}
