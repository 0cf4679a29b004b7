//! Which scenario plays on which kernel.
//!
//! What the kernel side sees and what it can do without differs from kernel to kernel, so these groups can
//! play on all of them. What placement writes does not: every other scenario plays on the default kernel.
//! Every run plays one group on a second kernel; otherwise a fault there would stay unnoticed until a run of
//! all.
//!
//! What makes containers plays with one container runtime, the default one unless another is asked for; what
//! is about systemd plays where it is process 1.

use super::scenario::ListedScenario;
use crate::{
    architecture::Architecture,
    containerd::ContainerdPackages,
    guest_parts::GuestParts,
    series::{Kernels, Series},
    userland::Userland,
};

/// Groups that play on the kernels that were asked for.
const KERNEL_SIDE: &[&str] = &["eyes-", "degrade-"];

/// Groups that play on the second kernel too when none was asked for.
const ALWAYS_ON_SECOND: &[&str] = &["eyes-"];

/// Of these, what takes minutes and sees no more than the others on another kernel, or what those that are
/// left do not need: every program is loaded, attached and counted by on the second kernel all the same.
const NOT_ON_SECOND: &[&str] = &[
    "eyes-two-nodes",
    "eyes-traffic",
    "eyes-bound",
    "eyes-churn",
    "eyes-moves",
    "eyes-self-placed",
    "eyes-spread",
];

/// The group that plays on arm64; all others play on amd64 unless another architecture is asked for.
const ON_ARM64: &str = "arm64-";

/// What a run asks for, other than the default parts of a machine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AskedParts<'a> {
    pub(crate) architecture: Option<Architecture>,
    pub(crate) kernels: Option<&'a Kernels>,
    pub(crate) containerd: ContainerdPackages,
}

impl AskedParts<'_> {
    /// Nothing.
    pub(crate) const NONE: Self =
        Self { architecture: None, kernels: None, containerd: ContainerdPackages::DEFAULT };
}

/// A scenario on a kernel, and with the root file system that it needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Play<'a> {
    pub(super) scenario: &'a ListedScenario,
    pub(super) parts: GuestParts,
}

impl Play<'_> {
    /// The scenario's name, with what is not the default: kernel, architecture, container runtime.
    pub(super) fn name(&self) -> String {
        let GuestParts { architecture, kernel, userland } = self.parts;
        let mut name = self.scenario.name.clone();
        if kernel != Series::DEFAULT {
            name.extend(["@", kernel.name()]);
        }
        if architecture != usual_architecture(&self.scenario.name) {
            name.extend(["@", architecture.debian()]);
        }
        if let Userland::Containers(other) = userland
            && other != ContainerdPackages::DEFAULT
        {
            name.extend(["@containerd-", other.name()]);
        }
        name
    }

    /// Its parts, topology and kernel arguments, and whether it has a network card.
    pub(super) fn machine(&self) -> (GuestParts, &str, &str, bool) {
        let ListedScenario { topology, kernel_arguments, needs_api, .. } = self.scenario;
        (self.parts, topology, kernel_arguments, *needs_api)
    }
}

/// Every scenario on each of its kernels; those of one kernel follow each other, the default first, so that
/// few machines are in use at a time. Of these, what makes containers comes first: it takes minutes, at the
/// end of which another guest still runs.
pub(crate) fn plays<'a>(chosen: &[&'a ListedScenario], asked: AskedParts<'_>) -> Vec<Play<'a>> {
    let on_its_kernels = |&scenario: &&'a ListedScenario| {
        let userland = Userland::of(scenario.needs_containerd, scenario.needs_systemd, asked.containerd);
        let architecture = asked.architecture.unwrap_or_else(|| usual_architecture(&scenario.name));
        kernels(&scenario.name, asked.kernels)
            .into_iter()
            .map(move |kernel| Play { scenario, parts: GuestParts { architecture, kernel, userland } })
    };
    let mut plays: Vec<Play> = chosen.iter().flat_map(on_its_kernels).collect();
    let order: Vec<Series> = Series::all().collect();
    plays.sort_by_key(|play| {
        let at = order.iter().position(|series| *series == play.parts.kernel);
        (play.parts.kernel != Series::DEFAULT, at, !play.scenario.needs_containerd)
    });
    plays
}

/// The architecture of a scenario's machine, by its group.
fn usual_architecture(scenario: &str) -> Architecture {
    if scenario.starts_with(ON_ARM64) { Architecture::Arm64 } else { Architecture::Amd64 }
}

