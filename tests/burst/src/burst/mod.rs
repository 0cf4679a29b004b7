//! One burst: an agenda of what happens, and what happens then.
//!
//! A cycle of the scheduler ends with an assumed node. The binding lands after a delay; the kubelet sees it
//! later, admits its pods one by one, and publishes. The containers start after that. A refused pod is
//! failed, and its `ReplicaSet` makes another one.
//!
//! Invariants: each pod is in the queue, assumed, bound, or refused. Simulated time never passes a binding
//! that the product has not answered by more than [`BIND_SLACK`].

mod agenda;
mod cycle;
mod node_side;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    thread,
    time::Duration,
};

use anyhow::Result;
use numa_placement::PodRequest;
use serde_json::Value;

use self::agenda::{Agenda, Happening};
use crate::{
    Arm, MS, Micros, SECOND,
    cache::NodeSums,
    draw::Draw,
    kubelet::{SimulatedKubelet, ZoneAmounts, empty_state},
    nrt::{NrtPlugin, PublishedZones},
    product::ServedCluster,
    queue::SchedulingQueue,
    report::{ArmReport, Spread},
    workload::{PodShape, planted},
};

/// Simulated time passes at most so many times as fast as real time where the product is asked.
const SPEED: u64 = 10;
/// Longest real sleep for one step of simulated time.
const LONGEST_SLEEP: Duration = Duration::from_millis(50);
/// Simulated time that may pass until the reply to a binding that was sent.
const BIND_SLACK: Micros = 50 * MS;
/// Real time in which the product learns what has happened, before pods are tried a last time.
const SETTLE: Duration = Duration::from_millis(500);
/// When a burst ends that has not come to rest: refused pods are replaced without end.
const LIMIT: Micros = 120 * SECOND;
/// Longest backoff of a kube-scheduler that is not configured.
const LONGEST_BACKOFF: Micros = 10 * SECOND;
/// Time between two resyncs of the cache of `NodeResourceTopologyMatch`, as its documentation advises.
const RESYNC: Micros = 5 * SECOND;
/// Resyncs after which one more would change nothing.
const RESYNCS_AT_REST: u64 = 4;

/// What a burst consists of.
#[derive(Debug, Clone)]
pub struct Scenario {
    /// Number of nodes.
    pub nodes: usize,
    /// Part of the CPUs that the pods take, in percent of what an exact packer reaches.
    pub percent: u64,
    /// Topology policy of all kubelets.
    pub policy: String,
    /// Seed of all draws.
    pub seed: u64,
    /// The product, for the arms that ask it.
    pub product: Option<PathBuf>,
}

/// A pod.
#[derive(Debug)]
struct BurstPod {
    name: String,
    shape: PodShape,
    request: PodRequest,
    object: Value,
    attempts: u32,
    /// The node that the scheduler has assumed.
    node: Option<usize>,
}

/// A node.
#[derive(Debug)]
struct BurstNode {
    name: String,
    kubelet: SimulatedKubelet,
    sums: NodeSums,
    /// When its kubelet has admitted what it was sent so far.
    admits_from: Micros,
    /// When its state was published last.
    published: Micros,
    will_publish: bool,
    /// Pods that the scheduler knows as running there.
    running: BTreeSet<String>,
}

/// A burst that runs.
struct Burst {
    arm: Arm,
    draw: Draw,
    agenda: Agenda,
    now: Micros,
    pods: Vec<BurstPod>,
    numbers: BTreeMap<String, usize>,
    nodes: Vec<BurstNode>,
    queue: SchedulingQueue,
    percent_of_nodes: usize,
    /// Where the next search begins.
    start: usize,
    /// When the scheduler's current cycle ends.
    free_from: Micros,
    will_cycle: bool,
    nrt: Option<NrtPlugin>,
    product: Option<ServedCluster>,
    /// Bindings without a reply, by pod: when they were sent.
    unanswered: BTreeMap<usize, Micros>,
    /// When a binding landed last.
    last_bound: Micros,
    /// Bindings of the stub that were seen.
    landed: usize,
    /// Simulated time that was not slept for yet.
    unslept: Micros,
    report: ArmReport,
}

/// Lets an arm schedule a burst.
///
/// # Errors
/// If the product does not answer, or a simulated part fails.
pub fn run(arm: Arm, scenario: &Scenario) -> Result<ArmReport> {
    let mut burst = Burst::new(arm, scenario)?;
    burst.play()?;
    Ok(burst.into_report())
}

