//! Containers that exclusive CPUs displace, and their return.

use proptest::prelude::*;

use crate::{
    Allocations, ContainerKind, Grant, Holder, PodName, PodRequest, QosClass, SharedCpus,
    admission::{give_apart, remove_container, settle_others},
    remove, resize,
    samples::{GIB, Host, container, pod},
    settings::{CpuAmount, CpuChoice, HintsSettings, PlacementSettings, Scope, TopologyPolicy},
    settle_overflow, unspill,
};
use numa_topology::{id::CpuId, set::CpuSet, synth::Machine};

/// Nodes of four CPUs and 16 GiB; all classes are aligned.
fn host(sockets: u32) -> Host {
    let machine = Machine::new().sockets(sockets).cores(4).threads(1).build();
    let policy = TopologyPolicy::BestEffort;
    Host::new(machine, HintsSettings { policy, align_all_qos: true, ..HintsSettings::default() })
}

/// The same with these CPUs reserved for the system.
fn beside_reserved(sockets: u32, cpus: &str, hints: HintsSettings) -> Host {
    let machine = Machine::new().sockets(sockets).cores(4).threads(1).build();
    let mut settings = PlacementSettings { hints, ..PlacementSettings::default() };
    settings.reserved.cpus = Some(CpuAmount::Named(CpuChoice::Only(cpus.parse().unwrap())));
    Host::with(machine, Vec::new(), settings)
}

fn named(pod: &str) -> PodName {
    PodName::new("default", pod)
}

/// A pod that shares CPUs of these nodes.
fn sharing(name: &str, millis: u64, nodes: &str) -> PodRequest {
    let mut request = container("main", millis, 0).without_limits();
    request.allowed_nodes = Some(nodes.parse().unwrap());
    pod(name, vec![request])
}

/// A pod with exclusive CPUs of these nodes.
fn exclusive_on(name: &str, cpus: u64, nodes: &str) -> PodRequest {
    let mut request = container("main", cpus * 1000, GIB);
    request.allowed_nodes = Some(nodes.parse().unwrap());
    pod(name, vec![request])
}

impl Host {
    /// Names of the pods that are away, in order.
    fn away(&self) -> String {
        let away = self.allocations.iter().filter(|(_, grant)| is_away(grant));
        away.map(|(holder, _)| holder.pod().name.as_str()).collect::<Vec<_>>().join(" ")
    }

    fn resize(&mut self, pod: &PodRequest) {
        resize(&self.inventory, &self.settings, &mut self.allocations, pod).unwrap();
    }

    /// Lets another owner take these CPUs, and no others.
    fn taken_by_another_owner(&mut self, cpus: &CpuSet) {
        let grant = Grant::taken_by_others(cpus.clone(), String::new());
        give_apart(&self.inventory, &mut self.allocations, &Holder::given("id", "theirs"), grant);
    }
}

fn is_away(grant: &Grant) -> bool {
    grant.shared.as_ref().is_some_and(|shared| shared.fallback_cpus.is_some())
}

fn best_effort(name: &str) -> PodRequest {
    let mut pod = pod(name, vec![container("main", 0, 0)]);
    pod.qos = QosClass::BestEffort;
    pod
}

fn exclusive(name: &str, cpus: u64) -> PodRequest {
    pod(name, vec![container("main", cpus * 1000, GIB)])
}

#[test]
fn a_displaced_container_gets_the_memory_near_its_cpus_and_its_own_back() {
    let mut host = host(2);
    host.admit(&best_effort("shared")).unwrap();
    assert_eq!(host.place("shared", "main"), ("0-3".into(), "0".into()));
    host.admit(&exclusive("first", 2)).unwrap();
    let admission = host.admit(&exclusive("second", 2)).unwrap();
    let now = host.place("shared", "main");
    if now.0 == "4-7" {
        assert_eq!(now.1, "1");
        let update = &admission.updates[0];
        let mems = update.mems.as_ref().map(ToString::to_string);
        assert_eq!((update.holder.pod().name.as_str(), mems.as_deref()), ("shared", Some("1")));
    }
    remove(&mut host.allocations, &named("second"));
    assert_eq!(host.place("shared", "main").1, "0", "it is at home again");
}

#[test]
fn promises_beyond_the_size_of_a_scope_displace_no_container_without_exclusive_cpus() {
    let mut host = host(2);
    host.admit(&sharing("old", 3000, "0")).unwrap();
    host.admit(&sharing("young", 3000, "0")).unwrap();
    let before = host.allocations.clone();
    assert_eq!((host.place("young", "main").0, host.away()), ("0-3".into(), String::new()));
    host.admit(&exclusive_on("x", 1, "0")).unwrap();
    assert_eq!(host.away(), "young");
    remove(&mut host.allocations, &named("x"));
    assert_eq!(host.allocations, before);
}

