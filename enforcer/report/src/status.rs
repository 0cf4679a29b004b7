//! How the daemon fares, as it says itself: what `status` shows.
//!
//! Pause, log level and uptime are of the moment of the answer, everything else is as of the latest turn.
//! Texts from outside are escaped here, not in the JSON.

use std::fmt::Write as _;

use enforcer_core::{audit::Summary, named::Named as _, policy::Mode};
use numa_placement::trial::ContainerReport;
use numa_topology::degraded::Degraded;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{
    claims::ClaimsReport,
    columns,
    decision::{DecisionState, DecisionSubject},
    runtime::RuntimeLink,
    style::{Style, Tone},
    text, units,
    view::{causes, verdicts::VerdictCounts},
    widening::{BrakeUse, WidenedWorkload},
};

/// Version of the serde form of [`StatusReport`].
pub const STATUS_SCHEMA_VERSION: u32 = 2;

/// Columns of a name.
const NAME_WIDTH: usize = 44;
/// Columns of lists of CPUs and nodes.
const LIST_WIDTH: usize = 24;

/// Entries without a match that are named.
const UNMATCHED: usize = 5;

/// How the daemon fares.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct StatusReport {
    /// [`STATUS_SCHEMA_VERSION`].
    pub schema_version: u32,
    /// Version of the daemon.
    pub version: String,
    /// Its process.
    pub pid: u32,
    /// Seconds since it started.
    pub uptime_seconds: u64,
    /// Its clock when it answered, in milliseconds since 1970.
    pub now_unix_ms: u64,
    /// Log level, or the directives that the daemon was started with.
    pub log_level: String,
    /// Enforcement is paused; `null` when it is not.
    pub paused: Option<Paused>,
    /// The latest turn; `null` before the first one is over.
    pub latest: Option<LatestTurn>,
    /// Workloads that it places or corrects, and that are there.
    pub workloads: Vec<ManagedWorkload>,
}

/// A pause of enforcement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct Paused {
    /// Seconds since it began.
    pub for_seconds: u64,
    /// Seconds until it ends by itself; `null` when it does not.
    pub left_seconds: Option<u64>,
}

/// Summary of the latest turn.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LatestTurn {
    /// May the daemon write, if it is not paused?
    pub mode: Mode,
    /// Turns that were completed.
    pub turns: u64,
    /// Turns that failed.
    pub failed_turns: u64,
    /// Seconds since it began.
    pub age_seconds: u64,
    /// How long a turn took: the one before it.
    pub turn_seconds: Option<f64>,
    /// Was the latest reading of the configuration good?
    pub config_good: bool,
    /// The link to the container runtime; `null` where none was looked for.
    pub runtime: Option<RuntimeLink>,
    /// Containers that the runtime reported, and those without a place.
    pub containers: usize,
    /// Containers that have no place.
    pub unplaced: usize,
    /// Resource claims; `null` where the DRA driver is off.
    #[serde(default)]
    pub claims: Option<ClaimsReport>,
    /// Workloads that have memory nodes beside their own, because these were nearly full.
    #[serde(default)]
    pub widened: Vec<WidenedWorkload>,
    /// Workloads that are slowed down when they fill their memory nodes faster than one is added; `null`
    /// where that is not asked for.
    #[serde(default)]
    pub brake: Option<BrakeUse>,
    /// All workloads that it sees, by verdict.
    pub summary: Summary,
    /// Names of `[[workload]]` entries that match nothing that runs.
    #[serde(default)]
    pub unmatched: Vec<String>,
    /// Of the first few of these: that their processes are in cgroups below, and the pattern that matches.
    #[serde(default)]
    pub unmatched_below: Vec<String>,
    /// Missing sources.
    pub degraded: Vec<Degraded>,
}

/// A workload that the daemon places or corrects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManagedWorkload {
    /// Which.
    pub workload: DecisionSubject,
    /// Result of the latest decision about it.
    pub state: DecisionState,
    /// Since when, in milliseconds since 1970.
    pub since_unix_ms: u64,
    /// Why, in one sentence.
    pub reason: String,
    /// Its grant; `null` for none.
    pub placement: Option<ContainerReport>,
}

impl Paused {
    /// `paused for 5s, 9m 55s left`; of one that has just begun `paused, 10m left`.
    pub fn line(self) -> String {
        let end = match self.left_seconds {
            Some(left) => format!("{} left", units::span(left)),
            None => "until resumed".to_owned(),
        };
        match self.for_seconds {
            0 => format!("paused, {end}"),
            seconds => format!("paused for {}, {end}", units::span(seconds)),
        }
    }
}

