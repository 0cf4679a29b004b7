//! Reads the files of systemd's units where systemd cannot be asked.
//!
//! Rules (systemd.unit(5)): of several files with one name, only that of the first directory counts; an empty
//! one, or a link to `/dev/null`, masks. Drop-ins of all directories are joined in the order of their file
//! names. They are looked for in `a-b@c.d` (short for `a-b@c.service.d`), then in `a-b@.service.d`,
//! `a-.service.d` and `service.d`; of two with one name, that of the first directory counts. Later values are
//! added, an empty one resets.

use std::{
    collections::{BTreeMap, BTreeSet},
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use enforcer_core::owner::{OwnSettings, UnitSetting};

use super::KEYS;
use crate::{as_text, read_bytes};

/// Directories of units, the one with the highest priority first.
const DIRS: [&str; 13] = [
    "/etc/systemd/system.control",
    "/run/systemd/system.control",
    "/run/systemd/transient",
    "/run/systemd/generator.early",
    "/etc/systemd/system",
    "/etc/systemd/system.attached",
    "/run/systemd/system",
    "/run/systemd/system.attached",
    "/run/systemd/generator",
    "/usr/local/lib/systemd/system",
    "/usr/lib/systemd/system",
    "/lib/systemd/system",
    "/run/systemd/generator.late",
];

/// Longest file that is read, and most names of a directory.
const LONGEST: u64 = 64 << 10;
const MOST: usize = 20_000;

/// Longest line that is shown.
const SHOWN: usize = 200;

/// Files in systemd's directories.
#[derive(Debug, Default)]
pub(super) struct UnitFiles {
    /// Files of units, the first of each name.
    fragments: BTreeMap<String, PathBuf>,
    /// Directories of drop-ins by the name before `.d`, in order of priority.
    drop_ins: BTreeMap<String, Vec<PathBuf>>,
    /// Other names of units: links to a file of another name.
    aliases: BTreeMap<String, BTreeSet<String>>,
}

impl UnitFiles {
    /// The files of this host.
    pub(super) fn of_host() -> Self {
        Self::read(DIRS.iter().map(Path::new))
    }

    /// The files of these directories, in order of priority.
    pub(super) fn read<'a>(dirs: impl IntoIterator<Item = &'a Path>) -> Self {
        let (mut files, mut left) = (Self::default(), MOST);
        for dir in dirs {
            for (name, kind) in entries(dir) {
                let Some(name) = name.to_str() else { continue };
                let path = dir.join(name);
                match name.strip_suffix(".d") {
                    Some(unit) if !kind.is_file() => {
                        files.drop_ins.entry(unit.to_owned()).or_default().push(path);
                    }
                    None if kind.is_dir() => continue,
                    _ => files.add(name, path, kind),
                }
                let Some(now) = left.checked_sub(1) else { return files };
                left = now;
            }
        }
        files
    }

    fn add(&mut self, name: &str, path: PathBuf, kind: fs::FileType) {
        if kind.is_symlink() {
            let target = fs::read_link(&path).ok();
            let target = target.as_ref().and_then(|target| target.file_name()?.to_str());
            // A link into the directories of a package has the same name, one to /dev/null masks.
            if let Some(target) = target.filter(|target| *target != name && *target != "null") {
                self.aliases.entry(target.to_owned()).or_default().insert(name.to_owned());
            }
        }
        self.fragments.entry(name.to_owned()).or_insert(path);
    }

    /// The setting of a unit, if it is not ours.
    pub(super) fn setting(&self, unit: &str, own: &OwnSettings) -> Option<UnitSetting> {
        let paths = self.paths(unit);
        let mut found =
            KEYS.into_iter().filter_map(|key| setting_in(paths.iter().map(PathBuf::as_path), key, unit, own));
        found.next()
    }

    /// A unit's file and its drop-ins, in the order in which they apply; empty for a masked unit.
    fn paths(&self, unit: &str) -> Vec<PathBuf> {
        let fragment = self.fragments.get(unit).or_else(|| self.fragments.get(&template(unit)?));
        if fragment.is_some_and(|path| is_null_or_empty(path)) {
            return Vec::new();
        }
        let mut by_name: BTreeMap<String, PathBuf> = BTreeMap::new();
        for dir in self.dirs_of_drop_ins(unit) {
            for (name, _) in entries(dir).take(MOST) {
                if let Some(name) =
                    name.to_str().filter(|name| Path::new(name).extension().is_some_and(|end| end == "conf"))
                {
                    by_name.entry(name.to_owned()).or_insert_with(|| dir.join(name));
                }
            }
        }
        let drop_ins = by_name.into_values().filter(|path| !is_null_or_empty(path));
        fragment.cloned().into_iter().chain(drop_ins).collect()
    }

    /// Directories of drop-ins, in order of priority.
    fn dirs_of_drop_ins(&self, unit: &str) -> Vec<&Path> {
        let aliases = self.aliases.get(unit).into_iter().flatten().map(String::as_str);
        let named = [unit].into_iter().chain(aliases).flat_map(names_of_drop_ins);
        let kind = unit.rsplit_once('.').map(|(_, kind)| kind.to_owned());
        let dirs = named.chain(kind).filter_map(|name| self.drop_ins.get(&name)).flatten();
        dirs.map(PathBuf::as_path).collect()
    }
}

