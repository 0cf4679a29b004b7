//! Starts the daemon, up to its first turn.
//!
//! Everything that needs privileges is opened, attached and bound first: the journal, the previous daemon's
//! records, the eBPF programs, the sockets. The order leaves no time in which a write could not be undone.
//! Then the privileges are dropped and the other threads start.
//!
//! Invariants: no turn runs here. A failure of an optional part does not end the daemon; it is a degraded
//! source.

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
    sync::Arc,
    thread::JoinHandle,
    time::{Duration, Instant},
};

use enforcer_core::policy::{DemotionBackend, Mode, NriSettings, Policy};
use numa_topology::{degraded::Degraded, set::NodeSet};
use tokio::{
    runtime::Builder,
    sync::{mpsc, watch},
};

use super::{
    RunningDaemon,
    options::{RunError, RunOptions, failed},
    predecessor::wait_for_end,
};
use crate::{
    config::Configured,
    dra::{DriverFaults, DriverService, DriverSocketFiles, OpenedDriver, hold_earlier_claims, no_driver},
    engine::{
        BrakeParts, Engine, Gate, HostSource as _, InterruptParts, LiveSource, ReliefSensors, ResourceFiles,
        Sensors, SharedLedger, answer_calls, demote, start_widening,
    },
    publish::{self, FeatureFile, NodeEvents, publish_node},
    record::{self, Recorder},
    serve::{ControlState, Endpoints, Latest},
    supervisor::Supervisor,
    threads::{self, Role},
    version, wall_clock,
};
use enforcer_act::{
    Journal, LiveActuator,
    actuator::read_boot_id,
    brake::undo::undo,
    cpuset::CpusetTree,
    journal::{
        BrakeRecord, DriftRecord, InterruptRecord, JournalError, MakingRecord, PauseRecord, PinsRecord,
    },
    pages::{PageBudget, PageMoveLimits, Stop},
    restore::{self, RestoreResult},
    scratch,
    units::{Units, not_kept, recorded_settings},
};
use enforcer_host::{HostPath, HostRoot, cgroup::CgroupLayout, systemd::Systemd};
use enforcer_kernel::{
    clock, heap,
    linux::Linux,
    privileges::{self, Duties},
};
use enforcer_observe::{
    HeadroomReader, IdleDetector, MemoryLimits, ResidentsReader, SamplerOptions, page_size,
};
use enforcer_report::{status::Paused, text};
use enforcer_runtime::{
    kubelet::watch::KubeletWatch,
    nri::{self, PluginName},
};

/// Most queued calls of a runtime: it waits for one at a time, and sends the rest as events.
const CALLS: usize = 256;
/// Time in which a daemon that has ended lets go of the lock of the claims.
const LOCK_PATIENCE: Duration = Duration::from_secs(5);

