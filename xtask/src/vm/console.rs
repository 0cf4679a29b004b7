//! What a guest's console says about its health.
//!
//! A dead guest prints why and then nothing more, so its console is read while it runs. Two kinds of
//! trouble are told apart: the kernel broke, which is a result, and the machine was starved by a busy
//! host, which is worth one more try.

use std::{
    fs::File,
    io::{Read, Seek, SeekFrom},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result};

/// What the console told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// The kernel broke; the line that says so.
    Broken(String),
    /// The guest got too little time; the line that says so.
    Starved(String),
}

/// The kernel's own words (kernel/panic.c, arch/x86/mm/fault.c, arch/x86/kernel/traps.c).
const BROKEN: &[&str] = &[
    "Kernel panic - not syncing",
    "BUG: kernel NULL pointer dereference",
    "BUG: unable to handle page fault",
    "Oops: ",
    "general protection fault",
    "kernel BUG at ",
];

/// Of the watchdogs (kernel/watchdog.c, `kernel/rcu/tree_stall.h`, `kernel/hung_task.c`).
const STARVED: &[&str] = &[
    "watchdog: BUG: soft lockup",
    "self-detected stall on CPU",
    "detected stalls on CPUs/tasks",
    "blocked for more than",
];

/// Follows a console's log.
pub(super) struct Console {
    path: PathBuf,
    read: u64,
    /// The last line, if it has no end yet.
    partial: String,
}

impl Console {
    /// A log that QEMU will write; it need not exist yet.
    pub(super) fn follow(path: &Path) -> Self {
        Self { path: path.to_owned(), read: 0, partial: String::new() }
    }

    /// The first trouble in what was written since the last call.
    pub(super) fn trouble(&mut self) -> Result<Option<Trouble>> {
        let Ok(mut file) = File::open(&self.path) else { return Ok(None) };
        file.seek(SeekFrom::Start(self.read)).context("seek in the console's log")?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).context("read the console's log")?;
        self.read += bytes.len() as u64;
        self.partial.push_str(&String::from_utf8_lossy(&bytes));
        let Some(end) = self.partial.rfind('\n') else { return Ok(None) };
        let rest = self.partial.split_off(end + 1);
        let whole = std::mem::replace(&mut self.partial, rest);
        Ok(whole.lines().find_map(trouble_in))
    }

    /// Everything that was written.
    pub(super) fn text(&self) -> String {
        std::fs::read(&self.path)
            .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
            .unwrap_or_default()
    }
}

fn trouble_in(line: &str) -> Option<Trouble> {
    let says = |markers: &[&str]| markers.iter().any(|marker| line.contains(marker));
    if says(BROKEN) {
        return Some(Trouble::Broken(line.trim().to_owned()));
    }
    says(STARVED).then(|| Trouble::Starved(line.trim().to_owned()))
}

#[cfg(test)]
mod tests {
    use std::{fs, io::Write};

    use super::*;

    #[test]
    fn trouble_is_recognised_by_kind() {
        for (line, wanted) in [
            ("[    3.1] Kernel panic - not syncing: Attempted to kill init!", Some(true)),
            ("[    3.1] BUG: unable to handle page fault for address: 0", Some(true)),
            ("[   30.1] watchdog: BUG: soft lockup - CPU#1 stuck for 26s!", Some(false)),
            ("[   30.1] rcu: INFO: rcu_preempt self-detected stall on CPU", Some(false)),
            ("[    1.0] ordinary", None),
        ] {
            let found = trouble_in(line).map(|trouble| matches!(trouble, Trouble::Broken(_)));
            assert_eq!(found, wanted, "{line}");
        }
    }

    #[test]
    fn a_line_that_comes_in_pieces_is_read_whole_and_once() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("console");
        let mut console = Console::follow(&path);
        assert_eq!(console.trouble().unwrap(), None, "no file yet");
        fs::write(&path, "fine\nKernel panic - ").unwrap();
        assert_eq!(console.trouble().unwrap(), None);
        let mut file = fs::OpenOptions::new().append(true).open(&path).unwrap();
        file.write_all(b"not syncing: x\r\n").unwrap();
        assert_eq!(
            console.trouble().unwrap(),
            Some(Trouble::Broken("Kernel panic - not syncing: x".to_owned()))
        );
        assert_eq!(console.trouble().unwrap(), None);
    }
}
