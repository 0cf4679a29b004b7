//! `plan` as a user runs it: files in, table or JSON out, exit codes, bad input.

use std::{fs, io::Write, path::Path, process::Stdio};

use crate::common::{Ended, finish, program, run, unprivileged};
use serde_json::Value;
use tempfile::TempDir;

/// Two sockets of two nodes with four cores of two threads and 16 GiB.
const MACHINE: &str = "sockets:2 nodes:2 cores:4 threads:2 memory:16GiB";

const WEB: &str = "\
apiVersion: v1
kind: ConfigMap
metadata: { name: settings }
---
apiVersion: apps/v1
kind: Deployment
metadata: { name: web, namespace: shop }
spec:
  replicas: 2
  template:
    metadata: { labels: { app: web } }
    spec:
      initContainers:
        - name: setup
          resources: { limits: { cpu: 1, memory: 1Gi } }
      containers:
        - name: server
          resources: { limits: { cpu: 4, memory: 4Gi } }
        - name: log
          resources: { limits: { cpu: 500m, memory: 256Mi } }
---
apiVersion: v1
kind: Pod
metadata: { name: batch }
spec:
  containers:
    - name: job
      resources: { requests: { cpu: 500m, memory: 1Gi } }
";

/// A directory with these files.
fn files(files: &[(&str, &str)]) -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    for (name, text) in files {
        fs::write(directory.path().join(name), text).unwrap();
    }
    directory
}