fn kernels(scenario: &str, asked: Option<&Kernels>) -> Vec<Series> {
    let is_of = |groups: &[&str]| groups.iter().any(|group| scenario.starts_with(group));
    match asked {
        Some(kernels) if is_of(KERNEL_SIDE) => kernels.as_slice().to_vec(),
        None if is_of(ALWAYS_ON_SECOND) && !is_of(NOT_ON_SECOND) => vec![Series::DEFAULT, Series::SECOND],
        _ => vec![Series::DEFAULT],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(scenarios: &[&str], asked: Option<&str>) -> Vec<String> {
        let scenarios: Vec<_> =
            scenarios.iter().map(|name| ListedScenario::example(name, "2s", "")).collect();
        let chosen: Vec<_> = scenarios.iter().collect();
        let kernels = asked.map(|list| list.parse().unwrap());
        let asked = AskedParts { kernels: kernels.as_ref(), ..AskedParts::NONE };
        plays(&chosen, asked).iter().map(Play::name).collect()
    }

    #[test]
    fn the_container_runtime_is_part_of_a_machine_that_has_one() {
        let with = ListedScenario::example("node-a", "2s", "").with_containers();
        let without = ListedScenario::example("rig-a", "2s", "");
        let chosen = [&with, &without];
        let newest = ContainerdPackages::all().last().unwrap();
        for (containerd, wanted) in
            [(ContainerdPackages::DEFAULT, ["node-a", "rig-a"]), (newest, ["node-a@containerd-2", "rig-a"])]
        {
            let plays = plays(&chosen, AskedParts { containerd, ..AskedParts::NONE });
            assert_eq!(plays.iter().map(Play::name).collect::<Vec<_>>(), wanted);
            let wanted = GuestParts { userland: Userland::Containers(containerd), ..GuestParts::DEFAULT };
            assert_eq!(plays[0].parts, wanted);
            assert_ne!(plays[0].machine(), plays[1].machine());
        }
    }

    #[test]
    fn a_run_plays_the_eyes_on_a_second_kernel() {
        assert_eq!(
            names(&["rig-a", "eyes-a", "eyes-traffic", "degrade-a"], None),
            ["rig-a", "eyes-a", "eyes-traffic", "degrade-a", "eyes-a@5.10"]
        );
    }

    #[test]
    fn kernels_that_are_asked_for_play_the_kernel_side_and_nothing_else() {
        let scenarios = ["correct-a", "eyes-a", "degrade-a"];
        assert_eq!(
            names(&scenarios, Some("7.2,6.1")),
            ["correct-a", "eyes-a@6.1", "degrade-a@6.1", "eyes-a@7.2", "degrade-a@7.2"]
        );
        assert_eq!(names(&scenarios, Some("6.12")), scenarios);
        let all = names(&["eyes-a"], Some("all"));
        assert_eq!(all, ["eyes-a", "eyes-a@5.10", "eyes-a@6.1", "eyes-a@6.18", "eyes-a@7.2"]);
    }

    #[test]
    fn a_group_plays_on_arm64_and_the_others_when_it_is_asked_for() {
        let scenarios = ["arm64-a", "rig-a"].map(|name| ListedScenario::example(name, "2s", ""));
        let chosen: Vec<_> = scenarios.iter().collect();
        let (amd64, arm64) = (Architecture::Amd64, Architecture::Arm64);
        for (architecture, names, architectures) in [
            (None, ["arm64-a", "rig-a"], [arm64, amd64]),
            (Some(arm64), ["arm64-a", "rig-a@arm64"], [arm64, arm64]),
            (Some(amd64), ["arm64-a@amd64", "rig-a"], [amd64, amd64]),
        ] {
            let plays = plays(&chosen, AskedParts { architecture, ..AskedParts::NONE });
            assert_eq!(plays.iter().map(Play::name).collect::<Vec<_>>(), names);
            assert_eq!(plays.iter().map(|play| play.parts.architecture).collect::<Vec<_>>(), architectures);
        }
    }

    #[test]
    fn the_same_scenario_on_two_kernels_is_two_machines() {
        let scenario = ListedScenario::example("eyes-a", "2s", "");
        let [one, other] = [Series::DEFAULT, Series::SECOND]
            .map(|kernel| Play { scenario: &scenario, parts: GuestParts { kernel, ..GuestParts::DEFAULT } });
        assert_ne!(one.machine(), other.machine());
        assert_eq!(one.machine(), Play { ..one }.machine());
    }
}
