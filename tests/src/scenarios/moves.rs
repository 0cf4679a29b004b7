//! Are moves between nodes counted, each of them, and no others?
//!
//! Programs put themselves on another CPU so often and no oftener; each counts that itself, and so does the
//! kernel for it (`se.nr_migrations`). What the daemon's metrics rise by meanwhile is held against both. The
//! controls: one that stays where it is, one that moves inside its node, one that belongs to no workload.

use std::time::Duration;

use anyhow::Result;

use crate::{
    cgroup::Cgroup,
    check::Checks,
    product::{Daemon, Metrics, label},
    touch::{Plan, Touching},
    wait,
};

/// Moves of each program that moves; half of them go there, half come back.
const MOVES: u64 = 100;

/// Memory of each program: a round over it is short.
const MEBIBYTES: usize = 8;

/// Longest time for all moves, emulated and on a busy host.
const LIMIT: Duration = Duration::from_mins(8);

pub(super) const MOVED: &str = "numa_enforcer_workload_task_moves_total";
pub(super) const MISPLACED: &str = "numa_enforcer_workload_misplaced_tasks_total";
const EVENTS: &str = "numa_enforcer_kernel_events_total";
pub(super) const RUN_TIME: &str = "numa_enforcer_workload_run_time_seconds_total";

/// Counted for a cgroup, or for all: there and back between the nodes 0 and 1.
pub(super) fn there_and_back(metrics: &Metrics, name: &str, cgroup: Option<&Cgroup>) -> [f64; 2] {
    [("0", "1"), ("1", "0")].map(|(src, dst)| {
        let mut labels = vec![("src_numa", src), ("dst_numa", dst)];
        labels.extend(cgroup.map(label));
        metrics.sum(name, &labels)
    })
}

/// A program that stays, one that goes from node to node, one that moves inside a node, and one in the root.
pub(super) fn counted(checks: &mut Checks) -> Result<()> {
    let travels = |between: [u32; 2]| Plan {
        runs_on: between.to_vec(),
        holds: vec![(between[0], MEBIBYTES)],
        stints: Some(MOVES),
    };
    let names = ["pinned", "bounced", "inside"];
    let plans = [Plan::staying(0, &[(0, MEBIBYTES)]), travels([0, 2]), travels([0, 1])];
    let cgroups = names.map(|name| Cgroup::create(&format!("/work/{name}")));
    let cgroups = cgroups.into_iter().collect::<Result<Vec<_>>>()?;
    let start = |(cgroup, plan): (&Cgroup, Plan)| Touching::start(cgroup, &[plan], true);
    let mut programs = cgroups.iter().zip(plans).map(start).collect::<Result<Vec<_>>>()?;
    let mut unmanaged = Touching::start(&Cgroup::create("/")?, &[travels([0, 2])], true)?;

    let [pinned, bounced, inside] = &cgroups[..] else { anyhow::bail!("three cgroups") };
    // It puts itself on another CPU, which is no reason to leave it alone here.
    let daemon = Daemon::start_counting("observe", &[bounced], "self_placement = \"override\"\n")?;
    // The first decision says where the bounced one should be; the kernel side knows that a turn later.
    let before = daemon.metrics_after_ticks(4)?;
    for program in programs.iter_mut().chain([&mut unmanaged]) {
        program.counts()?;
    }
    for (name, program) in [("bounced", 1), ("inside", 2)] {
        let between_nodes = if name == "bounced" { MOVES } else { 0 };
        // It counts its own a moment after the kernel's.
        let done = wait::until(&format!("{name} has moved"), LIMIT, || {
            let counts = programs[program].counts()?;
            Ok((counts.kernel_moves >= MOVES && counts.moves >= between_nodes).then_some(counts))
        })?;
        checks.equal(format!("{name}: moves, by the kernel"), MOVES, done.kernel_moves);
        checks.equal(format!("{name}: moves between nodes, by itself"), between_nodes, done.moves);
    }
    let away = wait::until("the unmanaged one has moved", LIMIT, || {
        Ok(Some(unmanaged.counts()?).filter(|counts| counts.moves >= MOVES))
    })?;
    checks.equal("unmanaged: moves between nodes, by itself", MOVES, away.moves);
    let after = daemon.metrics_after_ticks(3)?;

    let rise = |name: &str, cgroup: Option<&Cgroup>| {
        let (before, after) = (there_and_back(&before, name, cgroup), there_and_back(&after, name, cgroup));
        #[expect(
            clippy::cast_possible_truncation,
            reason = "counts of a few hundred, as Prometheus has them"
        )]
        [0, 1].map(|way| (after[way] - before[way]).round() as i64)
    };
    let half = i64::try_from(MOVES / 2)?;
    checks.equal("pinned: moves between nodes", [0, 0], rise(MOVED, Some(pinned)));
    checks.equal("bounced: moves between nodes", [half, half], rise(MOVED, Some(bounced)));
    checks.equal("inside: moves between nodes", [0, 0], rise(MOVED, Some(inside)));
    // Whatever else runs in a guest moves now and then; the unmanaged one alone would be `half`.
    let others = rise(MOVED, None).map(|all| all - half);
    let few = 0..half;
    checks.holds(
        "no workload counts the moves of the unmanaged one",
        others.iter().all(|moves| few.contains(moves)),
        others,
    );
    checks.equal("bounced: moves to where it should not be", [half, 0], rise(MISPLACED, Some(bounced)));
    checks.equal("all workloads: moves to where they should not be", [half, 0], rise(MISPLACED, None));
    // One by one too, or counted as what was held back: the ring and the rate limit lose nothing silently.
    let became = |result| {
        let count = |metrics: &Metrics| metrics.sum(EVENTS, &[("result", result)]);
        #[expect(clippy::cast_possible_truncation, reason = "as above")]
        let rise = (count(&after) - count(&before)).round() as i64;
        rise
    };
    let (told, limited, ring_full) = (became("told"), became("limited"), became("ring-full"));
    checks.equal("misplaced tasks, told or held back", half, told + limited + ring_full);
    checks.holds("some are told one by one", told > 0, (told, limited, ring_full));
    for cgroup in &cgroups {
        let ran = after.sum(RUN_TIME, &[label(cgroup)]);
        checks.above(format!("{}: seconds on a CPU", cgroup.path()), 0.0, Some(ran));
    }
    let lost = after.sum("numa_enforcer_kernel_side_lost_total", &[]);
    checks.below("events that are in no counter", 0.5, Some(lost));
    checks.above(
        "cgroups that are watched",
        2.5,
        Some(after.sum("numa_enforcer_kernel_side_cgroups_watched", &[])),
    );
    Ok(())
}
