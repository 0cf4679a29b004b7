//! `numa-enforcer restore`: puts back every original value that the journal holds.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, bail};
use enforcer_core::workload::{CgroupPath, identify};

use super::{Exit, args};
use crate::{
    enforce::{
        Journal,
        actuator::read_boot_id,
        brake::undo as brake,
        cpuset::CpusetTree,
        in_the_making,
        journal::{BrakeRecord, DriftRecord, Entry, EntryKey, MakingRecord, set_aside},
        restore::{RestoreReport, RestoreResult, Restored, preview, restore, restore_within, retain_within},
        units::{self as properties, Systemctl, UnitProperties, restore::Systemd},
    },
    host::{HostRoot, cgroup::CgroupLayout},
    report::{text, units},
};

/// Puts back what can be put back; what cannot is named, stays in the journal, and is an error.
pub(super) fn run(args: &args::Restore, out: &mut dyn Write) -> anyhow::Result<Exit> {
    check_state_dir(&args.state_dir)?;
    let mut contents = Journal::peek(&args.state_dir)?;
    let host = HostRoot::live();
    let left = left_behind(&host, &args.state_dir)?;
    for (key, entry) in &left {
        contents.entries.entry(key.clone()).or_insert_with(|| entry.clone());
    }
    let cgroups = || contents.entries.keys().map(|key| &key.cgroup);
    let top = args.workload.as_deref().map(|workload| cgroup_of(workload, cgroups())).transpose()?;
    if let Some(top) = &top {
        retain_within(&mut contents.entries, top);
    }
    let brakes = BrakeRecord::read(&args.state_dir)?;
    if let Some(cut) = &contents.torn {
        let (path, cut) = (args.state_dir.join("journal"), text::escape(cut));
        writeln!(out, "{}: a daemon ended before it did what its last line says: {cut}", path.display())?;
    }
    if contents.entries.is_empty() && contents.damaged.is_empty() && brakes.is_empty() {
        if let Some(top) = &top {
            check_cgroup(top)?;
        }
        let kept = kept(&args.state_dir, out)?;
        writeln!(out, "nothing to put back in {}", args.state_dir.display())?;
        return Ok(if kept { Exit::Undetermined } else { Exit::Ok });
    }
    let tree = tree(&host)?;
    let report = if args.dry_run {
        let boot_id = read_boot_id(&host);
        let of_units = with_systemd(&host, |systemd| {
            properties::restore::preview(systemd, boot_id.as_deref(), &contents)
        });
        let slowed = brake::preview(&tree, boot_id.as_deref(), &args.state_dir, top.as_ref())?;
        slowed.and(of_units).and(preview(&tree, boot_id.as_deref(), &contents))
    } else {
        let mut journal = Journal::open(&args.state_dir)?;
        DriftRecord::remove(&args.state_dir)?;
        take_over(&mut journal, left, &args.state_dir)?;
        // Before anything that may take long.
        let boot_id = read_boot_id(&host);
        let slowed = brake::undo(&tree, boot_id.as_deref(), &args.state_dir, top.as_ref())?;
        slowed.and(put_back(&host, &tree, &mut journal, top.as_ref()))
    };
    end(&report, args.dry_run, &args.state_dir, out)
}

/// A cgroup by its path, or by what reports call it.
fn cgroup_of<'a>(
    workload: &str,
    cgroups: impl Iterator<Item = &'a CgroupPath>,
) -> anyhow::Result<CgroupPath> {
    let path = CgroupPath::new(workload);
    if workload.starts_with('/') {
        return Ok(path);
    }
    let called = |cgroup: &&CgroupPath| {
        identify(cgroup).name == workload || cgroup.as_str().rsplit('/').next() == Some(workload)
    };
    let found: BTreeSet<&CgroupPath> = cgroups.filter(called).collect();
    let mut paths = found.iter().map(|path| path.as_str());
    match (paths.next(), paths.next()) {
        (Some(one), None) => Ok(CgroupPath::new(one)),
        (Some(one), Some(other)) => {
            bail!("{workload}: {one} and {other} are both called so: name one by its path")
        }
        (None, _) => Ok(path),
    }
}

