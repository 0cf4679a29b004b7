//! `publish --once`: objects of a node that are printed, compared with a cluster's, or written.
//!
//! Printed objects are of a machine with two NUMA nodes and of a kubelet's files; the API server is a stub.

use std::{
    fs,
    os::unix::net::UnixListener,
    path::Path,
    thread,
    time::{Duration, Instant},
};

use enforcer_test_api::{ApiStub, Fault, StubKind};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    common::{Ended, run},
    daemon::Daemon,
};

/// A name whose part of the jitter is a few hundredths of a second.
const NODE: &str = "node-1597";
const OWN: &str = "/apis/numa-enforcer.io/v1alpha1/numanodestates/node-1597";
const NRT: &str = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/node-1597";

const KINDS: [StubKind; 2] = [
    StubKind {
        group: "numa-enforcer.io",
        version: "v1alpha1",
        plural: "numanodestates",
        kind: "NumaNodeState",
        namespaced: false,
    },
    StubKind {
        group: "topology.node.k8s.io",
        version: "v1alpha2",
        plural: "noderesourcetopologies",
        kind: "NodeResourceTopology",
        namespaced: false,
    },
];

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// A directory with a machine, the files of a kubelet and a configuration that names them.
struct Node(TempDir);

impl Node {
    fn new(lines: &str) -> Self {
        let node = Self(tempfile::tempdir().unwrap());
        for id in 0..2 {
            let [first, last] = [id * 2, id * 2 + 1];
            let dir = node.path(&format!("machine/sys/devices/system/node/node{id}"));
            write(&dir.join("cpulist"), &format!("{first}-{last}\n"));
            write(&dir.join("distance"), if id == 0 { "10 21\n" } else { "21 10\n" });
            write(
                &dir.join("meminfo"),
                &format!("Node {id} MemTotal: 4194304 kB\nNode {id} MemFree: 1024 kB\n"),
            );
            for cpu in [first, last] {
                let topology = node.path(&format!("machine/sys/devices/system/cpu/cpu{cpu}/topology"));
                write(&topology.join("physical_package_id"), &format!("{id}\n"));
                write(&topology.join("core_id"), &format!("{}\n", cpu % 2));
                write(&topology.join("thread_siblings_list"), &format!("{cpu}\n"));
                write(&topology.join("core_cpus_list"), &format!("{cpu}\n"));
            }
        }
        write(&node.path("machine/sys/devices/system/node/online"), "0-1\n");
        write(&node.path("machine/sys/devices/system/cpu/online"), "0-3\n");
        fs::create_dir_all(node.path("machine/proc")).unwrap();
        let kubelet = node.path("kubelet");
        write(
            &kubelet.join("cpu_manager_state"),
            r#"{"policyName":"none","defaultCpuSet":"","entries":{},"checksum":0}"#,
        );
        let account = |id: u32| {
            let amounts = json!({
                "total": 4_u64 << 30, "systemReserved": 1 << 30, "allocatable": 3_u64 << 30,
                "reserved": 0, "free": 3_u64 << 30,
            });
            json!({"numberOfAssignments": 0, "memoryMap": {"memory": amounts}, "cells": [id]})
        };
        let memory = json!({
            "policyName": "Static", "machineState": {"0": account(0), "1": account(1)},
            "entries": {}, "checksum": 0,
        });
        write(&kubelet.join("memory_manager_state"), &memory.to_string());
        node.configure(lines);
        node
    }

    fn path(&self, below: &str) -> std::path::PathBuf {
        self.0.path().join(below)
    }

    fn configure(&self, lines: &str) {
        let dir = self.0.path().display();
        let text = format!(
            "[kubelet]\nroot_dir = \"{dir}/kubelet\"\npodresources = \"{dir}/none.sock\"\n\
             [control]\nsocket = \"{dir}/control.sock\"\n[cluster]\nnode_name = \"{NODE}\"\n{lines}"
        );
        fs::write(self.path("config.toml"), text).unwrap();
    }

