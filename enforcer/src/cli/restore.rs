//! `numa-enforcer restore`: restores every original value in the journal.

mod named;

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    io::{self, Write},
    path::Path,
};

use anyhow::{Context, bail};
use enforcer_core::{
    policy::{KubeletSettings, Policy},
    workload::CgroupPath,
};

use self::named::{RestoreTarget, named};
use super::{Exit, args, config_file, terminal, wanted_now};
use enforcer_act::{
    Journal,
    actuator::read_boot_id,
    brake::undo as brake,
    cpuset::{CpusetTree, ManagedFile},
    in_the_making::{LeftBehind, left_behind, renewed},
    journal::{
        BrakeRecord, DriftRecord, Entry, EntryKey, JournalError, KeptLines, LeftMaking, LeftPins,
        MakingRecord, NotedPins, PinsRecord, set_aside,
    },
    pins,
    restore::{RestoreReport, RestoreResult, Restored, preview, restore, restore_within, retain_within},
    units::{self as properties, UnitProperties, restore::SystemdOrReason},
};
use enforcer_host::{HostRoot, cgroup::CgroupLayout, systemd::Systemd};
use enforcer_kernel::clock;
use enforcer_report::{text, units};

/// Restores what can be restored. The rest is named, stays in the journal, and makes the command fail.
pub(super) fn run(args: &args::Restore, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let policy = config_file::read(args.config.as_deref())?.unwrap_or_default();
    let Policy { state_dir: configured, kubelet: kubelet_settings, .. } = &policy;
    let state_dir = args.state_dir.as_ref().unwrap_or(configured);
    terminal::warn_on_stderr();
    check_state_dir(state_dir, args.state_dir.is_some())?;
    let mut contents = Journal::peek(state_dir)?;
    let host = HostRoot::live();
    // Read first: later steps may take long.
    let boot_id = read_boot_id(&host);
    let boot_id = boot_id.as_deref();
    let left = match MakingRecord::left(state_dir, boot_id) {
        Ok(left) if left.is_empty() => LeftBehind::default(),
        left => of_making(&tree(&host)?, boot_id, left),
    };
    for (key, entry) in &left.entries {
        contents.entries.entry(key.clone()).or_insert_with(|| entry.clone());
    }
    contents.entries.extend(renewed(&contents.entries, &left.renewed));
    let brakes = BrakeRecord::read(state_dir);
    let slowed = brakes.iter().flat_map(|brakes| brakes.slowed.iter()).map(|brake| &brake.cgroup);
    let noted = PinsRecord::left(state_dir, boot_id).pins;
    let of_journal = contents.entries.keys().map(|key| &key.cgroup);
    let cgroups: BTreeSet<&CgroupPath> =
        of_journal.chain(left.awaited.keys()).chain(slowed).chain(noted.keys()).collect();
    let cgroups: Vec<&CgroupPath> = cgroups.into_iter().collect();
    let exists = |cgroup: &CgroupPath| check_cgroup(cgroup).is_ok();
    let workload = args.workload.as_deref();
    let top = match workload.map(|typed| named(typed, &cgroups, &policy, exists)).transpose()? {
        None => None,
        Some(RestoreTarget::Cgroup(top)) => Some(top),
        Some(RestoreTarget::Path(top)) => {
            check_cgroup(&top)?;
            Some(top)
        }
        Some(RestoreTarget::Unset) if contents.damaged.is_empty() && of_left(&left, None).is_complete() => {
            return nothing_to_put_back(args, state_dir, out);
        }
        Some(RestoreTarget::Unset) => bail!(
            "restore {}: the journal in {} has nothing of it, and lines that cannot be read: restore without a \
             name shows them",
            workload.unwrap_or_default(),
            state_dir.display()
        ),
    };
    if let Some(top) = &top {
        retain_within(&mut contents.entries, top);
    }
    if let Some(cut) = &contents.torn {
        let (path, cut) = (state_dir.join("journal"), text::escape(cut));
        writeln!(out, "{}: a daemon ended before it did what its last line says: {cut}", path.display())?;
    }
    if let Some(zeros) = contents.behind_the_last_line() {
        writeln!(out, "{}: {zeros}", state_dir.join("journal").display())?;
    }
    let none_is_slowed = brakes.is_ok_and(|brakes| brakes.is_empty());
    let said = of_left(&left, top.as_ref());
    if contents.entries.is_empty()
        && contents.damaged.is_empty()
        && said == RestoreReport::default()
        && none_is_slowed
    {
        return nothing_to_put_back(args, state_dir, out);
    }
    let tree = tree(&host)?;
    let report = if args.dry_run {
        beside(state_dir, out)?;
        let (kubelet, unread) = wanted_now::ask_kubelet(contents.entries.keys(), kubelet_settings);
        let now = wanted_now::changed(&contents.entries, &kubelet);
        contents.entries.extend(now);
        let of_units =
            with_systemd(&host, |systemd| properties::restore::preview(systemd, boot_id, &contents));
        let slowed = usable(brake::preview(&tree, boot_id, state_dir, top.as_ref()));
        said.and(unread).and(slowed).and(of_units).and(preview(&tree, boot_id, &contents))
    } else {
        let mut journal = Journal::open(state_dir)?;
        let begun = begin(&mut journal, &left, boot_id, state_dir);
        let begun = begun.and(take_pins(&tree, &mut journal, boot_id, state_dir, top.as_ref()));
        let slowed = usable(brake::undo(&tree, boot_id, state_dir, top.as_ref()));
        said.and(begun).and(slowed).and(put_back(&host, &tree, &mut journal, top.as_ref(), kubelet_settings))
    };
    end(&report, args.dry_run, state_dir, out)
}

