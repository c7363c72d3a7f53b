//! Compares the first paper's statements with our simulation.
//!
//! A ratio passes within a quarter of the stated one, a share of time within five percentage points, an efficiency
//! ("near-linear") from 75 % on, a ranking when it is the same. Numbers that only the paper's curves show are not judged.

use super::{Cell, Points, SIZES};
use crate::paper::scenario::Protocol;
use crate::paper::tpcw::Mix;

/// A ratio passes within this part of the stated one.
const RATIO: f64 = 0.25;
/// A share passes within this difference.
const SHARE: f64 = 0.05;
/// The least efficiency that counts as near-linear.
const NEAR_LINEAR: f64 = 0.75;
/// The larger of two parts is more than this.
const LARGEST: f64 = 0.5;
/// Less growth counts as none.
const FLAT: f64 = 1.10;

/// A number or words.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
#[serde(untagged)]
pub enum Value {
    /// A number.
    Number(f64),
    /// A ranking, or an inequality.
    Text(String),
}

impl Value {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Number(number) => write!(f, "{number:.2}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

/// A statement of the paper with our result.
#[derive(Clone, PartialEq, Debug, serde::Serialize)]
pub struct Line {
    /// The section or figure, and the subject.
    pub experiment: String,
    /// The paper's value.
    pub stated: Value,
    /// Our value.
    pub ours: Value,
    /// The difference of numbers: ours minus the paper's.
    pub difference: Option<f64>,
    /// Whether our value agrees.
    pub pass: bool,
}

/// All statements that these points can judge.
pub fn judge(points: &Points) -> Vec<Line> {
    let judge = Judge { points };
    let mut lines = Vec::new();
    judge.small_clusters(&mut lines);
    judge.query_times(&mut lines);
    judge.rankings(&mut lines);
    judge.large_clusters(&mut lines);
    judge.shares(&mut lines);
    judge.faster(&mut lines);
    judge.conflict_rates(&mut lines);
    lines
}

struct Judge<'a> {
    points: &'a Points,
}

impl Judge<'_> {
    fn wips(&self, mix: Mix, protocol: &'static str, replicas: usize) -> Option<f64> {
        self.at(mix, protocol, replicas, 1, 1)
    }

    fn at(&self, mix: Mix, protocol: &'static str, replicas: usize, speed: u32, parts: u16) -> Option<f64> {
        self.points.get(&Cell { mix, protocol, replicas, speed, parts }).map(|point| point.wips)
    }

    fn ratio(&self, mix: Mix, replicas: usize, over: &'static str, under: &'static str) -> Option<f64> {
        Some(self.wips(mix, over, replicas)? / self.wips(mix, under, replicas)?)
    }

