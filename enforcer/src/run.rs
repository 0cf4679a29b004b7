//! The daemon: runs the engine's turns at the configured interval until it is told to stop.
//!
//! SIGINT and SIGTERM end it, even in the middle of page moves. The cpusets stay as they are: a restart or an
//! upgrade must not move anything. `numa-enforcer restore`, or the daemon itself with `--restore-on-exit`,
//! undoes everything from the journal. SIGHUP reloads the configuration; an invalid one is logged and the old
//! one stays. A turn that takes longer than the interval delays the next one; missed turns are not made up.
//!
//! This thread runs the turns, because they block in the kernel. Other threads serve HTTP, receive signals
//! and print, so that no turn waits for a slow reader. Everything that needs privileges (attaching the
//! programs, opening the journal, listening) happens before the first turn and before any privileged thread
//! starts; then the privileges are dropped.

use std::{
    collections::BTreeSet,
    io,
    os::fd::AsFd,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use enforcer_core::policy::{DemotionBackend, Mode, NriSettings, Policy};
use numa_topology::degraded::Degraded;
use tokio::{runtime::Builder, sync::watch};

use self::options::failed;
pub use self::options::{Overrides, RecordOptions, RunError, RunOptions, declared};
use crate::{
    config::Configured,
    dra::DriverSocketFiles,
    engine::{Engine, Gate},
    pace::{LOOK, QUIET_LOOK, TurnSchedule},
    printer::Printer,
    publish::FeatureFile,
    serve::{CONTROL_EFFECT, socket::ControlSocket},
    signals::{EndedBy, GRACE, Orders, SignalOrder, Signals},
    supervisor::Supervisor,
    wait::{self, Heard, Wake},
};
use enforcer_act::pages::Stop;
use enforcer_kernel::{clock, waker::Waker};
use enforcer_observe::{IdleDetector, PressureTap};
use enforcer_report::{style::Style, table, text, tick::TickReport};

mod options;
mod predecessor;
mod start;

/// Time in which a runtime carries an answer out: as long as it waits for one.
const WRITTEN: Duration = Duration::from_secs(2);

/// Longest wait before the first turn for a runtime's list of containers.
const ANNOUNCED_WITHIN: Duration = Duration::from_secs(2);

/// Longest wait for writes in progress when the daemon ends and restores.
const LONGEST_WRITE: Duration = Duration::from_secs(10);

/// Printers of the daemon.
#[derive(Clone, Copy)]
pub struct DaemonOutput<'a> {
    /// Prints the audit of the first turn, and one line for each turn.
    pub turns: &'a Printer,
    /// The log.
    pub log: &'a Printer,
}

/// A daemon without further turns. Dropping it detaches the eBPF programs, which takes the kernel some time.
pub struct EndedDaemon {
    /// Why it stopped, if it was not told to.
    pub result: Result<(), RunError>,
    daemon: RunningDaemon,
    stop: Stop,
    signal: EndedBy,
    /// Held so that a second order to end still takes effect at once.
    _orders: Orders,
}

impl EndedDaemon {
    /// Whether it was told to end, before or after it stopped.
    pub fn must_end(&self) -> bool {
        self.stop.is_requested()
    }

    /// The signal that ended it.
    pub fn signal(&self) -> Option<&'static str> {
        self.signal.get().copied()
    }

    /// Closes the journal, so that `restore` can open it.
    pub fn release_journal(&mut self) {
        self.daemon.engine.remove_actuator();
    }
}

/// Runs until told to stop. Prints the audit of the first turn and one line for each turn. An error means
/// that the daemon did not start.
pub fn run(options: &RunOptions, output: DaemonOutput<'_>) -> Result<EndedDaemon, RunError> {
    // Before anything takes long: an early interrupt must not be lost.
    let signals = Signals::catch().map_err(failed("listening for signals"))?;
    let stop = Stop::default();
    let ended_by = signals.ended_by();
    let grace = (!options.restore_on_exit).then_some(GRACE);
    let mut orders =
        signals.listen(stop.clone(), grace, output.log.clone()).map_err(failed("listening for signals"))?;
    let mut daemon = RunningDaemon::start(options, &stop)?;
    for printer in [output.turns, output.log] {
        daemon.engine.add_printer(printer.clone());
    }
    daemon.supervisor.ready("the first turn begins");
    let result = daemon.run_turns(options, &mut orders, output.turns);
    daemon.end(options.restore_on_exit, &stop);
    Ok(EndedDaemon { result, daemon, stop, signal: ended_by, _orders: orders })
}

