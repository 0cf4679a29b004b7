//! What the programs cost for each event, beside what bpftrace costs for counting the same.
//!
//! Both are attached at once, so both run for the same events: a thread that is moved between two CPUs,
//! each of which is declared a node of its own. The kernel's own statistics are read
//! (`kernel.bpf_stats_enabled`), whose overhead of some 60 ns is in every figure; what is quoted is the
//! ratio.
//!
//! Needs root, two CPUs and bpftrace. Without the feature `bpf` there is nothing to compare.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]

#[cfg(not(feature = "bpf"))]
fn main() {
    println!("programs: not measured, bpf is not built in");
}

#[cfg(feature = "bpf")]
fn main() -> anyhow::Result<()> {
    // cargo test runs benches too, to see that they start; it does not pass --bench.
    if !std::env::args().any(|argument| argument == "--bench") {
        return Ok(());
    }
    compare::all()
}

#[cfg(feature = "bpf")]
mod compare {
    use std::{
        collections::BTreeMap,
        fs,
        os::unix::fs::MetadataExt as _,
        path::{Path, PathBuf},
        process::{Child, Command, Stdio},
        thread,
        time::{Duration, Instant},
    };

    use anyhow::{Context as _, Result, ensure};
    use enforcer::observe::bpf::{AttachOptions, CgroupAxis, Programs, Watch};
    use enforcer_core::{
        id::{CpuId, NodeId},
        policy::RunTimeSource,
        set::CpuSet,
    };

    const STATISTICS: &str = "/proc/sys/kernel/bpf_stats_enabled";
    /// Measurements of each kind; the least counts, because what else runs only adds.
    const ROUNDS: usize = 5;
    /// Times that the thread goes there and back in each.
    const BOUNCES: u32 = 20_000;
    /// Longest time until bpftrace is attached.
    const START: Duration = Duration::from_mins(1);

    /// A program of ours and the one line of bpftrace that counts the same.
    struct Pair {
        program: &'static str,
        what: &'static str,
        line: &'static str,
        run_time: RunTimeSource,
        /// Is everything where it should be?
        allowed: bool,
    }

    const MOVES: &str =
        "tracepoint:sched:sched_migrate_task { @[cgroup, args->orig_cpu, args->dest_cpu] = count(); }";
    const TIME: &str = "tracepoint:sched:sched_switch \
                        { $now = nsecs; @ns[cgroup, cpu] = sum($now - @since[cpu]); @since[cpu] = $now; }";

    const PAIRS: [Pair; 3] = [
        Pair {
            program: "sched_migrate_task",
            what: "a move that is allowed",
            line: MOVES,
            run_time: RunTimeSource::Clock,
            allowed: true,
        },
        Pair {
            program: "sched_migrate_task",
            what: "a move to where it should not be",
            line: MOVES,
            run_time: RunTimeSource::Clock,
            allowed: false,
        },
        Pair {
            program: "sched_switch",
            what: "a context switch, exact run time",
            line: TIME,
            run_time: RunTimeSource::Switches,
            allowed: true,
        },
    ];

    /// Measures every pair and prints a line for each.
    pub(super) fn all() -> Result<()> {
        let cpus: CpuSet = fs::read_to_string("/sys/devices/system/cpu/online")?.trim().parse()?;
        let mut first_two = cpus.iter();
        let (Some(first), Some(second)) = (first_two.next(), first_two.next()) else {
            println!("programs: not measured, this machine has one CPU");
            return Ok(());
        };
        let before = fs::read_to_string(STATISTICS).with_context(|| format!("read {STATISTICS}"))?;
        fs::write(STATISTICS, "1").with_context(|| format!("write {STATISTICS}"))?;
        let measured = PAIRS.iter().try_for_each(|pair| measure(pair, &cpus, [first, second]));
        fs::write(STATISTICS, before.trim()).with_context(|| format!("write {STATISTICS}"))?;
        measured
    }

