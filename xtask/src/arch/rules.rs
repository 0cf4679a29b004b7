//! The rules themselves, as tables where they are tables.

use anyhow::{Context as _, Result};

use super::{SourceFile, Violation, source::Code};

/// The pure crates, and what each may depend on.
pub(crate) const PURE: [(&str, &[&str]); 3] = [
    ("enforcer/placement", &["numa-topology", "schemars", "serde", "thiserror"]),
    (
        "enforcer/core",
        &[
            "base64",
            "flate2",
            "indexmap",
            "numa-placement",
            "numa-topology",
            "schemars",
            "serde",
            "serde_json",
            "strum",
            "thiserror",
            "twox-hash",
        ],
    ),
    ("enforcer/topology", &["schemars", "serde", "smallvec", "thiserror"]),
];

/// The stages that are crates: none depends on another one of them.
const STAGES: [&str; 5] = ["act", "cluster", "observe", "report", "runtime"];

/// The crates below the stages, which depend on none of them.
const BELOW_STAGES: [&str; 2] = ["host", "kernel"];

/// The reader of a pure crate, behind a feature of it.
const PURE_BUT: &str = "enforcer/topology/src/sysfs/";

/// What a pure crate may not say. The addresses of `std::net` are values.
const IMPURE: [&str; 12] = [
    "std::fs",
    "TcpListener",
    "TcpStream",
    "UdpSocket",
    "ToSocketAddrs",
    "std::env",
    "std::process",
    "std::thread",
    "Instant::now",
    "SystemTime",
    "std::os",
    "println!",
];

/// A crate, and the only places that may name it.
const OWNERS: [(&str, &[&str]); 18] = [
    ("aya", &["enforcer/kernel/", "enforcer/tests/kernel_side/", "common/src/"]),
    ("aya_log", &["enforcer/kernel/"]),
    ("aya_obj", &["enforcer/kernel/"]),
    ("libbpf_rs", &["enforcer/kernel/"]),
    ("cgroups_rs", &["enforcer/act/"]),
    ("procfs", &["enforcer/observe/"]),
    ("kube", &["enforcer/cluster/", "tests/api/"]),
    ("maud", &["enforcer/report/"]),
    ("prometheus", &["enforcer/report/"]),
    ("axum", &["enforcer/src/serve", "enforcer/src/scheduler/"]),
    ("ratatui", &["enforcer/report/", "enforcer/src/cli/top/"]),
    (
        "flate2",
        &[
            "enforcer/src/record/",
            "enforcer/core/src/cluster/own_engine/",
            "enforcer/src/schemas.rs",
            "enforcer/build.rs",
            "enforcer/kernel/build/programs.rs",
            "enforcer/kernel/src/bpf/object.rs",
        ],
    ),
    (
        "serde_saphyr",
        &[
            "enforcer/runtime/src/kubelet/settings/",
            "enforcer/runtime/src/manifest/",
            "enforcer/src/cli/publish.rs",
            "enforcer/src/cli/scheduler.rs",
            "enforcer/tests/",
            "enforcer/cluster/tests/",
            "tests/src/preset.rs",
        ],
    ),
    ("rustls", &["enforcer/cluster/", "tests/api/"]),
    ("tokio_rustls", &["enforcer/cluster/", "tests/api/"]),
    ("tonic", &["enforcer/runtime/", "tests/src/grpc.rs"]),
    (
        "prost",
        &[
            "enforcer/runtime/",
            "tests/src/cri/",
            "tests/src/dra.rs",
            "tests/src/grpc.rs",
            "tests/src/unsolicited.rs",
        ],
    ),
    ("libc", &["enforcer/kernel/", "tests/src/refuser.rs", "enforcer/tests/kernel_side/"]),
];

/// Files that may say `unsafe`; the kernel side cannot do without.
const UNSAFE: [&str; 5] = [
    "enforcer/kernel/",
    "enforcer-ebpf/",
    "common/src/",
    "enforcer/tests/kernel_side/",
    "enforcer/tests/widening_allocations.rs",
];