#[test]
fn resize_of_an_older_container_displaces_a_younger_one_at_once() {
    let mut host = host(2);
    host.admit(&sharing("old", 1000, "0")).unwrap();
    host.admit(&sharing("young", 1000, "0")).unwrap();
    host.admit(&exclusive_on("x", 2, "0")).unwrap();
    assert_eq!(host.away(), "");
    host.resize(&sharing("old", 2000, "0"));
    assert_eq!(host.away(), "young");
    host.resize(&sharing("old", 1000, "0"));
    assert_eq!(host.away(), "");
}

#[test]
fn container_without_room_beside_exclusive_cpus_is_away_from_its_admission_on() {
    let mut host = host(2);
    host.admit(&exclusive_on("x", 2, "0")).unwrap();
    let admission = host.admit(&sharing("late", 3000, "0")).unwrap();
    assert_eq!((host.away(), admission.grants[0].cpus.to_string()), ("late".into(), "2-7".into()));
    remove(&mut host.allocations, &named("x"));
    assert_eq!((host.away(), host.place("late", "main").0), (String::new(), "0-3".into()));
}

#[test]
fn displaced_container_avoids_reserved_cpus_by_its_own_settings() {
    for (strict_host, strict_pod, expected) in
        [(false, None, "0-3"), (true, None, "1-3"), (false, Some(true), "1-3"), (true, Some(false), "0-3")]
    {
        let hints = HintsSettings {
            policy: TopologyPolicy::BestEffort,
            strict_cpu_reservation: strict_host,
            ..HintsSettings::default()
        };
        let mut host = beside_reserved(2, "0", hints);
        let mut request = sharing("shared", 500, "1");
        if let Some(strict) = strict_pod {
            let options = format!("strict-cpu-reservation={strict}");
            request.annotations.insert("options.numa-enforcer.io/pod".into(), options);
        }
        host.admit(&request).unwrap();
        // The settings of the pod that displaces it do not matter.
        host.admit(&exclusive_on("x", 4, "1")).unwrap();
        assert_eq!(host.place("shared", "main").0, expected, "{strict_host} {strict_pod:?}");
    }
}

#[test]
fn container_without_a_cpu_gets_the_first_that_another_owner_releases() {
    let mut host = host(2);
    host.admit(&sharing("shared", 500, "0")).unwrap();
    for (taken, runs_on, away) in [
        ("0-7", "", "shared"),
        ("0-6", "7", "shared"),
        ("0-2", "3", ""),
        ("0-7", "", "shared"),
        ("", "0-3", ""),
    ] {
        host.taken_by_another_owner(&taken.parse().unwrap());
        assert_eq!(
            (host.place("shared", "main").0.as_str(), host.away().as_str()),
            (runs_on, away),
            "{taken}"
        );
    }
}

#[derive(Debug, Clone)]
enum PodStep {
    Exclusive(u8, u64),
    Shared(u8, u64, u64),
    Remove(u8),
}

fn any_pod_step() -> impl Strategy<Value = PodStep> {
    prop_oneof![
        3 => (0u8..12, 1u64..5).prop_map(|(pod, cpus)| PodStep::Exclusive(pod, cpus)),
        3 => (0u8..12, 0u64..6, 0u64..3).prop_map(|(pod, halves, gib)| PodStep::Shared(pod, halves, gib)),
        2 => (0u8..12).prop_map(PodStep::Remove),
    ]
}

/// Change of the allocations, by every path that there is.
#[derive(Debug, Clone)]
enum Step {
    Exclusive { pod: u8, cpus: u64, init: bool, pools: bool },
    Shared { pod: u8, halves: u64, gib: u64, node: Option<u8>, strict: bool, pools: bool },
    Resize { pod: u8, halves: u64 },
    Remove(u8),
    RemoveContainer(u8),
    Others(CpuSet),
    Adopt(u8),
}