/// Directory names before `.d` with drop-ins of a unit, the most specific first: its own, that of its
/// template, and those of its prefixes that end at a dash.
fn names_of_drop_ins(unit: &str) -> Vec<String> {
    let mut names = vec![unit.to_owned()];
    names.extend(template(unit));
    let (stem, kind) = unit.rsplit_once('.').unwrap_or((unit, ""));
    let (mut prefix, instance) = stem.split_once('@').map_or((stem, None), |(prefix, of)| (prefix, Some(of)));
    while let Some((shorter, _)) = prefix.trim_end_matches('-').rsplit_once('-') {
        let with_dash = format!("{shorter}-");
        match instance {
            None => names.push(format!("{with_dash}.{kind}")),
            Some(instance) => {
                names.push(format!("{with_dash}@{instance}.{kind}"));
                names.push(format!("{with_dash}@.{kind}"));
            }
        }
        prefix = shorter;
    }
    names
}

/// The template that a unit is an instance of.
fn template(unit: &str) -> Option<String> {
    let (name, instance) = unit.split_once('@')?;
    let (instance, kind) = instance.rsplit_once('.')?;
    (!instance.is_empty()).then(|| format!("{name}@.{kind}"))
}

/// Names in a directory with what they are, symlinks not followed; none where it cannot be listed.
fn entries(dir: &Path) -> impl Iterator<Item = (OsString, fs::FileType)> {
    let entries = fs::read_dir(dir).into_iter().flatten().filter_map(Result::ok);
    entries.filter_map(|entry| Some((entry.file_name(), entry.file_type().ok()?)))
}

/// Whether a file masks.
fn is_null_or_empty(path: &Path) -> bool {
    use std::os::unix::fs::FileTypeExt;

    fs::metadata(path).is_ok_and(|found| found.file_type().is_char_device() || found.len() == 0)
}

/// The setting of a unit by these files, in the order in which they apply: the latest line of the key that is
/// not reset, and not ours.
pub(super) fn setting_in<'a>(
    files: impl Iterator<Item = &'a Path>,
    key: &str,
    unit: &str,
    own: &OwnSettings,
) -> Option<UnitSetting> {
    let mut latest = None;
    for path in files {
        let Ok(text) = read_bytes(path, LONGEST).map(as_text) else { continue };
        if is_ours(unit, &text, own) {
            continue;
        }
        for (_, value, line) in settings(&text).filter(|(found, ..)| *found == key) {
            let line = || line.chars().take(SHOWN).collect();
            let set = || UnitSetting { file: path.display().to_string(), line: line() };
            latest = (!value.is_empty()).then(set);
        }
    }
    latest
}

