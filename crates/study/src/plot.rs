//! Draws the paper's figures as charts.

use std::fs;
use std::path::Path;

use chart::{Bar, Bars, Chart, Group, Lines, Series};
use sim::paper::{figures, gargamel};

use crate::command::Error;

/// Draws every figure into the folder, which it creates if necessary.
pub(crate) fn draw(folder: &Path, curves: &[figures::Figure], bars: &[figures::Bars]) -> Result<(), Error> {
    fs::create_dir_all(folder).map_err(|error| Error::File(folder.to_owned(), error.to_string()))?;
    let curves = curves.iter().map(|figure| (figure.number, of_curves(figure)));
    for (number, figure) in curves.chain(bars.iter().map(|figure| (figure.number, of_bars(figure)))) {
        let path = folder.join(format!("figure-{number:02}"));
        chart::write(&figure, &path).map_err(|error| Error::File(folder.to_owned(), error.to_string()))?;
    }
    Ok(())
}

/// Draws figures of lines into the folder, which it creates if necessary. The names of the files begin with that of the paper.
pub(crate) fn draw_lines(folder: &Path, paper: &str, all: &[gargamel::figures::Figure]) -> Result<(), Error> {
    let failed = |error: String| Error::File(folder.to_owned(), error);
    fs::create_dir_all(folder).map_err(|error| failed(error.to_string()))?;
    for figure in all {
        let series =
            figure.curves.iter().map(|(name, points)| Series { name: name.clone(), points: points.clone() });
        let lines = Lines {
            title: format!("Figure {}: {}", figure.number.trim_start_matches('0'), figure.title),
            x: figure.x.to_owned(),
            y: figure.y.to_owned(),
            series: series.collect(),
            has_marks: figure.has_marks,
        };
        let path = folder.join(format!("{paper}-{}", figure.number));
        chart::write(&Chart::Lines(lines), &path).map_err(|error| failed(error.to_string()))?;
    }
    Ok(())
}

fn title(number: u8, title: &str) -> String {
    format!("Figure {number}: {title}")
}

fn of_curves(figure: &figures::Figure) -> Chart {
    let series =
        figure.lines.iter().map(|(name, points)| Series { name: name.clone(), points: points.clone() });
    Chart::Lines(Lines {
        title: title(figure.number, &figure.title),
        x: "database replicas".to_owned(),
        y: "web interactions per second".to_owned(),
        series: series.collect(),
        has_marks: true,
    })
}

fn of_bars(figure: &figures::Bars) -> Chart {
    let bar = |bar: &figures::Bar| Bar { name: bar.name.clone(), parts: bar.parts.clone() };
    let group = |group: &figures::Group| Group {
        name: group.name.clone(),
        bars: group.bars.iter().map(bar).collect(),
    };
    Chart::Bars(Bars {
        title: title(figure.number, &figure.title),
        y: figure.unit.clone(),
        legend: figure.legend.clone(),
        groups: figure.groups.iter().map(group).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_of_a_paper_have_its_name() {
        let folder = std::env::temp_dir().join(format!("study-lines-{}", std::process::id()));
        let figure = gargamel::figures::Figure {
            number: "09a".to_owned(),
            title: "a queue".to_owned(),
            x: "seconds",
            y: "waiting transactions",
            curves: vec![("tashkent+".to_owned(), vec![(0.0, 1.0), (1.0, 5.0)])],
            has_marks: false,
        };
        draw_lines(&folder, "gargamel", &[figure]).unwrap();
        let text = fs::read_to_string(folder.join("gargamel-09a.svg")).unwrap();
        fs::remove_dir_all(&folder).unwrap();
        for word in ["Figure 9a: a queue", "seconds", "waiting transactions", "tashkent+"] {
            assert!(text.contains(word), "{word}");
        }
    }

    #[test]
    fn figures_of_both_kinds_are_drawn_with_their_words() {
        let folder = std::env::temp_dir().join(format!("study-plot-{}", std::process::id()));
        let lines = vec![("fr-l".to_owned(), vec![(1.0, 4.0), (8.0, 20.0)])];
        let curves = figures::Figure { number: 11, title: "a mix".to_owned(), lines };
        let bar = figures::Bar { name: "vr-l".to_owned(), parts: vec![(0, 75.0), (1, 25.0)] };
        let bars = figures::Bars {
            number: 6,
            title: "what they do".to_owned(),
            unit: "percent".to_owned(),
            legend: vec!["reads".to_owned(), "writes".to_owned()],
            groups: vec![figures::Group { name: "browsing x60".to_owned(), bars: vec![bar] }],
        };
        draw(&folder, &[curves], &[bars]).unwrap();
        let text = |name: &str| fs::read_to_string(folder.join(name)).unwrap();
        let (curves, bars) = (text("figure-11.svg"), text("figure-06.svg"));
        let has_pixels = folder.join("figure-11.png").is_file() && folder.join("figure-06.png").is_file();
        fs::remove_dir_all(&folder).unwrap();
        for word in ["Figure 11: a mix", "database replicas", "web interactions per second", "fr-l"] {
            assert!(curves.contains(word), "{word}");
        }
        for word in ["Figure 6: what they do", "percent", "reads", "writes", "browsing x60", "vr-l"] {
            assert!(bars.contains(word), "{word}");
        }
        assert!(has_pixels);
    }
}
