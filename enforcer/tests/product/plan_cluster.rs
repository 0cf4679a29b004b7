//! `plan --cluster` as a user runs it: each source of a cluster, each rule, the orders of pods, bad input.

use std::{fs, path::Path};

use enforcer_test_api::{ApiStub, Fault, StubKind};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::{
    common::{Ended, finish, program},
    machines::unpack,
};

/// A directory with these files.
fn files(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

fn plan(directory: &Path, arguments: &[&str]) -> Ended {
    let mut command = program(&["plan"]);
    command.args(arguments).current_dir(directory).env("COLUMNS", "110");
    finish(command)
}

/// `POD NODE NUMA-NODES` of each pod; a pod without a node has the first reason instead.
fn placed(ended: &Ended) -> Vec<String> {
    let report: Value =
        serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"));
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let one = |pod: &Value| match pod["node"].as_str() {
        Some(node) => format!("{} {node} {}", text(&pod["pod"]), text(&pod["numaNodes"])),
        None => format!("{} - {}", text(&pod["pod"]), text(&pod["refused"][0]["reason"])),
    };
    report["pods"].as_array().unwrap().iter().map(one).collect()
}

const SMALL: &str = "workloads: [{ name: small, cpus: 4, memory: 1GiB }]";

#[test]
fn cluster_is_planned_by_either_rule_and_filled() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/plan");
    let cluster = |arguments: &[&str]| {
        let mut command = program(&["plan", "--cluster", "cluster.json"]);
        command.args(arguments).current_dir(&examples).env("COLUMNS", "110");
        finish(command)
    };
    let exact = cluster(&["orders.yaml", "-o", "json"]);
    let report: Value = serde_json::from_str(&exact.stdout).unwrap();
    let node = |at: usize| report["pods"][at]["node"].as_str().unwrap_or("-").to_owned();
    assert_eq!((node(0).as_str(), node(1).as_str(), exact.code), ("east", "-", Some(1)), "{report}");
    let again = cluster(&["orders.yaml", "-o", "json"]);
    assert_eq!(exact.stdout, again.stdout, "equal input gives equal bytes");
    let volcano = cluster(&["orders.yaml", "-o", "json", "--rule", "volcano"]);
    let report: Value = serde_json::from_str(&volcano.stdout).unwrap();
    assert_eq!(report["rule"], "volcano");
    let directory = files(&[("small.yaml", "workloads: [{ name: small, cpus: 2, memory: 1GiB }]")]);
    let small = directory.path().join("small.yaml");
    let filled = cluster(&[small.to_str().unwrap(), "--fill", "-o", "json"]);
    let report: Value = serde_json::from_str(&filled.stdout).unwrap();
    // East has 3 + 2 whole cores left, west 1 + 4.
    assert_eq!((report["placed"].as_u64(), report["pending"].as_u64()), (Some(10), Some(1)), "{report}");
    assert_eq!(filled.code, Some(0));
}

