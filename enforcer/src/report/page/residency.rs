//! Where the memory of one workload is, as a bar and in words.
//!
//! The bar is as long as all of its memory; parts on nodes that are local to its CPUs are full height, parts that are not
//! are half of it, so that no colour is needed. The nodes that hold most have a part each, the others are one.

use std::{cmp::Reverse, collections::BTreeMap};

use enforcer_core::{audit::AuditedWorkload, id::NodeId, model::Locality, sample::NodeBytes};
use maud::{Markup, html};

use super::machine::scaled;
use crate::report::{units, words};

/// Nodes with a part of their own.
const PARTS: usize = 4;
/// Length of the bar.
const LENGTH: u32 = 100;
/// Its height.
const HEIGHT: u32 = 8;

/// Memory of one workload, most first.
struct Parts {
    shown: Vec<(u64, NodeId)>,
    others: Vec<(u64, NodeId)>,
    total: u64,
}

impl Parts {
    fn of(by_node: &BTreeMap<NodeId, NodeBytes>) -> Self {
        let mut sizes: Vec<(u64, NodeId)> = by_node
            .iter()
            .map(|(node, bytes)| (words::bytes(bytes), *node))
            .filter(|(size, _)| *size > 0)
            .collect();
        sizes.sort_by_key(|(size, node)| (Reverse(*size), *node));
        let total = sizes.iter().fold(0u64, |total, (size, _)| total.saturating_add(*size));
        let others = sizes.split_off(sizes.len().min(PARTS));
        Self { shown: sizes, others, total }
    }
}

/// All of its memory, for sorting; none where it is not known.
pub(super) fn total(workload: &AuditedWorkload) -> Option<u64> {
    workload.bytes_by_numa.as_ref().map(|by_node| Parts::of(by_node).total)
}

/// The cell of the table.
pub(super) fn residency(workload: &AuditedWorkload, locality: &Locality) -> Markup {
    let Some(by_node) = &workload.bytes_by_numa else { return html! { "?" } };
    let parts = Parts::of(by_node);
    if parts.total == 0 {
        return html! { "-" };
    }
    html! { (bar(&parts, workload, locality)) (in_words(&parts)) }
}

fn bar(parts: &Parts, workload: &AuditedWorkload, locality: &Locality) -> Markup {
    let mut ends = 0u64;
    let pieces: Vec<(u32, u32, bool)> = parts
        .shown
        .iter()
        .map(|(size, node)| {
            let start = scaled(ends, parts.total, LENGTH);
            ends = ends.saturating_add(*size);
            (start, scaled(ends, parts.total, LENGTH), locality.is_local(*node, &workload.numa_nodes))
        })
        .collect();
    let rest = scaled(ends, parts.total, LENGTH);
    html! {
        svg.res viewBox={ "0 0 " (LENGTH) " " (HEIGHT) } aria-hidden="true" {
            @for (start, end, local) in pieces {
                @if local { rect.near x=(start) width=(end - start) height=(HEIGHT) {} }
                @else { rect.far x=(start) y=(HEIGHT / 2) width=(end - start) height=(HEIGHT / 2) {} }
            }
            @if rest < LENGTH && !parts.others.is_empty() {
                rect.rest x=(rest) width=(LENGTH - rest) height=(HEIGHT) {}
            }
        }
    }
}

/// `1: 3.5 GiB, 0: 30 MiB`.
fn in_words(parts: &Parts) -> String {
    let mut said: Vec<String> =
        parts.shown.iter().map(|(size, node)| format!("{node}: {}", units::bytes(*size))).collect();
    if !parts.others.is_empty() {
        let bytes = parts.others.iter().fold(0u64, |total, (size, _)| total.saturating_add(*size));
        said.push(format!("{}: {}", units::count(parts.others.len(), "other"), units::bytes(bytes)));
    }
    said.join(", ")
}