/// Runs `plan` in a directory on [`MACHINE`], unless the arguments name another.
fn plan(directory: &Path, arguments: &[&str]) -> Ended {
    let mut command = program(&["plan"]);
    if !arguments.iter().any(|argument| ["--synthetic", "--root", "--topology"].contains(argument)) {
        command.args(["--synthetic", MACHINE]);
    }
    command.args(arguments).current_dir(directory).env("COLUMNS", "110");
    finish(command)
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// A file with one pod that wants these resources.
fn pod(name: &str, resources: &str) -> String {
    format!(
        "{{kind: Pod, metadata: {{name: {name}}}, spec: {{containers: [{{name: c, resources: {resources}}}]}}}}\n"
    )
}

const WHOLE: &str = "{limits: {cpu: 4, memory: 1Gi}}";
const TOO_MUCH: &str = "{limits: {cpu: 4000, memory: 1Gi}}";

#[test]
fn plan_has_the_place_of_each_container() {
    let directory = files(&[("web.yaml", WEB)]);
    let table = plan(directory.path(), &["web.yaml"]);
    assert_eq!(table.code, Some(0), "{table:?}");
    insta::assert_snapshot!("table", table.stdout);
    assert_eq!(
        table.stderr,
        "numa-enforcer: web.yaml:1: ConfigMap settings: a kind that makes no pods here, ignored\n"
    );
    let report = plan(directory.path(), &["web.yaml", "-o", "json"]);
    insta::assert_snapshot!("json", report.stdout);
    assert!(table.stdout.lines().all(|line| line.chars().count() <= 110), "{}", table.stdout);
}

#[test]
fn both_engines_place_everything_that_fits_and_give_nothing_twice() {
    let directory = files(&[("web.yaml", WEB), ("pools.toml", "[placement]\nengine = \"pools\"\n")]);
    for (engine, arguments) in [
        ("hints", &["web.yaml", "-o", "json"][..]),
        ("pools", &["web.yaml", "-o", "json", "--config", "pools.toml"]),
    ] {
        let ended = plan(directory.path(), arguments);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = json(&ended);
        let mut taken = Vec::new();
        for step in report["steps"].as_array().unwrap() {
            for container in step["containers"].as_array().unwrap() {
                assert_eq!(container["engine"], engine, "{container}");
                assert_ne!(container["cpus"], "", "{container}");
                // Init containers have ended; their CPUs may be another container's.
                if container["kind"] == "app" && container["exclusiveCpus"] != "" {
                    taken.push(container["exclusiveCpus"].as_str().unwrap().to_owned());
                }
            }
        }
        let ids: Vec<u32> = taken.iter().flat_map(|list| expanded(list)).collect();
        let distinct: std::collections::BTreeSet<u32> = ids.iter().copied().collect();
        assert_eq!((ids.len(), distinct.len()), (8, 8), "{engine}: {taken:?}");
    }
}

fn expanded(list: &str) -> Vec<u32> {
    let bounds = |range: &str| match range.split_once('-') {
        Some((first, last)) => (first.parse().unwrap(), last.parse().unwrap()),
        None => (range.parse().unwrap(), range.parse().unwrap()),
    };
    list.split(',')
        .flat_map(|range| {
            let (first, last): (u32, u32) = bounds(range);
            first..=last
        })
        .collect()
}

#[test]
fn steps_change_one_state() {
    let steps = format!(
        "- create: shared.yaml\n- create: {}- resize: {}- delete: default/whole\n- delete: default/whole\n",
        pod("whole", WHOLE),
        pod("whole", "{limits: {cpu: 6, memory: 1Gi}}"),
    );
    let shared = pod("shared", "{requests: {cpu: 100m}}");
    let directory = files(&[("steps.yaml", &steps), ("shared.yaml", &shared)]);
    let ended = plan(directory.path(), &["--steps", "steps.yaml", "-o", "json"]);
    let report = json(&ended);
    assert_eq!(ended.code, Some(0), "{report:#}");
    let steps = report["steps"].as_array().unwrap();
    let shown: Vec<String> = steps
        .iter()
        .map(|step| {
            format!("{} {} {}", step["step"], step["action"].as_str().unwrap(), step["pod"].as_str().unwrap())
        })
        .collect();
    assert_eq!(
        shown,
        [
            "1 create default/shared",
            "2 create default/whole",
            "3 resize default/whole",
            "4 delete default/whole",
            "5 delete default/whole",
        ]
    );
    let cpus = |step: usize| expanded(steps[step]["containers"][0]["exclusiveCpus"].as_str().unwrap()).len();
    assert_eq!([cpus(1), cpus(2)], [4, 6]);
    // A sharing container loses CPUs that the other gets exclusively, and has them back in the end.
    let before = steps[0]["containers"][0]["cpus"].as_str().unwrap();
    let last = steps[..4].iter().rev().flat_map(|step| step["updates"].as_array().unwrap()).next();
    if let Some(update) = last {
        assert_eq!(update["who"], "default/shared/c");
        assert_eq!(update["cpus"], before, "{report:#}");
    }
    assert_eq!(steps[4]["warnings"].as_array().unwrap().len(), 1);
}

#[test]
fn exit_codes_say_how_it_went() {
    let directory = files(&[
        ("fits.yaml", &pod("a", WHOLE)),
        ("much.yaml", &pod("b", TOO_MUCH)),
        ("service.yaml", "kind: Service\nmetadata: {name: s}\n"),
        (
            "bad.yaml",
            "kind: Pod\nmetadata: {name: x}\nspec: {containers: [{name: c, resources: {limits: {cpu: x}}}]}\n",
        ),
        ("config.toml", "[placement.reserved]\ncpus = \"cpuset:4000\"\n"),
        ("nowhere.toml", "[placement]\nengine = \"magic\"\n"),
        ("devices.yaml", "- {resource: v/x, id: a, numa_nodes: 77}\n"),
        ("steps.yaml", "- {create: fits.yaml, delete: a}\n"),
        ("topology.json", "{\"nodes\": []}"),
        ("empty.json", "{"),
    ]);
    for (arguments, code, said) in [
        (&["fits.yaml"][..], 0, ""),
        (&["much.yaml"], 1, ""),
        (&["fits.yaml", "much.yaml"], 1, ""),
        (&["fits.yaml", "fits.yaml"], 1, ""),
        (
            &["fits.yaml", "service.yaml"],
            0,
            "service.yaml:1: Service s: a kind that makes no pods here, ignored",
        ),
        (&["service.yaml"], 64, "service.yaml: no pod to place; service.yaml:1: Service s"),
        (&["missing.yaml"], 2, "reading missing.yaml: No such file"),
        (&["."], 2, "reading .: "),
        (
            &["bad.yaml"],
            64,
            "bad.yaml:3:57: cpu: a quantity like 500m, 2 or 4Gi is expected, not `x`\n3 | spec:",
        ),
        (&["-", "-"], 64, "standard input (`-`) can be read only once"),
        (
            &["fits.yaml", "--config", "config.toml"],
            64,
            "config.toml: placement.reserved.cpus = cpuset:4000: ",
        ),
        (&["fits.yaml", "--config", "nowhere.toml"], 64, "nowhere.toml:2:10: "),
        (&["fits.yaml", "--config", "missing.toml"], 2, "missing.toml: No such file"),
        (
            &["fits.yaml", "--devices", "devices.yaml"],
            64,
            "devices.yaml:1:3: device `a`: the machine has no NUMA node 77",
        ),
        (
            &["--steps", "steps.yaml"],
            64,
            "steps.yaml:1:3: a step is exactly one of create, delete, resize, warm",
        ),
        (&["--steps", "missing.yaml"], 2, "missing.yaml: No such file"),
        (&["fits.yaml", "--topology", "missing.json"], 2, "missing.json: No such file"),
        (&["fits.yaml", "--topology", "topology.json"], 64, "topology.json:1:13: missing field"),
        (&["fits.yaml", "--topology", "empty.json"], 64, "empty.json:1:1: EOF"),
        (&["fits.yaml", "--root", "/no/such/root"], 2, "/no/such/root: No such file"),
        (&["fits.yaml", "--synthetic", "sockets:none"], 64, "`sockets:none`: a number from 1"),
        (&["fits.yaml", "--synthetic", ""], 64, "no machine is described"),
        (&["fits.yaml", "--synthetic", MACHINE, "--root", "/"], 64, "cannot be used with"),
        (&[], 64, "PODS.yaml"),
    ] {
        let ended = plan(directory.path(), arguments);
        assert_eq!(ended.code, Some(code), "{arguments:?}: {ended:?}");
        assert!(ended.stderr.contains(said), "{arguments:?}: {}", ended.stderr);
        assert_eq!(ended.stdout.is_empty(), code > 1, "{arguments:?}: {}", ended.stdout);
    }
}

#[test]
fn a_rejection_begins_with_the_name_of_its_error() {
    let directory = files(&[("much.yaml", &pod("b", TOO_MUCH))]);
    let report = json(&plan(directory.path(), &["much.yaml", "-o", "json"]));
    let step = &report["steps"][0];
    assert_eq!(step["admitted"], false);
    let reason = step["reason"].as_str().unwrap();
    let (name, _) = reason.split_once(": ").unwrap();
    assert!(
        ["TopologyAffinityError", "SMTAlignmentError", "UnexpectedAdmissionError"].contains(&name),
        "{reason}"
    );
    assert!(reason.contains("cpu"), "{reason}");
    assert_eq!(step["containers"], Value::Array(Vec::new()));
}

#[test]
fn pods_come_from_standard_input_as_well() {
    let directory = files(&[]);
    let mut command = program(&["plan", "-", "--synthetic", MACHINE, "-o", "json"]);
    let (reader, mut writer) = std::io::pipe().unwrap();
    command.stdin(Stdio::from(reader)).current_dir(directory.path());
    writer.write_all(pod("a", WHOLE).as_bytes()).unwrap();
    drop(writer);
    let ended = finish(command);
    assert_eq!(json(&ended)["steps"][0]["pod"], "default/a", "{ended:?}");
}

#[test]
fn devices_are_given_out_by_id() {
    let gpu = pod("gpu", "{limits: {cpu: 2, memory: 1Gi, vendor.com/gpu: 2}}");
    let devices = "- {resource: vendor.com/gpu, id: gpu, numa_nodes: 3, count: 2}\n";
    let directory = files(&[("gpu.yaml", &gpu), ("devices.yaml", devices)]);
    let report = json(&plan(directory.path(), &["gpu.yaml", "--devices", "devices.yaml", "-o", "json"]));
    let container = &report["steps"][0]["containers"][0];
    assert_eq!(container["devices"]["vendor.com/gpu"], serde_json::json!(["gpu-0", "gpu-1"]), "{report:#}");
    assert_eq!(container["mems"], "3", "{report:#}");
}

#[test]
fn explaining_adds_what_was_considered() {
    let directory = files(&[("a.yaml", &pod("a", WHOLE))]);
    let without = json(&plan(directory.path(), &["a.yaml", "-o", "json"]));
    assert!(without["steps"][0].get("candidates").is_none());
    let with = json(&plan(directory.path(), &["a.yaml", "-o", "json", "--explain"]));
    let candidates = with["steps"][0]["candidates"].as_array().unwrap();
    assert!(candidates.iter().any(|candidate| candidate["chosen"] == true), "{with:#}");
    assert!(candidates.iter().all(|candidate| candidate["because"] != ""), "{with:#}");
    let table = plan(directory.path(), &["a.yaml", "--explain"]);
    assert!(table.stdout.contains("  place    c: taken"), "{}", table.stdout);
}

#[test]
fn the_same_input_gives_the_same_bytes() {
    let directory = files(&[("web.yaml", WEB)]);
    for arguments in [&["web.yaml", "--explain"][..], &["web.yaml", "-o", "json", "--explain"]] {
        let first = plan(directory.path(), arguments);
        assert_eq!(first.stdout, plan(directory.path(), arguments).stdout);
    }
}

#[test]
fn names_cannot_write_on_the_terminal() {
    let hostile = "{kind: Pod, metadata: {name: \"a\\u001b[31m\", annotations: {\"policy.numa-enforcer.io\": \"\\u001b[2J\"}}, \
                   spec: {containers: [{name: \"c\\u202e\\nd\", resources: {limits: {cpu: 1, memory: 1Gi}}}]}}\n";
    let directory = files(&[
        ("a.yaml", hostile),
        ("service.yaml", "kind: \"Ser\\u001bvice\"\nmetadata: {name: \"\\u001b\"}\n"),
    ]);
    let ended = plan(directory.path(), &["a.yaml", "service.yaml", "--explain"]);
    for text in [&ended.stdout, &ended.stderr] {
        assert!(!text.contains('\u{1b}') && !text.contains('\u{202e}'), "{ended:?}");
    }
    assert!(ended.stdout.contains("a\\u{1b}[31m"), "{}", ended.stdout);
}

#[test]
fn a_reader_that_goes_away_is_a_quiet_success() {
    let directory = files(&[("web.yaml", WEB)]);
    for output in ["table", "json"] {
        let mut command = program(&["plan", "web.yaml", "--synthetic", MACHINE, "-o", output]);
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer).current_dir(directory.path());
        drop(reader);
        let ended = finish(command);
        assert_eq!((ended.code, ended.stderr.as_str()), (Some(0), ""), "{output}");
    }
}

