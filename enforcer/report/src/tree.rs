//! The machine as a tree: packages, dies, NUMA nodes, last-level caches; then what has no place in
//! one: nodes without CPUs, kinds of CPUs, distances, memory tiers, devices, CPUs set aside.
//!
//! Nodes and packages do not nest by law: a node may span packages and a package hold several nodes.
//! Each level therefore shows the CPUs that it shares with the level above, and a node that spans
//! two packages appears in both.

use std::collections::{BTreeMap, BTreeSet};

use numa_topology::{
    CoreType, Cpu, CpuKind, Device, Hmat, Node, Package, Topology,
    id::{CpuId, Id as _, NodeId},
    set::{CpuSet, NodeSet},
};

use super::{
    style::Style,
    text, units,
    view::{
        machine::{distance_groups, headline, named_packages, nearest, set_aside},
        words,
    },
};

/// Beyond this, the rest of the devices is one line.
const DEVICES_SHOWN: usize = 40;

/// Beyond this, the rest of the kinds of CPUs is one line.
const KINDS_SHOWN: usize = 16;

/// Caches of one kind in a node that have a line each.
const CACHES_SHOWN: usize = 3;

/// One line of the tree and its children.
struct Branch {
    text: String,
    children: Vec<Branch>,
}

/// The whole tree, ending in a newline.
pub fn render(machine: &Topology, style: Style) -> String {
    let mut out = String::new();
    text::wrap(&mut out, &headline(machine), style.width, "", "  ");
    let branches = branches(machine);
    draw(&mut out, &branches, "", style.width);
    for (title, lines) in [
        ("Kinds of CPUs", kinds(machine)),
        ("Distances", distances(machine, style.width)),
        ("Memory tiers, fastest first", tiers(machine)),
        ("Devices", devices(machine)),
        ("CPUs set aside", set_aside(machine)),
    ] {
        style.section(&mut out, title, &lines);
    }
    out
}

fn branches(machine: &Topology) -> Vec<Branch> {
    let by_id: BTreeMap<CpuId, &Cpu> = machine.cpus.iter().map(|cpu| (cpu.id, cpu)).collect();
    let view = TreeView { machine, by_id };
    let packages: Vec<&Package> = named_packages(machine).collect();
    let mut branches: Vec<Branch> = packages
        .chunk_by(|one, next| {
            let node = view.another_part(one);
            node.is_some() && node == view.another_part(next)
        })
        .map(|alike| package_branch(&view, alike))
        .collect();
    let packaged = named_packages(machine).fold(CpuSet::new(), |all, package| all.union(&package.cpus));
    let elsewhere = machine.online_cpus().difference(&packaged);
    if !elsewhere.is_empty() {
        branches.extend(view.nodes(&elsewhere));
    }
    let facts: Vec<(&Node, String)> = machine
        .nodes
        .iter()
        .filter(|node| node.cpus.is_empty())
        .map(|node| (node, node_facts(machine, node)))
        .collect();
    branches.extend(facts.chunk_by(|(_, one), (_, next)| one == next).filter_map(|alike| {
        let ids: NodeSet = alike.iter().map(|(node, _)| node.id).collect();
        let (_, facts) = alike.first()?;
        let each = if alike.len() > 1 { ", each" } else { "" };
        Some(Branch { text: format!("{}: no CPUs{each}; {facts}", units::nodes(&ids)), children: Vec::new() })
    }));
    branches
}

/// One package, or several that each have only part of the same node.
fn package_branch(view: &TreeView<'_>, alike: &[&Package]) -> Branch {
    let cpus = alike.iter().fold(CpuSet::new(), |all, package| all.union(&package.cpus));
    let ids: BTreeSet<u32> = alike.iter().filter_map(|package| u32::try_from(package.id).ok()).collect();
    let text = match (alike, ids.last()) {
        ([one], _) => format!("package {}", one.id),
        (_, Some(last)) if ids.len() == alike.len() && *last <= NodeId::GREATEST => {
            format!("packages {}", ids.into_iter().map(NodeId).collect::<NodeSet>())
        }
        _ => units::count(alike.len(), "package"),
    };
    Branch { text, children: view.dies(&cpus) }
}