/// For people.
pub fn render(status: &StatusReport, style: Style) -> String {
    let mut out = String::new();
    let mut line = |key: &str, value: &str| text::hang(&mut out, &format!("{key:<10}"), value, style.width);
    let mode = status
        .latest
        .as_ref()
        .map_or_else(|| "before its first turn".to_owned(), |turn| turn.mode.to_string());
    line("Mode", &status.paused.map_or_else(|| mode.clone(), |paused| format!("{mode}, {}", paused.line())));
    let (pid, uptime) = (status.pid, units::span(status.uptime_seconds));
    line(
        "Daemon",
        &format!("{}, process {pid}, up {uptime}, log level {}", status.version, status.log_level),
    );
    if let Some(turn) = &status.latest {
        line("Turns", &turns(turn));
        if let Some(link) = &turn.runtime {
            line("Runtime", &runtime(link, turn));
        }
        if let Some(prepared) = &turn.claims {
            line("Claims", &claims(prepared));
        }
        let verdicts = VerdictCounts::from(&turn.summary);
        line("Workloads", &format!("{} seen: {verdicts}", turn.summary.total));
        if !turn.unmatched.is_empty() {
            line("Unmatched", &unmatched(&turn.unmatched));
            turn.unmatched_below.iter().for_each(|below| line("", &text::escape(below)));
        }
    }
    if status.workloads.is_empty() {
        out.push_str("\nNone of them is placed or corrected by this daemon.\n");
    } else {
        workloads(&mut out, status, style);
    }
    if let Some(turn) = &status.latest {
        let added: Vec<String> = turn.widened.iter().map(widened).collect();
        let brake: Vec<String> = turn.brake.iter().map(brake).collect();
        style.section(&mut out, "Memory nodes added", &added);
        style.section(&mut out, "Brake", &brake);
        style.section(&mut out, "Degraded", &causes::lines(&turn.degraded));
    }
    out
}

fn widened(WidenedWorkload { cgroup, nodes, keeps }: &WidenedWorkload) -> String {
    let keeps = keeps.as_ref().map_or_else(String::new, |why| format!("; kept, because {why}"));
    format!("{cgroup}: {nodes} beside its own, which were nearly full{keeps}")
}

fn turns(turn: &LatestTurn) -> String {
    let mut said = format!("{}, the latest {} ago", turn.turns, units::span(turn.age_seconds));
    if let Some(seconds) = turn.turn_seconds {
        let _ = write!(said, ", {seconds:.3} s long");
    }
    if turn.failed_turns > 0 {
        let _ = write!(said, "; {} failed", turn.failed_turns);
    }
    if !turn.config_good {
        said.push_str("; the configuration on disk is not good, the one before it counts");
    }
    said
}

/// The first few, and how many there are besides.
fn unmatched(names: &[String]) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("{name:?}")).collect();
    format!("[[workload]] {}: nothing that runs matches", units::first_few(&quoted, UNMATCHED))
}

fn brake(used: &BrakeUse) -> String {
    let watched = used.watchdog.map_or_else(
        || "no process watches it, so that it is not used".to_owned(),
        |pid| format!("watched by process {pid}"),
    );
    let times = units::count(used.applied, "time");
    let mut said =
        format!("{}, {watched}; used {times}, {} ms together", used.wanted, used.slowed_ns / 1_000_000);
    if used.failed > 0 {
        let _ = write!(said, "; {} failed", used.failed);
    }
    for cgroup in &used.slowed {
        let _ = write!(said, "; {} is slowed down", text::escape(cgroup.as_str()));
    }
    said
}

fn runtime(link: &RuntimeLink, turn: &LatestTurn) -> String {
    match link {
        RuntimeLink::Untried => "not tried yet".to_owned(),
        RuntimeLink::Up { name, version } => {
            let containers = units::count(turn.containers, "container");
            format!("{name} {version}: {containers}, {} without the place they want", turn.unplaced)
        }
        RuntimeLink::Down { reason } => format!("not connected: {reason}"),
    }
}

fn claims(report: &ClaimsReport) -> String {
    let registered = if report.calls.is_registered { "knows" } else { "does not know" };
    let (prepared, refused) = (units::count(report.claims, "claim"), report.calls.refused);
    let have = units::count(report.containers, "container");
    format!("{prepared} prepared, {refused} refused, of {have}; the kubelet {registered} the driver")
}

