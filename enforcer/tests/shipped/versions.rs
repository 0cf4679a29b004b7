//! The version of the workspace wherever it is written down.

use std::fs;

use super::book::{pages, root};

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn read(path: &str) -> String {
    fs::read_to_string(root().join(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// Versions in names of files, images and charts: `numa-enforcer-1.2.3.tgz`, `numa-enforcer:1.2.3`.
fn named_versions(text: &str) -> Vec<&str> {
    let after_names = text.split("numa-enforcer").skip(1);
    let versions = after_names.filter_map(|rest| {
        let rest = rest.strip_prefix(['-', '_', ':'])?;
        let end = rest.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(rest.len());
        let version = rest[..end].trim_end_matches('.');
        (version.split('.').count() == 3).then_some(version)
    });
    versions.collect()
}

#[test]
fn a_version_in_the_name_of_a_file_or_image_is_found() {
    let text = "`numa-enforcer_1.2.3-1_amd64.deb`, numa-enforcer:1.2.4. numa-enforcer-1.2.5-oci.tar, numa-enforcer-run.1";
    assert_eq!(named_versions(text), ["1.2.3", "1.2.4", "1.2.5"]);
}

#[test]
fn manifests_that_cannot_inherit_the_version_have_the_same() {
    let workspace: toml::Table = toml::from_str(&read("Cargo.toml")).unwrap();
    let workspace = workspace["workspace"].as_table().unwrap();
    assert_eq!(workspace["package"]["version"].as_str(), Some(VERSION));
    for (name, dependency) in workspace["dependencies"].as_table().unwrap() {
        if let (Some(_), Some(version)) = (dependency.get("path"), dependency.get("version")) {
            assert_eq!(version.as_str(), Some(VERSION), "{name}");
        }
    }
    let programs: toml::Table = toml::from_str(&read("enforcer-ebpf/Cargo.toml")).unwrap();
    assert_eq!(programs["workspace"]["package"]["version"].as_str(), Some(VERSION));
}

#[test]
fn the_chart_and_its_presets_have_the_version_of_the_program() {
    let chart = read("deploy/helm/numa-enforcer/Chart.yaml");
    for line in [format!("version: {VERSION}"), format!("appVersion: \"{VERSION}\"")] {
        assert!(chart.lines().any(|one| one == line), "Chart.yaml lacks {line}");
    }
    for preset in ["observe", "enforce", "restore"] {
        let versions = read(&format!("deploy/kubernetes/{preset}/daemon-set.yaml"));
        let versions = named_versions(&versions);
        assert!(versions.len() > 1 && versions.iter().all(|one| *one == VERSION), "{preset}: {versions:?}");
    }
}

#[test]
fn files_and_images_that_pages_name_have_the_version_of_the_program() {
    let mut found = 0;
    for (path, text) in pages() {
        for version in named_versions(&text) {
            assert_eq!(version, VERSION, "{}", path.display());
            found += 1;
        }
    }
    assert!(found >= 5, "{found} versions are in the pages");
}

#[test]
fn the_changelog_has_a_section_for_the_version() {
    let heading = format!("## [{VERSION}] - ");
    let changelog = read("CHANGELOG.md");
    let date = changelog.lines().find_map(|line| line.strip_prefix(&heading)).expect(&heading);
    let digits = date.split('-').map(str::len).collect::<Vec<_>>();
    assert_eq!(digits, [4, 2, 2], "{date}");
}
