//! Records what readers read, and writes it as a captured tree.
//!
//! Problem: a copy of a host must hold exactly the files that the readers use, give the same answers, and
//! hold nothing private. A list of files would be wrong with the next reader. Idea: run the readers on a root
//! whose paths record each text, listing and link as it is read ([`FileCapture::of`]), then write those
//! ([`FileCapture::write`]). So nothing is read twice, and the copy holds only what a reader used: no command
//! lines, no addresses, no serials.
//!
//! Invariants: writing never follows a link, leaves its directory, or writes host name and boot id. Only
//! reads through [`crate::HostPath`] of that root are recorded.
//!
//! Cost: all texts in memory, at most [`SIZE_LIMIT`].

use std::{
    collections::BTreeMap,
    fs, io,
    path::{Component, Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::HostRoot;

/// Bytes of text that a recording keeps; later texts are left out and counted.
pub const SIZE_LIMIT: usize = 64 << 20;

/// Files of `/proc` that identify the host, or are of no use elsewhere.
const PRIVATE: [&str; 3] =
    ["proc/sys/kernel/hostname", "proc/sys/kernel/random/boot_id", "proc/self/mountinfo"];

/// Options of the kernel's command line that readers use; others may hold addresses and secrets.
const KERNEL_OPTIONS: [&str; 5] = ["isolcpus", "nohz_full", "numa_balancing", "numa", "transparent_hugepage"];

/// Fields of cpuinfo that readers use; others hold serial numbers on some architectures.
const CPUINFO_FIELDS: [&str; 6] =
    ["processor", "model name", "cpu", "Hardware", "CPU implementer", "CPU part"];

/// Everything that was read during one call.
#[derive(Debug, Default)]
pub struct FileCapture {
    seen: BTreeMap<PathBuf, CapturedRead>,
    bytes: usize,
    left_out: usize,
}

#[derive(Debug)]
enum CapturedRead {
    Text(String),
    Directory,
    Link(PathBuf),
}

/// What [`FileCapture::write`] wrote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CaptureSize {
    /// Files.
    pub files: usize,
    /// Their size.
    pub bytes: usize,
    /// Texts that were left out: beyond [`SIZE_LIMIT`], or outside of the three trees.
    pub left_out: usize,
}

impl FileCapture {
    /// The result of a call with a root like `host`, and what it read through that root.
    pub fn of<T>(host: &HostRoot, read: impl FnOnce(&HostRoot) -> T) -> (T, Self) {
        let recorder = FileRecorder::default();
        let result = read(&host.recorded_by(&recorder));
        let capture = std::mem::take(&mut *recorder.0.lock().unwrap_or_else(PoisonError::into_inner));
        (result, capture)
    }

    /// Writes a tree that [`HostRoot::captured`] reads like the host. The directory is made if it is
    /// not there; a file in it that has the name of a captured one is an error.
    pub fn write(&self, host: &HostRoot, directory: &Path) -> io::Result<CaptureSize> {
        fs::create_dir_all(directory)?;
        let mut written = CaptureSize { files: 0, bytes: 0, left_out: self.left_out };
        for (path, seen) in &self.seen {
            let Some(place) = self.place(host, path) else {
                written.left_out += 1;
                continue;
            };
            let target = directory.join(&place);
            match seen {
                CapturedRead::Directory => fs::create_dir_all(&target)?,
                CapturedRead::Link(to) => {
                    fs::create_dir_all(target.parent().unwrap_or(directory))?;
                    std::os::unix::fs::symlink(to, &target)?;
                }
                CapturedRead::Text(text) => {
                    let Some(text) = scrubbed(&place, text) else { continue };
                    fs::create_dir_all(target.parent().unwrap_or(directory))?;
                    let mut file = fs::File::create_new(&target)?;
                    io::Write::write_all(&mut file, text.as_bytes())?;
                    written.files += 1;
                    written.bytes += text.len();
                }
            }
        }
        Ok(written)
    }

    /// Where a path of the host goes, below the directory: with the links on its way resolved, so
    /// that nothing is written through one. `None` outside of the three trees.
    fn place(&self, host: &HostRoot, path: &Path) -> Option<PathBuf> {
        let mut resolved = PathBuf::new();
        for part in path {
            if let Some(CapturedRead::Link(to)) = self.seen.get(&resolved) {
                resolved = normal(&resolved.parent()?.join(to))?;
            }
            resolved.push(part);
        }
        let trees = [(&host.cgroup, "sys/fs/cgroup"), (&host.sys, "sys"), (&host.proc, "proc")];
        trees
            .iter()
            .find_map(|(tree, name)| Some(Path::new(name).join(resolved.strip_prefix(tree.as_path()).ok()?)))
    }

    fn note(&mut self, path: &Path, seen: CapturedRead) {
        if let CapturedRead::Text(text) = &seen {
            if self.bytes + text.len() > SIZE_LIMIT {
                self.left_out += 1;
                return;
            }
            self.bytes += text.len();
        }
        // A directory is only a place; what was read there says more.
        match seen {
            CapturedRead::Directory => {
                self.seen.entry(path.to_owned()).or_insert(CapturedRead::Directory);
            }
            said => drop(self.seen.insert(path.to_owned(), said)),
        }
    }
}

/// Shared by the paths of a root whose reads are recorded.
#[derive(Clone, Default)]
pub(super) struct FileRecorder(Arc<Mutex<FileCapture>>);

impl FileRecorder {
    pub(super) fn note_text(&self, path: &Path, text: &str) {
        self.note(path, CapturedRead::Text(text.to_owned()));
    }

    pub(super) fn note_directory(&self, path: &Path) {
        self.note(path, CapturedRead::Directory);
    }

    pub(super) fn note_link(&self, path: &Path, to: &Path) {
        self.note(path, CapturedRead::Link(to.to_owned()));
    }

    fn note(&self, path: &Path, seen: CapturedRead) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).note(path, seen);
    }
}