#[test]
fn cluster_that_cannot_be_read_is_refused_with_words() {
    let directory = files(&[
        ("none.json", r#"{"items": []}"#),
        ("broken.json", r#"{"items": [{"kind": "Pod""#),
        ("pod.yaml", "workloads: [{ name: small, cpus: 2, memory: 1GiB }]"),
        (
            "odd.json",
            r#"{"items": [{"kind": "NumaNodeState", "metadata": {"name": "n"}, "state": 5},
            {"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "8", "pods": "9"}}}]}"#,
        ),
    ]);
    let cluster = |arguments: &[&str]| {
        let mut command = program(&["plan"]);
        command.args(arguments).current_dir(directory.path()).env("COLUMNS", "110");
        finish(command)
    };
    for (arguments, code, words) in [
        (&["--cluster", "none.json"][..], 64, "no pod to place"),
        (
            &["--cluster", "broken.json", "pod.yaml"],
            64,
            "a List of objects as `kubectl get ... -o json` prints it",
        ),
        (&["--cluster", "missing.json", "pod.yaml"], 2, "reading missing.json"),
        (&["--cluster", "-", "-"], 64, "standard input (`-`) can be read only once"),
        (&["--cluster", "none.json", "--synthetic", "cores:2"], 64, "SOURCE cannot be used with --synthetic"),
        (&["--cluster", "none.json", "--kubeconfig", "x"], 64, "SOURCE cannot be used with --kubeconfig"),
        (&["--cluster", "none.json", "--root", "."], 64, "cannot be used with"),
        (&["pod.yaml", "--cluster"], 64, "a SOURCE, --kubeconfig or --synthetic is expected"),
        (&["pod.yaml", "--synthetic", "machines:2 cores:4"], 64, "are for `plan --cluster`"),
        (
            &["pod.yaml", "--cluster", "--synthetic", "machines:x cores:4"],
            64,
            "`machines:x`: a number from 1",
        ),
        (&["pod.yaml", "--cluster", "--synthetic", "cores:2 reserved-cpus:7"], 64, "has no CPUs 7"),
        (&["pod.yaml", "--cluster", "--kubeconfig", "none.json"], 2, "none.json"),
        (&["pod.yaml", "--cluster", "."], 2, "no captured machine in it"),
        (&["--rule", "volcano", "pod.yaml"], 64, "--cluster"),
        (&["--cluster", "odd.json", "pod.yaml"], 1, "left out: NumaNodeState n: "),
    ] {
        let ended = cluster(arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {}", ended.stderr);
        assert!(ended.stderr.contains(words), "{arguments:?}: {}", ended.stderr);
    }
    let odd = cluster(&["--cluster", "odd.json", "pod.yaml"]);
    assert!(odd.stdout.contains("1 NUMA: state unknown (n)"), "{}", odd.stdout);
}

#[test]
fn described_machines_are_nodes_with_a_stated_kubelet() {
    let directory =
        files(&[("small.yaml", SMALL), ("wide.yaml", "workloads: [{ name: wide, cpus: 10, memory: 1GiB }]")]);
    let plan = |arguments: &[&str]| plan(directory.path(), arguments);
    let line = "machines:3 sockets:2 cores:4 threads:2 memory:8GiB";
    let arguments = ["small.yaml", "--cluster", "--synthetic", line, "--fill", "-o", "json"];
    let filled = plan(&arguments);
    assert_eq!((filled.code, filled.stderr.as_str()), (Some(0), ""), "{filled:?}");
    // Six CPUs of the first node are left beside the reserved core, eight of the second one.
    assert_eq!(placed(&filled).iter().filter(|pod| pod.contains(" node-")).count(), 9, "{filled:?}");
    assert_eq!(plan(&arguments).stdout, filled.stdout, "equal input gives equal bytes");

    let wide = |more: &str| {
        let line = format!("{line} {more}");
        plan(&["wide.yaml", "--cluster", "--synthetic", &line, "-o", "json"])
    };
    assert_eq!(placed(&wide("")), ["default/wide - NUMA: no node of the machine has the CPUs free together"]);
    assert_eq!(wide("").code, Some(1));
    // Memory prefers one node and CPUs both, which are not equal.
    assert_eq!(wide("topology-policy:restricted").code, Some(1));
    assert_eq!(
        placed(&wide("topology-policy:restricted memory-policy:None")),
        ["default/wide node-0001 0-1"]
    );
    assert_eq!(
        placed(&wide("cpu-policy:none topology-policy:none memory-policy:None")),
        ["default/wide node-0001 "]
    );
    assert_eq!(placed(&wide("reserved-cpus:0-3,8-11")), ["default/wide - Insufficient cpu"]);
}

#[test]
fn captured_machines_are_nodes_with_the_files_of_their_kubelets() {
    let archive =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/machines/16amd64-8n2c.tar.bz2");
    let (directory, root) = unpack(&archive);
    let name = root.file_name().unwrap().to_str().unwrap().to_owned();
    fs::write(directory.path().join("small.yaml"), SMALL.replace("cpus: 4", "cpus: 2")).unwrap();
    fs::create_dir(directory.path().join("no-machine")).unwrap();
    let plan = || plan(directory.path(), &["small.yaml", "--cluster", ".", "-o", "json", "--explain"]);
    let empty = plan();
    assert_eq!(placed(&empty), [format!("default/small {name} 1")], "{empty:?}");
    let assumed = "no config.yaml of a kubelet: assumed is v1.36.2, static, Static, single-numa-node";
    assert!(empty.stderr.contains(assumed), "{}", empty.stderr);

    let kubelet = root.join("var/lib/kubelet");
    fs::create_dir_all(&kubelet).unwrap();
    let configuration = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n\
         cpuManagerPolicy: static\ntopologyManagerPolicy: single-numa-node\nreservedSystemCPUs: \"0\"\n";
    fs::write(kubelet.join("config.yaml"), configuration).unwrap();
    let cpus =
        r#"{"policyName":"static","defaultCpuSet":"0-1,4-15","entries":{"u1":{"main":"2-3"}},"checksum":0}"#;
    fs::write(kubelet.join("cpu_manager_state"), cpus).unwrap();
    let memory = r#"{"policyName":"None","machineState":{},"checksum":0}"#;
    fs::write(kubelet.join("memory_manager_state"), memory).unwrap();
    let used = plan();
    assert_eq!(placed(&used), [format!("default/small {name} 2")], "{used:?}");
    assert!(
        used.stderr.contains("assumed is a kubelet v1.36.2 without drop-ins and flags"),
        "{}",
        used.stderr
    );

    fs::write(kubelet.join("cpu_manager_state"), "{").unwrap();
    let damaged = plan();
    assert_eq!(placed(&damaged), ["default/small - NUMA: state unknown"], "{damaged:?}");
    fs::write(kubelet.join("config.yaml"), "cpuManagerPolicy: 7").unwrap();
    assert_eq!(plan().code, Some(2));
    // Beside another node, the one that cannot be read is left out.
    let (_other, whole) = unpack(&archive);
    let other = directory.path().join("other");
    std::os::unix::fs::symlink(&whole, &other).unwrap();
    let partial = plan();
    assert_eq!(
        (partial.code, placed(&partial)),
        (Some(2), vec!["default/small other 1".to_owned()]),
        "{partial:?}"
    );
    assert!(partial.stderr.contains(&format!("left out: captured machine {name}: ")), "{}", partial.stderr);
    fs::remove_dir_all(&root).unwrap();
    assert_eq!(plan().code, Some(0));
}

pub(crate) const STATES: StubKind = StubKind {
    group: "numa-enforcer.io",
    version: "v1alpha1",
    plural: "numanodestates",
    kind: "NumaNodeState",
    namespaced: false,
};

/// Path of the lease of a node's daemon.
pub(crate) fn lease_path(node: &str) -> String {
    format!("/apis/coordination.k8s.io/v1/namespaces/numa-enforcer/leases/numa-enforcer-{node}")
}

/// The objects of the documentation's cluster at a server, and a kubeconfig for it.
pub(crate) fn served(kinds: &[StubKind], directory: &Path) -> ApiStub {
    let stub = ApiStub::start(kinds);
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/plan/cluster.json");
    let list: Value = serde_json::from_str(&fs::read_to_string(list).unwrap()).unwrap();
    for object in list["items"].as_array().unwrap() {
        let name = object["metadata"]["name"].as_str().unwrap();
        let path = match object["kind"].as_str().unwrap() {
            "Node" => format!("/api/v1/nodes/{name}"),
            "Pod" => format!("/api/v1/namespaces/shop/pods/{name}"),
            _ if kinds.is_empty() => continue,
            _ => {
                let spec = json!({"renewTime": "2099-01-01T00:00:00.000000Z", "leaseDurationSeconds": 60});
                stub.put(&lease_path(name), json!({"spec": spec}));
                format!("/apis/numa-enforcer.io/v1alpha1/numanodestates/{name}")
            }
        };
        stub.put(&path, object.clone());
    }
    let kubeconfig = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "one",
        "clusters": [{"name": "one", "cluster": {"server": stub.url()}}],
        "users": [{"name": "one", "user": {"token": "secret"}}],
        "contexts": [{"name": "one", "context": {"cluster": "one", "user": "one"}}],
    });
    fs::write(directory.join("kubeconfig"), kubeconfig.to_string()).unwrap();
    stub
}

#[test]
fn api_server_gives_the_same_plan_as_its_list() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/plan");
    let directory = files(&[]);
    let stub = served(&[STATES], directory.path());
    let kubeconfig = directory.path().join("kubeconfig");
    let asked = || {
        plan(
            &examples,
            &["orders.yaml", "--cluster", "--kubeconfig", kubeconfig.to_str().unwrap(), "-o", "json"],
        )
    };
    let of_list = plan(&examples, &["orders.yaml", "--cluster", "cluster.json", "-o", "json"]);
    let of_server = asked();
    assert_eq!((of_server.code, of_server.stdout), (of_list.code, of_list.stdout), "{}", of_server.stderr);
    // More pods than a page has, which hold no CPU of their own.
    for number in 0..1_100 {
        let pod = json!({"spec": {"nodeName": "west", "containers": [{"name": "c"}]}, "status": {"phase": "Running"}});
        stub.put(&format!("/api/v1/namespaces/shop/pods/idle-{number}"), pod);
    }
    let before = stub.requests().len();
    assert_eq!(placed(&asked())[1], "shop/reports - Insufficient cpu", "west has too many pods");
    let lists = stub.requests().split_off(before);
    let lists: Vec<_> =
        lists.iter().map(|(_, list)| list.as_str()).filter(|list| list.contains("/pods?")).collect();
    assert_eq!(
        lists,
        ["limit=500", "limit=500&continue=500", "limit=500&continue=1000"]
            .map(|query| format!("GET /api/v1/pods?{query}")),
        "a server ignores the limit of a list from its cache"
    );
    assert!(asked().stdout.contains("Too many pods"));
    // The third page of pods, behind one page of states and of nodes: the list begins again.
    let nothing = Fault::Slow(std::time::Duration::ZERO);
    let expired = Fault::status(410, "Expired");
    stub.fail_reads([nothing.clone(), nothing.clone(), nothing.clone(), nothing.clone(), expired.clone()]);
    let again = asked();
    assert_eq!((again.code, again.stderr.as_str()), (Some(1), ""), "{again:?}");
    assert_eq!(placed(&again)[1], "shop/reports - Insufficient cpu");
    stub.fail_reads([vec![nothing.clone(); 2], vec![expired; 3]].concat());
    let given_up = asked();
    stub.fail_reads([nothing, Fault::too_many(std::time::Duration::ZERO)]);
    assert_eq!(asked().code, Some(1), "a busy server is asked again");
    assert!(given_up.stderr.contains("list /api/v1/pods: 410"), "{given_up:?}");

    let refused = Fault::Status {
        code: 403,
        reason: "Forbidden",
        message: "nodes is forbidden".into(),
        causes: Vec::new(),
        retry_after: None,
    };
    stub.fail_always(Some(refused));
    let ended = asked();
    let rule = "a role needs the verb list on numanodestates of group \"numa-enforcer.io\"";
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains(rule), "{}", ended.stderr);
}

