//! Every kind of rejection, in either engine: the text states the resource, the nodes, the shortage and what
//! would have fitted.

use super::*;
use crate::{
    ContainerRequest, PodRequest, QosClass, TopologyHint,
    samples::{GIB, Host, container, devices, pod},
    settings::PlacementSettings,
};
use numa_topology::synth::Machine;

const MIB: u64 = 1 << 20;

/// Node 0 has CPUs 0-3,8-11, node 1 has 4-7,12-15; 16 GiB each, 64 MiB of it in huge pages.
fn host(settings: &str, isolated: &str) -> Host {
    let machine = Machine::new().sockets(2).cores(4).memory_gib(16).hugepages(2 << 20, 32).isolated(isolated);
    let settings: PlacementSettings = toml::from_str(settings).unwrap();
    Host::with(machine.build(), devices("v.com/gpu", &["1"]), settings)
}

fn on(node: &str, container: ContainerRequest) -> ContainerRequest {
    ContainerRequest { allowed_nodes: Some(node.parse().unwrap()), ..container }
}

fn huge(bytes: u64) -> ContainerRequest {
    let mut request = container("c", 1000, GIB);
    request.requests.hugepages.insert(2 << 20, bytes);
    request.limits = request.requests.clone();
    request
}

fn one(request: ContainerRequest) -> PodRequest {
    pod("p", vec![request])
}

fn burstable(request: ContainerRequest) -> PodRequest {
    PodRequest { qos: QosClass::Burstable, ..one(request.without_limits()) }
}

fn annotated(key: &str, value: &str, request: ContainerRequest) -> PodRequest {
    let key = format!("{key}.numa-enforcer.io/pod");
    PodRequest { annotations: [(key, value.to_owned())].into(), ..one(request) }
}

