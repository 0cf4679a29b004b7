//! The chart's values against their schema and their page, and the arguments of containers against the
//! program.

use std::{collections::BTreeSet, fs, process::Command};

use enforcer::cli::args::command;
use serde_json::Value;

use super::{
    PRESETS,
    preset::{everything, objects, of_chart, yaml},
};

/// Values that are absent where a user does not set them.
const WITHOUT_DEFAULT: [&str; 8] = [
    "affinity.podAffinity",
    "affinity.podAntiAffinity",
    "global",
    "seLinuxOptions.level",
    "seLinuxOptions.role",
    "seLinuxOptions.type",
    "seLinuxOptions.user",
    "updateStrategy.rollingUpdate.maxSurge",
];

/// Paths of values, as `image.tag`; what the schema defines apart is one value.
fn paths(schema: &Value, prefix: &str) -> BTreeSet<String> {
    let Some(properties) = schema["properties"].as_object() else {
        return BTreeSet::from([prefix.to_owned()]);
    };
    let below = properties.iter().flat_map(|(name, property)| {
        let path = if prefix.is_empty() { name.clone() } else { format!("{prefix}.{name}") };
        paths(property, &path)
    });
    below.collect()
}

fn schema() -> Value {
    serde_json::from_str(&of_chart("values.schema.json")).unwrap()
}

#[test]
fn every_value_has_a_default() {
    let values = yaml(&of_chart("values.yaml"));
    let is_set = |path: &String| path.split('.').try_fold(&values, |value, name| value.get(name)).is_some();
    let without: Vec<_> = paths(&schema(), "").into_iter().filter(|path| !is_set(path)).collect();
    assert_eq!(without, WITHOUT_DEFAULT);
}

#[test]
fn every_value_has_a_row_in_the_readme_and_no_other() {
    let readme = of_chart("README.md");
    let rows = readme.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`'));
    let rows: Vec<String> = rows.map(|(path, _)| path.to_owned()).collect();
    let sorted: BTreeSet<String> = rows.iter().cloned().collect();
    assert_eq!(rows.len(), sorted.len(), "a value has two rows");
    let mut expected = paths(&schema(), "");
    expected.remove("global");
    let difference: Vec<_> = expected.symmetric_difference(&sorted).collect();
    assert!(difference.is_empty(), "{difference:?}");
}

/// Every object of the schema names its keys, so that a misspelt one is refused.
#[test]
fn schema_refuses_unknown_keys_of_every_object_that_it_describes() {
    fn open(schema: &Value, path: &str, found: &mut Vec<String>) {
        if schema.get("properties").is_some() && schema["additionalProperties"] != false {
            found.push(path.to_owned());
        }
        let (keys, items): (Vec<_>, Vec<_>) = match schema {
            Value::Object(fields) => (fields.iter().collect(), Vec::new()),
            Value::Array(items) => (Vec::new(), items.iter().enumerate().collect()),
            _ => return,
        };
        for (key, value) in keys {
            open(value, &format!("{path}/{key}"), found);
        }
        for (at, value) in items {
            open(value, &format!("{path}/{at}"), found);
        }
    }
    let mut found = Vec::new();
    open(&schema(), "", &mut found);
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn program_takes_the_arguments_of_every_container() {
    let rendered = PRESETS.map(objects).into_iter().chain([everything()]).flatten();
    let mut seen = BTreeSet::new();
    for object in rendered.filter(|object| object["kind"] == "DaemonSet" || object["kind"] == "Deployment") {
        let pod = &object["spec"]["template"]["spec"];
        let containers = ["initContainers", "containers"].map(|list| pod[list].as_array());
        for container in containers.into_iter().flatten().flatten().filter(|one| one.get("args").is_some()) {
            let args = container["args"].as_array().unwrap().iter();
            let args = args.map(|arg| expanded(arg.as_str().unwrap(), container));
            let words: Vec<String> = ["numa-enforcer".to_owned()].into_iter().chain(args).collect();
            let parsed = command().try_get_matches_from(&words);
            seen.insert(
                parsed
                    .unwrap_or_else(|error| panic!("{words:?}: {error}"))
                    .subcommand_name()
                    .unwrap()
                    .to_owned(),
            );
        }
    }
    assert_eq!(seen, ["install-seccomp", "restore", "run", "scheduler"].map(str::to_owned).into());
}

/// The argument with a value for each variable of the container's environment. The kubelet leaves others as
/// they are written.
fn expanded(argument: &str, container: &Value) -> String {
    let variables = container["env"].as_array().into_iter().flatten();
    variables.fold(argument.to_owned(), |text, variable| {
        text.replace(&format!("$({})", variable["name"].as_str().unwrap()), "value")
    })
}

/// The `ConfigMap` of the chart says what `scheduler config` prints.
#[test]
fn configuration_of_kube_scheduler_is_that_of_the_program() {
    let map = everything()
        .into_iter()
        .find(|object| object["kind"] == "ConfigMap" && object["data"].get("config.yaml").is_some());
    let chart = yaml(map.unwrap()["data"]["config.yaml"].as_str().unwrap());
    let mut config = Command::new(env!("CARGO_BIN_EXE_numa-enforcer"));
    let namespace = chart["leaderElection"]["resourceNamespace"].as_str().unwrap();
    config.args(["scheduler", "config", "--scheduler-name", "numa", "--namespace", namespace]);
    let printed = String::from_utf8(config.output().unwrap().stdout).unwrap();
    assert_eq!(chart, yaml(&printed));
}

#[test]
fn example_in_the_default_configuration_is_valid() {
    let values = yaml(&of_chart("values.yaml"));
    let config = values["config"].as_str().unwrap();
    assert!(config.lines().all(|line| line.starts_with('#')), "the default sets nothing: {config}");
    let example: Vec<&str> = config.lines().filter_map(|line| line.strip_prefix("#   ")).collect();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("numa-enforcer.toml");
    for (text, declared) in [(config.to_owned(), 0), (example.join("\n"), 1)] {
        fs::write(&file, &text).unwrap();
        let mut check = Command::new(env!("CARGO_BIN_EXE_numa-enforcer"));
        let output = check.args(["run", "--check", "--config"]).arg(&file).output().unwrap();
        let said = String::from_utf8(output.stdout).unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(said.contains(&format!("{declared} declared workload")), "{said}{stderr}\n{text}");
    }
}