/// Ends a restore without entries. It fails if a daemon may write in the next moment.
fn nothing_to_put_back(args: &args::Restore, state_dir: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let kept = kept(state_dir, out)?;
    let held = beside(state_dir, out)?;
    let of = args.workload.as_ref().map_or_else(String::new, |workload| format!(" of {workload}"));
    writeln!(out, "nothing to put back{} in {}", text::escape(&of), state_dir.display())?;
    Ok(if kept || (held && !args.dry_run) { Exit::Undetermined } else { Exit::Ok })
}

/// Reports on pending containers of a daemon that was killed before it could journal them.
fn of_making(tree: &CpusetTree, boot_id: Option<&str>, left: Result<LeftMaking, JournalError>) -> LeftBehind {
    match left {
        Ok(left) => left_behind(tree, boot_id, left, clock::now_ns()),
        Err(error) => LeftBehind { unusable: vec![error.to_string()], ..LeftBehind::default() },
    }
}

/// The report on these only.
fn of_left(left: &LeftBehind, top: Option<&CgroupPath>) -> RestoreReport {
    let awaited = left.awaited.keys().filter(|cgroup| top.is_none_or(|top| cgroup.is_within(top)));
    let (damaged, unusable) = (left.damaged.clone(), left.unusable.clone());
    RestoreReport { damaged, awaited: awaited.cloned().collect(), unusable, ..RestoreReport::default() }
}

/// An unusable record beside the journal does not block the rest of the restore.
fn usable(result: Result<RestoreReport, JournalError>) -> RestoreReport {
    result.unwrap_or_else(|error| RestoreReport {
        unusable: vec![error.to_string()],
        ..RestoreReport::default()
    })
}

/// Journals what only the records beside it know.
fn begin(journal: &mut Journal, left: &LeftBehind, boot_id: Option<&str>, state_dir: &Path) -> RestoreReport {
    let nothing = |()| RestoreReport::default();
    let forgotten = usable(DriftRecord::remove(state_dir).map(nothing));
    let mut taken = usable(take_over(journal, left, boot_id, state_dir).map(nothing));
    if !taken.is_complete() {
        let cgroups: BTreeSet<&CgroupPath> = left.entries.keys().map(|key| &key.cgroup).collect();
        let not_taken = cgroups.into_iter().filter(|cgroup| !journal.has_set(cgroup));
        taken.unusable.extend(not_taken.map(|cgroup| format!("{cgroup} is not put back because of that")));
    }
    forgotten.and(taken)
}

