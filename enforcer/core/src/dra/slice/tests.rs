use numa_topology::{MemoryKind, id::NodeId, set::CpuSet, synth::Machine};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::{limits::consumed, *};
use crate::dra::{
    BudgetOptions, ClaimAllocation, ClaimContext, DeviceModel, MissingAmounts, ledger::samples::inventory,
};

const OWNER: SliceOwner<'static> =
    SliceOwner { driver: "numa-enforcer.io", node: "n1", node_uid: "uid-1", generation: 1 };

fn options() -> PublishOptions<'static> {
    PublishOptions { version: "0.2.0", ..PublishOptions::default() }
}

fn published(line: &str, options: &PublishOptions<'_>) -> Vec<ResourceSlice> {
    let inventory = inventory(line);
    let supply = ClaimSupply::new(&inventory, &BudgetOptions::default(), &CpuSet::new());
    slices(&inventory, &supply, options, &OWNER)
}

#[test]
fn a_node_is_one_device_that_is_shared_out() {
    let slices = published("sockets:2 cores:16 threads:2 l3:2 memory:64GiB hugepages-2Mi:512", &options());
    assert_eq!(slices.len(), 1);
    let json = slices[0].to_json(0);
    assert_eq!(json["metadata"]["generateName"], "00000-numa-enforcer.io-n1-");
    assert_eq!(json["metadata"]["ownerReferences"][0]["uid"], "uid-1");
    assert_eq!(json["spec"]["pool"], json!({"name": "n1", "generation": 1, "resourceSliceCount": 1}));
    let device = &json["spec"]["devices"][1];
    assert_eq!(device["name"], "ne-numa1");
    assert_eq!(device["allowMultipleAllocations"], true);
    assert_eq!(
        device["capacity"],
        json!({
            "numa-enforcer.io/cpu":
                {"value": "24", "requestPolicy": {"default": "0", "validRange": {"min": "0", "step": "1"}}},
            "numa-enforcer.io/milliCpu":
                {"value": "8000", "requestPolicy": {"default": "0", "validRange": {"min": "0", "step": "1"}}},
            "numa-enforcer.io/memory":
                {"value": "63Gi", "requestPolicy": {"default": "0", "validRange": {"min": "0", "step": "4Mi"}}},
            "numa-enforcer.io/hugepages2Mi":
                {"value": "1Gi", "requestPolicy": {"default": "0", "validRange": {"min": "0", "step": "2Mi"}}},
        })
    );
    let attributes = &device["attributes"];
    assert_eq!(attributes["resource.kubernetes.io/numaNode"], json!({"int": 1}));
    assert_eq!(attributes["dra.cpu/numaNodeID"], json!({"int": 1}));
    assert_eq!((&attributes["socket"], &attributes["cpus"]), (&json!({"int": 1}), &json!({"int": 32})));
    assert_eq!((&attributes["l3"], &attributes["threadsPerCore"]), (&json!({"int": 2}), &json!({"int": 2})));
    assert_eq!(attributes["memoryKind"], json!({"string": "dram"}));
    assert_eq!(attributes["version"], json!({"version": "0.2.0"}));
}

#[test]
fn name_of_a_slice_keeps_within_the_limit_whatever_the_node_is_called() {
    let label = "n".repeat(60);
    let long = format!("{label}.{label}.{label}.{}", "n".repeat(70));
    assert_eq!(long.len(), 253);
    for at in 210..253 {
        let owner = SliceOwner { node: &long[..at], ..OWNER };
        let inventory = inventory("sockets:1 cores:4");
        let supply = ClaimSupply::new(&inventory, &BudgetOptions::default(), &CpuSet::new());
        let json = slices(&inventory, &supply, &options(), &owner)[0].to_json(0);
        let name = json["metadata"]["generateName"].as_str().unwrap();
        assert!(name.len() + 5 <= 253 && !name.ends_with(".-"), "{at}: {name}");
        assert_eq!(json["spec"]["nodeName"], &long[..at]);
    }
    let dotted = format!("{}..{}", "n".repeat(222), "n".repeat(20));
    let owner = SliceOwner { node: &dotted, ..OWNER };
    let inventory = inventory("sockets:1 cores:4");
    let supply = ClaimSupply::new(&inventory, &BudgetOptions::default(), &CpuSet::new());
    let json = slices(&inventory, &supply, &options(), &owner)[0].to_json(0);
    assert!(json["metadata"]["generateName"].as_str().unwrap().ends_with("nn-"));
}

