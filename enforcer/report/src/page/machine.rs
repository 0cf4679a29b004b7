//! The machine as a picture: packages, nodes with their memory, near memory, devices.
//!
//! The same drawing is part of the page and, with its own style, what `topology -o svg` writes. A text that
//! does not fit its box is cut; its tooltip has all of it. The page's tables have the same facts for readers
//! that cannot see the picture.
//!
//! Names of devices come from outside: escaped, cut, never anything but text.

use maud::{Markup, PreEscaped, html};
use numa_topology::{Device, Node, Topology, set::NodeSet};

use super::layout::{Detail, Frame, LINE, NODELESS, NodeBox, PackageFrame, PageLayout, Rect, TITLE, lay_out};
use crate::{
    text, units,
    view::{self, words},
};

/// The look of the drawing.
pub(super) const STYLE: &str = include_str!("machine.css");

/// Columns of a tooltip.
const TOOLTIP: usize = 400;
/// Width of a character, of which most are narrower.
const COLUMN: u32 = 8;
/// Inner margin of a box.
const MARGIN: u32 = 8;

/// A file of its own: SVG 1.1, ending in a newline.
pub fn standalone(machine: &Topology) -> String {
    let layout = lay_out(machine);
    let drawing = html! {
        svg xmlns="http://www.w3.org/2000/svg" class="machine" role="img" viewBox=(view_box(&layout))
            width=(layout.width) height=(layout.height) {
            title { (view::machine::headline(machine)) }
            style { (PreEscaped(STYLE)) }
            (frames(machine, &layout))
        }
    };
    format!("<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n{}\n", drawing.into_string())
}

/// A part of the page.
pub(super) fn inline(machine: &Topology) -> Markup {
    let layout = lay_out(machine);
    html! {
        svg.machine role="img" aria-labelledby="picture-title" viewBox=(view_box(&layout))
            width=(layout.width) height=(layout.height) {
            title id="picture-title" { (view::machine::headline(machine)) "; the tables below say the same" }
            (frames(machine, &layout))
        }
    }
}

fn view_box(layout: &PageLayout<'_>) -> String {
    format!("0 0 {} {}", layout.width, layout.height)
}

fn frames(machine: &Topology, layout: &PageLayout<'_>) -> Markup {
    html! {
        @for frame in &layout.frames {
            g {
                (rectangle(frame.rect, "frame", 8))
                @let columns = usize::try_from((frame.rect.width - 2 * MARGIN) / COLUMN).unwrap_or(0);
                (line(frame.rect, 0, "head", &frame_title(frame, columns), columns))
                @for one in &frame.boxes { (node_box(machine, one, layout.detail)) }
                (nodeless(frame, columns))
            }
        }
    }
}

/// The packages of a frame; their number, where their ids are too long.
fn frame_title(frame: &Frame<'_>, columns: usize) -> String {
    match &frame.holder {
        PackageFrame::Packages(packages) => {
            let ids: Vec<String> = packages.iter().map(|package| package.id.to_string()).collect();
            let list = format!("package{} {}", if ids.len() == 1 { "" } else { "s" }, ids.join(", "));
            if list.len() <= columns { list } else { units::count(ids.len(), "package") }
        }
        PackageFrame::Packageless => "package unknown".into(),
        PackageFrame::Memory => "memory, no CPUs".into(),
        PackageFrame::Nodeless => format!("{}, node unknown", units::count(frame.devices.len(), "device")),
    }
}

/// Devices of no node: a line each, as far as they fit, and all in the tooltip.
fn nodeless(frame: &Frame<'_>, columns: usize) -> Markup {
    let devices = &frame.devices;
    let (shown, more) = devices.split_at(devices.len().min(NODELESS));
    let each: Vec<_> = devices.iter().map(|device| device_line(device)).collect();
    html! {
        @if !devices.is_empty() {
            title { (text::fit(&each.join("; "), TOOLTIP)) }
        }
        @for (row, device) in (1..).zip(shown) {
            (line(frame.rect, row, "soft", &device_line(device), columns))
        }
        @if !more.is_empty() {
            @let row = u32::try_from(NODELESS + 1).unwrap_or(0);
            (line(frame.rect, row, "soft", &more_devices(more.len(), NODELESS), columns))
        }
    }
}

