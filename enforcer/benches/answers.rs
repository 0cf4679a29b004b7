//! Time that a container runtime waits for an answer beside 200 containers.
//!
//! Measured from the call on the link's thread to the answer back on it, with both thread switches; the
//! protocol's bytes are not included. One container comes and goes again and again, alternately an exclusive
//! one, for which all sharing containers make room, and a sharing one. The figures are the median, the 99th
//! percentile and the maximum.
#![expect(clippy::print_stdout, reason = "a bench prints its result")]

use std::{
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, ensure};
use enforcer::engine::{Gate, ResourceFiles, SharedLedger, answer_calls};
use enforcer_core::policy::{Policy, placement::PlacementSettings};
use enforcer_runtime::nri::{
    NriAnswer, NriCall, NriSubject, Reply, RuntimeVersion,
    api::{
        Container, LinuxContainer, LinuxCpu, LinuxMemory, LinuxPodSandbox, LinuxResources, OptionalInt,
        OptionalUint, PodSandbox,
    },
};
use numa_placement::Inventory;
use numa_topology::synth::Machine;
use tokio::sync::mpsc;

/// Containers that stay: every fourth has a CPU to itself, the others share.
const PRESENT: u32 = 200;
/// Containers that come and go.
const LIVES: u32 = 2_000;
/// Length of a period of the CPU controller in microseconds.
const PERIOD: u32 = 100_000;

fn main() -> Result<()> {
    // cargo test runs benches too, to see that they start; it does not pass --bench.
    let lives = if std::env::args().any(|argument| argument == "--bench") { LIVES } else { 10 };
    let machine = Machine::new().sockets(2).cores(64).threads(2).build();
    let inventory = Inventory::new(machine, Vec::new(), &PlacementSettings::default())?;
    let mut policy = Policy::default();
    policy.nri.place = true;
    let placed = SharedLedger::default();
    placed.apply_policy(Some(Arc::new(inventory)), &policy, true);

    let (calls, receiver) = mpsc::channel(16);
    let deciding =
        thread::spawn(move || answer_calls(&placed, &Gate::default(), &ResourceFiles::default(), receiver));
    let runtime = Runtime(calls);
    runtime.synchronize()?;
    let (mut creations, mut ends) = (Vec::new(), Vec::new());
    for life in PRESENT..PRESENT + lives {
        let (took, answer) = runtime.ask(|reply| NriCall::Create { subject: subject(life), reply })?;
        ensure!(answer.adjust.is_some(), "container {life} was not placed");
        creations.push(took);
        ends.push(runtime.ask(|reply| NriCall::Stop { subject: subject(life), reply })?.0);
    }
    drop(runtime);
    deciding.join().ok().context("the thread that decides")?;
    print("creation", creations);
    print("end", ends);
    Ok(())
}

struct Runtime(mpsc::Sender<NriCall>);

impl Runtime {
    fn ask(&self, call: impl FnOnce(Reply) -> NriCall) -> Result<(Duration, NriAnswer)> {
        let (reply, answer) = Reply::new();
        let begin = Instant::now();
        self.0.blocking_send(call(reply)).ok().context("no thread answers")?;
        let answer = answer.blocking_recv().context("no answer")?;
        Ok((begin.elapsed(), answer))
    }

    fn synchronize(&self) -> Result<()> {
        let (pods, containers) =
            (0..PRESENT).map(subject).map(|subject| (subject.pod, subject.container)).unzip();
        let runtime = RuntimeVersion::default();
        self.ask(|reply| NriCall::Synchronize { runtime, pods, containers, reply })?;
        Ok(())
    }
}

fn print(what: &str, mut times: Vec<Duration>) {
    times.sort_unstable();
    let micros = |hundredth: usize| times[(times.len() - 1) * hundredth / 100].as_secs_f64() * 1e6;
    println!(
        "answers: {what} beside {PRESENT} containers: middle {:.0} us, p99 {:.0} us, longest {:.0} us of {}",
        micros(50),
        micros(99),
        micros(100),
        times.len()
    );
}

/// A pod with one container.
fn subject(number: u32) -> Box<NriSubject> {
    let exclusive = number.is_multiple_of(4);
    let class = if exclusive { "" } else { "/burstable" };
    let parent = format!("/kubepods{class}/pod{number}");
    let pod = PodSandbox {
        id: format!("sandbox-{number}"),
        name: format!("pod-{number}"),
        namespace: "bench".into(),
        linux: Some(LinuxPodSandbox { cgroup_parent: parent.clone(), ..LinuxPodSandbox::default() }),
        ..PodSandbox::default()
    };
    let linux = LinuxContainer {
        resources: Some(amounts(exclusive)),
        cgroups_path: format!("{parent}/id-{number}"),
        ..LinuxContainer::default()
    };
    let container = Container {
        id: format!("id-{number}"),
        pod_sandbox_id: pod.id.clone(),
        name: "main".into(),
        linux: Some(linux),
        ..Container::default()
    };
    Box::new(NriSubject { pod, container })
}

fn amounts(exclusive: bool) -> LinuxResources {
    let limited = |value: u32| exclusive.then(|| OptionalInt { value: value.into() });
    let cpu = LinuxCpu {
        shares: Some(OptionalUint { value: if exclusive { 1024 } else { 256 } }),
        quota: limited(PERIOD),
        period: Some(OptionalUint { value: PERIOD.into() }),
        ..LinuxCpu::default()
    };
    let memory = LinuxMemory { limit: limited(64 << 20) };
    LinuxResources { cpu: Some(cpu), memory: Some(memory), ..LinuxResources::default() }
}
