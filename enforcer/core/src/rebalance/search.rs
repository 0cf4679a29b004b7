//! The search for the groups of a plan.
//!
//! Each round asks every workload that should move for its best group: the one with the greatest difference
//! between what it saves and what it costs. Of these the round takes the group of the lowest `QoS` class with
//! the fewest bytes, and the next round starts from the host after that group. The search ends when no
//! workload has a group that is worth its cost, or when the limits of a plan are reached.
//!
//! Workloads that should move are ailing, or have memory on a node that is short of it, or share CPUs of a
//! node that has too few. A round asks at most [`MOST_ASKED`] of them, those with the greatest loss first.

use std::cmp::{Ordering, Reverse};

use super::{
    report::{REBALANCE_SCHEMA_VERSION, RebalanceReport, UnmovedWorkload},
    state::{GroupBound, PlanState, Settle, SettleStep},
    view::{Ailment, CpusHeld, HostState, Mover},
    worth::{LEAST_SHARE, MARGIN, remote_ratio, to_f64},
};
use crate::{
    policy::{HumanDuration, RebalanceSettings},
    turn::{Cpus, Figures, Move},
    words,
    workload::{CgroupPath, QosClass},
};
use numa_topology::{id::NodeId, set::NodeSet};

/// Workloads that one round asks.
const MOST_ASKED: usize = 32;
/// Possible exchange partners of a workload on one node.
const MOST_PARTNERS: usize = 64;

/// Speed of page moves, to estimate the time of a plan.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MoveSpeed {
    /// Bytes moved per second.
    pub bytes_per_second: u64,
    /// Bytes that one turn of the daemon moves at most.
    pub bytes_per_turn: u64,
    /// Seconds between two turns.
    pub turn_seconds: f64,
}

impl MoveSpeed {
    /// Pace with 1 GiB per second, which most kernels reach.
    pub fn usual(bytes_per_turn: u64, interval: HumanDuration) -> Self {
        Self { bytes_per_second: 1 << 30, bytes_per_turn, turn_seconds: interval.get().as_secs_f64() }
    }

    fn seconds(self, bytes: u64) -> f64 {
        let waits = bytes.saturating_sub(1) / self.bytes_per_turn.max(1);
        to_f64(bytes) / to_f64(self.bytes_per_second.max(1)) + to_f64(waits) * self.turn_seconds
    }
}

/// Plans a few moves that together fix the host, of at most `budget` bytes.
pub fn plan(
    host: &HostState<'_>,
    movers: &[Mover],
    settings: &RebalanceSettings,
    budget: u64,
    pace: MoveSpeed,
) -> RebalanceReport {
    let mut sorted: Vec<&Mover> = movers.iter().collect();
    sorted.sort_by(|one, other| one.cgroup.cmp(&other.cgroup));
    let mut state = PlanState::new(host, &sorted, settings, budget);
    let mut report = RebalanceReport {
        schema_version: REBALANCE_SCHEMA_VERSION,
        budget_bytes: budget,
        ..RebalanceReport::default()
    };
    let mut group = 0;
    while let Some(best) = next(&state, report.moves.len()) {
        group += 1;
        report.moves.extend(best.moves(&state, group, pace));
        report.bytes = report.bytes.saturating_add(best.bytes);
        report.gain += best.gain;
        report.cost += best.cost;
        state = best.after;
    }
    report.seconds = pace.seconds(report.bytes);
    let full = report.moves.len() >= usize::try_from(settings.max_moves).unwrap_or(usize::MAX);
    report.left = unmoved_workloads(&state, full);
    report
}

/// The next group of the plan.
fn next<'a>(state: &PlanState<'a>, moves: usize) -> Option<WeighedGroup<'a>> {
    let most = usize::try_from(state.settings.max_moves).unwrap_or(usize::MAX).saturating_sub(moves);
    let best = movable_workloads(state).into_iter().filter_map(|index| best_of(state, index).ok());
    best.filter(|weighed| weighed.steps.len() <= most).min_by(WeighedGroup::compare)
}

/// Workloads that should move, those with the greatest loss first.
fn movable_workloads(state: &PlanState<'_>) -> Vec<usize> {
    let mut asked: Vec<usize> =
        (0..state.movers.len()).filter(|index| should_move(state, *index).is_some()).collect();
    let lost = |index: usize| state.lost_per_second(index);
    asked.retain(|index| !state.moved[*index] && state.movers[*index].held_back.is_none());
    asked.sort_by(|one, other| lost(*other).total_cmp(&lost(*one)).then(one.cmp(other)));
    asked.truncate(MOST_ASKED);
    asked
}

