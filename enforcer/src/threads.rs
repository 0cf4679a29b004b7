//! The threads of the daemon, and which capabilities each one keeps.
//!
//! Problem: capabilities belong to threads, and a thread that parses what others send (metrics readers, the
//! runtime, the kubelet) should have none that an attacker could use.
//!
//! Idea: the threads that live as long as the daemon are started here, by their roles. The first thing that a
//! thread does is to give up what [`Role::keeps`] does not name, for good. This table is what
//! docs/privileges.md promises, and what `each_thread_keeps_what_its_role_needs` reads from a running daemon.
//!
//! Invariants: a thread never has more than the thread that started it: that holds for the short-lived
//! threads that one of these starts itself, too (`departures`, `exposure`, `widening-write`,
//! `widening-above`), and for those of the scheduler's extender (`answers`).

use std::{
    io,
    sync::atomic::{AtomicUsize, Ordering},
    thread::{self, Builder, JoinHandle},
};

use rustix::thread::CapabilitySet;
use strum::{IntoStaticStr, VariantArray};

use enforcer_kernel::privileges;

/// What a thread is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, IntoStaticStr, VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum Role {
    /// Answers readers of metrics and reports.
    Serve,
    /// Answers `/live` and `/ready` on a port of their own.
    Probes,
    /// Answers readers of reports on a loopback port of their own.
    Reports,
    /// Answers the control socket.
    Control,
    /// Keeps the link to the container runtime up.
    Nri,
    /// Decides what the runtime asks, and writes what containers read of it.
    Placement,
    /// Watches what the kubelet gives away.
    Kubelet,
    /// Speaks to the API server.
    Cluster,
    /// Makes the state of the node that is published.
    NodeState,
    /// Prepares resource claims for the kubelet, and publishes devices.
    Claims,
    /// Writes what turns decided from.
    Recording,
    /// Writes the record of containers that are being created.
    Making,
    /// Adds memory nodes to workloads that run short.
    Widening,
    /// Moves memory off a full node.
    Relief,
    /// Slows workloads down.
    Brake,
    /// Moves cold pages.
    ColdPages,
}

/// Every role.
pub const ROLES: &[Role] = Role::VARIANTS;

impl Role {
    /// Name of the thread, as in `/proc/PID/task/TID/comm`.
    pub fn name(self) -> &'static str {
        self.into()
    }

    /// The most that a thread of this role keeps of what the daemon has.
    pub fn keeps(self) -> CapabilitySet {
        let cgroup_files = CapabilitySet::DAC_OVERRIDE;
        let pages = CapabilitySet::SYS_PTRACE;
        match self {
            // What comes from a socket, and files of root.
            Self::Serve
            | Self::Probes
            | Self::Reports
            | Self::Control
            | Self::Nri
            | Self::Placement
            | Self::Kubelet
            | Self::Cluster
            | Self::NodeState
            | Self::Claims
            | Self::Recording
            | Self::Making => CapabilitySet::empty(),
            // `cpuset.mems` and `memory.high` of other users' cgroups; maps of the eBPF programs.
            Self::Widening => cgroup_files | CapabilitySet::BPF,
            Self::Brake => cgroup_files,
            // move_pages(2) and `numa_maps`.
            Self::Relief => cgroup_files | pages,
            // And frames in `/proc/PID/pagemap`.
            Self::ColdPages => cgroup_files | pages | CapabilitySet::SYS_ADMIN,
        }
    }
}

/// Starts a thread, which gives up what its role does not keep before it does anything else.
pub fn spawn<T: Send + 'static>(
    role: Role,
    work: impl FnOnce() -> T + Send + 'static,
) -> io::Result<JoinHandle<T>> {
    let narrowed = move || {
        if let Err(error) = privileges::narrow(role.keeps()) {
            tracing::error!(
                "thread {}: giving up privileges: {error}; it keeps those of the daemon",
                role.name()
            );
        }
        work()
    };
    Builder::new().name(role.name().into()).spawn(narrowed)
}

/// Calls `work` once with each number below `parts`, on at most `threads` threads, the caller's included;
/// returns when all have ended. A thread takes the next part when it is done with one, so a CPU that is busy
/// elsewhere holds up one part alone.
pub fn at_once(threads: usize, parts: usize, work: &(dyn Fn(usize) + Sync)) {
    let next = AtomicUsize::new(0);
    let take_parts = || {
        let taken = std::iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        taken.take_while(|part| *part < parts).for_each(work);
    };
    thread::scope(|scope| {
        for _ in 1..threads.min(parts) {
            if let Err(error) = Builder::new().name("answers".into()).spawn_scoped(scope, take_parts) {
                tracing::debug!("starting a thread for parts of an answer: {error}");
            }
        }
        take_parts();
    });
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rustix::thread::capabilities;

    use super::*;

    #[test]
    fn names_are_unique_and_fit_into_the_kernel() {
        let names: BTreeSet<_> = ROLES.iter().map(|role| role.name()).collect();
        assert_eq!(names.len(), ROLES.len());
        assert!(names.iter().all(|name| name.len() < 16));
    }

    #[test]
    fn each_part_is_done_once() {
        for (threads, parts) in (0..4).flat_map(|threads| (0..5).map(move |parts| (threads, parts))) {
            let done = std::sync::Mutex::new(Vec::new());
            at_once(threads, parts, &|part| done.lock().unwrap().push(part));
            let mut done = done.into_inner().unwrap();
            done.sort_unstable();
            assert_eq!(done, (0..parts).collect::<Vec<_>>(), "{threads}");
        }
    }

    #[test]
    fn parts_behind_a_slow_one_are_done_by_others() {
        let done = std::sync::Barrier::new(2);
        let left = AtomicUsize::new(7);
        at_once(2, 8, &|part| {
            // Part 0 ends after all others have ended.
            if part == 0 || left.fetch_sub(1, Ordering::Relaxed) == 1 {
                done.wait();
            }
        });
        assert_eq!(left.into_inner(), 0);
    }

    #[test]
    fn a_thread_keeps_at_most_what_its_role_names() {
        let before = capabilities(None).unwrap();
        for &role in ROLES {
            let sets = spawn(role, || capabilities(None).unwrap()).unwrap().join().unwrap();
            assert_eq!(sets.permitted, role.keeps() & before.permitted, "{role:?}");
            assert_eq!(sets.effective, role.keeps() & before.effective, "{role:?}");
        }
        assert_eq!(capabilities(None).unwrap(), before, "the thread that started them keeps its own");
    }
}
