//! Which scenarios resume a saved guest.
//!
//! A snapshot costs a boot and two seconds more, and each resume saves most of a boot: it pays as soon as
//! two scenarios of a run share a machine. A machine that only one of them needs is resumed if
//! someone has saved it, else booted. A second try is always a boot.

use crate::{
    setup::Rig,
    vm::{Guest, Snapshot, Snapshots},
    workspace::Workspace,
};

use super::scenario::Scenario;

/// Scenarios of a run that must share a machine for it to be saved.
const SHARING: usize = 2;

/// The choice for all scenarios of a run.
pub(super) struct Resume<'a> {
    /// `None`: every guest boots.
    snapshots: Option<Snapshots>,
    chosen: &'a [&'a Scenario],
}

impl<'a> Resume<'a> {
    /// For the scenarios of a run.
    pub(super) fn new(workspace: &Workspace, rig: &Rig, chosen: &'a [&'a Scenario]) -> anyhow::Result<Self> {
        Ok(Self { snapshots: Some(Snapshots::of(workspace, rig)?), chosen })
    }

    /// No scenario resumes.
    pub(super) const fn never() -> Self {
        Self { snapshots: None, chosen: &[] }
    }

    /// What a scenario's guest is resumed from; `None` boots it. Says why there is no snapshot when
    /// there ought to be one.
    pub(super) fn snapshot(
        &self,
        scenario: &Scenario,
        guest: &Guest,
        say: &mut dyn FnMut(&str),
    ) -> Option<Snapshot> {
        let snapshots = self.snapshots.as_ref()?;
        let found = if self.is_shared(scenario) {
            snapshots.find_or_make(guest).map(Some)
        } else {
            snapshots.find(guest)
        };
        found.unwrap_or_else(|error| {
            say(&format!("no snapshot, so the guest is booted: {error:#}"));
            None
        })
    }

    fn is_shared(&self, scenario: &Scenario) -> bool {
        self.chosen.iter().filter(|other| other.machine() == scenario.machine()).count() >= SHARING
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn scenario(topology: &str, kernel_arguments: &str) -> Scenario {
        let text = json!({
            "name": "x-y", "topology": topology, "kernelArguments": kernel_arguments, "limitSeconds": 1,
            "needsProduct": false, "onlyByName": false, "needsKernelSide": false,
        });
        serde_json::from_value(text).unwrap()
    }

    #[test]
    fn a_machine_is_its_topology_and_its_kernel_arguments() {
        let (one, same) = (scenario("2s", ""), scenario("2s", ""));
        let (other, argued) = (scenario("uma", ""), scenario("2s", "quiet"));
        let chosen = [&one, &same, &other, &argued];
        let resume = Resume { snapshots: None, chosen: &chosen };
        let shared: Vec<_> = chosen.iter().map(|scenario| resume.is_shared(scenario)).collect();
        assert_eq!(shared, [true, true, false, false]);
    }
}
