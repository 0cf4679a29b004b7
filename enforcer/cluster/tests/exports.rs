//! Objects of other schedulers on Kubernetes' own server: what the daemon publishes is taken whole, and
//! an object of another writer is left alone.
//!
//! The definitions have the fields of the kinds and no more, so the server refuses a field that is not
//! theirs.

#![expect(clippy::unwrap_used, reason = "only tests are here")]

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use enforcer_cluster::{
    ApiConnection, ApiError, PaceLimits, PublishedKind, PublishedObject, Publisher, PublisherSettings,
    publish_changes,
};
use enforcer_core::cluster::exported::{
    ContainerAllocation, CpuDetail, ExportedKind, NodeResourceTopology, NrtAttribute, NrtCost, NrtResource,
    NrtZone, NumaResource, Numatopology, NumatopologySpec, PodAllocation,
};
use enforcer_test_api::{ApiServer, ApiStub, StubKind, accept, define};
use hyper::{Method, StatusCode};
use kube::Client;
use serde_json::{Value, json};
use tokio::sync::watch;

/// Longest wait for what has to happen in the end, on a machine that is busy.
const LIMIT: Duration = Duration::from_mins(2);

fn kind(kind: ExportedKind) -> PublishedKind {
    PublishedKind {
        group: kind.group().into(),
        version: kind.version().into(),
        plural: kind.plural().into(),
        kind: kind.kind().into(),
        own: false,
    }
}

fn path(kind: ExportedKind) -> String {
    format!("/apis/{}/{}/{}/a", kind.group(), kind.version(), kind.plural())
}

/// An object with every field.
fn object(kind: ExportedKind, cpus: u32) -> PublishedObject {
    let value = match kind {
        ExportedKind::Nrt => serde_json::to_value(NodeResourceTopology {
            attributes: vec![NrtAttribute { name: "topologyManagerPolicy".into(), value: "none".into() }],
            zones: vec![NrtZone {
                name: "node-0".into(),
                zone_type: "Node".into(),
                costs: vec![NrtCost { name: "node-0".into(), value: 10 }],
                resources: vec![NrtResource {
                    name: "cpu".into(),
                    capacity: "16".into(),
                    allocatable: "14".into(),
                    available: cpus.to_string(),
                }],
            }],
        }),
        ExportedKind::Numatopology => serde_json::to_value(Numatopology {
            spec: NumatopologySpec {
                policies: BTreeMap::from([("CPUManagerPolicy".into(), "static".into())]),
                res_reserved: BTreeMap::from([("cpu".into(), "500m".into())]),
                numares: BTreeMap::from([(
                    "cpu".into(),
                    NumaResource { allocatable: format!("0-{cpus}"), capacity: 16 },
                )]),
                cpu_detail: BTreeMap::from([("1".into(), CpuDetail { numa: 0, socket: 1, core: 2 })]),
                pod_allocations: vec![PodAllocation {
                    uid: "u".into(),
                    name: "web".into(),
                    namespace: "shop".into(),
                    container_allocations: vec![ContainerAllocation {
                        name: "main".into(),
                        allocations: BTreeMap::from([("cpu".into(), "0-1".into())]),
                    }],
                }],
            },
        }),
    };
    let Value::Object(content) = value.unwrap() else { unreachable!() };
    PublishedObject { content }
}

