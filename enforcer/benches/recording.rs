//! What recording costs a turn with 50 and with 1,000 containers, and how long the recording gets.
//!
//! Two engines take the same turns in turn, one of them records: what is quoted is the ratio of the middles
//! of one run. The host is not read, it is handed in, so the ratio is that of everything behind the reading;
//! with the reading the share is smaller. A turn begins when the one before is in the file, as with the
//! seconds that a daemon waits, so that none is dropped.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use std::{
    cell::RefCell,
    collections::BTreeMap,
    fs::{self, File},
    mem,
    os::unix::fs::FileExt,
    path::Path,
    process,
    rc::Rc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use enforcer::{
    engine::{Engine, HostSource, SourceError},
    record::{Recorder, RecordingFile, frame::SIZE},
};
use enforcer_core::{
    audit::AuditedHost,
    policy::Policy,
    sample::{CgroupSample, HintFaults, NodeBytes, NodeSample, RunTime, Sample, TaskSample},
    workload::{CgroupPath, Workload, identify},
};
use numa_topology::{
    Topology,
    degraded::Degraded,
    id::{CpuId, NodeId},
    set::NodeSet,
    synth::Machine,
};

const CONTAINERS: [u32; 2] = [50, 1_000];
/// Where it is only seen that it starts.
const FEW: u32 = 10;
const THREADS: u32 = 4;
const NODES: u32 = 8;
const TURNS: u64 = 60;
/// Between two turns.
const INTERVAL_NS: u64 = 10_000_000_000;
/// More than a run can be.
const LIMIT: u64 = 1 << 30;
/// Longest wait for the disk.
const PATIENCE: Duration = Duration::from_mins(1);

fn main() -> Result<()> {
    // cargo test runs benches too, to see that they start; it does not pass --bench.
    let is_bench = std::env::args().any(|argument| argument == "--bench");
    let (turns, all) = if is_bench { (TURNS, &CONTAINERS[..]) } else { (2, &[FEW][..]) };
    let file = std::env::temp_dir().join(format!("numa-enforcer-bench-{}.rec", process::id()));
    all.iter().try_for_each(|containers| {
        let outcome = measure(&file, turns, *containers);
        // Where it failed there may be none.
        let _none = fs::remove_file(&file);
        outcome
    })
}

fn measure(file: &Path, turns: u64, containers: u32) -> Result<()> {
    let (next, workloads) = (Rc::new(RefCell::new(Sample::default())), workloads(containers));
    let engine = || {
        let source = HandedIn { next: Rc::clone(&next), workloads: workloads.clone() };
        Engine::new(Box::new(source), Policy::default())
    };
    let (mut plain, mut recording) = (engine(), engine());
    recording.set_recorder(Recorder::start(RecordingFile::open(file, LIMIT)?)?);
    let (mut without, mut with, mut written) = (Vec::new(), Vec::new(), Vec::new());
    let mut bytes = 0;
    let mut frames = Vec::new();
    for turn in 1..=turns {
        without.push(timed(&mut plain, &next, &workloads, turn)?);
        with.push(timed(&mut recording, &next, &workloads, turn)?);
        let begin = Instant::now();
        let longer = loop {
            if let Some(end) = end_of_frame(file, bytes)? {
                break end;
            }
            ensure!(begin.elapsed() < PATIENCE, "turn {turn} is not in the recording");
            thread::sleep(Duration::from_micros(200));
        };
        written.push(begin.elapsed());
        frames.push(longer - bytes);
        bytes = longer;
    }
    // The first turn has all that lasts.
    let first = frames.remove(0);
    let rest = frames.iter().sum::<u64>() / frames.len().max(1) as u64;
    let (without, with, written) = (middle(without)?, middle(with)?, middle(written)?);
    println!(
        "recording: {containers} containers with {THREADS} threads each, middles of {turns} turns without reading the host: \
         {:.1} ms with it, {:.1} ms without, ratio {:.2}; compressed and written {:.1} ms later by another thread; {first} \
         bytes for the first turn, {rest} for each other",
        ms(with),
        ms(without),
        with.as_secs_f64() / without.as_secs_f64(),
        ms(written)
    );
    Ok(())
}

/// How long a turn of this engine takes.
fn timed(engine: &mut Engine, next: &RefCell<Sample>, workloads: &[Workload], turn: u64) -> Result<Duration> {
    *next.borrow_mut() = sample(workloads, turn);
    let begin = Instant::now();
    let report = engine.turn(turn * INTERVAL_NS)?;
    let took = begin.elapsed();
    ensure!(report.audit.workloads.len() == workloads.len(), "workloads are missing");
    Ok(took)
}