impl Burst {
    fn new(arm: Arm, scenario: &Scenario) -> Result<Self> {
        let mut draw = Draw::new(scenario.seed);
        let kubelet = || SimulatedKubelet::new(&scenario.policy);
        let zones = kubelet()?.free();
        let free: Vec<u64> = zones.iter().map(|zone| zone.cpus).collect();
        let shapes = planted(scenario.nodes, &free, scenario.percent, &mut draw);
        let sum = |of: fn(&ZoneAmounts) -> u64| zones.iter().map(of).sum();
        let allocatable = ZoneAmounts { cpus: sum(|zone| zone.cpus), memory: sum(|zone| zone.memory) };
        let mut nodes = Vec::new();
        for number in 0..scenario.nodes {
            nodes.push(BurstNode {
                name: format!("node-{number:04}"),
                kubelet: kubelet()?,
                sums: NodeSums::new(allocatable),
                admits_from: 0,
                published: 0,
                will_publish: false,
                running: BTreeSet::new(),
            });
        }
        let product = match (arm.asks_product(), &scenario.product) {
            (false, _) => None,
            (true, None) => anyhow::bail!("{} needs the product", arm.as_str()),
            (true, Some(program)) => {
                let names: Vec<String> = nodes.iter().map(|node| node.name.clone()).collect();
                let state = empty_state(&scenario.policy);
                Some(ServedCluster::start(program, &names, &state, arm == Arm::FilterOnly)?)
            }
        };
        let configured = product.as_ref().map(|product| &product.configuration);
        let longest =
            configured.map_or(LONGEST_BACKOFF, |configured| configured.pod_max_backoff_seconds * SECOND);
        let percent_of_nodes = configured.map_or(0, |configured| configured.percentage_of_nodes_to_score);
        let acts = scenario.policy == "single-numa-node";
        let nrt = matches!(arm, Arm::Nrt | Arm::NrtOverReserve).then(|| {
            let published = PublishedZones { zones, pods: BTreeSet::new() };
            NrtPlugin::new(&published, scenario.nodes, arm == Arm::NrtOverReserve, acts)
        });
        let mut burst = Self {
            arm,
            draw,
            agenda: Agenda::default(),
            now: 0,
            pods: Vec::new(),
            numbers: BTreeMap::new(),
            nodes,
            queue: SchedulingQueue::new(longest),
            percent_of_nodes,
            start: 0,
            free_from: 0,
            will_cycle: false,
            nrt,
            product,
            unanswered: BTreeMap::new(),
            last_bound: 0,
            landed: 0,
            unslept: 0,
            report: ArmReport::new(arm, shapes.len()),
        };
        for shape in shapes {
            burst.create(shape);
        }
        Ok(burst)
    }

    /// Creates a pod, which waits for a node.
    fn create(&mut self, shape: PodShape) {
        let number = self.pods.len();
        let name = format!("pod-{number:06}");
        if let Some(product) = &self.product {
            product.create(&name, &shape);
        }
        let (request, object) = (shape.request(&name), shape.object(&name));
        self.numbers.insert(name.clone(), number);
        self.pods.push(BurstPod { name, shape, request, object, attempts: 0, node: None });
        self.queue.push(number);
        self.report.created += 1;
    }

    fn play(&mut self) -> Result<()> {
        if self.arm == Arm::NrtOverReserve {
            self.agenda.add(RESYNC, Happening::Resync);
        }
        let mut last_try = None;
        loop {
            self.take_landed()?;
            self.take_replies()?;
            self.plan_cycle();
            let is_at_rest = self.agenda.only_resync() && self.unanswered.is_empty();
            if is_at_rest && self.report.running == self.report.wanted {
                return Ok(());
            }
            let waits_for_resync =
                self.agenda.next().is_some() && self.now < self.last_bound + RESYNCS_AT_REST * RESYNC;
            if is_at_rest && !waits_for_resync {
                // As the flush of pods without a place after five minutes.
                if last_try == Some(self.report.bound) || self.queue.unschedulable() == 0 {
                    return Ok(());
                }
                last_try = Some(self.report.bound);
                if self.product.is_some() {
                    thread::sleep(SETTLE);
                }
                self.queue.wake(Micros::MAX);
                continue;
            }
            let Some(at) = self.agenda.next() else {
                self.wait_for_reply()?;
                continue;
            };
            if at > LIMIT {
                self.report.reached_limit = true;
                return Ok(());
            }
            // A reply changes what happens next.
            if self.unanswered.values().any(|sent| at > sent + BIND_SLACK) {
                self.wait_for_reply()?;
                continue;
            }
            self.sleep_until(at);
            self.now = at;
            if let Some(happening) = self.agenda.take() {
                self.happen(happening)?;
            }
        }
    }

