//! The object that holds the programs, and what the kernel says when it refuses one.

use std::{
    error::Error,
    io::{self, Read as _},
};

use aya::{
    Ebpf,
    programs::{Program, ProgramError},
};
use enforcer_core::workload::cut_at;
use flate2::bufread::GzDecoder;
use numa_topology::text;

use super::hook::HookError;

/// The programs of `enforcer-ebpf`, as `build.rs` built and packed them, to a seventh of their size.
static PACKED: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/programs.o.gz"));

/// Longest reason, in characters: some errors carry the kernel's whole log.
const REASON: usize = 300;

/// The object of the programs.
///
/// # Errors
/// If this program is damaged.
pub(super) fn object() -> io::Result<Vec<u8>> {
    let mut object = Vec::new();
    GzDecoder::new(PACKED).read_to_end(&mut object)?;
    Ok(object)
}

pub(super) fn program<'a, P: 'a>(ebpf: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P, HookError>
where
    &'a mut P: TryFrom<&'a mut Program>,
{
    ebpf.program_mut(name).and_then(|program| program.try_into().ok()).ok_or(HookError::NoProgram(name))
}

pub(super) fn refused(name: &'static str, error: &ProgramError) -> HookError {
    HookError::Program { name, cause: describe(error) }
}

/// The system call and its error, with the end of the verifier's log where there is one.
pub(super) fn describe(error: &ProgramError) -> String {
    let ProgramError::LoadError { io_error, verifier_log } = error else { return with_causes(error) };
    let log = verifier_log.to_string();
    match log.trim().lines().rfind(|line| !is_statistics(line)) {
        Some(line) => one_line(&format!("BPF_PROG_LOAD: {io_error}: {line}")),
        None => format!("BPF_PROG_LOAD: {io_error}"),
    }
}

/// The system error behind a refusal, where there is one.
pub(super) fn io_error_of(error: &ProgramError) -> Option<&io::Error> {
    match error {
        ProgramError::LoadError { io_error, .. } | ProgramError::IOError(io_error) => Some(io_error),
        ProgramError::SyscallError(call) => Some(&call.io_error),
        _ => None,
    }
}

/// An error with all its causes, on one line of bounded length.
pub fn with_causes(error: &dyn Error) -> String {
    one_line(&text::with_causes(error))
}

fn one_line(text: &str) -> String {
    cut_at(&text.split_whitespace().collect::<Vec<_>>().join(" "), REASON).into_owned()
}

/// The verifier ends its log with what it counted, also when it says no more.
fn is_statistics(line: &str) -> bool {
    line.is_empty()
        || ["processed ", "verification time", "stack depth"].iter().any(|start| line.starts_with(start))
}

#[cfg(test)]
mod tests {
    use aya::EbpfError;

    use super::*;

    #[test]
    fn a_reason_is_one_line_and_short() {
        assert_eq!(one_line("refused:\n  processed 3\n"), "refused: processed 3");
        assert_eq!(one_line(&"é".repeat(1_000)).chars().count(), REASON + 1);
    }

    #[test]
    fn causes_are_not_repeated() {
        let error = EbpfError::FileError { path: "x".into(), error: rustix::io::Errno::PERM.into() };
        let text = with_causes(&error);
        assert_eq!(text.matches("Operation not permitted").count(), 1, "{text}");
    }
}
