//! The presets for kustomize, rendered from the chart: deploy/kubernetes/PRESET.
//!
//! `values.yaml` of the folder is what a person writes; the other files are written here, each object as a
//! file and the daemon's configuration as a file of its own, which kustomize makes a `ConfigMap` of. So its
//! name changes with its content, and users replace it by theirs.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::Path};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use super::{
    Chart,
    engine::{HelmEngine, Rendering},
    rendered::{RenderedObject, text_of},
};

/// Names of the folders.
pub(crate) const PRESETS: [&str; 3] = ["observe", "enforce", "restore"];

/// What a person writes.
const VALUES: &str = "values.yaml";

/// Name of the release and of its namespace.
pub(super) const RELEASE: &str = "numa-enforcer";

const NOTE: &str =
    "# Rendered by `cargo xtask chart` from deploy/helm/numa-enforcer and values.yaml: change those.\n";

/// The files of a preset by name, as they are rendered now.
pub(crate) fn rendered(
    engine: &mut HelmEngine,
    chart: &Chart,
    preset: &str,
) -> Result<BTreeMap<String, String>> {
    let path = chart.preset(preset).join(VALUES);
    let values = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let text = engine.render(&Rendering {
        chart: chart.folder(),
        release: RELEASE,
        files: &[&path],
        values: &json!({}),
        kubernetes: super::KUBERNETES,
    })?;
    files_of(&about(&values), &RenderedObject::all(&text)?)
}

/// A preset as one manifest, rendered from a packed chart. Nothing but the pods themselves can tell that the
/// configuration has changed, so they carry its checksum.
pub(crate) fn manifest(
    engine: &mut HelmEngine,
    chart: &Chart,
    packed: &Path,
    preset: &str,
) -> Result<String> {
    let path = chart.preset(preset).join(VALUES);
    let values = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let text = engine.render(&Rendering {
        chart: packed,
        release: RELEASE,
        files: &[&path],
        values: &json!({ "rollOnConfigChange": true }),
        kubernetes: super::KUBERNETES,
    })?;
    let mut manifest = about(&values);
    for object in RenderedObject::all(&text)? {
        let _ = write!(manifest, "---\n{}", object.without_helm());
    }
    Ok(manifest)
}

/// The comment at the head of a file of values.
fn about(values: &str) -> String {
    text_of(values.lines().take_while(|line| line.starts_with('#')))
}

fn files_of(about: &str, objects: &[RenderedObject]) -> Result<BTreeMap<String, String>> {
    let mut files = BTreeMap::new();
    let (mut resources, mut generators) = (String::new(), String::new());
    for object in objects {
        if object.kind == "ConfigMap" {
            let _ = write!(generators, "  - name: {}\n    files:\n", object.name);
            for (name, text) in object.files()? {
                let _ = writeln!(generators, "      - {name}");
                ensure!(files.insert(name.clone(), text).is_none(), "two files {name}");
            }
            continue;
        }
        let name = format!("{}.yaml", object.file_stem());
        let _ = writeln!(resources, "  - {name}");
        let text = format!("{NOTE}{}", object.without_helm());
        ensure!(files.insert(name.clone(), text).is_none(), "two objects of kind {}", object.kind);
    }
    let kustomization = format!(
        "{about}{NOTE}apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: {RELEASE}\n\
         resources:\n{resources}configMapGenerator:\n{generators}"
    );
    files.insert("kustomization.yaml".to_owned(), kustomization);
    Ok(files)
}

/// Writes what has changed, and removes what is rendered no longer; returns the names.
pub(crate) fn write(folder: &Path, rendered: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let changed = differences(folder, rendered)?;
    for name in &changed {
        let path = folder.join(name);
        match rendered.get(name) {
            Some(text) => fs::write(&path, text).with_context(|| format!("write {}", path.display()))?,
            None => fs::remove_file(&path).with_context(|| format!("remove {}", path.display()))?,
        }
    }
    Ok(changed)
}

/// Names of files that differ from what is rendered, are missing, or are too many.
pub(crate) fn differences(folder: &Path, rendered: &BTreeMap<String, String>) -> Result<Vec<String>> {
    let mut there = BTreeMap::new();
    for entry in fs::read_dir(folder).with_context(|| format!("list {}", folder.display()))? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if name != VALUES {
            there
                .insert(name, fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?);
        }
    }
    let mut names: Vec<_> = there.keys().chain(rendered.keys()).cloned().collect();
    names.sort();
    names.dedup();
    names.retain(|name| there.get(name) != rendered.get(name));
    Ok(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object(kind: &str, rest: &str) -> RenderedObject {
        let text = format!("kind: {kind}\nmetadata:\n  name: n\n{rest}");
        RenderedObject { kind: kind.to_owned(), name: "n".to_owned(), text }
    }

    #[test]
    fn a_kustomization_lists_what_is_beside_it() {
        let objects =
            [object("ConfigMap", "data:\n  n.toml: |\n    x = 1\n"), object("DaemonSet", "spec: {}\n")];
        let files = files_of(&about("# Why.\nmode: observe\n# Not this.\n"), &objects).unwrap();
        assert_eq!(files.keys().collect::<Vec<_>>(), ["daemon-set.yaml", "kustomization.yaml", "n.toml"]);
        assert_eq!(files["n.toml"], "x = 1\n");
        let kustomization = &files["kustomization.yaml"];
        assert!(kustomization.starts_with("# Why.\n# Rendered by"), "{kustomization}");
        let end =
            "resources:\n  - daemon-set.yaml\nconfigMapGenerator:\n  - name: n\n    files:\n      - n.toml\n";
        assert!(kustomization.ends_with(end), "{kustomization}");
        assert!(files_of("", &[object("A", ""), object("A", "")]).is_err());
    }

    #[test]
    fn what_differs_is_named_and_then_written() {
        let folder = tempfile::tempdir().unwrap();
        let rendered: BTreeMap<_, _> =
            [("a", "1"), ("b", "2")].map(|(name, text)| (name.to_owned(), text.to_owned())).into();
        for (name, text) in [(VALUES, "mode: x"), ("a", "1"), ("old", "0")] {
            fs::write(folder.path().join(name), text).unwrap();
        }
        assert_eq!(differences(folder.path(), &rendered).unwrap(), ["b", "old"]);
        assert_eq!(write(folder.path(), &rendered).unwrap(), ["b", "old"]);
        assert_eq!(differences(folder.path(), &rendered).unwrap(), [""; 0]);
        assert!(folder.path().join(VALUES).exists() && !folder.path().join("old").exists());
    }
}
