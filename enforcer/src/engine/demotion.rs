//! Moves cold pages to slower memory and hot pages back, between turns.
//!
//! Problem: looking for cold pages and moving them both wait for the kernel. Idea: a thread of its own does
//! both, so neither a turn nor an answer to a runtime waits. The turns hand in the workloads
//! ([`Demotion::set_targets`]) and fetch the results ([`Demotion::report`]); their lock is held for copies
//! only.
//!
//! One round of one workload: look (`observe::cold`), decide (`enforcer_core::demotion`), pass the gate, move
//! (`enforce::pages`), remember. A round takes some seconds at most, so a pause takes effect between rounds.
//!
//! Between rounds cold pages go down at once when a neighbour that is declared to stay runs short of their
//! node ([`Demotion::press`]). The configured rate does not limit these moves; the idle time and the trust in
//! its detector do. [`backends`] chooses what carries a round out.
//!
//! Invariants: page moves have no inverse and are in no journal. The thread writes only page moves, requests
//! to the kernel that move pages, and the switches of idle detectors. It switches these off when no workload
//! is watched and when the daemon ends.

mod backends;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    thread::{self, Thread},
    time::{Duration, Instant},
};

use enforcer_core::{
    declarations::Declarations,
    demotion::{
        AmountBound, DemotionBackoff, DemotionInput, DemotionRound, NodeMemory, PageFlow, decide, relieve,
        target,
    },
    policy::{DemotionBackend, DemotionSettings, Policy},
    sample::Sample,
    widening::PressedNodes,
    workload::{CgroupPath, Workload},
};
use numa_placement::Inventory;
use numa_topology::{Topology, degraded::Degraded, id::NodeId, set::NodeSet};

use self::backends::{BackendChoice, Backends, DemotionContext, DemotionRequest};
use super::{
    Decisions, Gate,
    decisions::{entry, subject},
    widening::RELIEF_PACE,
};
use enforcer_act::pages::{PageBudget, PageMoveLimits, PageMoveReport, Stop, move_flow};
use enforcer_host::{HostRoot, cgroup::CgroupLayout};
use enforcer_kernel::{Kernel, linux::Linux};
use enforcer_observe::cold::{ColdLook, ColdWatch, sweep};
use enforcer_report::{
    decision::{DecisionRecord, DecisionState, DecisionSubject},
    demotion::{DemotionReport, LatestRound, TierMoves},
    units,
};

/// Interval of checks for work.
const PAUSE: Duration = Duration::from_millis(250);
/// The same without workloads: [`Demotion::set_targets`] unparks the thread for the first one.
const IDLE: Duration = Duration::from_mins(1);
/// Bounds of the time between two rounds of a workload, which is a quarter of the idle time.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);
const LONGEST_ROUND: Duration = Duration::from_secs(10);
/// Longest time for moves between one pair of nodes in one round.
const FLOW: Duration = Duration::from_secs(2);

/// Most rounds skipped in a row because no cold page was left to move.
const LONGEST_REST: u32 = 8;

/// Handle shared by the turns and the thread; clones share its state.
#[derive(Debug, Clone, Default)]
pub struct Demotion(Arc<Mutex<DemotionState>>);

#[derive(Debug, Default)]
struct DemotionState {
    wanted: Option<Arc<DemotionWork>>,
    /// The thread that moves pages, once it runs.
    mover: Option<Thread>,
    report: DemotionReport,
    degraded: Vec<Degraded>,
    /// Nodes that declared workloads run short of, until the thread takes them.
    pressed: PressedNodes,
    /// Bytes moved down for workloads that ran short.
    relieved: u64,
}

/// Work that the turns hand in.
#[derive(Debug)]
struct DemotionWork {
    inventory: Arc<Inventory>,
    settings: DemotionSettings,
    limits: PageMoveLimits,
    kernel_promotes: bool,
    of: Vec<DemotionTarget>,
}

/// One workload with cold pages that may go down.
#[derive(Debug)]
struct DemotionTarget {
    subject: DecisionSubject,
    cgroup: CgroupPath,
    allowed: NodeSet,
    home: NodeSet,
}