#[test]
fn memory_only_nodes_are_devices_without_cpus() {
    let machine = Machine::new()
        .sockets(2)
        .memory_only(NodeId(2), 64, MemoryKind::Cxl, NodeId(0))
        .memory_only(NodeId(3), 64, MemoryKind::Gpu, NodeId(0))
        .build();
    let settings = numa_placement::settings::PlacementSettings::default();
    let inventory = Inventory::new(machine, Vec::new(), &settings).unwrap();
    let supply = ClaimSupply::new(&inventory, &BudgetOptions::default(), &CpuSet::new());
    let slices = slices(&inventory, &supply, &options(), &OWNER);
    let names: Vec<&str> = slices[0].devices.iter().map(|device| device.name.as_str()).collect();
    assert_eq!(names, ["ne-numa0", "ne-numa1", "ne-numa2"]);
    let far = &slices[0].devices[2];
    assert_eq!(far.capacity.keys().collect::<Vec<_>>(), ["numa-enforcer.io/memory"]);
    assert_eq!(far.attributes["cpuless"], AttributeValue::Bool(true));
    assert_eq!(far.attributes["memoryKind"], AttributeValue::Text("cxl".into()));
    let all: Vec<Vec<&String>> =
        slices[0].devices.iter().map(|device| device.attributes.keys().collect()).collect();
    assert!(all.iter().all(|own| *own == all[0]), "a selector aborts on an attribute that a device lacks");
}

#[test]
fn nodes_of_one_socket_are_one_distance_class() {
    let slices = published("sockets:2 nodes:2 cores:8 threads:2", &options());
    let class = |device: &SliceDevice| device.attributes["distanceClass"].clone();
    let classes: Vec<AttributeValue> = slices[0].devices.iter().map(class).collect();
    assert_eq!(classes, [0, 0, 1, 1].map(AttributeValue::Int));
}

#[test]
fn without_shared_capacity_devices_are_cores_or_nodes() {
    let cores =
        published("sockets:2 cores:8 threads:2", &PublishOptions { model: DeviceModel::Cores, ..options() });
    let names: Vec<&str> = cores[0].devices.iter().map(|device| device.name.as_str()).collect();
    // 12 of 16 CPUs of each node, the cores with the highest numbers.
    assert_eq!(names[..2], ["ne-core2", "ne-core3"]);
    assert_eq!(names.len(), 12);
    assert_eq!(cores[0].devices[0].attributes["cpuList"], AttributeValue::Text("2,18".into()));
    let json = cores[0].to_json(0);
    assert!(json["spec"]["devices"][0]["allowMultipleAllocations"].is_null());
    let nodes = published("sockets:2", &PublishOptions { model: DeviceModel::WholeNodes, ..options() });
    assert!(nodes[0].devices.iter().all(|device| device.capacity.is_empty() && !device.allow_multiple));
}

#[test]
fn many_cores_are_several_slices_of_one_pool() {
    let slices =
        published("sockets:4 cores:64 threads:2", &PublishOptions { model: DeviceModel::Cores, ..options() });
    assert_eq!(slices.iter().map(|slice| slice.devices.len()).collect::<Vec<_>>(), [128, 64]);
    assert!(slices.iter().all(|slice| slice.slice_count == 2));
}

#[test]
fn both_shapes_tie_amounts_to_the_node() {
    let device = |node_allocatable| {
        let line = "cores:8 threads:2 memory:64GiB hugepages-2Mi:64";
        let slices = published(line, &PublishOptions { node_allocatable, ..options() });
        slices[0].to_json(0)["spec"]["devices"][0].clone()
    };
    let mapped = device(NodeAllocatableShape::Mappings);
    assert_eq!(
        mapped["nodeAllocatableResourceMappings"],
        json!({
            "cpu": {"capacityKey": "numa-enforcer.io/cpu"},
            "memory": {"capacityKey": "numa-enforcer.io/memory"},
            "hugepages-2Mi": {"capacityKey": "numa-enforcer.io/hugepages2Mi"},
        })
    );
    let resources = device(NodeAllocatableShape::Resources);
    assert_eq!(
        resources["nodeAllocatableResources"]["cpu"],
        json!({"mapping": {"capacityKey": "numa-enforcer.io/cpu", "capacityMultiplier": "1"}})
    );
    let absent = device(NodeAllocatableShape::Absent);
    for field in ["nodeAllocatableResourceMappings", "nodeAllocatableResources"] {
        assert!(absent[field].is_null());
        assert_eq!([&mapped, &resources].iter().filter(|device| device[field].is_null()).count(), 1);
    }
}

