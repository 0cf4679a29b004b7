//! Releases workloads that stayed slowed down because the daemon and its watching process were both killed.
//!
//! It uses the record alone ([`BrakeRecord`]): a file is restored if its cgroup is the same one, the boot is
//! the same, and the file still holds what the brake set. Any other value is from another program. A line
//! that cannot be read is reported and set aside for an administrator.

use std::path::Path;

use enforcer_core::workload::CgroupPath;

use crate::{
    cpuset::{CpusetTree, OpenCpuset},
    journal::{BrakeRecord, JournalError, RecordedBrake, RecordedBrakes},
    restore::{Life, RestoreReport, RestoreResult, Restored, skipped},
};

/// Releases the recorded workloads, or only those of one cgroup and below, and drops the released ones from
/// the record. The caller holds the journal's lock.
pub fn undo(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    state_dir: &Path,
    top: Option<&CgroupPath>,
) -> Result<RestoreReport, JournalError> {
    let report = visit_recorded(tree, boot_id, state_dir, top, &put_back)?;
    let RecordedBrakes { slowed: left, damaged } = BrakeRecord::read(state_dir)?;
    if left.is_empty() && damaged.is_empty() {
        return Ok(report);
    }
    // It sets aside what is damaged.
    let mut record = BrakeRecord::open(state_dir)?;
    let is_stuck = |brake: &RecordedBrake| {
        let failed = |one: &&Restored| matches!(one.result, RestoreResult::Failed { .. });
        let ours = |one: &Restored| one.cgroup == brake.cgroup && one.file == brake.file;
        !is_within(brake, top) || report.files.iter().filter(failed).any(ours)
    };
    if left.iter().any(is_stuck) {
        left.iter().filter(|brake| !is_stuck(brake)).try_for_each(|brake| record.released(brake.id))?;
    } else {
        record.clear()?;
    }
    Ok(report)
}

/// Reports what [`undo`] would do.
pub fn preview(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    state_dir: &Path,
    top: Option<&CgroupPath>,
) -> Result<RestoreReport, JournalError> {
    let would =
        |_: &RecordedBrake, _: &OpenCpuset, found: String| RestoreResult::WouldPutBack { from: found };
    visit_recorded(tree, boot_id, state_dir, top, &would)
}

type Then<'a> = &'a dyn Fn(&RecordedBrake, &OpenCpuset, String) -> RestoreResult;

fn is_within(brake: &RecordedBrake, top: Option<&CgroupPath>) -> bool {
    top.is_none_or(|top| brake.cgroup.is_within(top))
}

fn visit_recorded(
    tree: &CpusetTree,
    boot_id: Option<&str>,
    state_dir: &Path,
    top: Option<&CgroupPath>,
    then: Then<'_>,
) -> Result<RestoreReport, JournalError> {
    let RecordedBrakes { slowed, damaged } = BrakeRecord::read(state_dir)?;
    let files = slowed.iter().filter(|brake| is_within(brake, top)).map(|brake| Restored {
        cgroup: brake.cgroup.clone(),
        file: brake.file,
        original: brake.original.clone(),
        result: result(tree, boot_id, brake, then),
    });
    Ok(RestoreReport { files: files.collect(), damaged, ..RestoreReport::default() })
}

fn result(tree: &CpusetTree, boot_id: Option<&str>, brake: &RecordedBrake, then: Then<'_>) -> RestoreResult {
    let life = Life { cgroup: &brake.cgroup, inode: brake.inode, boot_id: brake.boot_id.as_deref() };
    let cpuset = match life.open(tree, boot_id) {
        Ok(cpuset) => cpuset,
        Err(result) => return result,
    };
    match cpuset.read(brake.file) {
        Ok(found) if found.trim() == brake.set => then(brake, &cpuset, found),
        Ok(found) if found.trim() == brake.original.trim() => RestoreResult::Unchanged,
        Ok(_) => skipped("another program has set it since"),
        Err(error) if error.is_gone() => skipped("the cgroup is gone"),
        Err(error) => RestoreResult::Failed { error: error.to_string() },
    }
}

