//! The pages that fill the screen: lines of text, as wide as it is.
//!
//! Made anew for each frame from at most one report: some hundred lines. All of it is escaped by
//! [`text::wrap`] and [`text::fit`].

use enforcer_core::{model::TrafficSource, named::Named as _, workload::Origin};
use numa_topology::degraded::Degraded;

use super::{
    action::TopAction,
    columns,
    history::{Point, TURNS},
    report::TopWorkload,
    state::{TopState, TopView},
    view::nodes,
};
use crate::{style::Tone, text, units};

/// Columns of the words before a text.
const LABEL: usize = 12;

/// A line with its tone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct PageLine {
    pub(super) tone: Option<Tone>,
    pub(super) text: String,
}

/// Help of the keys.
const HELP: [(&str, &str); 12] = [
    ("up, down", "select a workload; PgUp, PgDn, Home, End, k, j, g, G as in less"),
    ("enter", "details of the selected workload, over the latest turns"),
    ("t", "sort by remote traffic: the share of memory accesses that go to another node, times busy CPUs"),
    ("b", "sort by misplaced bytes: memory on nodes where the workload has no CPUs"),
    ("m", "sort by moves: placements of its tasks on another node, per second"),
    ("s", "sort by the next of these"),
    ("/", "show only workloads that have this in their name or cgroup; escape shows all"),
    ("n", "all NUMA nodes"),
    ("a", "what was decided lately, with reasons and steps"),
    ("d", "what could not be seen, and what that costs"),
    ("?", "this page"),
    ("q, escape", "back, or end"),
];

/// Lines of the page that is shown; none of the main view.
pub(super) fn lines(state: &TopState) -> Vec<PageLine> {
    let width = usize::from(state.size.0);
    let mut page = TextPage { width, lines: Vec::new() };
    match state.view {
        TopView::Main => {}
        TopView::Nodes => all_nodes(&mut page, state),
        TopView::Actions => all_actions(&mut page, state),
        TopView::Degraded => degraded(&mut page, state.turn().map_or(&[], |turn| &turn.degraded)),
        TopView::Workload => match state.workload() {
            Some(workload) => details(&mut page, workload, state),
            None => page.line(Some(Tone::Notice), "it is no longer there, or no longer among the worst"),
        },
        TopView::Help => {
            page.line(Some(Tone::Heading), "Keys");
            for (key, meaning) in HELP {
                page.labelled(key, meaning, None);
            }
            page.line(None, "");
            page.line(
                None,
                "`?` is not known, `-` is none. Traffic is measured where the machine lets us, and estimated from \
                 run time and residency elsewhere; details say which.",
            );
        }
    }
    page.lines
}

struct TextPage {
    width: usize,
    lines: Vec<PageLine>,
}

impl TextPage {
    fn line(&mut self, tone: Option<Tone>, text: &str) {
        self.wrapped("", "", text, tone);
    }

    fn heading(&mut self, text: &str) {
        self.line(None, "");
        self.line(Some(Tone::Heading), text);
    }

    fn labelled(&mut self, label: &str, text: &str, tone: Option<Tone>) {
        self.wrapped(&format!("  {label:<LABEL$}"), &" ".repeat(LABEL + 2), text, tone);
    }

    fn wrapped(&mut self, first: &str, rest: &str, text: &str, tone: Option<Tone>) {
        let mut out = String::new();
        text::wrap(&mut out, text, self.width, first, rest);
        self.lines.extend(out.lines().map(|line| PageLine { tone, text: line.to_owned() }));
    }
}

fn all_nodes(page: &mut TextPage, state: &TopState) {
    page.lines.push(PageLine {
        tone: Some(Tone::Heading),
        text: columns::heading(&nodes::COLUMNS, page.width, None),
    });
    for node in state.turn().iter().flat_map(|turn| &turn.nodes) {
        let text = columns::row(&nodes::COLUMNS, page.width, |column| nodes::cell(column, node));
        page.lines.push(PageLine { tone: nodes::tone(node), text });
    }
}

fn all_actions(page: &mut TextPage, state: &TopState) {
    let actions = state.report().map_or(&[][..], |report| &report.actions);
    if actions.is_empty() {
        page.line(None, "Nothing was decided yet, but that some may be where they should be.");
    }
    for action in actions {
        one_action(page, action, state.unix_ms());
    }
}

fn one_action(page: &mut TextPage, action: &TopAction, now: u64) {
    let TopAction { workload, first_unix_ms, times, by, state, paused, reason, steps, .. } = action;
    let ago = units::ago(now, *first_unix_ms);
    let again = if *times > 1 { format!(", {times} times since") } else { String::new() };
    let paused = if *paused { ", while paused" } else { "" };
    let head = format!("{ago} ago{again}, {by}{paused}: {}: {workload}", state.name());
    page.line(Some(state.tone()), &head);
    if !reason.is_empty() {
        page.labelled("why", reason, None);
    }
    for step in steps {
        page.labelled("step", step, None);
    }
}

fn degraded(page: &mut TextPage, degraded: &[Degraded]) {
    if degraded.is_empty() {
        page.line(None, "Everything that can be seen on this host is seen.");
    }
    for Degraded { source, reason, effect, .. } in degraded {
        page.line(Some(Tone::Heading), source);
        page.labelled("because", reason, None);
        page.labelled("effect", effect, None);
    }
}