/// Of containers whose runtime had its answer from a daemon that was killed before it could journal them.
fn left_behind(host: &HostRoot, state_dir: &Path) -> anyhow::Result<BTreeMap<EntryKey, Entry>> {
    if MakingRecord::left(state_dir)?.is_empty() {
        return Ok(BTreeMap::new());
    }
    Ok(in_the_making::left_behind(&tree(host)?, read_boot_id(host).as_deref(), state_dir)?)
}

/// Has the journal hold them. Those that have not come to be stay in the record: they may yet.
fn take_over(journal: &mut Journal, left: BTreeMap<EntryKey, Entry>, state_dir: &Path) -> anyhow::Result<()> {
    if left.is_empty() {
        return Ok(());
    }
    let taken: BTreeSet<CgroupPath> = left.keys().map(|key| key.cgroup.clone()).collect();
    journal.record_all(left.into_iter().collect())?;
    let (mut record, all) = MakingRecord::open(state_dir)?;
    Ok(record.keep(all.iter().filter(|(cgroup, _)| !taken.contains(*cgroup)))?)
}

/// Names the damaged journals that were set aside, of which nobody knows whether all that they say is put back; are
/// there any?
fn kept(state_dir: &Path, out: &mut dyn Write) -> anyhow::Result<bool> {
    let kept = set_aside(state_dir)?;
    for path in &kept {
        let path = path.to_string_lossy();
        writeln!(
            out,
            "{}: a damaged journal; what cannot be read of it is not put back: see what it says, then remove it",
            text::escape(&path)
        )?;
    }
    Ok(!kept.is_empty())
}

fn end(report: &RestoreReport, dry_run: bool, state_dir: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let kept = kept(state_dir, out)?;
    print(report, dry_run, out)?;
    Ok(if report.is_complete() && !kept { Exit::Ok } else { Exit::Undetermined })
}

/// Where no daemon ever ran there is no directory, and nothing to put back. One that somebody names is there, or it is another.
fn check_state_dir(path: &Path) -> anyhow::Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => bail!("{}: not a directory", path.display()),
        Err(error) if error.kind() == io::ErrorKind::NotFound && path == args::default_state_dir() => Ok(()),
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        Ok(_) => Ok(()),
    }
}

/// Of a cgroup that is not there, and never was set, nothing can be said to be as it was: its name may be another one.
fn check_cgroup(cgroup: &CgroupPath) -> anyhow::Result<()> {
    let path = tree(&HostRoot::live())?.path_of(cgroup);
    fs::metadata(&path).map(drop).with_context(|| {
        format!("{}: there is no such cgroup, and nothing to put back of one", path.display())
    })
}

/// What a daemon does that was to restore when it ends.
pub(super) fn everything(host: &HostRoot, state_dir: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    everything_in(host, &tree(host)?, state_dir, out)
}

fn everything_in(
    host: &HostRoot,
    tree: &CpusetTree,
    state_dir: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let mut journal = Journal::open(state_dir)?;
    DriftRecord::remove(state_dir)?;
    let left = in_the_making::left_behind(tree, read_boot_id(host).as_deref(), state_dir)?;
    take_over(&mut journal, left, state_dir)?;
    let report = put_back(host, tree, &mut journal, None);
    end(&report, false, state_dir, out)
}

/// Properties of units first: what systemd makes of the files is seen when these are put back.
fn put_back(
    host: &HostRoot,
    tree: &CpusetTree,
    journal: &mut Journal,
    top: Option<&CgroupPath>,
) -> RestoreReport {
    let boot_id = read_boot_id(host);
    let boot_id = boot_id.as_deref();
    let of_units = with_systemd(host, |systemd| properties::restore::restore(systemd, boot_id, journal, top));
    of_units.and(match top {
        Some(top) => restore_within(tree, boot_id, journal, top),
        None => restore(tree, boot_id, journal),
    })
}

