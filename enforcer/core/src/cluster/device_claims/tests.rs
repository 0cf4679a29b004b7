use std::collections::{BTreeMap, BTreeSet};

use numa_placement::PodName;
use numa_topology::synth::Machine;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::{
    cluster::{described::DescribedKubelet, objects::PodClaim, view::NodeView},
    policy::DraSettings,
};

fn view(line: &str) -> NodeView {
    let machine = line.parse::<Machine>().unwrap().build();
    let (_, state) = DescribedKubelet::default().empty("a", &machine).unwrap();
    let mut view = NodeView::default();
    view.observe_state(&state.state.unwrap(), 0);
    view
}

fn node(view: &NodeView) -> ClaimNode<'_> {
    ClaimNode {
        name: "a",
        version: view.version(),
        inventory: view.model().map(|model| &*model.inventory),
        allocations: view.allocations(),
    }
}

fn gpu(name: &str, numa: i64) -> Value {
    json!({"name": name, "attributes": {
        "model": {"string": "a100"}, "resource.kubernetes.io/numaNode": {"int": numa},
    }})
}

/// A slice of a GPU driver for node `a`.
fn gpus(devices: &[Value]) -> Value {
    json!({"kind": "ResourceSlice", "metadata": {"name": "gpus-a"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "a",
        "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1}, "devices": devices,
    }})
}

fn class() -> Value {
    json!({"kind": "DeviceClass", "metadata": {"name": "gpu"}, "spec": {
        "selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}],
    }})
}

/// A template of these requests and constraints.
fn template(name: &str, requests: &Value, constraints: &Value) -> Value {
    json!({"kind": "ResourceClaimTemplate", "metadata": {"name": name}, "spec": {"spec": {"devices": {
        "requests": requests, "constraints": constraints,
    }}}})
}

fn book(objects: &[Value]) -> ClaimBook {
    let mut read = DeviceObjects::default();
    for object in objects {
        read.add(object).unwrap();
    }
    ClaimBook::new(read)
}

fn of_template(template: &str) -> Vec<PodClaim> {
    vec![PodClaim { name: "c".into(), template: Some(template.into()), ..PodClaim::default() }]
}

/// `DEVICE AMOUNTS on NODES` of each device that a pod gets on node `a`, or the reason.
fn placed(book: &mut ClaimBook, view: &NodeView, pod: &str, claims: &[PodClaim]) -> String {
    let name = PodName::new("default", pod);
    let found = book.resolve(&name, claims).and_then(|claims| book.find(&node(view), &claims));
    match found {
        Err(reason) => reason,
        Ok(place) => {
            let claims = book.give(pod, place);
            let devices = claims.iter().flat_map(|claim| &claim.devices).map(|device| {
                let amounts: Vec<_> = device.consumed.values().cloned().collect();
                format!(
                    "{} {}on {}",
                    device.device,
                    amounts.join(" ") + if amounts.is_empty() { "" } else { " " },
                    device.numa_nodes
                )
            });
            devices.collect::<Vec<_>>().join("; ")
        }
    }
}

const LINE: &str = "sockets:2 cores:8 threads:2 memory:16GiB";

fn exactly(name: &str, class: &str, more: &Value) -> Value {
    let mut request = json!({"deviceClassName": class});
    more.as_object().unwrap().iter().for_each(|(key, value)| request[key] = value.clone());
    json!({"name": name, "exactly": request})
}

#[test]
fn gpu_and_numa_node_come_together() {
    let place =
        json!({"capacity": {"requests": {"numa-enforcer.io/cpu": "8", "numa-enforcer.io/memory": "4Gi"}}});
    let requests = json!([exactly("gpu", "gpu", &json!({})), exactly("place", "numa-enforcer.io", &place)]);
    let both = json!([{"matchAttribute": "resource.kubernetes.io/numaNode"}]);
    let mut book =
        book(&[gpus(&[gpu("g0", 1), gpu("g1", 0), gpu("g2", 1)]), class(), template("t", &requests, &both)]);
    let view = view(LINE);
    let claims = of_template("t");
    assert_eq!(placed(&mut book, &view, "one", &claims), "g0 on 1; ne-numa1 8 4Gi on 1");
    assert_eq!(placed(&mut book, &view, "two", &claims), "g1 on 0; ne-numa0 8 4Gi on 0");
    // Node 1 has 12 CPUs for claims, of which 8 are taken.
    assert_eq!(
        placed(&mut book, &view, "three", &claims),
        "DRA: claim c, request place: not enough numa-enforcer.io/cpu on one device"
    );
}

