//! A picture of the services as SVG: a box for each, with its tables, copies and hosting.

use std::fmt::Write;

use crate::application::Application;
use crate::plan::Plan;
use crate::report::{copied, groups};

/// Width of a box, in pixels.
const WIDTH: usize = 420;
/// Height of a line of text, in pixels.
const LINE: usize = 18;
/// The free border around everything, in pixels.
const MARGIN: usize = 16;
/// Boxes side by side.
const COLUMNS: usize = 3;
/// Characters of a line of text.
const CHARACTERS: usize = 56;

/// The colours of services with and without updates (Okabe and Ito).
const UPDATED: &str = "#e69f00";
const READ_ONLY: &str = "#56b4e9";

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// A text cut into lines at its blanks.
fn wrapped(text: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split(' ') {
        let last = lines.last_mut().filter(|last| last.is_empty() || last.len() + word.len() < CHARACTERS);
        match last {
            Some(last) if last.is_empty() => last.push_str(word),
            Some(last) => {
                last.push(' ');
                last.push_str(word);
            }
            None => lines.push(format!("  {word}")),
        }
    }
    lines
}

/// The text of an SVG file.
pub fn picture(application: &Application, plan: &Plan) -> String {
    let boxes: Vec<Vec<String>> = plan
        .services
        .iter()
        .map(|service| {
            let mut lines: Vec<String> =
                groups(application, &service.columns).iter().flat_map(|group| wrapped(group)).collect();
            lines
                .extend(copied(application, service).iter().flat_map(|group| wrapped(&format!("+ {group}"))));
            lines.extend(wrapped(&service.hosting.to_string()));
            lines
        })
        .collect();
    let mut bottoms = [MARGIN; COLUMNS];
    let mut body = String::new();
    for (service, lines) in plan.services.iter().zip(&boxes) {
        let at = (0..COLUMNS).min_by_key(|&at| bottoms[at]).unwrap_or_default();
        let (x, y) = (MARGIN + at * (WIDTH + MARGIN), bottoms[at]);
        let height = LINE * (lines.len() + 2);
        let colour = if service.updated { UPDATED } else { READ_ONLY };
        writeln!(
            body,
            "<rect x=\"{x}\" y=\"{y}\" width=\"{WIDTH}\" height=\"{height}\" fill=\"{colour}\" fill-opacity=\"0.25\" \
             stroke=\"{colour}\" rx=\"6\"/>"
        )
        .unwrap_or_default();
        let mut text = |line: usize, weight: &str, text: &str| {
            writeln!(
                body,
                "<text x=\"{}\" y=\"{}\" font-weight=\"{weight}\">{}</text>",
                x + 10,
                y + LINE * line + 16,
                escaped(text)
            )
            .unwrap_or_default();
        };
        text(0, "bold", &service.name);
        for (line, content) in lines.iter().enumerate() {
            text(line + 1, "normal", content);
        }
        bottoms[at] = y + height + MARGIN;
    }
    let width = MARGIN + COLUMNS * (WIDTH + MARGIN);
    let height = bottoms.iter().max().copied().unwrap_or(MARGIN);
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" font-family=\"sans-serif\" \
         font-size=\"13\" xml:space=\"preserve\">\n<title>Data services of {}</title>\n{body}</svg>\n",
        escaped(&application.name)
    )
}