    fn measure(pair: &Pair, cpus: &CpuSet, ends: [CpuId; 2]) -> Result<()> {
        let (axis, cgroup) = own_cgroup()?;
        let nodes = cpus.iter().map(|cpu| (cpu, NodeId(cpu.0))).collect();
        let options = AttachOptions { run_time: pair.run_time, ..AttachOptions::new(nodes, axis) };
        let (mut programs, degraded) = Programs::attach(&options);
        let allowed = (!pair.allowed).then(|| [NodeId(u32::MAX)].into_iter().collect());
        programs.watch(&BTreeMap::from([(cgroup, Watch { allowed, ..Watch::alone(cgroup) })]))?;
        let mut theirs = bpftrace(pair.line)?;
        let result = (|| -> Result<(Vec<f64>, Vec<f64>)> {
            attached(theirs.id())?;
            let (mut ours_ns, mut theirs_ns) = (Vec::new(), Vec::new());
            for _ in 0..ROUNDS {
                let before = (cost_of(&programs, pair.program), cost_of_process(theirs.id())?);
                bounce(ends)?;
                let after = (cost_of(&programs, pair.program), cost_of_process(theirs.id())?);
                ours_ns.extend(mean(before.0, after.0));
                theirs_ns.extend(mean(before.1, after.1));
            }
            Ok((ours_ns, theirs_ns))
        })();
        theirs.kill().and_then(|()| theirs.wait()).context("end bpftrace")?;
        let (ours, theirs) = result?;
        let least = |rounds: &[f64]| rounds.iter().copied().reduce(f64::min);
        let (ours, theirs) = least(&ours)
            .zip(least(&theirs))
            .with_context(|| format!("{} was not run: {degraded:?}", pair.program))?;
        println!(
            "programs: {}, {}: {ours:.0} ns, bpftrace {theirs:.0} ns, ratio {:.2} (least of {ROUNDS})",
            pair.program,
            pair.what,
            ours / theirs
        );
        Ok(())
    }

    /// Runs and nanoseconds.
    type Cost = (u64, u64);

    #[expect(clippy::cast_precision_loss, reason = "a mean of nanoseconds")]
    fn mean(before: Cost, after: Cost) -> Option<f64> {
        let (runs, ns) = (after.0.checked_sub(before.0)?, after.1.checked_sub(before.1)?);
        (runs > 0).then(|| ns as f64 / runs as f64)
    }

    fn cost_of(programs: &Programs, name: &str) -> Cost {
        let costs = programs.costs();
        costs.iter().find(|cost| cost.name == name).map_or((0, 0), |cost| (cost.runs, cost.run_ns))
    }

    /// Sum over the programs of a process.
    fn cost_of_process(pid: u32) -> Result<Cost> {
        let mut sum = (0, 0);
        let dir = PathBuf::from(format!("/proc/{pid}/fdinfo"));
        for entry in fs::read_dir(&dir).with_context(|| format!("list {}", dir.display()))? {
            // Descriptors come and go.
            let Ok(text) = fs::read_to_string(entry?.path()) else { continue };
            let field = |key: &str| {
                let line = text.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
                line.and_then(|value| value.trim().parse::<u64>().ok())
            };
            if let (Some(runs), Some(ns)) = (field("run_cnt"), field("run_time_ns")) {
                sum = (sum.0 + runs, sum.1 + ns);
            }
        }
        Ok(sum)
    }

    /// bpftrace wants tracefs, which is mounted for it alone where this host does not have it.
    const START_BPFTRACE: &str = "mountpoint -q /sys/kernel/tracing || \
                                  mount -t tracefs nodev /sys/kernel/tracing; exec bpftrace -e \"$0\"";

    fn bpftrace(line: &str) -> Result<Child> {
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", START_BPFTRACE, line]);
        // What it says goes to the caller's own errors.
        command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().context("start bpftrace")
    }

    /// Waits until the process has a program that runs.
    fn attached(pid: u32) -> Result<()> {
        let start = Instant::now();
        while cost_of_process(pid)?.0 == 0 {
            ensure!(start.elapsed() < START, "bpftrace attached nothing");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    fn bounce(ends: [CpuId; 2]) -> Result<()> {
        for _ in 0..BOUNCES {
            for cpu in ends {
                let mut set = rustix::thread::CpuSet::new();
                set.set(cpu.0 as usize);
                rustix::thread::sched_setaffinity(None, &set).context("move the thread")?;
            }
        }
        Ok(())
    }

    /// The hierarchy that has cgroups of the cpuset controller, and this process's id in it.
    fn own_cgroup() -> Result<(CgroupAxis, u64)> {
        let v1 = Path::new("/sys/fs/cgroup/cpuset");
        let (axis, mount, start) = if v1.join("cpuset.cpus").exists() {
            (CgroupAxis::Cpuset, v1, ":cpuset:")
        } else {
            (CgroupAxis::Unified, Path::new("/sys/fs/cgroup"), "0::")
        };
        let text = fs::read_to_string("/proc/self/cgroup").context("read /proc/self/cgroup")?;
        let own = text.lines().find_map(|line| line.split_once(start)).context("no such hierarchy")?.1;
        let path = mount.join(own.trim_start_matches('/'));
        let metadata = fs::metadata(&path).with_context(|| format!("look at {}", path.display()))?;
        Ok((axis, metadata.ino()))
    }
}