impl RunningDaemon {
    /// Opens and attaches everything, then drops the privileges for it.
    pub(super) fn start(options: &RunOptions, stop: &Stop) -> Result<Self, RunError> {
        heap::return_freed_memory();
        let Configured { policy, notes, file } = options.configured()?;
        if !options.once {
            tracing::info!("{}", begins(&policy, file.as_deref(), options));
        }
        for note in notes {
            tracing::warn!("{note}");
        }
        // Before anything is read that the daemon before still writes.
        if policy.mode == Mode::Enforce {
            wait_for_end(&policy, options.take_over, stop)?;
        }
        let host = &options.host;
        let record = options.record.as_ref();
        let recording =
            record.map(|record| record::RecordingFile::open(&record.file, record.limit)).transpose()?;
        let layout = CgroupLayout::read(host)?;
        let kubelet = KubeletWatch::first(&policy.kubelet);
        let mut engine = engine(options, &policy, &layout, &kubelet);
        let record = PauseRecord::new(&policy.state_dir);
        if policy.mode == Mode::Enforce {
            may_write(&mut engine, host, &layout, &policy, stop)?;
        }
        // An unusable state directory has ended the daemon by now. No container is placed before the threads
        // start.
        stay_paused(&engine.gate(), &record, policy.mode);
        let started = Instant::now();
        let (latest, receiver) = watch::channel(None);
        let asked = matches!(options.overrides.metrics_listen, Some(Some(_)));
        let endpoints = Endpoints::open(&policy, options.once, asked);
        engine.prepare()?;
        let driver = open_driver(&mut engine, host, &policy, options);
        reduce_privileges(&mut engine, &policy);
        if let Some(target) = recording {
            engine.set_recorder(Recorder::start(target).map_err(failed("starting to record"))?);
        }
        let (gate, decisions, log) = (engine.gate(), engine.decisions(), options.log.clone());
        let cgroups = layout.cpuset.clone();
        let control = ControlState { gate, decisions, latest: receiver, log, started, cgroups, record };
        let (alive, last_alive) = watch::channel(Instant::now());
        let (missing, socket) = endpoints.answer(control, last_alive);
        for one in missing {
            engine.add_degraded(one);
        }
        let StartedThreads { pages, features, claims, .. } = if options.once {
            StartedThreads::default()
        } else {
            let turns = latest.subscribe();
            let mut started = start_threads(&mut engine, &policy, (host, &layout), &kubelet, turns, stop)?;
            let events = started.claim_events.take();
            let claims = driver.map(|driver| prepare_claims(&mut engine, driver, events)).transpose();
            let claims = claims.map_err(failed("starting the DRA driver"))?;
            StartedThreads { claims, ..started }
        };
        let supervisor = Supervisor::of_environment().unwrap_or_else(|error| {
            engine.add_degraded(Degraded::new("supervisor", error.to_string(), "it gets no messages"));
            Supervisor::absent()
        });
        let rest = IdleDetector::new(host, &layout);
        Ok(Self {
            engine,
            latest,
            alive,
            supervisor,
            rest,
            settled: false,
            complaints: BTreeSet::new(),
            pages,
            socket,
            features,
            _claims: claims,
        })
    }
}

/// An engine on the live host, without an actuator.
fn engine(options: &RunOptions, policy: &Policy, layout: &CgroupLayout, kubelet: &KubeletWatch) -> Engine {
    let sampler = SamplerOptions::new(&policy.sample, !options.once);
    let mut source = LiveSource::new(options.host.clone(), layout.clone(), sampler);
    // In observe mode too: an earlier daemon may have set cpusets.
    source.set_by_us(recorded_settings(&policy.state_dir));
    Engine::new(Box::new(source.beside(kubelet.clone())), policy.clone())
}

/// Gives up the privileges that only the start needed.
fn reduce_privileges(engine: &mut Engine, policy: &Policy) {
    let duties = Duties {
        mode: policy.mode,
        numa_maps: policy.sample.numa_maps,
        bpf: policy.sample.bpf,
        partitions: policy.wants_partitions(),
        frames: policy.memory.demotion.backend == DemotionBackend::Damos,
    };
    if let Err(error) = privileges::reduce(duties) {
        let effect = "the daemon keeps more privileges than it needs";
        engine.add_degraded(Degraded::new("privileges", error.to_string(), effect));
    }
}

/// What has to end with the daemon.
#[derive(Default)]
struct StartedThreads {
    /// The thread that moves cold pages.
    pages: Option<JoinHandle<()>>,
    /// The file that the thread `node-state` writes.
    features: Option<FeatureFile>,
    /// The sockets of the DRA driver.
    claims: Option<DriverSocketFiles>,
    /// Where events of claims go.
    claim_events: Option<NodeEvents>,
}

/// Starts what goes on beside the turns of a daemon that stays.
fn start_threads(
    engine: &mut Engine,
    policy: &Policy,
    (host, layout): (&HostRoot, &CgroupLayout),
    kubelet: &KubeletWatch,
    turns: Latest,
    stop: &Stop,
) -> Result<StartedThreads, RunError> {
    let mut started = StartedThreads::default();
    if let Some(looking) = kubelet.keep_up(policy.kubelet.clone()) {
        threads::spawn(Role::Kubelet, looking).map_err(failed("watching the kubelet"))?;
    }
    if policy.cluster.publish {
        let reports = publish_node(host, &policy.cluster, &policy.kubelet, engine.placed(), turns)
            .map_err(failed("starting to publish the state of the node"))?;
        engine.report_publishing(reports.missing, reports.events, reports.predictions);
        started.features = reports.features;
        started.claim_events = reports.claim_events;
    }
    if policy.mode == Mode::Enforce {
        widen_memory(engine, host, layout, &policy.state_dir);
    }
    if policy.nri.enabled {
        let exposure = exposure(engine, policy);
        follow_runtime(&policy.nri, engine.placed(), engine.gate(), exposure)
            .map_err(failed("starting the link to the runtime"))?;
    }
    if !engine.has_actuator() {
        return Ok(started);
    }
    let pages = follow_cold_pages(engine, host, layout, stop);
    started.pages = Some(pages.map_err(failed("starting to move cold pages"))?);
    Ok(started)
}

