//! Slices of the DRA driver on Kubernetes' own server. The kind is a custom resource there; a field that its
//! definition lacks is dropped, as a server drops the fields of features that are off.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use enforcer_cluster::{
    ApiConnection, KeptFields, PaceLimits, SlicePublisher, SliceSettings, WantedSlices, WatchLimits,
    publish_slices,
};
use enforcer_core::dra::slice::{AttributeValue, DeviceCapacity, ResourceSlice, SliceDevice};
use enforcer_test_api::{ApiServer, accept, define};
use hyper::{Method, StatusCode};
use kube::Client;
use numa_topology::degraded::Degraded;
use serde_json::{Value, json};
use tokio::sync::watch::{self, Receiver, Sender};

const PATH: &str = "/apis/resource.k8s.io/v1/resourceslices";
/// Longest wait for what has to happen in the end, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(2);

/// A definition of the kind, with or without the fields of `DRAConsumableCapacity`.
fn definition(has_consumable_capacity: bool) -> Value {
    let open = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    let mut capacity = json!({"type": "object", "properties": {"value": {"type": "string"}}});
    let mut device = json!({"type": "object", "properties": {
        "name": {"type": "string"},
        "attributes": {"type": "object", "additionalProperties": open},
    }});
    if has_consumable_capacity {
        capacity["properties"]["requestPolicy"] = open;
        device["properties"]["allowMultipleAllocations"] = json!({"type": "boolean"});
    }
    device["properties"]["capacity"] = json!({"type": "object", "additionalProperties": capacity});
    let spec = json!({"type": "object", "properties": {
        "driver": {"type": "string"},
        "nodeName": {"type": "string"},
        "pool": {"type": "object", "properties": {
            "name": {"type": "string"},
            "generation": {"type": "integer"},
            "resourceSliceCount": {"type": "integer"},
        }},
        "devices": {"type": "array", "items": device},
    }});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": {"spec": spec}}});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {
            "name": "resourceslices.resource.k8s.io",
            "annotations": {"api-approved.kubernetes.io": "https://github.com/kubernetes/kubernetes/pull/1"},
        },
        "spec": {
            "group": "resource.k8s.io", "scope": "Cluster",
            "names": {"plural": "resourceslices", "singular": "resourceslice", "kind": "ResourceSlice"},
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": schema,
                "selectableFields": [{"jsonPath": ".spec.driver"}, {"jsonPath": ".spec.nodeName"}],
            }],
        },
    })
}

/// A slice of one device with so many CPUs.
fn slice(node: &str, cpus: u64, generation: u64) -> ResourceSlice {
    let capacity = DeviceCapacity { value: cpus, step: Some(1) };
    ResourceSlice {
        driver: "numa-enforcer.io".into(),
        node: node.into(),
        node_uid: "node-1".into(),
        generation,
        slice_count: 1,
        devices: vec![SliceDevice {
            name: "ne-numa0".into(),
            attributes: BTreeMap::from([("resource.kubernetes.io/numaNode".into(), AttributeValue::Int(0))]),
            capacity: BTreeMap::from([("numa-enforcer.io/cpu".into(), capacity)]),
            allow_multiple: true,
            ..SliceDevice::default()
        }],
    }
}

fn wanted(cpus: u64) -> WantedSlices {
    Arc::new(move |generation| vec![slice("a", cpus, generation)])
}

/// A running loop.
struct Loop {
    wanted: Sender<Option<WantedSlices>>,
    written: Receiver<u64>,
    degraded: Receiver<Option<Degraded>>,
}