fn definition(kind: ExportedKind) -> Value {
    let text = json!({"type": "string"});
    let number = json!({"type": "integer", "format": "int64"});
    let texts = json!({"type": "object", "additionalProperties": text});
    let list = |fields: Value| json!({"type": "array", "items": {"type": "object", "properties": fields}});
    let properties = match kind {
        ExportedKind::Nrt => {
            let quantity = json!({
                "anyOf": [{"type": "integer"}, {"type": "string"}],
                "pattern": "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))))?$",
                "x-kubernetes-int-or-string": true,
            });
            let resources = json!({
                "name": text, "capacity": quantity, "allocatable": quantity, "available": quantity,
            });
            json!({
                "topologyPolicies": {"type": "array", "items": text},
                "attributes": list(json!({"name": text, "value": text})),
                "zones": list(json!({
                    "name": text, "type": text, "parent": text,
                    "attributes": list(json!({"name": text, "value": text})),
                    "costs": list(json!({"name": text, "value": number})),
                    "resources": list(resources),
                })),
            })
        }
        ExportedKind::Numatopology => {
            let map = |fields: Value| json!({"type": "object", "additionalProperties": {"type": "object", "properties": fields}});
            json!({"spec": {"type": "object", "properties": {
                "policies": texts, "resReserved": texts,
                "numares": map(json!({"allocatable": text, "capacity": number})),
                "cpuDetail": map(json!({"numa": number, "socket": number, "core": number})),
                "podAllocations": list(json!({
                    "uid": text, "name": text, "namespace": text,
                    "containerAllocations": list(json!({"name": text, "allocations": texts})),
                })),
            }}})
        }
    };
    let approval = json!({"api-approved.kubernetes.io": "unapproved, test only"});
    let schema = json!({"openAPIV3Schema": {"type": "object", "properties": properties}});
    let version = json!({"name": kind.version(), "served": true, "storage": true, "schema": schema});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{}.{}", kind.plural(), kind.group()), "annotations": approval},
        "spec": {
            "group": kind.group(), "scope": "Cluster", "versions": [version],
            "names": {"plural": kind.plural(), "singular": kind.kind().to_lowercase(), "kind": kind.kind()},
        },
    })
}

async fn read(client: &Client, kind: ExportedKind) -> (StatusCode, Value) {
    accept(client, Method::GET, &path(kind), None).await
}

/// Fields of the object that its content has.
fn content(stored: &Value, object: &PublishedObject) -> Value {
    object
        .content
        .keys()
        .map(|field| (field.clone(), stored[field].clone()))
        .collect::<serde_json::Map<_, _>>()
        .into()
}

#[tokio::test]
async fn server_takes_both_kinds_whole_and_leaves_objects_of_others_alone() {
    let Some(server) = ApiServer::start() else { return };
    let client = server.client().await;
    let connection = Arc::new(ApiConnection::new(server.config().await).unwrap());
    for one in [ExportedKind::Nrt, ExportedKind::Numatopology] {
        define(&client, &definition(one)).await;
        let publisher = |uid: &str| {
            let uid = watch::channel(uid.to_owned()).1;
            Publisher::new(Arc::clone(&connection), kind(one), "a".into()).with_node_uid(uid)
        };
        let mut ours = publisher("node-1");
        let first = object(one, 12);
        ours.publish(&first).await.unwrap();
        let (_, stored) = read(&client, one).await;
        assert_eq!(content(&stored, &first), Value::Object(first.content.clone()), "nothing is pruned");
        assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], "node-1");
        let strict = format!("{}?fieldManager=numa-enforcer&fieldValidation=Strict", path(one));
        let mut whole = stored.clone();
        whole["metadata"] = json!({"name": "a"});
        let (status, answer) = accept(&client, Method::PATCH, &strict, Some(&whole)).await;
        assert_eq!(status, StatusCode::OK, "every field is in the definition: {answer}");

        // The next daemon goes on, also for a node that was replaced.
        publisher("node-2").publish(&object(one, 11)).await.unwrap();
        let (_, stored) = read(&client, one).await;
        assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], "node-2");

        // A label of another program is no content.
        let label = json!({"metadata": {"labels": {"a": "b"}}});
        let merge = format!("{}?fieldManager=kubectl-label", path(one));
        let mut labelled = stored.clone();
        labelled["metadata"]["labels"] = label["metadata"]["labels"].clone();
        assert_eq!(accept(&client, Method::PUT, &merge, Some(&labelled)).await.0, StatusCode::OK);
        publisher("node-2").publish(&object(one, 10)).await.unwrap();

        // Another writer makes the object anew: with other content, and with equal content.
        for cpus in [5, 9] {
            assert_eq!(accept(&client, Method::DELETE, &path(one), None).await.0, StatusCode::OK);
            let mut theirs = Value::Object(object(one, cpus).content);
            theirs["apiVersion"] = json!(format!("{}/{}", one.group(), one.version()));
            theirs["kind"] = json!(one.kind());
            theirs["metadata"] = json!({"name": "a"});
            let collection = path(one).trim_end_matches("/a").to_owned() + "?fieldManager=nfd-master";
            let (status, made) = accept(&client, Method::POST, &collection, Some(&theirs)).await;
            assert_eq!(status, StatusCode::CREATED, "{made}");
            let refused = publisher("node-2").publish(&object(one, 9)).await.unwrap_err();
            let ApiError::OwnedByOther { managers, fields, .. } = &refused else { panic!("{refused}") };
            assert_eq!(managers, "nfd-master");
            let expected =
                if one == ExportedKind::Nrt { ".attributes, .zones" } else { ".spec.cpuDetail.1.core" };
            assert!(fields.join(", ").starts_with(expected), "{fields:?}");
            let (_, stored) = read(&client, one).await;
            assert_eq!(stored["metadata"]["resourceVersion"], made["metadata"]["resourceVersion"]);
        }

        // What that writer gave up is the daemon's again.
        assert_eq!(accept(&client, Method::DELETE, &path(one), None).await.0, StatusCode::OK);
        publisher("node-2").publish(&first).await.unwrap();
        assert!(!ours.check().await.is_ok_and(|changed| !changed), "the first daemon sees another object");
    }
}

