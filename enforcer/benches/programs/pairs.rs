//! Cost of each program per event, beside bpftrace doing the same.
//!
//! Both are attached at once, so both run for the same events: a thread that moves between two CPUs, each
//! declared a node of its own. The first one pays for cold caches, so each is first in half of the rounds.
//! The figures are the kernel's own statistics (`kernel.bpf_stats_enabled`), each with an overhead of some 60
//! ns; the ratio is what counts.
//!
//! A tracepoint gives bpftrace no task, so its lines use the cgroup of the running task, which for a move is
//! the wrong one. The cheap line asks a helper for it; the equal one follows the same pointers as ours.

use std::fs;

use anyhow::{Context as _, Result};
use enforcer_core::policy::RunTimeSource;
use enforcer_kernel::bpf::{AttachOptions, Programs, Sizes};

use crate::{
    bpftrace::{Bpftrace, Cost},
    host::Host,
    load::{Load, STEPS, anywhere},
};

/// Does the kernel keep the statistics of programs?
pub(super) const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
/// Measurements in each order; the least counts, because what else runs only adds.
const ROUNDS: usize = 5;
/// Room for what is told in a step, several times.
const EVENT_BYTES: u32 = 1 << 18;

/// A program of ours and the one line of bpftrace that does the same.
struct Pair {
    program: &'static str,
    what: &'static str,
    load: Load,
    line: Option<&'static str>,
    /// Is everything where it should be?
    allowed: bool,
    with: fn(AttachOptions) -> AttachOptions,
}

const MOVES: &str =
    "tracepoint:sched:sched_migrate_task { @[cgroup, args->orig_cpu, args->dest_cpu] = count(); }";
/// Looks as far as ours; `CGROUP` stands for the pointers of the hierarchy.
const MOVES_BY_POINTERS: &str = "tracepoint:sched:sched_migrate_task \
                                 { @[(uint64)curtask->CGROUP, args->orig_cpu, args->dest_cpu] = count(); }";
const STARTS_BY_POINTERS: &str = "tracepoint:sched:sched_wakeup_new \
                                  { @[(uint64)curtask->CGROUP, cpu, args->target_cpu] = count(); }";
const MOVES_TOLD: &str = "tracepoint:sched:sched_migrate_task \
                          { printf(\"%d %d %d %d\\n\", cgroup, args->pid, args->orig_cpu, args->dest_cpu); }";
const STARTS: &str = "tracepoint:sched:sched_wakeup_new { @[cgroup, cpu, args->target_cpu] = count(); }";
const TIME: &str = "tracepoint:sched:sched_switch \
                    { $now = nsecs; @ns[cgroup, cpu] = sum($now - @since[cpu]); @since[cpu] = $now; }";
/// Also finds misplaced tasks: none is allowed anywhere, as no process is called -1.
const MISPLACED_BY_POINTERS: &str = "tracepoint:sched:sched_migrate_task { $c = (uint64)curtask->CGROUP; \
                                     @[$c, args->orig_cpu, args->dest_cpu] = count(); \
                                     if (args->pid == -1) { @allowed[$c, args->dest_cpu] = 1; } \
                                     if (@allowed[$c, args->dest_cpu] == 0) { @misplaced[$c] = count(); } }";
const SAMPLES: &str = "profile:hz:99 /pid/ { @[cgroup, cpu] = count(); }";
/// Samples and their time, as ours.
const SAMPLES_BY_POINTERS: &str =
    "profile:hz:99 /pid/ { @[(uint64)curtask->CGROUP, cpu] = stats((uint64)10101010); }";

fn usual(options: AttachOptions) -> AttachOptions {
    options
}

fn in_hash(options: AttachOptions) -> AttachOptions {
    let sizes = Sizes { move_cells: 0, moves: 1_024, ..options.sizes };
    AttachOptions { sizes, ..options }
}

fn all_told(options: AttachOptions) -> AttachOptions {
    let sizes = Sizes { event_bytes: EVENT_BYTES, ..options.sizes };
    AttachOptions { sizes, event_interval_ns: 0, ..options }
}

fn logged(options: AttachOptions) -> AttachOptions {
    AttachOptions { log: true, ..options }
}

fn exact(options: AttachOptions) -> AttachOptions {
    AttachOptions { run_time: RunTimeSource::Switches, ..options }
}

