//! `numa-enforcer restore`: restores every original value in the journal.

mod named;

use std::{
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
use super::{Exit, args, config_file, terminal};
use enforcer_act::{
    Journal,
    cpuset::CpusetTree,
    journal::{JournalError, KeptLines, set_aside},
    restore::{
        RestoreReport, RestoreResult, Restored,
        sequence::{BrakeRelease, RestoreSources, RestoreSurvey},
    },
};
use enforcer_host::{HostRoot, cgroup::CgroupLayout};
use enforcer_report::{text, units};
use enforcer_runtime::kubelet;

/// Restores what can be restored. The rest is named, stays in the journal, and makes the command fail.
pub(super) fn run(args: &args::Restore, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let policy = config_file::read(args.config.as_deref())?.unwrap_or_default();
    let state_dir = args.state_dir.as_ref().unwrap_or(&policy.state_dir);
    terminal::warn_on_stderr();
    check_state_dir(state_dir, args.state_dir.is_some())?;
    let host = HostRoot::live();
    let mut survey = RestoreSurvey::read(&host, state_dir, || tree(&host))?;
    match args.workload.as_deref() {
        None => {}
        Some(typed) => match target(typed, &survey, &policy)? {
            RestoreTarget::Cgroup(top) => survey.narrow_to(top),
            RestoreTarget::Path(top) => {
                check_cgroup(&top)?;
                survey.narrow_to(top);
            }
            RestoreTarget::Unset if survey.is_conclusive() => {
                return nothing_to_put_back(args, state_dir, out);
            }
            RestoreTarget::Unset => bail!(
                "restore {typed}: the journal in {} has nothing of it, and lines that cannot be read: restore \
                 without a name shows them",
                state_dir.display()
            ),
        },
    }
    print_end_of_journal(&survey, state_dir, out)?;
    if survey.is_empty() {
        return nothing_to_put_back(args, state_dir, out);
    }
    let tree = tree(&host)?;
    let read_kubelet = || kubelet::read_state(&policy.kubelet);
    let sources = RestoreSources { host: &host, tree: &tree, kubelet: &read_kubelet };
    let report = if args.dry_run {
        beside(state_dir, out)?;
        survey.preview(&sources)
    } else {
        survey.carry_out(&sources, BrakeRelease::Release)?
    };
    end(&report, args.dry_run, state_dir, out)
}

/// What a name on the command line stands for.
fn target(typed: &str, survey: &RestoreSurvey<'_>, policy: &Policy) -> anyhow::Result<RestoreTarget> {
    named(typed, &survey.cgroups(), policy, |cgroup| check_cgroup(cgroup).is_ok())
}

/// Prints what a crash left behind the last whole line of the journal.
fn print_end_of_journal(
    survey: &RestoreSurvey<'_>,
    state_dir: &Path,
    out: &mut dyn Write,
) -> anyhow::Result<()> {
    let journal = survey.journal();
    if let Some(cut) = &journal.torn {
        let (path, cut) = (state_dir.join("journal"), text::escape(cut));
        writeln!(out, "{}: a daemon ended before it did what its last line says: {cut}", path.display())?;
    }
    if let Some(zeros) = journal.behind_the_last_line() {
        writeln!(out, "{}: {zeros}", state_dir.join("journal").display())?;
    }
    Ok(())
}

/// Ends a restore without entries. It fails if a daemon may write in the next moment.
fn nothing_to_put_back(args: &args::Restore, state_dir: &Path, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let kept = kept(state_dir, out)?;
    let held = beside(state_dir, out)?;
    let of = args.workload.as_ref().map_or_else(String::new, |workload| format!(" of {workload}"));
    writeln!(out, "nothing to put back{} in {}", text::escape(&of), state_dir.display())?;
    Ok(if kept || (held && !args.dry_run) { Exit::Undetermined } else { Exit::Ok })
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
    settings: &KubeletSettings,
    out: &mut dyn Write,
) -> anyhow::Result<Exit> {
    let survey = RestoreSurvey::read(host, state_dir, || anyhow::Ok(tree.clone()))?;
    let read_kubelet = || kubelet::read_state(settings);
    let sources = RestoreSources { host, tree, kubelet: &read_kubelet };
    let report = survey.carry_out(&sources, BrakeRelease::LeaveToDaemon)?;
    end(&report, false, state_dir, out)
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
    for one in &report.interrupts {
        let name = format!("/proc/irq/{} smp_affinity_list", one.irq);
        writeln!(out, "{}", result(&name, &one.original, &one.result))?;
    }
    let changes = |result: &&RestoreResult| {
        matches!(
            result,
            RestoreResult::PutBack { .. }
                | RestoreResult::Widened { .. }
                | RestoreResult::WouldPutBack { .. }
        )
    };
    let results = report.files.iter().map(|file| &file.result);
    let results = results.chain(report.interrupts.iter().map(|one| &one.result));
    let files = units::count(results.filter(changes).count(), "file");
    if dry_run {
        writeln!(out, "{files} to put back; nothing was written")
    } else {
        writeln!(out, "{files} put back")
    }
}

fn outcome(file: &Restored) -> String {
    let name = format!("{} {}", text::escape(file.cgroup.as_str()), file.file.name());
    result(&name, &file.original, &file.result)
}

fn result(name: &str, original: &str, result: &RestoreResult) -> String {
    let original = shown(original);
    match result {
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
mod tests;
