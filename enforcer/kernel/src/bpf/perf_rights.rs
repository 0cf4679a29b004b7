//! Why `perf_event_open(2)` is refused: which of the settings and rights is the cause.
//!
//! `CAP_PERFMON` is what mainline asks for. Debian and others refuse the call from
//! `kernel.perf_event_paranoid` = 3 on to every process without `CAP_SYS_ADMIN`, before anything else
//! (their patch "Allow further restriction of `perf_event_open`"), so that a daemon with the right that the
//! kernel's documentation names gets no event. A seccomp filter refuses with the same error.

use std::io;

use rustix::{
    io::Errno,
    thread::{CapabilitySet, capabilities},
};

use enforcer_host::HostRoot;

/// The setting, below `/proc`.
const PARANOID: &str = "sys/kernel/perf_event_paranoid";
/// From this value on some kernels want `CAP_SYS_ADMIN`.
const ADMIN_ONLY: i64 = 3;

/// What decides whether events may be opened.
#[derive(Debug, Clone, Copy)]
pub(super) struct PerfRights {
    /// `kernel.perf_event_paranoid`; `None` where it cannot be read.
    pub(super) paranoid: Option<i64>,
    pub(super) capabilities: CapabilitySet,
}

impl PerfRights {
    /// Those of the calling thread.
    pub(super) fn here() -> Self {
        let text = HostRoot::live().proc.join(PARANOID).read_text();
        let paranoid = text.ok().and_then(|text| text.trim().parse().ok());
        let capabilities = capabilities(None).map_or(CapabilitySet::empty(), |sets| sets.effective);
        Self { paranoid, capabilities }
    }

    /// Why the call failed with that error; `None` where it is no question of rights.
    pub(super) fn refusal(self, error: &io::Error) -> Option<String> {
        if !matches!(Errno::from_io_error(error), Some(Errno::ACCESS | Errno::PERM)) {
            return None;
        }
        let level = self.paranoid.map_or_else(
            || "kernel.perf_event_paranoid cannot be read".to_owned(),
            |level| format!("kernel.perf_event_paranoid is {level}"),
        );
        let has = |capability| self.capabilities.contains(capability);
        Some(if has(CapabilitySet::SYS_ADMIN) {
            format!("{level}, and CAP_SYS_ADMIN is there: a seccomp filter or a security module refuses it")
        } else if self.paranoid.is_some_and(|level| level >= ADMIN_ONLY) {
            format!(
                "{level}: from {ADMIN_ONLY} on kernels of Debian and others take CAP_SYS_ADMIN for it, and \
                 CAP_PERFMON does not suffice"
            )
        } else if has(CapabilitySet::PERFMON) {
            format!("{level}, and CAP_PERFMON is there: a seccomp filter or a security module refuses it")
        } else {
            format!("{level}: it takes CAP_PERFMON")
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_cause_of_a_refusal_is_what_refuses() {
        let (none, perfmon) = (CapabilitySet::empty(), CapabilitySet::PERFMON);
        for (paranoid, capabilities, said) in [
            (Some(3), perfmon, "kernel.perf_event_paranoid is 3: from 3 on"),
            (Some(4), perfmon, "CAP_PERFMON does not suffice"),
            (Some(3), none, "take CAP_SYS_ADMIN"),
            (Some(3), CapabilitySet::SYS_ADMIN, "a seccomp filter or a security module"),
            (Some(2), perfmon, "kernel.perf_event_paranoid is 2, and CAP_PERFMON is there: a seccomp filter"),
            (Some(2), none, "kernel.perf_event_paranoid is 2: it takes CAP_PERFMON"),
            (None, none, "cannot be read: it takes CAP_PERFMON"),
        ] {
            for errno in [Errno::ACCESS, Errno::PERM] {
                let refusal = PerfRights { paranoid, capabilities }.refusal(&errno.into()).unwrap();
                assert!(refusal.contains(said), "{paranoid:?}: {refusal}");
            }
        }
        assert_eq!(PerfRights { paranoid: Some(3), capabilities: none }.refusal(&Errno::NOENT.into()), None);
    }
}
