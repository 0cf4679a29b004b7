//! Memory of one workload by node, as a bar and in words.
//!
//! The bar is as long as all of its memory. Memory near its CPUs has full height, remote memory half of it,
//! so no colour is needed. The style draws the bar before the words, by the cell's class for the remote
//! share, without an extra element: there are thousands of cells.

use enforcer_core::audit::AuditedWorkload;
use maud::{Markup, html};
use numa_topology::{Locality, id::NodeId};

use crate::{units, view::workload::most_first};

/// Nodes that are named.
const NAMED: usize = 4;
/// Steps of a bar, each with a class in `page.css`.
pub(super) const STEPS: u64 = 20;

/// Memory of one workload.
pub(super) struct WorkloadMemory {
    /// Nodes with most of it, most first.
    named: Vec<(NodeId, u64)>,
    others: Vec<(NodeId, u64)>,
    total: u64,
    /// `None` where its CPUs are unknown.
    away: Option<u64>,
}

impl WorkloadMemory {
    /// None where it is not known.
    pub(super) fn of(workload: &AuditedWorkload, locality: &Locality) -> Option<Self> {
        let mut sizes = most_first(workload.bytes_by_numa.as_ref()?);
        let cpu_nodes = &workload.numa_nodes;
        let is_away = |(node, _): &&(NodeId, u64)| locality.is_far(*node, cpu_nodes);
        let (total, away) = (sum(&sizes), sum(sizes.iter().filter(is_away)));
        let others = sizes.split_off(sizes.len().min(NAMED));
        Some(Self { named: sizes, others, total, away: (!cpu_nodes.is_empty()).then_some(away) })
    }

    pub(super) const fn total(&self) -> u64 {
        self.total
    }

    /// The class of its cell, if there is something to draw.
    pub(super) fn bar(&self) -> Option<String> {
        let away = self.away.filter(|_| self.total > 0)?;
        Some(class(steps(away, self.total)))
    }

    /// `1: 3.5 GiB, 0: 30 MiB`.
    pub(super) fn in_words(&self) -> String {
        if self.total == 0 {
            return "-".into();
        }
        let mut said: Vec<String> =
            units::by_node(self.named.iter().map(|(node, size)| (node, size))).collect();
        if !self.others.is_empty() {
            let (number, bytes) = (units::count(self.others.len(), "other"), units::bytes(sum(&self.others)));
            said.push(format!("{number}: {bytes}"));
        }
        said.join(", ")
    }
}

fn sum<'a>(sizes: impl IntoIterator<Item = &'a (NodeId, u64)>) -> u64 {
    sizes.into_iter().fold(0, |total, (_, size)| total.saturating_add(*size))
}

fn class(steps: u64) -> String {
    format!("m{steps}")
}

/// The nearest step; never none or all of them where it is neither.
fn steps(away: u64, total: u64) -> u64 {
    let (away, total) = (u128::from(away.min(total)), u128::from(total.max(1)));
    let nearest = (away * u128::from(STEPS) * 2 + total) / (total * 2);
    let nearest = u64::try_from(nearest).unwrap_or(STEPS);
    if away == 0 || away == total { nearest } else { nearest.clamp(1, STEPS - 1) }
}

/// Legend of the bar.
pub(super) fn legend() -> Markup {
    html! {
        p.key {
            @for (steps, words) in [(0, "memory near the workload's CPUs"), (STEPS, "memory away from them")] {
                span { span class=(class(steps)) {} (words) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_little_is_seen_and_so_is_what_is_left() {
        for (away, total, expected) in [
            (0, 0, 0),
            (0, 1000, 0),
            (1, 1000, 1),
            (74, 1000, 1),
            (75, 1000, 2),
            (500, 1000, 10),
            (999, 1000, 19),
            (1000, 1000, 20),
            (1, u64::MAX, 1),
            (u64::MAX, u64::MAX, 20),
        ] {
            assert_eq!(steps(away, total), expected, "{away} of {total}");
        }
    }
}