/// Journals the containers that exist. Others stay in the record: they may still be created, or become
/// readable.
fn take_over(
    journal: &mut Journal,
    left: &LeftBehind,
    boot_id: Option<&str>,
    state_dir: &Path,
) -> Result<(), JournalError> {
    if left.entries.is_empty() && left.renewed.is_empty() && left.damaged.is_empty() {
        return Ok(());
    }
    journal.record_all(left.entries.clone().into_iter().collect())?;
    journal.renew_all(renewed(journal.entries(), &left.renewed))?;
    let (mut record, _) = MakingRecord::open(state_dir, boot_id)?;
    record.keep(left.awaited.iter().chain(&left.unseen))
}

/// Journals thread pins recorded by a daemon that was killed after its answer, for cgroups with entries. With
/// `top` the other cgroups stay in the record; all stay while a cgroup cannot be read.
fn take_pins(
    tree: &CpusetTree,
    journal: &mut Journal,
    boot_id: Option<&str>,
    state_dir: &Path,
    top: Option<&CgroupPath>,
) -> RestoreReport {
    let LeftPins { pins, unread, .. } = PinsRecord::open(state_dir, boot_id);
    let mut take = |(cgroup, noted): (&CgroupPath, &NotedPins)| {
        let taken = match tree.open(cgroup) {
            // An ended container has no pins to lose.
            Err(error) if error.is_gone() || error.is_never() => Ok(()),
            Err(error) => Err(error.to_string()),
            Ok(cpuset) => {
                let key = EntryKey { cgroup: cgroup.clone(), file: ManagedFile::Cpus, inode: cpuset.inode() };
                pins::record(journal, &key, &noted.before).map_err(|error| error.to_string())
            }
        };
        taken.err().map(|error| {
            format!("where threads of {cgroup} had pinned themselves is not given back: {error}")
        })
    };
    let mut failed: Vec<String> = pins.iter().filter_map(&mut take).collect();
    // A file that is no record stays where it is.
    let is_usable = unread.is_empty() || !pins.is_empty();
    if top.is_none() && failed.is_empty() && is_usable {
        failed.extend(PinsRecord::remove(state_dir).err().map(|error| error.to_string()));
    }
    let unusable = unread.into_iter().chain(failed).collect();
    RestoreReport { unusable, ..RestoreReport::default() }
}

/// Reports whether a daemon holds the journal, and prints that what it sets is not put back.
fn beside(state_dir: &Path, out: &mut dyn Write) -> anyhow::Result<bool> {
    match Journal::check_free(state_dir) {
        Err(held @ JournalError::Held { .. }) => {
            let held = held.to_string();
            writeln!(out, "{}: what it sets while it runs is not put back", text::escape(&held))?;
            Ok(true)
        }
        free => Ok(free.map(|()| false)?),
    }
}

/// Names damaged journals and records that were set aside, because they may hold values that were not
/// restored. Returns whether there are any.
fn kept(state_dir: &Path, out: &mut dyn Write) -> anyhow::Result<bool> {
    let kept = set_aside(state_dir)?;
    for path in &kept {
        writeln!(out, "{}: {}", text::escape(&path.to_string_lossy()), remedy(path))?;
    }
    Ok(!kept.is_empty())
}

/// What an administrator does about a file that was set aside (docs/faq.md, "Lines that cannot be read").
fn remedy(kept: &Path) -> String {
    match KeptLines::of(kept) {
        KeptLines::Readable => {
            // `journal` of `journal.damaged.2`.
            let name = kept.file_name().unwrap_or_default().to_string_lossy();
            let name = name.split('.').next().unwrap_or_default();
            format!(
                "an older numa-enforcer has set it aside, and this one reads it: with the daemon stopped, move it to \
                 {name}, and restore again"
            )
        }
        KeptLines::Newer => {
            "it is of a newer numa-enforcer: restore with that version, and keep it until then".into()
        }
        KeptLines::Damaged => {
            "it is damaged; what cannot be read of it is not put back: see what it says, then remove it"
                .into()
        }
    }
}

fn end(report: &RestoreReport, dry_run: bool, state_dir: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let kept = kept(state_dir, out)?;
    print(report, dry_run, out)?;
    Ok(if report.is_complete() && !kept { Exit::Ok } else { Exit::Undetermined })
}

