use std::fs;

use enforcer_core::workload::QosClass;
use numa_placement::{ContainerKind, PodRequest, Undescribed, pools::Document};

use super::*;

fn source(text: &str) -> ManifestSource {
    ManifestSource { name: "f.yaml".into(), text: text.into() }
}

fn read(text: &str) -> Manifests {
    Manifests::of(&source(text)).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn error(text: &str) -> String {
    Manifests::of(&source(text)).unwrap_err().to_string()
}

fn names(text: &str) -> Vec<String> {
    read(text).pods.iter().map(|pod| pod.request.name.to_string()).collect()
}

/// A pod with one container that has these resources.
fn with_resources(resources: &str) -> String {
    format!(
        "kind: Pod\nmetadata: {{name: p}}\nspec:\n  containers:\n  - name: c\n    resources: {resources}\n"
    )
}

fn one(text: &str) -> PodRequest {
    let mut pods = read(text).pods;
    assert_eq!(pods.len(), 1, "{text}");
    pods.remove(0).request
}

const SPEC: &str = "{containers: [{name: c}]}";

#[test]
fn what_containers_do_not_describe_is_known() {
    for (field, expected) in [
        ("priority: 1", None),
        ("priorityClassName: system-cluster-critical", None),
        ("priorityClassName: system-node-critical", Some(Undescribed::NodeCritical)),
        ("resources: {}", None),
        ("resources: {limits: {cpu: '1'}}", Some(Undescribed::PodResources)),
        ("resourceClaims: []", None),
        ("resourceClaims: [{name: nic}]", Some(Undescribed::ResourceClaims)),
    ] {
        let text = format!("kind: Pod\nmetadata: {{name: p}}\nspec: {{containers: [{{name: c}}], {field}}}");
        assert_eq!(one(&text).undescribed, expected, "{field}");
    }
}

#[test]
fn every_kind_makes_its_pods() {
    let template = format!("template: {{spec: {SPEC}}}");
    for (object, pods) in [
        (format!("kind: Pod\nmetadata: {{name: a}}\nspec: {SPEC}"), "a"),
        (format!("kind: Pod\nmetadata: {{generateName: a-}}\nspec: {SPEC}"), "a-0"),
        (format!("kind: Deployment\nmetadata: {{name: a}}\nspec: {{{template}}}"), "a-0"),
        (
            format!("kind: Deployment\nmetadata: {{name: a}}\nspec: {{replicas: 3, {template}}}"),
            "a-0 a-1 a-2",
        ),
        (format!("kind: ReplicaSet\nmetadata: {{name: a}}\nspec: {{replicas: 2, {template}}}"), "a-0 a-1"),
        (
            format!(
                "kind: StatefulSet\nmetadata: {{name: a}}\nspec: {{replicas: 2, ordinals: {{start: 5}}, {template}}}"
            ),
            "a-5 a-6",
        ),
        (format!("kind: DaemonSet\nmetadata: {{name: a}}\nspec: {{{template}}}"), "a-0"),
        (
            format!("kind: Job\nmetadata: {{name: a}}\nspec: {{parallelism: 4, completions: 2, {template}}}"),
            "a-0 a-1",
        ),
        (format!("kind: Job\nmetadata: {{name: a}}\nspec: {{{template}}}"), "a-0"),
        (format!("kind: Job\nmetadata: {{name: a}}\nspec: {{suspend: true, {template}}}"), ""),
        (
            format!("kind: CronJob\nmetadata: {{name: a}}\nspec: {{jobTemplate: {{spec: {{{template}}}}}}}"),
            "a-0",
        ),
        (format!("kind: Deployment\nmetadata: {{name: a}}\nspec: {{replicas: 0, {template}}}"), ""),
        (
            format!(
                "kind: List\nitems: [{{kind: Pod, metadata: {{name: a, namespace: n}}, spec: {SPEC}}}, {{kind: Service}}]"
            ),
            "a",
        ),
        (
            format!(
                "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: a}}\nspec: {{tasks: \
                 [{{name: ps, {template}}}, {{name: worker, replicas: 2, {template}}}]}}"
            ),
            "a-ps-0 a-worker-0 a-worker-1",
        ),
        (format!("kind: PodList\nitems: [{{metadata: {{name: a}}, spec: {SPEC}}}]"), "a"),
    ] {
        let found = names(&object);
        let found: Vec<&str> = found.iter().map(|name| name.split_once('/').unwrap().1).collect();
        assert_eq!(found.join(" "), pods, "{object}");
    }
}

#[test]
fn what_makes_no_pod_is_ignored_by_name() {
    let text = format!(
        "kind: Service\nmetadata: {{name: s}}\n---\napiVersion: example.com/v1alpha1\nkind: Job\n\
         metadata: {{name: v}}\nspec: {{tasks: 3}}\n---\nkind: Pod\nmetadata: {{name: done}}\n\
         status: {{phase: Succeeded}}\nspec: {SPEC}\n"
    );
    let read = read(&text);
    assert!(read.pods.is_empty());
    assert_eq!(
        read.ignored,
        [
            "f.yaml:1: Service s: a kind that makes no pods here, ignored",
            "f.yaml:4: Job of example.com v: a kind that makes no pods here, ignored",
            "f.yaml:9: Pod done: it has ended (Succeeded), ignored",
        ]
    );
}

#[test]
fn amounts_are_those_of_the_manifest() {
    let pod = one(&with_resources(
        "{requests: {cpu: 500m, example.com/b: 2}, limits: {cpu: 2, memory: 1Gi, hugepages-2Mi: 64Mi, \
         example.com/b: 2, ephemeral-storage: 1Gi}}",
    ));
    let container = &pod.containers[0];
    assert_eq!(container.requests.milli_cpus, Some(500));
    assert_eq!(container.limits.milli_cpus, Some(2000));
    // A limit without a request is one.
    assert_eq!(container.requests.memory_bytes, Some(1 << 30));
    assert_eq!(container.requests.hugepages, [(2 << 20, 64 << 20)].into());
    assert_eq!(container.devices, [("example.com/b".to_owned(), 2)].into());
    assert_eq!(pod.qos, QosClass::Burstable);
    assert_eq!(one(&with_resources("{limits: {cpu: 0.5, memory: 1e9}}")).qos, QosClass::Guaranteed);
    assert_eq!(one(&with_resources("{}")).qos, QosClass::BestEffort);
}

#[test]
fn init_containers_and_sidecars_come_first() {
    let text = "kind: Pod\nmetadata: {name: p}\nspec:\n  containers: [{name: a}, {name: b}]\n  \
                initContainers: [{name: i}, {name: s, restartPolicy: Always}]\n";
    let pod = one(text);
    let kinds: Vec<_> = pod.containers.iter().map(|c| (c.name.as_str(), c.kind)).collect();
    assert_eq!(
        kinds,
        [
            ("i", ContainerKind::Init),
            ("s", ContainerKind::Sidecar),
            ("a", ContainerKind::App),
            ("b", ContainerKind::App),
        ]
    );
}

#[test]
fn what_does_not_count_is_a_warning() {
    let text = "kind: Pod\nmetadata: {name: p, annotations: {a: true, b: \"true\"}}\nspec:\n  \
                overhead: {cpu: 100m}\n  containers: [{name: a, resources: {claims: []}}]\n";
    let pod = read(text).pods.remove(0);
    assert_eq!(
        pod.warnings,
        [
            "annotations: a is not quoted; a cluster refuses it",
            "the overhead of its runtime class is not counted",
            "container a: resource claims are not counted",
        ]
    );
    assert_eq!(pod.request.annotations["a"], "true");
}

#[test]
fn annotations_beyond_the_bound_of_the_daemon_are_a_warning() {
    let most = numa_placement::foreign::MOST_ANNOTATIONS;
    let text = format!(
        "kind: Pod\nmetadata: {{name: p, annotations: {{engine.numa-enforcer.io: pools, notes: {0}, \
         resource-policy.nri.io/affinity: {0}}}}}\nspec: {SPEC}\n",
        "x".repeat(most)
    );
    let pod = read(&text).pods.remove(0);
    let said =
        "annotation resource-policy.nri.io/affinity: more than 16384 bytes with those before it, ignored";
    assert_eq!(pod.warnings, [said]);
    assert_eq!(pod.request.annotations.keys().collect::<Vec<_>>(), ["engine.numa-enforcer.io", "notes"]);
}

#[test]
fn a_task_of_a_volcano_job_says_its_policy() {
    let text = format!(
        "apiVersion: batch.volcano.sh/v1alpha1\nkind: Job\nmetadata: {{name: a}}\nspec: {{tasks: \
         [{{name: w, topologyPolicy: single-numa-node, template: {{spec: {SPEC}}}}}]}}"
    );
    assert_eq!(one(&text).annotations["volcano.sh/numa-topology-policy"], "single-numa-node");
}

#[test]
fn annotations_that_are_documents_are_read() {
    let text = format!(
        "kind: Pod\nmetadata:\n  name: p\n  annotations:\n    noderesource.dev/resources: |\n      \
         c: {{requests: {{memory: 1Gi}}}}\n    other: '{{'\nspec: {SPEC}\n"
    );
    let documents = one(&text).documents;
    assert_eq!(documents.len(), 1, "{documents:?}");
    assert!(documents["noderesource.dev/resources"].is_ok(), "{documents:?}");
}

#[test]
fn what_is_wrong_has_its_place() {
    for (text, said) in [
        ("a: [", "f.yaml:"),
        ("- x\n", "f.yaml:1:1: a manifest: an object is expected, not a list"),
        ("hello\n", "f.yaml:1:1: a manifest: an object is expected, not `hello`"),
        ("metadata: {name: x}\n", "f.yaml:1:1: an object without `kind`"),
        ("kind: Pod\nspec: {}\n", "an object has no `metadata`"),
        ("kind: Pod\nmetadata: {}\nspec: {}\n", "f.yaml:2:11: metadata has no `name`"),
        ("kind: Pod\nmetadata: {name: x}\n", "Pod has no `spec`"),
        ("kind: Pod\nmetadata: {name: x}\nspec: {}\n", "f.yaml:3:7: a pod needs at least one container"),
        (
            "kind: Pod\nmetadata: {name: x}\nspec: {containers: 3}\n",
            "f.yaml:3:20: containers: a list is expected, not `3`",
        ),
        ("kind: Pod\nmetadata: {name: x}\nspec: {containers: [{}]}\n", "a container has no `name`"),
        (
            "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: a}, {name: a}]}\n",
            "container `a` is there twice",
        ),
        ("kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: ''}]}\n", "a container needs a name"),
        ("kind: Deployment\nmetadata: {name: x}\nspec: {}\n", "Deployment has no `template`"),
        (
            "kind: Deployment\nmetadata: {name: x}\nspec: {replicas: -1, template: {spec: {containers: [{name: a}]}}}\n",
            "replicas: a whole number is expected, not `-1`",
        ),
        (
            "kind: Deployment\nmetadata: {name: x}\nspec: {replicas: 10001, template: {spec: {containers: [{name: a}]}}}\n",
            "f.yaml:1:1: more than 10000 pods",
        ),
    ] {
        assert!(error(text).contains(said), "{text}: {}", error(text));
    }
    for (resources, said) in [
        ("{limits: {cpu: abc}}", "f.yaml:6:31: cpu: a quantity like 500m, 2 or 4Gi is expected, not `abc`"),
        ("{limits: {memory: -1}}", "memory: a quantity"),
        (
            "{limits: {cpus: 9}}",
            "f.yaml:6:26: a container has no resource `cpus`; a name without a slash is cpu,",
        ),
        ("{limits: {memory: [1]}}", "memory: text or a number is expected, not a list"),
        ("{limits: {hugepages-3Mi: 3Mi}}", "`hugepages-3Mi` is no size of huge pages"),
        ("{requests: {cpu: 2}, limits: {cpu: 1}}", "container c requests more cpu than its limit"),
        ("{request: {cpu: 2}}", "`resources` has no field `request`; expected requests, limits"),
        (
            "{limits: {cpu: 1, hugepages-2Mi: 3Mi}}",
            "hugepages-2Mi: a whole number of pages is expected, not `3Mi`",
        ),
        ("{limits: {hugepages-2Mi: 4Mi}}", "container c: huge pages need an amount of cpu or memory beside"),
        ("{limits: {v/nic: 500m}}", "v/nic: a whole number of devices is expected, not `500m`"),
        ("{requests: {v/nic: 1}, limits: {v/nic: 2}}", "container c: the limit of v/nic must be its request"),
        ("{requests: {v/nic: 1}}", "container c: the limit of v/nic must be its request"),
        ("{requests: {hugepages-2Mi: 2Mi}}", "container c: the limit of hugepages-2Mi must be its request"),
        ("3", "resources: a map is expected, not `3`"),
    ] {
        let error = error(&with_resources(resources));
        assert!(error.contains(said), "{resources}: {error}");
    }
}

#[test]
fn field_that_no_container_has_is_told() {
    let text =
        "kind: Pod\nmetadata: {name: x}\nspec:\n  containers: [{name: a, resorces: {limits: {cpu: 9}}}]\n";
    let read = read(text);
    assert_eq!(read.pods[0].warnings, ["container a: a container has no field `resorces`, ignored"]);
}

#[test]
fn copies_of_long_texts_are_refused_before_they_are_made() {
    let long = "x".repeat(1 << 20);
    for template in [
        format!("metadata: {{annotations: {{big: {long}}}}}, spec: {SPEC}"),
        format!("metadata: {{labels: {{a: {long}}}}}, spec: {SPEC}"),
        format!("spec: {{containers: [{{name: {long}}}]}}"),
    ] {
        let text = format!(
            "kind: Deployment\nmetadata: {{name: x}}\nspec: {{replicas: 10000, template: {{{template}}}}}\n"
        );
        let error = error(&text);
        assert!(error.contains("f.yaml:1:1: the names, labels and annotations of all pods"), "{error}");
    }
    let create =
        format!("- create: {{workloads: [{{name: w, replicas: 40, annotations: {{big: {long}}}}}]}}\n");
    assert_eq!(steps_of(&create).unwrap().len(), 40);
    let error = steps_of(&create.repeat(2)).unwrap_err();
    assert!(error.contains("the names, labels and annotations of all pods"), "{error}");
}

#[test]
fn an_annotation_that_repeats_itself_is_an_error_of_its_own() {
    let list = ["x"; 100].join(", ");
    let rules = |times: usize| format!("a: &a [{list}]\nb: [{}]\n", ["*a"].repeat(times).join(", "));
    let read = |times| yaml::parse::<Document>(&rules(times));
    assert!(read(5).is_ok());
    let error = read(20).unwrap_err();
    assert!(error.contains("alias"), "{error}");
}

#[test]
fn workload_files_are_short_for_pods() {
    let yaml = "workloads:\n- {name: db, cpus: 4, memory: 8GiB, hugepages: {2Mi: 64Mi}, devices: {v/nic: 1},\n   \
                policy: single-numa-node, engine: hints, labels: {a: b}}\n- {name: web, namespace: n, cpus: 500m, replicas: 2}\n";
    let toml = "[[workloads]]\nname = \"db\"\ncpus = 4\nmemory = \"8GiB\"\nhugepages = { 2Mi = \"64Mi\" }\n\
                devices = { \"v/nic\" = 1 }\npolicy = \"single-numa-node\"\nengine = \"hints\"\nlabels = { a = \"b\" }\n\
                [[workloads]]\nname = \"web\"\nnamespace = \"n\"\ncpus = \"500m\"\nreplicas = 2\n";
    let from_yaml = read(yaml);
    let from_toml = Manifests::of(&ManifestSource { name: "f.toml".into(), text: toml.into() }).unwrap();
    assert_eq!(from_yaml.pods, from_toml.pods);
    let names: Vec<String> = from_yaml.pods.iter().map(|pod| pod.request.name.to_string()).collect();
    assert_eq!(names, ["default/db", "n/web-0", "n/web-1"]);
    let db = &from_yaml.pods[0].request;
    assert_eq!(db.qos, QosClass::Guaranteed);
    assert_eq!(db.containers[0].requests.memory_bytes, Some(8 << 30));
    assert_eq!(db.containers[0].requests.hugepages, [(2 << 20, 64 << 20)].into());
    assert_eq!(db.annotations["policy.numa-enforcer.io"], "single-numa-node");
    for (text, said) in [
        ("workloads: [{name: a, cpu: 1}]", "a workload has no field `cpu`; expected name, namespace"),
        ("workloads: [{cpus: 1}]", "a workload has no `name`"),
        ("workloads: [{name: a, cpus: x}]", "cpus: a number of CPUs like 4 or 500m is expected, not `x`"),
        ("workloads: [{name: a, memory: 8parsecs}]", "memory: an amount of memory"),
        ("workloads: [{name: a, replicas: 20000}]", "more than 10000 pods"),
        ("workloads: []\nmore: 1", "a workload file has no field `more`"),
    ] {
        assert!(error(text).contains(said), "{text}: {}", error(text));
    }
}

#[test]
fn devices_are_read_and_counted() {
    let nodes = "0-1".parse().unwrap();
    let read = |text: &str| {
        let source = source(text);
        devices::devices(&documents(&source).unwrap(), &nodes)
    };
    let found = read(
        "- {resource: v/nic, id: a, numa_nodes: 0}\n- {resource: v/gpu, id: g, numa_nodes: \"0-1\", count: 2}\n\
         - {resource: v/x, id: 7}\n- {resource: v/y, id: y, numa_nodes: [1]}\n\
         - {resource: v/z, id: a, numa_nodes: -1}\n- {resource: v/z, id: b, numa_nodes: [-1]}\n\
         - {resource: v/z, id: c, numa_nodes: \"-1\"}\n",
    )
    .unwrap();
    let found: Vec<String> =
        found.iter().map(|device| format!("{} {} {}", device.resource, device.id, device.nodes)).collect();
    assert_eq!(
        found,
        ["v/nic a 0", "v/gpu g-0 0-1", "v/gpu g-1 0-1", "v/x 7 ", "v/y y 1", "v/z a ", "v/z b ", "v/z c "]
    );
    for (text, said) in [
        ("- {id: a}", "a device has no `resource`"),
        ("- {resource: a}", "a device has no `id`"),
        ("- {resource: a, id: a, numa_node: 1}", "a device has no field `numa_node`"),
        ("- {resource: a, id: a, numa_nodes: 9}", "device `a`: the machine has no NUMA node 9, only 0-1"),
        ("- {resource: a, id: a, numa_nodes: x}", "numa_nodes: a node, a list of nodes"),
        ("- {resource: a, id: a, numa_nodes: [99999999999]}", "numa_nodes: a node, a list of nodes"),
        ("- {resource: a, id: a}\n- {resource: a, id: a}", "device `a` of a is there twice"),
        ("- {resource: a, id: a, count: 99999999999}", "more than 10000 devices"),
        ("hello", "a file of devices: a list is expected"),
        (&format!("- {{resource: a, id: {}, count: 10000}}", "x".repeat(254)), "has at most 253 bytes"),
        (&format!("- {{resource: {}, id: a}}", "x".repeat(254)), "has at most 253 bytes"),
    ] {
        let problem = read(text).unwrap_err();
        assert!(problem.text.contains(said), "{text}: {problem:?}");
    }
}

fn steps_of(text: &str) -> Result<Vec<String>, String> {
    let directory = tempfile::tempdir().unwrap();
    fs::write(
        directory.path().join("web.yaml"),
        format!("kind: Pod\nmetadata: {{name: web}}\nspec: {SPEC}\n"),
    )
    .unwrap();
    let path = directory.path().join("steps.yaml");
    fs::write(&path, text).unwrap();
    let read = read_steps(&[], Some(&path)).map_err(|error| error.to_string())?;
    let shown = read.steps.iter().map(|step| match &step.action {
        TrialAction::Create(pod) => format!("create {}", pod.name),
        TrialAction::Resize(pod) => format!("resize {}", pod.name),
        TrialAction::Warm(pod) => format!("warm {pod}"),
        TrialAction::Delete(pod) => format!("delete {pod}"),
    });
    Ok(shown.collect())
}

#[test]
fn steps_take_files_manifests_and_names() {
    let text = format!(
        "- create: web.yaml\n- create: {{kind: Deployment, metadata: {{name: d}}, spec: {{replicas: 2, template: {{spec: {SPEC}}}}}}}\n\
         - resize: |\n    kind: Pod\n    metadata: {{name: web}}\n    spec: {SPEC}\n- delete: web\n- delete: n/d.0\n- warm: n/c\n\
         - delete: web.yaml\n- create: {{workloads: [{{name: w}}]}}\n"
    );
    assert_eq!(
        steps_of(&text).unwrap(),
        [
            "create default/web",
            "create default/d-0",
            "create default/d-1",
            "resize default/web",
            "delete default/web",
            "delete n/d.0",
            "warm n/c",
            "delete default/web",
            "create default/w",
        ]
    );
    assert_eq!(steps_of("steps:\n- create: web.yaml\n").unwrap(), ["create default/web"]);
}

#[test]
fn steps_that_cannot_be_are_named() {
    for (text, said) in [
        ("hello", "a file of steps: a list is expected, not `hello`"),
        ("- hello", "a step: a map is expected, not `hello`"),
        ("- {}", "a step is exactly one of create, delete, resize, warm"),
        ("- {create: web.yaml, delete: a}", "a step is exactly one of create, delete, resize, warm"),
        ("- {destroy: a}", "a step has no field `destroy`; expected create, delete, resize, warm"),
        ("- create: [1]", "a step: a manifest or the path of a file is expected, not a list"),
        ("- delete: a/b/c", "`a/b/c` is not namespace/name of a pod"),
        ("- delete: /x", "`/x` is not namespace/name"),
        ("- create: absent.yaml", "absent.yaml: No such file"),
        ("[]", "no pod to place"),
        (
            "- create: |\n    kind: Pod\n    metadata: {}\n",
            "steps.yaml (text at line 2):2:11: metadata has no `name`",
        ),
    ] {
        let error = steps_of(text).unwrap_err();
        assert!(error.contains(said), "{text}: {error}");
    }
}

#[test]
fn files_have_a_limit_and_must_be_text() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("f.yaml");
    fs::write(&path, [0xff, 0xfe]).unwrap();
    let message = |path: &Path| ManifestSource::read(path).unwrap_err().to_string();
    assert!(message(&path).contains("not UTF-8"));
    assert!(message(Path::new("/dev/zero")).contains("longer than"));
    assert!(message(directory.path()).contains("directory"));
}

#[test]
fn the_mark_is_below_what_is_wrong() {
    let source = source("a:\n\tbé: x\n");
    let error = source.error(&ManifestProblem::new(TextPlace { line: 2, column: 6 }, "no"));
    assert_eq!(error.to_string(), "f.yaml:2:6: no");
    assert_eq!(error.excerpt(), Some("2 | \tbé: x\n  | \t    ^"));
    let lines = source.lines();
    assert_eq!(
        [0, 3, 7].map(|byte| (lines.place(byte).line, lines.place(byte).column)),
        [(1, 1), (2, 1), (2, 4)]
    );
}
