//! A plan as text: for each step the placed containers, changes for other containers, and reasons of
//! refusals.
//!
//! Nothing is folded away: a plan is as long as its steps. It is written step by step, so that `| head`
//! ends it early.

use std::io::{self, Write};

use numa_placement::{
    Candidate, ContainerKind,
    hints::Hint,
    trial::{ContainerReport, MoveReport, PlanReport, StepKind, StepReport, UpdateReport},
};
use numa_topology::{
    id::Id,
    set::{CpuSet, IdSet},
};

use super::{
    cluster_plan::claim_lines,
    columns,
    style::{Style, Tone},
    text, units,
};

/// A name is not wider than this.
const NAME_WIDTH: usize = 28;
/// Lists of CPUs and devices are broken or cut beyond this.
const LIST_WIDTH: usize = 24;
/// Nodes of a container's memory that have a line each.
const NODES_SHOWN: usize = 8;
/// Width from which engine and policy have a column.
const WIDE: usize = 100;

/// Writes the whole plan.
pub fn render(report: &PlanReport, style: Style, out: &mut dyn Write) -> io::Result<()> {
    for step in &report.steps {
        out.write_all(self::step(step, style).as_bytes())?;
    }
    writeln!(out, "{}", summary(report))
}

fn step(step: &StepReport, style: Style) -> String {
    let mut out = String::new();
    let (verdict, tone) = match (step.admitted, step.action) {
        (false, _) => ("rejected", Tone::Bad),
        (true, StepKind::Create) => ("admitted", Tone::Good),
        (true, StepKind::Resize) => ("resized", Tone::Good),
        (true, StepKind::Delete) => ("deleted", Tone::Good),
        (true, StepKind::Warm) => ("warm", Tone::Good),
    };
    let title = format!("{}. {} {}: ", step.step, action(step.action), text::escape(&step.pod));
    out.push_str(&style.paint(Tone::Heading, title).to_string());
    out.push_str(&style.paint(tone, verdict).to_string());
    out.push('\n');
    if let Some(reason) = &step.reason {
        text::wrap(&mut out, reason, style.width, "  ", "    ");
    }
    for one in step.what_if.iter().flatten() {
        text::hang(&mut out, "  what if  ", &moved(one), style.width);
    }
    if !step.containers.is_empty() {
        containers(&mut out, &step.containers, style);
    }
    for line in step.claims.iter().flat_map(claim_lines) {
        text::wrap(&mut out, &line, style.width, "  ", "    ");
    }
    for update in &step.updates {
        text::hang(&mut out, "  changes  ", &changed(update), style.width);
    }
    for warning in &step.warnings {
        text::hang(&mut out, "  warning  ", warning, style.width);
    }
    if let Some(considered) = &step.candidates {
        reasons(&mut out, &step.containers, style);
        candidates(&mut out, considered, style);
    }
    out.push('\n');
    out
}

const fn action(action: StepKind) -> &'static str {
    match action {
        StepKind::Create => "create",
        StepKind::Resize => "resize",
        StepKind::Delete => "delete",
        StepKind::Warm => "warm",
    }
}

pub(super) fn containers(out: &mut String, containers: &[ContainerReport], style: Style) {
    let wide = style.width >= WIDE;
    let has_devices = containers.iter().any(|container| !container.devices.is_empty());
    let mut header = vec!["container", "class", "CPUs", "nodes", "memory"];
    if has_devices {
        header.push("devices");
    }
    header.push("placed");
    if wide {
        header.push("policy");
    }
    let mut table = columns::columns(style, header);
    for container in containers {
        let mut row = vec![
            name(container),
            class(container),
            cpus(container),
            pinned(units::ids(&container.mems, LIST_WIDTH), container.pinned_mems),
            memory(container),
        ];
        if has_devices {
            row.push(devices(container));
        }
        row.push(placed(container));
        if wide {
            row.push(format!("{}: {}", text::escape(&container.engine), text::escape(&container.policy)));
        }
        table.add_row(row);
    }
    columns::push(out, &table);
}

fn name(container: &ContainerReport) -> String {
    let name = text::fit(&container.name, NAME_WIDTH);
    match container.kind {
        ContainerKind::App => name,
        ContainerKind::Init => format!("{name} (init)"),
        ContainerKind::Sidecar => format!("{name} (sidecar)"),
    }
}

/// The word of the JSON.
fn class(container: &ContainerReport) -> String {
    serde_json::to_value(container.class)
        .ok()
        .and_then(|word| word.as_str().map(str::to_owned))
        .unwrap_or_default()
}

