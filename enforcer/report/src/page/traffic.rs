//! Which nodes' CPUs access which nodes' memory.
//!
//! An estimate, and named so: measurements have no destination (see `core/src/audit/flow.rs`). The ratio of
//! each workload, measured where possible, is in the table of workloads.

use std::collections::BTreeMap;

use enforcer_core::audit::{Audit, NodeTraffic, TrafficMap};
use maud::{Markup, html};
use numa_topology::id::NodeId;

use super::{
    heat,
    parts::{region, scrolling},
};
use crate::units;

/// Pairs of nodes in a list, where a matrix would be too large.
const PAIRS: usize = 500;

pub(super) fn traffic(audit: &Audit) -> Markup {
    let Some(map) = &audit.traffic_map else {
        return html! {
            p { "Not sampled. " code { "audit --sample 10s -o html" } " watches for ten seconds and shows which node's CPUs access which node's memory." }
        };
    };
    if map.flows.is_empty() {
        return html! { p { "Nothing ran on a CPU while it was watched." } (left_out(map)) };
    }
    let nodes: Vec<NodeId> = audit.topology.nodes.iter().map(|node| node.id).collect();
    html! {
        p {
            "CPUs that are busy with memory of each node: rows are the nodes of the CPUs, columns those of the memory. An estimate from where "
            "threads ran and where the memory of their workload is. " (remote(map))
        }
        @if nodes.len() > heat::MOST_NODES { (pairs(map)) } @else { (region(nodes.len(), "Traffic between NUMA nodes", &matrix(map, &nodes))) }
        (left_out(map))
    }
}

/// Frames of nodes with themselves are local; everything else crosses the machine.
fn remote(map: &TrafficMap) -> String {
    let sum = |flows: &dyn Fn(&NodeTraffic) -> bool| -> f64 {
        // The sum of no numbers is -0.
        map.flows.iter().filter(|flow| flows(flow)).fold(0.0, |sum, flow| sum + flow.cpus)
    };
    let (all, away) = (sum(&|_| true), sum(&|flow| flow.src_numa != flow.dst_numa));
    format!(
        "Of {} CPUs {} are busy with another node's memory ({}).",
        cpus(all),
        cpus(away),
        units::percent(away / all)
    )
}

fn matrix(map: &TrafficMap, nodes: &[NodeId]) -> Markup {
    let most = map.flows.iter().map(|flow| weight(flow.cpus)).max().unwrap_or(0);
    let by_pair: BTreeMap<(NodeId, NodeId), f64> =
        map.flows.iter().map(|flow| ((flow.src_numa, flow.dst_numa), flow.cpus)).collect();
    let cell = |row: usize, column: usize| {
        let flow = by_pair.get(&(*nodes.get(row)?, *nodes.get(column)?))?;
        Some((cpus(*flow), heat::level(weight(*flow), most)))
    };
    heat::matrix("CPUs busy with it; empty is none", ("CPUs on", "memory on"), nodes, cell)
}

fn pairs(map: &TrafficMap) -> Markup {
    let mut flows: Vec<&NodeTraffic> = map.flows.iter().collect();
    flows.sort_by(|a, b| b.cpus.total_cmp(&a.cpus));
    let (shown, rest) = flows.split_at(flows.len().min(PAIRS));
    let others: f64 = rest.iter().map(|flow| flow.cpus).sum();
    scrolling(
        "Traffic between NUMA nodes",
        &html! {
            table {
                caption { "CPUs busy with memory of each node, most first" }
                thead { tr { th scope="col" { "CPUs on" } th scope="col" { "Memory on" } th scope="col" { "CPUs" } } }
                tbody {
                    @for flow in shown {
                        tr { td { (flow.src_numa.0) } td { (flow.dst_numa.0) } td.n { (cpus(flow.cpus)) } }
                    }
                    @if !rest.is_empty() {
                        tr { td colspan="2" { "and " (units::count(rest.len(), "more pair")) } td.n { (cpus(others)) } }
                    }
                }
            }
        },
    )
}

fn left_out(map: &TrafficMap) -> Markup {
    html! {
        @if map.left_out > 0 {
            p { (units::count(map.left_out, "workload")) " not in it: where they ran, or where their memory is, is not known." }
        }
    }
}

/// A number of CPUs; a little is not nothing.
fn cpus(cpus: f64) -> String {
    match cpus {
        cpus if cpus > 0.0 && cpus < 0.01 => "<0.01".into(),
        cpus if cpus >= 100.0 => format!("{cpus:.0}"),
        cpus => format!("{cpus:.2}"),
    }
}

/// For the shades: millionths of a CPU.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a float cast saturates")]
fn weight(cpus: f64) -> u64 {
    (cpus * 1e6).ceil() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_is_remote_is_no_negative_number() {
        let local = NodeTraffic { src_numa: NodeId(0), dst_numa: NodeId(0), cpus: 1.98 };
        let map = TrafficMap { flows: vec![local], workloads: 1, left_out: 0 };
        let said = "Of 1.98 CPUs 0.00 are busy with another node's memory (0%).";
        assert_eq!(remote(&map), said);
    }
}
