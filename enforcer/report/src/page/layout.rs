//! Rectangles of all parts of the machine's picture, without drawing.
//!
//! Problem: a picture of four nodes should say much of each, one of sixty-four must still be seen as a whole.
//! Idea: boxes of one size, chosen by the number of nodes; the nodes of a package in a grid within its frame,
//! as square as fits, the frames in rows from left to right like words of a text. Nodes without CPUs are in a
//! frame of their own, behind the packages, and so are devices of which the kernel does not say near which
//! node they are.
//!
//! A node that spans packages is drawn once, in one frame for these: its memory is there once. Units are
//! those of the drawing's `viewBox`. Pure; cost linear in nodes, packages and devices.

use std::collections::{BTreeMap, BTreeSet};

use numa_topology::{Device, Node, Package, Topology, id::NodeId};

/// Number of nodes from which boxes are small.
const SMALL_FROM: usize = 17;
/// Frames wrap beyond this.
const WIDTH: u32 = 1250;
/// Between frames, and between a frame and its boxes.
const GAP: u32 = 12;
/// For the title of a frame.
pub(super) const TITLE: u32 = 24;
/// Height of one line of text.
pub(super) const LINE: u32 = 16;

/// An upright rectangle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Rect {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) width: u32,
    pub(super) height: u32,
}

/// How much a box says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Detail {
    /// Width of a box.
    pub(super) width: u32,
    /// Columns of text that fit.
    pub(super) columns: usize,
    /// Lines before the devices.
    lines: u32,
    /// Devices with a line of their own.
    pub(super) devices: usize,
}

const LARGE: Detail = Detail { width: 264, columns: 32, lines: 5, devices: 4 };
const SMALL: Detail = Detail { width: 130, columns: 14, lines: 4, devices: 0 };

/// Devices of no node with a line of their own.
pub(super) const NODELESS: usize = 12;

/// Meaning of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum PackageFrame<'a> {
    /// A package, or several that share a NUMA node.
    Packages(Vec<&'a Package>),
    /// CPUs of which no package is known.
    Packageless,
    /// No CPUs: memory only.
    Memory,
    /// Devices with an unknown node.
    Nodeless,
}

/// A frame with its boxes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Frame<'a> {
    pub(super) holder: PackageFrame<'a>,
    pub(super) rect: Rect,
    pub(super) boxes: Vec<NodeBox<'a>>,
    /// Devices of no node.
    pub(super) devices: Vec<&'a Device>,
}

/// A node.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct NodeBox<'a> {
    pub(super) node: &'a Node,
    pub(super) rect: Rect,
    pub(super) devices: Vec<&'a Device>,
}

/// The whole drawing.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct PageLayout<'a> {
    pub(super) width: u32,
    pub(super) height: u32,
    pub(super) detail: Detail,
    pub(super) frames: Vec<Frame<'a>>,
}

/// Lays out the machine.
pub(super) fn lay_out(machine: &Topology) -> PageLayout<'_> {
    let detail = if machine.nodes.len() < SMALL_FROM { LARGE } else { SMALL };
    let (devices, nodeless) = devices_by_node(machine);
    let most = devices.values().map(Vec::len).max().unwrap_or(0);
    // One more line says how many others there are.
    let device_lines = if most > detail.devices { detail.devices + 1 } else { most };
    let height = LINE * (detail.lines + u32::try_from(device_lines).unwrap_or(0)) + GAP;
    let mut shelf = Shelf::default();
    let frames = holders(machine).into_iter().map(|(holder, nodes)| {
        let number = u32::try_from(nodes.len()).unwrap_or(u32::MAX);
        let across = across(number, detail.width);
        let down = number.div_ceil(across);
        let outer = shelf.put(GAP + across * (detail.width + GAP), TITLE + down.max(1) * (height + GAP));
        let boxes = (0u32..).zip(nodes).map(|(place, node)| NodeBox {
            node,
            rect: Rect {
                x: outer.x + GAP + place % across * (detail.width + GAP),
                y: outer.y + TITLE + place / across * (height + GAP),
                width: detail.width,
                height,
            },
            devices: devices.get(&node.id).cloned().unwrap_or_default(),
        });
        Frame { holder, rect: outer, boxes: boxes.collect(), devices: Vec::new() }
    });
    let mut frames: Vec<_> = frames.collect();
    if !nodeless.is_empty() {
        // One more line says how many others there are.
        let lines = nodeless.len().min(NODELESS + 1);
        let height = TITLE + LINE * u32::try_from(lines).unwrap_or(0) + GAP;
        let rect = shelf.put(LARGE.width + 2 * GAP, height);
        frames.push(Frame { holder: PackageFrame::Nodeless, rect, boxes: Vec::new(), devices: nodeless });
    }
    PageLayout { width: shelf.width, height: shelf.bottom + GAP, detail, frames }
}

