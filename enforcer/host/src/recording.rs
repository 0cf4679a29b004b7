//! Records what readers read, and writes it as a captured tree.
//!
//! Problem: a copy of a host must hold exactly the files that the readers use, give the same answers, and
//! hold nothing private. A list of files would be wrong with the next reader. Idea: run the readers on a root
//! whose paths record each text, listing and link as it is read ([`FileCapture::of`]), then write those
//! ([`FileCapture::write`]). So nothing is read twice, and the copy holds only what a reader used: no command
//! lines, no addresses, no serials.
//!
//! Invariants: writing never follows a link or leaves its directory ([`super::output_tree`]), and never
//! writes host name and boot id. Only reads through [`crate::HostPath`] of that root are recorded.
//!
//! Cost: all texts in memory, at most [`SIZE_LIMIT`].

use std::{
    collections::BTreeMap,
    ffi::OsString,
    io,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use super::{HostRoot, output_tree::OutputTree};

/// Bytes of text that a recording keeps; later texts are left out and counted.
pub const SIZE_LIMIT: usize = 64 << 20;

/// Symlinks on the way of one path, as in the kernel (`MAXSYMLINKS`).
const MOST_LINKS: usize = 40;

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
        let output = OutputTree::open(directory)?;
        let mut written = CaptureSize { files: 0, bytes: 0, left_out: self.left_out };
        let links = self.links();
        let mut places: BTreeMap<PathBuf, &CapturedRead> = BTreeMap::new();
        for (path, seen) in &self.seen {
            match (place(host, &links, path), seen) {
                (None, _) => written.left_out += 1,
                (Some(place), CapturedRead::Directory) => drop(places.entry(place).or_insert(seen)),
                // Paths through a link and past it lead to one file.
                (Some(place), _) => drop(places.insert(place, seen)),
            }
        }
        for (place, seen) in places {
            match seen {
                CapturedRead::Directory => output.make_dir(&place)?,
                CapturedRead::Link(to) => output.make_link(to, &place)?,
                CapturedRead::Text(text) => {
                    let Some(text) = scrubbed(&place, text) else { continue };
                    io::Write::write_all(&mut output.make_file(&place)?, text.as_bytes())?;
                    written.files += 1;
                    written.bytes += text.len();
                }
            }
        }
        Ok(written)
    }

    /// The links by their places: a link may have been read through another one. Each pass resolves at
    /// least one more link of each chain.
    fn links(&self) -> LinksByPlace<'_> {
        let mut links = LinksByPlace::new();
        for _ in 0..MOST_LINKS {
            let each = self.seen.iter().filter_map(|(path, seen)| match seen {
                CapturedRead::Link(to) => Some((resolved(&links, path)?, to.as_path())),
                _ => None,
            });
            let more: LinksByPlace<'_> = each.collect();
            if more == links {
                break;
            }
            links = more;
        }
        links
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

/// Targets of symlinks.
type LinksByPlace<'a> = BTreeMap<PathBuf, &'a Path>;

/// Where a path of the host goes, below the directory: with the links on its way resolved, so that nothing
/// is written through one. `None` outside of the three trees.
fn place(host: &HostRoot, links: &LinksByPlace<'_>, path: &Path) -> Option<PathBuf> {
    let resolved = resolved(links, path)?;
    let trees = [(&host.cgroup, "sys/fs/cgroup"), (&host.sys, "sys"), (&host.proc, "proc")];
    trees
        .iter()
        .find_map(|(tree, name)| Some(Path::new(name).join(resolved.strip_prefix(tree.as_path()).ok()?)))
}

/// The path with each link but the last part resolved, and so the links of its target; `None` when it goes
/// above the root or through more links than [`MOST_LINKS`].
fn resolved(links: &LinksByPlace<'_>, path: &Path) -> Option<PathBuf> {
    let parts = |path: &Path| path.components().rev().map(|part| part.as_os_str().to_owned()).collect();
    let (mut resolved, mut followed) = (PathBuf::new(), 0);
    let mut pending: Vec<OsString> = parts(path);
    while let Some(part) = pending.pop() {
        if let Some(to) = links.get(&resolved) {
            followed += 1;
            if followed > MOST_LINKS {
                return None;
            }
            resolved.pop();
            pending.push(part);
            pending.extend(parts(to));
        } else if part == ".." {
            resolved.pop().then_some(())?;
        } else if part != "." {
            resolved.push(part);
        }
    }
    Some(resolved)
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
    use std::{fs, os::unix::fs::symlink};

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

    /// Reads links, as a reader that follows them by hand does, and then a file through the last one.
    fn captured_through(from: &Path, links: &[&str], file: &str) -> FileCapture {
        let ((), recording) = FileCapture::of(&host(from), |from| {
            for link in links {
                from.sys.join(link).read_link().unwrap();
            }
            from.sys.join(file).read_text().unwrap();
        });
        recording
    }

    #[test]
    fn link_to_a_link_does_not_lead_a_write_out_of_the_directory() {
        let dir = tempfile::tempdir().unwrap();
        let (from, evil) = (dir.path().join("from"), dir.path().join("evil"));
        let devices = from.join("sys/bus/dax/devices");
        fs::create_dir_all(&devices).unwrap();
        fs::create_dir_all(&evil).unwrap();
        let inside = from.join(evil.strip_prefix("/").unwrap());
        fs::create_dir_all(&inside).unwrap();
        fs::write(inside.join("target_node"), "1\n").unwrap();
        symlink(&evil, devices.join("a")).unwrap();
        symlink("a", devices.join("b")).unwrap();
        symlink("b", devices.join("c")).unwrap();
        let all = ["bus/dax/devices/a", "bus/dax/devices/b", "bus/dax/devices/c"];
        for (links, last) in [(&all[..1], "a"), (&all[..2], "b"), (&all[..], "c")] {
            let to = dir.path().join(last);
            let file = format!("bus/dax/devices/{last}/target_node");
            let written = captured_through(&from, links, &file).write(&host(&from), &to).unwrap();
            assert_eq!((written.files, written.left_out), (0, 1), "{last}");
            assert_eq!(fs::read_dir(&evil).unwrap().count(), 0, "{last}");
        }
    }

    #[test]
    fn link_that_is_read_through_a_link_is_written_at_its_place() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        for made in ["sys/devices/pci0/net/eth0", "sys/class/net", "sys/short"] {
            fs::create_dir_all(from.join(made)).unwrap();
        }
        fs::write(from.join("sys/devices/pci0/numa_node"), "1\n").unwrap();
        symlink("../../devices/pci0/net/eth0", from.join("sys/class/net/eth0")).unwrap();
        symlink("../../../pci0", from.join("sys/devices/pci0/net/eth0/device")).unwrap();
        symlink("../class/net/eth0", from.join("sys/short/net")).unwrap();
        let links = ["class/net/eth0", "class/net/eth0/device", "short/net"];
        let recording = captured_through(&from, &links, "short/net/device/numa_node");
        let written = recording.write(&host(&from), &to).unwrap();
        assert_eq!(written, CaptureSize { files: 1, bytes: 2, left_out: 0 });
        assert!(to.join("sys/devices/pci0/numa_node").symlink_metadata().unwrap().is_file());
        for way in ["short/net/device/numa_node", "class/net/eth0/device/numa_node"] {
            assert_eq!(host(&to).sys.join(way).read_text().unwrap(), "1\n");
        }
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