#[test]
fn cluster_without_the_kind_is_named() {
    let directory = files(&[("small.yaml", SMALL)]);
    let _stub = served(&[], directory.path());
    let ended = plan(directory.path(), &["small.yaml", "--cluster", "--kubeconfig", "kubeconfig"]);
    assert_eq!(ended.code, Some(2));
    assert!(ended.stderr.contains("does not know the kind NumaNodeState"), "{}", ended.stderr);
}

#[test]
fn waiting_pods_are_placed_by_arrival_or_priority() {
    let pod = |name: &str, priority: i32, version: &str| {
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": name,
            "creationTimestamp": "2026-11-27T10:00:00Z", "resourceVersion": version},
            "spec": {"priority": priority, "containers": [{"name": "c",
                "resources": {"limits": {"cpu": "1", "memory": "1Gi"}}}]}})
    };
    let node = json!({"kind": "Node", "metadata": {"name": "n"}, "status": {"allocatable": {"cpu": "2", "pods": "9"}}});
    let list = json!({"items": [node, pod("a", 0, "30"), pod("b", 5, "20"), pod("c", 0, "10")]});
    let directory = files(&[("objects.json", &list.to_string())]);
    let order = |order: &str| {
        let report = plan(directory.path(), &["--cluster", "objects.json", "--order", order, "-o", "json"]);
        placed(&report).iter().map(|pod| pod.split(' ').next().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(order("arrival"), ["d/c", "d/b", "d/a"], "within a second the versions decide");
    assert_eq!(order("priority"), ["d/b", "d/c", "d/a"]);
}

#[test]
fn tainted_nodes_take_pods_of_manifests_that_tolerate_it() {
    let taint = json!([{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]);
    let list = json!({"items": [{"kind": "Node", "metadata": {"name": "n"}, "spec": {"taints": taint},
        "status": {"allocatable": {"cpu": "9", "memory": "9Gi", "pods": "9"}}}]});
    let pod = |tolerations: &str| {
        format!(
            "{{kind: Pod, metadata: {{name: p}}, spec: {{{tolerations} containers: [{{name: c, resources: \
             {{requests: {{cpu: 100m}}}}}}]}}}}"
        )
    };
    let directory = files(&[
        ("objects.json", &list.to_string()),
        ("plain.yaml", &pod("")),
        ("tolerant.yaml", &pod("tolerations: [{key: gpu, operator: Exists}],")),
    ]);
    let placed = |manifest: &str| {
        placed(&plan(directory.path(), &[manifest, "--cluster", "objects.json", "-o", "json"]))
    };
    assert_eq!(placed("plain.yaml"), ["default/p - node(s) had untolerated taint {gpu: yes}"]);
    assert_eq!(placed("tolerant.yaml"), ["default/p n "]);
}

#[test]
fn tasks_of_a_volcano_job_go_to_nodes_of_their_policy() {
    let job = |policy: &str| {
        format!(
            "{{apiVersion: batch.volcano.sh/v1alpha1, kind: Job, metadata: {{name: j}}, spec: {{tasks: [{{name: t, \
             replicas: 2, topologyPolicy: {policy}, template: {{spec: {{containers: [{{name: c, resources: \
             {{limits: {{cpu: 9, memory: 1Gi}}}}}}]}}}}}}]}}}}"
        )
    };
    let directory =
        files(&[("best-effort.yaml", &job("best-effort")), ("restricted.yaml", &job("restricted"))]);
    let placed = |manifest: &str, rule: &str| {
        let line = "machines:1 sockets:2 cores:16 memory-policy:None topology-policy:restricted";
        let arguments = [manifest, "--cluster", "--synthetic", line, "--rule", rule, "-o", "json"];
        placed(&plan(directory.path(), &arguments))
    };
    let other = "Volcano: the node has another topology policy";
    assert_eq!(
        placed("best-effort.yaml", "volcano"),
        [format!("default/j-t-0 - {other}"), format!("default/j-t-1 - {other}")]
    );
    assert_eq!(
        placed("restricted.yaml", "volcano"),
        ["default/j-t-0 node-0001 ", "default/j-t-1 node-0001 "]
    );
    assert_eq!(
        placed("restricted.yaml", "exact"),
        ["default/j-t-0 node-0001 0", "default/j-t-1 node-0001 1"]
    );
}

/// The cluster of the documentation, changed.
fn example(change: impl FnOnce(&mut Vec<Value>)) -> TempDir {
    let list = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/examples/plan/cluster.json");
    let mut list: Value = serde_json::from_str(&fs::read_to_string(list).unwrap()).unwrap();
    change(list["items"].as_array_mut().unwrap());
    files(&[("objects.json", &list.to_string()), ("small.yaml", SMALL)])
}

/// The object of a kind and a name.
fn object<'a>(items: &'a mut [Value], kind: &str, name: &str) -> &'a mut Value {
    items.iter_mut().find(|one| one["kind"] == kind && one["metadata"]["name"] == name).unwrap()
}

