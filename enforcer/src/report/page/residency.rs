//! Where the memory of one workload is, as a bar and in words.
//!
//! The bar is as long as all of its memory; parts on nodes that are local to its CPUs are full height, parts that are not
//! are half of it, so that no colour is needed. The nodes that hold most have a part each, the others are a thin line.

use std::collections::BTreeMap;

use enforcer_core::{audit::AuditedWorkload, id::NodeId, model::Locality, sample::NodeBytes};
use maud::{Markup, html};

use super::machine::scaled;
use crate::report::{units, words};

/// Nodes with a part of their own.
const PARTS: usize = 4;
/// Length of the bar.
const LENGTH: u32 = 200;
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
        let mut sizes = words::most_first(by_node);
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
    let (mut near, mut far) = (String::new(), String::new());
    let (mut before, mut start) = (0u64, 0);
    for (size, node) in &parts.shown {
        before = before.saturating_add(*size);
        let end = scaled(before, parts.total, LENGTH);
        // A gap on the right tells it from the next.
        let width = (end - start).saturating_sub(1);
        if width > 0 && locality.is_local(*node, &workload.numa_nodes) {
            near.push_str(&piece(start, width, HEIGHT));
        } else if width > 0 {
            far.push_str(&piece(start, width, HEIGHT / 2));
        }
        start = end;
    }
    let rest = if parts.others.is_empty() { 0 } else { LENGTH - start };
    html! {
        svg.res viewBox={ "0 0 " (LENGTH) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
            @if !near.is_empty() { path.near d=(near) {} }
            @if !far.is_empty() { path.far d=(far) {} }
            @if rest > 0 { path.rest d=(piece(start, rest, HEIGHT / 4)) {} }
        }
    }
}

/// A part of the bar that stands on its lower edge.
fn piece(start: u32, width: u32, height: u32) -> String {
    format!("M{start} {HEIGHT}v-{height}h{width}v{height}z")
}

/// What the parts stand for.
pub(super) fn legend() -> Markup {
    let keys = [
        ("near", HEIGHT, "memory near the workload's CPUs"),
        ("far", HEIGHT / 2, "memory away from them"),
        ("rest", HEIGHT / 4, "on many more nodes"),
    ];
    html! {
        p.key {
            @for (class, height, words) in keys {
                span {
                    svg.res viewBox={ "0 0 " (LENGTH) " " (HEIGHT) } preserveAspectRatio="none" aria-hidden="true" {
                        path class=(class) d=(piece(0, LENGTH, height)) {}
                    }
                    (words)
                }
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
