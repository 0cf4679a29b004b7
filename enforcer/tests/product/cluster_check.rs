//! `cluster check` as a user runs it: findings of each kind, sources, hostile objects.

use std::{fs, path::Path};

use serde_json::{Value, json};
use tempfile::NamedTempFile;

use crate::{
    common::{Ended, finish, program},
    machines::unpack,
    plan_cluster::{STATES, lease_path, served},
};

/// The cluster of the documentation.
fn example() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/plan/cluster.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

/// The object of a kind and a name.
fn object<'a>(list: &'a mut Value, kind: &str, name: &str) -> &'a mut Value {
    let items = list["items"].as_array_mut().unwrap().iter_mut();
    let is_wanted = |one: &&mut Value| one["kind"] == kind && one["metadata"]["name"] == name;
    items.into_iter().find(is_wanted).unwrap()
}

fn check(arguments: &[&str]) -> Ended {
    let mut command = program(&["cluster", "check"]);
    command.args(arguments).env("COLUMNS", "100").env_remove("KUBECONFIG").env_remove("HOME");
    finish(command)
}

fn check_list(list: &Value, arguments: &[&str]) -> Ended {
    let file = NamedTempFile::new().unwrap();
    fs::write(file.path(), list.to_string()).unwrap();
    check(&[&[file.path().to_str().unwrap()], arguments].concat())
}

/// Changes of which each is a finding of its own kind.
fn faulty() -> Value {
    let mut list = example();
    object(&mut list, "Node", "west")["status"]["nodeInfo"] = json!({"kubeletVersion": "v1.37.0"});
    object(&mut list, "NumaNodeState", "west")["metadata"]["managedFields"] = json!([{"manager": "kubectl"}]);
    object(&mut list, "Pod", "cache")["metadata"]["uid"] = json!("u9");
    object(&mut list, "Pod", "cache")["status"]["containerStatuses"] =
        json!([{"name": "main", "state": {"terminated": {"finishedAt": "2026-11-27T08:30:00Z"}}}]);
    let west = object(&mut list, "NumaNodeState", "west");
    west["state"]["exact"] = json!(false);
    west["state"]["inexact"] = json!([{"source": "kubelet:podresources", "reason": "no answer \u{1b}[31m"}]);
    let items = list["items"].as_array_mut().unwrap();
    items.push(json!({"kind": "Node", "metadata": {"name": "north"}}));
    items.push(json!({"kind": "NumaNodeState", "metadata": {"name": "gone"}, "state": {}}));
    list
}

#[test]
fn cluster_in_which_everything_agrees_is_clean() {
    let ended = check_list(&example(), &[]);
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{ended:?}");
    assert_eq!(ended.stdout, "no finding on 2 nodes, 2 states, 4 pods\n");
}

#[test]
fn findings_are_grouped_by_kind() {
    let list = faulty();
    let table = check_list(&list, &[]);
    assert_eq!((table.code, table.stderr.as_str()), (Some(1), ""), "{table:?}");
    insta::assert_snapshot!("table", table.stdout);
    let document = check_list(&list, &["-o", "json"]);
    insta::assert_snapshot!("json", document.stdout);
    assert_eq!(check_list(&list, &["-o", "json"]).stdout, document.stdout, "equal input gives equal bytes");
}