fn any_step() -> impl Strategy<Value = Step> {
    let pod = || 0u8..12;
    let node = prop::option::weighted(0.3, 0u8..2);
    let shared = (pod(), 0u64..8, 0u64..3, node, any::<bool>(), prop::bool::weighted(0.3));
    let exclusive = (pod(), 1u64..5, prop::bool::weighted(0.2), prop::bool::weighted(0.3));
    prop_oneof![
        6 => exclusive.prop_map(|(pod, cpus, init, pools)| Step::Exclusive { pod, cpus, init, pools }),
        6 => shared.prop_map(|(pod, halves, gib, node, strict, pools)| {
            Step::Shared { pod, halves, gib, node, strict, pools }
        }),
        3 => (pod(), 0u64..10).prop_map(|(pod, halves)| Step::Resize { pod, halves }),
        4 => pod().prop_map(Step::Remove),
        1 => pod().prop_map(Step::RemoveContainer),
        1 => prop::collection::btree_set(0u32..16, 0..8)
            .prop_map(|cpus| Step::Others(cpus.into_iter().map(CpuId).collect())),
        1 => pod().prop_map(Step::Adopt),
    ]
}

fn of_engine(mut pod: PodRequest, pools: bool) -> PodRequest {
    if pools {
        pod.annotations.insert("engine.numa-enforcer.io/pod".into(), "pools".into());
    }
    pod
}

fn mixed(name: &str, cpus: u64, init: bool) -> PodRequest {
    let mut containers = vec![container("main", cpus * 1000, GIB), container("second", 500, GIB)];
    if init {
        containers.insert(0, container("init", 2000, GIB).kind(ContainerKind::Init));
    }
    pod(name, containers)
}

impl Host {
    fn step(&mut self, step: &Step) {
        let name = |pod: &u8| format!("p{pod}");
        let before = self.allocations.clone();
        match step {
            Step::Exclusive { pod, cpus, init, pools } => {
                let request = of_engine(mixed(&name(pod), *cpus, *init), *pools);
                let outcome = self.admit(&request);
                if outcome.is_ok() && *init {
                    self.allocations.release(&Holder::new(request.name.clone(), "init".into()));
                    unspill(&mut self.allocations);
                }
                self.check_admission(&request, outcome.is_ok(), *pools, &before);
            }
            Step::Shared { pod, halves, gib, node, strict, pools } => {
                let mut asked = container("main", halves * 500, gib * GIB).without_limits();
                asked.allowed_nodes = node.map(|node| node.to_string().parse().unwrap());
                let mut request = of_engine(crate::samples::pod(&name(pod), vec![asked]), *pools);
                if *strict && !pools {
                    let options = "strict-cpu-reservation".to_owned();
                    request.annotations.insert("options.numa-enforcer.io/pod".into(), options);
                }
                let is_admitted = self.admit(&request).is_ok();
                self.check_admission(&request, is_admitted, *pools, &before);
            }
            Step::Resize { pod, halves } => {
                let asked = container("main", halves * 500, GIB).without_limits();
                let request = crate::samples::pod(&name(pod), vec![asked]);
                let _ = resize(&self.inventory, &self.settings, &mut self.allocations, &request);
            }
            Step::Remove(pod) => drop(remove(&mut self.allocations, &named(&name(pod)))),
            Step::RemoveContainer(pod) => {
                let holder = Holder::new(named(&name(pod)), "main".into());
                remove_container(&mut self.allocations, &holder);
            }
            Step::Others(cpus) => self.taken_by_another_owner(cpus),
            Step::Adopt(pod) => {
                // As after a restart: the record says where it was then.
                let holder = Holder::new(named(&name(pod)), "main".into());
                let arrival_seq = self.allocations.arrival_seq(&holder);
                let Some((grant, seq)) = self.allocations.release(&holder).zip(arrival_seq) else { return };
                let shared = grant.shared.clone().map(|shared| SharedCpus {
                    fallback_cpus: shared.fallback_cpus.xor(Some(self.inventory.shareable_cpus())),
                    ..shared
                });
                self.allocations.give_at(holder.clone(), Grant { shared, ..grant }, seq);
                settle_others(&self.inventory, &mut self.allocations, holder.pod());
            }
        }
    }

    /// An admission has no effect on other pods after the pod was removed, and none at all if it failed. The
    /// engine `pools` displaces no container.
    fn check_admission(&self, pod: &PodRequest, is_admitted: bool, pools: bool, before: &Allocations) {
        if !is_admitted {
            assert_eq!(self.allocations, *before);
            return;
        }
        let mut without = self.allocations.clone();
        remove(&mut without, &pod.name);
        assert_eq!(shared_cpus(&without), shared_cpus(before));
        let others = self.allocations.iter().filter(|(holder, _)| *holder.pod() != pod.name);
        for (holder, grant) in others.filter(|_| pools) {
            let was_away = before.get(holder).is_some_and(is_away);
            assert!(was_away || !is_away(grant), "{} displaced {holder}", pod.name);
        }
    }