/// Without a daemon there is no directory, and nothing to restore. A directory named by `--state-dir` must
/// exist, or the name is wrong.
fn check_state_dir(path: &Path, is_typed: bool) -> anyhow::Result<()> {
    match fs::metadata(path) {
        Ok(found) if !found.is_dir() => bail!("{}: not a directory", path.display()),
        Err(error)
            if error.kind() == io::ErrorKind::NotFound
                && (!is_typed || path == args::default_state_dir()) =>
        {
            Ok(())
        }
        Err(error) => Err(error).with_context(|| format!("reading {}", path.display())),
        Ok(_) => Ok(()),
    }
}

/// Fails for an unknown cgroup without entries: the name may be wrong.
fn check_cgroup(cgroup: &CgroupPath) -> anyhow::Result<()> {
    let path = tree(&HostRoot::live())?.path_of(cgroup);
    fs::metadata(&path).map(drop).with_context(|| {
        format!("{}: there is no such cgroup, and nothing to put back of one", path.display())
    })
}

/// Restores everything when a daemon with `--restore-on-exit` ends.
pub(super) fn everything(
    host: &HostRoot,
    state_dir: &Path,
    kubelet: &KubeletSettings,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    everything_in(host, &tree(host)?, state_dir, kubelet, out)
}

fn everything_in(
    host: &HostRoot,
    tree: &CpusetTree,
    state_dir: &Path,
    kubelet: &KubeletSettings,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let boot_id = read_boot_id(host);
    let boot_id = boot_id.as_deref();
    let mut journal = Journal::open(state_dir)?;
    let left = of_making(tree, boot_id, MakingRecord::left(state_dir, boot_id));
    let begun = begin(&mut journal, &left, boot_id, state_dir);
    let begun = begun.and(take_pins(tree, &mut journal, boot_id, state_dir, None));
    let report = of_left(&left, None).and(begun).and(put_back(host, tree, &mut journal, None, kubelet));
    end(&report, false, state_dir, out)
}

/// Properties of units first: restoring the files shows what systemd makes of them.
fn put_back(
    host: &HostRoot,
    tree: &CpusetTree,
    journal: &mut Journal,
    top: Option<&CgroupPath>,
    kubelet: &KubeletSettings,
) -> RestoreReport {
    let boot_id = read_boot_id(host);
    let boot_id = boot_id.as_deref();
    let renewed = usable(wanted_now::renew(journal, kubelet, top));
    let guessed = if renewed.is_complete() { BTreeMap::new() } else { journal.entries().clone() };
    let of_units = with_systemd(host, |systemd| properties::restore::restore(systemd, boot_id, journal, top));
    let files = match top {
        Some(top) => restore_within(tree, boot_id, journal, top),
        None => restore(tree, boot_id, journal),
    };
    let kept = keep_guessed(journal, guessed, &files);
    renewed.and(of_units).and(files).and(kept)
}

/// Where the kubelet's wishes are unknown, restored containers stay in the journal: a later restore that can
/// read its state gives them the right cpusets.
fn keep_guessed(
    journal: &mut Journal,
    mut guessed: BTreeMap<EntryKey, Entry>,
    files: &RestoreReport,
) -> RestoreReport {
    let is_there = |key: &EntryKey| {
        let of_it = |file: &&Restored| file.cgroup == key.cgroup && file.file == key.file;
        let result = files.files.iter().find(of_it).map(|file| &file.result);
        result.is_some_and(|result| !matches!(result, RestoreResult::Skipped { .. }))
    };
    guessed.retain(|key, _| wanted_now::is_of_kubelet(key) && is_there(key));
    usable(journal.record_all(guessed.into_iter().collect()).map(|()| RestoreReport::default()))
}