fn plan_example(directory: &TempDir) -> Ended {
    plan(directory.path(), &["small.yaml", "--cluster", "objects.json", "-o", "json", "--explain"])
}

#[test]
fn state_that_is_out_of_date_is_named_and_gives_no_place() {
    let lease = |node: &str, renewed: &str| {
        json!({"kind": "Lease", "metadata": {"name": format!("numa-enforcer-{node}"), "namespace": "numa-enforcer"},
            "spec": {"renewTime": renewed, "leaseDurationSeconds": 60}})
    };
    let exact = plan_example(&example(|items| {
        items.extend([lease("east", "2026-11-28T08:00:00Z"), lease("west", "2026-11-28T08:00:30Z")]);
    }));
    assert_eq!((exact.code, exact.stderr.as_str()), (Some(0), ""), "{exact:?}");
    for (change, reason) in [
        (
            (|items| {
                object(items, "Node", "east")["status"]["nodeInfo"] = json!({"kubeletVersion": "v1.37.0"});
            }) as fn(&mut Vec<Value>),
            "the kubelet of the node is v1.37.0, that of the state is v1.36.2",
        ),
        (|items| items.retain(|one| one["kind"] != "x"), "its daemon has not renewed its lease for 120 s"),
    ] {
        let directory = example(|items| {
            change(items);
            let lives =
                if reason.contains("lease") { "2026-11-28T08:00:00Z" } else { "2026-11-28T08:02:00Z" };
            items.extend([lease("east", lives), lease("west", "2026-11-28T08:02:00Z")]);
            object(items, "Node", "west")["spec"]["unschedulable"] = json!(true);
        });
        let ended = plan_example(&directory);
        assert_eq!(placed(&ended), ["default/small - NUMA: state unknown"], "{ended:?}");
        assert!(
            ended.stderr.contains(&format!("out of date: NumaNodeState east: {reason}")),
            "{}",
            ended.stderr
        );
        assert!(
            ended.stdout.contains(&format!("the state of the node is out of date: {reason}")),
            "{ended:?}"
        );
    }
}