fn details(page: &mut TextPage, workload: &TopWorkload, state: &TopState) {
    page.line(Some(Tone::Heading), &workload.name);
    page.labelled("cgroup", &place(workload), None);
    page.labelled("verdict", workload.verdict.name(), Some(Tone::from(workload.verdict)));
    page.labelled("owner", &workload.owner, None);
    let cpus = units::known(workload.cpus.as_ref(), |cpus| units::ids(cpus, 60));
    let mems = units::known(workload.mems.as_ref(), |mems| units::ids(mems, 60));
    let (nodes, tasks) =
        (units::ids(&workload.numa_nodes, 60), units::known(workload.tasks, |n| n.to_string()));
    page.labelled("may run on", &format!("CPUs {cpus} of nodes {nodes}; {tasks} threads"), None);
    page.labelled("may use", &format!("memory of nodes {mems}"), None);
    page.labelled("memory", &memory(workload), None);
    page.labelled("residency", &residency(workload), None);
    page.labelled("traffic", &traffic(workload), None);
    let misplaced = units::known(workload.misplaced_time, units::percent);
    page.labelled("run time", &format!("{misplaced} of it on nodes where it should not be"), None);

    page.heading(&format!("The latest turns, {TURNS} at most, the newest on the right"));
    let points: Vec<Point> = state.histories.of(&workload.key()).copied().collect();
    chart(page, "traffic", &points, |point| point.traffic, units::percent);
    chart(page, "misplaced", &points, |point| point.misplaced, |bytes| units::bytes(whole(bytes)));
    chart(page, "moves/s", &points, |point| point.migrations, |moves| format!("{moves:.1}"));
    chart(page, "busy CPUs", &points, |point| point.busy, |cpus| format!("{cpus:.2}"));

    page.heading("Findings");
    if workload.findings.is_empty() {
        page.line(None, "  none");
    }
    for finding in &workload.findings {
        page.wrapped("  ", "      ", finding, None);
    }
    page.heading("Decisions");
    let about = |action: &&TopAction| action.cgroup.as_ref() == Some(&workload.cgroup);
    let mut actions = state.report().into_iter().flat_map(|report| &report.actions).filter(about).peekable();
    if actions.peek().is_none() {
        page.line(None, "  none lately, but that it may be where it should be");
    }
    for action in actions {
        one_action(page, action, state.unix_ms());
    }
}

fn place(workload: &TopWorkload) -> String {
    let what = match &workload.origin {
        Origin::Pod { .. } => "container of a pod".to_owned(),
        Origin::Container { .. } => "container".to_owned(),
        Origin::Unit { .. } => "unit of systemd".to_owned(),
        Origin::VirtualMachine { .. } => "virtual machine".to_owned(),
        Origin::Cgroup => "cgroup".to_owned(),
        Origin::Process { pid, .. } => format!("process {pid}"),
    };
    format!("{} ({what})", workload.cgroup)
}

fn memory(workload: &TopWorkload) -> String {
    let Some(by_node) = &workload.bytes_by_numa else { return "?".to_owned() };
    let each = by_node.iter().filter(|(_, bytes)| **bytes > 0);
    let each: Vec<String> = units::by_node(each).collect();
    if each.is_empty() { "none".to_owned() } else { each.join(", ") }
}

fn residency(workload: &TopWorkload) -> String {
    let share = units::known(workload.remote_residency, units::percent);
    let bytes = units::known(workload.misplaced_bytes, units::bytes);
    format!("{share} of its memory is remote, {bytes}")
}

fn traffic(workload: &TopWorkload) -> String {
    let Some(share) = workload.remote_traffic else { return "not known".to_owned() };
    let source = match workload.traffic_source {
        Some(TrafficSource::Placement) => "estimated from run time and residency",
        Some(TrafficSource::HintFaults) => "by NUMA hinting faults",
        Some(TrafficSource::Hardware) => "by counters of the CPU",
        None => "of an unknown source",
    };
    let samples = units::known(workload.traffic_samples, |samples| samples.to_string());
    format!("{} of its accesses are remote, {source}, {samples} observations", units::percent(share))
}

/// A row of bars, as high as the highest of them allows, and what that is.
fn chart(
    page: &mut TextPage,
    label: &str,
    points: &[Point],
    of: impl Fn(&Point) -> Option<f64>,
    shown: impl Fn(f64) -> String,
) {
    const VALUE: usize = 10;
    let room = page.width.saturating_sub(LABEL + VALUE + 7).min(TURNS);
    let values: Vec<Option<f64>> = points.iter().skip(points.len().saturating_sub(room)).map(of).collect();
    let most = values.iter().flatten().copied().filter(|value| value.is_finite()).fold(0.0, f64::max);
    let bars: String = values.iter().map(|value| bar(*value, most)).collect();
    let most = if values.iter().flatten().next().is_none() { "?".to_owned() } else { shown(most) };
    let text = format!("  {label:<LABEL$}max {most:>VALUE$} {bars}");
    page.lines.push(PageLine { tone: None, text });
}

/// `·` is not known, which is not the least bar.
fn bar(value: Option<f64>, most: f64) -> char {
    const BARS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
    match value {
        None => '·',
        Some(value) if most > 0.0 => {
            let height = usize::try_from(whole(value / most * 7.0 + 0.5)).unwrap_or(0);
            BARS.get(height).copied().unwrap_or('█')
        }
        Some(_) => '▁',
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "saturates, and only for show")]
fn whole(value: f64) -> u64 {
    value as u64
}