/// Words that say nothing about a file's subject.
const EMPTY_WORDS: [&str; 8] = ["manager", "handler", "util", "utils", "helper", "helpers", "data", "info"];

/// Lines in one file, tests included.
const LONGEST_FILE: usize = 800;

/// Characters in a line of comments, as in one of code (`rustfmt.toml`): rustfmt holds no comment to that.
const WIDEST_COMMENT: usize = 110;

/// Every violation in `files`, in their order.
pub(crate) fn check(files: &[SourceFile]) -> Vec<Violation> {
    files
        .iter()
        // The rules name what they forbid.
        .filter(|file| !file.path.starts_with("xtask/src/arch/"))
        .flat_map(|file| {
            [owners(file), purity(file), unsafety(file), shape(file), width(file)].into_iter().flatten()
        })
        .collect()
}

fn violation(rule: &'static str, file: &SourceFile, line: usize, found: &str) -> Violation {
    Violation { rule, path: file.path.clone(), line, found: found.to_owned() }
}

/// Is a path this one, or of something in it?
fn is_within(path: &str, module: &str) -> bool {
    path.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

fn owners(file: &SourceFile) -> Vec<Violation> {
    let mut found = Vec::new();
    let Code { imports, rest } = Code::of(file.code());
    for (name, places) in OWNERS {
        if places.iter().any(|place| file.path.starts_with(place)) || file.path.starts_with("enforcer-ebpf/")
        {
            continue;
        }
        let imported = imports.iter().filter(|(_, path)| is_within(path, name));
        let inline = rest.iter().filter(|(_, line)| names_crate(line, name));
        let named = imported.map(|(number, path)| (*number, path.as_str())).chain(inline.copied());
        found.extend(named.map(|(number, text)| violation("one-owner-per-dependency", file, number, text)));
    }
    found
}

/// Does the line have `name::` as the first segment of a path?
fn names_crate(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = &line[at + name.len()..];
        let starts = before.is_none_or(|c| !c.is_alphanumeric() && c != '_' && c != ':' && c != '"');
        starts && after.starts_with("::")
    })
}

fn purity(file: &SourceFile) -> Vec<Violation> {
    let is_pure = PURE.iter().any(|(folder, _)| file.path.starts_with(&format!("{folder}/src/")));
    if !is_pure || file.path.starts_with(PURE_BUT) {
        return Vec::new();
    }
    let Code { imports, rest } = Code::of(file.product_code());
    let imported = imports.iter().map(|(number, path)| (*number, path.as_str()));
    imported
        .chain(rest.iter().copied())
        .filter(|(_, text)| IMPURE.iter().any(|word| text.contains(word)))
        .map(|(number, text)| violation("the-core-is-pure", file, number, text))
        .collect()
}

fn unsafety(file: &SourceFile) -> Vec<Violation> {
    if UNSAFE.iter().any(|place| file.path.starts_with(place)) {
        return Vec::new();
    }
    file.code()
        .filter(|(_, line)| {
            line.contains("unsafe {") || line.contains("unsafe fn") || line.contains("unsafe impl")
        })
        .map(|(number, line)| violation("unsafe-has-its-place", file, number, line))
        .collect()
}

fn shape(file: &SourceFile) -> Vec<Violation> {
    let mut found = Vec::new();
    let lines = file.text.lines().count();
    if lines > LONGEST_FILE {
        found.push(violation("one-subject-per-file", file, 0, &format!("{lines} lines")));
    }
    // The tests of a module have its header.
    let tests = file.path.ends_with("/tests.rs");
    if !tests && !file.text.starts_with("//!") && !file.text.starts_with("#!") {
        found.push(violation("a-module-says-why-it-exists", file, 1, file.text.lines().next().unwrap_or("")));
    }
    let stem = file.path.trim_end_matches(".rs");
    if stem.split(['/', '_']).any(|word| EMPTY_WORDS.contains(&word)) {
        found.push(violation("names-say-something", file, 0, &file.path));
    }
    found
}

