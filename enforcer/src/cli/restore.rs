//! `numa-enforcer restore`: puts back every original value that the journal holds.

use std::io::Write;

use anyhow::Context;

use super::{Exit, args};
use crate::{
    enforce::{
        actuator::read_boot_id,
        cpuset::CpusetTree,
        journal::{Entry, EntryKey, Journal},
        restore::{RestoreResult, Restored, restore},
    },
    host::{HostRoot, cgroup::CgroupLayout},
    report::{text, units},
};

/// Puts back what can be put back; what cannot is named, stays in the journal, and is an error.
pub(super) fn run(args: &args::Restore, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let state_dir = &args.state_dir;
    if !state_dir.try_exists().with_context(|| format!("--state-dir {}", state_dir.display()))? {
        writeln!(out, "nothing to put back: {} is not there", state_dir.display())?;
        return Ok(Exit::Ok);
    }
    let host = HostRoot::live();
    let layout = CgroupLayout::read(&host)?;
    let tree = CpusetTree::new(&layout.cpuset.path, layout.cpuset.v2);
    let mut journal = Journal::open(state_dir)?;
    if args.dry_run {
        for (key, entry) in journal.entries() {
            writeln!(out, "{}", intention(&tree, key, entry))?;
        }
        writeln!(out, "{} to put back; nothing was written", files(journal.entries().len()))?;
        return Ok(Exit::Ok);
    }
    let report = restore(&tree, read_boot_id(&host).as_deref(), &mut journal)?;
    for file in &report.files {
        writeln!(out, "{}", outcome(file))?;
    }
    for line in &report.damaged {
        writeln!(out, "journal line that cannot be read: {}", text::escape(line))?;
    }
    let put_back =
        report.files.iter().filter(|file| matches!(file.result, RestoreResult::PutBack { .. })).count();
    writeln!(out, "{} put back", files(put_back))?;
    Ok(if report.is_complete() { Exit::Ok } else { Exit::Undetermined })
}

fn files(number: usize) -> String {
    units::count(number, "file")
}

fn intention(tree: &CpusetTree, key: &EntryKey, entry: &Entry) -> String {
    let file = format!("{} {}", text::escape(key.cgroup.as_str()), key.file.name());
    match tree.open(&key.cgroup).and_then(|cpuset| cpuset.read(key.file)) {
        Ok(now) => format!("{file}: `{}` -> `{}`", shown(&now), shown(&entry.original)),
        Err(error) => format!("{file}: {}", text::escape(&error.to_string())),
    }
}

fn outcome(file: &Restored) -> String {
    let name = format!("{} {}", text::escape(file.cgroup.as_str()), file.file.name());
    let original = shown(&file.original);
    match &file.result {
        RestoreResult::PutBack { from } => format!("{name}: `{}` -> `{original}`", shown(from)),
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