/// One list, or two where it has CPUs of both kinds.
fn cpus(container: &ContainerReport) -> String {
    pinned(lists(container), container.pinned_cpus)
}

/// Marks CPUs that are accounted for but not written to a cpuset.
fn pinned(list: String, pinned: bool) -> String {
    if pinned { list } else { format!("{list}\nnot pinned") }
}

fn lists(container: &ContainerReport) -> String {
    // Of cores of which it runs on one thread only the other ones are left out.
    let runs_on = |cpus: &CpuSet| cpus.intersection(&container.cpus);
    let (alone, shared) = (&runs_on(&container.exclusive_cpus), &runs_on(&container.shared_cpus));
    if alone.is_empty() || shared.is_empty() {
        return list(&container.cpus);
    }
    format!("{} alone,\n{} shared", list(alone), list(shared))
}

/// A list in lines of some width.
fn list<T: Id>(set: &IdSet<T>) -> String {
    let all = set.to_string();
    if all.is_empty() {
        return "-".into();
    }
    let mut lines = String::new();
    text::wrap(&mut lines, &all, LIST_WIDTH, "", "");
    lines.trim_end().to_owned()
}

fn memory(container: &ContainerReport) -> String {
    let by_node = container.memory_by_node.iter().filter(|(_, bytes)| **bytes > 0);
    let mut lines = units::folded(units::by_node(by_node), NODES_SHOWN);
    for (resource, by_node) in &container.hugepages_by_node {
        let size = resource.strip_prefix("hugepages-").unwrap_or(resource);
        let by_node = by_node.iter().filter(|(_, bytes)| **bytes > 0);
        let each = units::folded(units::by_node(by_node), NODES_SHOWN);
        lines.extend(each.iter().map(|line| format!("{line} of {size} pages")));
    }
    if lines.is_empty() { "-".into() } else { lines.join("\n") }
}

fn devices(container: &ContainerReport) -> String {
    let lines = container
        .devices
        .iter()
        .map(|(resource, ids)| text::fit(&format!("{resource}: {}", ids.join(", ")), LIST_WIDTH + 12));
    lines.collect::<Vec<_>>().join("\n")
}

fn placed(container: &ContainerReport) -> String {
    match (&container.pool, &container.hint) {
        (Some(pool), _) => text::fit(pool, NAME_WIDTH),
        (None, Some(Hint { nodes, preferred })) => {
            let nodes = nodes
                .as_ref()
                .map_or_else(|| "anywhere".into(), |nodes| format!("hint {}", units::ids(nodes, LIST_WIDTH)));
            if *preferred { nodes } else { format!("{nodes}, not preferred") }
        }
        (None, None) => "-".into(),
    }
}

pub(super) fn changed(update: &UpdateReport) -> String {
    let cpus = update.cpus.as_ref().map(|cpus| format!("CPUs {}", units::ids_or_none(cpus)));
    let mems = update.mems.as_ref().map(|mems| format!("memory nodes {}", units::ids_or_none(mems)));
    let changes: Vec<String> = cpus.into_iter().chain(mems).collect();
    format!("{}: {}", update.container, changes.join(", "))
}

fn moved(one: &MoveReport) -> String {
    let MoveReport { container, from, to, bytes, .. } = one;
    let (had, has) = (units::ids_or_none(&from.cpus), units::ids_or_none(&to.cpus));
    let (was, is) = (units::ids_or_none(&from.mems), units::ids_or_none(&to.mems));
    let size = units::bytes(*bytes);
    format!("{container} moved from CPUs {had} to {has}, from memory nodes {was} to {is} ({size})")
}

fn reasons(out: &mut String, containers: &[ContainerReport], style: Style) {
    for container in containers.iter().filter(|container| !container.reason.is_empty()) {
        let line = format!("{}: {}", container.name, container.reason);
        text::hang(out, "  why      ", &line, style.width);
    }
}

pub(super) fn candidates(out: &mut String, candidates: &[Candidate], style: Style) {
    for candidate in candidates {
        let mark = if candidate.chosen { "taken" } else { "not" };
        let line = format!("{}: {} {}: {}", candidate.container, mark, candidate.place, candidate.because);
        text::hang(out, "  place    ", &line, style.width);
    }
}

fn summary(report: &PlanReport) -> String {
    let rejected = report.steps.iter().filter(|step| !step.admitted).count();
    let steps = units::count(report.steps.len(), "step");
    match rejected {
        0 => format!("{steps}, none rejected"),
        _ => format!("{steps}, {rejected} rejected"),
    }
}