#[test]
fn state_with_an_unknown_field_at_any_depth_gives_no_place() {
    let directory = example(|items| {
        object(items, "NumaNodeState", "east")["state"]["pods"][0]["containers"][0]["sharedWith"] =
            json!(["x"]);
        object(items, "Node", "west")["spec"]["unschedulable"] = json!(true);
    });
    let ended = plan_example(&directory);
    assert_eq!(placed(&ended), ["default/small - NUMA: state unknown"], "{ended:?}");
    let said = "NumaNodeState east: its field \"pods.containers.sharedWith\" is of an unknown version";
    assert!(ended.stderr.contains(said), "{}", ended.stderr);
}

#[test]
fn pods_bound_in_one_second_count_if_their_order_does_not_matter() {
    let pod = |name: &str, cpus: &str, bound: &str| {
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "d", "uid": name},
            "spec": {"nodeName": "n", "containers": [{"name": "c",
                "resources": {"limits": {"cpu": cpus, "memory": "1Gi"}}}]},
            "status": {"phase": "Pending", "conditions": [
                {"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}]}})
    };
    // Of a described machine, as a daemon would publish it: 6 and 8 CPUs are free.
    let plan_with = |pods: &[Value]| {
        let directory = example(|items| {
            items.retain(|one| one["metadata"]["name"] == "east" && one["kind"] != "Pod");
            let state = &mut object(items, "NumaNodeState", "east")["state"];
            state["pods"] = json!([]);
            state["sharedCpus"] = json!("0-31");
            for supply in state["memory"].as_array_mut().unwrap() {
                supply["free"] = supply["allocatable"].clone();
                supply["assignments"] = json!(0);
            }
            let pods = pods.iter().cloned().map(|mut pod| {
                pod["spec"]["nodeName"] = json!("east");
                pod
            });
            items.extend(pods);
        });
        plan_example(&directory)
    };
    let (early, late) = ("2026-11-28T08:00:00Z", "2026-11-28T08:00:01Z");
    // Fourteen CPUs are free on NUMA node 0: they take the first pod, and the other one goes to node 1.
    let unknown = plan_with(&[pod("wide", "14", early), pod("small", "2", early)]);
    assert_eq!(placed(&unknown), ["default/small - NUMA: state unknown"], "{unknown:?}");
    assert!(unknown.stdout.contains("pods d/small, d/wide were bound within one second"), "{unknown:?}");
    for pods in [
        [pod("wide", "14", early), pod("small", "2", late)],
        [pod("one", "2", early), pod("other", "2", early)],
        [pod("wide", "16", early), pod("small", "2", early)],
    ] {
        let ended = plan_with(&pods);
        assert_eq!(ended.code, Some(0), "{ended:?}");
    }
}

#[test]
fn end_that_may_have_come_after_a_later_pod_gives_no_certain_place() {
    let pod = |name: &str, cpus: &str, bound: &str, ended: Option<&str>| {
        let container =
            |at: &str| json!({"name": "main", "state": {"terminated": {"exitCode": 0, "finishedAt": at}}});
        json!({"kind": "Pod", "metadata": {"name": name, "namespace": "shop", "uid": name},
            "spec": {"nodeName": "east", "containers": [{"name": "main",
                "resources": {"limits": {"cpu": cpus, "memory": "1Gi"}}}]},
            "status": {"phase": if ended.is_some() { "Succeeded" } else { "Pending" },
                "containerStatuses": ended.map(container).into_iter().collect::<Vec<_>>(),
                "conditions": [{"type": "PodScheduled", "status": "True", "lastTransitionTime": bound}]}})
    };
    // Cache (u1) has 8 CPUs of NUMA node 0 and search (u2) 12 of node 1: 6 and 4 are free.
    let plan_with = |pods: &[Value]| {
        plan_example(&example(|items| {
            items.retain(|one| one["metadata"]["name"] == "east" && one["kind"] != "Pod");
            items.extend(pods.iter().cloned());
        }))
    };
    let [past, ended, bound, later] = ["07:50:00", "08:00:00", "08:00:05", "08:00:10"];
    let [past, ended, bound, later] = [past, ended, bound, later].map(|at| format!("2026-11-28T{at}Z"));
    let of_state = |uid: &str, at: &str| {
        let mut pod = pod(uid, "8", "2026-11-28T07:00:00Z", Some(at));
        pod["metadata"]["uid"] = json!(uid);
        pod
    };
    for (certain, place) in [
        // The end was long before.
        ([of_state("u1", &past), pod("wide", "14", &bound, None)], 1),
        ([pod("passing", "6", &past, Some(&past)), pod("four", "4", &bound, None)], 1),
        // Node 0 had four CPUs, whenever it was.
        ([of_state("u2", &ended), pod("four", "4", &bound, None)], 1),
        ([of_state("u2", &later), pod("four", "4", &bound, None)], 1),
    ] {
        let plan = plan_with(&certain);
        assert_eq!(placed(&plan), [format!("default/small east {place}")], "{plan:?}");
    }
    for (open, uid) in [
        ([of_state("u1", &ended), pod("four", "4", &bound, None)], "u1"),
        ([of_state("u1", &later), pod("four", "4", &bound, None)], "u1"),
        // No state tells of it.
        ([pod("passing", "6", &ended, Some(&later)), pod("four", "4", &bound, None)], "passing"),
    ] {
        let plan = plan_with(&open);
        assert_eq!(placed(&plan), ["default/small - NUMA: state unknown"], "{plan:?}");
        assert!(plan.stdout.contains(&format!("the pod with uid {uid} has ended")), "{plan:?}");
    }
}

const SLICES: &str = r#"{"kind": "List", "items": [
  {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "gpu"},
   "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}},
  {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "gpus"},
   "spec": {"driver": "gpu.example.com", "nodeName": "node-0001",
    "pool": {"name": "node-0001", "generation": 1, "resourceSliceCount": 1},
    "devices": [{"name": "gpu-0", "attributes": {"resource.kubernetes.io/numaNode": {"int": 1}}}]}}
]}"#;

