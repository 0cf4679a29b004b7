use std::collections::BTreeMap;

use numa_placement::PodRequest;

use super::*;
use crate::{policy::placement::PlacementSettings, workload::QosClass};
use numa_placement::{
    CpuClass, Grant,
    samples::{GIB, Host, container, pod},
};
use numa_topology::{Device, DeviceClass, MemoryKind, id::NodeId, synth::Machine};

/// CPUs 0-7 on node 0 and 8-15 on node 1, each with PMEM beside it (nodes 2 and 3), `eth0` on node 1.
fn machine() -> Topology {
    let mut machine = Machine::new()
        .sockets(2)
        .cores(8)
        .threads(1)
        .memory_gib(16)
        .memory_beside_each(32 * GIB, MemoryKind::Pmem)
        .isolated("6-7")
        .build();
    machine.devices.push(Device {
        address: "0000:3b:00.0".into(),
        class: DeviceClass::Network,
        names: vec!["eth0".into()],
        node: Some(NodeId(1)),
    });
    machine
}

fn rule(keys: &str) -> WorkloadRule {
    toml::from_str(&format!("name = 'rule'\npod = '*'\n{keys}")).unwrap()
}

/// The grant of a container of two CPUs with these keys of an entry, in a pod of this class with this
/// annotation.
fn granted(keys: &str, qos: QosClass, annotation: Option<(&str, &str)>) -> Grant {
    let settings: PlacementSettings = toml::from_str("reserved.cpus = 'cpuset:0'").unwrap();
    let mut host = Host::with(machine(), Vec::new(), settings);
    let mut asked = container("main", 2000, GIB);
    declare(&mut asked, &rule(keys), 0, &host.inventory.machine);
    let mut pod = pod("p", vec![asked]);
    pod.qos = qos;
    pod.annotations = annotation.map(|(key, value)| (key.into(), value.into())).into_iter().collect();
    host.admit(&pod).unwrap_or_else(|rejection| panic!("{keys}: {rejection}"));
    host.grant("p", "main").clone()
}

#[test]
fn what_is_declared_counts_where_no_annotation_says_otherwise() {
    use QosClass::{Burstable, Guaranteed};
    let engine = |grant: Grant| grant.engine;
    assert_eq!(engine(granted("", Guaranteed, None)), "hints");
    assert_eq!(engine(granted("engine = 'pools'", Guaranteed, None)), "pools");
    let annotation = Some(("engine.numa-enforcer.io", "hints"));
    assert_eq!(engine(granted("engine = 'pools'", Guaranteed, annotation)), "hints");

    let policy = |grant: Grant| grant.policy;
    assert_eq!(policy(granted("policy = 'restricted'", Guaranteed, None)), "restricted");
    for key in ["policy.numa-enforcer.io", "policy.numa-enforcer.io/container.main"] {
        assert_eq!(
            policy(granted("policy = 'restricted'", Guaranteed, Some((key, "none")))),
            "none",
            "{key}"
        );
    }

    let class = |keys: &str, qos, annotation| granted(keys, qos, annotation).class;
    assert_eq!(class("class = 'shared'", Guaranteed, None), CpuClass::Shared);
    assert_eq!(class("class = 'exclusive'", Burstable, None), CpuClass::Exclusive);
    let pools = |class: &str| format!("engine = 'pools'\nclass = '{class}'");
    assert_eq!(class(&pools("shared"), Guaranteed, None), CpuClass::Shared);
    assert_eq!(class(&pools("exclusive"), Burstable, None), CpuClass::Exclusive);
    assert_eq!(class(&pools("isolated"), Burstable, None), CpuClass::Isolated);
    assert_eq!(class(&format!("cpus = 1\n{}", pools("reserved")), Guaranteed, None), CpuClass::Reserved);
    let annotation = Some(("prefer-shared-cpus.numa-enforcer.io", "true"));
    assert_eq!(class(&pools("exclusive"), Guaranteed, annotation), CpuClass::Shared);

    let mems = |keys: &str, annotation| granted(keys, Guaranteed, annotation).mems.to_string();
    let pmem = "engine = 'pools'\nmemory_types = ['pmem']";
    // The CPUs are on the node with most of them, so the memory is that attached to it.
    assert_eq!(mems(pmem, None), "3");
    assert_eq!(mems(pmem, Some(("memory-type.numa-enforcer.io", "dram"))), "1");
}