#[test]
fn requests_are_met_as_in_kubernetes() {
    let devices = [gpu("g0", 0), gpu("g1", 1), gpu("g2", 1)];
    let view = view(LINE);
    let none = json!([]);
    for (requests, constraints, expected) in [
        (json!([exactly("g", "gpu", &json!({"count": 2}))]), none.clone(), "g0 on 0; g1 on 1"),
        (
            json!([exactly("g", "gpu", &json!({"count": 2}))]),
            json!([{"requests": ["g"], "matchAttribute": "resource.kubernetes.io/numaNode"}]),
            "g1 on 1; g2 on 1",
        ),
        (
            json!([exactly("g", "gpu", &json!({"count": 3}))]),
            json!([{"distinctAttribute": "resource.kubernetes.io/numaNode"}]),
            "DRA: claim c, request g: no device satisfies the constraint on resource.kubernetes.io/numaNode",
        ),
        (
            json!([exactly("g", "gpu", &json!({"allocationMode": "All"}))]),
            none.clone(),
            "g0 on 0; g1 on 1; g2 on 1",
        ),
        (
            json!([exactly("g", "gpu", &json!({"count": 4}))]),
            none.clone(),
            "DRA: claim c, request g: too few devices",
        ),
        // As v1beta1 has it.
        (json!([{"name": "g", "deviceClassName": "gpu"}]), none.clone(), "g0 on 0"),
        (
            json!([{"name": "g", "firstAvailable": [
                {"name": "many", "deviceClassName": "gpu", "count": 9},
                {"name": "one", "deviceClassName": "gpu"},
            ]}]),
            none.clone(),
            "g0 on 0",
        ),
        (
            json!([exactly("g", "other", &json!({}))]),
            none.clone(),
            "DRA: claim c, request g: no DeviceClass other",
        ),
        (
            json!([exactly(
                "g",
                "gpu",
                &json!({"selectors": [{"cel": {"expression":
                "device.attributes['gpu.example.com'].model == 'h100'"}}]})
            )]),
            none.clone(),
            "DRA: claim c, request g: no free device matches",
        ),
        (
            json!([exactly(
                "g",
                "gpu",
                &json!({"selectors": [{"cel": {"expression": "device.driver.matches('g')"}}]})
            )]),
            none.clone(),
            "DRA: claim c, request g: not understood: device.driver.matches('g') (the function `matches`)",
        ),
        (
            json!([exactly(
                "g",
                "numa-enforcer.io",
                &json!({"capacity": {"requests": {"numa-enforcer.io/cpu": "13"}}})
            )]),
            none.clone(),
            "DRA: claim c, request g: not enough numa-enforcer.io/cpu on one device",
        ),
        // A step of memory is 4 MiB.
        (
            json!([exactly(
                "g",
                "numa-enforcer.io-dram",
                &json!({"capacity": {"requests": {"numa-enforcer.io/memory": "5Mi"}}})
            )]),
            none.clone(),
            "ne-numa0 8Mi on 0",
        ),
        (
            json!([exactly(
                "g",
                "numa-enforcer.io",
                &json!({"count": 2, "capacity": {"requests": {"numa-enforcer.io/cpu": "4"}}})
            )]),
            none,
            "ne-numa0 4 on 0; ne-numa1 4 on 1",
        ),
    ] {
        let mut book = book(&[gpus(&devices), class(), template("t", &requests, &constraints)]);
        assert_eq!(placed(&mut book, &view, "p", &of_template("t")), expected, "{requests}");
    }
}

#[test]
fn claims_of_the_input_are_shared_and_hold_what_they_have() {
    let claim = |name: &str, status: Value| {
        json!({"kind": "ResourceClaim", "metadata": {"name": name, "namespace": "default"}, "status": status,
            "spec": {"devices": {"requests": [exactly("g", "gpu", &json!({}))]}}})
    };
    let of = |node: &str, device: &str| {
        json!({"allocation": {
            "devices": {"results": [{"request": "g", "driver": "gpu.example.com", "pool": "a", "device": device}]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [
                {"key": "metadata.name", "operator": "In", "values": [node]}]}]},
        }})
    };
    let mut book = book(&[
        gpus(&[gpu("g0", 0), gpu("g1", 1)]),
        class(),
        claim("held", of("a", "g0")),
        claim("far", of("b", "x")),
        claim("open", json!({})),
    ]);
    let view = view(LINE);
    let named =
        |name: &str| vec![PodClaim { name: "c".into(), claim: Some(name.into()), ..PodClaim::default() }];
    assert_eq!(placed(&mut book, &view, "one", &named("open")), "g1 on 1");
    assert_eq!(placed(&mut book, &view, "two", &named("open")), "g1 on 1", "one claim, two pods");
    assert!(placed(&mut book, &view, "three", &named("held")).starts_with("g0 "));
    assert_eq!(placed(&mut book, &view, "four", &named("far")), "DRA: claim c has devices of another node");
    assert_eq!(placed(&mut book, &view, "five", &named("none")), "DRA: no ResourceClaim none");
    assert_eq!(placed(&mut book, &view, "six", &of_template("none")), "DRA: no ResourceClaimTemplate none");
}

