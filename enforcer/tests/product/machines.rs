//! `topology` and `audit` on whole machines: this one, captured ones, and nonsense.

use std::{
    fs::{self, File},
    path::{Path, PathBuf},
};

use crate::common::{Ended, finish, program, run, unprivileged};
use bzip2::read::BzDecoder;
use serde_json::Value;
use tempfile::TempDir;

/// The archives of captured machines, by name.
fn archives() -> Vec<(String, PathBuf)> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/fixtures/machines");
    let paths = fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    let archives: Vec<(String, PathBuf)> = paths
        .filter_map(|path| {
            let name = path.file_name()?.to_str()?.strip_suffix(".tar.bz2")?.to_owned();
            Some((name, path))
        })
        .collect();
    assert!(archives.len() > 10, "{archives:?}");
    archives
}

/// Unpacks an archive, and gives the directory in it that holds `sys`. In memory where that is
/// possible: ten thousands of small files are slow on a disk.
pub(crate) fn unpack(archive: &Path) -> (TempDir, PathBuf) {
    let unpacked = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).unwrap();
    let mut archive = tar::Archive::new(BzDecoder::new(File::open(archive).unwrap()));
    archive.set_preserve_mtime(false);
    archive.unpack(unpacked.path()).unwrap();
    let root = fs::read_dir(unpacked.path()).unwrap().next().unwrap().unwrap().path();
    (unpacked, root)
}

fn on(root: &Path, arguments: &[&str]) -> Ended {
    let mut command = program(arguments);
    command.arg("--root").arg(root);
    finish(command)
}

fn json(ended: &Ended) -> Value {
    serde_json::from_str(&ended.stdout).unwrap_or_else(|error| panic!("{error}: {ended:?}"))
}

/// Is every key that the published schema requires there?
fn follows_schema(value: &Value, of: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/schema").join(format!("{of}.schema.json"));
    let schema: Value = serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap();
    for key in schema["required"].as_array().unwrap() {
        assert!(value.get(key.as_str().unwrap()).is_some(), "{of}: no {key} in {value}");
    }
    let known = schema["properties"].as_object().unwrap();
    for key in value.as_object().unwrap().keys() {
        assert!(known.contains_key(key), "{of}: {key} is not in the schema");
    }
}

#[test]
fn every_captured_machine_has_a_topology_and_an_audit() {
    for (name, archive) in archives() {
        let (_unpacked, root) = unpack(&archive);
        let tree = on(&root, &["topology"]);
        assert_eq!(tree.code, Some(0), "{name}: {}", tree.stderr);
        assert!(tree.stdout.contains("NUMA node") && !tree.stdout.contains('\u{1b}'), "{name}");
        assert!(tree.stdout.lines().all(|line| line.chars().count() <= 100), "{name}: {}", tree.stdout);

        let topology = on(&root, &["topology", "-o", "json"]);
        assert_eq!(topology.code, Some(0), "{name}: {}", topology.stderr);
        follows_schema(&json(&topology), "topology");

        let audit = on(&root, &["audit", "-o", "json"]);
        let report = json(&audit);
        assert_eq!(i64::from(audit.code.unwrap()), report["summary"]["exitCode"].as_i64().unwrap(), "{name}");
        follows_schema(&report, "audit");
        assert_eq!(report["schemaVersion"], 1, "{name}");
        assert_eq!(report["topology"], json(&topology), "{name}");
        assert_eq!(audit.stdout, on(&root, &["audit", "-o", "json"]).stdout, "{name}");
        let picture = on(&root, &["topology", "-o", "svg"]).stdout;
        assert!(roxmltree::Document::parse(&picture).is_ok(), "{name}: {picture}");
        let page = on(&root, &["audit", "-o", "html"]);
        assert_eq!(page.code, audit.code, "{name}: {}", page.stderr);
        assert!(page.stdout.starts_with("<!DOCTYPE html>") && page.stdout.ends_with("</html>\n"), "{name}");
        let degraded = report["degraded"].as_array().unwrap();
        let workloads = report["workloads"].as_array().unwrap();
        assert!(!workloads.is_empty() || !degraded.is_empty(), "{name}: nothing seen and nothing said");
    }
}