struct TreeView<'a> {
    machine: &'a Topology,
    by_id: BTreeMap<CpuId, &'a Cpu>,
}

impl TreeView<'_> {
    /// The node of which this package is a part and not the first, if it holds no other and has no dies.
    fn another_part(&self, package: &Package) -> Option<NodeId> {
        let mut nodes = self.machine.nodes.iter().filter(|node| !node.cpus.is_disjoint(&package.cpus));
        let node = nodes.next().filter(|node| package.cpus.is_subset(&node.cpus))?;
        let has_dies = self.cpus(&package.cpus).map(|cpu| cpu.die).collect::<BTreeSet<_>>().len() > 1;
        let is_first = node.cpus.first().is_some_and(|first| package.cpus.contains(first));
        (nodes.next().is_none() && !has_dies && !is_first).then_some(node.id)
    }

    /// Dies of a package where it has more than one, else its nodes.
    fn dies(&self, within: &CpuSet) -> Vec<Branch> {
        let mut dies: BTreeMap<i32, CpuSet> = BTreeMap::new();
        for cpu in self.cpus(within) {
            dies.entry(cpu.die.unwrap_or(-1)).or_default().insert(cpu.id);
        }
        if dies.len() < 2 {
            return self.nodes(within);
        }
        dies.iter()
            .map(|(die, cpus)| Branch { text: format!("die {die}"), children: self.nodes(cpus) })
            .collect()
    }

    fn nodes(&self, within: &CpuSet) -> Vec<Branch> {
        let mut branches = Vec::new();
        let mut homeless = within.clone();
        for node in &self.machine.nodes {
            let here = node.cpus.intersection(within);
            if here.is_empty() {
                continue;
            }
            homeless = homeless.difference(&here);
            // Its memory is there once, in however many packages its CPUs are.
            let text = if node.cpus.first().is_none_or(|first| here.contains(first)) {
                format!("node {}: {}; {}", node.id, units::cpus(&here), node_facts(self.machine, node))
            } else {
                format!("node {}, another part: {}", node.id, units::cpus(&here))
            };
            branches.push(Branch { text, children: self.caches(&here) });
        }
        if !homeless.is_empty() {
            let text = format!("no NUMA node: {}", units::cpus(&homeless));
            branches.push(Branch { text, children: self.caches(&homeless) });
        }
        branches
    }

    /// Last-level caches; many of one kind in a line.
    fn caches(&self, within: &CpuSet) -> Vec<Branch> {
        let mut kinds: Vec<(String, Vec<CpuSet>)> = Vec::new();
        let mut rest = within.clone();
        for llc in &self.machine.llcs {
            let here = llc.cpus.intersection(within);
            if here.is_empty() {
                continue;
            }
            rest = rest.difference(&here);
            let size = llc.size_bytes.map(|size| format!(" {}", units::bytes(size))).unwrap_or_default();
            let kind = format!("L{}{size}: {}", llc.level, self.cores(&here));
            match kinds.iter_mut().find(|(of, _)| *of == kind) {
                Some((_, parts)) => parts.push(here),
                None => kinds.push((kind, vec![here])),
            }
        }
        if !rest.is_empty() {
            kinds.push((self.cores(&rest), vec![rest]));
        }
        let lines = kinds.iter().flat_map(|(kind, parts)| cache_lines(kind, parts));
        lines.map(|text| Branch { text, children: Vec::new() }).collect()
    }

    /// `8 cores of 2 threads`; several groups where the cores differ.
    fn cores(&self, within: &CpuSet) -> String {
        let cores: BTreeSet<CpuSet> =
            self.cpus(within)
                .map(|cpu| {
                    if cpu.siblings.is_empty() {
                        [cpu.id].into_iter().collect()
                    } else {
                        cpu.siblings.clone()
                    }
                })
                .collect();
        let mut by_threads: BTreeMap<usize, usize> = BTreeMap::new();
        for core in cores {
            *by_threads.entry(core.len()).or_default() += 1;
        }
        let groups: Vec<String> = by_threads
            .iter()
            .rev()
            .map(|(threads, cores)| {
                format!("{} of {}", units::count(*cores, "core"), units::count(*threads, "thread"))
            })
            .collect();
        let clusters: BTreeSet<_> = self.cpus(within).map(|cpu| (cpu.package, cpu.cluster)).collect();
        let clusters = if clusters.len() > 1 && clusters.iter().all(|(_, id)| id.is_some_and(|id| id >= 0)) {
            format!(" in {} clusters", clusters.len())
        } else {
            String::new()
        };
        format!("{}{clusters}", groups.join(" and "))
    }

    fn cpus<'b>(&'b self, within: &'b CpuSet) -> impl Iterator<Item = &'b Cpu> {
        within.iter().filter_map(|id| self.by_id.get(&id).copied())
    }
}