/// Comments that are wider than code may be. A table has its cells in one line.
fn width(file: &SourceFile) -> Vec<Violation> {
    let wide = |line: &&str| {
        let comment = line.trim_start().strip_prefix("//").map(|text| text.trim_start_matches(['/', '!']));
        let is_prose = comment.is_some_and(|text| !text.trim_start().starts_with('|'));
        is_prose && line.chars().count() > WIDEST_COMMENT
    };
    let lines = file.text.lines().zip(1..).filter(|(line, _)| wide(line));
    lines.map(|(line, number)| violation("comments-fit-the-width", file, number, line.trim())).collect()
}

/// Folders of the crates that [`stages`] checks.
pub(crate) fn stage_folders() -> impl Iterator<Item = String> {
    STAGES.iter().chain(&BELOW_STAGES).map(|name| format!("enforcer/{name}"))
}

/// Dependencies of the crate in `folder` on a stage, in its manifest, tests included.
pub(crate) fn stages(folder: &str, manifest: &str) -> Result<Vec<Violation>> {
    let own = folder.strip_prefix("enforcer/");
    let forbidden = |name: &str| {
        let stage = name.strip_prefix("enforcer-").filter(|stage| STAGES.contains(stage));
        stage.is_some() && stage != own
    };
    let path = format!("{folder}/Cargo.toml");
    let mut names = keys(&path, "dependencies", manifest)?;
    names.extend(keys(&path, "dev-dependencies", manifest)?);
    names.extend(keys(&path, "build-dependencies", manifest)?);
    names.retain(|name| forbidden(name));
    Ok(names.iter().map(|name| dependency("stages-are-strangers", &path, name)).collect())
}

/// Checks the manifest of a pure crate against what the crate may depend on.
pub(crate) fn dependencies(path: &str, allowed: &[&str], manifest: &str) -> Result<Vec<Violation>> {
    let mut names = keys(path, "dependencies", manifest)?;
    names.retain(|name| !allowed.contains(&name.as_str()));
    Ok(names.iter().map(|name| dependency("the-core-is-pure", path, name)).collect())
}

/// Names of what a table of a manifest lists.
fn keys(path: &str, table: &str, manifest: &str) -> Result<Vec<String>> {
    let manifest: toml::Table = manifest.parse().with_context(|| format!("reading {path}"))?;
    let listed = manifest.get(table).and_then(toml::Value::as_table);
    Ok(listed.into_iter().flat_map(toml::Table::keys).cloned().collect())
}

