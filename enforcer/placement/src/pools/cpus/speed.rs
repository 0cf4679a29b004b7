//! Determines faster and slower CPUs.
//!
//! Problem: a container may prefer fast or slow CPUs, and machines report them in several ways. Idea: three
//! sources, in ascending order of precedence:
//!
//! 1. base frequency: if the CPUs of a package have several, those with the lowest are slow, those above are
//!    fast. So CPUs that firmware favours (Intel SST-BF) are found without its own interface;
//! 2. energy preference: if the CPUs of a package (without efficiency cores) have several, those nearest to
//!    low power are slow, the others fast;
//! 3. CPUs of efficiency cores are slow.
//!
//! All other CPUs are ordinary, and all CPUs are if they are alike: a CPU is fast or slow only relative to
//! another one. The maximum frequency is ignored: it differs slightly between the cores of one package, and
//! no core sustains it under load.
//!
//! Cost: O(packages x kinds) set operations.

use std::collections::BTreeMap;

use numa_topology::{CoreType, CpuKind, Topology, set::CpuSet};

/// CPUs that are not ordinary.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Speeds {
    /// Faster than others.
    pub(super) fast: CpuSet,
    /// Slower than others.
    pub(super) slow: CpuSet,
}

impl Speeds {
    /// Determines the speeds of a machine.
    pub(super) fn of(machine: &Topology) -> Self {
        let mut speeds = Self::default();
        if machine.cpu_kinds.is_empty() {
            return speeds;
        }
        let efficient = |kind: &CpuKind| kind.core_type == Some(CoreType::Efficiency);
        for package in packages(machine) {
            speeds.sort_by(machine, &package, |kind| kind.base_frequency_khz);
            speeds.sort_by(machine, &package, |kind| {
                let preference = kind.energy_preference.filter(|_| !efficient(kind));
                preference.map(|preference| u64::from(u8::MAX - preference.0))
            });
        }
        for kind in machine.cpu_kinds.iter().filter(|kind| efficient(kind)) {
            speeds.fast = speeds.fast.difference(&kind.cpus);
            speeds.slow.extend(&kind.cpus);
        }
        if machine.online_cpus().is_subset(&speeds.slow) { Self::default() } else { speeds }
    }

    /// If a package has several values, the lowest one is slow and those above are fast.
    fn sort_by(&mut self, machine: &Topology, package: &CpuSet, value: impl Fn(&CpuKind) -> Option<u64>) {
        let mut by_value = BTreeMap::<u64, CpuSet>::new();
        for kind in &machine.cpu_kinds {
            let here = kind.cpus.intersection(package);
            if let Some(value) = value(kind).filter(|_| !here.is_empty()) {
                by_value.entry(value).or_default().extend(&here);
            }
        }
        let mut values = by_value.into_values();
        let (Some(slow), true) = (values.next(), values.len() > 0) else { return };
        let fast = values.fold(CpuSet::new(), |fast, cpus| fast.union(&cpus));
        self.fast = self.fast.difference(&slow).union(&fast);
        self.slow = self.slow.difference(&fast).union(&slow);
    }
}

/// The packages; CPUs without one form another.
fn packages(machine: &Topology) -> Vec<CpuSet> {
    let mut packages: Vec<CpuSet> = machine.packages.iter().map(|package| package.cpus.clone()).collect();
    let packaged = packages.iter().fold(CpuSet::new(), |all, cpus| all.union(cpus));
    packages.push(machine.online_cpus().difference(&packaged));
    packages
}

#[cfg(test)]
mod tests {
    use super::*;
    use numa_topology::{EnergyPreference, synth::Machine};

    /// CPUs, base frequency in MHz, energy preference, efficiency cores.
    type Kind = (&'static str, Option<u64>, Option<u8>, bool);

    /// Two packages of four CPUs.
    fn speeds(kinds: &[Kind]) -> (String, String) {
        let mut machine = Machine::new().sockets(2).cores(4).threads(1).build();
        let kind = |(cpus, mhz, preference, efficient): &Kind| CpuKind {
            cpus: cpus.parse().unwrap(),
            core_type: efficient.then_some(CoreType::Efficiency),
            base_frequency_khz: mhz.map(|mhz| mhz * 1000),
            energy_preference: preference.map(EnergyPreference),
            ..CpuKind::default()
        };
        machine.cpu_kinds = kinds.iter().map(kind).collect();
        let Speeds { fast, slow } = Speeds::of(&machine);
        assert!(fast.is_disjoint(&slow));
        (fast.to_string(), slow.to_string())
    }

    #[test]
    fn frequencies_preferences_and_types_of_cores() {
        let cases: [(&[Kind], &str, &str); 11] = [
            (&[], "", ""),
            (&[("0-7", Some(2000), Some(128), false)], "", ""),
            // CPUs are compared within their package.
            (&[("0-3", Some(2000), None, false), ("4-7", Some(3000), None, false)], "", ""),
            (&[("0-2,4-7", Some(2000), None, false), ("3", Some(2700), None, false)], "3", "0-2"),
            (
                &[("0", Some(1), None, false), ("1", Some(2), None, false), ("2-3", Some(3), None, false)],
                "1-3",
                "0",
            ),
            // CPUs without a known value are ordinary.
            (&[("0", Some(1), None, false), ("1", Some(2), None, false)], "1", "0"),
            (&[("0-1", None, Some(0), false), ("2-3", None, Some(255), false)], "0-1", "2-3"),
            // The preference overrides the frequency if there is one.
            (
                &[
                    ("0-1", Some(2), Some(255), false),
                    ("2", Some(1), Some(0), false),
                    ("3", Some(1), None, false),
                ],
                "2",
                "0-1,3",
            ),
            (&[("0-1", None, None, true)], "", "0-1"),
            // Efficiency cores are slow, whatever their preference.
            (&[("0-1", Some(2), Some(128), false), ("2-3", Some(1), Some(0), true)], "0-1", "2-3"),
            // All are slow, so none is slower than another.
            (&[("0-7", None, None, true)], "", ""),
        ];
        for (kinds, fast, slow) in cases {
            assert_eq!(speeds(kinds), (fast.to_owned(), slow.to_owned()), "{kinds:?}");
        }
    }

    #[test]
    fn cpus_without_a_package_are_compared_too() {
        let mut machine = Machine::new().cores(4).threads(1).build();
        machine.packages.clear();
        let kind = |cpus: &str, khz| CpuKind {
            cpus: cpus.parse().unwrap(),
            base_frequency_khz: Some(khz),
            ..CpuKind::default()
        };
        machine.cpu_kinds = vec![kind("0-1", 1), kind("2-3", 2)];
        let Speeds { fast, slow } = Speeds::of(&machine);
        assert_eq!((fast.to_string(), slow.to_string()), ("2-3".to_owned(), "0-1".to_owned()));
    }
}
