//! The bill of materials: what is linked into the binaries, as `CycloneDX` 1.6 in JSON.
//!
//! Cargo tells which crates are linked, for the daemon and for its eBPF programs, and the lock files have
//! their checksums. Libraries in C are those of Debian's packages, which are named with their versions, and
//! libbpf, which its crate brings. What only builds the binary (build scripts, procedural macros) is not in
//! it, so is not listed.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context, Result};
use serde_json::{Map, Value, json};

use super::{ReleaseBinary, ReleaseDraft, checksums, commit::ReleaseCommit};
use crate::{command, product, progress::ProgressStep, setup, workspace::Workspace};

/// Separates the fields of a line that cargo prints.
const BETWEEN_FIELDS: char = '|';

/// Components by their names and versions.
type Components = BTreeMap<(String, String), Value>;

/// Writes the bill.
pub(super) fn write(draft: &ReleaseDraft<'_>) -> Result<()> {
    let ReleaseDraft { workspace, commit, place, binaries, .. } = draft;
    let step = ProgressStep::begin("write the bill of materials");
    let mut components = Components::new();
    let (root, kernel_side) = (workspace.root().to_owned(), workspace.root().join("enforcer-ebpf"));
    let locked = checksums_of(&root)?;
    for ReleaseBinary { architecture, .. } in binaries {
        let selection = ["--package", "enforcer", "--target", &architecture.triple()];
        components.extend(crates(&tree(workspace, &root, &selection)?, &locked)?);
        for library in setup::linked_libraries(workspace, *architecture)? {
            let key = (library.name.to_owned(), library.package.clone());
            components.insert(key, of_debian(&library));
        }
    }
    components
        .extend(crates(&tree(workspace, &kernel_side, &["--target", "all"])?, &checksums_of(&kernel_side)?)?);
    let components = components.into_values().collect::<Vec<_>>();
    let bill = bill(commit, &commit.time()?, &files(binaries)?, &components);
    let path = place.join(format!("numa-enforcer-{}.cdx.json", commit.version));
    let text = format!("{}\n", serde_json::to_string_pretty(&bill)?);
    fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
    step.done();
    Ok(())
}

/// Lines of `cargo tree`: each crate that is linked, its licence, its repository.
fn tree(workspace: &Workspace, manifest: &Path, selection: &[&str]) -> Result<String> {
    let mut cargo = product::cargo(workspace)?;
    cargo
        .args([
            "tree",
            "--quiet",
            "--locked",
            "--edges",
            "normal,no-proc-macro",
            "--prefix",
            "none",
            "--no-dedupe",
        ])
        .arg(format!("--format={{p}}{BETWEEN_FIELDS}{{l}}{BETWEEN_FIELDS}{{r}}"))
        .arg("--manifest-path")
        .arg(manifest.join("Cargo.toml"))
        .args(selection)
        .env_remove("CARGO_BUILD_TARGET");
    command::quietly(&mut cargo)
}

/// SHA-256 of the crates of a lock file, by name and version; those of the workspace have none.
fn checksums_of(folder: &Path) -> Result<BTreeMap<(String, String), String>> {
    let path = folder.join("Cargo.lock");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let lock: toml::Table = toml::from_str(&text).with_context(|| format!("read {}", path.display()))?;
    let packages =
        lock.get("package").and_then(toml::Value::as_array).context("Cargo.lock lists no package")?;
    let field = |package: &toml::Value, key: &str| package.get(key)?.as_str().map(str::to_owned);
    let locked = packages.iter().filter_map(|package| {
        let key = (field(package, "name")?, field(package, "version")?);
        Some((key, field(package, "checksum")?))
    });
    Ok(locked.collect())
}

/// The components of lines of `cargo tree`, with libbpf beside its crate.
fn crates(tree: &str, locked: &BTreeMap<(String, String), String>) -> Result<Components> {
    let mut components = Components::new();
    for line in tree.lines().filter(|line| !line.is_empty()) {
        let mut fields = line.split(BETWEEN_FIELDS);
        let mut words = fields.next().unwrap_or_default().split(' ');
        let (name, version) = (words.next(), words.next().and_then(|version| version.strip_prefix('v')));
        let (Some(name), Some(version)) = (name, version) else {
            anyhow::bail!("cargo tree prints a line that is no crate: {line}");
        };
        let (licence, repository) = (fields.next().unwrap_or_default(), fields.next().unwrap_or_default());
        let key = (name.to_owned(), version.to_owned());
        let purl = format!("pkg:cargo/{name}@{}", version.replace('+', "%2B"));
        let mut component = library(name, version, &licence.replace('/', " OR "), &purl);
        if let Some(checksum) = locked.get(&key) {
            component.insert("hashes".to_owned(), sha256(checksum));
        }
        if !repository.is_empty() {
            let reference = json!([{ "type": "vcs", "url": repository }]);
            component.insert("externalReferences".to_owned(), reference);
        }
        if let ("libbpf-sys", Some((_, libbpf))) = (name, version.split_once('+')) {
            let purl = format!("pkg:github/libbpf/libbpf@{libbpf}");
            let its = library("libbpf", libbpf, "LGPL-2.1-only OR BSD-2-Clause", &purl);
            components.insert(("libbpf".to_owned(), libbpf.to_owned()), its.into());
        }
        components.insert(key, component.into());
    }
    Ok(components)
}