impl Demotion {
    fn lock(&self) -> MutexGuard<'_, DemotionState> {
        // Poisoning is ignored: every update leaves the values consistent.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Replaces the workloads to move pages of; none while the daemon may not write.
    pub(super) fn set_targets(
        &self,
        inventory: &Arc<Inventory>,
        workloads: &[Workload],
        sample: &Sample,
        declarations: &Declarations,
        policy: &Policy,
        writes: bool,
    ) {
        let settings = policy.memory.demotion.clone();
        let wish = |workload: &Workload| {
            let (_, rule) = declarations.rule(policy, &workload.cgroup)?;
            let cgroup = sample.cgroups.get(&workload.cgroup).filter(|_| settings.is_for(rule))?;
            let home = cgroup.cpus_effective.as_ref().map(|cpus| inventory.machine.nodes_of(cpus));
            Some(DemotionTarget {
                subject: subject(workload),
                cgroup: workload.cgroup.clone(),
                allowed: cgroup.mems_effective.clone()?,
                home: home.unwrap_or_default(),
            })
        };
        let of: Vec<DemotionTarget> = workloads.iter().filter(|_| writes).filter_map(wish).collect();
        let kernel_promotes = sample.settings.promotes() == Some(true);
        let mut pace = policy.memory.moves.pace();
        pace.bytes_per_second = Some(settings.bytes_per_second.0);
        let limits = PageMoveLimits { pace, time: FLOW, ..PageMoveLimits::default() };
        let there: BTreeSet<&CgroupPath> = of.iter().map(|wish| &wish.cgroup).collect();
        let mut shared = self.lock();
        shared.report.retain(|cgroup, _| there.contains(cgroup));
        let rested = shared.wanted.is_none();
        shared.wanted = (!of.is_empty()).then(|| {
            Arc::new(DemotionWork { inventory: Arc::clone(inventory), settings, limits, kernel_promotes, of })
        });
        if rested && shared.wanted.is_some() {
            shared.mover.iter().for_each(Thread::unpark);
        }
    }

    /// Moves so far, by workload.
    pub(super) fn report(&self) -> DemotionReport {
        self.lock().report.clone()
    }

    /// Replaces the nodes that run short.
    pub(super) fn press(&self, pressed: PressedNodes) {
        self.lock().pressed = pressed;
    }

    /// Bytes moved down for workloads that ran short.
    pub(super) fn relieved(&self) -> u64 {
        self.lock().relieved
    }

    /// The nodes that run short.
    #[cfg(test)]
    pub(super) fn pressed(&self) -> PressedNodes {
        self.lock().pressed.clone()
    }

    /// Idle detectors that are missing while workloads are watched.
    pub(super) fn degraded(&self) -> Vec<Degraded> {
        self.lock().degraded.clone()
    }
}

/// Moves pages until `stop` is requested; the requester unparks the thread.
pub fn demote(
    demotion: &Demotion,
    gate: &Gate,
    decisions: &Decisions,
    host: &HostRoot,
    layout: &CgroupLayout,
    stop: &Stop,
) {
    sweep(host);
    demotion.lock().mover = Some(thread::current());
    let mut rounds: Option<Rounds> = None;
    let mut pause = PAUSE;
    while !stop.is_requested() {
        thread::park_timeout(pause);
        let wanted = demotion.lock().wanted.clone();
        let Some(wanted) = wanted else {
            // Dropping the rounds switches all idle detectors off.
            rounds = None;
            demotion.lock().degraded.clear();
            pause = IDLE;
            continue;
        };
        pause = PAUSE;
        let rounds = rounds.get_or_insert_with(|| Rounds::new(Linux, host, layout, &wanted, stop));
        rounds.keep(&wanted, stop);
        // The turns repeat it for as long as it holds.
        let mut pressed = std::mem::take(&mut demotion.lock().pressed);
        for wish in &wanted.of {
            if let Some(NeighbourRelief { bytes, moves, record }) =
                rounds.relieve(wish, &wanted, gate, &mut pressed)
            {
                let mut shared = demotion.lock();
                shared.relieved = shared.relieved.saturating_add(bytes);
                shared.report.insert(wish.cgroup.clone(), moves);
                drop(shared);
                decisions.note(wish.subject.clone(), record);
            }
        }
        for wish in &wanted.of {
            if stop.is_requested() {
                break;
            }
            if let Some((moves, record)) = rounds.of(wish, &wanted, gate) {
                let mut shared = demotion.lock();
                shared.degraded = rounds.watch.degraded();
                shared.degraded.extend(rounds.backends.degraded());
                shared.report.insert(wish.cgroup.clone(), moves);
                drop(shared);
                if let Some(record) = record {
                    decisions.note(wish.subject.clone(), record);
                }
            }
        }
    }
}