#[test]
fn this_host_is_the_default() {
    let directory = files(&[("a.yaml", &pod("a", "{requests: {cpu: 10m}}"))]);
    let mut command = program(&["plan", "a.yaml", "-o", "json"]);
    command.current_dir(directory.path());
    let ended = finish(command);
    assert_eq!(json(&ended)["steps"][0]["admitted"], true, "{ended:?}");
}

/// What the documentation says that a command prints, once as it is and once as it would be now.
fn transcripts(text: &str, examples: &Path) -> String {
    let mut now = String::new();
    let mut rest = text;
    while let Some((before, block)) = rest.split_once("```text\n$ numa-enforcer plan ") {
        let (block, after) = block.split_once("```").unwrap();
        let line = block.lines().next().unwrap();
        let mut words = Vec::new();
        for (index, part) in line.split('\'').enumerate() {
            if index % 2 == 1 { words.push(part) } else { words.extend(part.split_whitespace()) }
        }
        let mut command = program(&["plan"]);
        command.args(&words).current_dir(examples);
        let ended = finish(command);
        let printed = format!("{}{}", ended.stdout, ended.stderr);
        now = format!("{now}{before}```text\n$ numa-enforcer plan {line}\n{printed}```");
        rest = after;
    }
    now + rest
}

#[test]
fn the_documentation_shows_what_is_printed() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = docs.join("plan.md");
    let text = fs::read_to_string(&page).unwrap();
    let now = transcripts(&text, &docs.join("examples/plan"));
    if std::env::var_os("UPDATE_DOCS").is_some() {
        fs::write(&page, &now).unwrap();
    }
    assert!(
        text == now || std::env::var_os("UPDATE_DOCS").is_some(),
        "docs/plan.md shows something else; correct it with\n    \
         UPDATE_DOCS=1 cargo test -p enforcer --test product plan\n{now}"
    );
}

