//! Very many pods against the decisions alone, in this process: HTTP would take hours.
//!
//! Pods are filtered, bound and admitted one after another on nodes that are nearly full, and end after a
//! while. Bindings land late and in another order than they were chosen, except on one node; states and pod
//! events reach the extender late; kubelets free what a pod held before its end is shown. The first refusal
//! shows a fault in the decisions, so each is counted with its reason.
//!
//! Invariants: kubelets and the extender see the events of pods in one order, each at its own pace. Time is
//! simulated, so a seed gives the same run each time.

use std::collections::{BTreeMap, VecDeque};

use anyhow::{Context as _, Result};
use enforcer_core::cluster::{
    extender::{BindEnd, Binder, Extender, ExtenderSettings, FilterCall, PodBinding},
    objects::{NodeObject, PodArrival, PodObject, PodPhase, PodScheduling, StateObject, StateOrigin},
    state::NodeState,
};

use crate::{
    cache::{NodeSums, sums_of},
    draw::Draw,
    kubelet::{SimulatedKubelet, ZoneAmounts},
    workload::{PodShape, planted},
};

/// Pods that are chosen and not bound yet, at most.
const CHOSEN: usize = 24;
/// Milliseconds of simulated time for each step.
const STEP: u64 = 5;
/// Pods of which the nodes are kept nearly full, in percent of their CPUs.
const FULL: u64 = 92;

/// What to run.
#[derive(Debug, Clone, Copy)]
pub struct EnduranceRun {
    /// Pods that are to be bound.
    pub pods: u64,
    /// Number of nodes.
    pub nodes: usize,
    /// Which program binds.
    pub binder: Binder,
    /// Seed of all draws.
    pub seed: u64,
}

/// What it came to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct EnduranceReport {
    /// Bindings that landed.
    pub bound: u64,
    /// Pods that kubelets admitted.
    pub admitted: u64,
    /// Pods that kubelets refused, by reason.
    pub refused: BTreeMap<String, u64>,
    /// Filter calls.
    pub filters: u64,
    /// Filter calls that no node passed.
    pub without_node: u64,
    /// Bindings that the extender refused.
    pub unbound: u64,
    /// Pods that are not where they were predicted to be.
    pub mispredicted: usize,
    /// Most pods at a time that held something.
    pub most_at_a_time: usize,
}

#[derive(Debug, Clone)]
enum ApiEvent {
    Bound(PodObject),
    Gone(PodObject),
}

#[derive(Debug)]
struct EnduranceNode {
    name: String,
    kubelet: SimulatedKubelet,
    sums: NodeSums,
    /// Events of its pods, and how many of them the kubelet has seen.
    events: VecDeque<ApiEvent>,
    /// States that are on their way.
    states: VecDeque<(u64, NodeState)>,
    next_state: u64,
    is_changed: bool,
    is_binding: bool,
}

struct Endurance {
    run: EnduranceRun,
    draw: Draw,
    now: u64,
    extender: Extender,
    nodes: Vec<EnduranceNode>,
    names: Vec<String>,
    /// Events that the extender has not seen, and when it sees them.
    unseen: VecDeque<(u64, ApiEvent)>,
    /// Pods that wait for a node.
    waiting: VecDeque<(PodObject, PodShape)>,
    /// Pods that have a node, of which the binding is not sent.
    chosen: Vec<(PodObject, PodShape, usize)>,
    /// Bindings on their way.
    sent: Vec<(PodObject, PodShape, usize)>,
    running: Vec<(PodObject, PodShape, usize)>,
    /// Pods that have ended and are shown later.
    ended: VecDeque<(u64, PodObject, PodShape, usize)>,
    shapes: Vec<PodShape>,
    created: u64,
    calls: u64,
    /// Whether the last pod had no node, so that pods have to end.
    is_short: bool,
    report: EnduranceReport,
}

/// Runs until so many pods were bound.
///
/// # Errors
/// If a simulated node cannot be made, or no pod is bound for a long time.
pub fn run(run: EnduranceRun) -> Result<EnduranceReport> {
    let mut endurance = Endurance::new(run)?;
    let (mut bound, mut since) = (0, 0_u64);
    while endurance.report.bound < run.pods {
        endurance.step();
        since = if endurance.report.bound > bound { 0 } else { since + 1 };
        bound = endurance.report.bound;
        anyhow::ensure!(since < 1_000_000, "no pod was bound for a long time: {:?}", endurance.report);
    }
    Ok(endurance.report)
}

fn pod_of(name: &str, shape: &PodShape) -> PodObject {
    PodObject {
        uid: name.to_owned(),
        mirror_of: None,
        node: None,
        phase: PodPhase::Pending,
        arrival: PodArrival::default(),
        ended_at: None,
        ended_init: Vec::new(),
        scheduling: PodScheduling::default(),
        counted: None,
        request: shape.request(name),
    }
}

fn state_object(name: &str, state: NodeState) -> StateObject {
    StateObject {
        name: name.to_owned(),
        api_version: String::new(),
        origin: StateOrigin { owner_uid: Some(name.to_owned()), ..StateOrigin::default() },
        writers: Vec::new(),
        unknown_fields: Vec::new(),
        state: Ok(state),
    }
}

