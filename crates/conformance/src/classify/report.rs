//! The table of `bench classify`.

use std::fmt;

use sql::Statistics;
use testbed::machine::Circumstances;

use super::Samples;
use super::corpus::{Corpus, Form};

/// The measurements, as text.
#[derive(Debug)]
pub(super) struct Report(String);

impl Report {
    /// The head of the table.
    pub(super) fn new(circumstances: &Circumstances, rounds: u32) -> Self {
        let mut report = Self(format!(
            "{circumstances}\nnanoseconds of processor time per statement, median of {rounds} rounds\n\n"
        ));
        let columns =
            ["corpus", "values", "sent", "bytes", "parse", "miss", "hit", "best-worst", "+tables", "+rows"];
        report.row(&columns.map(str::to_owned));
        report
    }

    /// A row of the table.
    pub(super) fn add(&mut self, corpus: &Corpus, samples: &Samples) {
        let form = match corpus.form {
            Form::Parameters => "parameters",
            Form::Constants => "constants",
        };
        let [best, hit, worst] = spread(&samples.hit);
        let median = |samples: &[f64]| format!("{:.0}", spread(samples)[1]);
        self.row(&[
            corpus.name.to_owned(),
            form.to_owned(),
            corpus.statements().to_string(),
            corpus.mean_bytes().to_string(),
            median(&samples.parse),
            median(&samples.miss),
            format!("{hit:.0}"),
            format!("{best:.0}-{worst:.0}"),
            median(&samples.tables),
            median(&samples.rows),
        ]);
    }

    /// Statistics of the cache after each statement went through it once.
    pub(super) fn statistics(&mut self, statistics: Statistics) {
        let Statistics { hits, misses, evictions, entries, bytes } = statistics;
        self.0 += &format!(
            "\nthe cache of one analyzer after all of this: {hits} hits, {misses} misses, {evictions} evictions, \
             {entries} entries, {bytes} bytes"
        );
    }

    fn row(&mut self, cells: &[String; 10]) {
        let [name, form, numbers @ ..] = cells;
        self.0 += &format!("{name:<10}{form:<12}");
        for (number, width) in numbers.iter().zip([6, 7, 8, 8, 7, 12, 9, 7]) {
            self.0 += &format!("{number:>width$}");
        }
        self.0.push('\n');
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Least, median and greatest.
fn spread(samples: &[f64]) -> [f64; 3] {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.get(sorted.len() / 2);
    [sorted.first(), middle, sorted.last()].map(|sample| sample.copied().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn medians_and_ends() {
        assert_eq!(format!("{:?}", spread(&[3.0, 1.0, 2.0])), "[1.0, 2.0, 3.0]");
    }
}
