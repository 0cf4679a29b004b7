//! `numa-enforcer restore`: puts back every original value that the journal holds.

use std::{fmt, io::Write};

use super::{Exit, args};
use crate::{
    enforce::{
        Journal,
        actuator::read_boot_id,
        cpuset::CpusetTree,
        restore::{self, RestoreReport, RestoreResult, Restored},
    },
    host::{HostRoot, cgroup::CgroupLayout},
    report::text::escape,
};

pub(super) fn run(args: &args::Restore, out: &mut dyn Write) -> anyhow::Result<Exit> {
    let contents = Journal::peek(&args.state_dir)?;
    if contents.entries.is_empty() && contents.damaged.is_empty() {
        writeln!(out, "nothing to put back in {}", args.state_dir.display())?;
        return Ok(Exit::Ok);
    }
    let host = HostRoot::live();
    let layout = CgroupLayout::read(&host)?;
    let tree = CpusetTree::new(&layout.cpuset.path, layout.cpuset.v2);
    let boot_id = read_boot_id(&host);
    let report = if args.dry_run {
        restore::preview(&tree, boot_id.as_deref(), &contents)
    } else {
        restore::restore(&tree, boot_id.as_deref(), &mut Journal::open(&args.state_dir)?)?
    };
    print(&report, out)?;
    Ok(if report.is_complete() { Exit::Ok } else { Exit::Undetermined })
}

fn print(report: &RestoreReport, out: &mut dyn Write) -> std::io::Result<()> {
    for file in &report.files {
        let path = format!("{}/{}", file.cgroup, file.file.name());
        writeln!(out, "{}: {}", escape(&path), escape(&Said(file).to_string()))?;
    }
    for line in &report.damaged {
        writeln!(out, "not readable, and so not put back: {}", escape(line))?;
    }
    Ok(())
}

/// What happened to one file, in words.
struct Said<'a>(&'a Restored);

impl fmt::Display for Said<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let original = list(&self.0.original);
        match &self.0.result {
            RestoreResult::PutBack { from } => write!(f, "put back to {original}, was {}", list(from)),
            RestoreResult::WouldPutBack { from } => {
                write!(f, "would be put back to {original}, is {}", list(from))
            }
            RestoreResult::Unchanged => write!(f, "is {original} already"),
            RestoreResult::Skipped { reason } => write!(f, "left alone: {reason}"),
            RestoreResult::Failed { error } => write!(f, "not put back to {original}: {error}"),
        }
    }
}

/// A list of ids as it is in a file; the empty one has a name.
fn list(text: &str) -> &str {
    match text.trim() {
        "" => "(empty)",
        list => list,
    }
}