fn of_debian(library_of: &setup::LinkedLibrary) -> Value {
    let setup::LinkedLibrary { name, licence, package, version, architecture } = library_of;
    let Some(version) = version else {
        return json!({ "type": "library", "bom-ref": format!("{name}-{architecture}"), "name": name });
    };
    let escaped = version.replace('+', "%2B").replace(':', "%3A");
    let purl = format!("pkg:deb/debian/{package}@{escaped}?arch={architecture}");
    library(name, version, licence, &purl).into()
}

/// A component; `bom-ref` is unique, as its `purl`.
fn library(name: &str, version: &str, licence: &str, purl: &str) -> Map<String, Value> {
    let component = json!({
        "type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl,
        "licenses": [{ "expression": licence }],
    });
    component.as_object().cloned().unwrap_or_default()
}

/// The binaries, as files of the release.
fn files(binaries: &[ReleaseBinary]) -> Result<Vec<Value>> {
    let file = |binary: &ReleaseBinary| {
        let name = binary.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let hashes = sha256(&checksums::of(&binary.path)?);
        Ok(json!({ "type": "file", "bom-ref": name, "name": name, "hashes": hashes }))
    };
    binaries.iter().map(file).collect()
}

fn sha256(digits: &str) -> Value {
    json!([{ "alg": "SHA-256", "content": digits }])
}

fn bill(commit: &ReleaseCommit, time: &str, files: &[Value], components: &[Value]) -> Value {
    json!({
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {
            "timestamp": time,
            "tools": { "components": [{ "type": "application", "name": "cargo xtask dist" }] },
            "component": {
                "type": "application", "bom-ref": "numa-enforcer", "name": "numa-enforcer",
                "version": commit.version, "licenses": [{ "expression": "Apache-2.0 OR MIT" }],
                "purl": format!("pkg:github/numa-enforcer/numa-enforcer@{}", commit.hash),
                "components": files,
            },
        },
        "components": components,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_crate_has_its_licence_and_the_checksum_of_the_lock_file() {
        let folder = tempfile::tempdir().unwrap();
        let lock = "[[package]]\nname = \"old\"\nversion = \"1.0.0\"\nchecksum = \"c0ffee\"\n\
                    [[package]]\nname = \"enforcer\"\nversion = \"0.1.0\"\n";
        fs::write(folder.path().join("Cargo.lock"), lock).unwrap();
        let locked = checksums_of(folder.path()).unwrap();
        let tree =
            "enforcer v0.1.0 (/a place/enforcer)|Apache-2.0 OR MIT|\nold v1.0.0|MIT/Apache-2.0|https://x\n\n";
        let components = crates(tree, &locked).unwrap();
        let of = |name: &str, version: &str| components[&(name.to_owned(), version.to_owned())].clone();
        assert_eq!(components.len(), 2);
        assert_eq!(of("enforcer", "0.1.0").get("hashes"), None);
        let old = of("old", "1.0.0");
        assert_eq!(old["hashes"], json!([{ "alg": "SHA-256", "content": "c0ffee" }]));
        assert_eq!(old["licenses"], json!([{ "expression": "MIT OR Apache-2.0" }]));
        assert_eq!(old["purl"], "pkg:cargo/old@1.0.0");
        assert!(crates("warning: nothing\n", &locked).is_err());
    }

    #[test]
    fn libbpf_is_listed_beside_the_crate_that_brings_it() {
        let tree = "libbpf-sys v1.7.0+v1.7.0|BSD-2-Clause|https://x\n";
        let components = crates(tree, &BTreeMap::new()).unwrap();
        let purls: Vec<_> = components.values().map(|one| one["purl"].as_str().unwrap()).collect();
        assert_eq!(purls, ["pkg:github/libbpf/libbpf@v1.7.0", "pkg:cargo/libbpf-sys@1.7.0%2Bv1.7.0"]);
    }

    #[test]
    fn a_library_of_debian_is_its_package() {
        let linked = setup::LinkedLibrary {
            name: "zlib",
            licence: "Zlib",
            package: "zlib1g-dev".to_owned(),
            version: Some("1:1.2.13+x".to_owned()),
            architecture: "amd64",
        };
        assert_eq!(of_debian(&linked)["purl"], "pkg:deb/debian/zlib1g-dev@1%3A1.2.13%2Bx?arch=amd64");
        let unknown = setup::LinkedLibrary { version: None, ..linked };
        assert_eq!(of_debian(&unknown)["bom-ref"], "zlib-amd64");
    }
}