/// Waits, within bounds, for writes of the cpusets to restore: this daemon's, and those of a runtime that was
/// last told something `told` ago.
fn let_writes_end(gate: &Gate, told: Option<Duration>) {
    if let Some(since) = told {
        thread::sleep(WRITTEN.saturating_sub(since));
    }
    let settled = Builder::new_current_thread()
        .enable_time()
        .build()
        .map(|waiting| waiting.block_on(gate.settled(LONGEST_WRITE)));
    if !settled.is_ok_and(|settled| settled) {
        tracing::warn!("a cpuset write is still in progress; restoring anyway");
    }
}

struct RunningDaemon {
    engine: Engine,
    latest: watch::Sender<Option<Arc<TickReport>>>,
    /// Time of the loop's latest pass, for the liveness probe.
    alive: watch::Sender<Instant>,
    supervisor: Supervisor,
    rest: IdleDetector,
    /// The latest turn left no work.
    settled: bool,
    /// Complaints of the latest turn.
    complaints: BTreeSet<String>,
    /// The thread that moves cold pages.
    pages: Option<JoinHandle<()>>,
    /// The control socket; its file is removed when the daemon ends.
    socket: Option<ControlSocket>,
    /// The feature file of node-feature-discovery; it is removed when the daemon ends.
    features: Option<FeatureFile>,
    /// The sockets of the DRA driver; their files are removed when the daemon ends.
    _claims: Option<DriverSocketFiles>,
}

impl RunningDaemon {
    /// Ends all writes. With `restores` it also waits for those in progress.
    fn end(&mut self, restores: bool, stop: &Stop) {
        self.supervisor.stopping();
        if let Some(features) = &self.features {
            features.end();
        }
        let told = restores.then(|| self.engine.placed().retire()).flatten();
        // Containers created from now on get no place: nothing would restore them.
        self.engine.gate().close(None);
        // The thread switches its idle detectors off.
        if let Some(pages) = self.pages.take() {
            stop.request();
            pages.thread().unpark();
            drop(pages.join());
        }
        if restores {
            let_writes_end(&self.engine.gate(), told);
        }
    }

    fn run_turns(
        &mut self,
        options: &RunOptions,
        orders: &mut Orders,
        out: &Printer,
    ) -> Result<(), RunError> {
        let starts = Waker::new().map_err(failed("waiting"))?;
        // The audit of the first turn shows the runtime's names.
        if self.engine.policy().nri.enabled && !options.once {
            self.engine.placed().wait_for_runtime(ANNOUNCED_WITHIN);
        }
        let mut wakes = true;
        let mut first = true;
        let quiet_look =
            self.supervisor.patience().map_or(QUIET_LOOK, |patience| patience.clamp(LOOK, QUIET_LOOK));
        let mut pace = TurnSchedule::begin(Instant::now(), quiet_look);
        self.engine.placed().listen(starts.clone());
        // Discards events from before the first turn.
        self.engine.poll_events();
        let mut owes_turn = false;
        let tap = self.engine.tap();
        loop {
            // A reload is followed by its turn, even if several come in a row.
            let wake = if std::mem::take(&mut owes_turn) {
                Wake::Turn
            } else {
                self.wait(orders, &pace, &tap, &starts, &mut wakes)
            };
            match wake {
                Wake::Order(SignalOrder::Stop) => return Ok(()),
                Wake::Order(SignalOrder::Reload) => {
                    // Several reloads count as one; a daemon that ends skips them.
                    let mut further = std::iter::from_fn(|| orders.take());
                    if further.any(|order| order == SignalOrder::Stop) {
                        return Ok(());
                    }
                    self.reload_for_turn(options);
                    pace.want(Instant::now());
                    owes_turn = true;
                }
                Wake::Urgent => tap.drain(),
                Wake::TurnRequested => pace.turn_requested(),
                Wake::Poll => {
                    let begun = Instant::now();
                    let seen = self.engine.poll_events();
                    pace.polled(begun, Instant::now(), seen, wakes);
                }
                Wake::Turn if self.skips_turn(&mut pace) => {}
                Wake::Turn => {
                    let begun = Instant::now();
                    let interval = self.engine.policy().interval.get();
                    self.turn(std::mem::take(&mut first), options.style, out)?;
                    if options.once {
                        return Ok(());
                    }
                    pace.turned(begun, Instant::now(), interval);
                    if let Some(within) = self.engine.early_turn() {
                        pace.want(Instant::now() + within);
                    }
                }
            }
            let now = Instant::now();
            // There is no receiver when metrics are off.
            let _previous = self.alive.send_replace(now);
            self.supervisor.alive(now, quiet_look);
        }
    }