/// Whether the file sets nothing but our settings. Its first line resets the settings of others, and does not
/// count alone.
fn is_ours(unit: &str, text: &str, own: &OwnSettings) -> bool {
    let mut values = settings(text).filter(|(_, value, _)| !value.is_empty()).peekable();
    values.peek().is_some() && values.all(|(key, value, _)| own.has(unit, key, value))
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
    use std::os::unix::fs::symlink;

    use super::*;

    /// Directories `etc`, `run` and `lib`, which win in this order.
    fn files(root: &Path) -> UnitFiles {
        let dirs = ["etc", "run", "lib", "missing"].map(|name| root.join(name));
        UnitFiles::read(dirs.iter().map(PathBuf::as_path))
    }

    /// The line that counts for a unit with these files: place and text, `-> TARGET` for a link.
    fn line(unit: &str, made_of: &[(&str, &str)]) -> Option<String> {
        let root = tempfile::tempdir().unwrap();
        for (place, text) in made_of {
            let path = root.path().join(place);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            match text.strip_prefix("-> ") {
                Some(target) => symlink(target, path).unwrap(),
                None => fs::write(path, text).unwrap(),
            }
        }
        files(root.path()).setting(unit, &OwnSettings::default()).map(|setting| setting.line)
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "a table")]
    fn every_rule_of_systemd_for_its_files() {
        let (cpus, other, mems) =
            ("[Service]\nAllowedCPUs=0-3\n", "AllowedCPUs=4-7\n", "AllowedMemoryNodes=1\n");
        let none = "[Service]\nExecStart=/bin/x AllowedCPUs=1\nCPUAffinity=0\n";
        let (first, second, third) =
            (Some("AllowedCPUs=0-3"), Some("AllowedCPUs=4-7"), Some("AllowedMemoryNodes=1"));
        for (what, unit, made_of, expected) in [
            ("its own file", "a.service", &[("lib/a.service", cpus)][..], first),
            ("another unit's", "b.service", &[("lib/a.service", cpus)], None),
            ("memory nodes alone", "a.service", &[("lib/a.service", mems)], third),
            ("a comment", "a.service", &[("lib/a.service", "# AllowedCPUs=9\n")], None),
            ("blanks", "a.service", &[("lib/a.service", " AllowedCPUs = 0 \n")], Some("AllowedCPUs = 0")),
            ("taken back", "a.service", &[("lib/a.service", "AllowedCPUs=1\nAllowedCPUs=\n")], None),
            // A file replaces one of the same name as a whole.
            ("replaced", "a.service", &[("lib/a.service", cpus), ("etc/a.service", none)], None),
            (
                "replaced by another",
                "a.service",
                &[("lib/a.service", cpus), ("etc/a.service", other)],
                second,
            ),
            ("run over lib", "a.service", &[("lib/a.service", cpus), ("run/a.service", none)], None),
            ("etc over run", "a.service", &[("run/a.service", cpus), ("etc/a.service", other)], second),
            // Drop-ins.
            ("a drop-in", "a.service", &[("lib/a.service", none), ("etc/a.service.d/1.conf", cpus)], first),
            (
                "a drop-in of lib goes behind the file of etc",
                "a.service",
                &[("etc/a.service", other), ("lib/a.service.d/1.conf", cpus)],
                first,
            ),
            (
                "by their names, whatever their directories are",
                "a.service",
                &[("etc/a.service.d/10.conf", cpus), ("lib/a.service.d/20.conf", other)],
                second,
            ),
            (
                "one of the same name is replaced",
                "a.service",
                &[("etc/a.service.d/10.conf", none), ("lib/a.service.d/10.conf", other)],
                None,
            ),
            (
                "a drop-in takes back",
                "a.service",
                &[("lib/a.service", cpus), ("etc/a.service.d/10.conf", "AllowedCPUs=\n")],
                None,
            ),
            ("no .conf", "a.service", &[("etc/a.service.d/readme", cpus)], None),
            (
                "a masked drop-in",
                "a.service",
                &[("lib/a.service.d/10.conf", cpus), ("etc/a.service.d/10.conf", "-> /dev/null")],
                None,
            ),
            // Masks.
            ("masked", "a.service", &[("lib/a.service", cpus), ("etc/a.service", "-> /dev/null")], None),
            ("masked by an empty file", "a.service", &[("lib/a.service", cpus), ("run/a.service", "")], None),
            (
                "masked with its drop-ins",
                "a.service",
                &[("etc/a.service", "-> /dev/null"), ("etc/a.service.d/1.conf", cpus)],
                None,
            ),
            // Templates.
            ("a template", "a@1.service", &[("lib/a@.service", cpus)], first),
            (
                "an instance of its own",
                "a@1.service",
                &[("lib/a@.service", cpus), ("lib/a@1.service", none)],
                None,
            ),
            ("a drop-in of the template", "a@1.service", &[("etc/a@.service.d/1.conf", cpus)], first),
            (
                "a drop-in of the instance before one of the template",
                "a@1.service",
                &[("lib/a@1.service.d/1.conf", none), ("etc/a@.service.d/1.conf", cpus)],
                None,
            ),
            // Prefixes, and kinds of units.
            ("a prefix", "foo-bar-baz.service", &[("etc/foo-.service.d/1.conf", cpus)], first),
            ("the longer prefix", "foo-bar-baz.service", &[("etc/foo-bar-.service.d/1.conf", cpus)], first),
            ("no prefix", "foobar.service", &[("etc/foo-.service.d/1.conf", cpus)], None),
            (
                "the unit's own before a prefix's",
                "foo-bar.service",
                &[("lib/foo-bar.service.d/1.conf", other), ("etc/foo-.service.d/1.conf", cpus)],
                second,
            ),
            ("slices of users", "user-1000.slice", &[("lib/user-.slice.d/10.conf", cpus)], first),
            ("a prefix of an instance", "a-b@1.service", &[("etc/a-@.service.d/1.conf", cpus)], first),
            ("all of a kind", "a.service", &[("etc/service.d/1.conf", cpus)], first),
            ("all of another kind", "a.slice", &[("etc/service.d/1.conf", cpus)], None),
            // Other names.
            (
                "a drop-in of an alias",
                "b.service",
                &[
                    ("lib/b.service", none),
                    ("etc/a.service", "-> ../lib/b.service"),
                    ("etc/a.service.d/1.conf", cpus),
                ],
                first,
            ),
            (
                "linked",
                "a.service",
                &[("etc/a.service", "-> ../opt/a.service"), ("opt/a.service", cpus)],
                first,
            ),
        ] {
            assert_eq!(line(unit, made_of).as_deref(), expected, "{what}");
        }
    }

    #[test]
    fn the_directories_are_those_of_systemd_in_its_order() {
        let at = |dir: &str| DIRS.iter().position(|known| *known == dir).unwrap();
        let order = ["/run/systemd/generator.early", "/etc/systemd/system", "/run/systemd/system"];
        let order = order.into_iter().chain(["/run/systemd/generator", "/usr/lib/systemd/system"]);
        let places: Vec<usize> = order.chain(["/run/systemd/generator.late"]).map(at).collect();
        assert!(places.is_sorted(), "{places:?}");
    }

    #[test]
    fn a_file_that_is_too_long_sets_nothing() {
        let long = format!("AllowedCPUs=1\n{}", " ".repeat(usize::try_from(LONGEST).unwrap()));
        assert_eq!(line("f.service", &[("etc/f.service", &long)]), None);
    }

    /// `systemctl set-property --runtime` writes such files, for any caller.
    #[test]
    fn what_we_have_set_ourselves_is_not_taken_for_an_administrators() {
        let root = tempfile::tempdir().unwrap();
        let set = |dir: &str, unit: &str, key: &str, value: &str| {
            let dir = root.path().join(dir).join(format!("{unit}.d"));
            fs::create_dir_all(&dir).unwrap();
            let text = format!("# This is a drop-in unit file extension\n[Service]\n{key}=\n{key}={value}\n");
            fs::write(dir.join(format!("50-{key}.conf")), text).unwrap();
        };
        set("lib", "theirs-below.service", "AllowedCPUs", "4-7");
        for unit in ["ours.service", "changed.service", "theirs-below.service"] {
            set("etc", unit, "AllowedCPUs", if unit == "changed.service" { "0-5" } else { "0-1 3" });
            set("etc", unit, "AllowedMemoryNodes", "0");
        }
        set("etc", "theirs.service", "AllowedCPUs", "0-1 3");
        let mut own = OwnSettings::default();
        for unit in ["ours.service", "changed.service", "theirs-below.service"] {
            own.add(unit, "AllowedCPUs", "0-1,3");
            own.add(unit, "AllowedMemoryNodes", "0");
        }
        let files = files(root.path());
        for (unit, expected) in [
            ("ours.service", None),
            ("changed.service", Some("AllowedCPUs=0-5")),
            ("theirs.service", Some("AllowedCPUs=0-1 3")),
            // Of one name the file of `etc` replaces it.
            ("theirs-below.service", None),
        ] {
            let found = files.setting(unit, &own).map(|setting| setting.line);
            assert_eq!(found.as_deref(), expected, "{unit}");
        }
        set("lib", "theirs-below.service", "AllowedMemoryNodes", "1");
        fs::rename(
            root.path().join("lib/theirs-below.service.d/50-AllowedMemoryNodes.conf"),
            root.path().join("lib/theirs-below.service.d/40-nodes.conf"),
        )
        .unwrap();
        let found = files.setting("theirs-below.service", &own).map(|setting| setting.line);
        assert_eq!(found.as_deref(), Some("AllowedMemoryNodes=1"));
    }
}
