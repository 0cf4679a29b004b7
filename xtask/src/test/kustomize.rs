//! A preset by `kubectl apply --kustomize` and its `install-PRESET.yaml` are the same objects.
//!
//! Both pass kustomize, which orders objects and keys. Two things differ on purpose and are taken away: the
//! pods of a manifest carry the checksum of the configuration, where kustomize puts one into the name of the
//! `ConfigMap`, and kustomize makes that without labels.

use std::{fs, path::Path};

use anyhow::{Context, Result, ensure};

use crate::{
    chart::{self, Chart, HelmEngine},
    setup,
    workspace::Workspace,
};

/// Line of the pods of a manifest.
const CHECKSUM: &str = "checksum/config: ";

/// The preset and the manifest have the same objects.
pub(super) fn preset_is_the_manifest(
    workspace: &Workspace,
    engine: &mut HelmEngine,
    chart: &Chart,
    preset: &str,
) -> Result<()> {
    let kustomize = setup::kustomize(workspace)?;
    let scratch = workspace.scratch()?;
    let [of_preset, of_manifest] = ["preset", "manifest"].map(|name| scratch.path().join(name));
    for folder in [&of_preset, &of_manifest] {
        fs::create_dir(folder).with_context(|| format!("create {}", folder.display()))?;
    }
    for (name, mut text) in chart::rendered_preset(engine, chart, preset)? {
        if name == "kustomization.yaml" {
            text.push_str("generatorOptions:\n  disableNameSuffixHash: true\n");
        }
        write(&of_preset, &name, &text)?;
    }
    let manifest = chart::manifest(engine, chart, chart.folder(), preset)?;
    let lines: Vec<_> = manifest.lines().filter(|line| !line.trim_start().starts_with(CHECKSUM)).collect();
    ensure!(lines.len() + 1 == manifest.lines().count(), "not one line has {CHECKSUM}");
    write(&of_manifest, "install.yaml", &lines.join("\n"))?;
    let kustomization = "namespace: numa-enforcer\nresources: [install.yaml]\n";
    write(&of_manifest, "kustomization.yaml", kustomization)?;
    let [preset, manifest] =
        [objects(&kustomize.build(&of_preset)?), objects(&kustomize.build(&of_manifest)?)];
    ensure!(preset.len() > 3, "kustomize built {} objects", preset.len());
    for (one, other) in preset.iter().zip(&manifest) {
        ensure!(one == other, "kustomize builds\n{one}\nof the preset, and of the manifest\n{other}");
    }
    ensure!(preset.len() == manifest.len(), "{} objects are not {}", preset.len(), manifest.len());
    Ok(())
}

fn write(folder: &Path, name: &str, text: &str) -> Result<()> {
    let path = folder.join(name);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))
}

/// The objects of a manifest of kustomize in one order, the `ConfigMap` without labels.
fn objects(manifest: &str) -> Vec<String> {
    let mut objects: Vec<_> = manifest.split("\n---\n").map(without_labels_of_map).collect();
    objects.sort_unstable();
    objects
}

fn without_labels_of_map(object: &str) -> String {
    let is_map = object.lines().any(|line| line == "kind: ConfigMap");
    let (mut kept, mut is_label) = (Vec::new(), false);
    for line in object.trim_end().lines() {
        is_label = is_map && (line == "  labels:" || (is_label && line.starts_with("    ")));
        kept.extend((!is_label).then_some(line));
    }
    kept.join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_and_labels_of_the_map_make_no_difference_and_everything_else_does() {
        let map = "data:\n  a: b\nkind: ConfigMap\nmetadata:\n  labels:\n    c: d\n  name: n";
        let bare = "data:\n  a: b\nkind: ConfigMap\nmetadata:\n  name: n";
        let pod = "kind: Pod\nmetadata:\n  labels:\n    c: d";
        assert_eq!(objects(&format!("{map}\n---\n{pod}\n")), objects(&format!("{pod}\n---\n{bare}\n")));
        assert_eq!(objects(&format!("{bare}\n---\n{pod}\n")), [bare, pod]);
        assert_ne!(objects(&bare.replace('b', "x")), objects(bare));
    }
}
