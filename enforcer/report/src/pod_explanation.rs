//! An explanation of a pod as text: what each node is short of, and which pods would make room.
//!
//! Of each reason the first nodes are shown, which are those where the fewest pods would make room. The JSON
//! has all of them.

use std::{
    fmt::Write as _,
    io::{self, Write},
};

use enforcer_core::cluster::explain::{
    ExplainedNode, FittingNode, NodeRoom, PodExplanation, ReasonGroup, ResourceShortage, RoomOutcome,
};

use super::{
    style::{Style, Tone},
    text, units,
};

/// Most nodes of one reason.
const NODES: usize = 5;
/// Most nodes with a place.
const FITTING: usize = 8;
/// Most pods that are named to make room on one node.
const PODS: usize = 8;

/// Writes the whole explanation.
pub fn render(report: &PodExplanation, style: Style, out: &mut dyn Write) -> io::Result<()> {
    let mut text = style.paint(Tone::Heading, text::escape(&report.pod)).to_string();
    if let Some(node) = &report.on_node {
        let node = style.paint(Tone::Good, text::escape(node)).to_string();
        return writeln!(out, "{text}: on node {node}");
    }
    let nodes = units::count(report.nodes, "node");
    if report.fits.is_empty() {
        let none = style.paint(Tone::Bad, "no place").to_string();
        let _ = writeln!(text, ": {none} on {nodes}, priority {}", report.priority);
    } else {
        let place = style.paint(Tone::Good, "a place").to_string();
        let _ = writeln!(text, ": {place} on {} of {nodes}, priority {}", report.fits.len(), report.priority);
        let names: Vec<String> = report.fits.iter().map(fitting).collect();
        text::wrap(&mut text, &units::first_few(&names, FITTING), style.width, "  ", "    ");
    }
    for group in &report.refused {
        add_group(&mut text, group, style);
    }
    out.write_all(text.as_bytes())
}

fn fitting(FittingNode { node, numa_nodes }: &FittingNode) -> String {
    match numa_nodes {
        Some(numa) if !numa.is_empty() => format!("{node} (NUMA {})", units::nodes(numa)),
        _ => node.clone(),
    }
}

fn add_group(out: &mut String, ReasonGroup { reason, count, nodes }: &ReasonGroup, style: Style) {
    text::wrap(out, &format!("{count} {reason}"), style.width, "  ", "    ");
    for ExplainedNode { node, shortages, detail, room } in nodes.iter().take(NODES) {
        let short: Vec<String> = shortages.iter().map(shortage).collect();
        let told = match (short.is_empty(), detail) {
            (false, _) => short.join("; "),
            (true, Some(detail)) => detail.clone(),
            (true, None) => reason.clone(),
        };
        text::wrap(out, &format!("{node}: {told}"), style.width, "    ", "      ");
        text::wrap(out, &format!("room: {}", self::room(room)), style.width, "      ", "        ");
    }
    let more = nodes.len().saturating_sub(NODES);
    if more > 0 {
        let _ = writeln!(out, "    and {} (-o json has all)", units::count(more, "more node"));
    }
}

/// `12 CPUs free together on NUMA node 0, 16 wanted by container main`.
fn shortage(short: &ResourceShortage) -> String {
    let ResourceShortage { resource, container, numa_nodes, wanted, free } = short;
    let amount = |amount: u64| match resource.as_str() {
        "cpu" => cpus(amount),
        _ if short.is_in_bytes() => units::bytes(amount),
        _ => amount.to_string(),
    };
    let what = if resource == "cpu" { "CPUs" } else { resource };
    let place = match numa_nodes {
        None => String::new(),
        Some(nodes) if nodes.is_empty() => " together".to_owned(),
        Some(nodes) => format!(" together on NUMA {}", units::nodes(nodes)),
    };
    let by = container.as_ref().map_or_else(String::new, |container| format!(" by container {container}"));
    format!("{} {what} free{place}, {} wanted{by}", amount(*free), amount(*wanted))
}

/// Thousandths of CPUs as CPUs: `4`, `0.5`.
fn cpus(milli: u64) -> String {
    let (whole, rest) = (milli / 1_000, milli % 1_000);
    let digits = format!("{whole}.{rest:03}");
    digits.trim_end_matches('0').trim_end_matches('.').to_owned()
}