fn with_systemd<T>(host: &HostRoot, ask: impl FnOnce(Systemd<'_>) -> T) -> T {
    let found = Systemctl::of_host(host).and_then(|found| found.ok_or("process 1 is not systemd".into()));
    ask(found.as_ref().map(|found| found as &dyn UnitProperties).map_err(String::as_str))
}

fn tree(host: &HostRoot) -> anyhow::Result<CpusetTree> {
    let layout = CgroupLayout::read(host)?;
    Ok(CpusetTree::new(&layout.cpuset.path, layout.cpuset.v2))
}

fn print(report: &RestoreReport, dry_run: bool, out: &mut dyn Write) -> std::io::Result<()> {
    for file in &report.files {
        writeln!(out, "{}", outcome(file))?;
    }
    for line in &report.damaged {
        writeln!(out, "line that cannot be read: {}", text::escape(line))?;
    }
    let changes = |file: &&Restored| {
        matches!(file.result, RestoreResult::PutBack { .. } | RestoreResult::WouldPutBack { .. })
    };
    let files = units::count(report.files.iter().filter(changes).count(), "file");
    if dry_run {
        writeln!(out, "{files} to put back; nothing was written")
    } else {
        writeln!(out, "{files} put back")
    }
}

fn outcome(file: &Restored) -> String {
    let name = format!("{} {}", text::escape(file.cgroup.as_str()), file.file.name());
    let original = shown(&file.original);
    match &file.result {
        RestoreResult::PutBack { from } | RestoreResult::WouldPutBack { from } => {
            format!("{name}: `{}` -> `{original}`", shown(from))
        }
        RestoreResult::Unchanged => format!("{name}: holds `{original}` already"),
        RestoreResult::Skipped { reason } => format!("{name}: skipped: {}", text::escape(reason)),
        RestoreResult::Failed { error } => {
            format!("{name}: could not put back `{original}`: {}", text::escape(error))
        }
    }
}

/// The text of a cpuset file without its newline.
fn shown(value: &str) -> String {
    text::escape(value.trim_end_matches('\n')).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::enforce::fixture::Fixture;

    #[test]
    fn who_is_being_made_is_put_back_when_it_is_there_and_remembered_when_it_is_not() {
        let host = Fixture::new(true);
        drop(host.journal());
        let (mut record, _) = MakingRecord::open(&host.state_dir()).unwrap();
        let original = enforcer_core::place::Cpuset { cpus: "0-6".parse().ok(), mems: None };
        for cgroup in ["/there", "/not-yet"] {
            record.add(&CgroupPath::new(cgroup), &original).unwrap();
        }
        host.cgroup("/there", "0-1\n", "0\n");
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let mut out = Vec::new();
        let exit = everything_in(&host.host(), &tree, &host.state_dir(), &mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert!(matches!(exit, Exit::Ok), "{out}");
        assert!(out.contains("/there cpuset.cpus: `0-1` -> `0-6`"), "{out}");
        assert_eq!(host.read("/there", "cpuset.cpus").trim(), "0-6");
        let left = MakingRecord::left(&host.state_dir()).unwrap();
        assert_eq!(left.keys().map(CgroupPath::as_str).collect::<Vec<_>>(), ["/not-yet"]);
    }

    #[test]
    fn a_workload_is_named_by_its_path_or_as_reports_do() {
        let there = ["/system.slice/db.service", "/jobs/a", "/other/a", "/jobs/b"].map(CgroupPath::new);
        for (workload, expected) in [
            ("/jobs/a", Ok("/jobs/a")),
            ("db.service", Ok("/system.slice/db.service")),
            ("b", Ok("/jobs/b")),
            ("jobs/b", Ok("/jobs/b")),
            ("gone", Ok("/gone")),
            ("a", Err("a: /jobs/a and /other/a are both called so: name one by its path")),
        ] {
            let found = cgroup_of(workload, there.iter()).map_err(|error| error.to_string());
            assert_eq!(found, expected.map(CgroupPath::new).map_err(str::to_owned));
        }
    }
}
