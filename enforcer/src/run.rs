//! The daemon: turns the engine at the configured interval until it is told to stop.
//!
//! SIGINT and SIGTERM end it, in the middle of a move of pages too. The cpusets stay as they are then: a
//! restart, or an upgrade, must not move anything, and `numa-enforcer restore`, or whoever started it with
//! `--restore-on-exit`, undoes everything from the journal. SIGHUP reads the configuration again; a bad one is said and the old one stays. A turn that
//! takes longer than the interval delays the next one, and none is made up for.
//!
//! This thread turns the engine, because its turns block in the kernel; another one serves HTTP and a
//! third one listens to signals. What needs privileges (attaching the programs, opening the journal,
//! listening) is done before the first turn and before there are other threads but that one, which has none; then
//! they are given up.

use std::{
    collections::{BTreeMap, BTreeSet},
    io::{self, Write},
    net::SocketAddr,
    path::{Path, PathBuf},
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use enforcer_core::{
    degraded::Degraded,
    policy::{Brake, DemotionBackend, Mode, NriSettings, Policy},
    set::NodeSet,
};
use thiserror::Error;
use tokio::{
    runtime::Builder,
    sync::{
        mpsc::{self, UnboundedReceiver},
        watch,
    },
};

use crate::{
    config::{ConfigError, read_policy},
    discover::{
        kubelet::watch::Watch,
        nri::{self, PluginName},
    },
    enforce::{
        Journal, LiveActuator,
        actuator::read_boot_id,
        brake::undo::undo,
        cpuset::CpusetTree,
        journal::{BrakeRecord, DriftRecord, JournalError, MakingRecord, PauseRecord},
        pages::{PageBudget, PageMoveLimits, Stop},
        restore::{self, RestoreResult},
        scratch,
        units::{Systemctl, Units, not_kept, recorded_settings},
    },
    engine::{
        BrakeParts, Engine, Exposure, Gate, LiveSource, Placed, ReliefSenses, Senses, Source as _,
        SourceError, Widening, answer_calls, demote,
    },
    host::{
        HostRoot,
        cgroup::{CgroupLayout, LayoutError},
        read_text,
    },
    kernel::{clock, heap, linux::Linux},
    log_level::LogLevel,
    observe::{MemoryLimits, Rest, Rooms, SamplerOptions, Tenants},
    pace::{LOOK, Pace, QUIET_LOOK},
    privileges::{self, Duties},
    record::{self, Recorder},
    report::{status::Paused, style::Style, table, tick::TickReport, units},
    serve::{Control, Endpoints, socket::ControlSocket},
    signals::{GRACE, Order, Signals},
    supervisor::Supervisor,
    wait::{Heard, Waiting, Wake},
    wall_clock,
};

/// Calls of a runtime that wait to be decided: it asks for one at a time, and tells the rest.
const CALLS: usize = 256;

/// Time in which a runtime has made a container, or written a cpuset, after an answer: the time it waits for one.
const WRITTEN: Duration = Duration::from_secs(2);

/// Longest wait for what is being written when the daemon ends and restores.
const LONGEST_WRITE: Duration = Duration::from_secs(10);

/// What was asked for.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The host to run on.
    pub host: HostRoot,
    /// Configuration file; the built-in configuration without one.
    pub config: Option<PathBuf>,
    /// A configuration file that is not there is as none, now and when it is read again.
    pub config_may_be_absent: bool,
    /// What wins over the configuration.
    pub overrides: Overrides,
    /// Stop after the first turn.
    pub once: bool,
    /// Somebody has more to do when it has ended, whose time is not bounded.
    pub restore_on_exit: bool,
    /// Where each turn is recorded, and how large that may get.
    pub record: Option<RecordOptions>,
    /// How the audit is shown.
    pub style: Style,
    /// The log that it writes.
    pub log: LogLevel,
}

/// Where turns are recorded.
#[derive(Debug, Clone)]
pub struct RecordOptions {
    /// The file.
    pub file: PathBuf,
    /// Most bytes that it may have.
    pub limit: u64,
}

