//! What each program costs: instructions for the verifier, runs and time in the kernel; and the runs that the
//! kernel skipped.
//!
//! The kernel tells in `/proc/self/fdinfo` of the program's descriptor (`bpf_prog_show_fdinfo`,
//! kernel/bpf/syscall.c). Runs and time are counted only while `kernel.bpf_stats_enabled` is 1, which
//! itself costs some 60 ns for each run; nothing here switches it on.
//!
//! A program that is preempted does not run a second time on its CPU: the kernel skips the run and counts it,
//! whatever `kernel.bpf_stats_enabled` is (`bpf_prog_inc_misses_counter`, kernel/bpf/syscall.c; commit
//! 9ed9e9ba2337, "bpf: Count the number of times recursion was prevented").

use std::{
    collections::BTreeMap,
    os::fd::{AsFd, AsRawFd},
};

use aya::Ebpf;

use super::probes::MultiProbe;
use enforcer_host::HostRoot;

/// Says whether the kernel counts runs and time; below `/proc`.
const STATS: &str = "sys/kernel/bpf_stats_enabled";

/// Why runs and time are not counted; `None` where they are.
pub(super) fn silent() -> Option<String> {
    let path = HostRoot::live().proc.join(STATS);
    match path.read_text() {
        Ok(text) if text.trim() == "1" => None,
        Ok(text) => Some(format!("{} is {}", path.display(), text.trim())),
        Err(error) => Some(error.to_string()),
    }
}

/// Cost of one program since it was loaded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedProgram {
    /// Its name, which is that of its hook.
    pub name: String,
    /// Times that it ran while the kernel counted.
    pub runs: u64,
    /// Nanoseconds that these took.
    pub run_ns: u64,
    /// Instructions that the verifier went through; since Linux 5.16.
    pub verified_instructions: Option<u64>,
    /// Runs that the kernel skipped because the program was running on that CPU already; since Linux 5.12.
    pub recursion_misses: Option<u64>,
}

/// Costs of all programs that are loaded, by name.
pub(super) fn read(ebpf: &Ebpf, probes: &[MultiProbe]) -> Vec<LoadedProgram> {
    let fdinfo = HostRoot::live().proc.join("self/fdinfo");
    let by_aya =
        ebpf.programs().filter_map(|(name, program)| Some((name, program.fd().ok()?.as_fd().as_raw_fd())));
    let others = probes.iter().map(|probe| (probe.name, probe.program.as_raw_fd()));
    let mut costs: Vec<LoadedProgram> = by_aya
        .chain(others)
        .filter_map(|(name, fd)| {
            let text = fdinfo.join(fd.to_string()).read_text().ok()?;
            Some(of(name, &text))
        })
        .collect();
    costs.sort_by(|left, right| left.name.cmp(&right.name));
    costs
}

fn of(name: &str, text: &str) -> LoadedProgram {
    let fields: BTreeMap<&str, u64> = text
        .lines()
        .filter_map(|line| line.split_once(':'))
        .filter_map(|(key, value)| Some((key, value.trim().parse().ok()?)))
        .collect();
    let field = |key: &str| fields.get(key).copied();
    LoadedProgram {
        name: name.to_owned(),
        runs: field("run_cnt").unwrap_or(0),
        run_ns: field("run_time_ns").unwrap_or(0),
        verified_instructions: field("verified_insns"),
        recursion_misses: field("recursion_misses"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn field_that_the_kernel_does_not_print_is_none() {
        // As Linux 6.12 prints it.
        let text = "pos:\t0\nflags:\t02000002\nmnt_id:\t17\nino:\t2059\nprog_type:\t26\nprog_jited:\t1\n\
                    prog_tag:\ta1b2\nmemlock:\t4096\nprog_id:\t9\nrun_time_ns:\t700\nrun_cnt:\t7\n\
                    recursion_misses:\t3\nverified_insns:\t51\n";
        let cost = LoadedProgram {
            name: "a".into(),
            runs: 7,
            run_ns: 700,
            verified_instructions: Some(51),
            recursion_misses: Some(3),
        };
        assert_eq!(of("a", text), cost);
        // Linux 5.10 ends after `run_cnt`.
        let older = of("b", "prog_id:\t9\nrun_time_ns:\t700\nrun_cnt:\t7\n");
        assert_eq!((older.runs, older.recursion_misses, older.verified_instructions), (7, None, None));
        let none_missed = of("c", "recursion_misses:\t0\n");
        assert_eq!(none_missed.recursion_misses, Some(0));
        let damaged = of("d", "prog_tag:\tx\nrun_cnt:\tnonsense\nrecursion_misses:\t-1\n");
        assert_eq!((damaged.runs, damaged.run_ns, damaged.recursion_misses), (0, 0, None));
    }
}