impl Loop {
    async fn start(server: &ApiServer) -> Self {
        let connection = Arc::new(ApiConnection::new(server.config().await).unwrap());
        let (wanted, states) = watch::channel(None);
        let (count, written) = watch::channel(0);
        let (tell, degraded) = watch::channel(None);
        let pace = PaceLimits { refill: Duration::from_millis(1), ..PaceLimits::default() };
        let settings = SliceSettings { pace, watch: WatchLimits::default(), first: Duration::ZERO };
        tokio::spawn(async move {
            let publisher = SlicePublisher::new(connection);
            let of = ("numa-enforcer.io", "a");
            publish_slices(&publisher, of, states, &settings, &tell, &count).await
        });
        Self { wanted, written, degraded }
    }
}

impl Loop {
    /// Waits until so many calls are done.
    async fn calls(&mut self, count: u64) {
        let done = self.written.wait_for(|done| *done >= count);
        tokio::time::timeout(LIMIT, done).await.unwrap().unwrap();
    }
}

/// CPUs and generation of the slices of this node, by name.
async fn stored(client: &Client) -> Vec<(String, String, u64)> {
    let (status, list) = accept(client, Method::GET, PATH, None).await;
    assert_eq!(status, StatusCode::OK, "{list}");
    let of = |slice: &Value| {
        let cpus = &slice["spec"]["devices"][0]["capacity"]["numa-enforcer.io/cpu"]["value"];
        let generation = slice["spec"]["pool"]["generation"].as_u64().unwrap();
        (
            slice["metadata"]["name"].as_str().unwrap().to_owned(),
            cpus.as_str().unwrap().to_owned(),
            generation,
        )
    };
    list["items"].as_array().unwrap().iter().map(of).collect()
}

