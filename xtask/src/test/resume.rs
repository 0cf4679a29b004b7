//! Which scenarios resume a saved guest.
//!
//! A snapshot costs a boot and two seconds more, and each resume saves most of a boot: it pays as soon as
//! two scenarios of a run share a machine. A machine that only one of them needs is resumed if an earlier run
//! has saved it, else booted. A second try is always a boot.

use std::path::Path;

use crate::{
    vm::{Guest, Snapshot, Snapshots},
    workspace::Workspace,
};

use super::matrix::Play;

/// Scenarios of a run that must share a machine for it to be saved.
const SHARING: usize = 2;

/// The choice for all scenarios of a run.
pub(super) struct SnapshotResume<'a> {
    /// `None`: every guest boots.
    snapshots: Option<Snapshots>,
    plays: &'a [Play<'a>],
}

impl<'a> SnapshotResume<'a> {
    /// For the scenarios of a run.
    pub(super) fn new(workspace: &Workspace, qemu: &Path, plays: &'a [Play<'a>]) -> anyhow::Result<Self> {
        Ok(Self { snapshots: Some(Snapshots::of(workspace, qemu)?), plays })
    }

    /// No scenario resumes.
    pub(super) const fn never() -> Self {
        Self { snapshots: None, plays: &[] }
    }

    /// What a scenario's guest is resumed from; `None` boots it. Says why there is no snapshot when
    /// there ought to be one.
    pub(super) fn snapshot(&self, play: &Play, guest: &Guest, say: &mut dyn FnMut(&str)) -> Option<Snapshot> {
        // What is on its way to this host would be saved too.
        let can_be_saved = play.parts.can_be_saved() && !play.scenario.needs_api;
        let snapshots = self.snapshots.as_ref().filter(|_| can_be_saved)?;
        let found = if self.is_shared(play) {
            snapshots.find_or_make(guest).map(Some)
        } else {
            snapshots.find(guest)
        };
        found.unwrap_or_else(|error| {
            say(&format!("no snapshot, so the guest is booted: {error:#}"));
            None
        })
    }

    fn is_shared(&self, play: &Play) -> bool {
        self.plays.iter().filter(|other| other.machine() == play.machine()).count() >= SHARING
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        containerd::ContainerdPackages, guest_parts::GuestParts, series::Series,
        test::scenario::ListedScenario, userland::Userland,
    };

    #[test]
    fn a_machine_is_its_parts_its_topology_and_its_kernel_arguments() {
        let scenarios = [("2s", ""), ("2s", ""), ("uma", ""), ("2s", "quiet")]
            .map(|(topology, arguments)| ListedScenario::example("x-y", topology, arguments));
        let mut plays: Vec<_> =
            scenarios.iter().map(|scenario| Play { scenario, parts: GuestParts::DEFAULT }).collect();
        let others = [
            GuestParts { kernel: Series::SECOND, ..GuestParts::DEFAULT },
            GuestParts { userland: Userland::Containers(ContainerdPackages::DEFAULT), ..GuestParts::DEFAULT },
        ];
        plays.extend(others.map(|parts| Play { parts, ..plays[0] }));
        let resume = SnapshotResume { snapshots: None, plays: &plays };
        let shared: Vec<_> = plays.iter().map(|play| resume.is_shared(play)).collect();
        assert_eq!(shared, [true, true, false, false, false, false]);
    }
}