fn shared() -> ResourceSlice {
    let options = PublishOptions { node_allocatable: NodeAllocatableShape::Mappings, ..options() };
    published("sockets:2 cores:8 threads:2 memory:64GiB", &options).remove(0)
}

#[test]
fn quantities_of_other_notations_are_no_difference() {
    let wanted = shared();
    let mut stored = wanted.to_json(0);
    stored["metadata"]["name"] = json!("00000-numa-enforcer.io-n1-x7");
    stored["spec"]["pool"]["generation"] = json!(7);
    stored["spec"]["devices"][0]["capacity"]["numa-enforcer.io/memory"]["value"] = json!("65536Mi");
    stored["spec"]["devices"][1]["capacity"]["numa-enforcer.io/milliCpu"]["value"] = json!("4e3");
    let read = ResourceSlice::read(&stored).unwrap();
    assert_eq!(difference(&wanted, &read), None);
    assert_eq!(read.generation, 7);
}

#[test]
fn differences_and_foreign_fields_are_named() {
    for (path, value, said) in [
        ("/metadata/ownerReferences/0/uid", json!("uid-2"), "metadata.ownerReferences"),
        ("/spec/devices/1/name", json!("ne-numa9"), "device ne-numa1: its name"),
        ("/spec/devices/0/attributes/socket/int", json!(4), "device ne-numa0: attributes"),
        ("/spec/devices/0/capacity/numa-enforcer.io~1cpu/value", json!("5"), "device ne-numa0: capacity"),
        (
            "/spec/devices/0/nodeAllocatableResourceMappings/cpu/capacityKey",
            json!("x"),
            "device ne-numa0: amounts of the node",
        ),
        (
            "/spec/devices/0/capacity/numa-enforcer.io~1cpu/value",
            json!("0.5"),
            "spec.devices[0].capacity.numa-enforcer.io/cpu.value: `0.5` is no whole amount",
        ),
        (
            "/spec/devices/0/attributes/socket",
            json!({}),
            "spec.devices[0].attributes.socket.bool: it is missing",
        ),
        ("/spec/pool", json!(1), "spec.pool: an object is expected"),
    ] {
        let wanted = shared();
        let mut stored = wanted.to_json(0);
        *stored.pointer_mut(path).unwrap() = value;
        let found = match ResourceSlice::read(&stored) {
            Ok(stored) => difference(&wanted, &stored).unwrap(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, said, "{path}");
    }
}

#[test]
fn dropped_fields_tell_which_feature_is_off() {
    let sent = shared();
    let kept = |change: &dyn Fn(&mut serde_json::Map<String, Value>)| {
        let mut answer = sent.to_json(0);
        for device in answer["spec"]["devices"].as_array_mut().unwrap() {
            change(device.as_object_mut().unwrap());
        }
        let dropped = dropped(&sent, &ResourceSlice::read(&answer).unwrap());
        (dropped.consumable_capacity, dropped.node_allocatable)
    };
    assert_eq!(kept(&|_| {}), (false, false));
    assert_eq!(kept(&|device| drop(device.remove("allowMultipleAllocations"))), (true, false));
    assert_eq!(kept(&|device| drop(device.remove("nodeAllocatableResourceMappings"))), (false, true));
    let policies = |device: &mut serde_json::Map<String, Value>| {
        for capacity in device["capacity"].as_object_mut().unwrap().values_mut() {
            capacity.as_object_mut().unwrap().remove("requestPolicy");
        }
    };
    assert_eq!(kept(&policies), (true, false));
}

fn any_published() -> impl Strategy<Value = (Inventory, BudgetOptions, PublishOptions<'static>)> {
    let machine = (1u32..5, 1u32..12, 1u32..3, 0u64..2_000, 0u64..40, prop::bool::ANY).prop_map(
        |(sockets, cores, threads, gib, pages, has_far)| {
            let machine = Machine::new().sockets(sockets).cores(cores).threads(threads).memory_gib(gib);
            let machine = machine.hugepages(2 << 20, pages).hugepages(1 << 30, pages / 7);
            let far = NodeId(1_000);
            let machine =
                if has_far { machine.memory_only(far, gib, MemoryKind::Cxl, NodeId(0)) } else { machine };
            Inventory::new(
                machine.build(),
                Vec::new(),
                &numa_placement::settings::PlacementSettings::default(),
            )
            .unwrap()
        },
    );
    let budget = (0u8..=110, any::<bool>(), any::<bool>(), 0u64..5_000_000_000).prop_map(
        |(exclusive_percent, full_cores, overlap, reserve_memory_bytes)| BudgetOptions {
            exclusive_percent,
            full_cores,
            overlap,
            reserve_memory_bytes,
            ..BudgetOptions::default()
        },
    );
    let models =
        prop::sample::select(&[DeviceModel::SharedNodes, DeviceModel::WholeNodes, DeviceModel::Cores][..]);
    let shapes = prop::sample::select(
        &[NodeAllocatableShape::Absent, NodeAllocatableShape::Mappings, NodeAllocatableShape::Resources][..],
    );
    let publish = (models, shapes, any::<bool>()).prop_map(|(model, node_allocatable, full_cores)| {
        PublishOptions { model, node_allocatable, full_cores, version: "0.2.0-rc.1" }
    });
    (machine, budget, publish)
}

proptest! {
    #[test]
    fn no_slice_breaks_a_limit_of_the_api((inventory, budget, options) in any_published()) {
        let supply = ClaimSupply::new(&inventory, &budget, &CpuSet::new());
        let slices = slices(&inventory, &supply, &options, &OWNER);
        prop_assert!(!slices.is_empty(), "an empty slice is published rather than none");
        let objects: Vec<Value> = slices.iter().enumerate().map(|(at, slice)| slice.to_json(at)).collect();
        prop_assert_eq!(limits::broken(&objects), Ok(()));
        for (slice, object) in slices.iter().zip(&objects) {
            let read = ResourceSlice::read(object).unwrap();
            prop_assert_eq!(difference(slice, &read), None);
            prop_assert_eq!(dropped(slice, &read), DroppedFields::default());
        }
    }

    #[test]
    fn amounts_that_a_scheduler_notes_are_understood(
        (inventory, budget, _) in any_published(),
        asked in prop::collection::vec(0u64..2_000_000_000_000, 8), taken in 0u64..1_000,
    ) {
        let supply = ClaimSupply::new(&inventory, &budget, &CpuSet::new());
        let slice = slices(&inventory, &supply, &options(), &OWNER).remove(0).to_json(0);
        let Some(device) = slice["spec"]["devices"].get(0) else { return Ok(()) };
        let none = serde_json::Map::new();
        let mut noted = serde_json::Map::new();
        let mut whole = std::collections::BTreeMap::new();
        for ((key, capacity), asked) in device["capacity"].as_object().unwrap_or(&none).iter().zip(&asked) {
            let value = numa_topology::quantity::exact(capacity["value"].as_str().unwrap()).unwrap();
            if let Some(text) = consumed(capacity, asked % (value + 2), taken) {
                whole.insert(key.clone(), numa_topology::quantity::exact(&text).unwrap());
                noted.insert(key.clone(), json!(text));
            }
        }
        let claim = json!({
            "metadata": {"uid": "c1", "namespace": "a", "name": "b"},
            "status": {"allocation": {"devices": {"results": [{
                "request": "place", "driver": "numa-enforcer.io", "pool": "n1", "device": device["name"],
                "consumedCapacity": noted,
            }]}}},
        });
        let context =
            ClaimContext { driver: "numa-enforcer.io", pool: "n1", uid: "c1", missing: MissingAmounts::Refuse };
        let read = ClaimAllocation::read(&claim, &context).unwrap();
        let amounts = read.results[0].consumed.amounts().unwrap();
        for (key, amount) in whole {
            prop_assert_eq!(amounts.of(crate::dra::ClaimCapacity::parse(&key).unwrap()), amount);
        }
    }
}
