//! What `kustomize build` makes of an overlay, as far as ours go: resources, generated maps, patches of
//! RFC 6902.
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
    namespace: Option<String>,
    resources: Vec<PathBuf>,
    #[serde(default)]
    config_map_generator: Vec<Generator>,
    #[serde(default)]
    images: Vec<Image>,
    #[serde(default)]
    patches: Vec<Patch>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Generator {
    name: String,
    files: Vec<PathBuf>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Image {
    name: String,
    new_tag: String,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    path: PathBuf,
    target: Target,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    name: String,
}

/// The objects of an overlay, resources before what is generated.
pub(crate) fn objects(overlay: &str) -> Vec<Value> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/kubernetes");
    let mut objects = built(&root.join("overlays").join(overlay));
    // Generated ones come last, as kustomize orders kinds; here it only has to be the same order each time.
    objects.sort_by_key(|object| object["kind"] == "ConfigMap");
    objects
}

/// A text of YAML as a value.
pub(crate) fn yaml(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn built(dir: &Path) -> Vec<Value> {
    let value = yaml(&read(&dir.join("kustomization.yaml")));
    let kustomization: Kustomization =
        serde_json::from_value(value).unwrap_or_else(|error| panic!("{}: {error}", dir.display()));
    assert_eq!(kustomization.api_version, "kustomize.config.k8s.io/v1beta1");
    assert_eq!(kustomization.kind, "Kustomization");
    let mut objects: Vec<Value> = kustomization
        .resources
        .iter()
        .map(|resource| dir.join(resource))
        .flat_map(|path| if path.is_dir() { built(&path) } else { vec![yaml(&read(&path))] })
        .collect();
    objects.extend(kustomization.config_map_generator.iter().map(|generator| generated(dir, generator)));
    for patch in &kustomization.patches {
        let operations = yaml(&read(&dir.join(&patch.path)));
        let Target { kind, name } = &patch.target;
        let hit: Vec<&mut Value> = objects
            .iter_mut()
            .filter(|object| object["kind"] == **kind && object["metadata"]["name"] == **name)
            .collect();
        assert_eq!(hit.len(), 1, "{kind} {name} of {}", patch.path.display());
        for object in hit {
            *object = patched(object.take(), &operations).unwrap();
        }
    }
    for object in &mut objects {
        if let Some(namespace) = kustomization.namespace.as_ref().filter(|_| object["kind"] != "Namespace") {
            object["metadata"]["namespace"] = json!(namespace);
        }
        for image in &kustomization.images {
            tag(object, image);
        }
    }
    objects
}

fn generated(dir: &Path, generator: &Generator) -> Value {
    let file = |path: &PathBuf| {
        let name = path.file_name().unwrap().to_str().unwrap();
        (name.to_owned(), json!(read(&dir.join(path))))
    };
    let contents: Map<String, Value> = generator.files.iter().map(file).collect();
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generator.name}, "data": contents})
}

/// Names the tag wherever the image is named.
fn tag(value: &mut Value, image: &Image) {
    match value {
        Value::Object(fields) => {
            if fields.get("image").is_some_and(|found| *found == *image.name) {
                fields.insert("image".to_owned(), json!(format!("{}:{}", image.name, image.new_tag)));
            }
            fields.values_mut().for_each(|value| tag(value, image));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| tag(value, image)),
        _ => {}
    }
}

/// The object after these operations; the error names the one that does not fit.
pub(crate) fn patched(mut object: Value, operations: &Value) -> Result<Value, String> {
    for operation in operations.as_array().unwrap() {
        let path = operation["path"].as_str().unwrap();
        let value = operation["value"].clone();
        let refused = || format!("{operation} does not fit");
        match operation["op"].as_str().unwrap() {
            "test" if object.pointer(path) == Some(&value) => {}
            "replace" => *object.pointer_mut(path).ok_or_else(refused)? = value,
            "add" => {
                let (place, name) = path.rsplit_once('/').unwrap();
                match (object.pointer_mut(place).ok_or_else(refused)?, name) {
                    (Value::Array(items), "-") => items.push(value),
                    (Value::Object(fields), name) => drop(fields.insert(name.to_owned(), value)),
                    _ => return Err(refused()),
                }
            }
            _ => return Err(refused()),
        }
    }
    Ok(object)
}
