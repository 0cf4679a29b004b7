//! Empties cpuset files of a v2 cgroup that has tasks.
//!
//! Problem: an empty file inherits from the parent, and a workload often starts with that. But once the file
//! has a value, the kernel refuses to empty it while the cgroup has tasks (`ENOSPC`, `validate_change` in
//! kernel/cgroup/cpuset.c). Idea: disable the cpuset controller for the children of the parent and enable it
//! again at once (`cgroup.subtree_control`). Then every child has an empty cpuset, with or without tasks, and
//! the values of the other children are written again. Affinities of tasks do not follow, so a file that is
//! to be empty is first set to all CPUs of the parent.
//!
//! For some milliseconds the siblings are as wide as their parent; no pages move because of it. Their values
//! and the removal of the controller are journalled first, so that the next restore undoes a crash in
//! between; it starts with [`resume`]. A partition or an exclusive set among the siblings would be lost: then
//! the reset is refused.

use std::fs;

use enforcer_core::workload::CgroupPath;

use super::{
    cpuset::{CpusetTree, ManagedFile, OpenCpuset},
    journal::{Entry, EntryKey, Journal},
};

/// Most children of one cgroup that are read.
const MAX_CHILDREN: usize = 10_000;

/// A child, and the final contents of its files.
struct Child {
    cgroup: CgroupPath,
    cpuset: OpenCpuset,
    values: [(ManagedFile, String); 2],
}

impl Child {
    fn is_gone(&self, tree: &CpusetTree) -> bool {
        tree.open(&self.cgroup).map_or_else(|error| error.is_gone(), |now| now.inode() != self.cpuset.inode())
    }
}

/// Empties `files`, children of `parent`; every other file of its children keeps its text.
///
/// The error names operation, path, value and cause.
pub(super) fn empty(
    tree: &CpusetTree,
    parent: &CgroupPath,
    files: &[&EntryKey],
    boot_id: Option<&str>,
    journal: &mut Journal,
) -> Result<(), String> {
    let control = ControllerSwitch::of(tree, parent)?;
    let children = children(tree, parent, &control.0, files)?;
    let entry = Entry::of_file(control.read()?, boot_id);
    let taken =
        EntryKey { cgroup: parent.clone(), file: ManagedFile::SubtreeControl, inode: control.0.inode() };
    let mut temporary = Vec::new();
    for child in &children {
        for (file, text) in child.values.iter().filter(|(_, text)| !text.trim().is_empty()) {
            let key = EntryKey { cgroup: child.cgroup.clone(), file: *file, inode: child.cpuset.inode() };
            if !journal.entries().contains_key(&key) {
                let entry = Entry::of_file(text.clone(), boot_id);
                journal.record(key.clone(), entry).map_err(|error| error.to_string())?;
                temporary.push(key);
            }
        }
    }
    journal.record(taken.clone(), entry).map_err(|error| error.to_string())?;
    if let Err(error) = widen_tasks(tree, parent, files).and_then(|()| control.write("-cpuset")) {
        // Nothing has changed, so nothing is to be put back.
        for key in temporary.iter().chain([&taken]) {
            journal.close(key).map_err(|error| error.to_string())?;
        }
        return Err(error);
    }
    control.write("+cpuset")?;
    // One that cannot be written must not keep the others from getting theirs.
    let failures: Vec<String> = children
        .iter()
        .flat_map(|child| child.values.iter().map(move |(file, text)| (child, *file, text)))
        .filter(|(_, _, text)| !text.trim().is_empty())
        .filter_map(|(child, file, text)| Some((child, child.cpuset.write(file, text).err()?)))
        .filter(|(child, _)| !child.is_gone(tree))
        .map(|(_, error)| error.to_string())
        .collect();
    if !failures.is_empty() {
        return Err(failures.join("; "));
    }
    // By the last one a restore knows, until all have their values, that they may lack them.
    journal.close_all(&temporary).and_then(|()| journal.close(&taken)).map_err(|error| error.to_string())
}

/// Lets the tasks of those that are emptied run wherever the parent may.
///
/// Sets each task's affinity: it follows a write of the cpuset, but not the removal of the controller. The
/// task would stay on its old CPUs in an empty cpuset (seen on Linux 6.12).
fn widen_tasks(tree: &CpusetTree, parent: &CgroupPath, files: &[&EntryKey]) -> Result<(), String> {
    files.iter().try_for_each(|key| {
        let wide = tree.read_effective(parent, key.file).map_err(|error| error.to_string())?;
        let Some(wide) = wide else { return Ok(()) };
        let cpuset = match tree.open(&key.cgroup) {
            Err(error) if error.is_gone() => return Ok(()),
            cpuset => cpuset.map_err(|error| error.to_string())?,
        };
        cpuset.write(key.file, wide.trim()).map_err(|error| error.to_string())
    })
}