/// Loads the resource claims of this node and binds the sockets of their driver, where it is enabled. A
/// daemon that may write and has no driver holds the claims of an earlier one.
fn open_driver(
    engine: &mut Engine,
    host: &HostRoot,
    policy: &Policy,
    options: &RunOptions,
) -> Option<OpenedDriver> {
    let is_wanted = policy.dra.enabled && !options.once;
    if !engine.has_actuator() {
        if is_wanted {
            engine.add_degraded(no_driver("the mode is observe, in which containers get nothing"));
        }
        return None;
    }
    let opened = is_wanted.then(|| load_driver(engine, host, policy, options)).flatten();
    if opened.is_none() {
        let node = publish::node_name(host, &policy.cluster);
        if let Some(held) = hold_earlier_claims(host, policy, &node, &engine.placed()) {
            engine.add_degraded(held);
        }
    }
    opened
}

/// The driver, unless it cannot be opened.
fn load_driver(
    engine: &mut Engine,
    host: &HostRoot,
    policy: &Policy,
    options: &RunOptions,
) -> Option<OpenedDriver> {
    let node = publish::node_name(host, &policy.cluster);
    // The old daemon is told to end before its last thread has.
    let patience = if options.take_over.is_zero() { Duration::ZERO } else { LOCK_PATIENCE };
    let (places, steers) = (Arc::new(engine.placed()), engine.steers_interrupts());
    match DriverService::open(host, policy, node, places, steers, patience) {
        Ok(mut opened) => {
            if let Some(damage) = opened.damage.take() {
                engine.add_degraded(damage);
            }
            Some(opened)
        }
        Err(reason) => {
            engine.add_degraded(no_driver(reason));
            None
        }
    }
}

/// Starts the thread of the DRA driver.
fn prepare_claims(
    engine: &mut Engine,
    driver: OpenedDriver,
    events: Option<NodeEvents>,
) -> io::Result<DriverSocketFiles> {
    let OpenedDriver { service, files, .. } = driver;
    let (faults, missing) = DriverFaults::channel();
    engine.report_claims(service.tally());
    // The name of the threads that decide and write to the disk, one at a time.
    let runtime = Builder::new_current_thread().enable_all().thread_name("claims-disk").build()?;
    threads::spawn(Role::Claims, move || runtime.block_on(service.run(faults, events)))?;
    engine.report_missing(missing);
    Ok(files)
}

/// The first line of the log: what runs, and by which settings.
fn begins(policy: &Policy, file: Option<&Path>, options: &RunOptions) -> String {
    let configuration = match (file, &options.config) {
        (Some(file), _) => file.display().to_string(),
        (None, Some(absent)) => format!("built in ({} does not exist)", absent.display()),
        (None, None) => "built in".to_owned(),
    };
    let line = format!(
        "numa-enforcer {} starts: mode {}, configuration {configuration}, state directory {}",
        version::full(),
        policy.mode,
        policy.state_dir.display()
    );
    text::escape(&line).into_owned()
}

/// Starts the thread that keeps the link to the container runtime, and the one that decides its calls.
fn follow_runtime(
    settings: &NriSettings,
    placed: SharedLedger,
    gate: Gate,
    exposure: ResourceFiles,
) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (calls, receiver) = mpsc::channel(CALLS);
    let plugin = PluginName { name: "numa-enforcer".into(), index: settings.index };
    let kept = nri::keep_up(settings.socket.clone(), plugin, calls, placed.again());
    threads::spawn(Role::Nri, move || runtime.block_on(kept))?;
    let placement = move || answer_calls(&placed, &gate, &exposure, receiver);
    threads::spawn(Role::Placement, placement)?;
    Ok(())
}

