//! Is a process number still that of the process that was looked at?
//!
//! `move_pages(2)` takes a number, and a number is given to another process once its own has ended. So the
//! time of the start is read before the first look, and compared before each call and after the look behind
//! it. Between a comparison and the call some microseconds are left, in which nothing can be excluded; what
//! was moved then is not counted, and told.

use std::{fmt, io};

use rustix::io::Errno;

use enforcer_host::{HostPath, processes::start_ticks};

/// A process, told apart from a later one of its number.
#[derive(Debug)]
pub(super) struct Incarnation {
    pub(super) pid: u32,
    stat: HostPath,
    /// `None` where it could not be read: then the number is all there is.
    start: Option<u64>,
}

/// The number belongs to another process now.
#[derive(Debug)]
pub(super) struct Reused;

impl fmt::Display for Reused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the process has ended and its number was given to another one")
    }
}

impl std::error::Error for Reused {}

impl Incarnation {
    /// The process that has the number now.
    pub(super) fn now(proc: &HostPath, pid: u32) -> Self {
        let stat = proc.join(format!("{pid}/stat"));
        let start = start(&stat);
        Self { pid, stat, start }
    }

    /// Fails with [`Reused`], or as a call on a process does that is gone.
    pub(super) fn check(&self) -> io::Result<()> {
        if self.start.is_none() {
            return Ok(());
        }
        match start(&self.stat) {
            now if now == self.start => Ok(()),
            None => Err(Errno::SRCH.into()),
            Some(_other) => Err(io::Error::other(Reused)),
        }
    }
}

fn start(stat: &HostPath) -> Option<u64> {
    start_ticks(&stat.read_text().ok()?)
}

/// Is that the cause?
pub(super) fn is_reused(error: &io::Error) -> bool {
    error.get_ref().is_some_and(<dyn std::error::Error + Send + Sync>::is::<Reused>)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_number_is_another_process_when_its_start_differs() {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("42")).unwrap();
        let proc = enforcer_host::HostRoot::live().at(dir.path());
        let stat = dir.path().join("42/stat");
        let begun = |ticks: u64| {
            fs::write(&stat, format!("42 (a) b) S 1 1 1 0 -1 4 0 0 0 0 0 0 0 0 20 0 1 0 {ticks} 0 0\n"))
                .unwrap();
        };
        assert!(Incarnation::now(&proc, 42).check().is_ok(), "without a start there is only the number");
        begun(700);
        let process = Incarnation::now(&proc, 42);
        assert_eq!(process.start, Some(700));
        assert!(process.check().is_ok());
        begun(701);
        assert!(is_reused(&process.check().unwrap_err()));
        fs::remove_file(&stat).unwrap();
        assert!(super::super::is_gone(&process.check().unwrap_err()));
    }
}