/// Boxes side by side: as many as one below the other, if that fits.
fn across(boxes: u32, width: u32) -> u32 {
    let square = boxes.isqrt() + u32::from(boxes.isqrt().pow(2) < boxes);
    square.clamp(1, (WIDTH - 3 * GAP) / (width + GAP))
}

/// Devices of each node, and those of none that is there.
fn devices_by_node(machine: &Topology) -> (BTreeMap<NodeId, Vec<&Device>>, Vec<&Device>) {
    let mut devices: BTreeMap<NodeId, Vec<&Device>> = BTreeMap::new();
    let mut nodeless = Vec::new();
    let there: BTreeSet<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
    for device in &machine.devices {
        match device.node.filter(|node| there.contains(node)) {
            Some(node) => devices.entry(node).or_default().push(device),
            None => nodeless.push(device),
        }
    }
    (devices, nodeless)
}

/// Frames with their nodes: named packages, then CPUs without one, then nodes without CPUs.
fn holders(machine: &Topology) -> Vec<(PackageFrame<'_>, Vec<&Node>)> {
    let packages: Vec<&Package> = machine.packages.iter().filter(|package| package.id >= 0).collect();
    let mut held: Vec<Vec<&Node>> = vec![Vec::new(); packages.len()];
    let (mut packageless, mut memory) = (Vec::new(), Vec::new());
    for node in &machine.nodes {
        let home = node.cpus.first().map(|cpu| packages.iter().position(|one| one.cpus.contains(cpu)));
        match home {
            Some(Some(place)) => held[place].push(node),
            Some(None) => packageless.push(node),
            None => memory.push(node),
        }
    }
    // A package without a node of its own shares the node of another package.
    let mut frames: Vec<(Vec<&Package>, Vec<&Node>)> = Vec::new();
    let (with, without): (Vec<_>, Vec<_>) =
        packages.into_iter().zip(held).partition(|(_, nodes)| !nodes.is_empty());
    frames.extend(with.into_iter().map(|(package, nodes)| (vec![package], nodes)));
    for (package, _) in without {
        let spans = |nodes: &[&Node]| nodes.iter().any(|node| !node.cpus.is_disjoint(&package.cpus));
        match frames.iter_mut().find(|(_, nodes)| spans(nodes)) {
            Some((packages, _)) => packages.push(package),
            None => frames.push((vec![package], Vec::new())),
        }
    }
    let packages = frames.into_iter().map(|(packages, nodes)| (PackageFrame::Packages(packages), nodes));
    let others = [(PackageFrame::Packageless, packageless), (PackageFrame::Memory, memory)];
    packages.chain(others.into_iter().filter(|(_, nodes)| !nodes.is_empty())).collect()
}

/// Rows of frames.
#[derive(Debug)]
struct Shelf {
    x: u32,
    y: u32,
    bottom: u32,
    width: u32,
}

impl Default for Shelf {
    fn default() -> Self {
        Self { x: GAP, y: GAP, bottom: GAP, width: 0 }
    }
}

impl Shelf {
    /// The next place of this size, in a new row where this one is full.
    fn put(&mut self, width: u32, height: u32) -> Rect {
        if self.x > GAP && self.x + width + GAP > WIDTH {
            (self.x, self.y) = (GAP, self.bottom + GAP);
        }
        let rect = Rect { x: self.x, y: self.y, width, height };
        self.x += width + GAP;
        self.bottom = self.bottom.max(rect.y + height);
        self.width = self.width.max(self.x);
        rect
    }
}