/// Starts the thread that adds memory nodes to workloads that run short.
fn widen_memory(engine: &mut Engine, host: &HostRoot, layout: &CgroupLayout, state_dir: &Path) {
    let rooms = || HeadroomReader::new(host, page_size::of_this_machine());
    let limits = MemoryLimits::new(layout.memory.clone());
    let senses = Sensors { tap: engine.tap(), rooms: rooms(), limits };
    let relief = ReliefSensors { rooms: rooms(), tenants: ResidentsReader::new(host) };
    let tree = CpusetTree::new(&layout.cpuset.path, layout.cpuset.v2);
    let record = BrakeRecord::open(state_dir).map_err(|error| error.to_string());
    let demotion = {
        let host = host.clone();
        Box::new(move || scratch::is_on(&host))
    };
    let brake = BrakeParts { record, boot_id: read_boot_id(host), demotes: demotion };
    match start_widening(senses, relief, brake, tree, engine.gate(), engine.demotion()) {
        Ok(widening) => engine.set_widening(widening),
        Err(error) => {
            let effect = "workloads on full memory nodes are not widened";
            engine.add_degraded(Degraded::new("widening", error.to_string(), effect));
        }
    }
}

/// Starts the thread that moves cold pages to slower memory and hot pages back.
fn follow_cold_pages(
    engine: &Engine,
    host: &HostRoot,
    layout: &CgroupLayout,
    stop: &Stop,
) -> io::Result<JoinHandle<()>> {
    let (demotion, gate, decisions) = (engine.demotion(), engine.gate(), engine.decisions());
    let (host, layout, stop) = (host.clone(), layout.clone(), stop.clone());
    let moving = move || demote(&demotion, &gate, &decisions, &host, &layout, &stop);
    threads::spawn(Role::ColdPages, moving)
}

/// Resource files for containers, if they are enabled and possible.
fn exposure(engine: &mut Engine, policy: &Policy) -> ResourceFiles {
    if !policy.nri.expose || !engine.has_actuator() {
        return ResourceFiles::default();
    }
    let exposure = ResourceFiles::below(&policy.state_dir).unwrap_or_else(|error| {
        let effect = "containers cannot read what they were given";
        engine.add_degraded(Degraded::new("exposure", error.to_string(), effect));
        ResourceFiles::default()
    });
    engine.set_exposure(exposure.clone());
    exposure
}

/// Continues a pause of the previous daemon. If the record cannot be read, an enforcing daemon starts paused.
fn stay_paused(gate: &Gate, record: &PauseRecord, mode: Mode) {
    let now = wall_clock::unix_ms();
    match record.read() {
        Ok(None) => {}
        Ok(Some(pause)) => {
            if let Some(left) = pause.left(now) {
                gate.close_for_rest(pause.lasted(now), left);
                let line = gate.paused().map_or_else(String::new, Paused::line);
                tracing::warn!("still {line}, since before the daemon was started");
            }
        }
        Err(error) if mode == Mode::Enforce => {
            gate.close(None);
            tracing::error!("enforcement is paused until resumed, because it may have been before: {error}");
        }
        Err(error) => tracing::debug!("whether enforcement was paused before is not known: {error}"),
    }
}