const CLAIMING: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: near}
spec:
  spec:
    devices:
      requests:
        - {name: gpu, exactly: {deviceClassName: gpu}}
        - name: place
          exactly:
            deviceClassName: numa-enforcer.io
            capacity: {requests: {numa-enforcer.io/cpu: 2, numa-enforcer.io/memory: 4Gi}}
      constraints: [{matchAttribute: resource.kubernetes.io/numaNode}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: train}
spec:
  replicas: 2
  template:
    spec:
      resourceClaims: [{name: near, resourceClaimTemplateName: near}]
      containers: [{name: main, resources: {claims: [{name: near}], requests: {cpu: 1}}}]
";

#[test]
fn claims_get_devices_or_a_reason() {
    let directory = files(&[("slices.json", SLICES), ("train.yaml", CLAIMING), ("small.yaml", SMALL)]);
    let plan = |arguments: &[&str]| plan(directory.path(), arguments);
    let line = "machines:2 sockets:2 cores:4 threads:2 memory:8GiB";
    let arguments = ["train.yaml", "--devices", "slices.json", "--cluster", "--synthetic", line];
    let shown = plan(&arguments);
    assert_eq!((shown.code, shown.stderr.as_str()), (Some(1), ""), "{shown:?}");
    assert_eq!(
        shown.stdout,
        "default/train-0: node-0001\n  \
           claim near, gpu: gpu.example.com/node-0001/gpu-0, NUMA node 1\n  \
           claim near, place: numa-enforcer.io/node-0001/ne-numa1, NUMA node 1, CPUs 4,12: 2 numa-enforcer.io/cpu, 4Gi\n    \
             numa-enforcer.io/memory\n\
         default/train-1: pending\n  \
           2 DRA: claim near, request gpu: no free device matches (node-0001, node-0002)\n\
         1 placed, 1 pending on 2 nodes, by exact prediction\n"
    );
    let json = [&arguments[..], &["-o", "json"]].concat();
    let report: Value = serde_json::from_str(&plan(&json).stdout).unwrap();
    assert_eq!(report["pods"][0]["claims"][0]["devices"][1]["consumed"]["numa-enforcer.io/memory"], "4Gi");
    let without = plan(&["train.yaml", "--cluster", "--synthetic", line]);
    assert!(without.stdout.contains("no DeviceClass gpu"), "{}", without.stdout);
    let plain = plan(&["small.yaml", "--cluster", "--synthetic", line, "-o", "json"]);
    assert!(!plain.stdout.contains("\"claims\""), "{}", plain.stdout);
}

