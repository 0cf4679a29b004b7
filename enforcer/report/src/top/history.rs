//! Figures of workloads over the latest turns, for the details of one of them.
//!
//! Bounded: [`TURNS`] points of a workload, and only of the workloads in the latest report. A turn that is
//! reported twice is one point.

use std::collections::{BTreeMap, VecDeque};

use super::report::{TopTurn, TopWorkload, WorkloadKey};

/// Turns that are remembered.
pub(super) const TURNS: usize = 120;

/// One workload in one turn.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Point {
    /// Share of its memory accesses that are remote.
    pub traffic: Option<f64>,
    /// Bytes where it has no CPUs.
    pub misplaced: Option<f64>,
    /// Placements on another node per second.
    pub migrations: Option<f64>,
    /// Busy CPUs.
    pub busy: Option<f64>,
}

impl Point {
    #[expect(clippy::cast_precision_loss, reason = "a column of a chart shows eight heights")]
    fn new(workload: &TopWorkload) -> Self {
        Self {
            traffic: workload.remote_traffic,
            misplaced: workload.misplaced_bytes.map(|bytes| bytes as f64),
            migrations: workload.migrations_per_second,
            busy: workload.cpus_used,
        }
    }
}

/// Histories of all workloads.
#[derive(Debug, Clone, Default)]
pub(super) struct Histories {
    by_workload: BTreeMap<WorkloadKey, VecDeque<Point>>,
    /// Process and turn of the latest points.
    latest: Option<(u32, u64)>,
}

impl Histories {
    /// Adds a turn of the process `pid`, unless it was added already.
    pub(super) fn add(&mut self, pid: u32, turn: &TopTurn) {
        if self.latest.replace((pid, turn.number)) == Some((pid, turn.number)) {
            return;
        }
        let mut before = std::mem::take(&mut self.by_workload);
        for workload in &turn.workloads {
            let mut points = before.remove(&workload.key()).unwrap_or_default();
            if points.len() >= TURNS {
                points.pop_front();
            }
            points.push_back(Point::new(workload));
            self.by_workload.insert(workload.key(), points);
        }
    }

    /// History of one workload, oldest first; empty for an unknown one.
    pub(super) fn of(&self, key: &WorkloadKey) -> impl Iterator<Item = &Point> {
        self.by_workload.get(key).into_iter().flatten()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::top::tests::{plain, turn};

    #[test]
    fn a_turn_is_one_point_and_the_gone_are_forgotten() {
        let mut histories = Histories::default();
        let key = plain("/a").key();
        for number in [1, 1, 2] {
            histories.add(7, &turn(number, vec![plain("/a")]));
        }
        assert_eq!(histories.of(&key).count(), 2);
        // Another daemon's first turns are new ones.
        histories.add(8, &turn(2, vec![plain("/a")]));
        assert_eq!(histories.of(&key).count(), 3);
        for number in 3..TURNS as u64 * 2 {
            histories.add(8, &turn(number, vec![plain("/a"), plain("/b")]));
        }
        assert_eq!(histories.of(&key).count(), TURNS);
        histories.add(8, &turn(1_000, vec![plain("/b")]));
        assert_eq!(histories.of(&key).count(), 0);
    }
}