#[test]
fn help_has_every_word_of_a_machine_and_of_the_files() {
    let help = run(&["plan", "--help"]).stdout;
    for word in
        ["sockets:N", "l3:N", "pmem:SIZE", "isolated:", "workloads:", "numa_nodes", "resize:", "Exit codes"]
    {
        assert!(help.contains(word), "{word}: {help}");
    }
}

#[test]
fn what_runs_here_is_looked_at_and_left_where_it_is() {
    let directory = files(&[("all.toml", "[[workload]]\nname = \"all\"\ncgroup = \"/**\"\ncpus = 1\n")]);
    let config = directory.path().join("all.toml");
    let arguments = ["plan", "--rebalance", "--sample", "300ms", "--config", config.to_str().unwrap()];
    let schema: Value =
        serde_json::from_str(include_str!("../../../docs/schema/rebalance.schema.json")).unwrap();
    let (unprivileged, _copy) = unprivileged(&["plan", "--rebalance", "--sample", "300ms", "-o", "json"]);
    let mut without_root = false;
    for command in [program(&[&arguments[..], &["-o", "json"]].concat()), unprivileged] {
        let ended = finish(command);
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let report = json(&ended);
        for key in schema["required"].as_array().unwrap() {
            assert!(report.get(key.as_str().unwrap()).is_some(), "no {key} in {report}");
        }
        assert!(report["bytes"].as_u64().unwrap() <= report["budgetBytes"].as_u64().unwrap());
        // What the samples missed is in no reading of the machine: without root, or without BPF, that is BPF
        // at least.
        let bpf = |one: &Value| one["source"].as_str().unwrap().starts_with("bpf");
        let told = report["degraded"].as_array().unwrap().iter().any(bpf);
        assert!(
            told || cfg!(feature = "bpf") && rustix::process::geteuid().is_root() && !without_root,
            "{report}"
        );
        without_root = true;
    }
    let text = finish(program(&arguments));
    assert_eq!(text.code, Some(0), "{text:?}");
    assert!(text.stdout.contains("no move is worth its cost") || text.stdout.contains("move"), "{text:?}");
}