#[test]
fn amounts_and_nodes_are_those_of_the_entry() {
    let grant = granted("cpus = 4\nmemory = '2GiB'\nnuma_nodes = '1'", QosClass::Guaranteed, None);
    assert_eq!((grant.exclusive.len(), grant.mems.to_string().as_str()), (4, "1"));
    assert_eq!(grant.memory.iter().map(|claim| claim.bytes).sum::<u64>(), 2 * GIB);
    let mut limited = container("main", 500, GIB);
    declare(&mut limited, &rule("cpus = 4"), 0, &machine());
    assert_eq!((limited.requests.milli_cpus, limited.limits.milli_cpus), (Some(4000), Some(4000)));
    let mut unlimited = container("main", 500, GIB).without_limits();
    declare(&mut unlimited, &rule("cpus = 4"), 0, &machine());
    assert_eq!((unlimited.requests.milli_cpus, unlimited.limits.milli_cpus), (Some(4000), None));
}

#[test]
fn nodes_beyond_the_machine_are_said() {
    let said = |keys: &str| declare(&mut container("main", 500, GIB), &rule(keys), 0, &machine());
    assert_eq!(said("numa_nodes = '0-1'"), [""; 0]);
    let text = said("numa_nodes = '0-15'").concat();
    assert!(text.starts_with("numa_nodes is 0-15, and the machine has NUMA nodes 0-"), "{text}");
}

#[test]
fn isolated_class_without_isolated_cpus_is_said() {
    let rule = rule("engine = 'pools'\nclass = 'isolated'");
    let unknown = |machine: &Topology| wishes_of(&rule, 0, machine).1;
    assert_eq!(unknown(&machine()), Vec::<String>::new());
    let said = ["class is isolated, and the machine has no isolated CPUs"];
    assert_eq!(unknown(&Machine::new().build()), said);
}

#[test]
fn a_device_pulls_but_is_no_reason_for_a_rejection() {
    for engine in ["hints", "pools"] {
        for name in ["eth0", "0000:3b:00.0"] {
            let keys = format!("engine = '{engine}'\ndevices = ['{name}']");
            let grant = granted(&keys, QosClass::Guaranteed, None);
            let near = machine().cpus_of(&NodeSet::from_iter([NodeId(1)]));
            assert!(grant.exclusive.is_subset(&near), "{keys}");
        }
        let keys = format!("engine = '{engine}'\ndevices = ['eth0']\nnuma_nodes = '0'");
        assert_eq!(granted(&keys, QosClass::Guaranteed, None).mems.to_string(), "0", "{engine}");
    }
    let mut full = Host::new(machine(), crate::policy::placement::HintsSettings::default());
    full.admit(&pod("first", vec![container("main", 5000, GIB)])).unwrap();
    let near = pod(
        "second",
        vec![{
            let mut asked = container("main", 8000, GIB);
            declare(&mut asked, &rule("devices = ['eth0']\npolicy = 'single-numa-node'"), 0, &machine());
            asked
        }],
    );
    full.admit(&near).unwrap();
    assert_eq!(full.place("second", "main").1, "1");
    let mut late = near.clone();
    late.name.name = "third".into();
    late.containers[0].requests.milli_cpus = Some(1000);
    let refused = full.admit(&late).unwrap_err().to_string();
    assert!(!refused.contains("eth0"), "{refused}");
}

#[test]
fn a_device_that_is_not_there_is_told() {
    let mut blind = machine();
    blind.devices[0].node = None;
    let (wishes, unknown) = wishes_of(&rule("devices = ['eth0', 'eth9']"), 0, &blind);
    assert!(wishes.beside.is_empty());
    assert_eq!(unknown, ["of device \"eth0\" the node is not known", "there is no device \"eth9\""]);
}

#[test]
fn where_a_pod_can_have_one_only_the_first_entry_counts() {
    let mut first = container("first", 1000, GIB);
    declare(&mut first, &rule("engine = 'hints'\npolicy = 'none'"), 5, &machine());
    let mut second = container("second", 1000, GIB);
    declare(&mut second, &rule("engine = 'pools'"), 2, &machine());
    let mut both = pod("p", vec![first, second]);
    let engine = |pod: &PodRequest| {
        let mut host = Host::with(machine(), Vec::new(), PlacementSettings::default());
        host.admit(pod).unwrap();
        host.grant("p", "first").engine
    };
    assert_eq!(engine(&both), "pools");
    both.containers.reverse();
    assert_eq!(engine(&both), "pools");
    both.annotations = BTreeMap::from([("engine.numa-enforcer.io".into(), "hints".into())]);
    assert_eq!(engine(&both), "hints");
}
