//! Gives up the capabilities that the daemon no longer needs (docs/privileges.md has them by name).
//!
//! Attaching eBPF programs and listening take capabilities, reading what the programs count does not. So once
//! everything is open, all are dropped for good, but those that the mode of the daemon uses in every turn.
//! Capabilities belong to threads: this is to be called before there is a second one, but for those that have
//! given up all of theirs ([`renounce`]).
//!
//! What the kernel lets a process do with a map it holds open has changed (before 5.19 every bpf(2) needs
//! `CAP_BPF` where `kernel.unprivileged_bpf_disabled` is set); the running kernel is asked, not its version.

use std::io;

use enforcer_core::policy::Mode;
use rustix::thread::{CapabilitySet, CapabilitySets, capabilities, set_capabilities, set_no_new_privs};

use crate::linux;

/// What the daemon goes on doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(clippy::struct_excessive_bools, reason = "each is a duty of its own")]
pub struct Duties {
    /// May it write?
    pub mode: Mode,
    /// Does it read other processes' `numa_maps`?
    pub numa_maps: bool,
    /// Does it read what eBPF programs count?
    pub bpf: bool,
    /// Does it begin partitions of cpusets?
    pub partitions: bool,
    /// Does it tell DAMON of frames?
    pub frames: bool,
}

/// Drops what the duties do not need, and the right to get it back.
pub fn reduce(duties: Duties) -> io::Result<()> {
    set_no_new_privs(true)?;
    let CapabilitySets { permitted, .. } = capabilities(None)?;
    let mut kept = needed(duties) & permitted;
    // First from what is in effect alone, so that it can be put back.
    set(kept, permitted)?;
    if duties.bpf && linux::reading_maps_needs_cap_bpf() {
        kept |= CapabilitySet::BPF & permitted;
    }
    set(kept, kept)
}

/// Drops all that the calling thread has, for good: for one that is started before the others give up theirs.
pub fn renounce() -> io::Result<()> {
    narrow(CapabilitySet::empty())
}

/// Drops what is not in `kept` from the calling thread, for good.
pub fn narrow(kept: CapabilitySet) -> io::Result<()> {
    set_no_new_privs(true)?;
    let CapabilitySets { effective, permitted, .. } = capabilities(None)?;
    set(kept & effective, kept & permitted)
}

fn set(effective: CapabilitySet, permitted: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets { effective, permitted, inheritable: CapabilitySet::empty() };
    Ok(set_capabilities(None, sets)?)
}

fn needed(duties: Duties) -> CapabilitySet {
    let mut needed = CapabilitySet::empty();
    if duties.mode == Mode::Enforce {
        // Cgroup files of other users, move_pages(2) of their processes, and the affinities that these have
        // set themselves: before Linux 6.2 a write of `cpuset.cpus` takes them away, and they are set again.
        needed |= CapabilitySet::DAC_OVERRIDE | CapabilitySet::SYS_PTRACE | CapabilitySet::SYS_NICE;
    }
    if duties.mode == Mode::Enforce && (duties.partitions || duties.frames) {
        // `remote_partition_enable` in kernel/cgroup/cpuset.c; frames in `/proc/PID/pagemap`,
        // fs/proc/task_mmu.c.
        needed |= CapabilitySet::SYS_ADMIN;
    }
    if duties.numa_maps {
        needed |= CapabilitySet::SYS_PTRACE;
    }
    needed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watching_needs_nothing_and_writing_little() {
        let all = CapabilitySet::DAC_OVERRIDE | CapabilitySet::SYS_PTRACE | CapabilitySet::SYS_NICE;
        for (mode, numa_maps, kept) in [
            (Mode::Observe, false, CapabilitySet::empty()),
            (Mode::Observe, true, CapabilitySet::SYS_PTRACE),
            (Mode::Enforce, false, all),
            (Mode::Enforce, true, all),
        ] {
            let duties = Duties { mode, numa_maps, bpf: true, partitions: false, frames: false };
            assert_eq!(needed(duties), kept, "{mode:?} {numa_maps}");
            for duties in [Duties { partitions: true, ..duties }, Duties { frames: true, ..duties }] {
                let more = needed(duties).difference(kept);
                assert_eq!(more.is_empty(), mode == Mode::Observe, "{more:?}");
            }
        }
    }

    #[test]
    fn a_thread_that_renounced_has_nothing_left() {
        let before = capabilities(None).unwrap();
        let left = std::thread::spawn(|| renounce().and_then(|()| Ok(capabilities(None)?))).join().unwrap();
        let nothing = CapabilitySet::empty();
        let nothing = CapabilitySets { effective: nothing, permitted: nothing, inheritable: nothing };
        assert_eq!(left.unwrap(), nothing);
        assert_eq!(capabilities(None).unwrap(), before, "other threads keep theirs");
    }

    #[test]
    fn a_thread_that_reduced_its_privileges_cannot_get_them_back() {
        let before = capabilities(None).unwrap();
        let duties =
            Duties { mode: Mode::Enforce, numa_maps: false, bpf: false, partitions: false, frames: false };
        let reduced = std::thread::spawn(move || {
            reduce(duties).unwrap();
            let sets = capabilities(None).unwrap();
            assert_eq!(set(before.effective, before.permitted).is_err(), sets.permitted != before.permitted);
            sets
        });
        let sets = reduced.join().unwrap();
        assert_eq!(sets.effective, needed(duties) & before.permitted);
        assert_eq!(sets.permitted, sets.effective);
        assert_eq!(capabilities(None).unwrap(), before, "other threads keep theirs");
    }
}