/// State between two rounds.
struct Rounds<K = Linux> {
    kernel: K,
    watch: ColdWatch,
    backends: Backends,
    budget: PageBudget,
    /// Budget of moves for workloads that run short.
    relief: PageBudget,
    limits: PageMoveLimits,
    proc: PathBuf,
    began: Instant,
    standings: BTreeMap<CgroupPath, WorkloadDemotion>,
}

/// State of one workload between two rounds.
#[derive(Default)]
struct WorkloadDemotion {
    trust: DemotionBackoff,
    latest: Option<Instant>,
    /// When it may next make room for another workload, and the wait after a vain attempt.
    relieves: Option<(Instant, Duration)>,
    /// The kernel's promotion count at the latest look.
    promoted: Option<u64>,
    /// Bytes that we moved down and that did not return.
    below: u64,
    /// Bytes moved beyond the rate: a huge page moves as a whole or not at all.
    owed: u64,
    moves: TierMoves,
    rest: RoundBackoff,
    carriage: BackendChoice,
    /// The latest record without its byte counts.
    said: Option<(DecisionState, String)>,
}

/// Rounds skipped because all cold pages have gone down already.
#[derive(Debug, Clone, Copy, Default)]
struct RoundBackoff {
    /// Rounds left.
    left: u32,
    /// Length of this rest in rounds. The next rest is twice as long if nothing goes down after it.
    length: u32,
}

/// Result of making room for another workload.
struct NeighbourRelief {
    bytes: u64,
    moves: TierMoves,
    record: DecisionRecord,
}

impl<K: Kernel> Rounds<K> {
    fn new(kernel: K, host: &HostRoot, layout: &CgroupLayout, wanted: &DemotionWork, stop: &Stop) -> Self {
        let relief = PageMoveLimits { pace: RELIEF_PACE, time: FLOW, ..PageMoveLimits::default() };
        Self {
            kernel,
            relief: PageBudget::new(relief, stop.clone()),
            watch: ColdWatch::new(host, layout),
            backends: Backends::new(host, layout, stop),
            budget: PageBudget::new(wanted.limits, stop.clone()),
            limits: wanted.limits,
            proc: host.proc.clone(),
            began: Instant::now(),
            standings: BTreeMap::new(),
        }
    }

    /// Forgets workloads that are no longer handed in, and applies new limits.
    fn keep(&mut self, wanted: &DemotionWork, stop: &Stop) {
        let kept: BTreeSet<CgroupPath> = wanted.of.iter().map(|wish| wish.cgroup.clone()).collect();
        if self.standings.keys().any(|cgroup| !kept.contains(cgroup)) {
            self.standings.retain(|cgroup, _| kept.contains(cgroup));
            self.watch.only(&kept);
        }
        if self.limits != wanted.limits {
            self.limits = wanted.limits;
            self.budget = PageBudget::new(wanted.limits, stop.clone());
        }
    }

