//! The published JSON Schemas are in one style, and the documentation has what they have.

use std::{fs, process::Command};

/// Names of properties anywhere in a schema.
fn properties(schema: &serde_json::Value, found: &mut Vec<String>) {
    found.extend(keys(schema));
    match schema {
        serde_json::Value::Object(parts) => parts.values().for_each(|part| properties(part, found)),
        serde_json::Value::Array(parts) => parts.iter().for_each(|part| properties(part, found)),
        _ => {}
    }
}

#[test]
fn outputs_write_their_keys_in_one_way() {
    for of in [
        "audit",
        "cluster",
        "cluster-check",
        "cluster-plan",
        "control",
        "doctor",
        "plan",
        "pod-explanation",
        "rebalance",
        "topology",
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_numa-enforcer")).args(["schema", of]).output().unwrap();
        let mut found = Vec::new();
        properties(&serde_json::from_slice(&output.stdout).unwrap(), &mut found);
        assert!(!found.is_empty(), "{of}");
        found.retain(|key| key.contains('_'));
        assert_eq!(found, [""; 0], "{of}: keys of outputs are camelCase");
    }
}

const CONFIGURATION: &str = include_str!("../../../docs/configuration.md");

/// The keys of an object of a schema, but for other names of one of them.
fn keys(object: &serde_json::Value) -> Vec<String> {
    let keys = object["properties"].as_object().into_iter().flatten();
    keys.filter(|(_, value)| value.get("x-same-as").is_none()).map(|(key, _)| key.clone()).collect()
}

#[test]
fn the_documentation_has_every_key_and_no_other() {
    let output =
        Command::new(env!("CARGO_BIN_EXE_numa-enforcer")).args(["schema", "config"]).output().unwrap();
    let schema: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let tables = [
        ("sample", "SampleSettings"),
        ("metrics", "MetricsSettings"),
        ("nri", "NriSettings"),
        ("kubelet", "KubeletSettings"),
        ("cluster", "ClusterSettings"),
        ("dra", "DraSettings"),
        ("dra.node", "DraNodeSettings"),
        ("control", "ControlSettings"),
        ("interrupts", "InterruptSettings"),
        ("thresholds", "Thresholds"),
        ("rebalance", "RebalanceSettings"),
        ("memory", "MemorySettings"),
        ("memory.moves", "MoveSettings"),
        ("memory.demotion", "DemotionSettings"),
        ("memory.widening", "WideningSettings"),
        ("workload", "WorkloadRule"),
        ("placement", "PlacementSettings"),
        ("placement.available", "AvailableResources"),
        ("placement.reserved", "ReservedResources"),
        ("placement.hints", "HintsSettings"),
        ("placement.pools", "PoolsSettings"),
        ("placement.rule", "PlacementRule"),
    ];
    let mut expected: Vec<String> = keys(&schema);
    for (table, definition) in tables {
        expected.retain(|key| key != table);
        let inside = keys(&schema["$defs"][definition]);
        expected.extend(inside.iter().map(|key| format!("{table}.{key}")));
    }
    let row = |line: &str| Some(line.strip_prefix("| `")?.split_once('`')?.0.to_owned());
    let mut documented: Vec<String> = CONFIGURATION.lines().filter_map(row).collect();
    expected.sort();
    documented.sort();
    assert_eq!(documented, expected);
}

#[test]
fn the_example_in_the_documentation_is_valid() {
    let (_, example) = CONFIGURATION.split_once("```toml\n").unwrap();
    let (example, _) = example.split_once("```").unwrap();
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), example).unwrap();
    let mut check = Command::new(env!("CARGO_BIN_EXE_numa-enforcer"));
    let output = check.args(["run", "--check", "--config"]).arg(file.path()).output().unwrap();
    assert_eq!(
        String::from_utf8_lossy(&output.stdout),
        "configuration is valid: mode enforce, 3 declared workloads\n",
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    // Nothing in it is without effect; what this machine lacks is another matter.
    let notes = String::from_utf8_lossy(&output.stderr);
    let own: Vec<&str> =
        notes.lines().filter(|note| !note.starts_with("numa-enforcer: [[workload]] ")).collect();
    assert_eq!(own, [""; 0]);
}