    /// The command with the configuration.
    fn publish(&self, arguments: &[&str]) -> Ended {
        let config = self.path("config.toml");
        run(&[&["publish", "--once", "--config", config.to_str().unwrap()], arguments].concat())
    }

    /// The object as the node of the machine has it.
    fn printed(&self, object: &str) -> Value {
        let machine = self.path("machine");
        let root = ["--root", machine.to_str().unwrap()];
        let printed = self.publish(&[&["--print", object, "-o", "json"][..], &root].concat());
        assert_eq!((printed.code, printed.stderr.as_str()), (Some(0), ""), "{}", printed.stderr);
        let yaml = self.publish(&[&["--print", object][..], &root].concat());
        let value: Value = serde_json::from_str(&printed.stdout).unwrap();
        if object != "own" {
            assert_eq!(serde_saphyr::from_str::<Value>(&yaml.stdout).unwrap(), value, "{}", yaml.stdout);
        }
        value
    }
}

#[test]
fn objects_are_printed_without_a_cluster() {
    let node = Node::new("");
    let nrt = node.printed("nrt");
    assert_eq!(nrt["apiVersion"], "topology.node.k8s.io/v1alpha2");
    assert_eq!((&nrt["kind"], &nrt["metadata"]), (&json!("NodeResourceTopology"), &json!({"name": NODE})));
    let memory = json!({
        "name": "memory", "capacity": "4294967296", "allocatable": "3221225472", "available": "3221225472",
    });
    let zone = |id: u32, costs: [u32; 2]| {
        let [first, last] = costs;
        let costs = json!([{"name": "node-0", "value": first}, {"name": "node-1", "value": last}]);
        json!({"name": format!("node-{id}"), "type": "Node", "costs": costs, "resources": [memory]})
    };
    assert_eq!(nrt["zones"], json!([zone(0, [10, 21]), zone(1, [21, 10])]), "no CPU is exclusive");

    let other = node.printed("numatopology");
    assert_eq!(other["apiVersion"], "nodeinfo.volcano.sh/v1alpha1");
    let spec = &other["spec"];
    assert_eq!(spec["numares"], json!({"cpu": {"allocatable": "0-3", "capacity": 4}}));
    assert_eq!(spec["policies"], json!({"CPUManagerPolicy": "none"}), "there is no kubelet to ask for more");
    assert_eq!(spec["cpuDetail"]["3"], json!({"numa": 1, "socket": 1, "core": 1}));
    assert_eq!(spec.get("resReserved"), None);

    let own = node.printed("own");
    assert_eq!(own["kind"], "NumaNodeState");
    assert_eq!(own["state"]["memory"].as_array().unwrap().len(), 2);
    let sources: Vec<_> =
        own["state"]["inexact"].as_array().unwrap().iter().map(|one| &one["source"]).collect();
    assert!(sources.contains(&&json!("kubelet:configuration")), "{sources:?}");
}

#[test]
fn object_that_would_be_wrong_is_not_printed() {
    let node = Node::new("");
    let file = node.path("kubelet/cpu_manager_state");
    fs::write(file, r#"{"policyName":"none","defaultCpuSet":"","entries":{"a":{"b":"1"}},"checksum":0}"#)
        .unwrap();
    let file = node.path("kubelet/memory_manager_state");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("\"free\":3221225472", "\"free\":99")).unwrap();
    let machine = node.path("machine");
    let ended = node.publish(&["--print", "nrt", "--root", machine.to_str().unwrap()]);
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(2), ""), "{}", ended.stderr);
    assert!(ended.stderr.contains("making NodeResourceTopology: kubelet:"), "{}", ended.stderr);
}