    /// One round, if it is due: the moves so far, and a record if it changed.
    fn of(
        &mut self,
        wish: &DemotionTarget,
        wanted: &DemotionWork,
        gate: &Gate,
    ) -> Option<(TierMoves, Option<DecisionRecord>)> {
        let idle = wanted.settings.idle.get();
        let every = (idle / 4).clamp(SHORTEST_ROUND, LONGEST_ROUND);
        let standing = self.standings.entry(wish.cgroup.clone()).or_default();
        let elapsed = standing.latest.map_or(every, |latest| latest.elapsed());
        if elapsed < every {
            return None;
        }
        standing.latest = Some(Instant::now());
        let machine = &wanted.inventory.machine;
        if !wish.allowed.iter().any(|node| target::rank(machine, node).is_some_and(|rank| rank > 0)) {
            let said = "its cpuset allows no slower memory, so its cold pages stay".to_owned();
            let record = standing.tell(DecisionState::Refused, said.clone(), said);
            return Some((standing.moves.clone(), record));
        }
        let look = self.watch.look(&wish.cgroup, &wish.upper(machine), idle);
        let rooms = self.watch.rooms(&wish.allowed);
        let rate = wanted.settings.bytes_per_second.0 / wanted.of.len().max(1) as u64;
        let millis = u64::try_from(elapsed.min(every * 2).as_millis()).unwrap_or(u64::MAX);
        let earned = rate.saturating_mul(millis) / 1000;
        let situation = DemotionInput {
            rate: earned.saturating_sub(standing.owed),
            now_ns: ns(self.began.elapsed()),
            ..wish.situation(wanted, &look, &rooms)
        };
        let round = decide(&situation, &standing.trust);
        let inside = gate.enter()?;
        let mut lines = Vec::new();
        let up = moved(&self.kernel, &round.up, &self.proc, &mut self.budget, &mut lines);
        let mut means = DemotionContext {
            kernel: &self.kernel,
            proc: &self.proc,
            budget: &mut self.budget,
            watch: &mut self.watch,
            backends: &mut self.backends,
        };
        let going = DemotionRequest { wish, wanted, flows: &round.down, rooms: &rooms };
        let down = standing.down(&going, &mut means, &mut lines);
        drop(inside);
        standing.owed = standing.owed.saturating_add(down.max(up)).saturating_sub(earned);
        standing.remember([down, up], &look, &situation);
        standing.moves.latest = Some(standing.seen(&look, &round));
        let bound = round.bound.map_or("no slower node", AmountBound::name);
        let halved = match standing.trust.halvings() {
            0 => String::new(),
            times => {
                let times = units::count(times as usize, "time");
                format!(", halved {times} because pages were wanted back")
            }
        };
        let cold = units::bytes(round.cold);
        let seen = format!("{cold} was not touched for {} ({})", wanted.settings.idle, look.source);
        lines.insert(0, format!("{seen}; what decided: {bound}{halved}"));
        let state = if up + down > 0 { DecisionState::Tiered } else { DecisionState::InPlace };
        let record =
            standing.tell(state, format!("{bound}{halved}{}", standing.carriage.told()), lines.join("; "));
        Some((standing.moves.clone(), record))
    }

    /// Moves cold pages at once from the nodes that another workload runs short of; `None` if nothing moved.
    fn relieve(
        &mut self,
        wish: &DemotionTarget,
        wanted: &DemotionWork,
        gate: &Gate,
        pressed: &mut PressedNodes,
    ) -> Option<NeighbourRelief> {
        let machine = &wanted.inventory.machine;
        let (idle, upper) = (wanted.settings.idle.get(), wish.upper(machine));
        let mut missing = pressed.of(&wish.cgroup);
        missing.retain(|node, _| upper.contains(*node));
        let standing = self.standings.entry(wish.cgroup.clone()).or_default();
        if missing.is_empty() || standing.relieves.is_some_and(|(from, _)| Instant::now() < from) {
            return None;
        }
        let look = self.watch.look(&wish.cgroup, &upper, idle);
        let from: NodeSet = missing.keys().copied().collect();
        let estimate = self.watch.estimate(&wish.cgroup, &from, idle);
        let mut rooms = self.watch.rooms(&wish.allowed);
        rooms.retain(|node, _| !pressed.short().contains(*node));
        let now_ns = ns(self.began.elapsed());
        let situation = DemotionInput { estimate, now_ns, ..wish.situation(wanted, &look, &rooms) };
        let round = relieve(&situation, &standing.trust, &missing);
        let (mut lines, mut sum) = (Vec::new(), 0u64);
        if let Some(inside) = gate.enter() {
            for flow in &round.down {
                let flows = std::slice::from_ref(flow);
                let bytes = moved(&self.kernel, flows, &self.proc, &mut self.relief, &mut lines);
                let told = pressed.beneficiary(flow.from).zip(lines.last_mut().filter(|_| bytes > 0));
                if let Some((short, line)) = told {
                    // Writing to a `String` cannot fail.
                    let _ = write!(line, ", so that {short}, which is declared to stay, has room");
                }
                pressed.note(flow.from, bytes);
                sum = sum.saturating_add(bytes);
            }
            drop(inside);
        }
        let wait = match standing.relieves {
            Some((_, wait)) if sum == 0 => (wait * 2).min(LONGEST_ROUND),
            _ => SHORTEST_ROUND,
        };
        standing.relieves = Some((Instant::now() + wait, wait));
        if sum == 0 {
            return None;
        }
        standing.remember([sum, 0], &look, &situation);
        add(&mut standing.moves.by_backend, DemotionBackend::MovePages.name(), sum);
        lines.push(format!("not touched for {} ({})", wanted.settings.idle, look.source));
        let record = DecisionRecord { reason: lines.join("; "), ..entry("demotion", DecisionState::Tiered) };
        Some(NeighbourRelief { bytes: sum, moves: standing.moves.clone(), record })
    }
}