/// One line for each, or one for all where they are many.
fn cache_lines(kind: &str, parts: &[CpuSet]) -> Vec<String> {
    if parts.len() <= CACHES_SHOWN {
        return parts.iter().map(|cpus| format!("{kind}, {}", units::cpus(cpus))).collect();
    }
    let lists: Vec<String> = parts.iter().map(ToString::to_string).collect();
    vec![format!("{} times {kind}, CPUs {}", parts.len(), lists.join("; "))]
}

/// Facts of a node beside its CPUs.
fn node_facts(machine: &Topology, node: &Node) -> String {
    let mut parts = Vec::new();
    match (node.mem_total_bytes, node.mem_free_bytes) {
        (Some(0), _) => parts.push("no memory".into()),
        (Some(total), Some(free)) => {
            parts.push(format!(
                "{} {}, {} free",
                units::bytes(total),
                words::memory_kind(node.kind),
                units::bytes(free)
            ));
        }
        (Some(total), None) => {
            parts.push(format!("{} {}", units::bytes(total), words::memory_kind(node.kind)));
        }
        (None, _) => parts.push("memory unknown".into()),
    }
    for pages in node.hugepages.iter().filter(|pages| pages.total > 0) {
        parts.push(format!(
            "{} pages: {} of {} free",
            units::bytes(pages.size_bytes),
            pages.free,
            pages.total
        ));
    }
    if node.normal_memory == Some(false) && node.mem_total_bytes != Some(0) {
        parts.push("movable only".into());
    }
    let near = nearest(machine, node);
    parts.extend((!near.is_empty()).then(|| format!("nearest CPUs: {near}")));
    parts.extend(node.hmat.as_ref().and_then(hmat));
    parts.join("; ")
}

fn hmat(hmat: &Hmat) -> Option<String> {
    let latency = hmat.read_latency_ns.map(|ns| format!("{ns} ns"));
    let bandwidth = hmat.read_bandwidth_mbps.map(|mbps| format!("{mbps} MB/s"));
    let figures: Vec<String> = latency.into_iter().chain(bandwidth).collect();
    (!figures.is_empty()).then(|| format!("reads {}", figures.join(" at ")))
}

fn draw(out: &mut String, branches: &[Branch], lead: &str, width: usize) {
    for (index, branch) in branches.iter().enumerate() {
        let last = index + 1 == branches.len();
        let first = format!("{lead}{}", if last { "└─ " } else { "├─ " });
        let below = format!("{lead}{}", if last { "   " } else { "│  " });
        let rest = format!("{below}{}", if branch.children.is_empty() { "  " } else { "│ " });
        text::wrap(out, &branch.text, width, &first, &rest);
        draw(out, &branch.children, &below, width);
    }
}

/// A matrix where it fits the width, else one line per node with equal distances together.
fn distances(machine: &Topology, width: usize) -> Vec<String> {
    if machine.nodes.len() < 2 || machine.distances.iter().flatten().all(Option::is_none) {
        return Vec::new();
    }
    let ids: Vec<String> = machine.nodes.iter().map(|node| node.id.to_string()).collect();
    let cell = |value: &Option<u32>| value.map_or_else(|| "-".into(), |value| value.to_string());
    let rows: Vec<Vec<String>> = machine.distances.iter().map(|row| row.iter().map(cell).collect()).collect();
    let column = rows.iter().flatten().chain(&ids).map(String::len).max().unwrap_or(0) + 2;
    let label = ids.iter().map(String::len).max().unwrap_or(0) + "node ".len();
    if 2 + label + column * ids.len() > width {
        return distance_groups(machine);
    }
    let line = |label_text: &str, cells: &[String]| {
        cells.iter().fold(format!("{label_text:<label$}"), |line, cell| format!("{line}{cell:>column$}"))
    };
    let header = line("from", &ids);
    std::iter::once(header)
        .chain(ids.iter().zip(&rows).map(|(id, row)| line(&format!("node {id}"), row)))
        .collect()
}

