//! CPUs and memory nodes in the files of systemd's units.
//!
//! A unit with `AllowedCPUs=` or `AllowedMemoryNodes=` has a cpuset that systemd writes, at every start and at every
//! daemon-reload. The files tell that without asking anybody; later ones win, and an empty value takes earlier ones
//! back (systemd.unit(5), systemd.resource-control(5)).
//!
//! `/run/systemd/system.control` is left out: what is set there at run time may be our own.

use std::{collections::BTreeMap, path::Path};

use enforcer_core::owner::UnitSetting;
use rustix::fs::FileType;

use crate::host::{HostRoot, read_dir, read_text_within};

/// Where files are, those that win last.
const DIRS: [&str; 6] = [
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/system",
    "/run/systemd/transient",
    "/etc/systemd/system",
    "/etc/systemd/system.control",
];

/// What systemd turns into a cpuset.
const KEYS: [&str; 2] = ["AllowedCPUs", "AllowedMemoryNodes"];

/// Kinds of units that have cgroups.
const KINDS: [&str; 6] = [".service", ".slice", ".scope", ".socket", ".mount", ".swap"];

/// Longest file that is read, and most of them.
const LONGEST: u64 = 64 << 10;
const MOST: usize = 10_000;

/// Units with such a setting, by name. A file that cannot be read sets nothing.
pub fn read_unit_files(host: &HostRoot) -> BTreeMap<String, UnitSetting> {
    // A captured machine has none, and those of this one say nothing about it.
    if host.captured { BTreeMap::new() } else { read(DIRS.iter().map(Path::new)) }
}

fn read<'a>(dirs: impl Iterator<Item = &'a Path>) -> BTreeMap<String, UnitSetting> {
    let mut settings = BTreeMap::<(String, &'static str), UnitSetting>::new();
    let mut left = MOST;
    for dir in dirs {
        let mut entries = read_dir(dir).unwrap_or_default();
        // A unit before its drop-ins: `a.service` before `a.service.d`.
        entries.sort_by(|(a, _), (b, _)| a.cmp(b));
        for (name, kind) in entries {
            let Some(name) = name.to_str() else { continue };
            let path = dir.join(name);
            match name.strip_suffix(".d") {
                Some(unit) if is_unit(unit) && kind == FileType::Directory => {
                    let mut files = read_dir(&path).unwrap_or_default();
                    files.sort_by(|(a, _), (b, _)| a.cmp(b));
                    for (file, _) in
                        files.iter().filter(|(file, _)| file.as_encoded_bytes().ends_with(b".conf"))
                    {
                        add(&mut settings, unit, &path.join(file), &mut left);
                    }
                }
                None if is_unit(name) && kind != FileType::Directory => {
                    add(&mut settings, name, &path, &mut left);
                }
                _ => {}
            }
        }
    }
    // CPUs before memory nodes, where there are both.
    settings.into_iter().rev().map(|((unit, _), setting)| (unit, setting)).collect()
}

fn is_unit(name: &str) -> bool {
    KINDS.iter().any(|kind| name.ends_with(kind))
}

fn add(
    settings: &mut BTreeMap<(String, &'static str), UnitSetting>,
    unit: &str,
    path: &Path,
    left: &mut usize,
) {
    let Some(rest) = left.checked_sub(1) else { return };
    *left = rest;
    let Ok(text) = read_text_within(path, LONGEST) else { return };
    for line in text.lines().map(str::trim) {
        let Some((key, value)) = line.split_once('=') else { continue };
        let Some(key) = KEYS.into_iter().find(|known| *known == key.trim()) else { continue };
        let slot = (unit.to_owned(), key);
        if value.trim().is_empty() {
            settings.remove(&slot);
        } else {
            let line: String = line.chars().take(200).collect();
            settings.insert(slot, UnitSetting { file: path.display().to_string(), line });
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn the_last_word_counts_and_an_empty_one_takes_back() {
        let root = tempfile::tempdir().unwrap();
        let (lib, etc) = (root.path().join("lib"), root.path().join("etc"));
        let write = |path: &str, text: &str| {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        };
        write("lib/a.service", "[Service]\nAllowedCPUs=0-3\n");
        write("lib/b.service", "[Service]\nAllowedCPUs = 0-3\nAllowedMemoryNodes=0\n# AllowedCPUs=9\n");
        write("lib/c.service", "[Service]\nCPUAffinity=0\nExecStart=/bin/x AllowedCPUs=1\n");
        write("lib/d@.service", "AllowedMemoryNodes=1\n");
        write("lib/e.txt", "AllowedCPUs=1\n");
        write("etc/a.service.d/50-cpus.conf", "[Service]\nAllowedCPUs=4-7\n");
        write("etc/b.service.d/10-none.conf", "[Service]\nAllowedCPUs=\n");
        write("etc/b.service.d/readme", "AllowedCPUs=1\n");
        let long = format!("AllowedCPUs=1\n{}", " ".repeat(usize::try_from(LONGEST).unwrap()));
        write("etc/f.service", &long);
        let missing = root.path().join("missing");
        let found = read([lib.as_path(), missing.as_path(), etc.as_path()].into_iter());
        let found: Vec<(&str, &str)> =
            found.iter().map(|(unit, setting)| (unit.as_str(), setting.line.as_str())).collect();
        assert_eq!(
            found,
            [
                ("a.service", "AllowedCPUs=4-7"),
                ("b.service", "AllowedMemoryNodes=0"),
                ("d@.service", "AllowedMemoryNodes=1")
            ]
        );
    }

    #[test]
    fn both_settings_are_told_by_the_one_of_cpus() {
        let root = tempfile::tempdir().unwrap();
        fs::write(root.path().join("a.scope"), "AllowedMemoryNodes=1\nAllowedCPUs=1\n").unwrap();
        let found = read([root.path()].into_iter());
        assert_eq!(found["a.scope"].line, "AllowedCPUs=1");
        assert_eq!(found["a.scope"].file, root.path().join("a.scope").display().to_string());
    }
}