fn node_box(machine: &Topology, one: &NodeBox<'_>, detail: Detail) -> Markup {
    let NodeBox { node, rect, devices } = one;
    let class = if node.cpus.is_empty() { "node nocpu" } else { "node" };
    let says = |row: u32, class, text: &str| line(*rect, row, class, text, detail.columns);
    let shown = devices.len().min(detail.devices);
    let more = devices.len() - shown;
    html! {
        g {
            title { (text::fit(&tooltip(machine, node, devices), TOOLTIP)) }
            (rectangle(*rect, class, 4))
            (says(0, "head", &format!("node {}", node.id)))
            (says(1, "soft", &cpus(machine, node, detail.columns)))
            (says(2, "soft", &memory(node, detail.columns)))
            (bar(node, *rect))
            @if detail.devices > 0 {
                (says(4, "soft", &near(machine, node, detail.columns)))
                @for (row, device) in (5..).zip(&devices[..shown]) {
                    (says(row, "soft", &device_line(device)))
                }
            }
            @if more > 0 {
                @let row = if detail.devices > 0 { 5 + detail.devices } else { 4 };
                (says(u32::try_from(row).unwrap_or(0), "soft", &more_devices(more, shown)))
            }
        }
    }
}

fn more_devices(more: usize, shown: usize) -> String {
    if shown > 0 {
        format!("and {}", units::count(more, "more device"))
    } else {
        units::count(more, "device")
    }
}

/// The list, or how many there are where that is too long.
fn cpus(machine: &Topology, node: &Node, columns: usize) -> String {
    if node.cpus.is_empty() {
        let near = view::machine::nearest(machine, node);
        return if near.is_empty() { "no CPUs".into() } else { format!("beside {near}") };
    }
    let list = format!("CPUs {}", node.cpus);
    if list.len() <= columns { list } else { units::count(node.cpus.len(), "CPU") }
}

/// Size and kind, in few letters where that is too long.
fn memory(node: &Node, columns: usize) -> String {
    match node.mem_total_bytes {
        Some(0) => "no memory".into(),
        Some(total) => {
            let size = units::bytes(total);
            let with = |kind| format!("{size} {kind}");
            let texts = [
                with(words::memory_kind(node.kind)),
                with(words::short_memory_kind(node.kind)),
                size.clone(),
            ];
            first_that_fits(texts, columns)
        }
        None => "memory unknown".into(),
    }
}

/// `distance 21 to 1-3; 31 to 4-7`, without the node itself where that is as near as it always is; `nearest
/// 1-3 at 21, others to 31` where that is too long, and less where that is, too: no number is cut.
fn near(machine: &Topology, node: &Node, columns: usize) -> String {
    let shorter = nearest(machine, node).into_iter().flatten();
    first_that_fits([distances(machine, node)].into_iter().chain(shorter), columns)
}

/// The first text that is not too long, else the last.
fn first_that_fits(texts: impl IntoIterator<Item = String>, columns: usize) -> String {
    let mut last = String::new();
    for text in texts {
        last = text;
        if text::width(&last) <= columns {
            break;
        }
    }
    last
}

/// From the longest to the shortest.
fn nearest(machine: &Topology, node: &Node) -> Option<Vec<String>> {
    let place = machine.nodes.iter().position(|one| one.id == node.id)?;
    let row = machine.nodes.iter().zip(machine.distances.get(place)?);
    let others: Vec<_> = row
        .filter(|(one, _)| one.id != node.id)
        .filter_map(|(one, distance)| Some((one.id, (*distance)?)))
        .collect();
    let near = others.iter().map(|(_, distance)| *distance).min()?;
    let far = others.iter().map(|(_, distance)| *distance).max()?;
    let nodes: NodeSet = others.iter().filter(|(_, distance)| *distance == near).map(|(id, _)| *id).collect();
    if near == far {
        return Some(vec![format!("distance {near} to all others"), format!("{near} to all others")]);
    }
    let number = units::count(nodes.len(), "node");
    Some(vec![
        format!("nearest {nodes} at {near}, others to {far}"),
        format!("{number} at {near}, others to {far}"),
        format!("{near} to {far}"),
    ])
}

fn distances(machine: &Topology, node: &Node) -> String {
    let Some(groups) = view::machine::distance_group(machine, node.id) else {
        return "distances unknown".into();
    };
    let itself = format!("10 to {}", node.id);
    match groups.strip_prefix(&itself) {
        Some("") => String::new(),
        Some(others) if others.starts_with("; ") => format!("distance {}", &others[2..]),
        _ => format!("distance {groups}"),
    }
}

fn device_line(device: &Device) -> String {
    let name = device.names.first().map_or(device.address.as_str(), String::as_str);
    format!("{} {name}", words::device_class(device.class))
}

fn tooltip(machine: &Topology, node: &Node, devices: &[&Device]) -> String {
    let mut parts = vec![format!("node {}", node.id), cpus(machine, node, TOOLTIP), memory(node, TOOLTIP)];
    parts.extend(node.mem_free_bytes.map(|free| format!("{} free", units::bytes(free))));
    parts.extend(devices.iter().map(|device| device_line(device)));
    parts.join("; ")
}

/// How much of the memory is used; nothing where that is not known.
fn bar(node: &Node, of: Rect) -> Markup {
    let (Some(total), Some(free)) = (node.mem_total_bytes.filter(|total| *total > 0), node.mem_free_bytes)
    else {
        return html! {};
    };
    let (x, y, width) = (of.x + MARGIN, of.y + LINE * 3 + 6, of.width - 2 * MARGIN);
    let used = scaled(total.saturating_sub(free), total, width);
    html! {
        rect.bar x=(x) y=(y) width=(width) height="8" {}
        rect.used x=(x) y=(y) width=(used) height="8" {}
    }
}