/// Flags that win over the configuration file, also when it is read again.
#[derive(Debug, Clone, Default)]
pub struct Overrides {
    /// May the daemon write?
    pub mode: Option<Mode>,
    /// Time between two turns.
    pub interval: Option<Duration>,
    /// Where the journal is kept.
    pub state_dir: Option<PathBuf>,
    /// Where metrics are served; `Some(None)` for nowhere.
    pub metrics_listen: Option<Option<SocketAddr>>,
    /// Log what the eBPF programs see.
    pub bpf_log: bool,
}

/// Why the daemon does not run.
#[derive(Debug, Error)]
pub enum RunError {
    /// The configuration.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// No cgroup hierarchy to work on.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// The journal cannot be kept, so nothing may be written.
    #[error("enforce mode needs its journal: {0}")]
    Journal(#[from] JournalError),
    /// Nothing can be recorded there.
    #[error(transparent)]
    Record(#[from] record::OpenError),
    /// The new configuration cannot be followed by a daemon that runs.
    #[error("mode: from observe to enforce needs a restart, because the privileges to write were given up")]
    NeedsRestart,
    /// The host tells nothing.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The runtime, the signals or the output.
    #[error("{operation}: {cause}")]
    Io {
        /// What was tried.
        operation: &'static str,
        /// Why it failed.
        #[source]
        cause: io::Error,
    },
}

fn failed(operation: &'static str) -> impl FnOnce(io::Error) -> RunError {
    move |cause| RunError::Io { operation, cause }
}

impl RunOptions {
    /// The configuration file with the flags over it.
    pub fn policy(&self) -> Result<Policy, ConfigError> {
        let mut policy = match &self.config {
            Some(path) => match read_policy(path) {
                Err(ConfigError::Read { cause, .. })
                    if self.config_may_be_absent && cause.kind() == io::ErrorKind::NotFound =>
                {
                    Policy::default()
                }
                read => read?,
            },
            None => Policy::default(),
        };
        let Overrides { mode, interval, state_dir, metrics_listen, bpf_log } = &self.overrides;
        if let Some(mode) = mode {
            policy.mode = *mode;
        }
        if let Some(interval) = interval {
            policy.interval = (*interval).into();
            policy.idle_interval = policy.interval;
        }
        if let Some(dir) = state_dir {
            policy.state_dir.clone_from(dir);
        }
        if let Some(listen) = metrics_listen {
            policy.metrics.enabled = listen.is_some();
            policy.metrics.listen = listen.unwrap_or(policy.metrics.listen);
        }
        policy.sample.bpf_log |= *bpf_log;
        if policy.memory.widening.brake == Brake::High && scratch::is_on(&self.host) {
            return Err(ConfigError::NotHere {
                place: self.config.clone().unwrap_or_default(),
                key: "memory.widening.brake",
                problem: Brake::NOT_BESIDE_DEMOTION,
                seen: scratch::switch(&self.host),
            });
        }
        Ok(policy)
    }
}

/// A daemon that takes no more turns. It goes when this is dropped; the kernel takes its time to take eBPF programs down.
pub struct Ended {
    /// Why it took no more turns, if nobody had told it to end.
    pub result: Result<(), RunError>,
    daemon: Daemon,
    /// As long as somebody receives orders, another one to end is carried out on the spot.
    _orders: UnboundedReceiver<Order>,
}

impl Ended {
    /// Lets go of the journal, so that it can be restored from.
    pub fn release_journal(&mut self) {
        self.daemon.engine.remove_actuator();
    }
}

/// Runs until told to stop; prints the audit of the first turn and one line for each. The error is of a daemon that
/// did not start.
pub fn run(options: &RunOptions, out: &mut dyn Write) -> Result<Ended, RunError> {
    // Before anything takes long: an early interrupt must not be lost.
    let signals = Signals::catch().map_err(failed("listening for signals"))?;
    let stop = Stop::default();
    let grace = (!options.restore_on_exit).then_some(GRACE);
    let mut orders = signals.listen(stop.clone(), grace).map_err(failed("listening for signals"))?;
    let mut daemon = Daemon::start(options, &stop)?;
    daemon.supervisor.ready("the first turn begins");
    let result = daemon.run_turns(options, &mut orders, out);
    daemon.supervisor.stopping();
    let told = options.restore_on_exit.then(|| daemon.engine.placed().retire()).flatten();
    // Containers that are made from now on get no place: nobody would put back what they had.
    daemon.engine.gate().close(None);
    if options.restore_on_exit {
        let_writes_end(&daemon.engine.gate(), told);
    }
    // It switches off what it watches by.
    if let Some(pages) = daemon.pages.take() {
        stop.request();
        pages.thread().unpark();
        drop(pages.join());
    }
    Ok(Ended { result, daemon, _orders: orders })
}

/// Waits, but not for ever, until nobody writes any longer what is to be put back: what is under way here, and what a runtime was
/// told so long ago.
fn let_writes_end(gate: &Gate, told: Option<Duration>) {
    if let Some(since) = told {
        thread::sleep(WRITTEN.saturating_sub(since));
    }
    let settled = Builder::new_current_thread()
        .enable_time()
        .build()
        .map(|waiting| waiting.block_on(gate.settled(LONGEST_WRITE)));
    if !settled.is_ok_and(|settled| settled) {
        tracing::warn!("a cpuset is still being written; what it was is put back beside that");
    }
}

struct Daemon {
    engine: Engine,
    latest: watch::Sender<Option<Arc<TickReport>>>,
    /// When its loop was last here, for who asks over HTTP whether it is alive.
    alive: watch::Sender<Instant>,
    supervisor: Supervisor,
    rest: Rest,
    /// The latest turn left nothing to go on with.
    settled: bool,
    /// The latest line could not be printed, and that was said.
    is_mute: bool,
    /// What was complained of in the latest turn.
    complaints: BTreeSet<String>,
    /// Who moves cold pages.
    pages: Option<JoinHandle<()>>,
    /// Its file goes when the daemon ends.
    _socket: Option<ControlSocket>,
}

impl Daemon {
    /// Opens and attaches everything, and gives up the privileges for it.
    fn start(options: &RunOptions, stop: &Stop) -> Result<Self, RunError> {
        heap::give_back_what_is_freed();
        let policy = options.policy()?;
        let host = &options.host;
        let record = options.record.as_ref();
        let recording = record.map(|record| record::Target::open(&record.file, record.limit)).transpose()?;
        let layout = CgroupLayout::read(host)?;
        let mut source =
            LiveSource::new(host.clone(), layout.clone(), SamplerOptions::new(&policy.sample, !options.once));
        // In observe mode too: an earlier daemon may have set something.
        source.set_by_us(recorded_settings(&policy.state_dir));
        let kubelet = Watch::first(&policy.kubelet);
        let mut engine = Engine::new(Box::new(source.beside(kubelet.clone())), policy.clone());
        let record = PauseRecord::new(&policy.state_dir);
        stay_paused(&engine.gate(), &record, policy.mode);
        if policy.mode == Mode::Enforce {
            may_write(&mut engine, host, &layout, &policy, stop)?;
        }
        let started = Instant::now();
        let (latest, receiver) = watch::channel(None);
        let asked = matches!(options.overrides.metrics_listen, Some(Some(_)));
        let endpoints = Endpoints::open(&policy, options.once, asked);
        engine.prepare()?;
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
        if let Some(target) = recording {
            engine.set_recorder(Recorder::start(target).map_err(failed("starting to record"))?);
        }
        let (gate, decisions, log) = (engine.gate(), engine.decisions(), options.log.clone());
        let cgroups = layout.cpuset.clone();
        let control = Control { gate, decisions, latest: receiver, log, started, cgroups, record };
        let (alive, last_alive) = watch::channel(Instant::now());
        let (missing, socket) = endpoints.answer(control, last_alive);
        for one in missing {
            engine.add_degraded(one);
        }
        if !options.once {
            kubelet.keep_up(policy.kubelet.clone()).map_err(failed("watching the kubelet"))?;
        }
        if policy.mode == Mode::Enforce && !options.once {
            widen_memory(&mut engine, host, &layout, &policy.state_dir);
        }
        if policy.nri.enabled && !options.once {
            let exposure = exposure(&mut engine, &policy);
            follow_runtime(&policy.nri, engine.placed(), engine.gate(), exposure)
                .map_err(failed("starting the link to the runtime"))?;
        }
        let pages = if engine.has_actuator() && !options.once {
            Some(
                follow_cold_pages(&engine, host, &layout, stop)
                    .map_err(failed("starting to move cold pages"))?,
            )
        } else {
            None
        };
        let supervisor = Supervisor::of_environment().unwrap_or_else(|error| {
            engine.add_degraded(Degraded::new("supervisor", error.to_string(), "it is told nothing"));
            Supervisor::absent()
        });
        let rest = Rest::new(host, &layout);
        Ok(Self {
            engine,
            latest,
            alive,
            supervisor,
            rest,
            settled: false,
            is_mute: false,
            complaints: BTreeSet::new(),
            pages,
            _socket: socket,
        })
    }

    fn run_turns(
        &mut self,
        options: &RunOptions,
        orders: &mut UnboundedReceiver<Order>,
        out: &mut dyn Write,
    ) -> Result<(), RunError> {
        let waiting = Waiting::new().map_err(failed("waiting"))?;
        let mut wakes = true;
        let mut first = true;
        let mut pace = Pace::begin(Instant::now());
        let starts = self.engine.placed().starts();
        // What the first turn sees is no news, and what comes meanwhile is.
        self.engine.look();
        loop {
            let heard = Heard {
                urgent: self.engine.urgent_fd().filter(|_| wakes),
                filling: self.engine.filling_fd().filter(|_| wakes && pace.hears_events()),
                came: self.engine.came_fd().filter(|_| wakes && pace.hears()),
                written: self.engine.writes_fd().filter(|_| wakes && pace.hears_writes()),
                started: pace.hears().then_some(&*starts),
            };
            let wake = waiting.next(orders, pace.due(), heard).unwrap_or_else(|error| {
                wakes = false;
                self.engine.add_degraded(deaf(&error));
                Wake::Look
            });
            match wake {
                Wake::Order(Order::Stop) => return Ok(()),
                Wake::Order(Order::Reload) => {
                    self.supervisor.reloading();
                    self.reload(options);
                    // As before the first turn.
                    self.engine.look();
                    self.supervisor.ready(&declared(self.engine.policy()));
                    pace.want(Instant::now());
                }
                Wake::Urgent => self.engine.take_urgent(),
                Wake::Told => pace.told(),
                Wake::Look => {
                    let begun = Instant::now();
                    let seen = self.engine.look();
                    pace.looked(begun, Instant::now(), seen, wakes);
                }
                Wake::Turn => {
                    let begun = Instant::now();
                    let interval = self.engine.policy().interval.get();
                    if pace.unwanted(begun).is_some_and(|since| self.may_rest(since)) {
                        pace.left_out(begun, interval);
                    } else {
                        self.turn(first, options.style, out)?;
                        first = false;
                        if options.once {
                            return Ok(());
                        }
                        pace.turned(begun, Instant::now(), interval);
                    }
                }
            }
            let now = Instant::now();
            // Nobody listens when metrics are off.
            let _previous = self.alive.send_replace(now);
            self.supervisor.alive(now, QUIET_LOOK);
        }
    }

    /// May the turn that is due, so long after the latest one, be left out because there is nothing new to see?
    fn may_rest(&mut self, since: Duration) -> bool {
        let policy = self.engine.policy();
        // Turns do not come to the millisecond.
        let next = since + policy.interval.get() / 2;
        // Always asked, so that it is about the time since it was asked before.
        self.rest.is_idle() && self.settled && next < policy.idle_interval.get()
    }

    fn turn(&mut self, first: bool, style: Style, out: &mut dyn Write) -> Result<(), RunError> {
        let begin = Instant::now();
        self.settled = false;
        let report = match self.engine.turn(clock::now_ns()) {
            Ok(report) => report,
            // What never worked will not work; what worked once may work again.
            Err(error) if first => return Err(error.into()),
            Err(error) => {
                tracing::error!("{error}");
                return Ok(());
            }
        };
        self.engine.note_duration(begin.elapsed().as_secs_f64());
        self.settled = self.engine.is_settled(&report);
        let complaints = BTreeSet::from_iter(report.complaints());
        // A fault that lasts, as a full disk, is said once.
        for complaint in complaints.difference(&self.complaints) {
            tracing::warn!("{complaint}");
        }
        self.complaints = complaints;
        for write in report.foreign_writes() {
            tracing::info!("{write}");
        }
        if first {
            write!(out, "{}", table::render(&report.audit, style)).map_err(failed("printing"))?;
        }
        let line = report.line();
        match writeln!(out, "{line}").and_then(|()| out.flush()).map_err(failed("printing")) {
            Ok(()) => self.is_mute = false,
            Err(error) if first => return Err(error),
            // The host is looked after whether or not somebody reads of it.
            Err(error) if !self.is_mute => {
                tracing::warn!("lines of turns are lost: {error}");
                self.is_mute = true;
            }
            Err(_said) => {}
        }
        self.supervisor.status(&line);
        // Nobody listens when metrics are off.
        let _previous = self.latest.send_replace(Some(Arc::new(report)));
        self.rest.begin();
        Ok(())
    }

    fn reload(&mut self, options: &RunOptions) {
        match self.try_reload(options) {
            Ok(()) => {
                tracing::info!("the configuration was read again: {}", declared(self.engine.policy()));
            }
            Err(error) => {
                tracing::error!("the configuration stays as it was: {error}");
                self.engine.keep_policy();
            }
        }
    }

    fn try_reload(&mut self, options: &RunOptions) -> Result<(), RunError> {
        let policy = options.policy()?;
        if policy.mode == Mode::Enforce && !self.engine.has_actuator() {
            return Err(RunError::NeedsRestart);
        }
        let running = self.engine.policy();
        for (key, differs) in [
            ("state_dir", policy.state_dir != running.state_dir),
            ("metrics", policy.metrics != running.metrics),
            ("control", policy.control != running.control),
            ("nri", (NriSettings { place: running.nri.place, ..policy.nri.clone() }) != running.nri),
            ("kubelet", policy.kubelet != running.kubelet),
            ("sample", policy.sample != running.sample),
        ] {
            if differs {
                tracing::warn!("{key}: the new value counts from the next start on");
            }
        }
        self.engine.set_policy(policy);
        Ok(())
    }
}

/// Nobody is woken: the looks still see everything.
fn deaf(error: &io::Error) -> Degraded {
    let reason = format!("waiting for the ring of pressure events: {error}");
    let effect = format!("memory that gets short is noticed within {} ms, not at once", LOOK.as_millis());
    Degraded::new("bpf:pressure", reason, effect)
}

/// Starts the thread that keeps the link to the container runtime up, and the one that decides what it asks.
fn follow_runtime(settings: &NriSettings, placed: Placed, gate: Gate, exposure: Exposure) -> io::Result<()> {
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let (calls, receiver) = mpsc::channel(CALLS);
    let plugin = PluginName { name: "numa-enforcer".into(), index: settings.index };
    let kept = nri::keep_up(settings.socket.clone(), plugin, calls, placed.again());
    thread::Builder::new().name("nri".into()).spawn(move || runtime.block_on(kept))?;
    let placement = move || answer_calls(&placed, &gate, &exposure, receiver);
    thread::Builder::new().name("placement".into()).spawn(placement)?;
    Ok(())
}

/// Starts the thread that adds memory nodes to workloads that run short.
fn widen_memory(engine: &mut Engine, host: &HostRoot, layout: &CgroupLayout, state_dir: &Path) {
    let rooms = || Rooms::new(host, rustix::param::page_size() as u64);
    let limits = MemoryLimits::new(layout.memory.clone());
    let senses = Senses { tap: engine.tap(), rooms: rooms(), limits };
    let relief = ReliefSenses { rooms: rooms(), tenants: Tenants::new(host) };
    let tree = CpusetTree::new(&layout.cpuset.path, layout.cpuset.v2);
    let record = BrakeRecord::open(state_dir).map_err(|error| error.to_string());
    let demotion = {
        let host = host.clone();
        Box::new(move || scratch::is_on(&host))
    };
    let brake = BrakeParts { record, boot_id: read_boot_id(host), demotes: demotion };
    match Widening::start(senses, relief, brake, tree, engine.gate(), engine.demotion()) {
        Ok(widening) => engine.set_widening(widening),
        Err(error) => {
            let effect = "workloads whose memory nodes are full are not widened";
            engine.add_degraded(Degraded::new("widening", error.to_string(), effect));
        }
    }
}

/// Starts the thread that moves cold pages to slower memory, and hot ones back.
fn follow_cold_pages(
    engine: &Engine,
    host: &HostRoot,
    layout: &CgroupLayout,
    stop: &Stop,
) -> io::Result<JoinHandle<()>> {
    let (demotion, gate, decisions) = (engine.demotion(), engine.gate(), engine.decisions());
    let (host, layout, stop) = (host.clone(), layout.clone(), stop.clone());
    let moving = move || demote(&demotion, &gate, &decisions, &host, &layout, &stop);
    thread::Builder::new().name("cold-pages".into()).spawn(moving)
}

/// What containers can read of their place, where that is wanted and can be had.
fn exposure(engine: &mut Engine, policy: &Policy) -> Exposure {
    if !policy.nri.expose || !engine.has_actuator() {
        return Exposure::default();
    }
    let exposure = Exposure::below(&policy.state_dir).unwrap_or_else(|error| {
        let effect = "containers cannot read what they were given";
        engine.add_degraded(Degraded::new("exposure", error.to_string(), effect));
        Exposure::default()
    });
    engine.set_exposure(exposure.clone());
    exposure
}

/// Goes on with a pause that the daemon before this one was told of. Where it cannot be told whether there is one, who may
/// write is paused.
fn stay_paused(gate: &Gate, record: &PauseRecord, mode: Mode) {
    let now = wall_clock::unix_ms();
    match record.read() {
        Ok(None) => {}
        Ok(Some(pause)) => {
            if let Some(left) = pause.left(now) {
                gate.stay_closed(pause.lasted(now), left);
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
    for file in restore::recover(&tree, read_boot_id(host).as_deref(), &mut journal).failures() {
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
    // Where no runtime says any longer which containers there are, nobody would ever be asked whether they still have it.
    let places = policy.nri.enabled && policy.nri.place;
    engine.adopt(tree, if places { journal.grants().clone() } else { BTreeMap::new() });
    let (making, left) = MakingRecord::open(&policy.state_dir)?;
    engine.remember(making, left);
    // Times of a boot that cannot be told from another one are of no use.
    if let Some(boot_id) = read_boot_id(host) {
        let now_ns = clock::now_ns();
        let (record, left) = DriftRecord::open(&policy.state_dir, &boot_id, now_ns);
        engine.go_on_counting(record, left, now_ns);
    }
    if layout.cpuset.v2 && scratch::is_on(host) {
        engine.add_degraded(kernel_demotion(&layout.cpuset.path, host));
    }
    let limits = PageMoveLimits { pace: policy.memory.moves.pace(), ..PageMoveLimits::default() };
    let budget = PageBudget::new(limits, stop.clone());
    let mut actuator = LiveActuator::new(host, layout, journal, Box::new(Linux), budget);
    // systemd has no properties for the cpusets of v1, and names cgroups from the root of the hierarchy.
    if layout.cpuset.v2 && layout.cpuset.mounted_cgroup == "/" {
        match Systemctl::of_host(host) {
            Ok(Some(systemctl)) => actuator = actuator.with_units(Units::new(Box::new(systemctl))),
            Ok(None) => {}
            Err(reason) => engine.add_degraded(not_kept(&reason)),
        }
    }
    engine.set_actuator(Box::new(actuator));
    Ok(())
}

/// Lets those go on who were slowed down when a daemon and who watches over it were killed.
fn release_brakes(engine: &mut Engine, host: &HostRoot, tree: &CpusetTree, state_dir: &Path) {
    let mut failed = |reason: String| {
        let effect = "a workload may stand still or get no more memory; see numa-enforcer restore";
        engine.add_degraded(Degraded::new("brake", reason, effect));
    };
    match undo(tree, read_boot_id(host).as_deref(), state_dir, None) {
        Ok(report) => {
            report.failures().for_each(|error| failed(error.to_owned()));
            for one in report.files.iter().filter(|one| matches!(one.result, RestoreResult::PutBack { .. })) {
                let (cgroup, file) = (&one.cgroup, one.file.name());
                tracing::warn!("{cgroup}: {file} is released: it was slowed down when a daemon was killed");
            }
        }
        Err(error) => failed(error.to_string()),
    }
}

/// What the kernel's own demotion, which somebody has switched on, does to cpusets.
fn kernel_demotion(mount: &Path, host: &HostRoot) -> Degraded {
    let effect = "reclaim may take pages of any workload to slower memory, hot ones too";
    let with_cpus = read_text(&host.sys.join("devices/system/node/has_cpu"));
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

/// `1 declared workload`.
pub fn declared(policy: &Policy) -> String {
    units::count(policy.workloads.len(), "declared workload")
}