/// A claim of this cluster, and a class whose options lift the quota.
const CLAIM_OBJECTS: &str = r#"{"kind": "List", "items": [
  {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "uid": "node-1"},
   "status": {"allocatable": {"cpu": "16", "memory": "16Gi", "pods": "110"},
              "conditions": [{"type": "Ready", "status": "True"}]}},
  {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "metadata": {"name": "alone"},
   "spec": {"selectors": [{"cel": {"expression": "device.driver == 'gpu.example.com'"}}]}},
  {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaimTemplate",
   "metadata": {"name": "near", "namespace": "default"},
   "spec": {"spec": {"devices": {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "alone"}}]}}}},
  {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "gpus"},
   "spec": {"driver": "gpu.example.com", "nodeName": "n1",
    "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 1}, "devices": [{"name": "gpu-0"}]}},
  {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": "broken"},
   "spec": {"driver": "gpu.example.com"}},
  {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "waits", "namespace": "default", "uid": "w"},
   "spec": {"resourceClaims": [{"name": "near", "resourceClaimTemplateName": "near"}],
            "containers": [{"name": "main", "resources": {"claims": [{"name": "near"}]}}]},
   "status": {"phase": "Pending"}}
]}"#;

#[test]
fn claim_objects_of_the_cluster_count() {
    let directory = files(&[("cluster.json", CLAIM_OBJECTS)]);
    let shown = plan(directory.path(), &["--cluster", "cluster.json"]);
    assert!(shown.stderr.contains("ResourceSlice broken: spec.pool: it is missing"), "{shown:?}");
    let claim = "default/waits: n1\n  claim near, gpu: gpu.example.com/n1/gpu-0\n";
    assert!(shown.stdout.starts_with(claim), "{shown:?}");
}

#[test]
fn configuration_of_the_driver_counts_in_a_cluster() {
    let directory = files(&[
        ("slices.json", SLICES),
        ("train.yaml", CLAIMING),
        ("few.toml", "[dra]\nexclusive_percent = 10\n"),
    ]);
    let line = "sockets:2 cores:4 threads:2 memory:8GiB";
    let arguments = ["train.yaml", "--devices", "slices.json", "--cluster", "--synthetic", line];
    let few = plan(directory.path(), &[&arguments[..], &["--config", "few.toml"]].concat());
    let reason = "not enough numa-enforcer.io/cpu on one device";
    assert!(few.code == Some(1) && few.stdout.contains(reason), "{few:?}");
}
