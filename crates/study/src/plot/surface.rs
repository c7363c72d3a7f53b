//! Text on a drawing without any font of the machine.
//!
//! Lines and areas are plotters' backends'. How large a text is, is told from an 8x8 bitmap font; on a bitmap it is drawn
//! from that font pixel by pixel, while an SVG keeps it as text.

use font8x8::{BASIC_FONTS, UnicodeFonts};
use plotters::prelude::DrawingBackend;
use plotters_backend::text_anchor::{HPos, VPos};
use plotters_backend::{
    BackendColor, BackendCoord, BackendStyle, BackendTextStyle, DrawingErrorKind, FontTransform,
};

/// Width and height of a letter, in its own pixels.
const LETTER: i32 = 8;
/// From this size on letters are two pixels for one.
const LARGE_PT: f64 = 18.0;

/// A drawing surface with letters of its own.
pub(super) struct Surface<B> {
    inner: B,
    /// Letters are drawn pixel by pixel.
    has_pixels: bool,
}

impl<B: DrawingBackend> Surface<B> {
    /// One that keeps text as text.
    pub(super) fn of_text(inner: B) -> Self {
        Self { inner, has_pixels: false }
    }

    /// One that has only pixels.
    pub(super) fn of_pixels(inner: B) -> Self {
        Self { inner, has_pixels: true }
    }
}

/// The buffer as a file.
pub(super) fn encode(pixels: &[u8], size: (u32, u32)) -> Result<Vec<u8>, png::EncodingError> {
    let mut bytes = Vec::new();
    let mut encoder = png::Encoder::new(&mut bytes, size.0, size.1);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_depth(png::BitDepth::Eight);
    let mut writer = encoder.write_header()?;
    writer.write_image_data(pixels)?;
    writer.finish()?;
    Ok(bytes)
}

fn scale(size: f64) -> i32 {
    if size >= LARGE_PT { 2 } else { 1 }
}

/// Width and height of a text before it is turned.
fn extent(text: &str, size: f64) -> (i32, i32) {
    let scale = scale(size);
    let letters = i32::try_from(text.chars().count()).unwrap_or(i32::MAX / LETTER / 2);
    (letters * LETTER * scale, LETTER * scale)
}

impl<B: DrawingBackend> DrawingBackend for Surface<B> {
    type ErrorType = B::ErrorType;

    fn get_size(&self) -> (u32, u32) {
        self.inner.get_size()
    }

    fn ensure_prepared(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.inner.ensure_prepared()
    }

    fn present(&mut self) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.inner.present()
    }

    fn draw_pixel(
        &mut self,
        point: BackendCoord,
        color: BackendColor,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.inner.draw_pixel(point, color)
    }

    fn draw_line<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.inner.draw_line(from, to, style)
    }

    fn draw_rect<S: BackendStyle>(
        &mut self,
        from: BackendCoord,
        to: BackendCoord,
        style: &S,
        fill: bool,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.inner.draw_rect(from, to, style, fill)
    }

    fn draw_path<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        path: I,
        style: &S,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.inner.draw_path(path, style)
    }

    fn draw_circle<S: BackendStyle>(
        &mut self,
        center: BackendCoord,
        radius: u32,
        style: &S,
        fill: bool,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.inner.draw_circle(center, radius, style, fill)
    }

    fn fill_polygon<S: BackendStyle, I: IntoIterator<Item = BackendCoord>>(
        &mut self,
        corners: I,
        style: &S,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        self.inner.fill_polygon(corners, style)
    }

    fn draw_text<S: BackendTextStyle>(
        &mut self,
        text: &str,
        style: &S,
        at: BackendCoord,
    ) -> Result<(), DrawingErrorKind<Self::ErrorType>> {
        if !self.has_pixels {
            return self.inner.draw_text(text, style, at);
        }
        let (width, height) = extent(text, style.size());
        let scale = scale(style.size());
        let shift_x = match style.anchor().h_pos {
            HPos::Left => 0,
            HPos::Center => -width / 2,
            HPos::Right => -width,
        };
        let shift_y = match style.anchor().v_pos {
            VPos::Top => 0,
            VPos::Center => -height / 2,
            VPos::Bottom => -height,
        };
        for (letter, number) in text.chars().zip(0..) {
            let rows = BASIC_FONTS.get(letter).unwrap_or_else(|| BASIC_FONTS.get('?').unwrap_or_default());
            for (y, row) in (0..).zip(rows) {
                for x in (0..LETTER).filter(|x| row & (1 << x) != 0) {
                    for (dx, dy) in (0..scale).flat_map(|dx| (0..scale).map(move |dy| (dx, dy))) {
                        let across = shift_x + (number * LETTER + x) * scale + dx;
                        let down = shift_y + y * scale + dy;
                        let (x, y) = match style.transform() {
                            FontTransform::Rotate90 => (-down, across),
                            FontTransform::Rotate180 => (-across, -down),
                            FontTransform::Rotate270 => (down, -across),
                            FontTransform::None => (across, down),
                        };
                        self.inner.draw_pixel((at.0 + x, at.1 + y), style.color())?;
                    }
                }
            }
        }
        Ok(())
    }

    fn estimate_text_size<S: BackendTextStyle>(
        &self,
        text: &str,
        style: &S,
    ) -> Result<(u32, u32), DrawingErrorKind<Self::ErrorType>> {
        let (width, height) = extent(text, style.size());
        Ok((width.unsigned_abs(), height.unsigned_abs()))
    }
}
