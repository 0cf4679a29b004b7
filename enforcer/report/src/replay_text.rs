//! Replays for people: which turns come out differently and how, then all turns together.

use std::fmt::Write;

use enforcer_core::{
    hosted::Cpuset,
    plan::Action,
    replay::{Effect, ReplayReport, ReplayTotals, ReplayedTurn},
};

use super::{
    style::{Style, Tone},
    text, units,
};

/// Turns that are shown one by one.
const SHOWN: usize = 20;
/// Lines of one kind for one turn.
const LINES: usize = 12;
/// Lists of CPUs are cut beyond this.
const LIST_WIDTH: usize = 24;

/// The whole report.
pub fn render(report: &ReplayReport, style: Style) -> String {
    let mut out = String::new();
    for turn in report.turns.iter().take(SHOWN) {
        different(&mut out, turn, style);
    }
    let hidden = report.different.saturating_sub(report.turns.len().min(SHOWN) as u64);
    if hidden > 0 {
        let _ = writeln!(out, "{hidden} more come out differently; -o json lists them\n");
    }
    table(&mut out, report, style);
    text::wrap(&mut out, &summary(report), style.width, "", "");
    out
}

fn different(out: &mut String, turn: &ReplayedTurn, style: Style) {
    let title = format!("turn {}, {:.1} s", turn.turn, turn.at_seconds);
    let _ = writeln!(out, "{}", style.paint(Tone::Heading, title));
    let mut row = |name: &str, value: &str| {
        text::hang(out, &format!("  {name:<12} "), value, style.width);
    };
    let difference = &turn.difference;
    for (name, steps) in [("recorded", &difference.gone), ("now", &difference.new)] {
        listed(&mut row, name, steps.iter().map(action));
    }
    if difference.reordered {
        row("order", "the steps that both have are in another order");
    }
    for (name, refusals) in
        [("was refused", &difference.no_longer_refused), ("is refused", &difference.newly_refused)]
    {
        listed(&mut row, name, refusals.iter().map(|one| format!("{}: {}", one.workload, one.reason)));
    }
    let goals = difference.goals.iter().map(|(cgroup, goal)| {
        format!("{cgroup}: {} -> {}", cpuset(goal.recorded.as_ref()), cpuset(goal.now.as_ref()))
    });
    listed(&mut row, "goal", goals);
    if !difference.otherwise.is_empty() {
        let names: Vec<&str> = difference.otherwise.iter().map(String::as_str).collect();
        row("differs", &names.join(", "));
    }
    out.push('\n');
}

/// The first few, and how many there are beside them.
fn listed(row: &mut impl FnMut(&str, &str), name: &str, mut lines: impl Iterator<Item = String>) {
    lines.by_ref().take(LINES).for_each(|line| row(name, &line));
    match lines.count() {
        0 => {}
        more => row(name, &format!("... and {more} more")),
    }
}

fn action(action: &Action) -> String {
    match action {
        Action::SetCpus { cgroup, cpus } => format!("{cgroup}: CPUs {}", units::ids(cpus, LIST_WIDTH)),
        Action::SetMems { cgroup, mems } => {
            format!("{cgroup}: memory nodes {}", units::ids(mems, LIST_WIDTH))
        }
        Action::SetExclusive { cgroup, cpus } => {
            format!("{cgroup}: CPUs for partitions below {}", units::ids(cpus, LIST_WIDTH))
        }
        Action::SetPartition { cgroup, kind } => format!("{cgroup}: partition {kind}"),
        Action::MovePages { cgroup, from, to, most_bytes } => {
            let most =
                most_bytes.map_or_else(String::new, |most| format!(", {} at most", units::bytes(most)));
            format!("{cgroup}: pages of {} to {to}{most}", units::ids(from, LIST_WIDTH))
        }
    }
}

fn cpuset(cpuset: Option<&Cpuset>) -> String {
    let Some(Cpuset { cpus, mems }) = cpuset else { return "no place".into() };
    let cpus = cpus.as_ref().map(|cpus| format!("CPUs {}", units::ids(cpus, LIST_WIDTH)));
    let mems = mems.as_ref().map(|mems| format!("memory nodes {}", units::ids(mems, LIST_WIDTH)));
    let both: Vec<String> = cpus.into_iter().chain(mems).collect();
    if both.is_empty() { "nothing pinned".into() } else { both.join(", ") }
}

fn table(out: &mut String, report: &ReplayReport, style: Style) {
    let heading = format!("{:<28} {:>14} {:>14}", "", "recorded", "now");
    let _ = writeln!(out, "{}", style.paint(Tone::Heading, heading));
    let mut row = |name: &str, of: &dyn Fn(&ReplayTotals) -> String| {
        let _ = writeln!(out, "{name:<28} {:>14} {:>14}", of(&report.recorded), of(&report.now));
    };
    row("turns with steps", &|totals| totals.turns_with_steps.to_string());
    row("steps", &|totals| totals.steps.to_string());
    row("most to move in a turn", &|totals| units::bytes(totals.most_bytes));
    row("most misplaced in a turn", &|totals| units::bytes(totals.most_misplaced_bytes));
    let last = |of: fn(&Effect) -> String| move |totals: &ReplayTotals| of(&totals.last);
    row("last turn: placed", &last(|effect| effect.placed.to_string()));
    row("  refused", &last(|effect| effect.refused.to_string()));
    row("  misplaced", &last(|effect| units::bytes(effect.misplaced_bytes)));
    row("  misplaced after its plan", &last(|effect| units::bytes(effect.misplaced_bytes_then)));
    out.push('\n');
}

fn summary(report: &ReplayReport) -> String {
    let recording = &report.recording;
    let mut said = vec![units::count(recording.turns, "turn")];
    if recording.dropped > 0 {
        said.push(format!("{} not recorded", recording.dropped));
    }
    said.push(match (report.different, report.other_policy) {
        _ if recording.turns == 0 => "nothing was compared".into(),
        (0, false) => "all come out as recorded".into(),
        (0, true) => "the other policy decides the same".into(),
        (different, false) => format!("{different} come out differently"),
        (different, true) => format!("the other policy decides differently in {different}"),
    });
    let mut summary = said.join(", ");
    if let Some(ends) = &recording.ends {
        let _ = write!(summary, "; the recording ends {ends}");
    }
    summary
}