    /// Section 8.1: factors at 8 replicas, in the order of the mixes.
    fn small_clusters(&self, lines: &mut Vec<Line>) {
        let stated = [
            ("conflict-aware", "eager", [1.7, 2.4, 3.5]),
            ("conflict-aware", "fr-l", [1.5, 1.6, 2.0]),
            ("fr-c", "fr-l", [1.4, 1.4, 1.25]),
        ];
        for (over, under, factors) in stated {
            for (mix, factor) in Mix::ALL.into_iter().zip(factors) {
                if let Some(ours) = self.ratio(mix, 8, over, under) {
                    lines.push(ratio(format!("8.1 {} {over} / {under} at 8", mix.name()), factor, ours));
                }
            }
        }
        for mix in Mix::ALL {
            let response = |protocol: &'static str| {
                let cell = Cell { mix, protocol, replicas: 8, speed: 1, parts: 1 };
                self.points.get(&cell).map(|point| (protocol, point.response_ms))
            };
            let five: Vec<_> = lazy_and_eager().filter_map(response).collect();
            let best = five.iter().min_by(|a, b| a.1.total_cmp(&b.1));
            if let Some((best, _)) = best.filter(|_| five.len() == 5) {
                lines.push(Line {
                    experiment: format!("8.2 {} shortest response time at 8", mix.name()),
                    stated: Value::text("conflict-aware"),
                    ours: Value::text(*best),
                    difference: None,
                    pass: *best == "conflict-aware",
                });
            }
        }
    }

    /// Section 8.3: "for all protocols, and all workloads, conflict waiting time forms the largest fraction".
    fn query_times(&self, lines: &mut Vec<Line>) {
        for mix in Mix::ALL {
            let waiting = |protocol: &'static str| {
                let cell = Cell { mix, protocol, replicas: 8, speed: 1, parts: 1 };
                self.points.get(&cell).map(|point| 1.0 - point.in_database_ms / point.request_ms)
            };
            let five: Vec<f64> = lazy_and_eager().filter_map(waiting).collect();
            let least = five.iter().copied().min_by(f64::total_cmp);
            if let Some(least) = least.filter(|_| five.len() == 5) {
                lines.push(Line {
                    experiment: format!(
                        "8.3 {} waiting, of the time of a query: least of the five",
                        mix.name()
                    ),
                    stated: Value::text(format!("> {LARGEST}")),
                    ours: Value::Number(least),
                    difference: None,
                    pass: least > LARGEST,
                });
            }
        }
    }

    fn ranking(&self, mix: Mix, replicas: usize) -> Option<String> {
        let mut five: Vec<_> =
            lazy_and_eager().filter_map(|p| Some((p, self.wips(mix, p, replicas)?))).collect();
        five.sort_by(|a, b| a.1.total_cmp(&b.1));
        let names: Vec<&str> = five.iter().map(|(name, _)| *name).collect();
        (names.len() == 5).then(|| names.join(" < "))
    }

    /// Section 8.1 at 8 replicas; section 9.2.1: "the relative order of the different schedulers remains the same".
    fn rankings(&self, lines: &mut Vec<Line>) {
        for mix in Mix::ALL {
            let stated = match mix {
                Mix::Browsing | Mix::Shopping => "eager < fr-l < vr-l < fr-c < conflict-aware",
                Mix::Ordering => "eager < fr-l < fr-c < vr-l < conflict-aware",
            };
            for (section, replicas) in [("8.1", 8), ("9.2.1", 60)] {
                if let Some(ours) = self.ranking(mix, replicas) {
                    lines.push(Line {
                        experiment: format!("{section} {} ranking at {replicas}", mix.name()),
                        stated: Value::text(stated),
                        pass: ours == stated,
                        ours: Value::Text(ours),
                        difference: None,
                    });
                }
            }
        }
    }

    /// Sections 1 and 9.2: scaling, and the largest factors over all sizes and mixes.
    fn large_clusters(&self, lines: &mut Vec<Line>) {
        let aware = "conflict-aware";
        for (mix, replicas) in [(Mix::Browsing, 60), (Mix::Shopping, 40)] {
            if let (Some(one), Some(many)) = (self.wips(mix, aware, 1), self.wips(mix, aware, replicas)) {
                let efficiency = many / one / replicas as f64;
                lines.push(Line {
                    experiment: format!(
                        "9.2 {} near-linear to {replicas}: throughput / ({replicas} x one)",
                        mix.name()
                    ),
                    stated: Value::text(format!(">= {NEAR_LINEAR}")),
                    ours: Value::Number(efficiency),
                    difference: None,
                    pass: efficiency >= NEAR_LINEAR,
                });
            }
        }
        let ordering = |replicas| self.wips(Mix::Ordering, aware, replicas);
        if let (Some(at_16), Some(at_60)) = (ordering(16), ordering(60)) {
            lines.push(Line {
                experiment: "9.2 ordering flat after 16: throughput at 60 / at 16".to_owned(),
                stated: Value::text(format!("<= {FLAT}")),
                ours: Value::Number(at_60 / at_16),
                difference: None,
                pass: at_60 / at_16 <= FLAT,
            });
        }
        for (under, stated) in [("eager", 4.4), ("fr-l", 3.0)] {
            let all = Mix::ALL.into_iter().flat_map(|mix| SIZES.map(|size| (mix, size)));
            let factors: Vec<f64> =
                all.filter_map(|(mix, size)| self.ratio(mix, size, aware, under)).collect();
            let has_all = self.wips(Mix::Ordering, under, 60).is_some();
            if let Some(most) = factors.into_iter().max_by(f64::total_cmp).filter(|_| has_all) {
                lines.push(ratio(format!("9.2 conflict-aware / {under}, up to"), stated, most));
            }
        }
    }

    /// Section 9.2.2, figure 14. The text's shares of writes are read as shares of all time, see `paper-figures.md`.
    fn shares(&self, lines: &mut Vec<Line>) {
        let stated = [
            (Mix::Browsing, 1, Some(0.01), None),
            (Mix::Browsing, 60, Some(0.08), Some(0.05)),
            (Mix::Shopping, 1, Some(0.01), None),
            (Mix::Shopping, 60, Some(0.30), Some(0.15)),
            (Mix::Ordering, 1, Some(0.06), None),
            (Mix::Ordering, 16, Some(0.16), Some(0.73)),
        ];
        for (mix, replicas, writes, idle) in stated {
            let cell = Cell { mix, protocol: "conflict-aware", replicas, speed: 1, parts: 1 };
            let Some(point) = self.points.get(&cell) else { continue };
            for (what, stated, ours) in [("write", writes, point.shares[1]), ("idle", idle, point.shares[2])]
            {
                let Some(stated) = stated else { continue };
                lines.push(Line {
                    experiment: format!("9.2.2 {} {what} share at {replicas}", mix.name()),
                    stated: Value::Number(stated),
                    ours: Value::Number(ours),
                    difference: Some(ours - stated),
                    pass: (ours - stated).abs() <= SHARE,
                });
            }
        }
    }

    /// Section 9.3: "the faster databases produce similar scaling curves": the same speed-up from 1 to 60 replicas.
    fn faster(&self, lines: &mut Vec<Line>) {
        let speed_up = |speed| {
            let at = |replicas| self.at(Mix::Shopping, "conflict-aware", replicas, speed, 1);
            Some(at(60)? / at(1)?)
        };
        for speed in [2, 4] {
            if let (Some(plain), Some(fast)) = (speed_up(1), speed_up(speed)) {
                let experiment = format!("9.3 shopping, {speed}x faster: speed-up at 60 / speed-up of 1x");
                lines.push(ratio(experiment, 1.0, fast / plain));
            }
        }
    }

    /// Section 9.4: at 1 % of the conflicts and the maximum cluster size.
    fn conflict_rates(&self, lines: &mut Vec<Line>) {
        for (under, stated) in [("eager", 1.8), ("fr-l", 1.3)] {
            let at = |protocol| self.at(Mix::Shopping, protocol, 60, 1, 100);
            if let (Some(aware), Some(rival)) = (at("conflict-aware"), at(under)) {
                let experiment = format!("9.4 conflict-aware / {under} at 1 % of the conflicts, 60 replicas");
                lines.push(ratio(experiment, stated, aware / rival));
            }
        }
    }
}

fn lazy_and_eager() -> impl Iterator<Item = &'static str> {
    Protocol::ALL.into_iter().filter(|protocol| *protocol != Protocol::Onecopy).map(Protocol::name)
}

pub(super) fn ratio(experiment: String, stated: f64, ours: f64) -> Line {
    Line {
        experiment,
        stated: Value::Number(stated),
        ours: Value::Number(ours),
        difference: Some(ours - stated),
        pass: (ours / stated - 1.0).abs() <= RATIO,
    }
}