#[test]
fn hostile_states_are_refused_with_words() {
    for (change, words) in [
        (
            (|state| state["memory"][0]["free"] = json!(-7)) as fn(&mut Value),
            "inexact: states from which no exact prediction follows\n  east: it contradicts itself: memory.free is -7",
        ),
        (|state| state["revision"]["epoch"] = json!(1e300), "east: it is no state: invalid type"),
        (
            |state| {
                let pod = state["pods"][0].clone();
                state["pods"] = Value::Array(vec![pod; 5_000]);
            },
            "pods has 5000 entries or bytes, at most 1024 are allowed",
        ),
        (
            |state| state["newField"] = json!({"a": 1}),
            "east: its field \"newField\" is of an unknown version",
        ),
        (|state| *state = json!([1]), "east: it is no state: "),
    ] {
        let mut list = example();
        change(&mut object(&mut list, "NumaNodeState", "east")["state"]);
        let ended = check_list(&list, &[]);
        assert_eq!(ended.code, Some(1), "{words}: {ended:?}");
        assert!(ended.stdout.contains(words), "{words}: {}", ended.stdout);
        assert!(ended.stdout.ends_with("1 finding on 2 nodes, 2 states, 4 pods\n"), "{}", ended.stdout);
    }
    let mut list = example();
    object(&mut list, "NumaNodeState", "west")["apiVersion"] = json!("numa-enforcer.io/v9");
    let ended = check_list(&list, &[]);
    assert!(ended.stdout.contains("foreign: "), "{}", ended.stdout);
    assert!(ended.stdout.contains("its version is numa-enforcer.io/v9"), "{}", ended.stdout);
}

#[test]
fn api_server_is_asked_for_leases_too() {
    let directory = tempfile::tempdir().unwrap();
    let stub = served(&[STATES], directory.path());
    let kubeconfig = directory.path().join("kubeconfig");
    let asked = || check(&["--kubeconfig", kubeconfig.to_str().unwrap()]);
    // It was bound long ago by the clock of this host, and no state covers it.
    let uncovered = asked().stdout;
    assert!(
        uncovered.contains("west shop/index: runs, and the state does not have what it holds"),
        "{uncovered}"
    );
    assert!(stub.remove("/api/v1/namespaces/shop/pods/index"));
    assert_eq!(asked().code, Some(0), "{:?}", asked());
    assert!(stub.remove(&lease_path("west")));
    stub.put(
        &lease_path("east"),
        json!({"spec": {"renewTime": "2026-11-27T08:00:00.000000Z", "leaseDurationSeconds": 60}}),
    );
    let ended = asked();
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert!(ended.stdout.contains("east: its daemon has not renewed its lease for"), "{}", ended.stdout);
    assert!(ended.stdout.contains("west: no daemon has a lease for it"), "{}", ended.stdout);
}

#[test]
fn label_of_an_administrator_makes_no_state_foreign() {
    let with = |fields: Value| {
        let mut list = example();
        object(&mut list, "NumaNodeState", "west")["metadata"]["managedFields"] = json!([
            {"manager": "numa-enforcer", "fieldsV1": {"f:state": {}}},
            {"manager": "kubectl-label", "fieldsV1": fields},
        ]);
        check_list(&list, &[])
    };
    let labelled = with(json!({"f:metadata": {"f:labels": {"f:team": {}}}}));
    assert_eq!(labelled.code, Some(0), "{labelled:?}");
    let changed = with(json!({"f:state": {"f:exact": {}}}));
    assert!(changed.stdout.contains("the field manager \"kubectl-label\" has written it"), "{changed:?}");
}

#[test]
fn captured_machine_that_cannot_be_read_is_named_and_the_others_are_checked() {
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/machines/16amd64-8n2c.tar.bz2");
    let (directory, root) = unpack(&archive);
    let broken = directory.path().join("broken");
    fs::create_dir_all(broken.join("sys/devices/system")).unwrap();
    let ended = check(&[directory.path().to_str().unwrap()]);
    assert_eq!(ended.code, Some(2), "{ended:?}");
    assert!(ended.stderr.contains("left out: captured machine broken: "), "{ended:?}");
    assert_eq!(ended.stdout, "no finding on 1 node, 1 state, 0 pods\n");
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(check(&[directory.path().to_str().unwrap()]).stdout, "");
}

#[test]
fn without_a_cluster_the_error_says_so() {
    for (arguments, code, words) in [
        (&[][..], 64, "no cluster: name a SOURCE or --kubeconfig"),
        (&["none.json"], 2, "reading none.json"),
        (&["-", "--kubeconfig", "x"], 64, "cannot be used with"),
        (&["--kubeconfig", "/none/kubeconfig"], 2, "/none/kubeconfig"),
    ] {
        let ended = check(arguments);
        assert_eq!(ended.code, Some(code), "{ended:?}");
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
}