#[test]
fn pods_are_planned_on_every_captured_machine_and_on_its_saved_topology() {
    let directory = tempfile::tempdir().unwrap();
    let (pods, saved) = (directory.path().join("pods.yaml"), directory.path().join("topology.json"));
    fs::write(
        &pods,
        "workloads:\n- {name: small, cpus: 1, memory: 16MiB}\n- {name: half, cpus: 500m}\n\
         - {name: large, cpus: 100000, memory: 16MiB}\n- {name: tree, cpus: 100m, engine: pools}\n",
    )
    .unwrap();
    let plan = ["plan", pods.to_str().unwrap(), "-o", "json"];
    for (name, archive) in archives() {
        let (_unpacked, root) = unpack(&archive);
        let ended = on(&root, &plan);
        assert_eq!(ended.code, Some(1), "{name}: {}", ended.stderr);
        let report = json(&ended);
        follows_schema(&report, "plan");
        let admitted: Vec<bool> = report["steps"]
            .as_array()
            .unwrap()
            .iter()
            .map(|step| step["admitted"].as_bool().unwrap())
            .collect();
        assert_eq!(admitted, [true, true, false, true], "{name}: {report:#}");
        assert_eq!(ended.stdout, on(&root, &plan).stdout, "{name}");

        fs::write(&saved, on(&root, &["topology", "-o", "json"]).stdout).unwrap();
        let mut command = program(&plan);
        command.arg("--topology").arg(&saved);
        assert_eq!(finish(command).stdout, ended.stdout, "{name}");
    }
}

#[test]
fn this_machine_is_audited_with_and_without_root() {
    let (unprivileged, _copy) = unprivileged(&["audit", "-o", "json"]);
    for command in [program(&["audit", "-o", "json"]), unprivileged] {
        let ended = finish(command);
        let report = json(&ended);
        assert_eq!(i64::from(ended.code.unwrap()), report["summary"]["exitCode"].as_i64().unwrap());
        follows_schema(&report, "audit");
        assert!(!report["topology"]["nodes"].as_array().unwrap().is_empty());
        for degraded in report["degraded"].as_array().unwrap() {
            for key in ["source", "reason", "effect"] {
                assert!(!degraded[key].as_str().unwrap().is_empty(), "{degraded}");
            }
        }
    }
}

#[test]
fn tables_in_a_pipe_have_no_colour_and_fit() {
    for width in ["80", "132"] {
        let mut command = program(&["audit"]);
        command.env("COLUMNS", width).env("TERM", "xterm-256color");
        let ended = finish(command);
        assert!(ended.stdout.starts_with("Host"), "{ended:?}");
        assert!(!ended.stdout.contains('\u{1b}'), "{}", ended.stdout);
        let width = width.parse().unwrap();
        let fits = |line: &str| line.starts_with("    remedy") || line.chars().count() <= width;
        assert!(ended.stdout.lines().all(fits), "{}", ended.stdout);
    }
}

#[test]
fn a_reader_that_goes_away_is_a_quiet_success() {
    for arguments in [&["audit"][..], &["audit", "-o", "json"], &["topology"], &["topology", "-o", "json"]] {
        let mut command = program(arguments);
        let (reader, writer) = std::io::pipe().unwrap();
        command.stdout(writer);
        drop(reader);
        let ended = finish(command);
        assert_eq!(ended.code, Some(0), "{arguments:?}: {}", ended.stderr);
    }
}

#[test]
fn what_was_captured_audits_like_the_original() {
    let copy = tempfile::tempdir().unwrap();
    let directory = copy.path().join("host");
    let ended = run(&["capture", directory.to_str().unwrap()]);
    assert_eq!(ended.code, Some(0), "{}", ended.stderr);
    let shape = |mut topology: Value| {
        for node in topology["nodes"].as_array_mut().unwrap() {
            // Changes from one moment to the next.
            node["memFreeBytes"] = Value::Null;
        }
        topology
    };
    let here = json(&run(&["topology", "-o", "json"]));
    assert_eq!(shape(json(&on(&directory, &["topology", "-o", "json"]))), shape(here));
    let report = json(&on(&directory, &["audit", "-o", "json"]));
    follows_schema(&report, "audit");
    let again = run(&["capture", directory.to_str().unwrap()]);
    assert_eq!(again.code, Some(2), "{}", again.stderr);
    assert!(again.stderr.contains("not empty"), "{}", again.stderr);
}

