//! Properties after any sequence of pods, under any policy.

use proptest::prelude::*;

use super::*;

/// One step of a random sequence.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Create(u8, Vec<(u8, u8, u8, u8, bool)>),
    Resize(u8, u8),
    Delete(u8),
}

pub(super) fn any_step() -> impl Strategy<Value = Step> {
    let one = (0..3u8, 0..12u8, 0..20u8, 0..3u8, any::<bool>());
    prop_oneof![
        4 => (0..30u8, prop::collection::vec(one, 1..4)).prop_map(|(pod, containers)| Step::Create(pod, containers)),
        1 => (0..30u8, 1..9u8).prop_map(|(pod, cpus)| Step::Resize(pod, cpus)),
        3 => (0..30u8).prop_map(Step::Delete),
    ]
}

fn request(name: u8, containers: &[(u8, u8, u8, u8, bool)]) -> PodRequest {
    let kinds = [ContainerKind::Init, ContainerKind::Sidecar, ContainerKind::App];
    let mut containers: Vec<_> = containers
        .iter()
        .enumerate()
        .map(|(index, (kind, halves, gib, gpus, limits))| {
            let request = container(&format!("c{index}"), u64::from(*halves) * 500, u64::from(*gib) * GIB)
                .kind(kinds[*kind as usize])
                .device("v.com/gpu", u64::from(*gpus));
            if *limits { request } else { request.without_limits() }
        })
        .collect();
    containers.sort_by_key(|container| container.kind == ContainerKind::App);
    pod(&format!("p{name}"), containers)
}

/// Invariants whenever no placement is in progress.
pub(super) fn check(host: &Host) {
    let mut seen = CpuSet::new();
    let mut units = std::collections::BTreeSet::new();
    let taken = host.allocations.exclusive_cpus();
    for (holder, grant) in host.allocations.iter() {
        assert!(seen.is_disjoint(&grant.exclusive), "{holder}: {}", grant.exclusive);
        seen.extend(&grant.exclusive);
        assert!(grant.exclusive.is_disjoint(&host.inventory.reserved_cpus), "{holder}");
        assert!(!grant.cpus(&taken).is_empty(), "{holder} has no CPU");
        assert_eq!(memory_nodes::fault(host, grant), None, "{holder}");
        for claim in &grant.memory {
            assert_eq!(claim.by_node.values().sum::<u64>(), claim.bytes, "{holder}");
            assert!(claim.zone.is_subset(&grant.mems), "{holder}");
        }
        for (resource, ids) in &grant.devices {
            for id in ids {
                assert!(units.insert((resource.clone(), id.clone())), "{holder}: {id}");
            }
        }
        if let Some(shared) = &grant.shared {
            assert!(shared.scope.is_disjoint(&host.inventory.isolated_cpus), "{holder}");
        }
    }
    let account = ZoneAccount::new(&host.inventory, &host.allocations, |_| false);
    assert_eq!(account.overcommitted(MemoryResource::Memory), []);
}

/// Grants satisfy the request.
fn check_sums(host: &Host, pod: &PodRequest) {
    for request in &pod.containers {
        let grant = host.allocations.get(&Holder::new(pod.name.clone(), request.name.clone()));
        let Some(grant) = grant else { continue };
        let whole = crate::hints::demand::exclusive_cpus(request, pod.qos);
        assert_eq!(grant.exclusive.len(), whole);
        assert_eq!(grant.shared.is_some(), whole == 0);
        for (resource, count) in &request.devices {
            assert_eq!(grant.devices.get(resource).map_or(0, Vec::len) as u64, *count);
        }
        if pod.qos == crate::QosClass::Guaranteed {
            let promised: u64 = grant.memory.iter().map(|claim| claim.bytes).sum();
            assert_eq!(promised, request.requests.memory_bytes.unwrap_or(0));
        }
    }
}

pub(super) fn settings(choice: u8) -> HintsSettings {
    let policies = [
        TopologyPolicy::None,
        TopologyPolicy::BestEffort,
        TopologyPolicy::Restricted,
        TopologyPolicy::SingleNumaNode,
        TopologyPolicy::NumaManager,
        TopologyPolicy::NumaManagerBestEffort,
    ];
    HintsSettings {
        policy: policies[choice as usize % 6],
        scope: if (choice / 6).is_multiple_of(2) { Scope::Container } else { Scope::Pod },
        strict_memory_groups: choice / 12 % 2 == 1,
        distribute_cpus_across_numa: choice / 24 % 2 == 1,
        full_pcpus_only: choice / 48 % 2 == 1,
        ..HintsSettings::default()
    }
}

