//! Table 1 and the end of section 9.3: the resources that schedulers use, and how many the fastest replicas need.
//!
//! The processor of a scheduler takes [`MESSAGE_US`] for each message, in or out. That is so long that one scheduler of 60 replicas is as
//! busy with the shopping mix as table 1 says. So the processor in table 1 is an input; the number of schedulers in section 9.3 and the
//! other mixes in section 9.2.2 follow. The sizes of messages are assumptions (`shipping/bytes.rs`).

use super::stated::{Line, Value, ratio};
use super::{Cell, Setting, scenario};
use crate::paper::peak;
use crate::paper::scenario::{Disk, Front};
use crate::paper::tpcw::Mix;

/// The processor time of a scheduler for one message.
pub const MESSAGE_US: u64 = 45;
/// The speed of the fastest replicas.
const FASTEST: u32 = 4;
/// Schedulers are enough if one more brings no more than this part of the throughput.
const NEGLIGIBLE: f64 = 0.05;

/// Schedulers whose processors take time, with 60 replicas.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Crowd {
    /// The mix.
    pub mix: Mix,
    /// The speed-up of the databases.
    pub speed: u32,
    /// The number of schedulers.
    pub schedulers: usize,
}

/// The numbers of schedulers with each mix, and with the fastest replicas.
const COUNTS: [(Mix, u32, usize); 4] =
    [(Mix::Browsing, 1, 2), (Mix::Shopping, 1, 2), (Mix::Ordering, 1, 2), (Mix::Shopping, FASTEST, 4)];

/// All crowds to simulate.
pub fn crowds() -> Vec<Crowd> {
    let of = |(mix, speed, most)| (1..=most).map(move |schedulers| Crowd { mix, speed, schedulers });
    COUNTS.into_iter().flat_map(of).collect()
}

impl Crowd {
    fn cell(self) -> Cell {
        Cell { mix: self.mix, protocol: "conflict-aware", replicas: 60, speed: self.speed, parts: 1 }
    }
}

/// The resources that schedulers use at the peak.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Resources {
    /// The schedulers.
    pub crowd: Crowd,
    /// Interactions per second.
    pub wips: f64,
    /// Messages of one interaction.
    pub messages_per_interaction: f64,
    /// The share of its time that the processor of a scheduler is busy.
    pub busy: f64,
    /// The most memory that their state takes.
    pub memory_mb: f64,
    /// To and from all of them.
    pub network_mb_per_s: f64,
    /// To all logs.
    pub disk_mb_per_s: f64,
}

/// Simulates one crowd.
pub fn resources(crowd: Crowd, setting: Setting) -> Resources {
    let mut scenario = scenario(crowd.cell(), setting);
    scenario.front = Front { schedulers: crowd.schedulers, message_us: MESSAGE_US, disk: Disk::Together };
    let outcome = peak::peak(&scenario).outcome;
    // A microsecond is a millionth of a second, so bytes in a microsecond are megabytes in a second.
    let per_us = |number: u64| number as f64 / outcome.measured_us.max(1) as f64;
    Resources {
        crowd,
        wips: outcome.wips(),
        messages_per_interaction: outcome.messages as f64 / outcome.interactions.max(1) as f64,
        busy: per_us(outcome.scheduler_us) / crowd.schedulers as f64,
        memory_mb: outcome.memory_bytes as f64 / 1e6,
        network_mb_per_s: per_us(outcome.network_bytes),
        disk_mb_per_s: per_us(outcome.log_bytes),
    }
}

/// The statements about schedulers that these measurements can judge.
pub fn judge_resources(all: &[Resources]) -> Vec<Line> {
    let mut lines = Vec::new();
    let table_1 = Crowd { mix: Mix::Shopping, speed: 1, schedulers: 1 };
    if let Some(table_1) = all.iter().find(|one| one.crowd == table_1) {
        lines.push(ratio("table 1 memory, MB".to_owned(), 6.3, table_1.memory_mb));
        lines.push(ratio("table 1 network, MB/s".to_owned(), 3.8, table_1.network_mb_per_s));
        lines.push(ratio("table 1 disk, MB/s".to_owned(), 0.021, table_1.disk_mb_per_s));
    }
    for (mix, speed, most) in COUNTS {
        let wips = |schedulers| {
            let crowd = Crowd { mix, speed, schedulers };
            all.iter().find(|one| one.crowd == crowd).map(|one| one.wips)
        };
        let Some(wips) = (1..=most).map(wips).collect::<Option<Vec<f64>>>() else { continue };
        let enough = wips.windows(2).position(|pair| pair[1] <= (1.0 + NEGLIGIBLE) * pair[0]);
        let ours = enough.map_or_else(|| format!(">= {most}"), |before| (before + 1).to_string());
        let (section, stated) = if speed == 1 { ("9.2.2", "1") } else { ("9.3", "3") };
        lines.push(Line {
            experiment: format!("{section} {} {speed}x at 60: schedulers that are enough", mix.name()),
            stated: Value::text(stated),
            pass: ours == stated,
            ours: Value::Text(ours),
            difference: None,
        });
    }
    lines
}