/// The reason why a workload should move, in a few words; `None` if there is none.
fn should_move(state: &PlanState<'_>, index: usize) -> Option<String> {
    let mover = state.movers[index];
    if state.moved[index] {
        return None;
    }
    if mover.ails.contains(&Ailment::Remote) {
        let remote = remote_ratio(mover, &state.standing[index], state.host);
        return Some(format!("{} of its accesses are remote", words::percent(remote)));
    }
    if mover.ails.contains(&Ailment::FarFromDevices) {
        return Some(format!("its devices are on {}, where it has no CPU", words::nodes(&mover.devices)));
    }
    let short = state.short();
    let holds = |node: &NodeId| mover.bytes.get(node).is_some_and(|held| held.movable > 0);
    if let Some(node) = short.iter().find(holds) {
        let share = words::percent(state.share(node).unwrap_or(0.0));
        return Some(format!("node {node} is short of memory, of which {share} can be had"));
    }
    let shares = matches!(mover.cpus, CpusHeld::Together { .. });
    let crowded = state.crowded().intersection(&state.nodes(index));
    let node = crowded.first().filter(|_| shares)?;
    Some(format!("containers that share CPUs on node {node} want more CPU time than there is"))
}

/// A group that is worth its cost.
struct WeighedGroup<'a> {
    after: PlanState<'a>,
    steps: Vec<SettleStep>,
    gain: f64,
    cost: f64,
    bytes: u64,
    qos: QosClass,
    /// Index of the workload that the group is for.
    first: usize,
}

impl WeighedGroup<'_> {
    /// Order of groups: lowest class, then fewest bytes, then greatest saving.
    fn compare(&self, other: &Self) -> Ordering {
        Reverse(self.qos)
            .cmp(&Reverse(other.qos))
            .then(self.bytes.cmp(&other.bytes))
            .then((other.gain - other.cost).total_cmp(&(self.gain - self.cost)))
            .then(self.first.cmp(&other.first))
    }

    fn moves(&self, before: &PlanState<'_>, group: u32, pace: MoveSpeed) -> Vec<Move> {
        let together = self.steps.len() > 1;
        let of = |step: &SettleStep| {
            let (index, to) = (step.settle.index, step.settle.to);
            let mover = before.movers[index];
            let partner = self.steps.iter().find(|other| together && other.settle.index != index);
            Move {
                group,
                workload: mover.cgroup.clone(),
                qos: mover.qos,
                to,
                cpus_from: cpus(&before.cpus[index], before.nodes(index)),
                cpus_to: step.settle.cpus.as_ref().map(|new| cpus(new, NodeSet::from_iter([to]))),
                bytes_from: step.from.clone(),
                bytes: step.bytes,
                seconds: pace.seconds(step.bytes),
                now: figures(before, index),
                then: figures(&self.after, index),
                gain: self.gain,
                cost: self.cost,
                reason: self.reason(
                    before,
                    step,
                    partner.map(|other| &before.movers[other.settle.index].cgroup),
                ),
            }
        };
        self.steps.iter().map(of).collect()
    }

    fn reason(&self, before: &PlanState<'_>, step: &SettleStep, partner: Option<&CgroupPath>) -> String {
        let index = step.settle.index;
        let nodes = before.nodes(index);
        let mut does = Vec::new();
        if step.settle.cpus.is_some() {
            let exchange = partner.map(|other| format!(" in exchange with {other}")).unwrap_or_default();
            does.push(format!(
                "its CPUs go from {} to node {}{exchange}",
                words::nodes(&nodes),
                step.settle.to
            ));
        }
        if step.bytes > 0 {
            let from: NodeSet = step.from.keys().copied().collect();
            let size = words::size(step.bytes);
            does.push(format!("{size} on {} go to node {}", words::nodes(&from), step.settle.to));
        }
        let why = should_move(before, index)
            .or_else(|| Some(format!("it makes room for {}", partner?)))
            .unwrap_or_default();
        format!(
            "{why}: {}; that saves {:.1} CPU seconds within {} and costs {:.1}",
            does.join(", "),
            self.gain,
            before.settings.horizon,
            self.cost
        )
    }
}

fn cpus(held: &CpusHeld, nodes: NodeSet) -> Cpus {
    match held {
        CpusHeld::Alone(cpus) => Cpus { exclusive: cpus.clone(), nodes },
        CpusHeld::Together { .. } => Cpus { nodes, ..Cpus::default() },
    }
}

fn figures(state: &PlanState<'_>, index: usize) -> Figures {
    let mover = state.movers[index];
    let ratio = remote_ratio(mover, &state.standing[index], state.host);
    Figures { remote_ratio: mover.remote.map(|_| ratio), lost: state.lost_per_second(index) }
}

/// The best group of a workload, or the bound that refuses the group that comes closest.
fn best_of<'a>(state: &PlanState<'a>, index: usize) -> Result<WeighedGroup<'a>, GroupBound> {
    let mut best: Option<WeighedGroup<'a>> = None;
    let mut bound = GroupBound::NoNode;
    for group in groups(state, index) {
        let weighed = match group.and_then(|group| weigh(state, index, &group)) {
            Ok(weighed) => weighed,
            Err(refused) => {
                bound = bound.max(refused);
                continue;
            }
        };
        let net = |weighed: &WeighedGroup<'_>| weighed.gain - weighed.cost;
        // The first of equals: nodes in their order, alone before together.
        if best.as_ref().is_none_or(|best| net(&weighed) > net(best)) {
            best = Some(weighed);
        }
    }
    best.ok_or(bound)
}