/// A machine of two nodes and four CPUs, as files.
const MACHINE: &[(&str, &str)] = &[
    ("sys/devices/system/cpu/online", "0-3\n"),
    ("sys/devices/system/cpu/present", "0-3\n"),
    ("sys/devices/system/cpu/cpu0/topology/physical_package_id", "0\n"),
    ("sys/devices/system/cpu/cpu1/topology/physical_package_id", "0\n"),
    ("sys/devices/system/cpu/cpu2/topology/physical_package_id", "1\n"),
    ("sys/devices/system/cpu/cpu3/topology/physical_package_id", "1\n"),
    ("sys/devices/system/cpu/cpu0/cache/index3/shared_cpu_list", "0-1\n"),
    ("sys/devices/system/cpu/cpu0/cache/index3/level", "3\n"),
    ("sys/devices/system/node/online", "0-1\n"),
    ("sys/devices/system/node/node0/cpulist", "0-1\n"),
    ("sys/devices/system/node/node1/cpulist", "2-3\n"),
    ("sys/devices/system/node/node0/meminfo", "Node 0 MemTotal: 4194304 kB\nNode 0 MemFree: 1048576 kB\n"),
    ("sys/devices/system/node/node1/meminfo", "Node 1 MemTotal: 4194304 kB\nNode 1 MemFree: 1048576 kB\n"),
    ("sys/devices/system/node/node0/distance", "10 21\n"),
    ("sys/devices/system/node/node1/distance", "21 10\n"),
    ("sys/fs/cgroup/cgroup.controllers", "cpuset memory\n"),
    ("sys/fs/cgroup/cgroup.procs", ""),
    ("sys/fs/cgroup/cpuset.cpus.effective", "0-3\n"),
    ("sys/fs/cgroup/cpuset.mems.effective", "0-1\n"),
    ("sys/fs/cgroup/db/cgroup.procs", "7\n"),
    ("sys/fs/cgroup/db/cpuset.cpus", "0-1\n"),
    ("sys/fs/cgroup/db/cpuset.cpus.effective", "0-1\n"),
    ("sys/fs/cgroup/db/cpuset.mems", "1\n"),
    ("sys/fs/cgroup/db/cpuset.mems.effective", "1\n"),
    ("sys/fs/cgroup/db/memory.current", "1073741824\n"),
    ("sys/fs/cgroup/db/memory.numa_stat", "anon N0=0 N1=1073741824\nfile N0=0 N1=0\n"),
    ("proc/sys/kernel/numa_balancing", "1\n"),
];

fn machine() -> TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in MACHINE {
        put(root.path(), path, text.as_bytes());
    }
    root
}

fn put(root: &Path, path: &str, bytes: &[u8]) {
    let path = root.join(path);
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, bytes).unwrap();
}

#[test]
fn a_misaligned_workload_is_found_and_only_it() {
    let root = machine();
    let ended = on(root.path(), &["audit", "-o", "json", "--fail-on", "info"]);
    let report = json(&ended);
    assert_eq!(ended.code, Some(1), "{report}");
    let workload =
        report["workloads"].as_array().unwrap().iter().find(|workload| workload["cgroup"] == "/db").unwrap();
    assert_eq!(workload["verdict"], "misaligned", "{report}");
    assert_eq!(workload["numaNodes"], "0");
    assert_eq!(workload["remoteResidency"], 1.0);
    assert!(workload["traffic"].is_null());
    for finding in report["findings"].as_array().unwrap() {
        assert_eq!(finding["object"], "/db", "{finding}");
        assert!(!finding["evidence"].as_array().unwrap().is_empty(), "{finding}");
    }
    let table = on(root.path(), &["audit", "--only", "misaligned"]);
    assert!(table.stdout.contains("misaligned") && table.stdout.contains("remedy"), "{}", table.stdout);
    // Paths are those of the machine, not those of the copy.
    assert!(table.stdout.contains("evidence  /sys/fs/cgroup/db/cpuset.cpus.effective: "), "{}", table.stdout);
    assert!(!table.stdout.contains(root.path().to_str().unwrap()), "{}", table.stdout);
}

#[test]
fn only_what_is_new_since_an_earlier_audit_fails() {
    let root = machine();
    let known = root.path().join("known.json");
    let audit = |more: &[&str]| {
        let ended = on(root.path(), &[&["audit", "-o", "json", "--fail-on", "info"], more].concat());
        (json(&ended), ended)
    };
    let (before, ended) = audit(&[]);
    assert_eq!(ended.code, Some(1), "{before}");
    fs::write(&known, &ended.stdout).unwrap();
    let since = ["--baseline", known.to_str().unwrap()];

    let (same, ended) = audit(&since);
    assert_eq!(ended.code, Some(0), "{same}");
    assert_eq!(same["findings"], Value::Array(Vec::new()));
    assert_eq!(same["summary"]["known"], before["findings"].as_array().unwrap().len());
    assert_eq!(same["summary"]["misaligned"], 1, "it still is");

    for (path, text) in MACHINE.iter().filter(|(path, _)| path.contains("/db/")) {
        put(root.path(), &path.replace("/db/", "/new/"), text.as_bytes());
    }
    let (more, ended) = audit(&since);
    assert_eq!(ended.code, Some(1), "{more}");
    let found = more["findings"].as_array().unwrap();
    assert!(!found.is_empty() && found.iter().all(|finding| finding["object"] == "/new"), "{more}");
}

