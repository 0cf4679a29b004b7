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
mod progress;
mod shared;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    thread,
    time::{Duration, Instant},
};

use enforcer_core::{
    demotion::{DemotionInput, decide, relieve, target},
    named::Named as _,
    policy::DemotionBackend,
    widening::PressedNodes,
    workload::CgroupPath,
};
use numa_topology::set::NodeSet;

pub use self::shared::Demotion;
pub(super) use self::shared::RELIEF_PACE;
use self::{
    backends::{Backends, DemotionContext, DemotionRequest},
    progress::{WorkloadDemotion, add, moved},
    shared::{DemotionTarget, DemotionWork, FLOW},
};
use super::{Decisions, Gate, decisions::entry};
use enforcer_act::pages::{PageBudget, PageMoveLimits, Stop};
use enforcer_host::{HostPath, HostRoot, cgroup::CgroupLayout};
use enforcer_kernel::{Kernel, linux::Linux};
use enforcer_observe::cold::{ColdWatch, sweep};
use enforcer_report::{
    decision::{DecisionRecord, DecisionState},
    demotion::TierMoves,
    units,
};

/// Interval of checks for work.
const PAUSE: Duration = Duration::from_millis(250);
/// The same without workloads: [`Demotion::set_targets`] unparks the thread for the first one.
const IDLE: Duration = Duration::from_mins(1);
/// Bounds of the time between two rounds of a workload, which is a quarter of the idle time.
const SHORTEST_ROUND: Duration = Duration::from_secs(1);
const LONGEST_ROUND: Duration = Duration::from_secs(10);
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
    proc: HostPath,
    began: Instant,
    standings: BTreeMap<CgroupPath, WorkloadDemotion>,
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
        let look = self.watch.read_idle(&wish.cgroup, &wish.upper(machine), idle);
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
        let bound = round.bound.map_or("no slower node", |bound| bound.name());
        let halved = match standing.trust.halvings() {
            0 => String::new(),
            times => {
                let times = units::count(times, "time");
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
        let look = self.watch.read_idle(&wish.cgroup, &upper, idle);
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

fn ns(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