/// CPUs and options of the driver's devices of a pod, or the reason.
fn chosen(book: &mut ClaimBook, view: &NodeView, pod: &str, claims: &[PodClaim]) -> String {
    let name = PodName::new("default", pod);
    let found = book.resolve(&name, claims).and_then(|claims| book.find(&node(view), &claims));
    let claims = match found {
        Err(reason) => return reason,
        Ok(place) => book.give(pod, place),
    };
    let shown = claims.iter().flat_map(|claim| &claim.devices).map(|device| {
        let options: Vec<_> = device.options.iter().map(|(name, value)| format!(" {name}={value}")).collect();
        format!("{}{}", device.cpus, options.concat())
    });
    shown.collect::<Vec<_>>().join("; ")
}

fn options(source: &Value) -> Value {
    let mut parameters = json!({"apiVersion": "numa-enforcer.io/v1alpha1", "kind": "NumaClaimConfig"});
    source.as_object().unwrap().iter().for_each(|(key, value)| parameters[key] = value.clone());
    json!([{"opaque": {"driver": "numa-enforcer.io", "parameters": parameters}}])
}

fn eight_cpus(config: &Value) -> Value {
    let place = json!({"capacity": {"requests": {"numa-enforcer.io/cpu": "8"}}});
    let mut template = template("t", &json!([exactly("place", "numa-enforcer.io", &place)]), &json!([]));
    template["spec"]["spec"]["devices"]["config"] = config.clone();
    template
}

#[test]
fn driver_chooses_cpus_by_the_options_of_class_and_claim() {
    let view = view(LINE);
    let claims = of_template("t");
    let mut plain = book(&[eight_cpus(&json!([]))]);
    assert_eq!(chosen(&mut plain, &view, "one", &claims), "1-4,17-20");
    assert_eq!(chosen(&mut plain, &view, "two", &claims), "8-11,24-27", "node 0 has 10 CPUs for claims");
    assert!(chosen(&mut plain, &view, "three", &claims).contains("not enough numa-enforcer.io/cpu"));
    let class = json!({"kind": "DeviceClass", "metadata": {"name": "numa-enforcer.io"}, "spec": {
        "selectors": [{"cel": {"expression": "device.driver == 'numa-enforcer.io'"}}],
        "config": options(&json!({"pack": "spread", "quota": "remove"})),
    }});
    let mut spread = book(&[class, eight_cpus(&options(&json!({"quota": "keep"})))]);
    let said = chosen(&mut spread, &view, "one", &claims);
    assert!(said.starts_with("1-7,") && said.ends_with(" pack=spread quota=keep"), "{said}");
    for (config, reason) in [
        (json!({"widen": "idle"}), "`idle` is not supported by this version"),
        (json!({"speed": "high"}), "speed: it is no field of NumaClaimConfig v1alpha1"),
    ] {
        let mut refused = book(&[eight_cpus(&options(&config))]);
        let said = chosen(&mut refused, &view, "one", &claims);
        assert!(said.starts_with("DRA: claim c: ") && said.contains(reason), "{said}");
    }
}

#[test]
fn budgets_of_the_configuration_count() {
    let dra = DraSettings { exclusive_percent: 40, ..DraSettings::default() };
    let mut own = book(&[eight_cpus(&json!([]))]).with_driver(PlannedDriver::from(&dra));
    let said = chosen(&mut own, &view(LINE), "one", &of_template("t"));
    assert_eq!(said, "DRA: claim c, request place: not enough numa-enforcer.io/cpu on one device");
    // Devices of the cluster are of another configuration, and the driver refuses what its own has not.
    let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {
        "driver": "numa-enforcer.io", "nodeName": "a",
        "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
        "devices": [{"name": "ne-numa0", "allowMultipleAllocations": true, "capacity": {
            "numa-enforcer.io/cpu": {"value": "16", "requestPolicy": {"default": "0"}}}}]}});
    let mut book = book(&[slice, eight_cpus(&json!([]))]).with_driver(PlannedDriver::from(&dra));
    let said = chosen(&mut book, &view(LINE), "one", &of_template("t"));
    assert!(
        said.starts_with("DRA: claim c: ") && said.contains("8 of numa-enforcer.io/cpu asked of ne-numa0"),
        "{said}"
    );
}