    fn happen(&mut self, happening: Happening) -> Result<()> {
        match happening {
            Happening::Cycle => self.cycle()?,
            Happening::Bind(pod) => self.bind(pod)?,
            Happening::Admit(pod, node) => self.admit(pod, node),
            Happening::Starts(pod, node) => self.starts(pod, node),
            Happening::SchedulerSeesRunning(pod, node) => {
                self.nodes[node].running.insert(self.pods[pod].name.clone());
                self.wake_after_pod_event();
            }
            Happening::SchedulerSeesFailed(pod, node) => self.see_failed(pod, node),
            Happening::Replace(pod) => self.create(self.pods[pod].shape.clone()),
            Happening::Publish(node) => self.publish(node)?,
            Happening::SchedulerSeesZones(node, zones) => {
                if let Some(nrt) = &mut self.nrt {
                    nrt.observe(node, zones);
                    self.queue.wake(self.now);
                }
            }
            Happening::Resync => {
                let running: Vec<BTreeSet<String>> =
                    self.nodes.iter().map(|node| node.running.clone()).collect();
                if let Some(nrt) = &mut self.nrt {
                    nrt.resync(&running);
                }
                self.agenda.add(self.now + RESYNC, Happening::Resync);
                // Kinder than the plugin, after whose resync pods wait for the next event, or the flush.
                self.queue.wake(self.now);
            }
        }
        Ok(())
    }

    fn delay(&mut self, least: Micros, most: Micros) -> Micros {
        self.now + self.draw.between(least, most)
    }

    /// Events of pods help pods that an extender, or a sum, has refused.
    fn wake_after_pod_event(&mut self) {
        if self.product.is_some() {
            self.queue.wake(self.now);
        }
    }

    /// Lets real time keep up where the product is asked.
    fn sleep_until(&mut self, at: Micros) {
        if self.product.is_none() {
            return;
        }
        self.unslept += at.saturating_sub(self.now) / SPEED;
        if self.unslept >= MS {
            thread::sleep(Duration::from_micros(self.unslept).min(LONGEST_SLEEP));
            self.unslept = 0;
        }
    }

    fn into_report(mut self) -> ArmReport {
        let attempts = self.pods.iter().map(|pod| u64::from(pod.attempts)).sum();
        self.report.attempts = attempts;
        self.report.ended_us = self.now;
        self.report
    }

    /// Notes that a pod runs, on these many NUMA nodes.
    fn note_spread(&mut self, numa_nodes: usize) {
        let Spread { pods, numa_nodes: all } = &mut self.report.spread;
        *pods += 1;
        *all += numa_nodes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scenario(percent: u64, seed: u64) -> Scenario {
        Scenario { nodes: 12, percent, policy: "single-numa-node".into(), seed, product: None }
    }

    #[test]
    fn sums_alone_send_pods_to_nodes_that_refuse_them() {
        let report = run(Arm::Default, &scenario(95, 3)).unwrap();
        assert!(report.refusals() > 0, "{report:?}");
        assert_eq!(report.created as u64, report.wanted as u64 + report.refusals());
        let again = run(Arm::Default, &scenario(95, 3)).unwrap();
        assert_eq!(again.to_json(), report.to_json(), "the same seed is the same burst");
    }

    #[test]
    fn pods_that_fit_easily_all_run() {
        for arm in [Arm::Default, Arm::Nrt, Arm::NrtOverReserve] {
            let report = run(arm, &scenario(30, 5)).unwrap();
            assert_eq!((report.running, report.reached_limit), (report.wanted, false), "{report:?}");
        }
    }

    #[test]
    fn states_that_come_late_let_pods_be_refused_and_the_cache_of_reservations_prevents_most() {
        let refusals =
            |arm| (0..4).map(|seed| run(arm, &scenario(95, seed)).unwrap().refusals()).sum::<u64>();
        let (stale, cached) = (refusals(Arm::Nrt), refusals(Arm::NrtOverReserve));
        assert!(stale > 0 && cached < stale, "{stale} {cached}");
    }

    #[test]
    fn where_kubelets_split_pods_nothing_is_refused() {
        let split = Scenario { policy: "best-effort".into(), ..scenario(95, 3) };
        let report = run(Arm::Default, &split).unwrap();
        assert_eq!(report.refusals(), 0);
        assert!(report.running * 10 > report.wanted * 9, "{report:?}");
        assert!(report.spread.numa_nodes > report.spread.pods, "{report:?}");
    }
}