#[test]
fn moves_are_of_this_host_and_of_nothing_else() {
    let directory = files(&[("web.yaml", WEB)]);
    for arguments in [
        &["plan", "web.yaml", "--rebalance"][..],
        &["plan", "--rebalance", "--synthetic", MACHINE],
        &["plan", "--rebalance", "--root", "/"],
        &["plan", "--rebalance", "--sample", "0s"],
    ] {
        let mut command = program(arguments);
        command.current_dir(directory.path());
        assert_eq!(finish(command).code, Some(64), "{arguments:?}");
    }
}

const CLAIMING: &str = "
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: place4}
spec:
  spec:
    devices:
      requests:
        - name: place
          exactly:
            deviceClassName: numa-enforcer.io
            capacity: {requests: {numa-enforcer.io/cpu: 4, numa-enforcer.io/memory: 4Gi}}
      config:
        - opaque:
            driver: numa-enforcer.io
            parameters: {apiVersion: numa-enforcer.io/v1alpha1, kind: NumaClaimConfig, memory: preferred}
---
apiVersion: v1
kind: Pod
metadata: {name: db}
spec:
  resourceClaims: [{name: place, resourceClaimTemplateName: place4}]
  containers:
    - {name: main, resources: {claims: [{name: place}], limits: {cpu: 4, memory: 4Gi}}}
    - {name: log, resources: {requests: {cpu: 100m}}}
