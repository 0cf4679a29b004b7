//! Exit codes, which are a contract: scripts and node-problem-detector plug-ins branch on them.
//!
//! What each means is in docs/commands.md, and in short in the program's help; 64 and 69 are `EX_USAGE` and
//! `EX_UNAVAILABLE` of sysexits.h.

use std::process::ExitCode;

/// How a command ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// Nothing to complain about.
    Ok,
    /// Findings at or above the threshold.
    Findings,
    /// Pods that were not admitted.
    Rejected,
    /// Turns that come out differently.
    Different,
    /// Could not determine, or failed.
    Undetermined,
    /// The request is wrong.
    Usage,
    /// No daemon that could be asked.
    NoDaemon,
    /// `exec`: the program cannot be run.
    NotRun,
    /// `exec`: there is no such program.
    NoProgram,
}

impl Exit {
    /// What the summary of an audit says.
    pub(crate) const fn of_audit(code: u8) -> Self {
        match code {
            0 => Self::Ok,
            1 => Self::Findings,
            _ => Self::Undetermined,
        }
    }

    /// The number that the shell sees.
    pub const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Findings | Self::Rejected | Self::Different => 1,
            Self::Undetermined => 2,
            Self::Usage => 64,
            Self::NoDaemon => 69,
            Self::NotRun => 126,
            Self::NoProgram => 127,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        exit.code().into()
    }
}