impl Endurance {
    fn new(run: EnduranceRun) -> Result<Self> {
        let settings = ExtenderSettings { binder: run.binder, ..ExtenderSettings::default() };
        let mut extender = Extender::new(settings);
        let (mut nodes, mut draw) = (Vec::new(), Draw::new(run.seed));
        for number in 0..run.nodes {
            let name = format!("node-{number:04}");
            let kubelet = SimulatedKubelet::new("single-numa-node").context("make a node")?;
            let node = NodeObject { name: name.clone(), uid: name.clone(), ..NodeObject::default() };
            extender.observe_node(NodeObject { is_ready: true, ..node }, 0);
            extender.observe_state(state_object(&name, kubelet.state()), 0);
            let zones = kubelet.free();
            let sum = |of: fn(&ZoneAmounts) -> u64| zones.iter().map(of).sum();
            let all = ZoneAmounts { cpus: sum(|zone| zone.cpus), memory: sum(|zone| zone.memory) };
            nodes.push(EnduranceNode {
                name,
                kubelet,
                sums: NodeSums::new(all),
                events: VecDeque::new(),
                states: VecDeque::new(),
                next_state: 0,
                is_changed: false,
                is_binding: false,
            });
        }
        extender.begin_pod_list(0);
        extender.end_pod_list(0);
        let shapes = planted(200, &[14, 16], 100, &mut draw);
        let names = nodes.iter().map(|node| node.name.clone()).collect();
        Ok(Self {
            run,
            draw,
            now: 0,
            extender,
            nodes,
            names,
            unseen: VecDeque::new(),
            waiting: VecDeque::new(),
            chosen: Vec::new(),
            sent: Vec::new(),
            running: Vec::new(),
            ended: VecDeque::new(),
            shapes,
            created: 0,
            calls: 0,
            is_short: false,
            report: EnduranceReport::default(),
        })
    }

    fn step(&mut self) {
        self.now += STEP;
        if self.now.is_multiple_of(2_000) {
            self.extender.tick(self.now, 0);
        }
        self.create();
        self.filter();
        self.send();
        self.land();
        self.end_pods();
        self.show_ends();
        for node in 0..self.nodes.len() {
            self.kubelet_sees(node);
            self.publish(node);
        }
        self.extender_sees();
        self.report.mispredicted += self.extender.take_tally().mispredicted.len();
        self.report.most_at_a_time = self.report.most_at_a_time.max(self.running.len());
    }

    fn create(&mut self) {
        while self.waiting.len() < 8 {
            let shape = self.shapes[self.draw.below(self.shapes.len())].clone();
            let name = format!("pod-{}", self.created);
            self.created += 1;
            self.waiting.push_back((pod_of(&name, &shape), shape));
        }
    }

    /// One cycle of the scheduler.
    fn filter(&mut self) {
        if self.chosen.len() >= CHOSEN {
            return;
        }
        let Some((pod, shape)) = self.waiting.pop_front() else { return };
        let wanted = sums_of(&shape);
        let fitting: Vec<usize> =
            (0..self.nodes.len()).filter(|node| self.nodes[*node].sums.fits(wanted)).collect();
        let names: Vec<&str> = fitting.iter().map(|node| self.names[*node].as_str()).collect();
        self.calls += 1;
        self.report.filters += 1;
        let call = FilterCall { pod: &pod, nodes: &names, number: self.calls, accepted: self.now };
        let answer = self.extender.filter(call, self.now);
        let scores = if self.run.binder == Binder::Extender {
            let passed: Vec<&str> = answer.passed.iter().map(|at| names[*at]).collect();
            self.extender.prioritize(&pod, &passed, self.now)
        } else {
            vec![0; answer.passed.len()]
        };
        let best = answer.passed.iter().zip(scores).max_by_key(|(_, score)| *score);
        self.is_short = best.is_none();
        if let Some((at, _)) = best {
            let node = fitting[*at];
            self.nodes[node].sums.take(wanted);
            self.chosen.push((pod, shape, node));
        } else {
            self.report.without_node += 1;
            self.waiting.push_back((pod, shape));
        }
    }

    /// A binding is sent: any of those that are chosen.
    fn send(&mut self) {
        if self.chosen.is_empty() || self.draw.between(0, 3) == 0 {
            return;
        }
        let at = self.draw.below(self.chosen.len());
        let node = self.chosen[at].2;
        let is_extender = self.run.binder == Binder::Extender;
        if is_extender && self.nodes[node].is_binding {
            return;
        }
        let (pod, shape, node) = self.chosen.swap_remove(at);
        let binding = PodBinding { uid: &pod.uid, node: &self.names[node] };
        if is_extender && self.extender.begin_bind(binding, self.now).is_err() {
            self.report.unbound += 1;
            self.nodes[node].sums.give_back(sums_of(&shape));
            self.waiting.push_back((pod, shape));
            return;
        }
        self.nodes[node].is_binding = is_extender;
        self.sent.push((pod, shape, node));
    }