fn dependency(rule: &'static str, path: &str, name: &str) -> Violation {
    Violation { rule, path: path.to_owned(), line: 0, found: format!("depends on {name}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(path: &str, text: &str) -> Vec<&'static str> {
        let file = SourceFile { path: path.into(), text: format!("//! Why.\n{text}") };
        check(&[file]).into_iter().map(|violation| violation.rule).collect()
    }

    #[test]
    fn each_rule_finds_its_violation() {
        for (path, text, rule) in [
            ("enforcer/src/engine.rs", "use prometheus::Registry;", "one-owner-per-dependency"),
            ("enforcer/src/engine.rs", "use prometheus;", "one-owner-per-dependency"),
            (
                "enforcer/src/engine.rs",
                "use {\n    axum::Router,\n    std::io,\n};",
                "one-owner-per-dependency",
            ),
            ("enforcer/core/src/model.rs", "use std::{fs, path::Path};", "the-core-is-pure"),
            (
                "enforcer/core/src/model.rs",
                "use std::{\n    collections::BTreeMap,\n    time::{Duration, SystemTime},\n};",
                "the-core-is-pure",
            ),
            ("enforcer/topology/src/machine.rs", "use std::fs;", "the-core-is-pure"),
            ("enforcer/core/src/model.rs", "use std::net::{SocketAddr, TcpStream};", "the-core-is-pure"),
            ("enforcer/host/src/x.rs", "let _ = libc::getpid();", "one-owner-per-dependency"),
            ("enforcer/core/src/model.rs", "let now = Instant::now();", "the-core-is-pure"),
            ("enforcer/src/engine.rs", "unsafe { f() }", "unsafe-has-its-place"),
            ("enforcer/src/node_manager.rs", "", "names-say-something"),
        ] {
            assert_eq!(broken(path, text), [rule], "{path}: {text}");
        }
        let long = "\n".repeat(LONGEST_FILE + 1);
        assert_eq!(broken("enforcer/src/engine.rs", &long), ["one-subject-per-file"]);
        let wide = format!("    /// {}", "a ".repeat(WIDEST_COMMENT / 2));
        assert_eq!(broken("enforcer/src/engine.rs", &wide), ["comments-fit-the-width"]);
        let bare = SourceFile { path: "xtask/src/x.rs".into(), text: "fn f() {}".into() };
        assert_eq!(check(&[bare])[0].rule, "a-module-says-why-it-exists");
    }

    #[test]
    fn what_is_allowed_is_not_reported() {
        for (path, text) in [
            ("enforcer/topology/src/sysfs/files.rs", "use std::fs;"),
            ("enforcer/report/src/metrics.rs", "use prometheus::Registry;"),
            ("enforcer/report/src/metrics.rs", "let x = my_prometheus::Registry;"),
            ("enforcer/kernel/src/bpf/attach.rs", "use aya::Ebpf;"),
            ("enforcer/src/engine.rs", "// prometheus::Registry is elsewhere"),
            ("enforcer/core/src/model.rs", "#[cfg(test)]\nmod tests { use std::fs; }"),
            ("enforcer/src/engine.rs", &format!("//! | {} |", "a ".repeat(WIDEST_COMMENT))),
            ("enforcer/core/src/model.rs", "use std::{net::SocketAddr, time::Duration};"),
            ("enforcer/kernel/src/linux.rs", "unsafe { libc::getpid() }"),
        ] {
            assert_eq!(broken(path, text), Vec::<&str>::new(), "{path}: {text}");
        }
    }

    #[test]
    fn a_foreign_dependency_of_a_pure_crate_is_found() {
        let found = dependencies(
            "enforcer/core/Cargo.toml",
            &["serde"],
            "[dependencies]\nserde = \"1\"\ntokio = \"1\"\n",
        )
        .unwrap();
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].found, "depends on tokio");
    }

    #[test]
    fn a_dependency_on_another_stage_is_found() {
        let manifest = "[dependencies]\nenforcer-core = \"1\"\nenforcer-host = \"1\"\nenforcer-observe = \"1\"\n\
                        [dev-dependencies]\nenforcer-act = \"1\"\n";
        for (folder, expected) in [
            ("enforcer/report", vec!["depends on enforcer-observe", "depends on enforcer-act"]),
            ("enforcer/act", vec!["depends on enforcer-observe"]),
            ("enforcer/kernel", vec!["depends on enforcer-observe", "depends on enforcer-act"]),
        ] {
            let found = stages(folder, manifest).unwrap();
            assert!(found.iter().all(|one| one.rule == "stages-are-strangers"), "{folder}");
            let found: Vec<_> = found.iter().map(|one| one.found.as_str()).collect();
            assert_eq!(found, expected, "{folder}");
        }
    }

    #[test]
    fn places_outside_the_list_may_not_say_unsafe_or_libc() {
        assert_eq!(broken("tests/src/x.rs", "unsafe { f() }"), ["unsafe-has-its-place"]);
        assert_eq!(broken("tests/src/x.rs", "use libc::pid_t;"), ["one-owner-per-dependency"]);
    }
}