/// Waits until the server has what is wanted.
async fn until(what: &str, client: &Client, is: impl Fn(&[(String, String, u64)]) -> bool) {
    let waits = async {
        while !is(&stored(client).await) {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    };
    assert!(tokio::time::timeout(LIMIT, waits).await.is_ok(), "never: {what}: {:?}", stored(client).await);
}

#[tokio::test]
async fn slices_come_change_and_return_after_a_kubelet_has_wiped_them() {
    let Some(server) = ApiServer::start() else { return };
    let client = server.client().await;
    define(&client, &definition(true)).await;
    let foreign = json!({"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice",
        "metadata": {"name": "foreign"},
        "spec": {"driver": "gpu.example.com", "nodeName": "a",
            "pool": {"name": "a", "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "g", "capacity": {"numa-enforcer.io/cpu": {"value": "0"}}}]}});
    assert_eq!(accept(&client, Method::POST, PATH, Some(&foreign)).await.0, StatusCode::CREATED);
    let mut publisher = Loop::start(&server).await;
    publisher.wanted.send_replace(Some(wanted(8)));
    let ours = |slices: &[(String, String, u64)], cpus: &str| {
        let ours: Vec<_> = slices.iter().filter(|(name, ..)| name != "foreign").collect();
        ours.len() == 1 && ours[0].1 == cpus && slices.len() == 2
    };
    until("the first slice", &client, |slices| ours(slices, "8")).await;
    publisher.calls(1).await;
    publisher.wanted.send_replace(Some(wanted(6)));
    until("another capacity", &client, |slices| ours(slices, "6")).await;
    publisher.calls(2).await;
    // Equal devices are no write, however often they are wanted.
    let version = versions(&client).await;
    publisher.wanted.send_replace(Some(wanted(6)));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(versions(&client).await, version);
    for (name, ..) in stored(&client).await.iter().filter(|(name, ..)| name != "foreign") {
        let path = format!("{PATH}/{name}");
        assert_eq!(accept(&client, Method::DELETE, &path, None).await.0, StatusCode::OK);
    }
    until("the slice again", &client, |slices| ours(slices, "6")).await;
    publisher.calls(3).await;
    assert_eq!(*publisher.written.borrow(), 3, "one call for each change");
    assert_eq!(*publisher.degraded.borrow(), None);
    // A second slice, as another instance may have left one, goes.
    let double = slice("a", 6, 1).to_json(0);
    assert_eq!(accept(&client, Method::POST, PATH, Some(&double)).await.0, StatusCode::CREATED);
    publisher.calls(4).await;
    until("one slice", &client, |slices| ours(slices, "6")).await;
}

#[tokio::test]
async fn any_number_of_stray_slices_goes_and_others_stay() {
    const STRAYS: usize = 150;
    let Some(server) = ApiServer::start() else { return };
    let client = server.client().await;
    define(&client, &definition(true)).await;
    for at in 0..STRAYS {
        // Of another start, of another generation, and one that this driver cannot read.
        let mut stray = slice("a", at as u64, at as u64 % 3 + 1).to_json(0);
        if at % 10 == 0 {
            stray["spec"]["devices"][0]["attributes"]["odd"] = json!({"int": "no number"});
        }
        assert_eq!(accept(&client, Method::POST, PATH, Some(&stray)).await.0, StatusCode::CREATED);
    }
    let other_node = slice("b", 4, 1).to_json(0);
    assert_eq!(accept(&client, Method::POST, PATH, Some(&other_node)).await.0, StatusCode::CREATED);
    assert_eq!(stored(&client).await.len(), STRAYS + 1);
    let mut publisher = Loop::start(&server).await;
    publisher.wanted.send_replace(Some(wanted(8)));
    until("the wanted slice and that of another node", &client, |slices| {
        let mut cpus: Vec<_> = slices.iter().map(|(_, cpus, _)| cpus.as_str()).collect();
        cpus.sort_unstable();
        cpus == ["4", "8"]
    })
    .await;
    publisher.calls(STRAYS as u64).await;
    assert_eq!(*publisher.degraded.borrow(), None);
}

/// Resource versions of all slices.
async fn versions(client: &Client) -> Vec<Value> {
    let (_, list) = accept(client, Method::GET, PATH, None).await;
    list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|slice| slice["metadata"]["resourceVersion"].clone())
        .collect()
}

#[tokio::test]
async fn fields_that_the_server_drops_are_told_and_not_sent_again_and_again() {
    let Some(server) = ApiServer::start() else { return };
    let client = server.client().await;
    define(&client, &definition(false)).await;
    let mut publisher = Loop::start(&server).await;
    // Two slices: another one is a new generation of both.
    publisher.wanted.send_replace(Some(Arc::new(|generation| {
        let of = |name: &str| {
            let mut slice = slice("a", 8, generation);
            (slice.slice_count, slice.devices[0].name) = (2, name.into());
            slice
        };
        vec![of("ne-numa0"), of("ne-numa1")]
    })));
    until("two slices", &client, |slices| slices.len() == 2).await;
    let told = publisher.degraded.wait_for(Option::is_some);
    let told = tokio::time::timeout(LIMIT, told).await.unwrap().unwrap().clone().unwrap();
    assert!(told.reason.contains("device ne-numa0: allowMultipleAllocations"), "{told:?}");
    let version = versions(&client).await;
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert_eq!(versions(&client).await, version, "they are as the server keeps them");
    let name = stored(&client).await[0].0.clone();
    assert_eq!(accept(&client, Method::DELETE, &format!("{PATH}/{name}"), None).await.0, StatusCode::OK);
    until("both again", &client, |slices| slices.len() == 2).await;
}

#[tokio::test]
async fn a_dry_run_shows_which_features_are_on_and_stores_nothing() {
    for has_consumable_capacity in [true, false] {
        let Some(server) = ApiServer::start() else { return };
        let client = server.client().await;
        define(&client, &definition(has_consumable_capacity)).await;
        let connection = Arc::new(ApiConnection::new(server.config().await).unwrap());
        let kept = SlicePublisher::new(connection).probe(&slice("a", 8, 1)).await.unwrap();
        assert_eq!(kept, KeptFields { consumable_capacity: has_consumable_capacity, node_allocatable: true });
        assert_eq!(stored(&client).await, []);
    }
}