/// Shared CPUs of all holders.
fn shared(allocations: &Allocations) -> Vec<(Holder, Option<SharedCpus>)> {
    allocations.iter().map(|(holder, grant)| (holder.clone(), grant.shared.clone())).collect()
}

pub(super) fn run(host: &mut Host, steps: &[Step]) -> Vec<String> {
    let mut said = Vec::new();
    for step in steps {
        let before = host.allocations.clone();
        let name = |name: &u8| PodName::new("default", format!("p{name}"));
        match step {
            Step::Create(pod, containers) => {
                let request = request(*pod, containers);
                match host.admit(&request) {
                    Ok(admission) => {
                        check_sums(host, &request);
                        said.push(format!("{admission:?}"));
                        for container in &request.containers {
                            if container.kind == ContainerKind::Init {
                                let holder = Holder::new(request.name.clone(), container.name.clone());
                                host.allocations.release(&holder);
                            }
                        }
                        unspill(&mut host.allocations);
                        let mut without = host.allocations.clone();
                        remove(&mut without, &request.name);
                        assert_eq!(shared(&without), shared(&before), "{}", request.name);
                    }
                    Err(rejection) => {
                        assert_eq!(host.allocations, before);
                        said.push(rejection.to_string());
                    }
                }
            }
            Step::Resize(pod, cpus) => {
                let mut request = request(*pod, &[(2, cpus * 2, 2, 0, true)]);
                request.containers[0].name = "c0".into();
                let Host { inventory, settings, allocations } = host;
                let outcome = resize(inventory, settings, allocations, &request);
                match outcome {
                    Ok(_) => check_sums(host, &request),
                    Err(rejection) => {
                        assert_eq!(host.allocations, before);
                        said.push(rejection.to_string());
                    }
                }
            }
            Step::Delete(pod) => {
                let pod = name(pod);
                remove(&mut host.allocations, &pod);
                assert!(host.allocations.of_pod(&pod).next().is_none());
            }
        }
        check(host);
    }
    said
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 6, ..ProptestConfig::default() })]

    #[test]
    fn a_thousand_random_steps_keep_every_invariant(
        choice in 0..96u8,
        steps in prop::collection::vec(any_step(), 1000),
    ) {
        let gpus = devices("v.com/gpu", &["0", "1", "1", "2,3", "3", ""]);
        let machine = || Machine::new().sockets(2).nodes_per_socket(2).cores(4).isolated("3,19").build();
        let mut host = Host::with(machine(), gpus.clone(), reserved("0,16", settings(choice)));
        let said = run(&mut host, &steps);
        // The same steps give the same result: a plan depends only on its inputs.
        let mut again = Host::with(machine(), gpus, reserved("0,16", settings(choice)));
        prop_assert_eq!(said, run(&mut again, &steps));
        prop_assert_eq!(&host.allocations, &again.allocations);
        let pods: std::collections::BTreeSet<_> =
            host.allocations.iter().map(|(holder, _)| holder.pod().clone()).collect();
        // In any order of removal, the remaining state is the same.
        let (half, rest) = pods.iter().partition::<Vec<_>, _>(|pod| pod.name.len() % 2 == 0);
        for pod in &half {
            remove(&mut host.allocations, pod);
        }
        for pod in half.iter().rev() {
            remove(&mut again.allocations, pod);
        }
        prop_assert_eq!(&host.allocations, &again.allocations);
        for pod in &rest {
            remove(&mut host.allocations, pod);
        }
        prop_assert_eq!(host.allocations, Allocations::default());
    }

    #[test]
    fn single_numa_node_means_one_node(
        containers in prop::collection::vec((2..3u8, 1..9u8, 1..9u8, 0..2u8, Just(true)), 1..4),
    ) {
        let gpus = devices("v.com/gpu", &["0", "1", "1", "2,3", "3"]);
        let machine = Machine::new().sockets(2).nodes_per_socket(2).cores(4).build();
        let mut host = Host::with(machine, gpus, reserved("0,16", single()));
        let containers: Vec<_> = containers.iter().map(|(k, halves, gib, gpus, l)| (*k, halves * 2, *gib, *gpus, *l)).collect();
        let request = request(0, &containers);
        if host.admit(&request).is_ok() {
            for (_, grant) in host.allocations.iter() {
                let cpus: NodeSet = host.inventory.machine.nodes_of(&grant.exclusive);
                prop_assert_eq!(cpus.len(), 1);
                prop_assert_eq!(&cpus, &grant.mems);
            }
        }
    }
}