#[test]
fn wrong_usage_is_refused() {
    let node = Node::new("");
    let machine = node.path("machine");
    let root = machine.to_str().unwrap();
    for (arguments, words) in [
        (&["publish", "--print", "own"][..], "--once"),
        (&["publish", "--once", "--print", "everything"], "everything"),
        (&["publish", "--once", "--root", root], "--print"),
        (&["publish", "--once", "--root", root, "--print", "own"], "kubelet.root_dir"),
        (&["publish", "--once", "--root", root, "--print", "own", "--diff"], "--diff"),
    ] {
        let ended = run(arguments);
        assert_eq!(ended.code, Some(64), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}

/// The kubeconfig of a stub that has the node.
fn cluster(node: &Node) -> ApiStub {
    let stub = ApiStub::start(&KINDS);
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": stub.url()}}],
        "users": [{"name": "one", "user": {"token": "secret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    });
    fs::write(node.path("kubeconfig"), kubeconfig.to_string()).unwrap();
    let version = json!({"kubeletVersion": "v1.36.2"});
    let object = json!({"metadata": {"uid": "node-uid"}, "status": {"capacity": {}, "nodeInfo": version}});
    stub.put(&format!("/api/v1/nodes/{NODE}"), object);
    node.configure(&format!("kubeconfig = \"{}\"\n", node.path("kubeconfig").display()));
    stub
}

#[test]
fn object_is_written_once_and_compared() {
    let node = Node::new("");
    let stub = cluster(&node);
    // The files are those of another machine than this one: what has no place on it makes no object.
    fs::remove_file(node.path("kubelet/memory_manager_state")).unwrap();

    let absent = node.publish(&["--diff"]);
    assert_eq!(absent.code, Some(1), "{}", absent.stderr);
    assert!(absent.stdout.contains("+kind: NumaNodeState"), "{}", absent.stdout);
    assert_eq!(stub.object(OWN), None, "a comparison writes nothing");

    let written = node.publish(&[]);
    assert_eq!(
        (written.code, written.stdout.as_str()),
        (Some(0), "numanodestates/node-1597: written\n"),
        "{}",
        written.stderr
    );
    assert_eq!(stub.object(OWN).unwrap()["metadata"]["ownerReferences"][0]["uid"], "node-uid");
    let writes = stub.writes();
    assert_eq!(node.publish(&[]).stdout, "numanodestates/node-1597: unchanged\n");
    assert_eq!(stub.writes(), writes);
    let equal = node.publish(&["--diff", "--print", "own"]);
    assert_eq!((equal.code, equal.stdout.as_str()), (Some(0), ""), "{}", equal.stderr);

    let mut object = stub.object(OWN).unwrap();
    object["state"]["kubelet"]["topologyPolicy"] = json!("restricted");
    stub.put(OWN, object);
    let other = node.publish(&["--diff"]);
    assert_eq!(other.code, Some(1), "{}", other.stderr);
    let (first, rest) = other.stdout.split_once('\n').unwrap();
    assert_eq!(first, "--- cluster/numanodestates/node-1597", "{}", other.stdout);
    assert!(rest.starts_with("+++ node/numanodestates/node-1597\n@@ "), "{rest}");
    assert!(rest.contains("\n-    topologyPolicy: restricted\n"), "{rest}");

    let nrt = node.publish(&["--diff", "--print", "nrt", "-o", "json"]);
    assert_eq!(nrt.code, Some(1), "{}", nrt.stderr);
    assert!(nrt.stdout.contains("+  \"kind\": \"NodeResourceTopology\""), "{}", nrt.stdout);
    assert_eq!(stub.object(NRT), None);
}

#[test]
fn failures_are_named_and_end_with_2() {
    let node = Node::new("");
    let stub = cluster(&node);
    stub.fail_writes([Fault::status(403, "Forbidden")]);
    let forbidden = node.publish(&[]);
    assert_eq!(forbidden.code, Some(2), "{}", forbidden.stderr);
    assert!(
        forbidden.stderr.contains("a role needs the verb patch on numanodestates"),
        "{}",
        forbidden.stderr
    );

    let listener = UnixListener::bind(node.path("control.sock")).unwrap();
    let beside = node.publish(&[]);
    assert_eq!(beside.code, Some(2), "{}", beside.stderr);
    assert!(beside.stderr.contains("control.sock: a daemon runs here"), "{}", beside.stderr);
    assert_eq!(stub.object(OWN), None);
    assert_eq!(node.publish(&["--diff"]).code, Some(1), "a comparison is no write");
    drop(listener);

    node.configure(&format!("kubeconfig = \"{}\"\n", node.path("absent").display()));
    let absent = node.publish(&["--diff"]);
    assert_eq!(absent.code, Some(2), "{}", absent.stderr);
    assert!(absent.stderr.contains("absent"), "{}", absent.stderr);
}

/// A state with a later epoch would silence a daemon that the control socket does not show.
#[test]
fn state_of_a_daemon_that_lives_is_not_replaced() {
    let node = Node::new("");
    let stub = cluster(&node);
    fs::remove_file(node.path("kubelet/memory_manager_state")).unwrap();
    let lease = "/apis/coordination.k8s.io/v1/namespaces/prod/leases/numa-enforcer-node-1597";
    let annotations =
        json!({"numa-enforcer.io/lease-namespace": "prod", "numa-enforcer.io/boot-id": "an earlier one"});
    let state = json!({"revision": {"epoch": 4_000_000_000_000_000_000_i64, "counter": 1}});
    let object = json!({"metadata": {"name": NODE, "annotations": annotations}, "state": state});
    stub.put(OWN, object.clone());
    let renewed = |time: &str| json!({"spec": {"renewTime": time, "leaseDurationSeconds": 60}});
    stub.put(lease, renewed("2099-01-01T00:00:00.000000Z"));
    let refused = node.publish(&[]);
    assert_eq!(refused.code, Some(2), "{}", refused.stderr);
    assert!(refused.stderr.contains("has renewed its lease; nothing is written"), "{}", refused.stderr);
    assert_eq!(stub.object(OWN).unwrap()["state"], state);

    stub.put(lease, renewed("2020-01-01T00:00:00.000000Z"));
    let written = node.publish(&[]);
    assert_eq!(written.stdout, "numanodestates/node-1597: written\n", "{}", written.stderr);
    let now = stub.object(OWN).unwrap();
    assert!(now["state"]["revision"]["epoch"].as_i64() > state["revision"]["epoch"].as_i64(), "{now}");
    let kept = &now["metadata"]["annotations"];
    assert_eq!(kept["numa-enforcer.io/lease-namespace"], "prod", "{now}");
    assert_ne!(kept["numa-enforcer.io/boot-id"], "an earlier one", "{now}");
}

/// The stub has no definition of the second kind.
#[test]
fn daemon_publishes_objects_of_other_schedulers_beside_its_own() {
    let node = Node::new("");
    let stub = cluster(&node);
    fs::remove_file(node.path("kubelet/memory_manager_state")).unwrap();
    let dir = node.0.path().display();
    let lines = format!(
        "[kubelet]\nroot_dir = \"{dir}/kubelet\"\npodresources = \"{dir}/none.sock\"\n[cluster]\n\
         publish = true\nalso_publish = [\"numatopology\", \"nrt\"]\nnode_name = \"{NODE}\"\n\
         kubeconfig = \"{dir}/kubeconfig\"\n"
    );
    let daemon = Daemon::start_on("127.0.0.1:0", &lines);
    let until = Instant::now() + Duration::from_mins(1);
    while stub.object(OWN).is_none() || stub.object(NRT).is_none() {
        assert!(Instant::now() < until, "{:?} {:?}", stub.object(OWN), stub.object(NRT));
        thread::sleep(Duration::from_millis(20));
    }
    let nrt = stub.object(NRT).unwrap();
    assert_eq!(nrt["metadata"]["ownerReferences"][0]["uid"], "node-uid");
    assert_eq!(nrt["zones"][0]["name"], "node-0");
    // The daemon of an hour's interval has a turn when its configuration is read again.
    daemon.configure(&format!("interval = \"1s\"\n{lines}"));
    daemon.get("/metrics", "numa_enforcer_degraded{feature=\"numatopologies-not-served\"} 1");
    let metrics = daemon.get("/metrics", "numa_enforcer_degraded");
    assert!(!metrics.contains("feature=\"nrt-"), "{metrics}");
}
