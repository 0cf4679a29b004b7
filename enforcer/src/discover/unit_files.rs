//! CPUs and memory nodes in the files of systemd's units.
//!
//! A unit with `AllowedCPUs=` or `AllowedMemoryNodes=` has a cpuset that systemd writes, at every start and
//! at every daemon-reload. The files tell that without asking anybody; later ones win, and an empty value
//! takes earlier ones back (systemd.unit(5), systemd.resource-control(5)).
//!
//! What is set at run time is in `/run/systemd/system.control`, and of units that have no file in
//! `/run/systemd/transient`. Our own settings are there as well, a file for each, and are passed over.

use std::{collections::BTreeMap, path::Path};

use enforcer_core::owner::{OwnSettings, UnitSetting};
use rustix::fs::FileType;

use crate::host::{HostRoot, read_dir, read_text_within};

/// Where files are, those that win last.
const DIRS: [&str; 7] = [
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/system",
    "/run/systemd/transient",
    "/etc/systemd/system",
    "/run/systemd/system.control",
    "/etc/systemd/system.control",
];

/// What systemd turns into a cpuset.
const KEYS: [&str; 2] = ["AllowedCPUs", "AllowedMemoryNodes"];

/// Kinds of units that have cgroups.
const KINDS: [&str; 6] = [".service", ".slice", ".scope", ".socket", ".mount", ".swap"];

/// Longest file that is read, and most of them.
const LONGEST: u64 = 64 << 10;
const MOST: usize = 10_000;

/// Units with such a setting that is not ours, by name. A file that cannot be read sets nothing.
pub fn read_unit_files(host: &HostRoot, own: &OwnSettings) -> BTreeMap<String, UnitSetting> {
    // A captured machine has none, and those of this one say nothing about it.
    if host.captured { BTreeMap::new() } else { read(DIRS.iter().map(Path::new), own) }
}

fn read<'a>(dirs: impl Iterator<Item = &'a Path>, own: &OwnSettings) -> BTreeMap<String, UnitSetting> {
    let mut found = Found { settings: BTreeMap::new(), left: MOST, own };
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
                        found.add(unit, &path.join(file));
                    }
                }
                None if is_unit(name) && kind != FileType::Directory => {
                    found.add(name, &path);
                }
                _ => {}
            }
        }
    }
    // CPUs before memory nodes, where there are both.
    found.settings.into_iter().rev().map(|((unit, _), setting)| (unit, setting)).collect()
}

fn is_unit(name: &str) -> bool {
    KINDS.iter().any(|kind| name.ends_with(kind))
}

/// What the files say so far.
struct Found<'a> {
    settings: BTreeMap<(String, &'static str), UnitSetting>,
    /// Files that may still be read.
    left: usize,
    own: &'a OwnSettings,
}

impl Found<'_> {
    fn add(&mut self, unit: &str, path: &Path) {
        let Some(left) = self.left.checked_sub(1) else { return };
        self.left = left;
        let Ok(text) = read_text_within(path, LONGEST) else { return };
        if self.is_ours(unit, &text) {
            return;
        }
        for (key, value, line) in settings(&text) {
            let slot = (unit.to_owned(), key);
            if value.is_empty() {
                self.settings.remove(&slot);
            } else {
                let line: String = line.chars().take(200).collect();
                self.settings.insert(slot, UnitSetting { file: path.display().to_string(), line });
            }
        }
    }

    /// Does the file set nothing but what we have set? It begins by taking back what others set, which counts
    /// no more than the rest of it.
    fn is_ours(&self, unit: &str, text: &str) -> bool {
        let mut values = settings(text).filter(|(_, value, _)| !value.is_empty()).peekable();
        values.peek().is_some() && values.all(|(key, value, _)| self.own.has(unit, key, value))
    }
}

/// Key, value and line of the settings in a file.
fn settings(text: &str) -> impl Iterator<Item = (&'static str, &str, &str)> {
    text.lines().map(str::trim).filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        let key = KEYS.into_iter().find(|known| *known == key.trim())?;
        Some((key, value.trim(), line))
    })
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
        let none = OwnSettings::default();
        let found = read([lib.as_path(), missing.as_path(), etc.as_path()].into_iter(), &none);
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
        let found = read([root.path()].into_iter(), &OwnSettings::default());
        assert_eq!(found["a.scope"].line, "AllowedCPUs=1");
        assert_eq!(found["a.scope"].file, root.path().join("a.scope").display().to_string());
    }

    /// `systemctl set-property --runtime` writes such files, whoever calls it.
    #[test]
    fn what_we_have_set_ourselves_is_not_taken_for_an_administrators() {
        let root = tempfile::tempdir().unwrap();
        let (etc, control) = (root.path().join("etc"), root.path().join("control"));
        let set = |dir: &Path, unit: &str, key: &str, value: &str| {
            let dir = dir.join(format!("{unit}.d"));
            fs::create_dir_all(&dir).unwrap();
            let text = format!("# This is a drop-in unit file extension\n[Service]\n{key}=\n{key}={value}\n");
            fs::write(dir.join(format!("50-{key}.conf")), text).unwrap();
        };
        set(&etc, "theirs-below.service", "AllowedCPUs", "4-7");
        for unit in ["ours.service", "changed.service", "theirs-below.service"] {
            set(&control, unit, "AllowedCPUs", if unit == "changed.service" { "0-5" } else { "0-1 3" });
            set(&control, unit, "AllowedMemoryNodes", "0");
        }
        set(&control, "theirs.service", "AllowedCPUs", "0-1 3");
        let mut own = OwnSettings::default();
        for unit in ["ours.service", "changed.service", "theirs-below.service"] {
            own.add(unit, "AllowedCPUs", "0-1,3");
            own.add(unit, "AllowedMemoryNodes", "0");
        }
        let found = read([etc.as_path(), control.as_path()].into_iter(), &own);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(unit, setting)| (unit.as_str(), setting.line.as_str())).collect();
        assert_eq!(
            found,
            [
                ("changed.service", "AllowedCPUs=0-5"),
                ("theirs-below.service", "AllowedCPUs=4-7"),
                ("theirs.service", "AllowedCPUs=0-1 3"),
            ]
        );
    }
}