    /// Waits for what comes next. Clears `wakes` if descriptors cannot be waited for: from then on, the
    /// daemon looks at intervals.
    fn wait(
        &mut self,
        orders: &mut Orders,
        pace: &TurnSchedule,
        tap: &PressureTap,
        starts: &Waker,
        wakes: &mut bool,
    ) -> Wake {
        let pressure = tap.without_listener();
        let fds = self.engine.wake_fds();
        let heard = Heard {
            urgent: pressure.as_ref().filter(|_| *wakes).map(AsFd::as_fd),
            filling: fds.filling.filter(|_| *wakes && pace.hears_events()),
            came: fds.came.filter(|_| *wakes && pace.hears()),
            written: fds.written.filter(|_| *wakes && pace.hears_writes()),
            started: pace.hears().then_some(starts),
        };
        wait::next(orders, pace.due(), heard).unwrap_or_else(|error| {
            *wakes = false;
            self.engine.add_degraded(deaf(&error));
            Wake::Poll
        })
    }

    /// Reads the configuration again, and drains the events from before its first turn.
    fn reload_for_turn(&mut self, options: &RunOptions) {
        self.supervisor.reloading();
        self.reload(options);
        self.engine.poll_events();
        self.supervisor.ready(&declared(self.engine.policy()));
    }

    /// Skips the due turn if nothing new can be seen. Returns whether it did.
    fn skips_turn(&mut self, pace: &mut TurnSchedule) -> bool {
        let begun = Instant::now();
        let skips = pace.unwanted(begun).is_some_and(|since| self.may_rest(since));
        if skips {
            pace.left_out(begun, self.engine.policy().interval.get());
        }
        skips
    }

    /// Whether the due turn, `since` after the latest, can be skipped because nothing new can be seen.
    fn may_rest(&mut self, since: Duration) -> bool {
        let policy = self.engine.policy();
        // Turns are not exact to the millisecond.
        let next = since + policy.interval.get() / 2;
        // Asked every time, because it measures the time since the last call.
        self.rest.is_idle() && self.settled && next < policy.idle_interval.get()
    }