/// One line for each kind; bounded, as each CPU of a machine may be of a kind of its own.
fn kinds(machine: &Topology) -> Vec<String> {
    bounded(machine.cpu_kinds.iter().map(cpu_kind), KINDS_SHOWN)
}

fn cpu_kind(kind: &CpuKind) -> String {
    let core_type = kind.core_type.map(|core_type| match core_type {
        CoreType::Performance => "performance cores".to_owned(),
        CoreType::Efficiency => "efficiency cores".to_owned(),
    });
    let facts = [
        core_type,
        kind.capacity.map(|capacity| format!("capacity {capacity}")),
        kind.base_frequency_khz.map(|khz| format!("base frequency {}", units::frequency(khz))),
        kind.max_frequency_khz.map(|khz| format!("up to {}", units::frequency(khz))),
        kind.energy_preference.map(|preference| format!("prefer {preference}")),
    ];
    let facts: Vec<String> = facts.into_iter().flatten().collect();
    format!("{}: {}", units::cpus(&kind.cpus), facts.join(", "))
}

/// A single tier says nothing.
fn tiers(machine: &Topology) -> Vec<String> {
    if machine.memory_tiers.len() < 2 {
        return Vec::new();
    }
    machine.memory_tiers.iter().map(|tier| format!("tier {}: nodes {}", tier.id, tier.nodes)).collect()
}

/// One line per device; a host with hundreds of virtual functions does not bury the rest.
fn devices(machine: &Topology) -> Vec<String> {
    bounded(machine.devices.iter().map(device), DEVICES_SHOWN)
}

/// The first lines, and the number of the others.
fn bounded(lines: impl Iterator<Item = String>, most: usize) -> Vec<String> {
    let mut lines = units::folded(lines, most);
    if let Some(more) = lines.get_mut(most) {
        more.push_str(", see -o json");
    }
    lines
}

fn device(device: &Device) -> String {
    let node = device.node.map_or_else(|| "node unknown".into(), |node| format!("node {node}"));
    let class = words::device_class(device.class);
    let names =
        if device.names.is_empty() { String::new() } else { format!(" ({})", device.names.join(", ")) };
    format!("{node}: {class} {}{names}", device.address)
}

#[cfg(test)]
mod tests {
    use numa_topology::{DeviceClass, EnergyPreference, MemoryKind, synth::Machine};

    use super::*;

    fn drawn(machine: &Topology, width: usize) -> String {
        let tree = render(machine, Style { width, colour: false });
        assert!(tree.lines().all(|line| text::width(line) <= width), "{tree}");
        tree
    }

    fn two_sockets_and_cxl() -> Topology {
        let mut machine = Machine::new()
            .sockets(2)
            .nodes_per_socket(2)
            .cores(4)
            .hugepages(2 << 20, 512)
            .memory_only(NodeId(72), 128, MemoryKind::Cxl, NodeId(1))
            .offline("17")
            .isolated("2-3")
            .build();
        machine.devices.push(Device {
            address: "0000:3b:00.0".into(),
            class: DeviceClass::Network,
            names: vec!["eth\u{1b}[31m0".into()],
            node: Some(NodeId(1)),
        });
        machine.devices.push(Device {
            address: "0000:86:00.0".into(),
            class: DeviceClass::Nvme,
            names: vec!["nvme0".into()],
            node: None,
        });
        machine
    }

    #[test]
    fn a_server_at_80_and_120_columns() {
        let machine = two_sockets_and_cxl();
        insta::assert_snapshot!("tree_80", drawn(&machine, 80));
        insta::assert_snapshot!("tree_120", drawn(&machine, 120));
    }

    #[test]
    fn sixty_four_nodes_fit() {
        let machine = Machine::new().sockets(16).nodes_per_socket(4).cores(2).build();
        insta::assert_snapshot!("tree_64_nodes_80", drawn(&machine, 80));
    }