#[test]
fn claims_of_the_cluster_keep_cpus_and_a_second_pod_gets_none() {
    let status = json!({
        "reservedFor": [{"resource": "pods", "name": "old", "uid": "u-old"}],
        "allocation": {"devices": {"results": [{
            "request": "place", "driver": "numa-enforcer.io", "pool": "a", "device": "ne-numa0", "shareID": "s",
            "consumedCapacity": {"numa-enforcer.io/cpu": "8"},
        }]}},
    });
    let place = json!({"capacity": {"requests": {"numa-enforcer.io/cpu": "8"}}});
    let requests = json!([exactly("place", "numa-enforcer.io", &place)]);
    let held = json!({"kind": "ResourceClaim", "status": status,
        "metadata": {"name": "held", "namespace": "default", "uid": "c-1"},
        "spec": {"devices": {"requests": requests}}});
    let mut two = eight_cpus(&json!([]));
    two["spec"]["spec"]["devices"]["requests"][0]["exactly"]["capacity"]["requests"]["numa-enforcer.io/cpu"] =
        json!("2");
    let mut book = book(&[held, two]);
    let view = view(LINE);
    assert_eq!(chosen(&mut book, &view, "one", &of_template("t")), "5,21", "1-4,17-20 are of the claim");
    let named = [PodClaim { name: "c".into(), claim: Some("held".into()), ..PodClaim::default() }];
    assert_eq!(chosen(&mut book, &view, "two", &named), "", "its CPUs are of the first pod");
}

#[test]
fn devices_share_out_the_counters_of_their_pool() {
    let part = |name: &str, memory: &str| {
        json!({"name": name, "consumesCounters": [
            {"counterSet": "gpu-0", "counters": {"memory": {"value": memory}}}]})
    };
    let pool = json!({"name": "a", "generation": 1, "resourceSliceCount": 2});
    let counters = json!({"kind": "ResourceSlice", "metadata": {"name": "counters"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "a", "pool": pool,
        "sharedCounters": [{"name": "gpu-0", "counters": {"memory": {"value": "40Gi"}}}]}});
    let parts = json!({"kind": "ResourceSlice", "metadata": {"name": "parts"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "a", "pool": pool,
        "devices": [part("half", "20Gi"), part("whole", "40Gi"), part("quarter", "10Gi")]}});
    let one = json!([exactly("g", "gpu", &json!({}))]);
    let objects = [class(), counters, parts, template("t", &one, &json!([]))];
    let view = view(LINE);
    let mut both = book(&objects);
    let claims = of_template("t");
    assert_eq!(placed(&mut both, &view, "one", &claims), "half on ");
    assert_eq!(placed(&mut both, &view, "two", &claims), "quarter on ", "the whole one is too large now");
    let reason = "DRA: claim c, request g: not enough of the shared counter gpu-0/memory";
    assert_eq!(placed(&mut both, &view, "three", &claims), reason);
    // Within one claim too.
    let both = json!([exactly("g", "gpu", &json!({"count": 2}))]);
    let large = json!({"kind": "ResourceSlice", "metadata": {"name": "parts"}, "spec": {
        "driver": "gpu.example.com", "nodeName": "a", "pool": pool,
        "devices": [part("whole", "40Gi"), part("half", "20Gi")]}});
    let of_pool = [objects[0].clone(), objects[1].clone(), large, template("t", &both, &json!([]))];
    let mut at_once = book(&of_pool);
    assert_eq!(placed(&mut at_once, &view, "one", &claims), reason);
}