impl DemotionTarget {
    /// Nodes that its cold pages may leave.
    fn upper(&self, machine: &Topology) -> NodeSet {
        let upper = |node: &NodeId| target::below(machine, *node, &self.allowed).is_some();
        self.allowed.iter().filter(upper).collect()
    }

    /// Inputs of a round, without rate and time.
    fn situation<'a>(
        &'a self,
        wanted: &'a DemotionWork,
        look: &'a ColdLook,
        rooms: &'a BTreeMap<NodeId, NodeMemory>,
    ) -> DemotionInput<'a> {
        DemotionInput {
            topology: &wanted.inventory.machine,
            allowed: &self.allowed,
            home: &self.home,
            rooms,
            watched: &look.watched,
            estimate: look.estimate,
            idle: wanted.settings.idle.get(),
            rate: 0,
            kernel_promotes: wanted.kernel_promotes,
            now_ns: 0,
        }
    }
}

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

impl WorkloadDemotion {
    /// Records the result of a round: bytes down and up.
    fn remember(&mut self, [down, up]: [u64; 2], look: &ColdLook, of: &DemotionInput<'_>) {
        let before = std::mem::replace(&mut self.promoted, look.promoted);
        let by_kernel = look.promoted.zip(before).map_or(0, |(now, before)| now.saturating_sub(before));
        let returned = up.saturating_add(by_kernel).min(self.below);
        self.trust.note(down, self.below, returned, of.idle, of.now_ns);
        self.below = (self.below - returned).saturating_add(down);
        add(&mut self.moves.down_bytes, look.source, down);
        add(&mut self.moves.up_bytes, look.source, up);
        add(&mut self.moves.up_bytes, "kernel", by_kernel);
    }

    /// Summary of a round for the report.
    fn seen(&self, look: &ColdLook, round: &DemotionRound) -> LatestRound {
        LatestRound {
            source: look.source,
            cold_bytes: round.cold,
            hot_bytes: round.hot,
            estimate_bytes: look.estimate,
            bound: round.bound,
            backend: self.carriage.by.name(),
            backend_refused: self.carriage.refused.clone(),
            halvings: self.trust.halvings(),
            unwatched: look.unwatched.clone(),
        }
    }

    /// A record, unless nothing moved and the latest record said the same.
    fn tell(&mut self, state: DecisionState, gist: String, reason: String) -> Option<DecisionRecord> {
        let said = Some((state, gist));
        let again = self.said == said && state != DecisionState::Tiered;
        self.said = said;
        (!again).then(|| DecisionRecord { reason, ..entry("demotion", state) })
    }
}

fn add(sums: &mut BTreeMap<&'static str, u64>, source: &'static str, bytes: u64) {
    if bytes > 0 {
        let sum = sums.entry(source).or_default();
        *sum = sum.saturating_add(bytes);
    }
}

/// Carries flows out. Returns the bytes moved and adds a line for each flow that moved some.
fn moved(
    kernel: &dyn Kernel,
    flows: &[PageFlow],
    proc: &Path,
    budget: &mut PageBudget,
    lines: &mut Vec<String>,
) -> u64 {
    let mut sum = 0u64;
    for flow in flows {
        let report: PageMoveReport = move_flow(kernel, proc, budget, flow);
        sum = sum.saturating_add(report.moved_bytes);
        let left = report.left();
        if report.moved_bytes > 0 || !left.is_empty() {
            let moved = units::bytes(report.moved_bytes);
            let mut line = vec![format!("{moved} went from node {} to node {}", flow.from, flow.to)];
            line.extend(left);
            lines.push(line.join(", "));
        }
    }
    sum
}

#[cfg(test)]
mod tests;