fn with_systemd<T>(host: &HostRoot, ask: impl FnOnce(SystemdOrReason<'_>) -> T) -> T {
    let found = Systemd::of_host(host).and_then(|found| found.ok_or(properties::restore::NO_SYSTEMD.into()));
    ask(found.as_ref().map(|found| found as &dyn UnitProperties).map_err(String::as_str))
}

fn tree(host: &HostRoot) -> anyhow::Result<CpusetTree> {
    let layout = CgroupLayout::read(host)?;
    Ok(CpusetTree::new(&layout.cpuset.path, layout.cpuset.v2).with_processes(&host.proc))
}

fn print(report: &RestoreReport, dry_run: bool, out: &mut dyn Write) -> std::io::Result<()> {
    for file in &report.files {
        writeln!(out, "{}", outcome(file))?;
    }
    for line in &report.damaged {
        writeln!(out, "line that cannot be read: {}", text::escape(line))?;
    }
    for error in &report.unusable {
        writeln!(out, "{}", text::escape(error))?;
    }
    for loss in &report.lost {
        writeln!(out, "cannot be given back: {}", text::escape(loss))?;
    }
    for cgroup in &report.awaited {
        writeln!(
            out,
            "{cgroup}: a container is being made there with what its runtime was told: restore again once it runs"
        )?;
    }
    let changes = |file: &&Restored| {
        matches!(
            file.result,
            RestoreResult::PutBack { .. }
                | RestoreResult::Widened { .. }
                | RestoreResult::WouldPutBack { .. }
        )
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
        RestoreResult::Widened { from, to, reason } => format!(
            "{name}: `{}` -> `{to}`, which is all that the cgroup above it has; it cannot be empty while it has \
             tasks: {}",
            shown(from),
            text::escape(reason)
        ),
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
    use enforcer_act::{fixture::Fixture, journal::Made};

    fn made(told_ns: u64) -> Made {
        let original = enforcer_core::hosted::Cpuset { cpus: "0-6".parse().ok(), mems: None };
        Made { original, renews: false, granted: None, boot_id: None, told_ns }
    }

    fn restored(host: &Fixture) -> (Exit, String) {
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let mut out = Vec::new();
        let exit = {
            let off = KubeletSettings { enabled: false, ..KubeletSettings::default() };
            everything_in(&host.host(), &tree, &host.state_dir(), &off, &mut out).unwrap()
        };
        (exit, String::from_utf8(out).unwrap())
    }

    #[test]
    fn pending_container_is_restored_if_it_exists_and_awaited_if_not() {
        let host = Fixture::new(true);
        drop(host.journal());
        let (mut record, _) = MakingRecord::open(&host.state_dir(), None).unwrap();
        for cgroup in ["/there", "/not-yet"] {
            record.add(&CgroupPath::new(cgroup), &made(clock::now_ns())).unwrap();
        }
        host.cgroup("/there", "0-1\n", "0\n");
        let (exit, out) = restored(&host);
        assert!(out.contains("/there cpuset.cpus: `0-1` -> `0-6`"), "{out}");
        assert!(
            matches!(exit, Exit::Undetermined) && out.contains("/not-yet: a container is being"),
            "{out}"
        );
        assert_eq!(host.read("/there", "cpuset.cpus").trim(), "0-6");
        host.cgroup("/not-yet", "0-1\n", "0\n");
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Ok) && out.contains("/not-yet cpuset.cpus: `0-1` -> `0-6`"), "{out}");
        assert!(MakingRecord::left(&host.state_dir(), None).unwrap().is_empty());
    }

    #[test]
    fn what_a_runtime_was_told_before_a_daemon_was_killed_is_put_back() {
        let host = Fixture::new(true);
        host.cgroup("/a", "4\n", "0\n");
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let inode = tree.open(&CgroupPath::new("/a")).unwrap().inode();
        for (file, original) in [(ManagedFile::Cpus, "0-7\n"), (ManagedFile::Mems, "0-1\n")] {
            let key = EntryKey { cgroup: CgroupPath::new("/a"), file, inode };
            host.journal().record(key, Entry::of_file(original, None)).unwrap();
        }
        let (mut record, _) = MakingRecord::open(&host.state_dir(), None).unwrap();
        for cgroup in ["/a", "/ended"] {
            record.add(&CgroupPath::new(cgroup), &Made { renews: true, ..made(0) }).unwrap();
        }
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Ok) && out.contains("/a cpuset.cpus: `4` -> `0-6`"), "{out}");
        assert_eq!((host.read("/a", "cpuset.mems").trim(), host.journal().entries().len()), ("0-1", 0));
        assert!(MakingRecord::left(&host.state_dir(), None).unwrap().is_empty());
    }

    #[test]
    fn pins_that_a_killed_daemon_had_noted_are_taken_over_and_what_cannot_be_read_is_named() {
        let host = Fixture::new(true);
        host.cgroup("/a", "4\n", "0\n");
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let inode = tree.open(&CgroupPath::new("/a")).unwrap().inode();
        let key = EntryKey { cgroup: CgroupPath::new("/a"), file: ManagedFile::Cpus, inode };
        let mut journal = host.journal();
        journal.record(key.clone(), Entry::of_file("0-6\n", None)).unwrap();
        let thread = serde_json::json!({"pid": 9, "tid": 9, "start_ticks": 7, "command": "db", "cpus": "2"});
        let noted: NotedPins = serde_json::from_value(serde_json::json!({
            "was": "0-6", "told": "4-6",
            "before": [{"cgroup": "/a", "cpus": "0-6", "mems": "0", "threads": [thread]}],
        }))
        .unwrap();
        let keep = |cgroups: &[&str]| {
            let all = cgroups.iter().map(|cgroup| (CgroupPath::new(cgroup), noted.clone()));
            PinsRecord::new(&host.state_dir(), None).keep(&all.collect()).unwrap();
        };
        // The root exists and cannot be opened for writing.
        keep(&["/", "/ended"]);
        let path = host.state_dir().join("pins");
        let mut take = |top: Option<&str>| {
            let top = top.map(CgroupPath::new);
            take_pins(&tree, &mut journal, None, &host.state_dir(), top.as_ref())
        };
        let report = take(None);
        assert!(report.unusable[0].contains("threads of / had pinned"), "{report:?}");
        assert_eq!(PinsRecord::left(&host.state_dir(), None).pins.len(), 2, "nothing is forgotten");
        keep(&["/a", "/ended"]);
        assert!(take(Some("/other")).is_complete() && path.exists(), "the others wait on");
        assert!(take(None).is_complete() && !path.exists());
        assert_eq!(journal.entries()[&key].threads[0].tid, 9);
        drop(journal);
        fs::write(&path, "nonsense\n").unwrap();
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Undetermined) && out.contains("pins line 1: it has no"), "{out}");
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Undetermined) && out.contains("pins.damaged: it is damaged"), "{out}");
        fs::remove_file(host.state_dir().join("pins.damaged")).unwrap();
        assert!(matches!(restored(&host).0, Exit::Ok));
    }

    #[test]
    fn damaged_line_of_a_pending_container_is_named_until_it_is_removed() {
        let host = Fixture::new(true);
        drop(host.journal());
        fs::write(host.state_dir().join("making"), "nonsense\n").unwrap();
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Undetermined) && out.contains("making line 1: it has no"), "{out}");
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Undetermined) && out.contains("making.damaged: it is damaged"), "{out}");
        fs::remove_file(host.state_dir().join("making.damaged")).unwrap();
        assert!(matches!(restored(&host).0, Exit::Ok));
    }

    #[test]
    fn a_daemon_that_runs_is_named_where_there_is_nothing_to_put_back_too() {
        let host = Fixture::new(true);
        let held = host.journal();
        let restored = |dry_run| {
            let (mut out, state_dir) = (Vec::new(), Some(host.state_dir()));
            let args = args::Restore { workload: None, state_dir, config: None, dry_run };
            let exit = run(&args, &mut out).unwrap();
            (exit, String::from_utf8(out).unwrap())
        };
        for (dry_run, expected) in [(false, Exit::Undetermined), (true, Exit::Ok)] {
            let (exit, out) = restored(dry_run);
            assert_eq!(exit, expected, "{out}");
            let named = format!("lock is held by another numa-enforcer (process {})", std::process::id());
            assert!(out.contains(&named) && out.contains("nothing to put back in"), "{out}");
        }
        drop(held);
        let (exit, out) = restored(false);
        assert!(exit == Exit::Ok && !out.contains("is held by"), "{out}");
        drop(host.journal());
    }

    #[test]
    fn the_state_directory_is_the_one_of_the_configuration_where_none_is_named() {
        let host = Fixture::new(true);
        drop(host.journal());
        let config = host.state_dir().join("config.toml");
        fs::write(&config, format!("state_dir = {:?}\n", host.state_dir())).unwrap();
        let elsewhere = tempfile::tempdir().unwrap();
        for (named, expected) in [(None, host.state_dir()), (Some(elsewhere.path()), elsewhere.path().into())]
        {
            let args = args::Restore {
                workload: None,
                state_dir: named.map(Into::into),
                config: Some(config.clone()),
                dry_run: true,
            };
            let mut out = Vec::new();
            run(&args, &mut out).unwrap();
            let out = String::from_utf8(out).unwrap();
            assert_eq!(out.trim(), format!("nothing to put back in {}", expected.display()));
        }
    }

    #[test]
    fn a_kubelet_whose_state_cannot_be_read_is_named_until_it_can_be() {
        let id = "a".repeat(64);
        let pod = "11111111_1111_1111_1111_111111111111";
        let cgroup = format!(
            "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod{pod}.slice/cri-containerd-{id}.scope"
        );
        let host = Fixture::new(true);
        host.cgroup(&cgroup, "2\n", "0\n");
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let inode = tree.open(&CgroupPath::new(&cgroup)).unwrap().inode();
        let key = EntryKey { cgroup: CgroupPath::new(&cgroup), file: ManagedFile::Cpus, inode };
        host.journal().record(key, Entry::of_file("0-7\n", None)).unwrap();
        let root = tempfile::tempdir().unwrap();
        let settings = KubeletSettings {
            root_dir: root.path().into(),
            podresources: root.path().join("none"),
            ..KubeletSettings::default()
        };
        let restored = || {
            let mut out = Vec::new();
            let exit = everything_in(&host.host(), &tree, &host.state_dir(), &settings, &mut out).unwrap();
            (exit, String::from_utf8(out).unwrap())
        };
        let state = root.path().join("cpu_manager_state");
        for damaged in
            [None, Some("nonsense"), Some(r#"{"policyName":"static","defaultCpuSet":"0,3","checksum":1}"#)]
        {
            if let Some(text) = damaged {
                fs::write(&state, text).unwrap();
            }
            let (exit, out) = restored();
            let named = format!("looked for in {}: ", root.path().display());
            assert!(matches!(exit, Exit::Undetermined) && out.contains(&named), "{damaged:?}: {out}");
            assert!(out.contains("cpu_manager_state"), "{damaged:?}: {out}");
            assert_eq!(host.read(&cgroup, "cpuset.cpus").trim(), "0-7", "{out}");
        }
        fs::write(&state, r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#).unwrap();
        let (exit, out) = restored();
        assert!(matches!(exit, Exit::Ok) && host.journal().entries().is_empty(), "{out}");
        assert!(restored().1.contains("0 files put back"));
    }

    #[test]
    fn a_journal_of_zeros_is_no_journal_of_nothing() {
        let host = Fixture::new(true);
        drop(host.journal());
        fs::write(host.state_dir().join("journal"), [0; 200]).unwrap();
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Undetermined) && out.contains("journal line 1: zeros, 200 of"), "{out}");
        let (exit, out) = restored(&host);
        assert!(
            matches!(exit, Exit::Undetermined) && out.contains("journal.damaged: it is damaged"),
            "{out}"
        );
    }

    /// docs/faq.md, "Lines that cannot be read": the older daemon is this one.
    #[test]
    fn originals_of_a_newer_daemon_come_back_after_an_older_one_has_run() {
        let host = Fixture::new(true);
        host.cgroup("/a", "2\n", "0\n");
        let tree = CpusetTree::new(&host.layout.cpuset.path, true);
        let inode = tree.open(&CgroupPath::new("/a")).unwrap().inode();
        let key = EntryKey { cgroup: CgroupPath::new("/a"), file: ManagedFile::Cpus, inode };
        host.journal().record(key.clone(), Entry::of_file("0-6\n", None)).unwrap();
        let journal = host.state_dir().join("journal");
        let as_version = |from: &str, to: &str, path: &Path| {
            let text = fs::read_to_string(path).unwrap();
            let json = text.trim_end().rsplit_once(' ').unwrap().0.replacen(from, to, 1);
            fs::write(path, format!("{json} {:08x}\n", crc32fast::hash(json.as_bytes()))).unwrap();
        };
        as_version("\"version\":5", "\"version\":6", &journal);

        // The older daemon takes what the newer one has set for the original, and sets something else.
        let mut older = host.journal();
        assert!(older.damaged()[0].contains("of a newer numa-enforcer"), "{:?}", older.damaged());
        older.record(key, Entry::of_file("2\n", None)).unwrap();
        drop(older);
        host.cgroup("/a", "3\n", "0\n");
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Undetermined) && out.contains("/a cpuset.cpus: `3` -> `2`"), "{out}");
        assert!(out.contains("journal.damaged: it is of a newer numa-enforcer: restore with that"), "{out}");

        // The newer version knows its lines.
        let kept = host.state_dir().join("journal.damaged");
        as_version("\"version\":6", "\"version\":5", &kept);
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Undetermined), "{out}");
        assert!(out.contains("this one reads it: with the daemon stopped, move it to journal, and"), "{out}");
        fs::rename(&kept, &journal).unwrap();
        let (exit, out) = restored(&host);
        assert!(matches!(exit, Exit::Ok) && out.contains("/a cpuset.cpus: `2` -> `0-6`"), "{out}");
        assert_eq!(host.read("/a", "cpuset.cpus").trim(), "0-6");
    }

    #[test]
    fn a_record_that_cannot_be_used_keeps_nothing_else_from_being_put_back() {
        for name in ["making", "drift"] {
            let host = Fixture::new(true);
            host.cgroup("/a", "0-1\n", "0\n");
            let inode =
                CpusetTree::new(&host.layout.cpuset.path, true).open(&CgroupPath::new("/a")).unwrap().inode();
            let key = EntryKey { cgroup: CgroupPath::new("/a"), file: ManagedFile::Cpus, inode };
            host.journal().record(key, Entry::of_file("0-6\n", None)).unwrap();
            fs::create_dir(host.state_dir().join(name)).unwrap();
            let (exit, out) = restored(&host);
            assert!(matches!(exit, Exit::Undetermined), "{name}: {out}");
            let named = format!("{name}: ");
            assert!(out.lines().any(|line| line.contains(&named)), "{name}: {out}");
            assert_eq!(host.read("/a", "cpuset.cpus").trim(), "0-6", "{name}: {out}");
        }
    }

    #[test]
    fn unreadable_cgroup_is_not_forgotten() {
        let host = Fixture::new(false);
        drop(host.journal());
        for cgroup in ["/", "/top", "/there", "/top/odd"] {
            host.cgroup(cgroup, "0-1\n", "0\n");
        }
        let [mems, aside] = ["cpuset.mems", "aside"].map(|name| host.path("/top").join(name));
        fs::rename(&mems, &aside).unwrap();
        fs::create_dir(&mems).unwrap();
        let (mut record, _) = MakingRecord::open(&host.state_dir(), None).unwrap();
        for cgroup in ["/there", "/top/odd"] {
            record.add(&CgroupPath::new(cgroup), &made(clock::now_ns())).unwrap();
        }
        let restored = || {
            let tree = CpusetTree::new(&host.layout.cpuset.path, false);
            let mut out = Vec::new();
            let exit = {
                let off = KubeletSettings { enabled: false, ..KubeletSettings::default() };
                everything_in(&host.host(), &tree, &host.state_dir(), &off, &mut out).unwrap()
            };
            (exit, String::from_utf8(out).unwrap())
        };
        let (exit, out) = restored();
        assert!(matches!(exit, Exit::Undetermined) && out.contains("/top/odd is not put back: "), "{out}");
        fs::remove_dir(&mems).unwrap();
        fs::rename(&aside, &mems).unwrap();
        let (exit, out) = restored();
        assert!(matches!(exit, Exit::Ok), "{out}");
        assert_eq!(host.read("/top/odd", "cpuset.cpus").trim(), "0-6");
    }
}
