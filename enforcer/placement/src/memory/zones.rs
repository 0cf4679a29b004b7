//! Claims of one kind of memory, summed up by zone.
//!
//! A host has many claims and few zones, most of them single nodes. Each claim must be cheap: every placement
//! adds all claims of the host.

use std::collections::BTreeMap;

use super::promises::Promises;
use crate::nodes::{Mask, NodeIndex};

/// Claims and forecasts by zone.
#[derive(Debug)]
pub(super) struct ZoneSums {
    sums: Vec<Sum>,
    /// Index in `sums` of single nodes, by position.
    single: [Option<usize>; NodeIndex::LARGEST],
    /// Index in `sums` of other zones.
    several: BTreeMap<Mask, usize>,
}

#[derive(Debug)]
struct Sum {
    nodes: Mask,
    bytes: u64,
    by_node: [u64; NodeIndex::LARGEST],
}

impl ZoneSums {
    /// No claims yet.
    pub(super) const fn new() -> Self {
        Self { sums: Vec::new(), single: [None; NodeIndex::LARGEST], several: BTreeMap::new() }
    }

    /// Adds a claim on these nodes, at least one, and its forecast by position.
    pub(super) fn add(&mut self, nodes: Mask, bytes: u64, forecast: impl Iterator<Item = (usize, u64)>) {
        let sum = self.sum(nodes);
        sum.bytes = sum.bytes.saturating_add(bytes);
        for (node, bytes) in forecast {
            if let Some(sum) = sum.by_node.get_mut(node) {
                *sum = sum.saturating_add(bytes);
            }
        }
    }

    /// Promises all of it: by forecast as far as possible, and narrow zones first, because they have the
    /// fewest alternatives.
    pub(super) fn enter(mut self, promises: &mut Promises) {
        self.sums.sort_unstable_by_key(|sum| (sum.nodes.count_ones(), sum.nodes));
        for Sum { nodes, bytes, by_node } in self.sums {
            let zone = promises.open(nodes);
            promises.note(zone, bytes);
            for (node, bytes) in by_node.into_iter().enumerate().filter(|(_, bytes)| *bytes > 0) {
                promises.lay(zone, node, bytes);
            }
            promises.serve_rest(zone);
        }
    }

    fn sum(&mut self, nodes: Mask) -> &mut Sum {
        let next = self.sums.len();
        let place = if nodes.is_power_of_two() {
            *self.single[nodes.trailing_zeros() as usize].get_or_insert(next)
        } else {
            *self.several.entry(nodes).or_insert(next)
        };
        if place == next {
            self.sums.push(Sum { nodes, bytes: 0, by_node: [0; NodeIndex::LARGEST] });
        }
        &mut self.sums[place]
    }
}