fn put_back(brake: &RecordedBrake, cpuset: &OpenCpuset, found: String) -> RestoreResult {
    let now = cpuset.write(brake.file, &brake.original).and_then(|()| cpuset.read(brake.file));
    match now {
        Ok(now) if now.trim() == brake.original.trim() => RestoreResult::PutBack { from: found },
        Ok(now) => RestoreResult::Failed { error: format!("{} reads {now:?} afterwards", brake.file.name()) },
        Err(error) => RestoreResult::Failed { error: error.to_string() },
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::{cpuset::ManagedFile, fixture::Fixture, journal::set_aside};

    /// A cgroup that was frozen and a record of it.
    fn frozen(fixture: &Fixture, path: &str, id: u64) -> RecordedBrake {
        fixture.cgroup(path, "0-3", "0\n");
        fs::write(fixture.path(path).join("cgroup.freeze"), "1\n").unwrap();
        let tree = CpusetTree::new(&fixture.layout.cpuset.path, true);
        let cgroup = CgroupPath::new(path);
        RecordedBrake {
            id,
            inode: tree.open(&cgroup).unwrap().inode(),
            cgroup,
            file: ManagedFile::Freeze,
            set: "1".into(),
            original: "0\n".into(),
            boot_id: Some("boot-1".into()),
        }
    }

    #[test]
    fn only_what_still_holds_what_was_set_is_put_back() {
        let fixture = Fixture::new(true);
        let (state, tree) = (fixture.state_dir(), CpusetTree::new(&fixture.layout.cpuset.path, true));
        drop(fixture.journal());
        let ours = frozen(&fixture, "/ours", 1);
        let again = RecordedBrake { inode: 1, ..frozen(&fixture, "/again", 2) };
        let other = RecordedBrake { boot_id: Some("boot-0".into()), ..frozen(&fixture, "/other", 3) };
        let gone = RecordedBrake { cgroup: CgroupPath::new("/gone"), id: 4, ..ours.clone() };
        let high = RecordedBrake {
            file: ManagedFile::High,
            set: "1048576".into(),
            original: "max\n".into(),
            ..frozen(&fixture, "/high", 5)
        };
        fs::write(fixture.path("/high").join("memory.high"), "2097152\n").unwrap();
        let mut record = BrakeRecord::open(&state).unwrap();
        for brake in [&ours, &again, &other, &gone, &high] {
            record.slowed(brake).unwrap();
        }
        let boot = Some("boot-1");
        let said = |report: &RestoreReport| -> Vec<String> {
            let one = |one: &Restored| match &one.result {
                RestoreResult::Skipped { reason } => format!("{}: {reason}", one.cgroup),
                result => format!("{}: {result:?}", one.cgroup),
            };
            report.files.iter().map(one).collect()
        };
        let rest = [
            "/again: the cgroup was removed and made again",
            "/other: the host has been started again since",
            "/gone: the cgroup is gone",
            "/high: another program has set it since",
        ];
        let seen = said(&preview(&tree, boot, &state, None).unwrap());
        assert_eq!(
            (seen[0].as_str(), &seen[1..]),
            ("/ours: WouldPutBack { from: \"1\\n\" }", &rest.map(str::to_owned)[..])
        );
        let within = CgroupPath::new("/high");
        assert_eq!(said(&undo(&tree, boot, &state, Some(&within)).unwrap()), rest[3..]);
        let seen = said(&undo(&tree, boot, &state, None).unwrap());
        assert_eq!(
            (seen[0].as_str(), &seen[1..]),
            ("/ours: PutBack { from: \"1\\n\" }", &rest.map(str::to_owned)[..3])
        );
        assert_eq!(fixture.read("/ours", "cgroup.freeze"), "0\n");
        for path in ["/again", "/other"] {
            assert_eq!(fixture.read(path, "cgroup.freeze"), "1\n", "{path}");
        }
        assert_eq!(undo(&tree, boot, &state, None).unwrap(), RestoreReport::default(), "all is forgotten");
    }

    #[test]
    fn a_line_that_cannot_be_trusted_is_told_and_kept_while_the_others_are_released() {
        let fixture = Fixture::new(true);
        let (state, tree) = (fixture.state_dir(), CpusetTree::new(&fixture.layout.cpuset.path, true));
        drop(fixture.journal());
        BrakeRecord::open(&state).unwrap().slowed(&frozen(&fixture, "/a", 1)).unwrap();
        let path = state.join("brakes");
        let text = fs::read_to_string(&path).unwrap();
        BrakeRecord::open(&state).unwrap().slowed(&frozen(&fixture, "/b", 2)).unwrap();
        let both = fs::read_to_string(&path).unwrap();
        fs::write(&path, both.replacen("\"/a\"", "\"/x\"", 1)).unwrap();
        let boot = Some("boot-1");
        for report in [preview(&tree, boot, &state, None), undo(&tree, boot, &state, None)] {
            let report = report.unwrap();
            assert!(!report.is_complete() && report.damaged.len() == 1, "{report:?}");
            assert!(report.damaged[0].contains("brakes") && report.files.len() == 1, "{report:?}");
        }
        let freeze = |path| fixture.read(path, "cgroup.freeze");
        assert_eq!((freeze("/a"), freeze("/b")), ("1\n".into(), "0\n".into()));
        let again = undo(&tree, boot, &state, None).unwrap();
        assert_eq!(again, RestoreReport::default());
        assert_eq!(set_aside(&state).unwrap(), [state.join("brakes.damaged")], "until that file is removed");
        // A line that was cut is of a brake that did not take hold.
        fs::write(&path, format!("{both}{}", &text[..20])).unwrap();
        assert!(undo(&tree, boot, &state, None).unwrap().is_complete());
        assert_eq!(freeze("/a"), "0\n");
        assert_eq!(fs::read_to_string(&path).unwrap(), "", "all is forgotten");
    }
}