fn room(NodeRoom { outcome, pods, is_smallest, needs_higher_priority }: &NodeRoom) -> String {
    match outcome {
        RoomOutcome::Pods => {
            let names: Vec<String> =
                pods.iter().map(|pod| format!("{} (priority {})", pod.pod, pod.priority)).collect();
            let names = units::first_few(&names, PODS);
            let higher = if *needs_higher_priority { "; only with pods of a higher priority" } else { "" };
            let smaller = if *is_smallest { "" } else { "; a smaller set may exist" };
            format!("if {names} left{higher}{smaller}")
        }
        RoomOutcome::NoPlace => "no set of pods: the machine has no such place".to_owned(),
        RoomOutcome::Unknown => "not known".to_owned(),
        RoomOutcome::Unusable => "no set of pods: the node takes no such pod".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_core::cluster::explain::RoomPod;

    fn short(resource: &str, numa: Option<&str>, free: u64, wanted: u64) -> ResourceShortage {
        ResourceShortage {
            resource: resource.into(),
            container: numa.map(|_| "main".into()),
            numa_nodes: numa.map(|nodes| nodes.parse().unwrap()),
            wanted,
            free,
        }
    }

    fn node(name: &str, shortages: Vec<ResourceShortage>, room: NodeRoom) -> ExplainedNode {
        ExplainedNode { node: name.into(), shortages, detail: Some("in words".into()), room }
    }

    fn rendered(fits: Vec<FittingNode>, refused: Vec<ReasonGroup>) -> String {
        let report = PodExplanation {
            schema_version: 1,
            pod: "shop/\u{1b}db".into(),
            priority: 5,
            on_node: None,
            nodes: 9,
            fits,
            refused,
        };
        let mut out = Vec::new();
        render(&report, Style { colour: false, width: 120 }, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn shortages_and_what_makes_room_are_in_words() {
        let room = |outcome, pods: &[(&str, i32)], is_smallest, needs_higher_priority| NodeRoom {
            outcome,
            pods: pods
                .iter()
                .map(|(pod, priority)| RoomPod { pod: (*pod).into(), priority: *priority })
                .collect(),
            is_smallest,
            needs_higher_priority,
        };
        let none = |outcome| room(outcome, &[], false, false);
        let cpus = short("cpu", Some("0"), 12_000, 16_000);
        let nodes = vec![
            node("a", vec![cpus], room(RoomOutcome::Pods, &[("shop/web", 0), ("shop/job", 5)], true, false)),
            node(
                "b",
                vec![short("memory", Some("0-1"), 3 << 29, 4 << 30), short("cpu", None, 500, 4_000)],
                room(RoomOutcome::Pods, &[("shop/top", 9)], false, true),
            ),
            node("c", vec![short("v.com/gpu", Some(""), 0, 1)], none(RoomOutcome::NoPlace)),
            node("d", vec![], none(RoomOutcome::Unknown)),
            node("e", vec![], none(RoomOutcome::Unusable)),
            node("f", vec![], none(RoomOutcome::Unusable)),
        ];
        let groups = vec![ReasonGroup { reason: "NUMA: memory".into(), count: 6, nodes }];
        let told = rendered(Vec::new(), groups);
        for line in [
            "shop/\\u{1b}db: no place on 9 nodes, priority 5\n  6 NUMA: memory\n",
            "    a: 12 CPUs free together on NUMA node 0, 16 wanted by container main\n",
            "      room: if shop/web (priority 0), shop/job (priority 5) left\n",
            "    b: 1.5 GiB memory free together on NUMA nodes 0-1, 4 GiB wanted by container main; 0.5 CPUs free, 4 wanted\n",
            "      room: if shop/top (priority 9) left; only with pods of a higher priority; a smaller set may exist\n",
            "    c: 0 v.com/gpu free together, 1 wanted by container main\n",
            "      room: no set of pods: the machine has no such place\n",
            "    d: in words\n      room: not known\n",
            "    e: in words\n      room: no set of pods: the node takes no such pod\n    and 1 more node (-o json has all)\n",
        ] {
            assert!(told.contains(line), "{line}{told}");
        }
    }

    #[test]
    fn nodes_with_a_place_are_named() {
        let fits = vec![
            FittingNode { node: "a".into(), numa_nodes: Some("1".parse().unwrap()) },
            FittingNode { node: "b".into(), numa_nodes: None },
        ];
        assert_eq!(
            rendered(fits, Vec::new()),
            "shop/\\u{1b}db: a place on 2 of 9 nodes, priority 5\n  a (NUMA node 1), b\n"
        );
    }
}