#[test]
fn a_configuration_makes_the_audit_report_what_is_declared_and_not_in_place() {
    let root = machine();
    let file = root.path().join("config.toml");
    let drifted = |text: &str| {
        fs::write(&file, text).unwrap();
        let ended = on(root.path(), &["audit", "-o", "json", "--config", file.to_str().unwrap()]);
        (ended.code, ended.stdout.contains("\"drift:/db\""), ended.stderr)
    };
    let declared = "[[workload]]\nname = \"db\"\ncgroup = \"/db\"\ncpus = 1\n";
    assert!(drifted(declared).1);
    assert!(!drifted("").1);
    let (code, _, said) = drifted("cpus = 1\n");
    assert_eq!(code, Some(64), "{said}");
    assert!(said.contains("config.toml:1:1: unknown field `cpus`"), "{said}");
}

/// What a file of a broken or hostile machine may hold.
const NONSENSE: &[&[u8]] = &[
    b"",
    b"\n",
    b"3-1\n",
    b"0-999999999\n",
    b"0-99999999999999999999999999\n",
    b"-1\n",
    b"nonsense\n",
    b"\x1b[2J\xff\xfe\n",
    b"N0=99999999999999999999999 anon\n",
    b"Node 0 MemTotal: -5 kB\n",
    b"10 10 10 10 10 10 10\n",
    &[b'9'; 70_000],
];

#[test]
fn nonsense_in_any_file_is_degraded_or_an_error_and_never_a_panic() {
    // `audit` reads all that `topology` reads.
    let root = machine();
    for (path, sense) in MACHINE {
        for nonsense in NONSENSE {
            put(root.path(), path, nonsense);
            let ended = on(root.path(), &["audit", "-o", "json"]);
            let shown = String::from_utf8_lossy(&nonsense[..nonsense.len().min(40)]);
            let code = ended.code.unwrap_or_else(|| panic!("{path} = {shown:?}: {ended:?}"));
            assert!((0..=2).contains(&code), "{path} = {shown:?}: {ended:?}");
            assert!(!ended.stderr.contains('\u{1b}'), "{path} = {shown:?}: {ended:?}");
            assert!(code == 2 && ended.stdout.is_empty() || json(&ended).is_object());
        }
        put(root.path(), path, sense.as_bytes());
    }
}

#[test]
fn a_bad_cpulist_names_the_file_and_the_value() {
    for (value, said) in [("3-1\n", "3-1"), ("0-999999999\n", "999999999")] {
        for path in ["sys/devices/system/node/node1/cpulist", "sys/fs/cgroup/db/cpuset.cpus.effective"] {
            let root = machine();
            put(root.path(), path, value.as_bytes());
            let ended = on(root.path(), &["audit", "-o", "json"]);
            let all = format!("{}{}", ended.stdout, ended.stderr);
            let file = path.rsplit('/').next().unwrap();
            let report = json(&ended);
            let named = report["degraded"].as_array().unwrap().iter().any(|degraded| {
                let reason = degraded["reason"].as_str().unwrap();
                reason.contains(file) && reason.contains(said)
            });
            assert!(named, "{path} = {value}: {all}");
        }
    }
}

#[test]
fn loops_of_links_and_strange_files_do_not_hold_it_up() {
    let root = machine();
    let cgroup = root.path().join("sys/fs/cgroup");
    std::os::unix::fs::symlink(".", cgroup.join("loop")).unwrap();
    std::os::unix::fs::symlink("node0", root.path().join("sys/devices/system/node/node2")).unwrap();
    std::os::unix::fs::symlink("online", root.path().join("sys/devices/system/cpu/cpu4")).unwrap();
    for fifo in ["sys/fs/cgroup/db/memory.current", "sys/devices/system/node/node1/distance"] {
        let path = root.path().join(fifo);
        fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
    }
    let ended = on(root.path(), &["audit", "-o", "json"]);
    assert!(json(&ended).is_object(), "{ended:?}");
}
