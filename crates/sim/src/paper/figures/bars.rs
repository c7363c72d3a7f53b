//! The bar charts: response times (6), the parts of a query's time (7 to 9), the shares of databases' time (14).
//!
//! As in the paper, times are relative to those of `eager` with the same mix.

use super::{Cell, ENDS, Point, Points};
use crate::paper::scenario::Protocol;
use crate::paper::tpcw::Mix;

/// A figure as groups of bars.
#[derive(Clone, PartialEq, Debug)]
pub struct Bars {
    /// Its number in the paper.
    pub number: u8,
    /// Its title.
    pub title: String,
    /// The label of the vertical axis.
    pub unit: String,
    /// The legend of the colours.
    pub legend: Vec<String>,
    /// The groups from left to right.
    pub groups: Vec<Group>,
}

/// A group of bars.
#[derive(Clone, PartialEq, Debug)]
pub struct Group {
    /// The label below.
    pub name: String,
    /// From left to right.
    pub bars: Vec<Bar>,
}

/// One bar.
#[derive(Clone, PartialEq, Debug)]
pub struct Bar {
    /// The label below; nothing where the colour tells.
    pub name: String,
    /// Its segments from the bottom: the colour's index in the legend, and the height.
    pub parts: Vec<(usize, f64)>,
}

/// The number of replicas of figures 6 to 9.
const REPLICAS: usize = 8;

/// The figures of bars that can be drawn from these points.
pub fn bars(points: &Points) -> Vec<Bars> {
    let mut figures: Vec<Bars> = responses(points).into_iter().collect();
    figures.extend((7..).zip(Mix::ALL).filter_map(|(number, mix)| query_times(points, number, mix)));
    figures.extend(shares(points));
    figures
}

fn names() -> Vec<String> {
    Protocol::ALL.map(|protocol| protocol.name().to_owned()).to_vec()
}

/// The points of all protocols with this mix, if none is missing.
fn all(points: &Points, mix: Mix) -> Option<Vec<&Point>> {
    let at = |protocol: Protocol| {
        points.get(&Cell { mix, protocol: protocol.name(), replicas: REPLICAS, speed: 1, parts: 1 })
    };
    Protocol::ALL.into_iter().map(at).collect()
}

fn responses(points: &Points) -> Option<Bars> {
    let group = |mix: Mix| {
        let all = all(points, mix)?;
        let eager_ms = all.first()?.response_ms;
        let bar = |(number, point): (usize, &&Point)| Bar {
            name: String::new(),
            parts: vec![(number, point.response_ms / eager_ms)],
        };
        Some(Group { name: mix.name().to_owned(), bars: all.iter().enumerate().map(bar).collect() })
    };
    let groups: Option<Vec<Group>> = Mix::ALL.into_iter().map(group).collect();
    Some(Bars {
        number: 6,
        title: format!("response time at the peak, {REPLICAS} replicas"),
        unit: "of what an interaction takes with eager".to_owned(),
        legend: names(),
        groups: groups?,
    })
}

fn query_times(points: &Points, number: u8, mix: Mix) -> Option<Bars> {
    let all = all(points, mix)?;
    let eager_ms = all.first()?.request_ms;
    let group = |point: &&Point| {
        let waiting_ms = (point.request_ms - point.in_database_ms).max(0.0);
        let parts = vec![(0, point.in_database_ms / eager_ms), (1, waiting_ms / eager_ms)];
        Group { name: point.cell.protocol.to_owned(), bars: vec![Bar { name: String::new(), parts }] }
    };
    Some(Bars {
        number,
        title: format!("time of a query at the peak, {} mix, {REPLICAS} replicas", mix.name()),
        unit: "of what a query takes with eager".to_owned(),
        legend: vec!["in a database".to_owned(), "waiting".to_owned()],
        groups: all.iter().map(group).collect(),
    })
}

fn shares(points: &Points) -> Option<Bars> {
    let group = |(mix, replicas): (Mix, usize)| {
        let bar = |protocol: Protocol| {
            let point = points.get(&Cell { mix, protocol: protocol.name(), replicas, speed: 1, parts: 1 })?;
            let parts = point.shares.iter().map(|share| share * 100.0).enumerate().collect();
            Some(Bar { name: protocol.name().to_owned(), parts })
        };
        let bars: Option<Vec<Bar>> = [Protocol::ALL[4], Protocol::Onecopy].into_iter().map(bar).collect();
        Some(Group { name: format!("{} x{replicas}", mix.name()), bars: bars? })
    };
    let cells = ENDS.into_iter().flat_map(|(mix, most)| [(mix, 1), (mix, most)]);
    let groups: Option<Vec<Group>> = cells.map(group).collect();
    Some(Bars {
        number: 14,
        title: "what databases do with their time".to_owned(),
        unit: "percent".to_owned(),
        legend: ["reads", "writes", "idle"].map(str::to_owned).to_vec(),
        groups: groups?,
    })
}