const PAIRS: [Pair; 11] = [
    Pair {
        program: "sched_migrate_task",
        what: "move, allowed, counted",
        load: Load::Bounce,
        line: Some(MOVES_BY_POINTERS),
        allowed: true,
        with: usual,
    },
    Pair {
        program: "sched_migrate_task",
        what: "move, allowed, counted, against the mover's cgroup",
        load: Load::Bounce,
        line: Some(MOVES),
        allowed: true,
        with: usual,
    },
    Pair {
        program: "sched_migrate_task",
        what: "move, misplaced, counted, told seldom",
        load: Load::Bounce,
        line: Some(MISPLACED_BY_POINTERS),
        allowed: false,
        with: usual,
    },
    Pair {
        program: "sched_migrate_task",
        what: "move, counted in the hash of many nodes",
        load: Load::Bounce,
        line: Some(MOVES_BY_POINTERS),
        allowed: true,
        with: in_hash,
    },
    Pair {
        program: "sched_migrate_task",
        what: "move, each told, against printf",
        load: Load::Bounce,
        line: Some(MOVES_TOLD),
        allowed: false,
        with: all_told,
    },
    Pair {
        program: "sched_migrate_task",
        what: "move, allowed, with bpf_log",
        load: Load::Bounce,
        line: None,
        allowed: true,
        with: logged,
    },
    Pair {
        program: "sched_wakeup_new",
        what: "start, counted",
        load: Load::Start,
        line: Some(STARTS_BY_POINTERS),
        allowed: true,
        with: usual,
    },
    Pair {
        program: "sched_wakeup_new",
        what: "start, counted, against the starter's cgroup",
        load: Load::Start,
        line: Some(STARTS),
        allowed: true,
        with: usual,
    },
    Pair {
        program: "sched_switch",
        what: "switch, exact run time",
        load: Load::Bounce,
        line: Some(TIME),
        allowed: true,
        with: exact,
    },
    Pair {
        program: "cpu_clock",
        what: "sample of run time",
        load: Load::Burn,
        line: Some(SAMPLES_BY_POINTERS),
        allowed: true,
        with: usual,
    },
    Pair {
        program: "cpu_clock",
        what: "sample of run time, against a count by the helper's cgroup",
        load: Load::Burn,
        line: Some(SAMPLES),
        allowed: true,
        with: usual,
    },
];

/// Measures every pair and prints a line for each.
pub(super) fn measure(host: &Host) -> Result<()> {
    let before = fs::read_to_string(STATISTICS).with_context(|| format!("read {STATISTICS}"))?;
    fs::write(STATISTICS, "1").with_context(|| format!("write {STATISTICS}"))?;
    let measured = PAIRS.iter().try_for_each(|pair| one(pair, host));
    anywhere(host.ends)?;
    fs::write(STATISTICS, before.trim()).with_context(|| format!("write {STATISTICS}"))?;
    measured
}

fn one(pair: &Pair, host: &Host) -> Result<()> {
    let (mut ours_ns, mut theirs_ns) = (Vec::new(), Vec::new());
    let options = (pair.with)(host.options());
    let line = pair.line.map(|line| line.replace("CGROUP", host.pointers()));
    let theirs =
        || line.as_deref().map(|line| Bpftrace::attach(line, || pair.load.step(host.ends))).transpose();
    let mut missing = Vec::new();
    for ours_first in [true, false] {
        let first = if ours_first { None } else { theirs()? };
        let (mut programs, degraded) = host.attach(&options, pair.allowed)?;
        let theirs = if ours_first { theirs()? } else { first };
        missing = degraded;
        for _ in 0..ROUNDS {
            let cost = |programs: &Programs| -> Result<(Cost, Option<Cost>)> {
                Ok((cost_of(programs, pair.program), theirs.as_ref().map(Bpftrace::cost).transpose()?))
            };
            let before = cost(&programs)?;
            for _ in 0..STEPS {
                pair.load.step(host.ends)?;
                programs.drain();
                if options.log {
                    programs.read()?;
                }
            }
            let after = cost(&programs)?;
            ours_ns.extend(mean(before.0, after.0));
            theirs_ns.extend(before.1.zip(after.1).and_then(|(before, after)| mean(before, after)));
        }
    }
    let least = |rounds: &[f64]| rounds.iter().copied().reduce(f64::min);
    let ours = least(&ours_ns).with_context(|| format!("{} was not run: {missing:?}", pair.program))?;
    let beside = least(&theirs_ns)
        .map_or_else(String::new, |theirs| format!(", bpftrace {theirs:.0} ns, ratio {:.2}", ours / theirs));
    println!("programs: {}, {}: {ours:.0} ns{beside} (least of {})", pair.program, pair.what, 2 * ROUNDS);
    Ok(())
}

#[expect(clippy::cast_precision_loss, reason = "a mean of nanoseconds")]
fn mean(before: Cost, after: Cost) -> Option<f64> {
    let (runs, ns) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
    (runs > 0).then(|| ns as f64 / runs as f64)
}

fn cost_of(programs: &Programs, name: &str) -> Cost {
    let costs = programs.costs();
    costs.iter().find(|cost| cost.name == name).map_or((0, 0), |cost| (cost.runs, cost.run_ns))
}
