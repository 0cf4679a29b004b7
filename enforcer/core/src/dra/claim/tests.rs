use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::dra::ClaimCores;

const UID: &str = "3c0f6b5e-1d2a-4f7e-9a51-0a1b2c3d4e5f";

fn context() -> ClaimContext<'static> {
    ClaimContext { driver: "numa-enforcer.io", pool: "n1", uid: UID, missing: MissingAmounts::Refuse }
}

fn claim() -> Value {
    json!({
        "metadata": {"uid": UID, "namespace": "shop", "name": "web-place"},
        "status": {
            "allocation": {"devices": {"results": [
                {"request": "gpu", "driver": "gpu.example.com", "pool": "x", "device": "gpu-0", "shareID": 7},
                {"request": "place/one", "driver": "numa-enforcer.io", "pool": "n1", "device": "ne-numa0",
                 "shareID": "11111111-2222-3333-4444-555555555555",
                 "consumedCapacity": {"numa-enforcer.io/cpu": "8", "numa-enforcer.io/memory": "32Gi",
                                      "numa-enforcer.io/milliCpu": "0",
                                      "numa-enforcer.io/hugepages2Mi": "1024Ki"}},
            ]}},
            "reservedFor": [
                {"resource": "pods", "name": "web-0", "uid": "pod-1"},
                {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "group-1"},
            ],
        },
    })
}

fn read(claim: &Value) -> Result<ClaimAllocation, String> {
    ClaimAllocation::read(claim, &context()).map_err(|error| error.to_string())
}

#[test]
fn own_results_are_read_and_others_passed_over() {
    let read = read(&claim()).unwrap();
    assert_eq!((read.namespace.as_str(), read.name.as_str()), ("shop", "web-place"));
    assert_eq!(read.results.len(), 1);
    let result = &read.results[0];
    assert_eq!((result.request.as_str(), result.base_request()), ("place/one", "place"));
    assert_eq!(result.device.to_string(), "ne-numa0");
    let amounts = result.consumed.amounts().unwrap();
    assert_eq!((amounts.cpus, amounts.memory_bytes, amounts.milli_cpus), (8, 32 << 30, 0));
    assert_eq!(amounts.hugepages, [(2 << 20, 1 << 20)].into());
    assert_eq!(read.consumers[0], ClaimConsumer::Pod { uid: "pod-1".into(), name: "web-0".into() });
    assert!(matches!(&read.consumers[1], ClaimConsumer::Other { resource, .. } if resource == "podgroups"));
}

#[test]
fn every_refusal_names_the_field() {
    let result = "/status/allocation/devices/results/1";
    for (path, value, said) in [
        ("/metadata/uid", json!("other"), "metadata.uid: the claim was replaced"),
        ("/status/allocation", json!(null), "status.allocation: it is missing"),
        (
            "/status/allocation/devices/results",
            json!([]),
            "status.allocation.devices.results: no device of numa-",
        ),
        (
            "/status/allocation/devices/results",
            json!("x"),
            "status.allocation.devices.results: a list is expected",
        ),
        (result, json!(1), "status.allocation.devices.results[1]: an object is expected"),
        (&format!("{result}/pool"), json!("n2"), "results[1].pool: `n2` is not the pool of this node, n1"),
        (
            &format!("{result}/device"),
            json!("numa0"),
            "results[1].device: `numa0` is no device of this driver",
        ),
        (&format!("{result}/device"), json!("a\u{202e}b"), "results[1].device: `a\\u{202e}b` is no device"),
        (&format!("{result}/shareID"), json!("x".repeat(37)), "results[1].shareID: it has 37 bytes"),
        (&format!("{result}/adminAccess"), json!("yes"), "results[1].adminAccess: true or false is expected"),
        (&format!("{result}/consumedCapacity"), json!(null), "results[1].consumedCapacity: it is missing"),
        (
            &format!("{result}/consumedCapacity"),
            json!({"cpu": "1"}),
            "consumedCapacity.cpu: it is no capacity",
        ),
        (
            &format!("{result}/consumedCapacity"),
            json!({"numa-enforcer.io/cpu": "1500m"}),
            "results[1].consumedCapacity.numa-enforcer.io/cpu: `1500m` is no whole amount",
        ),
        (
            &format!("{result}/consumedCapacity"),
            json!({"numa-enforcer.io/cpu": 8}),
            "results[1].consumedCapacity.numa-enforcer.io/cpu: a text is expected",
        ),
        ("/status/reservedFor", json!(vec![1; 257]), "status.reservedFor: it has 257 elements"),
        ("/status/reservedFor/0/uid", json!(null), "status.reservedFor[0].uid: it is missing"),
    ] {
        let mut claim = claim();
        let (parent, name) = path.rsplit_once('/').unwrap();
        match claim.pointer_mut(parent).unwrap() {
            Value::Object(fields) => drop(fields.insert(name.to_owned(), value)),
            other => other[name.parse::<usize>().unwrap()] = value,
        }
        let refused = read(&claim).unwrap_err();
        assert!(refused.contains(said), "{path}: {refused}");
    }
}