fn workloads(out: &mut String, status: &StatusReport, style: Style) {
    out.push('\n');
    let mut table = columns::columns(style, vec!["workload", "state", "since", "CPUs", "nodes", "placed by"]);
    for one in &status.workloads {
        let placement = one.placement.as_ref();
        let since = units::ago(status.now_unix_ms, one.since_unix_ms);
        table.add_row(vec![
            text::fit(&one.workload.name, NAME_WIDTH),
            one.state.name().to_owned(),
            since,
            placement.map_or_else(|| "-".into(), |given| units::ids(&given.cpus, LIST_WIDTH)),
            placement.map_or_else(|| "-".into(), |given| units::ids(&given.mems, LIST_WIDTH)),
            placement.map_or_else(
                || "-".into(),
                |given| text::escape(&format!("{}: {}", given.engine, given.policy)).into_owned(),
            ),
        ]);
    }
    columns::push(out, &table);
    // What is as it should be needs no reason here; `explain` has it.
    let reasons = status.workloads.iter().filter(|one| !matches!(one.state.tone(), Tone::Good | Tone::Quiet));
    for one in reasons {
        let line = format!("{}: {}: {}", one.workload.name, one.state.name(), one.reason);
        text::wrap(out, &line, style.width, "  ", "      ");
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::workload::CgroupPath;

    use super::*;

    #[test]
    fn a_pause_that_has_just_begun_has_no_length_yet() {
        let line = |for_seconds, left_seconds| Paused { for_seconds, left_seconds }.line();
        assert_eq!(line(0, Some(600)), "paused, 10m left");
        assert_eq!(line(0, None), "paused, until resumed");
        assert_eq!(line(5, Some(595)), "paused for 5s, 9m 55s left");
        assert_eq!(line(61, None), "paused for 1m 1s, until resumed");
    }

    #[test]
    fn entries_that_match_nothing_are_named_up_to_a_bound() {
        let names = |count: usize| (0..count).map(|number| format!("e{number}")).collect::<Vec<_>>();
        assert_eq!(unmatched(&names(1)), "[[workload]] \"e0\": nothing that runs matches");
        let many = unmatched(&names(20_000));
        assert!(many.ends_with("\"e4\" and 19995 more: nothing that runs matches"), "{many}");
    }

    #[test]
    fn what_was_added_is_listed_with_why_it_is_kept() {
        let one = |keeps: Option<&str>| WidenedWorkload {
            cgroup: CgroupPath::new("/a"),
            nodes: "1".parse().unwrap(),
            keeps: keeps.map(str::to_owned),
        };
        let turn = LatestTurn {
            mode: Mode::Enforce,
            turns: 1,
            failed_turns: 0,
            age_seconds: 0,
            turn_seconds: None,
            config_good: true,
            runtime: None,
            containers: 0,
            unplaced: 0,
            claims: None,
            widened: Vec::new(),
            brake: None,
            summary: Summary::default(),
            unmatched: Vec::new(),
            unmatched_below: Vec::new(),
            degraded: Vec::new(),
        };
        let shown = |widened, brake| {
            let status = StatusReport {
                schema_version: STATUS_SCHEMA_VERSION,
                version: "1".into(),
                pid: 1,
                uptime_seconds: 0,
                now_unix_ms: 0,
                log_level: "info".into(),
                paused: None,
                latest: Some(LatestTurn { widened, brake, ..turn.clone() }),
                workloads: Vec::new(),
            };
            render(&status, Style { colour: false, width: 200 })
        };
        let calm = shown(Vec::new(), None);
        assert!(!calm.contains("Memory nodes") && !calm.contains("Brake"), "{calm}");
        let text = shown(vec![one(None), one(Some("its own nodes have 1 GiB free"))], None);
        assert!(text.contains("/a: 1 beside its own, which were nearly full\n"), "{text}");
        assert!(text.contains("full; kept, because its own nodes have 1 GiB free"), "{text}");
        let used = BrakeUse {
            wanted: "freeze".into(),
            watchdog: Some(7),
            applied: 1,
            slowed_ns: 12_345_678,
            slowed: vec![CgroupPath::new("/a")],
            ..BrakeUse::default()
        };
        let text = shown(Vec::new(), Some(used.clone()));
        assert!(
            text.contains("freeze, watched by process 7; used 1 time, 12 ms together; /a is slowed down"),
            "{text}"
        );
        let without = BrakeUse { watchdog: None, failed: 2, ..used };
        let text = shown(Vec::new(), Some(without));
        assert!(text.contains("no process watches it") && text.contains("; 2 failed"), "{text}");
    }
}