/// The path without `..`; `None` when it leaves the root.
fn normal(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir if !plain.pop() => return None,
            Component::ParentDir | Component::CurDir => {}
            other => plain.push(other),
        }
    }
    Some(plain)
}

fn scrubbed(place: &Path, text: &str) -> Option<String> {
    match place.to_str()? {
        private if PRIVATE.contains(&private) => None,
        "proc/cmdline" => {
            let known =
                |word: &&str| word.split_once('=').is_some_and(|(name, _)| KERNEL_OPTIONS.contains(&name));
            Some(text.split_ascii_whitespace().filter(known).collect::<Vec<_>>().join(" ") + "\n")
        }
        "proc/cpuinfo" => Some(text.lines().filter_map(cpuinfo_line).collect()),
        _ => Some(text.to_owned()),
    }
}

/// On s390 the line of a processor ends in the identification of the machine.
fn cpuinfo_line(line: &str) -> Option<String> {
    let line = line.split(" version =").next()?;
    let key = line.split(':').next()?.trim_end();
    let key = key.trim_end_matches(|c: char| c.is_ascii_digit()).trim_end();
    CPUINFO_FIELDS.contains(&key).then(|| format!("{line}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn host(dir: &Path) -> HostRoot {
        HostRoot::captured(dir)
    }

    #[test]
    fn copies_what_was_read_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("sys/devices/system/cpu/cpu7")).unwrap();
        fs::write(from.join("sys/devices/system/cpu/online"), "7\n").unwrap();
        fs::write(from.join("sys/devices/system/cpu/offline"), "8\n").unwrap();
        let ((), recording) = FileCapture::of(&host(&from), |from| {
            let cpus = from.sys.join("devices/system/cpu");
            cpus.list_dir().unwrap();
            cpus.join("online").read_text().unwrap();
            cpus.join("none").read_text().unwrap_err();
        });
        host(&from).sys.join("devices/system/cpu/offline").read_text().unwrap();
        let written = recording.write(&host(&from), &to).unwrap();
        assert_eq!(written, CaptureSize { files: 1, bytes: 2, left_out: 0 });
        let cpus = host(&to).sys.join("devices/system/cpu");
        assert_eq!(cpus.list_dir().unwrap().unwrap(), ["cpu7", "online"]);
        assert_eq!(cpus.join("online").read_text().unwrap(), "7\n");
        assert!(recording.write(&host(&from), &to).is_err(), "must not overwrite");
    }

    #[test]
    fn writes_the_target_of_a_link_where_the_link_points() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("sys/devices/hmem.0/dax0.0")).unwrap();
        fs::create_dir_all(from.join("sys/bus/dax")).unwrap();
        fs::write(from.join("sys/devices/hmem.0/dax0.0/target_node"), "3\n").unwrap();
        let link = from.join("sys/bus/dax/dax0.0");
        std::os::unix::fs::symlink("../../devices/hmem.0/dax0.0", &link).unwrap();
        let ((), recording) = FileCapture::of(&host(&from), |from| {
            let link = from.sys.join("bus/dax/dax0.0");
            link.read_link().unwrap();
            link.join("target_node").read_text().unwrap();
        });
        recording.write(&host(&from), &to).unwrap();
        assert!(to.join("sys/devices/hmem.0/dax0.0/target_node").exists());
        assert_eq!(host(&to).sys.join("bus/dax/dax0.0/target_node").read_text().unwrap(), "3\n");
    }

    #[test]
    fn nothing_leaves_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir_all(from.join("sys")).unwrap();
        fs::write(dir.path().join("secret"), "x").unwrap();
        std::os::unix::fs::symlink("../..", from.join("sys/up")).unwrap();
        let ((), recording) = FileCapture::of(&HostRoot::live_below(&from), |from| {
            from.sys.join("up").read_link().unwrap();
            from.sys.join("up/secret").read_text().unwrap();
            from.at(dir.path().join("secret")).read_text().unwrap();
        });
        let written = recording.write(&host(&from), &to).unwrap();
        assert_eq!((written.files, written.left_out), (0, 2));
    }

    #[test]
    fn scrubs_what_names_the_host() {
        let clean = |place: &str, text: &str| scrubbed(Path::new(place), text);
        assert_eq!(clean("proc/sys/kernel/hostname", "db7\n"), None);
        assert_eq!(clean("proc/sys/kernel/random/boot_id", "1\n"), None);
        assert_eq!(
            clean("proc/cmdline", "root=UUID=3e60 isolcpus=1-3 token=x quiet\n").as_deref(),
            Some("isolcpus=1-3\n")
        );
        assert_eq!(
            clean("proc/cpuinfo", "processor\t: 0\nmodel name\t: X\nSerial\t: 9\n").as_deref(),
            Some("processor\t: 0\nmodel name\t: X\n")
        );
        assert_eq!(
            clean("proc/cpuinfo", "processor 0: version = FF,  identification = 0133E8\n").as_deref(),
            Some("processor 0:\n")
        );
    }
}