/// Opens the journal and lets the engine write.
fn may_write(
    engine: &mut Engine,
    host: &HostRoot,
    layout: &CgroupLayout,
    policy: &Policy,
    stop: &Stop,
) -> Result<(), JournalError> {
    let mut journal = Journal::open(&policy.state_dir)?;
    let tree = CpusetTree::new(&layout.cpuset.path, layout.cpuset.v2);
    let boot_id = read_boot_id(host);
    for file in restore::recover(&tree, boot_id.as_deref(), &mut journal).failures() {
        let effect = "cgroups that lost their cpuset in a crash stay without it; see numa-enforcer restore";
        engine.add_degraded(Degraded::new("recovery", file, effect));
    }
    for line in journal.damaged() {
        let kept =
            journal.kept().map_or_else(String::new, |kept| format!("; it is kept in {}", kept.display()));
        let effect = format!("restore cannot put back what the line says{kept}");
        engine.add_degraded(Degraded::new("journal", line, effect));
    }
    if let Err(error) = Linux::probe() {
        let reason = format!("move_pages(2): {error}; is it filtered by seccomp?");
        engine.add_degraded(Degraded::new("move-pages", reason, "pages cannot be moved in small batches"));
    }
    release_brakes(engine, host, &tree, &policy.state_dir);
    // Without a runtime link, no list would ever end the containers of these records.
    let places = policy.nri.enabled && policy.nri.place;
    let tree = tree.with_processes(&host.proc);
    engine.adopt(tree, if places { journal.grants().clone() } else { BTreeMap::new() });
    let (making, mut left) = MakingRecord::open(&policy.state_dir, boot_id.as_deref())?;
    for line in &left.damaged {
        let effect = "restore cannot put back what the line says; it is kept beside the record";
        engine.add_degraded(Degraded::new("journal", line, effect));
    }
    if !places {
        left.made.values_mut().for_each(|made| made.granted = None);
    }
    engine.remember(making, left.made);
    engine.remember_pins(PinsRecord::open(&policy.state_dir, boot_id.as_deref()));
    // Recorded times are useless if the boot is unknown.
    if let Some(boot_id) = boot_id {
        let now_ns = clock::now_ns();
        let (record, left) = DriftRecord::open(&policy.state_dir, &boot_id, now_ns);
        engine.restore_drift_counts(record, left, now_ns);
    }
    let is_left = InterruptRecord::read(&policy.state_dir).is_ok_and(|(left, _)| !left.is_empty());
    let state_dir = policy.state_dir.clone();
    engine.allow_interrupts(InterruptParts {
        host: host.clone(),
        state_dir,
        boot_id: read_boot_id(host),
        is_left,
    });
    if layout.cpuset.v2 && scratch::is_on(host) {
        engine.add_degraded(kernel_demotion(&layout.cpuset.path, host));
    }
    let limits = PageMoveLimits { pace: policy.memory.moves.pace(), ..PageMoveLimits::default() };
    let budget = PageBudget::new(limits, stop.clone());
    let mut actuator = LiveActuator::new(host, layout, journal, Box::new(Linux), budget);
    // systemd has no properties for cpusets of v1, and names cgroups from the root of the hierarchy.
    if layout.cpuset.v2 && layout.cpuset.mounted_cgroup == "/" {
        match Systemd::of_host(host) {
            Ok(Some(systemd)) => actuator = actuator.with_units(Units::new(Box::new(systemd))),
            Ok(None) => {}
            Err(reason) => engine.add_degraded(not_kept(&reason)),
        }
    }
    engine.set_actuator(Box::new(actuator));
    Ok(())
}

/// Resumes workloads that were slowed down when a daemon and its watching process were killed.
fn release_brakes(engine: &mut Engine, host: &HostRoot, tree: &CpusetTree, state_dir: &Path) {
    let mut failed = |reason: String| {
        let effect = "a workload may stand still or get no more memory; see numa-enforcer restore";
        engine.add_degraded(Degraded::new("brake", reason, effect));
    };
    match undo(tree, read_boot_id(host).as_deref(), state_dir, None) {
        Ok(report) => {
            report.failures().for_each(|error| failed(error.to_owned()));
            report.damaged.iter().for_each(|line| failed(line.clone()));
            for one in report.files.iter().filter(|one| matches!(one.result, RestoreResult::PutBack { .. })) {
                let (cgroup, file) = (&one.cgroup, one.file.name());
                tracing::warn!("{cgroup}: {file} is released: it was slowed down when a daemon was killed");
            }
        }
        Err(error) => failed(error.to_string()),
    }
}

/// Whether the kernel's own demotion, which an administrator has switched on, bypasses cpusets.
fn kernel_demotion(mount: &HostPath, host: &HostRoot) -> Degraded {
    let effect = "reclaim may take pages of any workload to slower memory, hot ones too";
    let with_cpus = host.sys.join("devices/system/node/has_cpu").read_text();
    let nodes: NodeSet = with_cpus.ok().and_then(|text| text.trim().parse().ok()).unwrap_or_default();
    let tried = nodes.first().ok_or_else(|| "no node has CPUs".to_owned());
    let reason = match tried.and_then(|node| scratch::bytes_outside(mount, node)) {
        Ok(0) => "it is on, and was seen to keep to cpusets".to_owned(),
        Ok(bytes) => {
            format!("it is on and bypasses cpusets: {bytes} bytes of a scratch cgroup left its only node")
        }
        Err(error) => format!("it is on, and whether it keeps to cpusets could not be tried: {error}"),
    };
    Degraded::new("kernel-demotion", reason, effect)
}