";

/// On one machine, a claim has its CPUs, its container runs there, and all others leave them until it ends.
#[test]
fn claims_are_placed_on_one_machine() {
    let steps = "
- create: batch.yaml
- create: db.yaml
- delete: default/db
- create: db.yaml
";
    let batch = "
apiVersion: v1
kind: Pod
metadata: {name: batch}
spec: {containers: [{name: job, resources: {requests: {cpu: 500m, memory: 1Gi}}}]}
";
    // The first document alone makes no pod, and a pod without claims comes first.
    let (template, _) = CLAIMING.split_once("---").unwrap();
    let plain = batch.replace("batch", "plain");
    let objects = format!("{template}---{plain}");
    let directory = files(&[
        ("objects.yaml", &objects),
        ("db.yaml", CLAIMING),
        ("steps.yaml", steps),
        ("batch.yaml", batch),
        ("few.toml", "[dra]\nexclusive_percent = 10\n"),
    ]);
    let arguments = ["db.yaml", "-o", "json"];
    let report: Value = serde_json::from_str(&plan(directory.path(), &arguments).stdout).unwrap();
    let [step] = report["steps"].as_array().unwrap().as_slice() else { panic!("{report}") };
    let device = &step["claims"][0]["devices"][0];
    let cpus = device["cpus"].as_str().unwrap();
    assert!(!cpus.is_empty() && device["options"]["memory"] == "preferred", "{report}");
    assert_eq!(
        (&step["containers"][0]["name"], &step["containers"][0]["cpus"]),
        (&"main".into(), &cpus.into())
    );
    assert_eq!(step["containers"][1]["name"], "log");
    let all: Vec<&str> = cpus.split(',').collect();
    assert!(
        !step["containers"][1]["cpus"].as_str().unwrap().split(',').any(|cpu| all.contains(&cpu)),
        "{report}"
    );
    let table = plan(directory.path(), &["db.yaml"]);
    let line =
        format!("claim place, place: numa-enforcer.io/this-machine/ne-numa0, NUMA node 0, CPUs {cpus}");
    assert!(table.code == Some(0) && table.stdout.contains(&line), "{table:?}");
    assert!(!table.stdout.contains("not counted"), "{table:?}");
    let few = plan(directory.path(), &["db.yaml", "--config", "few.toml"]);
    assert!(few.code == Some(1) && few.stdout.contains("not enough numa-enforcer.io/cpu"), "{few:?}");
    let played = plan(directory.path(), &["objects.yaml", "--steps", "steps.yaml", "-o", "json"]);
    let played: Value = serde_json::from_str(&played.stdout).unwrap();
    let device = |step: usize| &played["steps"][step]["claims"][0]["devices"][0];
    assert_eq!((&device(2)["cpus"], &device(4)["cpus"]), (&cpus.into(), &cpus.into()), "{played}");
    assert_eq!(played["steps"][3]["warnings"], Value::Array(Vec::new()), "{played}");
}