#[test]
fn nodes_of_single_devices_count_and_labels_are_told() {
    let device = |name: &str, node: &str| json!({"name": name, "nodeName": node});
    let slice = json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {
        "driver": "gpu.example.com", "perDeviceNodeSelection": true,
        "pool": {"name": "p", "generation": 1, "resourceSliceCount": 1},
        "devices": [device("b0", "b"), device("a0", "a"), {"name": "l0", "nodeSelector": {}}]}});
    let one = json!([exactly("g", "gpu", &json!({}))]);
    let mut book = book(&[class(), slice, template("t", &one, &json!([]))]);
    let view = view(LINE);
    let claims = of_template("t");
    assert_eq!(placed(&mut book, &view, "one", &claims), "a0 on ");
    assert_eq!(
        placed(&mut book, &view, "two", &claims),
        "DRA: claim c, request g: no free device matches; devices whose nodes are chosen by labels are left out"
    );
}

#[test]
fn objects_of_files_count_before_those_of_the_cluster() {
    let read = |objects: &[Value]| {
        let mut read = DeviceObjects::default();
        for object in objects {
            read.add(object).unwrap();
        }
        read
    };
    let one = json!([exactly("g", "gpu", &json!({}))]);
    let two = json!([exactly("g", "gpu", &json!({"count": 2}))]);
    let cluster = read(&[class(), gpus(&[gpu("old", 0)]), template("t", &one, &json!([]))]);
    let files = read(&[gpus(&[gpu("g0", 0), gpu("g1", 1)]), template("t", &two, &json!([]))]);
    let mut book = ClaimBook::new(files.over(cluster));
    assert_eq!(placed(&mut book, &view(LINE), "one", &of_template("t")), "g0 on 0; g1 on 1");
}

#[test]
fn objects_are_refused_with_their_field() {
    for (object, problem) in [
        (json!({"kind": "ResourceSlice", "metadata": {"name": "s"}}), "ResourceSlice s: spec: it is missing"),
        (
            json!({"kind": "ResourceSlice", "metadata": {"name": "s"}, "spec": {"driver": "d", "pool": {"name": "p"},
                "devices": [{"name": "x", "capacity": {"memory": {"value": "much"}}}]}}),
            "ResourceSlice s: spec.devices[0].capacity.memory.value: `much` is no quantity",
        ),
        (
            template("t", &json!([exactly("g", "gpu", &json!({"allocationMode": "Some"}))]), &json!([])),
            "ResourceClaimTemplate t: spec.spec.devices.requests[0].exactly: allocationMode is not understood",
        ),
    ] {
        assert_eq!(DeviceObjects::default().add(&object), Err(problem.to_owned()));
    }
    let mut objects = DeviceObjects::default();
    objects.add(&class()).unwrap();
    assert!(objects.add(&class()).unwrap_err().ends_with("it is there twice"));
    assert_eq!(objects.add(&json!({"kind": "Pod"})), Ok(()));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn nothing_is_given_twice(
        counts in prop::collection::vec((1_u64..4, 0_u64..7, any::<bool>()), 1..12),
        nodes in prop::collection::vec(0_i64..2, 1..6),
    ) {
        let devices: Vec<Value> = nodes.iter().enumerate().map(|(at, node)| gpu(&format!("g{at}"), *node)).collect();
        let mut objects = vec![gpus(&devices), class()];
        for (at, (count, cpus, has_gpu)) in counts.iter().enumerate() {
            let amounts = json!({"capacity": {"requests": {"numa-enforcer.io/cpu": cpus.to_string()}}});
            let mut requests = vec![exactly("place", "numa-enforcer.io", &amounts)];
            if *has_gpu {
                requests.push(exactly("gpu", "gpu", &json!({"count": count})));
            }
            objects.push(template(&format!("t{at}"), &json!(requests), &json!([])));
        }
        let view = view(LINE);
        let play = || {
            let mut book = book(&objects);
            let mut gpus = BTreeSet::new();
            let mut cpus = BTreeMap::<String, u64>::new();
            let mut told = Vec::new();
            for at in 0..counts.len() {
                let name = PodName::new("default", format!("p{at}"));
                let claims = book.resolve(&name, &of_template(&format!("t{at}"))).unwrap();
                let Ok(place) = book.find(&node(&view), &claims) else { continue };
                for device in book.give(&name.name, place).into_iter().flat_map(|claim| claim.devices) {
                    told.push(device.device.clone());
                    if device.driver == "gpu.example.com" {
                        assert!(gpus.insert(device.device.clone()), "{} twice", device.device);
                    } else {
                        let taken = device.consumed.get("numa-enforcer.io/cpu").map_or(0, |text| text.parse().unwrap());
                        *cpus.entry(device.device).or_default() += taken;
                    }
                }
            }
            assert!(cpus.values().all(|taken| *taken <= 12), "{cpus:?}");
            told
        };
        prop_assert_eq!(play(), play());
    }
}