/// `part` of `whole` on a scale that ends with `end`, rounded down.
pub(super) fn scaled(part: u64, whole: u64, end: u32) -> u32 {
    let scaled = u128::from(part.min(whole)) * u128::from(end) / u128::from(whole.max(1));
    u32::try_from(scaled).unwrap_or(end)
}

fn rectangle(rect: Rect, class: &str, radius: u32) -> Markup {
    let Rect { x, y, width, height } = rect;
    html! { rect class=(class) x=(x) y=(y) width=(width) height=(height) rx=(radius) {} }
}

fn line(of: Rect, row: u32, class: &str, text: &str, columns: usize) -> Markup {
    let (x, y) = (of.x + MARGIN, of.y + row * LINE + LINE.max(TITLE - MARGIN));
    html! { text class=(class) x=(x) y=(y) { (text::fit(text, columns)) } }
}

#[cfg(test)]
mod tests {
    use numa_topology::{DeviceClass, MemoryKind, synth};

    use super::*;

    #[test]
    fn devices_of_which_the_node_is_not_known_are_drawn() {
        let mut machine = synth::Machine::new().sockets(2).build();
        let device = |number: usize| Device {
            address: format!("0000:{number:02}:00.0"),
            class: DeviceClass::Nvme,
            names: vec![format!("nvme{number}")],
            node: None,
        };
        machine.devices = (0..NODELESS + 3).map(device).collect();
        let picture = standalone(&machine);
        for words in ["15 devices, node unknown", ">NVMe nvme0<", ">NVMe nvme11<", ">and 3 more devices<"] {
            assert!(picture.contains(words), "{words}: {picture}");
        }
        assert!(!picture.contains(">NVMe nvme12<"));
    }

    #[test]
    fn of_distances_that_do_not_fit_the_nearest_is_said() {
        let mut machine = synth::Machine::new().sockets(8).build();
        for (from, row) in machine.distances.iter_mut().enumerate() {
            for (to, distance) in row.iter_mut().enumerate() {
                *distance = Some(match to {
                    _ if from == to => 10,
                    _ if from / 2 == to / 2 => 20,
                    _ if to % 2 == 0 => 30,
                    _ => 40,
                });
            }
        }
        let said = |columns| near(&machine, &machine.nodes[0], columns);
        assert_eq!(said(80), "distance 20 to 1; 30 to 2,4,6; 40 to 3,5,7");
        assert_eq!(said(32), "nearest 1 at 20, others to 40");
        assert_eq!(said(26), "1 node at 20, others to 40");
        assert_eq!(said(14), "20 to 40");
        for row in &mut machine.distances {
            for distance in row.iter_mut() {
                *distance = distance.map(|d| if d == 10 { 10 } else { 80 });
            }
        }
        let said = |columns| near(&machine, &machine.nodes[0], columns);
        assert_eq!(said(40), "distance 80 to 1-7");
        assert_eq!(said(17), "80 to all others");
    }

    #[test]
    fn a_small_box_says_the_kind_of_memory() {
        let kinds = [
            (MemoryKind::Gpu, 32, "180 GiB GPU memory"),
            (MemoryKind::Gpu, 14, "180 GiB GPU"),
            (MemoryKind::Unknown, 14, "180 GiB ?"),
            (MemoryKind::Dram, 14, "180 GiB DRAM"),
            (MemoryKind::Dram, 8, "180 GiB"),
        ];
        let mut machine = synth::Machine::new().build();
        machine.nodes[0].mem_total_bytes = Some(180 << 30);
        for (kind, columns, said) in kinds {
            machine.nodes[0].kind = kind;
            assert_eq!(memory(&machine.nodes[0], columns), said);
        }
    }

    #[test]
    fn of_packages_that_do_not_fit_it_is_said_how_many_they_are() {
        let mut machine = synth::Machine::new().sockets(16).cores(1).build();
        let all = machine.online_cpus();
        machine.nodes.truncate(1);
        machine.nodes[0].cpus = all;
        let frames = lay_out(&machine).frames;
        assert_eq!(
            frame_title(&frames[0], 80),
            "packages 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15"
        );
        assert_eq!(frame_title(&frames[0], 30), "16 packages");
    }

    #[test]
    fn a_bar_is_never_longer_than_its_frame() {
        for (part, whole, length) in
            [(0, 10, 0), (5, 10, 50), (10, 10, 100), (11, 10, 100), (0, 0, 0), (u64::MAX, u64::MAX, 100)]
        {
            assert_eq!(scaled(part, whole, 100), length, "{part} of {whole}");
        }
    }
}