    #[test]
    fn hybrid_cores_dies_and_cpus_without_a_place() {
        let mut machine = Machine::new().cores(4).build();
        for cpu in &mut machine.cpus {
            cpu.die = Some(i32::from(cpu.id.0 % 4 >= 2));
            if cpu.id.0 % 4 == 3 {
                cpu.siblings = [cpu.id].into_iter().collect();
            }
        }
        machine.nodes[0].cpus.remove(CpuId(0));
        insta::assert_snapshot!("tree_hybrid", drawn(&machine, 100));
    }

    #[test]
    fn a_node_in_two_packages_has_its_memory_once_and_nameless_packages_are_left_out() {
        let mut machine = Machine::new().sockets(2).cores(4).build();
        let all = machine.online_cpus();
        machine.nodes.truncate(1);
        machine.nodes[0].cpus = all;
        let tree = drawn(&machine, 100);
        assert_eq!(tree.matches("DRAM").count(), 1, "{tree}");
        assert!(tree.contains("node 0, another part: CPUs 4-7"), "{tree}");
        for package in &mut machine.packages {
            package.id = -1;
        }
        let tree = drawn(&machine, 100);
        assert!(tree.starts_with("1 NUMA node, 16 CPUs") && !tree.contains("package"), "{tree}");
    }

    #[test]
    fn nodes_that_are_alike_and_parts_of_a_node_share_a_line() {
        let mut machine = Machine::new().sockets(2).cores(4);
        for id in 2..30 {
            machine = machine.memory_only(NodeId(id), 0, MemoryKind::None, NodeId(0));
        }
        let tree = drawn(&machine.build(), 80);
        assert!(tree.contains("nodes 2-29: no CPUs, each; no memory; nearest CPUs: node 0"), "{tree}");
        assert!(tree.contains("nodes 2-29: each 10 to itself; 17 to 0; 28 to 1-29"), "{tree}");
        assert!(tree.lines().count() < 20, "{tree}");

        let mut machine = Machine::new().sockets(16).cores(1).threads(1).build();
        let all = machine.online_cpus();
        machine.nodes.truncate(1);
        machine.nodes[0].cpus = all;
        let tree = drawn(&machine, 80);
        assert!(tree.contains("packages 1-15"), "{tree}");
        assert_eq!(tree.matches("another part").count(), 1, "{tree}");
        for package in &mut machine.packages {
            package.id = 0;
        }
        assert!(drawn(&machine, 80).contains("15 packages"));
    }

    #[test]
    fn many_alike_caches_are_one_line() {
        let parts: Vec<CpuSet> =
            ["0-1", "2-3", "4-5", "6"].iter().map(|list| list.parse().unwrap()).collect();
        assert_eq!(cache_lines("L3", &parts), ["4 times L3, CPUs 0-1; 2-3; 4-5; 6"]);
        assert_eq!(cache_lines("L3", &parts[2..]), ["L3, CPUs 4-5", "L3, CPU 6"]);
    }

    #[test]
    fn kinds_of_cpus_have_a_line_each() {
        let mut machine = Machine::new().cores(4).efficiency("2-3,6-7").build();
        machine.cpu_kinds[0].base_frequency_khz = Some(1_900_000);
        machine.cpu_kinds[0].max_frequency_khz = Some(5_250_000);
        machine.cpu_kinds[1].capacity = Some(446);
        machine.cpu_kinds[1].energy_preference = Some(EnergyPreference(192));
        let tree = drawn(&machine, 100);
        let shown = "\nKinds of CPUs
  CPUs 0-1,4-5: performance cores, base frequency 1.9 GHz, up to 5.25 GHz
  CPUs 2-3,6-7: efficiency cores, capacity 446, prefer balance_power\n";
        assert!(tree.contains(shown), "{tree}");
        machine.cpu_kinds = (0..20)
            .map(|mhz| CpuKind { max_frequency_khz: Some(mhz * 1000), ..CpuKind::default() })
            .collect();
        assert!(drawn(&machine, 100).contains("up to 0.015 GHz\n  and 4 more, see -o json\n"));
    }

    #[test]
    fn a_machine_of_which_nothing_is_known() {
        assert_eq!(drawn(&Topology::default(), 80), "0 packages, 0 NUMA nodes, 0 CPUs\n");
    }
}