#[test]
fn missing_amounts_are_the_whole_device_or_an_error_but_never_zero() {
    let mut dropped = claim();
    let result = dropped.pointer_mut("/status/allocation/devices/results/1").unwrap();
    result.as_object_mut().unwrap().remove("consumedCapacity");
    assert!(read(&dropped).unwrap_err().contains("consumedCapacity: it is missing"));
    let whole = ClaimContext { missing: MissingAmounts::WholeDevice, ..context() };
    let read = ClaimAllocation::read(&dropped, &whole).unwrap();
    assert_eq!(read.results[0].consumed, ConsumedAmounts::Whole);
}

#[test]
fn administrators_take_nothing() {
    let mut admin = claim();
    let result = admin.pointer_mut("/status/allocation/devices/results/1").unwrap();
    result["adminAccess"] = json!(true);
    let read = read(&admin).unwrap();
    assert!(read.results[0].is_admin);
    assert_eq!(read.results[0].consumed.amounts(), Some(&PlaceAmounts::default()));
}

#[test]
fn a_core_is_a_whole_device() {
    let mut core = claim();
    let result = core.pointer_mut("/status/allocation/devices/results/1").unwrap();
    result["device"] = json!("ne-core4");
    result.as_object_mut().unwrap().remove("consumedCapacity");
    assert_eq!(read(&core).unwrap().results[0].consumed, ConsumedAmounts::Whole);
}

fn with_configs(configs: &Value) -> Value {
    let mut claim = claim();
    claim["status"]["allocation"]["devices"]["config"] = configs.clone();
    claim
}

fn config(source: &str, requests: &[&str], fields: &Value) -> Value {
    let mut parameters = json!({"apiVersion": "numa-enforcer.io/v1alpha1", "kind": "NumaClaimConfig"});
    parameters.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
    json!({"source": source, "requests": requests,
           "opaque": {"driver": "numa-enforcer.io", "parameters": parameters}})
}

#[test]
fn options_are_those_for_the_request() {
    let options = |configs: Value| read(&with_configs(&configs)).map(|read| read.results[0].options);
    let full = json!({"cores": "full"});
    for requests in [&[][..], &["place"], &["place/one"], &["x", "place"]] {
        assert_eq!(options(json!([config("FromClaim", requests, &full)])).unwrap().cores(), ClaimCores::Full);
    }
    for requests in [&["plac"][..], &["place/on"], &["place/one/x"]] {
        assert_eq!(options(json!([config("FromClaim", requests, &full)])).unwrap().cores(), ClaimCores::Any);
    }
    let both = json!([config("FromClass", &[], &full), config("FromClaim", &[], &json!({"cores": "any"}))]);
    assert_eq!(options(both).unwrap().cores(), ClaimCores::Any);
    let foreign = json!([{"source": "FromClaim", "opaque": {"driver": "gpu.example.com", "parameters": 3}}]);
    assert_eq!(options(foreign).unwrap(), ClaimOptions::default());
}

#[test]
fn refused_options_name_their_configuration() {
    let refused = |configs: Value| read(&with_configs(&configs)).unwrap_err();
    let twice = json!([config("FromClaim", &[], &json!({})), config("FromClaim", &["place"], &json!({}))]);
    assert_eq!(
        refused(twice),
        "status.allocation.devices.config[1]: it is for the same request place/one as \
         status.allocation.devices.config[0]"
    );
    let unknown = json!([config("FromClass", &[], &json!({"cpuset": "0-3"}))]);
    assert!(refused(unknown).starts_with("status.allocation.devices.config[0].opaque.parameters.cpuset: "));
    let odd = json!([
        config("FromClass", &[], &json!({"pack": "spread"})),
        config("FromClaim", &[], &json!({"cores": "full"})),
    ]);
    assert!(refused(odd).starts_with("status.allocation.devices.config[1].opaque.parameters.pack: "));
    let without_effect = json!([config("FromClass", &[], &json!({"widen": "idle"}))]);
    assert_eq!(
        refused(without_effect),
        "status.allocation.devices.config[0].opaque.parameters.widen: `idle` is not supported by this version"
    );
}

/// Any JSON that looks like a claim, in part.
fn any_claim() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<i64>().prop_map(|number| json!(number)),
        "\\PC{0,20}".prop_map(|text| json!(text)),
        prop::sample::select(&["numa-enforcer.io", "n1", UID, "ne-numa0", "8", "1e3", "FromClaim"][..])
            .prop_map(|text| json!(text)),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let names = prop::sample::select(
            &[
                "metadata",
                "uid",
                "status",
                "allocation",
                "devices",
                "results",
                "config",
                "driver",
                "pool",
                "device",
                "request",
                "consumedCapacity",
                "numa-enforcer.io/cpu",
                "opaque",
                "parameters",
                "source",
                "requests",
                "reservedFor",
                "namespace",
                "name",
            ][..],
        );
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::Array),
            prop::collection::btree_map(names, inner, 0..6).prop_map(|fields| {
                Value::Object(fields.into_iter().map(|(name, value)| (name.to_owned(), value)).collect())
            }),
        ]
    })
}

proptest! {
    #[test]
    fn no_object_panics(part in any_claim(), at in 0usize..5) {
        let mut claim = claim();
        let paths = ["", "/metadata", "/status", "/status/allocation/devices",
                     "/status/allocation/devices/results/1"];
        *claim.pointer_mut(paths[at]).unwrap() = part;
        if let Err(error) = ClaimAllocation::read(&claim, &context()) {
            prop_assert!(error.to_string().len() < 2_000);
        }
    }
}