#[cfg(test)]
mod tests {
    use numa_topology::{MemoryKind, synth::Machine};
    use proptest::prelude::*;

    use super::*;

    fn overlap(a: Rect, b: Rect) -> bool {
        a.x < b.x + b.width && b.x < a.x + a.width && a.y < b.y + b.height && b.y < a.y + a.height
    }

    fn within(inner: Rect, outer: Rect) -> bool {
        inner.x >= outer.x
            && inner.y >= outer.y
            && inner.x + inner.width <= outer.x + outer.width
            && inner.y + inner.height <= outer.y + outer.height
    }

    fn check(machine: &Topology) {
        let layout = lay_out(machine);
        let whole = Rect { x: 0, y: 0, width: layout.width, height: layout.height };
        let mut drawn: Vec<NodeId> = Vec::new();
        let of_nodes = layout.frames.iter().flat_map(|frame| &frame.boxes).flat_map(|one| &one.devices);
        let devices = of_nodes.chain(layout.frames.iter().flat_map(|frame| &frame.devices)).count();
        assert_eq!(devices, machine.devices.len(), "each device once");
        for (place, frame) in layout.frames.iter().enumerate() {
            assert!(within(frame.rect, whole), "{frame:?}");
            assert!(layout.frames[place + 1..].iter().all(|other| !overlap(frame.rect, other.rect)));
            for (place, one) in frame.boxes.iter().enumerate() {
                assert!(within(one.rect, frame.rect), "{one:?} in {:?}", frame.rect);
                assert!(frame.boxes[place + 1..].iter().all(|other| !overlap(one.rect, other.rect)));
                drawn.push(one.node.id);
            }
        }
        drawn.sort_unstable();
        let nodes: Vec<NodeId> = machine.nodes.iter().map(|node| node.id).collect();
        assert_eq!(drawn, nodes, "each node once");
    }

    #[test]
    fn two_sockets_are_side_by_side_and_memory_is_behind_them() {
        let machine =
            Machine::new().sockets(2).memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(1)).build();
        let layout = lay_out(&machine);
        let holders: Vec<_> = layout.frames.iter().map(|frame| (&frame.holder, frame.boxes.len())).collect();
        assert!(matches!(
            holders[..],
            [(PackageFrame::Packages(_), 1), (PackageFrame::Packages(_), 1), (PackageFrame::Memory, 1)]
        ));
        assert_eq!(layout.frames[0].rect.y, layout.frames[1].rect.y);
        check(&machine);
    }

    #[test]
    fn a_node_in_two_packages_is_drawn_once_and_nothing_at_all_is_no_drawing() {
        let mut machine = Machine::new().sockets(2).cores(4).build();
        let all = machine.online_cpus();
        machine.nodes.truncate(1);
        machine.nodes[0].cpus = all;
        check(&machine);
        let frames = lay_out(&machine).frames;
        assert!(
            matches!(&frames[..], [Frame { holder: PackageFrame::Packages(both), .. }] if both.len() == 2)
        );
        machine.nodes.clear();
        assert_eq!(lay_out(&machine).frames.len(), 2, "of no node, they are there all the same");
        for package in &mut machine.packages {
            package.id = -1;
        }
        check(&machine);
        assert!(lay_out(&Topology::default()).frames.is_empty());
    }

    proptest! {
        #[test]
        fn nothing_overlaps_and_everything_is_there(
            sockets in 1u32..17, nodes in 1u32..5, beside in any::<bool>(), devices in 0u32..9,
        ) {
            let mut machine = Machine::new().sockets(sockets).nodes_per_socket(nodes);
            if beside {
                machine = machine.memory_beside_each(1 << 30, MemoryKind::Cxl);
            }
            let mut machine = machine.build();
            machine.devices = (0..devices)
                .map(|number| Device {
                    address: number.to_string(),
                    class: numa_topology::DeviceClass::Nvme,
                    names: Vec::new(),
                    node: (number % 2 == 0).then_some(NodeId(0)),
                })
                .collect();
            check(&machine);
        }
    }
}