fn weigh<'a>(state: &PlanState<'a>, first: usize, group: &[Settle]) -> Result<WeighedGroup<'a>, GroupBound> {
    let (after, steps) = state.after(group)?;
    let gain = state.lost(group) - after.lost(group);
    let cost = state.cost(&steps);
    let horizon = state.settings.horizon;
    let least = LEAST_SHARE * horizon.get().as_secs_f64();
    if gain < MARGIN * cost || gain < least {
        return Err(GroupBound::Worth(format!(
            "the best place saves {:.1} CPU seconds within {horizon}, and must save {:.1} to be worth moving",
            gain.max(0.0),
            (MARGIN * cost).max(least)
        )));
    }
    let bytes = steps.iter().fold(0u64, |sum, step| sum.saturating_add(step.bytes));
    let qos = steps.iter().map(|step| state.movers[step.settle.index].qos).min();
    let qos = qos.unwrap_or(QosClass::Guaranteed);
    Ok(WeighedGroup { after, steps, gain, cost, bytes, qos, first })
}

/// All groups in which a workload settles somewhere.
fn groups(state: &PlanState<'_>, index: usize) -> Vec<Result<Vec<Settle>, GroupBound>> {
    let mover = state.movers[index];
    let to_node = |to: NodeId| {
        let here = state.nodes(index);
        let on_it = here == NodeSet::from_iter([to]);
        if on_it && mover.away(state.host, to).is_empty() {
            return Vec::new();
        }
        if on_it {
            return vec![Ok(vec![Settle { index, to, cpus: None }])];
        }
        let mut groups = vec![alone(state, index, to)];
        if let Some(from) = here.first().filter(|_| here.len() == 1) {
            groups.extend(partners(state, index, from, to).into_iter().map(Ok));
        }
        groups
    };
    mover.may_settle.iter().flat_map(to_node).collect()
}

/// A workload settles on a node where there is room for it.
fn alone(state: &PlanState<'_>, index: usize, to: NodeId) -> Result<Vec<Settle>, GroupBound> {
    let cpus = match &state.cpus[index] {
        CpusHeld::Alone(cpus) => CpusHeld::Alone(state.take(to, cpus.len()).ok_or_else(|| {
            GroupBound::Cpus(format!("node {to} has fewer than {} free", words::count(cpus.len(), "CPU")))
        })?),
        CpusHeld::Together { milli, .. } => {
            CpusHeld::Together { nodes: NodeSet::from_iter([to]), milli: *milli }
        }
    };
    Ok(vec![Settle { index, to, cpus: Some(cpus) }])
}

/// Groups in which a workload exchanges its CPUs with a workload on the target node.
fn partners(state: &PlanState<'_>, index: usize, from: NodeId, to: NodeId) -> Vec<Vec<Settle>> {
    let target = NodeSet::from_iter([to]);
    let stands_there = |other: &usize| {
        *other != index
            && !state.moved[*other]
            && state.movers[*other].held_back.is_none()
            && state.movers[*other].may_settle.contains(from)
            && state.nodes(*other) == target
    };
    let exchange = |other: usize| {
        let (mine, theirs) = match (&state.cpus[index], &state.cpus[other]) {
            (CpusHeld::Alone(mine), CpusHeld::Alone(theirs)) if mine.len() == theirs.len() => {
                (CpusHeld::Alone(theirs.clone()), CpusHeld::Alone(mine.clone()))
            }
            (CpusHeld::Together { milli: mine, .. }, CpusHeld::Together { milli: theirs, .. }) => {
                let on = |node, milli: &u64| CpusHeld::Together {
                    nodes: NodeSet::from_iter([node]),
                    milli: *milli,
                };
                (on(to, mine), on(from, theirs))
            }
            _ => return None,
        };
        Some(vec![
            Settle { index, to, cpus: Some(mine) },
            Settle { index: other, to: from, cpus: Some(theirs) },
        ])
    };
    (0..state.movers.len()).filter(stands_there).take(MOST_PARTNERS).filter_map(exchange).collect()
}

/// Workloads that should move and stay, with the reason.
fn unmoved_workloads(state: &PlanState<'_>, full: bool) -> Vec<UnmovedWorkload> {
    let mut left = Vec::new();
    for (index, mover) in state.movers.iter().enumerate() {
        let Some(ails) = should_move(state, index) else { continue };
        let why = match (&mover.held_back, best_of(state, index)) {
            (Some(held_back), _) => held_back.clone(),
            (None, Ok(_)) if full => "as many as one plan moves come before it (rebalance.max_moves)".into(),
            (None, Ok(_)) => "others come before it".into(),
            (None, Err(bound)) => bound.into_reason(),
        };
        let reason = format!("{ails}, but {why}");
        left.push(UnmovedWorkload { workload: mover.cgroup.clone(), ailing: true, reason });
    }
    left
}