#[tokio::test]
async fn kind_that_is_not_served_is_named_and_not_asked_for_often() {
    let Some(server) = ApiServer::start() else { return };
    let connection = Arc::new(ApiConnection::new(server.config().await).unwrap());
    let uid = watch::channel("node-1".to_owned()).1;
    let publisher = Publisher::new(connection, kind(ExportedKind::Nrt), "a".into()).with_node_uid(uid);
    let (states, changes) = watch::channel(Some(object(ExportedKind::Nrt, 1)));
    let (tell, mut degraded) = watch::channel(None);
    let settings = PublisherSettings {
        after_return: Duration::ZERO,
        limits: PaceLimits::default(),
        first: Duration::ZERO,
        check: Duration::from_mins(10),
    };
    tokio::spawn(async move { publish_changes(publisher, changes, settings, &tell).await });
    let wanted = degraded.wait_for(Option::is_some);
    let entry = tokio::time::timeout(LIMIT, wanted).await.unwrap().unwrap().clone().unwrap();
    assert_eq!(entry.source, "nrt-not-served");
    let words = "the cluster has no definition of noderesourcetopologies.topology.node.k8s.io";
    assert!(entry.reason.ends_with(words), "{}", entry.reason);
    drop(states);
}

#[tokio::test]
async fn object_that_was_deleted_comes_back_for_the_node_of_now() {
    const NODE: &str = "/api/v1/nodes/a";
    let one = ExportedKind::Numatopology;
    let stub = ApiStub::start(&[StubKind {
        group: one.group(),
        version: one.version(),
        plural: one.plural(),
        kind: one.kind(),
        namespaced: false,
    }]);
    stub.put(NODE, json!({"metadata": {"uid": "node-1"}}));
    let connection = Arc::new(ApiConnection::new(stub.config()).unwrap());
    let mut publisher = Publisher::new(connection, kind(one), "a".into());
    publisher.publish(&object(one, 3)).await.unwrap();
    stub.remove(NODE);
    stub.put(NODE, json!({"metadata": {"uid": "node-2"}}));
    stub.remove(&path(one));
    assert!(publisher.check().await.unwrap());
    publisher.publish(&object(one, 3)).await.unwrap();
    let stored = stub.object(&path(one)).unwrap();
    assert_eq!(stored["metadata"]["ownerReferences"][0]["uid"], "node-2");
    assert_eq!(stored["spec"]["numares"]["cpu"]["allocatable"], "0-3");
}
