//! The head of the page and what the machine is: summary, settings, picture, nodes, distances, devices.

use enforcer_core::audit::{Audit, Summary};
use maud::{Markup, html};
use numa_topology::{Device, Node, Topology};

use super::{
    heat, machine,
    parts::{name, region, scrolling, sentence},
};
use crate::{
    units,
    view::{
        self,
        verdicts::{VerdictCounts, rank},
        words,
    },
};

/// Length of the bar of verdicts.
const BAR: u32 = 1000;

pub(super) fn header(audit: &Audit, title: &str) -> Markup {
    html! {
        h1 { (title) }
        p.summary { (view::host::summary(&audit.summary)) }
        (shares(&audit.summary))
        @for remark in view::host::remarks(audit) { p { (remark) } }
        dl.facts {
            @if let Some(at) = &audit.taken_at { dt { "Taken" } dd { time datetime=(at) { (at) } } }
            @for (label, value) in view::host::facts(audit) { dt { (label) } dd { (sentence(&value)) } }
        }
    }
}

/// The verdicts as parts of a bar; the summary says them in words.
fn shares(summary: &Summary) -> Markup {
    let total = u64::try_from(summary.total).unwrap_or(u64::MAX);
    let (mut before, mut parts) = (0usize, Vec::new());
    for (verdict, number) in VerdictCounts::from(summary).0 {
        let start = machine::scaled(u64::try_from(before).unwrap_or(u64::MAX), total, BAR);
        before = before.saturating_add(number);
        let end = machine::scaled(u64::try_from(before).unwrap_or(u64::MAX), total, BAR);
        parts.extend((end > start).then(|| (start, end - start, rank(verdict))));
    }
    html! {
        @if !parts.is_empty() {
            svg.shares viewBox={ "0 0 " (BAR) " 10" } preserveAspectRatio="none" aria-hidden="true" {
                @for (start, width, rank) in parts { rect class={ "s" (rank) } x=(start) width=(width) height="10" {} }
            }
        }
    }
}

pub(super) fn machine(audit: &Audit) -> Markup {
    let topology = &audit.topology;
    html! {
        (scrolling("Picture of the machine", &machine::inline(topology)))
        (nodes(topology))
        (distances(topology))
        (devices(topology))
    }
}

fn nodes(topology: &Topology) -> Markup {
    region(
        topology.nodes.len(),
        "NUMA nodes",
        &html! {
            table {
                caption { "NUMA nodes" }
                thead { tr {
                    th scope="col" { "Node" }
                    th scope="col" { "CPUs" }
                    th.n scope="col" { "Memory" }
                    th.n scope="col" { "Free" }
                    @for title in ["Kind", "Huge pages", "Nearest CPUs"] { th scope="col" { (title) } }
                } }
                tbody {
                    @for node in &topology.nodes {
                        tr id={ "node-" (node.id.0) } {
                            th scope="row" { (node.id.0) }
                            td { (units::ids(&node.cpus, 60)) }
                            td.n { (units::size(node.mem_total_bytes)) }
                            td.n { (units::size(node.mem_free_bytes)) }
                            td { (words::memory_kind(node.kind)) }
                            td { (hugepages(node)) }
                            td { (view::machine::nearest(topology, node)) }
                        }
                    }
                }
            }
        },
    )
}

fn hugepages(node: &Node) -> String {
    let sizes = node.hugepages.iter().filter(|pages| pages.total > 0);
    let sizes: Vec<String> = sizes
        .map(|pages| format!("{} of {} free: {}", pages.free, pages.total, units::bytes(pages.size_bytes)))
        .collect();
    sizes.join(", ")
}

/// A matrix, or groups where that would be too large.
fn distances(topology: &Topology) -> Markup {
    if topology.nodes.len() < 2 {
        return html! {};
    }
    let ids: Vec<_> = topology.nodes.iter().map(|node| node.id).collect();
    if ids.len() > heat::MOST_NODES {
        return html! {
            h3 { "Distances" }
            ul { @for group in view::machine::distance_groups(topology) { li { (sentence(&group)) } } }
        };
    }
    let farthest = topology.distances.iter().flatten().flatten().copied().max().unwrap_or(0);
    let cell = |from: usize, to: usize| {
        let distance = (*topology.distances.get(from)?.get(to)?)?;
        // 10 is local, so that is where the scale begins.
        Some((
            distance.to_string(),
            heat::level(distance.saturating_sub(10).into(), farthest.saturating_sub(10).into()),
        ))
    };
    region(
        ids.len(),
        "Distances between NUMA nodes",
        &heat::matrix("Distances; 10 is local", ("from", "to"), &ids, cell),
    )
}

fn devices(topology: &Topology) -> Markup {
    if topology.devices.is_empty() {
        return html! {};
    }
    html! {
        details open {
            summary { (units::count(topology.devices.len(), "device")) }
            (scrolling("Devices", &html! {
                table {
                    caption { "Devices and the nodes they are beside" }
                    thead { tr {
                        @for title in ["Address", "Kind", "Names", "Node"] { th scope="col" { (title) } }
                    } }
                    tbody { @for one in &topology.devices { (device(one)) } }
                }
            }))
        }
    }
}

fn device(device: &Device) -> Markup {
    html! {
        tr {
            th scope="row" { (name(&device.address)) }
            td { (words::device_class(device.class)) }
            td { (name(&device.names.join(", "))) }
            td { @match device.node { Some(node) => { (node.0) } None => { "unknown" } } }
        }
    }
}