    fn turn(&mut self, first: bool, style: Style, out: &Printer) -> Result<(), RunError> {
        let begin = Instant::now();
        self.settled = false;
        if let Some(gone) = self.socket.take_if(|socket| !socket.is_in_place()) {
            let degraded = unreachable(gone.path());
            tracing::error!("{}: {}", degraded.effect, degraded.reason);
            self.engine.add_degraded(degraded);
        }
        let report = match self.engine.turn(clock::now_ns()) {
            Ok(report) => report,
            // A first turn that fails would fail again; a later one may recover.
            Err(error) if first => return Err(error.into()),
            Err(error) => {
                tracing::error!("{error}");
                return Ok(());
            }
        };
        self.engine.note_duration(begin.elapsed().as_secs_f64());
        self.settled = self.engine.is_settled(&report);
        let complaints = BTreeSet::from_iter(report.complaints());
        // A lasting fault, such as a full disk, is logged once.
        for complaint in complaints.difference(&self.complaints) {
            tracing::warn!("{complaint}");
        }
        self.complaints = complaints;
        for remainder in report.remainders() {
            tracing::debug!("{remainder}");
        }
        for write in report.foreign_writes() {
            tracing::info!("{write}");
        }
        let line = report.line();
        let audit = if first { table::render(&report.audit, style) } else { String::new() };
        out.print(format!("{audit}{line}\n"));
        self.supervisor.status(&line);
        // There is no receiver when metrics are off.
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
                let (said, marks) = (error.to_string(), error.marks());
                tracing::error!("the configuration stays as it was: {}{marks}", text::escape(&said));
                self.engine.keep_policy();
            }
        }
    }

    fn try_reload(&mut self, options: &RunOptions) -> Result<(), RunError> {
        let Configured { mut policy, notes, .. } = options.configured()?;
        for note in notes {
            tracing::warn!("{note}");
        }
        if policy.mode == Mode::Enforce && !self.engine.has_actuator() {
            return Err(RunError::NeedsRestart);
        }
        let running = self.engine.policy();
        if running.dra.enabled && !policy.nri.place {
            return Err(RunError::ClaimsArePlaced);
        }
        for (key, differs) in [
            ("state_dir", policy.state_dir != running.state_dir),
            ("metrics", policy.metrics != running.metrics),
            ("control", policy.control != running.control),
            ("nri", (NriSettings { place: running.nri.place, ..policy.nri.clone() }) != running.nri),
            ("kubelet", policy.kubelet != running.kubelet),
            ("cluster", policy.cluster != running.cluster),
            ("dra", policy.dra != running.dra),
            ("sample", policy.sample != running.sample),
        ] {
            if differs {
                tracing::warn!("{key}: the new value counts from the next start on");
            }
        }
        for key in needing_dropped(running, &policy) {
            tracing::warn!(
                "{key}: it takes CAP_SYS_ADMIN, which was given up at the start: restart the daemon"
            );
        }
        // As logged: marks of other controllers keep their old setting until the next start.
        policy.nri = NriSettings { place: policy.nri.place, ..running.nri.clone() };
        policy.dra = running.dra.clone();
        self.engine.set_policy(policy);
        Ok(())
    }
}

/// New keys of a configuration that need a capability which this daemon has dropped.
fn needing_dropped(running: &Policy, read: &Policy) -> Vec<&'static str> {
    let wants = |policy: &Policy| {
        let damos = policy.memory.demotion.backend == DemotionBackend::Damos;
        [("workload.partition", policy.wants_partitions()), ("memory.demotion.backend", damos)]
    };
    let keys = wants(running).into_iter().zip(wants(read));
    keys.filter(|((_, had), (_, wanted))| *wanted && !*had).map(|((key, _), _)| key).collect()
}

/// The file of the control socket was removed, for example by a cleaner of `/run`.
fn unreachable(socket: &Path) -> Degraded {
    let reason =
        format!("{} was taken away; a daemon that is started again makes another one", socket.display());
    Degraded::new("control", reason, CONTROL_EFFECT)
}

/// Events wake no thread; the looks still see everything.
fn deaf(error: &io::Error) -> Degraded {
    let reason = format!("waiting for the ring of pressure events: {error}");
    let effect = format!("memory that gets short is noticed within {} ms, not at once", LOOK.as_millis());
    Degraded::new("bpf:pressure", reason, effect)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_a_capability_that_was_given_up_is_named_when_it_is_new() {
        let running = Policy::default();
        let mut read = running.clone();
        assert_eq!(needing_dropped(&running, &read), [""; 0]);
        read.memory.demotion.backend = DemotionBackend::Damos;
        assert_eq!(needing_dropped(&running, &read), ["memory.demotion.backend"]);
        assert_eq!(needing_dropped(&read, &running), [""; 0]);
    }
}
