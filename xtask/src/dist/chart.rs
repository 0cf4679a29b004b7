//! What is installed in a cluster: the Helm chart as one file, and each preset as one manifest, rendered from
//! that file.
//!
//! Both have the version of the release, as `helm package --version --app-version` gives it, so that the
//! image without a tag is the one beside them. Helm's own packing writes the time of day into the file.

use std::{
    fmt::Write as _,
    fs,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, Result, ensure};

use super::{ReleaseDraft, archive, commit::ReleaseCommit};
use crate::{
    chart::{self, Chart, PRESETS},
    command,
    progress::ProgressStep,
};

/// Folder in the file, which Helm takes for the name of the chart.
const FOLDER: &str = "numa-enforcer";

/// Keys of `Chart.yaml` that are the version.
const VERSIONS: [&str; 2] = ["version: ", "appVersion: "];

/// Writes chart and manifests.
pub(super) fn write(draft: &ReleaseDraft<'_>) -> Result<()> {
    let ReleaseDraft { workspace, commit, place, .. } = draft;
    let chart = Chart::of(workspace);
    let (mut engine, scratch) = chart::engine(workspace)?;
    let step = ProgressStep::begin("pack the chart and render the presets");
    let file = pack(chart.folder(), scratch.path(), commit, place)?;
    engine.lint(&file)?;
    for preset in PRESETS {
        let manifest = chart::manifest(&mut engine, &chart, &file, preset)?;
        let path = place.join(format!("install-{preset}.yaml"));
        fs::write(&path, manifest).with_context(|| format!("write {}", path.display()))?;
    }
    step.done();
    Ok(())
}

/// Packs the chart; returns the file.
fn pack(chart: &Path, scratch: &Path, commit: &ReleaseCommit, place: &Path) -> Result<PathBuf> {
    let copy = scratch.join(FOLDER);
    // Some files of the chart are links to others of `deploy`; Helm packs what they lead to.
    command::quietly(Command::new("cp").args(["--recursive", "--dereference"]).arg(chart).arg(&copy))?;
    let ignored = fs::read_to_string(copy.join(".helmignore")).context("read .helmignore")?;
    for folder in ignored.lines().filter(|line| line.ends_with('/')) {
        let path = copy.join(folder);
        fs::remove_dir_all(&path).with_context(|| format!("remove {}", path.display()))?;
    }
    let manifest = copy.join("Chart.yaml");
    let text = fs::read_to_string(&manifest).with_context(|| format!("read {}", manifest.display()))?;
    let text = with_version(&text, &commit.version)?;
    fs::write(&manifest, text).with_context(|| format!("write {}", manifest.display()))?;
    let unpacked = scratch.join("chart.tar");
    archive::tar(scratch, &[FOLDER], commit, &unpacked)?;
    let file = place.join(format!("{FOLDER}-{}.tgz", commit.version));
    let packed = archive::gzip(&unpacked)?;
    fs::copy(&packed, &file).with_context(|| format!("write {}", file.display()))?;
    Ok(file)
}

/// `Chart.yaml` with another version of chart and program.
fn with_version(text: &str, version: &str) -> Result<String> {
    let (mut changed, mut keys) = (String::new(), 0);
    for line in text.lines() {
        if let Some(key) = VERSIONS.iter().find(|key| line.starts_with(**key)) {
            let _ = write!(changed, "{key}\"{version}\"");
            keys += 1;
        } else {
            changed.push_str(line);
        }
        changed.push('\n');
    }
    ensure!(keys == VERSIONS.len(), "Chart.yaml has {keys} of version and appVersion");
    Ok(changed)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{dist::commit::tests::commit, workspace::Workspace};

    #[test]
    fn both_versions_are_those_of_the_release() {
        let text = "apiVersion: v2\nname: x\nversion: 0.2.0\nappVersion: \"0.2.0\"\n";
        let expected = "apiVersion: v2\nname: x\nversion: \"1.2.3\"\nappVersion: \"1.2.3\"\n";
        assert_eq!(with_version(text, "1.2.3").unwrap(), expected);
        assert!(with_version("apiVersion: v2\nversion: 1.0.0\n", "1.2.3").is_err());
    }

    #[test]
    fn the_packed_chart_has_what_helm_would_pack() {
        let workspace = Workspace::find().unwrap();
        let [one, other] = std::array::from_fn(|_| {
            let (scratch, place) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
            let file = pack(Chart::of(&workspace).folder(), scratch.path(), &commit(), place.path()).unwrap();
            assert_eq!(file.file_name().unwrap(), "numa-enforcer-1.2.3.tgz");
            let list = command::quietly(Command::new("tar").arg("-tvzf").arg(&file)).unwrap();
            for name in ["Chart.yaml", "values.schema.json", "files/alerts.yml", "files/dashboards/node.json"]
            {
                assert!(list.lines().any(|line| line.ends_with(&format!(" numa-enforcer/{name}"))), "{list}");
            }
            assert!(!list.contains("/ci/") && !list.contains(" -> "), "{list}");
            fs::read(file).unwrap()
        });
        assert!(one == other, "the same chart is packed differently");
    }
}
