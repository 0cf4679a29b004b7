//! State that a restart of the daemon and a resize must preserve for later decisions.

use proptest::prelude::*;

use super::{
    tests::{Act, any_act},
    *,
};
use crate::policy::placement::{PlacementEngine, TopologyPolicy};
use numa_placement::samples::{GIB, Host, container, pod, policy};
use numa_topology::synth::Machine;

/// A host with one engine, its containers, and the request of each.
struct Scene {
    host: Host,
    containers: Containers,
    asked: BTreeMap<String, Announced>,
}

impl Scene {
    /// Two nodes of 8 CPUs (0-7, 8-15) and 16 GiB.
    fn new(engine: PlacementEngine) -> Self {
        let machine = Machine::new().sockets(2).cores(8).threads(1).build();
        let mut host = Host::new(machine, policy(TopologyPolicy::Restricted));
        host.settings.engine = engine;
        Self { host, containers: Containers::default(), asked: BTreeMap::new() }
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Containers, &mut PlacementNode<'_>) -> T) -> T {
        let Host { inventory, settings, allocations } = &mut self.host;
        act(&mut self.containers, &mut PlacementNode { inventory, settings, allocations })
    }

    fn create(&mut self, number: u8, id: &str, milli: u64) -> CallOutcome {
        let new = announced(number, id, milli);
        self.asked.insert(id.to_owned(), new.clone());
        self.with(|containers, node| containers.create(node, &new))
    }

    fn resize(&mut self, id: &str, milli: u64) -> CallOutcome {
        let Some(known) = self.asked.get(id) else { return CallOutcome::default() };
        let mut changed = known.clone();
        changed.pod.containers = vec![asking(id, changed.pod.qos, milli)];
        let settled = self.with(|containers, node| containers.resize(node, changed.clone()));
        if settled.rejections.is_empty() {
            self.asked.insert(id.to_owned(), changed);
        }
        settled
    }

    fn end(&mut self, id: &str) {
        self.asked.remove(id);
        self.with(|containers, node| containers.end(node, id));
    }

    /// Creates, resizes or ends a container; nothing if it is there already.
    fn play(&mut self, act: &Act) {
        match *act {
            Act::Create(number, id, halves) if !self.asked.contains_key(&format!("c{id}")) => {
                self.create(number, &format!("c{id}"), halves * 500);
            }
            Act::Resize(id, halves) => drop(self.resize(&format!("c{id}"), halves * 500)),
            Act::End(id) => self.end(&format!("c{id}")),
            Act::Create(..) | Act::Synchronize(_) => {}
        }
    }

    /// The same host after a restart of the daemon, when its runtime has reported `all` containers. The
    /// records pass through their serialized form.
    fn restarted(&mut self, reversed: bool) -> Self {
        let records = self.containers.records(&self.host.allocations);
        let text = serde_json::to_string(&records).unwrap();
        let records = serde_json::from_str(&text).unwrap();
        let asked = self.asked.clone();
        let mut all: Vec<Announced> = asked.values().cloned().collect();
        for one in &mut all {
            one.shown = self.with(|containers, node| containers.cpuset(node, &one.id));
        }
        if reversed {
            all.reverse();
        }
        let mut again = Self { asked, ..Self::new(self.host.settings.engine) };
        again.with(|containers, node| {
            containers.expect(node.allocations, records);
            containers.synchronize(node, all, &BTreeSet::new());
        });
        again
    }

    fn has_unplaced(&self) -> bool {
        self.host.allocations.iter().any(|(_, grant)| grant.engine == UNPLACED)
    }

    fn cpus(&mut self, id: &str) -> String {
        let cpuset = self.with(|containers, node| containers.cpuset(node, id)).unwrap_or_default();
        cpuset.cpus.unwrap_or_default().to_string()
    }
}

fn asking(id: &str, qos: QosClass, milli: u64) -> ContainerRequest {
    let asked = container(id, milli, GIB / 4);
    if qos == QosClass::Guaranteed { asked } else { asked.without_limits() }
}

