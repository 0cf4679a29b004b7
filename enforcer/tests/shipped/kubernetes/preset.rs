//! What `kustomize build` makes of a preset, as far as ours go: resources, and generated maps.
//!
//! A key of a kustomization that is not understood here is an error, so that nothing is left out unnoticed.

use std::{
    fs,
    path::{Path, PathBuf},
};

use serde::Deserialize;
use serde_json::{Map, Value, json};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kustomization {
    api_version: String,
    kind: String,
    namespace: String,
    resources: Vec<PathBuf>,
    config_map_generator: Vec<Generator>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Generator {
    name: String,
    files: Vec<PathBuf>,
}

/// The folder of the workspace.
fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

/// The objects of a preset, resources before what is generated.
pub(crate) fn objects(preset: &str) -> Vec<Value> {
    let dir = root().join("deploy/kubernetes").join(preset);
    let value = yaml(&read(&dir.join("kustomization.yaml")));
    let kustomization: Kustomization =
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    assert_eq!(kustomization.api_version, "kustomize.config.k8s.io/v1beta1");
    assert_eq!(kustomization.kind, "Kustomization");
    let mut objects: Vec<Value> =
        kustomization.resources.iter().map(|resource| yaml(&read(&dir.join(resource)))).collect();
    objects.extend(kustomization.config_map_generator.iter().map(|generator| generated(&dir, generator)));
    for object in objects.iter_mut().filter(|object| object["kind"] != "Namespace") {
        object["metadata"]["namespace"] = json!(kustomization.namespace);
    }
    objects
}

/// What the chart renders with every switch on, without copies of files of deploy.
pub(crate) fn everything() -> Vec<Value> {
    let text = read(&root().join("tests/fixtures/chart/everything.yaml"));
    text.split("---\n").filter(|text| !text.is_empty()).map(yaml).collect()
}

/// A file of the chart.
pub(crate) fn of_chart(name: &str) -> String {
    read(&root().join("deploy/helm/numa-enforcer").join(name))
}

/// A text of YAML as a value.
pub(crate) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn generated(dir: &Path, generator: &Generator) -> Value {
    let file = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        (name.to_owned(), json!(read(&dir.join(path))))
    };
    let contents: Map<String, Value> = generator.files.iter().map(file).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator.name}, "data": contents})
}