    /// Containers are where they would be without the past.
    fn check(&self) {
        let mut afresh = Allocations::default();
        for (holder, arrival_seq, grant) in self.allocations.with_arrival_seqs() {
            let shared = grant.shared.clone();
            let shared = shared.map(|shared| SharedCpus {
                fallback_cpus: None,
                fallback_memory: Vec::new(),
                ..shared
            });
            afresh.give_at(holder.clone(), Grant { shared, ..grant.clone() }, arrival_seq);
        }
        settle_overflow(&self.inventory, &mut afresh);
        assert_eq!(shared_cpus(&afresh), shared_cpus(&self.allocations));
        for (holder, grant) in self.allocations.iter() {
            assert_eq!(is_away(grant), self.belongs_away(holder, grant), "{holder}");
        }
    }

    /// Is it away by definition?
    fn belongs_away(&self, holder: &Holder, grant: &Grant) -> bool {
        let Some(shared) = grant.shared.as_ref().filter(|_| grant.pin_cpus) else { return false };
        let taken = self.allocations.exclusive_cpus();
        let arrival_seq = self.allocations.arrival_seq(holder);
        let older = self.allocations.with_arrival_seqs().filter(|(_, other, grant)| {
            Some(*other) <= arrival_seq
                && grant.pin_cpus
                && grant.shared.as_ref().is_some_and(|other| other.scope == shared.scope)
        });
        let promised: u64 = older.map(|(.., grant)| grant.shared.as_ref().unwrap().milli_cpus).sum();
        let serving = shared.scope.difference(&shared.reserved);
        let (all, left) = (serving.len() as u64 * 1000, serving.difference(&taken).len() as u64 * 1000);
        let needed = if shared.milli_cpus == 0 { 1 } else { promised };
        let at_home = left >= needed.min(all) && !shared.scope.is_subset(&taken);
        let pool = self.inventory.shareable_cpus();
        let unreserved = pool.difference(&self.inventory.reserved_cpus);
        let fallback_cpus = if shared.avoids_reserved { unreserved } else { pool };
        !at_home && !fallback_cpus.is_subset(&shared.scope)
    }
}

fn shared_cpus(allocations: &Allocations) -> Vec<(&Holder, &Option<SharedCpus>)> {
    allocations.iter().map(|(holder, grant)| (holder, &grant.shared)).collect()
}

proptest! {
    /// Which containers are away depends only on the current allocations, for any sequence of changes.
    #[test]
    fn displaced_containers_are_those_that_the_current_allocations_displace(
        policy in 0usize..3,
        of_pod in any::<bool>(),
        steps in prop::collection::vec(any_step(), 1..40),
    ) {
        let policies = [TopologyPolicy::BestEffort, TopologyPolicy::Restricted, TopologyPolicy::None];
        let hints = HintsSettings {
            policy: policies[policy],
            scope: if of_pod { Scope::Pod } else { Scope::Container },
            ..HintsSettings::default()
        };
        let mut host = beside_reserved(4, "0,5", hints);
        for step in &steps {
            host.step(step);
            host.check();
        }
    }

    /// For any sequence of pods: a displaced container may use the memory of the nodes that it runs on.
    #[test]
    fn a_displaced_container_never_runs_beside_memory_that_it_may_not_use(
        sockets in 2u32..5,
        steps in prop::collection::vec(any_pod_step(), 1..30),
    ) {
        let mut host = host(sockets);
        for step in steps {
            match step {
                PodStep::Exclusive(name, cpus) => drop(host.admit(&exclusive(&format!("p{name}"), cpus))),
                PodStep::Shared(name, halves, gib) => {
                    let asked = container("main", halves * 500, gib * GIB).without_limits();
                    let mut pod = pod(&format!("p{name}"), vec![asked]);
                    pod.qos = if halves + gib == 0 { QosClass::BestEffort } else { QosClass::Burstable };
                    drop(host.admit(&pod));
                }
                PodStep::Remove(name) => {
                    let pod = named(&format!("p{name}"));
                    remove(&mut host.allocations, &pod);
                }
            }
            let taken = host.allocations.exclusive_cpus();
            for (holder, grant) in host.allocations.iter() {
                let is_away = grant.shared.as_ref().is_some_and(|shared| shared.fallback_cpus.is_some());
                let (cpus, mems) = (grant.cpus(&taken), grant.mems(&taken));
                if is_away && grant.pin_cpus && grant.pin_mems && !cpus.is_empty() && !mems.is_empty() {
                    let nodes = host.inventory.machine.nodes_of(&cpus);
                    prop_assert!(nodes.is_subset(&mems), "{}: {} {}", holder, cpus, mems);
                }
            }
        }
    }
}