/// Pods with even numbers are Guaranteed; every third has an affinity for pods with the label of a database.
fn announced(number: u8, id: &str, milli: u64) -> Announced {
    let qos = if number.is_multiple_of(2) { QosClass::Guaranteed } else { QosClass::Burstable };
    let mut pod = pod(&format!("p{number}"), vec![asking(id, qos, milli)]);
    pod.qos = qos;
    pod.labels = BTreeMap::from([("app".to_owned(), ["db", "web"][usize::from(number % 2)].to_owned())]);
    if number.is_multiple_of(3) {
        let rule = "[{scope: {key: pod/name, operator: Exists}, \
                    match: {key: labels/app, operator: Equals, values: [db]}, weight: 10}]";
        let lines: Vec<String> = (0..10).map(|id| format!("c{id}: {rule}")).collect();
        pod.annotations.insert("resource-policy.nri.io/affinity".to_owned(), lines.join("\n"));
    }
    Announced {
        id: id.into(),
        cgroup: Some(CgroupPath::new(&format!("/kubepods/p{number}/{id}"))),
        pod,
        now: Cpuset::default(),
        shown: None,
        given: None,
        named_claims: BTreeSet::new(),
        claimed: None,
        opts_out: false,
    }
}

proptest! {
    /// Records, a restart and the runtime's reports restore the previous state: each whole grant, the order
    /// of arrival, and the known part of each pod.
    #[test]
    fn a_restart_forgets_nothing(
        acts in prop::collection::vec(any_act(), 1..30),
        pools: bool,
        reversed: bool,
    ) {
        let mut scene = Scene::new(if pools { PlacementEngine::Pools } else { PlacementEngine::Hints });
        for act in acts {
            scene.play(&act);
        }
        // An unplaced container may find a place now.
        prop_assume!(!scene.has_unplaced());
        let again = scene.restarted(reversed);
        let grants = |scene: &Scene| {
            let all = scene.host.allocations.in_arrival_order(|_| true);
            all.map(|(holder, grant)| (holder.clone(), grant.clone())).collect::<Vec<_>>()
        };
        prop_assert_eq!(grants(&again), grants(&scene));
        prop_assert_eq!(&again.host.allocations, &scene.host.allocations);
        let known = |scene: &Scene| format!("{:#?}", (&scene.containers.pods, &scene.containers.holders));
        prop_assert_eq!(known(&again), known(&scene));
    }

    /// A resize and a second container of the pod keep the order of arrival.
    #[test]
    fn a_change_of_a_pod_keeps_its_arrival_order(
        acts in prop::collection::vec(any_act(), 1..30),
        pools: bool,
    ) {
        let mut scene = Scene::new(if pools { PlacementEngine::Pools } else { PlacementEngine::Hints });
        for act in acts {
            let order = |scene: &Scene| -> Vec<Holder> {
                scene.host.allocations.in_arrival_order(|_| true).map(|(holder, _)| holder.clone()).collect()
            };
            let before = order(&scene);
            scene.play(&act);
            let now = order(&scene);
            let stayed: Vec<&Holder> = before.iter().filter(|holder| now.contains(holder)).collect();
            prop_assert_eq!(now.iter().take(stayed.len()).collect::<Vec<_>>(), stayed);
        }
    }
}

#[test]
fn the_youngest_is_displaced_also_after_the_oldest_was_resized() {
    let mut scene = Scene::new(PlacementEngine::Hints);
    scene.create(0, "far", 7000);
    scene.create(1, "old", 3000);
    scene.create(3, "young", 3000);
    let home = [scene.cpus("old"), scene.cpus("young")];
    assert_eq!(home[0], home[1]);
    for milli in [2500, 3000] {
        scene.resize("old", milli);
    }
    scene.create(2, "exclusive", 4000);
    let now = [scene.cpus("old"), scene.cpus("young")];
    assert!(now[0].parse::<CpuSet>().unwrap().is_subset(&home[0].parse().unwrap()), "{home:?} {now:?}");
    assert!(!now[1].parse::<CpuSet>().unwrap().is_subset(&home[1].parse().unwrap()), "{home:?} {now:?}");
}

#[test]
fn a_container_that_was_changed_meanwhile_keeps_its_turn_over_a_restart() {
    let mut scene = Scene::new(PlacementEngine::Hints);
    scene.create(1, "old", 3000);
    scene.create(3, "young", 3000);
    let mut asked = announced(1, "old", 3000);
    asked.pod.containers = vec![asking("old", QosClass::Burstable, 2000)];
    scene.asked.insert("old".to_owned(), asked);
    let again = scene.restarted(false);
    let order: Vec<&str> =
        again.host.allocations.in_arrival_order(|_| true).map(|(holder, _)| holder.name()).collect();
    assert_eq!(order, ["old", "young"]);
}
