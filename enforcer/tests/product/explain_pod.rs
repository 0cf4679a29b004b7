//! `explain pod` as a user runs it: pods of manifests and of the cluster, each source, bad input.

use std::{fs, path::Path};

use enforcer_test_api::StubKind;
use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::{
    common::{Ended, finish, program},
    plan_cluster::{STATES, served},
};

/// Runs it beside the examples of the documentation.
fn explain(arguments: &[&str]) -> Ended {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/plan");
    let mut command = program(&["explain", "pod"]);
    command.args(arguments).current_dir(examples).env("COLUMNS", "100");
    command.env_remove("KUBECONFIG").env_remove("HOME");
    finish(command)
}

/// The cluster of the documentation with pods beside its own.
fn cluster(pods: &[Value]) -> NamedTempFile {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/plan/cluster.json");
    let mut list: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    list["items"].as_array_mut().unwrap().extend_from_slice(pods);
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), list.to_string()).unwrap();
    file
}

fn pod(name: &str, cpus: u32, priority: i32, node: Option<&str>, phase: &str) -> Value {
    let amounts = json!({"cpu": cpus.to_string(), "memory": "1Gi"});
    json!({
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "shop", "uid": format!("uid-{name}"),
            "creationTimestamp": "2026-11-27T09:00:00Z"},
        "spec": {"nodeName": node, "priority": priority,
            "containers": [{"name": "main", "resources": {"requests": amounts, "limits": amounts}}]},
        "status": {"phase": phase},
    })
}

#[test]
fn pod_of_a_manifest_is_explained() {
    let arguments = ["shop/reports", "--file", "orders.yaml", "--cluster", "cluster.json"];
    let table = explain(&arguments);
    assert_eq!((table.code, table.stderr.as_str()), (Some(1), ""), "{table:?}");
    insta::assert_snapshot!("table", table.stdout);
    let page = include_str!("../../../docs/scheduler.md");
    assert!(page.contains(&table.stdout), "docs/scheduler.md has another output than\n{}", table.stdout);
    let arguments = [&arguments[..], &["-o", "json"]].concat();
    let document = explain(&arguments);
    insta::assert_snapshot!("json", document.stdout);
    assert_eq!(explain(&arguments).stdout, document.stdout, "equal input gives equal bytes");
    let fits = explain(&["shop/orders", "--file", "orders.yaml", "--cluster", "cluster.json"]);
    assert_eq!(fits.code, Some(0), "{fits:?}");
    assert!(
        fits.stdout.contains("a place on 2 of 2 nodes") && fits.stdout.contains("east (NUMA node 0), west")
    );
}

#[test]
fn pod_of_the_cluster_is_explained_by_its_priority() {
    let room = |priority: i32| {
        let source = cluster(&[pod("wide", 10, priority, None, "Pending")]);
        let ended = explain(&["shop/wide", "--cluster", source.path().to_str().unwrap(), "-o", "json"]);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(1), ""), "{ended:?}");
        let report: Value = serde_json::from_str(&ended.stdout).unwrap();
        let nodes =
            report["refused"].as_array().unwrap().iter().filter_map(|group| group["nodes"].as_array());
        let room = nodes.flatten().map(|node| {
            let pods = node["room"]["pods"].as_array().unwrap().iter();
            let pods: Vec<&str> = pods.map(|pod| pod["pod"].as_str().unwrap()).collect();
            format!("{} {} {}", node["node"], pods.join("+"), node["room"]["needsHigherPriority"])
        });
        room.collect::<Vec<_>>()
    };
    let equal = room(0);
    assert!(equal.iter().all(|node| node.ends_with("false")), "{equal:?}");
    let higher = room(-1);
    assert!(higher.iter().all(|node| node.ends_with("true")), "{higher:?}");
}

#[test]
fn api_server_gives_the_same_as_its_list() {
    const NONE: [StubKind; 1] = [STATES];
    let directory = tempfile::tempdir().unwrap();
    let _stub = served(&NONE, directory.path());
    let kubeconfig = directory.path().join("kubeconfig");
    let file = ["shop/reports", "--file", "orders.yaml", "-o", "json"];
    let of_list = explain(&[&file[..], &["--cluster", "cluster.json"]].concat());
    let of_server = explain(&[&file[..], &["--kubeconfig", kubeconfig.to_str().unwrap()]].concat());
    assert_eq!((of_server.code, of_server.stdout), (of_list.code, of_list.stdout), "{}", of_server.stderr);
}

#[test]
fn pods_that_cannot_be_explained_are_named() {
    let source = cluster(&[pod("ended", 2, 0, Some("east"), "Failed")]);
    let source = source.path().to_str().unwrap();
    let placed = explain(&["shop/cache", "--cluster", source]);
    assert_eq!((placed.code, placed.stdout.as_str()), (Some(0), "shop/cache: on node east\n"));
    for (arguments, code, words) in [
        (&["shop/ended", "--cluster", source][..], 2, "pod shop/ended has ended"),
        (&["missing", "--cluster", source], 2, "there is no pod default/missing in the cluster"),
        (&["a/b/c", "--cluster", source], 64, "`a/b/c`: NS/NAME is expected"),
        (&["shop/", "--cluster", source], 64, "`shop/`: NS/NAME is expected"),
        (&["--cluster", source], 64, "<NS/NAME>"),
        (&["--file", "orders.yaml", "--cluster", source], 64, "there are 2 pods: name one as NS/NAME"),
        (&["shop/none", "--file", "orders.yaml", "--cluster", source], 64, "there is no pod shop/none"),
        (&["--file", "-", "--cluster", "-"], 64, "standard input (`-`) can be read only once"),
        (&["shop/cache", "--cluster", source, "--kubeconfig", "x"], 64, "cannot be used with"),
        (&["shop/cache", "--cluster", "missing.json"], 2, "reading missing.json"),
        (&["shop/cache"], 64, "no cluster: name a SOURCE or --kubeconfig"),
    ] {
        let ended = explain(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}
