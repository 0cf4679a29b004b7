//! Which scenario plays on which kernel.
//!
//! What the kernel side sees and what it can do without differs from kernel to kernel, so these groups can
//! play on all of them. What placement writes does not: every other scenario plays on the default kernel.
//! Every run plays one group on a second kernel, or nobody would notice until someone asks for all.

use super::scenario::Scenario;
use crate::series::{Kernels, Series};

/// Groups that play on the kernels that were asked for.
const KERNEL_SIDE: &[&str] = &["eyes-", "degrade-"];

/// Groups that play on the second kernel too when none was asked for.
const ALWAYS_ON_SECOND: &[&str] = &["eyes-"];

/// Of these, what samples for minutes and sees no more than the others on another kernel.
const NOT_ON_SECOND: &[&str] = &["eyes-traffic"];

/// A scenario on a kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Play<'a> {
    pub(super) scenario: &'a Scenario,
    pub(super) kernel: Series,
}

impl Play<'_> {
    /// The scenario's name, with the kernel's where that is not the default.
    pub(super) fn name(&self) -> String {
        let scenario = &self.scenario.name;
        if self.kernel == Series::DEFAULT { scenario.clone() } else { format!("{scenario}@{}", self.kernel) }
    }

    /// Kernel, topology and kernel arguments.
    pub(super) fn machine(&self) -> (&str, &str, &str) {
        (self.kernel.name(), &self.scenario.topology, &self.scenario.kernel_arguments)
    }
}

/// Every scenario on each of its kernels; those of one kernel follow each other, the default first, so that
/// few machines are in use at a time.
pub(crate) fn plays<'a>(chosen: &[&'a Scenario], asked: Option<&Kernels>) -> Vec<Play<'a>> {
    let on_its_kernels = |&scenario: &&'a Scenario| {
        kernels(&scenario.name, asked).into_iter().map(move |kernel| Play { scenario, kernel })
    };
    let mut plays: Vec<Play> = chosen.iter().flat_map(on_its_kernels).collect();
    let order: Vec<Series> = Series::all().collect();
    plays.sort_by_key(|play| {
        let at = order.iter().position(|series| *series == play.kernel);
        (play.kernel != Series::DEFAULT, at)
    });
    plays
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
        let scenarios: Vec<_> = scenarios.iter().map(|name| Scenario::example(name, "2s", "")).collect();
        let chosen: Vec<_> = scenarios.iter().collect();
        let asked = asked.map(|list| list.parse().unwrap());
        plays(&chosen, asked.as_ref()).iter().map(Play::name).collect()
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
    fn the_same_scenario_on_two_kernels_is_two_machines() {
        let scenario = Scenario::example("eyes-a", "2s", "");
        let [one, other] =
            [Series::DEFAULT, Series::SECOND].map(|kernel| Play { scenario: &scenario, kernel });
        assert_ne!(one.machine(), other.machine());
        assert_eq!(one.machine(), Play { ..one }.machine());
    }
}