    /// A binding lands: any of those on their way.
    fn land(&mut self) {
        if self.sent.is_empty() || self.draw.between(0, 3) == 0 {
            return;
        }
        let at = self.draw.below(self.sent.len());
        let (pod, shape, node) = self.sent.swap_remove(at);
        self.report.bound += 1;
        let bound = PodObject { node: Some(self.names[node].clone()), ..pod };
        if self.run.binder == Binder::Extender {
            let binding = PodBinding { uid: &bound.uid, node: &self.names[node] };
            self.extender.end_bind(binding, BindEnd::Bound);
            self.nodes[node].is_binding = false;
        }
        self.tell(node, ApiEvent::Bound(bound.clone()));
        self.running.push((bound, shape, node));
    }

    /// An event of the API is on its way to the kubelet and to the extender.
    fn tell(&mut self, node: usize, event: ApiEvent) {
        self.nodes[node].events.push_back(event.clone());
        let last = self.unseen.back().map_or(0, |(at, _)| *at);
        let at = (self.now + self.draw.between(5, 100)).max(last);
        self.unseen.push_back((at, event));
    }

    /// Pods end so that the nodes stay nearly full.
    fn end_pods(&mut self) {
        let taken: u64 = self.running.iter().map(|(_, shape, _)| shape.cpus()).sum();
        let all = self.nodes.len() as u64 * 30;
        let is_full = self.is_short || taken * 100 >= all * FULL;
        if !is_full || self.running.is_empty() {
            return;
        }
        let at = self.draw.below(self.running.len());
        let (pod, _, node) = &self.running[at];
        // Its containers run.
        if !self.nodes[*node].kubelet.holders().contains(&pod.uid) {
            return;
        }
        let (pod, shape, node) = self.running.swap_remove(at);
        self.nodes[node].kubelet.end(&pod.request);
        self.nodes[node].is_changed = true;
        let shown = self.now + self.draw.between(5, 200);
        self.ended.push_back((shown, pod, shape, node));
    }

    fn show_ends(&mut self) {
        let (due, later) = std::mem::take(&mut self.ended).into_iter().partition(|(at, ..)| *at <= self.now);
        self.ended = later;
        let due: VecDeque<_> = due;
        for (_, pod, shape, node) in due {
            self.nodes[node].sums.give_back(sums_of(&shape));
            self.tell(node, ApiEvent::Gone(pod));
        }
    }

    /// The kubelet takes one event of its pods.
    fn kubelet_sees(&mut self, node: usize) {
        if self.draw.between(0, 2) > 0 {
            return;
        }
        let known = &mut self.nodes[node];
        let Some(ApiEvent::Bound(pod)) = known.events.pop_front() else { return };
        known.is_changed = true;
        match known.kubelet.admit(&pod.request) {
            Ok(_) => self.report.admitted += 1,
            Err(reason) => {
                *self.report.refused.entry(reason).or_default() += 1;
                let Some(at) = self.running.iter().position(|(other, ..)| other.uid == pod.uid) else {
                    return;
                };
                let (pod, shape, node) = self.running.swap_remove(at);
                self.nodes[node].sums.give_back(sums_of(&shape));
                self.tell(node, ApiEvent::Gone(pod));
            }
        }
    }

    /// The node publishes, 0.1 to 0.6 s after a change; the extender sees it up to 0.2 s later.
    fn publish(&mut self, node: usize) {
        let (now, delay, lag) = (self.now, self.draw.between(100, 600), self.draw.between(5, 200));
        let known = &mut self.nodes[node];
        if known.is_changed && known.next_state == 0 {
            known.next_state = now + delay;
        }
        if known.next_state > 0 && known.next_state <= now {
            (known.next_state, known.is_changed) = (0, false);
            known.states.push_back((now + lag, known.kubelet.state()));
        }
        if known.states.front().is_some_and(|(at, _)| *at <= now)
            && let Some((_, state)) = known.states.pop_front()
        {
            self.extender.observe_state(state_object(&known.name, state), now);
        }
    }

    fn extender_sees(&mut self) {
        while let Some((_, event)) = self.unseen.pop_front_if(|(at, _)| *at <= self.now) {
            match event {
                ApiEvent::Bound(pod) => self.extender.observe_pod(pod, self.now),
                ApiEvent::Gone(pod) => {
                    let ended = PodObject { phase: PodPhase::Ended, ..pod.clone() };
                    self.extender.observe_pod(ended, self.now);
                    self.extender.observe_pod_gone(&pod.uid, self.now);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_pod_is_refused_on_nodes_that_stay_nearly_full() {
        for (binder, seed) in [(Binder::Extender, 1), (Binder::Scheduler, 2)] {
            let report = run(EnduranceRun { pods: 120, nodes: 4, binder, seed }).unwrap();
            assert_eq!(report.refused, BTreeMap::new(), "{report:?}");
            assert!(report.admitted > 100 && report.without_node > 0, "{report:?}");
        }
    }
}