/// Settings, isolated CPUs, existing pods, the rejected pod, and the expected text.
type Case = (&'static str, &'static str, Vec<PodRequest>, PodRequest, &'static str);

fn check(cases: Vec<Case>) {
    for (settings, isolated, there, request, said) in cases {
        let mut host = host(settings, isolated);
        for (index, other) in there.into_iter().enumerate() {
            let mut other = other;
            other.name.name = format!("other{index}");
            host.admit(&other).unwrap();
        }
        let rejection = host.admit(&request).unwrap_err();
        // Other tests cover the holders of missing resources.
        let mut without = rejection.clone();
        without.wording.taken.clear();
        let text = without.to_string();
        assert_eq!(text, said, "{settings}");
        // An amount that is no number of whole cores would not do with more free CPUs.
        let is_odd = matches!(*rejection.problem, RejectionProblem::Cpus(CpuError::NotWholeCores { .. }));
        assert_eq!(rejection.shortages.is_empty(), is_odd, "{text}");
        assert!(rejection.fits.is_some(), "{text}");
        for shortage in &rejection.shortages {
            let resource = format!("{} on {}", shortage.resource, words::nodes(&shortage.nodes));
            assert!(text.contains(&resource) && !shortage.nodes.is_empty(), "{resource}: {text}");
            let fits = rejection.fits.as_deref().unwrap_or_default();
            assert!(fits.contains(&shortage.resource) || fits.starts_with("all of it fits"), "{text}");
        }
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_rejection_of_hints_says_what_was_short_where_and_what_would_fit() {
    let free = "[hints]\npolicy = 'best-effort'";
    let whole = "[hints]\npolicy = 'best-effort'\nfull-pcpus-only = true";
    let one_node = "[hints]\npolicy = 'single-numa-node'";
    let restricted = "[hints]\npolicy = 'restricted'";
    let none = "[hints]\npolicy = 'none'";
    let half = || one(on("0", container("c", 6000, 12 * GIB)));
    check(vec![
        (
            free,
            "",
            vec![half()],
            one(container("c", 11_000, GIB)),
            "UnexpectedAdmissionError: container c: not enough cpus available to satisfy request: \
             requested=11, available=10: 10 of 11 cpu on nodes 0-1; at most 8 cpu on node 1 and 10 on \
             nodes 0-1 would fit",
        ),
        (
            none,
            "",
            vec![half()],
            one(container("c", 11_000, GIB)),
            "UnexpectedAdmissionError: container c: not enough cpus available to satisfy request: \
             requested=11, available=10: 10 of 11 cpu on nodes 0-1; at most 8 cpu on node 1 and 10 on \
             nodes 0-1 would fit",
        ),
        (
            free,
            "",
            vec![half()],
            one(container("c", 1000, 21 * GIB)),
            "UnexpectedAdmissionError: container c: [memorymanager] failed to find NUMA nodes to extend \
             the current topology hint: 19 GiB of 21 GiB memory on nodes 0-1; at most 15 GiB memory on \
             node 1 and 19 GiB on nodes 0-1 would fit",
        ),
        (
            none,
            "",
            vec![half()],
            one(container("c", 1000, 21 * GIB)),
            "UnexpectedAdmissionError: container c: [memorymanager] failed to get the default NUMA affinity, \
             no NUMA nodes with enough memory is available: 19 GiB of 21 GiB memory on nodes 0-1; at most \
             15 GiB memory on node 1 and 19 GiB on nodes 0-1 would fit",
        ),
        (
            free,
            "",
            vec![],
            one(huge(200 * MIB)),
            "UnexpectedAdmissionError: container c: [memorymanager] failed to find NUMA nodes to extend \
             the current topology hint: 128 MiB of 200 MiB hugepages-2Mi on nodes 0-1; at most 15 GiB \
             memory on node 0 and 31 GiB on nodes 0-1, 64 MiB hugepages-2Mi on node 0 and 128 MiB on \
             nodes 0-1 would fit",
        ),
        (
            free,
            "",
            vec![],
            one(container("c", 1000, GIB).device("v.com/gpu", 2)),
            "UnexpectedAdmissionError: container c: requested number of devices unavailable for \
             v.com/gpu. Requested: 2, Available: 1: 1 of 2 v.com/gpu on nodes 0-1; at most 1 v.com/gpu on \
             node 1 would fit",
        ),
        (
            free,
            "",
            vec![],
            one(container("c", 1000, GIB).device("v.com/none", 1)),
            "UnexpectedAdmissionError: container c: requested number of devices unavailable for \
             v.com/none. Requested: 1, Available: 0: 0 of 1 v.com/none on nodes 0-1; at most 0 v.com/none \
             on nodes 0-1 would fit",
        ),
        (
            whole,
            "",
            vec![],
            one(container("c", 3000, GIB)),
            "SMTAlignmentError: container c: 3 CPUs are not whole cores of 2 threads; 2 or 4 CPUs are whole \
             cores, at most 8 cpu on node 0 and 16 on nodes 0-1 would fit",
        ),
        (
            "reserved = { cpu = 'cpuset:0' }\n[hints]\npolicy = 'best-effort'\nfull-pcpus-only = true",
            "",
            vec![],
            one(container("c", 16_000, GIB)),
            "SMTAlignmentError: container c: 16 CPUs in whole cores, and only 14 CPUs share no core with a \
             reserved one: 14 of 16 cpu on nodes 0-1; at most 8 cpu on node 1 and 14 on nodes 0-1 would fit",
        ),
        (
            one_node,
            "",
            vec![half()],
            one(container("c", 9000, GIB)),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: 8 \
             of 9 cpu on node 1; all of it fits on nodes 0-1, but not aligned",
        ),
        (
            restricted,
            "",
            vec![half()],
            one(container("c", 11_000, GIB)),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: 10 \
             of 11 cpu on nodes 0-1; at most 8 cpu on node 1 and 10 on nodes 0-1, 15 GiB memory on node 1 \
             and 19 GiB on nodes 0-1 would fit",
        ),
        (
            one_node,
            "",
            vec![half()],
            one(container("c", 1000, GIB).device("v.com/gpu", 2)),
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: 1 \
             of 2 v.com/gpu on node 1; at most 8 cpu on node 1, 15 GiB memory on node 1, 1 v.com/gpu on \
             node 1 would fit",
        ),
        (
            free,
            "",
            vec![],
            one(ContainerRequest {
                allowed_cpus: Some("4-7".parse().unwrap()),
                ..on("0", container("c", 2000, GIB))
            }),
            "UnexpectedAdmissionError: container c: none of the nodes that it may use has a CPU that it \
             may use: 0 of 2 cpu on node 0; at most 0 cpu on node 0 would fit",
        ),
        (
            free,
            "",
            vec![one(container("c", 16_000, GIB))],
            burstable(container("c", 500, 0)),
            "UnexpectedAdmissionError: container c: no shared CPU is left: 0 of 1 cpu on nodes 0-1; at \
             most 0 cpu on nodes 0-1 would fit",
        ),
        (
            free,
            "",
            vec![burstable(container("c", 500, 0))],
            one(container("c", 16_000, GIB)),
            "UnexpectedAdmissionError: default/other0/c would have no CPU left: 15 of 16 cpu on nodes \
             0-1; at most 15 cpu on nodes 0-1 would fit",
        ),
        (
            free,
            "",
            vec![],
            burstable(container("c", 100_000_000, GIB)),
            "UnexpectedAdmissionError: it asks for more than the whole machine has: 16 of 100000 cpu on \
             nodes 0-1; at most 16 cpu on nodes 0-1 would fit",
        ),
        (
            free,
            "",
            vec![],
            burstable(container("c", 1000, 100 * GIB)),
            "UnexpectedAdmissionError: it asks for more than the whole machine has: 31 GiB of 100 GiB \
             memory on nodes 0-1; at most 31 GiB memory on nodes 0-1 would fit",
        ),
        (
            free,
            "",
            vec![burstable(huge(64 * MIB))],
            one(huge(96 * MIB)),
            "UnexpectedAdmissionError: others hold what it would need: 64 MiB of 128 MiB hugepages-2Mi \
             on node 0; at most 0 MiB hugepages-2Mi on node 0 would fit",
        ),
    ]);
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table")]
fn every_rejection_of_pools_says_what_was_short_where_and_what_would_fit() {
    let pools = "engine = 'pools'";
    let reserved = "engine = 'pools'\nreserved = { cpu = 'cpuset:0' }";
    let half = || one(on("0", container("c", 6000, 12 * GIB)));
    let near = |node: &str, request: ContainerRequest| {
        let hint = TopologyHint {
            provider: "device:/dev/x".to_owned(),
            cpus: numa_topology::set::CpuSet::new(),
            nodes: node.parse().unwrap(),
            packages: Vec::new(),
        };
        ContainerRequest { topology_hints: vec![hint], ..request }
    };
    check(vec![
        (
            pools,
            "",
            vec![half()],
            one(container("c", 11_000, GIB)),
            "UnexpectedAdmissionError: container c: no pool has enough CPUs: 10 of 11 cpu on nodes 0-1; \
             at most 8 cpu on node 1 and 10 on nodes 0-1 would fit",
        ),
        (
            pools,
            "",
            vec![half()],
            one(container("c", 10_500, GIB)),
            "UnexpectedAdmissionError: container c: no pool has enough CPUs: 10 of 11 cpu on nodes 0-1; \
             at most 8 cpu on node 1 and 10 on nodes 0-1 would fit",
        ),
        (
            pools,
            "",
            vec![half()],
            burstable(container("c", 10_500, GIB)),
            "UnexpectedAdmissionError: container c: no pool has enough CPUs: 10 of 11 cpu on nodes 0-1; \
             at most 8 cpu on node 1 and 10 on nodes 0-1 would fit",
        ),
        (
            reserved,
            "",
            vec![],
            annotated("prefer-reserved-cpus", "true", container("c", 100_000, GIB)),
            "UnexpectedAdmissionError: container c: no pool has enough CPUs: 15 of 100 cpu on nodes 0-1; \
             at most 8 cpu on node 1 and 15 on nodes 0-1 would fit",
        ),
        (
            pools,
            "3,7",
            vec![],
            annotated("require-isolated-cpus", "true", container("c", 3000, GIB)),
            "UnexpectedAdmissionError: container c: too few isolated CPUs are free in one pool: 2 of 3 \
             cpu on nodes 0-1; at most 1 cpu on node 0 and 2 on nodes 0-1 would fit as isolated CPUs",
        ),
        (
            pools,
            "",
            vec![half()],
            one(container("c", 1000, 21 * GIB)),
            "UnexpectedAdmissionError: container c: too little memory, also if others were moved: 19 GiB \
             of 21 GiB memory on nodes 0-1; at most 15 GiB memory on node 1 and 19 GiB on nodes 0-1 would \
             fit without moving others",
        ),
        (
            pools,
            "",
            vec![],
            one(huge(200 * MIB)),
            "UnexpectedAdmissionError: container c: too little memory, also if others were moved: 128 MiB \
             of 200 MiB hugepages-2Mi on nodes 0-1; at most 15 GiB memory on node 0 and 31 GiB on nodes \
             0-1, 64 MiB hugepages-2Mi on node 0 and 128 MiB on nodes 0-1 would fit without moving others",
        ),
        (
            pools,
            "",
            vec![],
            annotated("memory-type", "hbm", container("c", 1000, GIB)),
            "UnexpectedAdmissionError: container c: the machine has no memory of type hbm: 0 GiB of 1 \
             GiB memory on nodes 0-1; at most 15 GiB memory on node 0 and 31 GiB on nodes 0-1 would fit \
             of other types",
        ),
        (
            pools,
            "",
            vec![],
            one(container("c", 1000, GIB).device("v.com/gpu", 2)),
            "UnexpectedAdmissionError: container c: requested number of devices unavailable for \
             v.com/gpu. Requested: 2, Available: 1: 1 of 2 v.com/gpu on nodes 0-1; at most 1 v.com/gpu on \
             node 1 would fit",
        ),
        (
            pools,
            "",
            vec![half()],
            annotated("strict.topologyhints", "true", near("0", container("c", 4000, GIB))),
            "TopologyAffinityError: container c: fail strict hint: CPUs 4-5,12-13 would be away from \
             device:/dev/x: 2 of 4 cpu on node 0; at most 2 cpu on node 0, 4032 MiB memory on node 0 \
             would fit",
        ),
        (
            pools,
            "",
            vec![],
            burstable(container("c", 1000, 100 * GIB)),
            "UnexpectedAdmissionError: container c: too little memory, also if others were moved: 31 GiB \
             of 100 GiB memory on nodes 0-1; at most 15 GiB memory on node 0 and 31 GiB on nodes 0-1 \
             would fit without moving others",
        ),
    ]);
}

#[test]
fn devices_near_no_known_node_are_short_only_where_there_are_too_few() {
    let settings = "[hints]\npolicy = 'single-numa-node'";
    for (near, cpus, count, said) in [
        // No device has a known node: they cause no rejection unless there are too few.
        (["", "", ""], 9, 2, "8 of 9 cpu on node 0; all of it fits on nodes 0-1, but not aligned"),
        (
            ["", "", ""],
            9,
            4,
            "8 of 9 cpu on node 0, 3 of 4 v.com/gpu on nodes 0-1; at most 8 cpu on node 0, \
             16 GiB memory on node 0, 3 v.com/gpu on nodes 0-1 would fit",
        ),
        // Some have a known node: the others cannot be aligned.
        (
            ["", "1", ""],
            1,
            2,
            "1 of 2 v.com/gpu on node 1; at most 8 cpu on node 0, 16 GiB memory on node 0, \
             1 v.com/gpu on node 1 would fit",
        ),
    ] {
        let machine = Machine::new().sockets(2).cores(4).memory_gib(16).build();
        let settings: PlacementSettings = toml::from_str(settings).unwrap();
        let mut host = Host::with(machine, devices("v.com/gpu", &near), settings);
        let request = one(container("c", cpus * 1000, GIB).device("v.com/gpu", count));
        let text = host.admit(&request).unwrap_err().to_string();
        let prefix =
            "TopologyAffinityError: container c: Resources cannot be allocated with Topology locality: ";
        assert_eq!(text.strip_prefix(prefix), Some(said), "{near:?}");
    }
}