/// Where the frame ends that begins there, once all of it is in the file: what is being written is seen in
/// parts.
fn end_of_frame(file: &Path, begin: u64) -> Result<Option<u64>> {
    let file = File::open(file).with_context(|| format!("open {}", file.display()))?;
    let mut stored = [0; 4];
    if file.read_at(&mut stored, begin + SIZE.start as u64)? < stored.len() {
        return Ok(None);
    }
    let end = begin + u64::from(u32::from_le_bytes(stored));
    Ok((file.metadata()?.len() >= end).then_some(end))
}

fn middle(mut times: Vec<Duration>) -> Result<Duration> {
    times.sort_unstable();
    times.get(times.len() / 2).copied().context("no turn")
}

fn ms(time: Duration) -> f64 {
    time.as_secs_f64() * 1e3
}

/// A host of which each sample was made before.
struct HandedIn {
    next: Rc<RefCell<Sample>>,
    workloads: Vec<Workload>,
}

impl HostSource for HandedIn {
    fn host(&self) -> AuditedHost {
        AuditedHost::default()
    }

    fn topology(&mut self) -> Result<(Topology, Vec<Degraded>), SourceError> {
        Ok((Machine::new().sockets(NODES).cores(16).threads(2).build(), Vec::new()))
    }

    fn workloads(&mut self) -> Result<(Vec<Workload>, Vec<Degraded>), SourceError> {
        Ok((self.workloads.clone(), Vec::new()))
    }

    fn aim(&mut self, _aims: &BTreeMap<CgroupPath, NodeSet>) {}

    fn sample(&mut self, _workloads: &[Workload], _now_ns: u64) -> Sample {
        mem::take(&mut self.next.borrow_mut())
    }
}

fn workloads(containers: u32) -> Vec<Workload> {
    let workload = |number: u32| {
        let pod = format!("kubepods.slice/kubepods-pod6ad0c1f2_{number:04}.slice");
        let cgroup = CgroupPath::new(&format!("/{pod}/cri-containerd-{number:064x}.scope"));
        let identity = identify(&cgroup);
        let cgroup_id = Some(10_000 + u64::from(number));
        Workload { cgroup, cgroup_id, name: identity.name, origin: identity.origin }
    };
    (0..containers).map(workload).collect()
}

/// Each container has memory on two nodes, runs on two and takes faults on two; every counter grows from turn
/// to turn.
fn sample(workloads: &[Workload], turn: u64) -> Sample {
    let mut sample = Sample { monotonic_ns: turn * INTERVAL_NS, ..Sample::default() };
    for (number, workload) in (0..).zip(workloads) {
        let first = number % NODES;
        let nodes = [NodeId(first), NodeId((first + 1) % NODES)];
        // No two containers and no two turns have the same figures.
        let grown = |by: u64| turn * by + u64::from(number) * 7_919;
        let bytes = NodeBytes {
            anon: (123 << 20) + (grown(3) % 512) * 4096,
            file: (45 << 20) + (grown(1) % 64) * 4096,
            kernel: Some((1 << 20) + (grown(5) % 32) * 4096),
            ..NodeBytes::default()
        };
        let run_time = RunTime { ns: grown(4_321_987_654), misplaced_ns: 0, samples: grown(432) };
        let faults =
            HintFaults { local: grown(91), remote: grown(37), migrated: grown(11), migrate_failed: 0 };
        let cgroup = CgroupSample {
            id: workload.cgroup_id,
            cpus_effective: format!("{}-{}", first * 32, first * 32 + 31).parse().ok(),
            mems_effective: Some(nodes.into_iter().collect()),
            memory_current_bytes: Some(2 * (bytes.anon + bytes.file)),
            memory_by_node: Some(nodes.map(|node| (node, bytes)).into()),
            tasks: Some(THREADS.into()),
            run_time: Some(nodes.map(|node| (node, run_time)).into()),
            hint_faults: Some(nodes.map(|node| (node, faults)).into()),
            ..CgroupSample::default()
        };
        for thread in 0..THREADS {
            let tid = 2_000 + number * THREADS + thread;
            let moved = u32::try_from(turn % 32).unwrap_or(0);
            sample.tasks.push(TaskSample {
                tid,
                pid: 2_000 + number * THREADS,
                command: format!("worker-{thread}"),
                cgroup: Some(workload.cgroup.clone()),
                cpu: Some(CpuId(first * 32 + (tid + moved) % 32)),
                cpus_allowed: cgroup.cpus_effective.clone(),
                cpu_time_ns: Some(grown(1_080_496_913)),
                preferred_node: Some(NodeId(first)),
                faults_by_node: Some(nodes.map(|node| (node, grown(64) % 4_096)).into()),
            });
        }
        sample.cgroups.insert(workload.cgroup.clone(), cgroup);
    }
    for node in (0..NODES).map(NodeId) {
        let free = NodeSample {
            mem_total_bytes: Some(1 << 38),
            mem_free_bytes: Some((1 << 36) + turn * 4096),
            ..NodeSample::default()
        };
        sample.nodes.insert(node, free);
    }
    sample
}