fn children(
    tree: &CpusetTree,
    parent: &CgroupPath,
    opened: &OpenCpuset,
    files: &[&EntryKey],
) -> Result<Vec<Child>, String> {
    let path = opened.path();
    let entries =
        fs::read_dir(opened.address()).map_err(|error| format!("listing {}: {error}", path.display()))?;
    let mut children = Vec::new();
    for entry in entries.filter_map(Result::ok) {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            return Err(format!("{}: its name is not text", path.join(entry.file_name()).display()));
        };
        if children.len() == MAX_CHILDREN {
            return Err(format!("{}: more than {MAX_CHILDREN} cgroups", path.display()));
        }
        let cgroup =
            CgroupPath::new(&format!("{parent}/{name}", parent = parent.as_str().trim_end_matches('/')));
        children.extend(child(tree, cgroup, files)?);
    }
    Ok(children)
}

/// `None` for a cgroup that went away.
fn child(tree: &CpusetTree, cgroup: CgroupPath, files: &[&EntryKey]) -> Result<Option<Child>, String> {
    let cpuset = match tree.open(&cgroup) {
        Ok(cpuset) => cpuset,
        Err(error) if error.is_gone() => return Ok(None),
        Err(error) => return Err(error.to_string()),
    };
    for (name, usual) in [("cpuset.cpus.partition", "member"), ("cpuset.cpus.exclusive", "")] {
        match cpuset.read_name(name) {
            Ok(text) if text.trim() == usual => {}
            Ok(text) => return Err(format!("{cgroup} has {name} = {}, which would be lost", text.trim())),
            // Older kernels do not have it.
            Err(error) if error.is_gone() => {}
            Err(error) => return Err(error.to_string()),
        }
    }
    let value = |file: ManagedFile| {
        let emptied = files.iter().any(|key| key.cgroup == cgroup && key.file == file);
        let text = if emptied { Ok(String::new()) } else { cpuset.read(file) };
        text.map(|text| (file, text)).map_err(|error| error.to_string())
    };
    let values = [value(ManagedFile::Mems)?, value(ManagedFile::Cpus)?];
    Ok(Some(Child { cgroup, cpuset, values }))
}

/// Gives the controller back that a crash left taken away; `None` when it is there.
///
/// The error names operation, path, value and cause.
pub(super) fn resume(tree: &CpusetTree, taken: &EntryKey) -> Result<Option<String>, String> {
    let control = ControllerSwitch::of(tree, &taken.cgroup)?;
    if control.0.inode() != taken.inode {
        return Ok(None);
    }
    let found = control.read()?;
    if found.split_ascii_whitespace().any(|controller| controller == "cpuset") {
        return Ok(None);
    }
    control.write("+cpuset")?;
    Ok(Some(found))
}

/// `cgroup.subtree_control` of one cgroup, the root included: opened beneath the root of the hierarchy and
/// through no symlink, as every cgroup that is written.
struct ControllerSwitch(OpenCpuset);

impl ControllerSwitch {
    fn of(tree: &CpusetTree, cgroup: &CgroupPath) -> Result<Self, String> {
        tree.open_or_root(cgroup).map(Self).map_err(|error| error.to_string())
    }

    fn read(&self) -> Result<String, String> {
        self.0.read(ManagedFile::SubtreeControl).map_err(|error| error.to_string())
    }

    fn write(&self, value: &str) -> Result<(), String> {
        self.0.write(ManagedFile::SubtreeControl, value).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;
    use crate::{fixture::Fixture, journal::fake_disk::FakeDisk};

    fn key(host: &Fixture, tree: &CpusetTree) -> EntryKey {
        let cgroup = CgroupPath::new("/top/a");
        let inode = tree.open(&cgroup).unwrap().inode();
        fs::write(host.path("/top").join("cgroup.subtree_control"), "cpuset memory\n").unwrap();
        EntryKey { cgroup, file: ManagedFile::Mems, inode }
    }

    #[test]
    fn siblings_get_their_values_back_and_leave_nothing_in_the_journal() {
        let host = Fixture::new(true);
        host.cgroup("/top/a", "2-3\n", "1\n");
        host.cgroup("/top/b", "0-1\n", "\n");
        let before = host.contents();
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let key = key(&host, &tree);
        let mut journal = host.journal();
        empty(&tree, &CgroupPath::new("/top"), &[&key], None, &mut journal).unwrap();
        // A plain file does not lose its text; what counts is that every value is written again.
        fs::remove_file(host.path("/top").join("cgroup.subtree_control")).unwrap();
        assert_eq!(host.contents(), before);
        assert!(journal.entries().is_empty());
        let written = fs::read_to_string(host.state_dir().join("journal")).unwrap();
        for file in ["/top/a\",\"file\":\"cpuset.cpus", "/top/b\",\"file\":\"cpuset.cpus"] {
            assert_eq!(written.matches(file).count(), 2, "{file}: recorded and closed\n{written}");
        }
    }

    #[test]
    fn a_parent_without_controllers_leaves_nothing_in_the_journal() {
        let host = Fixture::new(true);
        host.cgroup("/top/a", "2-3\n", "1\n");
        host.cgroup("/top/b", "0-1\n", "\n");
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let key = key(&host, &tree);
        let control = host.path("/top").join("cgroup.subtree_control");
        fs::remove_file(&control).unwrap();
        let mut journal = host.journal();
        empty(&tree, &CgroupPath::new("/top"), &[&key], None, &mut journal).unwrap_err();
        assert!(journal.entries().is_empty(), "{:?}", journal.entries());
    }

    #[test]
    fn a_partition_beside_it_is_not_touched() {
        let host = Fixture::new(true);
        host.cgroup("/top/a", "2-3\n", "1\n");
        host.cgroup("/top/b", "0-1\n", "0\n");
        fs::write(host.path("/top/b").join("cpuset.cpus.partition"), "root\n").unwrap();
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let key = key(&host, &tree);
        let mut journal = host.journal();
        let error = empty(&tree, &CgroupPath::new("/top"), &[&key], None, &mut journal).unwrap_err();
        assert!(error.contains("/top/b has cpuset.cpus.partition = root"), "{error}");
        assert_eq!(host.read("/top", "cgroup.subtree_control"), "cpuset memory\n");
        assert!(journal.entries().is_empty());
    }

    #[test]
    fn below_the_root_too_the_tasks_get_all_that_is_above() {
        let host = Fixture::new(true);
        host.cgroup("/db", "2-3\n", "1\n");
        for (file, text) in [
            ("cgroup.subtree_control", "cpuset memory\n"),
            ("cpuset.cpus.effective", "0-3\n"),
            ("cpuset.mems.effective", "0-1\n"),
        ] {
            fs::write(host.path("/").join(file), text).unwrap();
        }
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let cgroup = CgroupPath::new("/db");
        let inode = tree.open(&cgroup).unwrap().inode();
        let keys = [ManagedFile::Mems, ManagedFile::Cpus].map(|file| EntryKey {
            cgroup: cgroup.clone(),
            file,
            inode,
        });
        let mut journal = host.journal();
        empty(&tree, &CgroupPath::root(), &[&keys[0], &keys[1]], None, &mut journal).unwrap();
        // A plain file does not lose its text with the controller.
        assert_eq!([host.read("/db", "cpuset.mems"), host.read("/db", "cpuset.cpus")], ["0-1", "0-3"]);
        assert!(host.read("/", "cgroup.subtree_control").starts_with("+cpuset"));
        assert!(journal.entries().is_empty(), "{:?}", journal.entries());
    }

    #[test]
    fn a_full_disk_keeps_no_sibling_from_its_values_and_what_is_not_closed_can_be_recovered() {
        let mut given = 0;
        for room in (0..4096).step_by(64) {
            let host = Fixture::new(true);
            host.cgroup("/top/a", "\n", "1\n");
            host.cgroup("/top/b", "0-1\n", "\n");
            let sibling =
                fs::File::options().write(true).open(host.path("/top/b").join("cpuset.cpus")).unwrap();
            sibling.set_modified(UNIX_EPOCH).unwrap();
            let tree = CpusetTree::new(&host.layout.cpuset.path, true);
            let key = key(&host, &tree);
            let disk = FakeDisk::default();
            let mut journal = host.journal().appending_to(&disk);
            disk.leave_room(Some(room));
            let emptied = empty(&tree, &CgroupPath::new("/top"), &[&key], None, &mut journal);
            if !host.read("/top", "cgroup.subtree_control").starts_with("+cpuset") {
                assert!(emptied.is_err(), "room for {room}");
                continue;
            }
            given += usize::from(emptied.is_err());
            assert_ne!(sibling.metadata().unwrap().modified().unwrap(), UNIX_EPOCH, "room for {room}");
            let open: Vec<_> = journal.entries().keys().map(|key| key.file).collect();
            assert_eq!(
                open.contains(&ManagedFile::SubtreeControl),
                emptied.is_err(),
                "room for {room}: {open:?}"
            );
        }
        assert!(given > 2, "the disk was full when everything was to be closed");
    }
}
