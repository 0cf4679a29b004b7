//! Classifies containers by the CPUs that they should have.
//!
//! Problem: its `QoS` class, CPU request, namespace, annotations and the settings put a container into one of
//! five groups: *preserved* (nothing is pinned), *reserved* (CPUs for the system), *shared*, *exclusive*, or
//! *mixed* (some exclusive, the rest shared). Idea: check from the strongest condition to the weakest; the
//! first that applies decides.
//!
//! | | container | opted in to shared CPUs | otherwise |
//! |---|---|---|---|
//! | 1 | `cpu.preserve` | | preserved |
//! | 2 | `prefer-reserved-cpus` | | reserved |
//! | 3 | in a reserved namespace, unless `prefer-reserved-cpus` says no | | reserved |
//! | 4 | not Guaranteed and not declared to have CPUs of its own, or less than one CPU | | shared |
//! | 4 | not Guaranteed and without declared exclusive CPUs, or less than one CPU | | shared |
//! | 6 | Guaranteed, two or more, a whole number | shared | all exclusive; isolated by annotation only |
//! | 6 | Guaranteed, two or more, a whole number | shared | all exclusive; isolated only by annotation |
//! | 7 | Guaranteed, two or more, with a fraction | shared | the same as 5, but only if the annotation disables shared CPUs |
//! Invariant: one malformed glob of a reserved namespace never disables the others.

use super::{
    annotations::{IsolatedCpus, Preferences},
    request::RequestedAmounts,
};
use crate::{
    CpuClass, QosClass,
    settings::{CpuPriority, PoolLevel, PoolsSettings, glob_matcher::GlobMatcher},
};

/// The namespace that is always reserved.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// CPUs that a container should have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuDemand {
    /// Its group: shared, exclusive, mixed, reserved or preserved. Whether exclusive CPUs are isolated is
    /// only known when they are taken.
    pub class: CpuClass,
    /// Number of exclusive CPUs.
    pub full: u64,
    /// Shared CPU time in thousandths of a CPU; for the preserved group only accounted.
    pub fraction_milli: u64,
    /// CPU limit of a Burstable container.
    pub limit: CpuLimit,
    /// Whether the exclusive CPUs are isolated.
    pub isolate: Isolate,
    /// Priority of the exclusive CPUs.
    pub priority: CpuPriority,
    /// The rule that decided.
    pub because: &'static str,
}

/// Maximum CPU time of a container.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CpuLimit {
    /// Its request.
    #[default]
    Request,
    /// Thousandths of a CPU.
    Milli(u64),
    /// All of a pool of this level.
    Unlimited(PoolLevel),
}

/// Use of CPUs of `isolcpus=` as exclusive ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolate {
    /// Ordinary CPUs.
    #[default]
    No,
    /// Isolated CPUs if there are enough.
    Prefer,
    /// Only isolated CPUs.
    Require,
}

/// Assigns containers to their groups.
#[derive(Debug, Clone)]
pub struct Classifier {
    reserved_namespaces: Vec<GlobMatcher>,
    prefer_isolated: bool,
    prefer_shared: bool,
    priority: CpuPriority,
    unlimited_burstable: PoolLevel,
}

impl Classifier {
    /// A classifier with these settings, and errors of globs that are left out.
    pub fn new(settings: &PoolsSettings) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let mut reserved_namespaces = Vec::new();
        for text in &settings.reserved_pool_namespaces {
            match GlobMatcher::of_paths(text) {
                Ok(glob) => reserved_namespaces.push(glob),
                Err(problem) => {
                    problems.push(format!("placement.pools.reserved_pool_namespaces: {text:?}: {problem}"));
                }
            }
        }
        let classifier = Self {
            reserved_namespaces,
            prefer_isolated: settings.prefer_isolated_cpus,
            prefer_shared: settings.prefer_shared_cpus,
            priority: settings.default_cpu_priority,
            unlimited_burstable: settings.unlimited_burstable,
        };
        (classifier, problems)
    }

    /// CPU demand of a container with this class and namespace.
    pub fn classify(
        &self,
        amounts: &RequestedAmounts,
        qos: QosClass,
        namespace: &str,
        preferences: &Preferences,
    ) -> CpuDemand {
        let milli = amounts.milli_cpus;
        let together = |class, because| CpuDemand {
            class,
            full: 0,
            fraction_milli: milli,
            limit: CpuLimit::Request,
            isolate: Isolate::No,
            priority: CpuPriority::None,
            because,
        };
        if preferences.preserve_cpu {
            return together(CpuClass::Preserved, "cpu.preserve is set");
        }
        match preferences.reserved {
            Some(true) => return together(CpuClass::Reserved, "prefer-reserved-cpus is set"),
            None if self.is_reserved(namespace) => {
                return together(CpuClass::Reserved, "its namespace is reserved");
            }
            Some(false) | None => {}
        }
        match qos {
            _ if preferences.alone => self.guaranteed(milli, preferences),
            QosClass::Burstable => {
                let level = preferences.unlimited_burstable.unwrap_or(self.unlimited_burstable);
                let limit = amounts.milli_cpu_limit;
                CpuDemand {
                    limit: limit.map_or(CpuLimit::Unlimited(level), CpuLimit::Milli),
                    ..together(CpuClass::Shared, "it is Burstable")
                }
            }
            QosClass::BestEffort => {
                CpuDemand { fraction_milli: 0, ..together(CpuClass::Shared, "it is BestEffort") }
            }
            QosClass::Guaranteed => self.guaranteed(milli, preferences),
        }
    }

    fn is_reserved(&self, namespace: &str) -> bool {
        namespace == SYSTEM_NAMESPACE || self.reserved_namespaces.iter().any(|glob| glob.is_match(namespace))
    }

    fn guaranteed(&self, milli: u64, preferences: &Preferences) -> CpuDemand {
        let (full, rest) = (milli / 1000, milli % 1000);
        let shared_wanted = preferences.shared.unwrap_or(self.prefer_shared);
        let isolated_by_default = match preferences.isolated {
            Some(wish) => wish.into(),
            None if self.prefer_isolated => Isolate::Prefer,
            None => Isolate::No,
        };
        let (alone, isolate, because) = match (full, rest) {
            (0, _) => (false, Isolate::No, "it is Guaranteed less than one CPU"),
            (1, _) if !shared_wanted => {
                (true, isolated_by_default, "it is Guaranteed one CPU and less than two")
            }
            (_, 0) if !shared_wanted => {
                let isolate = preferences.isolated.map_or(Isolate::No, Isolate::from);
                (true, isolate, "it is Guaranteed a whole number of CPUs")
            }
            (2.., 1..) if preferences.shared == Some(false) => {
                (true, isolated_by_default, "prefer-shared-cpus is false")
            }
            (2.., 1..) => (false, Isolate::No, "it is Guaranteed more than two CPUs, with a fraction"),
            (1.., _) => (false, Isolate::No, "shared CPUs are preferred"),
        };
        if !alone {
            return CpuDemand {
                class: CpuClass::Shared,
                full: 0,
                fraction_milli: milli,
                limit: CpuLimit::Request,
                isolate,
                priority: CpuPriority::None,
                because,
            };
        }
        CpuDemand {
            class: if rest == 0 { CpuClass::Exclusive } else { CpuClass::Mixed },
            full,
            fraction_milli: rest,
            limit: CpuLimit::Request,
            isolate,
            priority: preferences.priority.unwrap_or(self.priority),
            because,
        }
    }
}

impl From<IsolatedCpus> for Isolate {
    fn from(wish: IsolatedCpus) -> Self {
        match wish {
            IsolatedCpus::Avoid => Self::No,
            IsolatedCpus::Prefer => Self::Prefer,
            IsolatedCpus::Require => Self::Require,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pools::request::MemoryAmount;

    fn amounts(milli_cpus: u64, milli_cpu_limit: Option<u64>) -> RequestedAmounts {
        RequestedAmounts {
            milli_cpus,
            milli_cpu_limit,
            memory: MemoryAmount { bytes: 0, limit: None, source: None },
        }
    }

    fn settings(prefer_isolated_cpus: bool, prefer_shared_cpus: bool) -> PoolsSettings {
        PoolsSettings { prefer_isolated_cpus, prefer_shared_cpus, ..PoolsSettings::default() }
    }

    /// In the notation of the specification's table: full CPUs, fraction, isolated or not.
    fn guaranteed(milli: u64, settings: &PoolsSettings, preferences: &Preferences) -> String {
        let (classifier, _) = Classifier::new(settings);
        let demand =
            classifier.classify(&amounts(milli, Some(milli)), QosClass::Guaranteed, "default", preferences);
        let CpuDemand { class, full, fraction_milli, isolate, .. } = demand;
        let expected = match (full, fraction_milli) {
            (0, _) => CpuClass::Shared,
            (_, 0) => CpuClass::Exclusive,
            _ => CpuClass::Mixed,
        };
        assert_eq!(class, expected);
        assert_eq!(full * 1000 + fraction_milli, milli);
        format!("{full}/{fraction_milli}/{}", if isolate == Isolate::No { "n" } else { "y" })
    }

    #[test]
    fn guaranteed_containers_by_settings() {
        for (milli, none, isolated, shared, both) in [
            (750, "0/750/n", "0/750/n", "0/750/n", "0/750/n"),
            (1000, "1/0/n", "1/0/y", "0/1000/n", "0/1000/n"),
            (1500, "1/500/n", "1/500/y", "0/1500/n", "0/1500/n"),
            (1999, "1/999/n", "1/999/y", "0/1999/n", "0/1999/n"),
            (2000, "2/0/n", "2/0/n", "0/2000/n", "0/2000/n"),
            (2500, "0/2500/n", "0/2500/n", "0/2500/n", "0/2500/n"),
            (0, "0/0/n", "0/0/n", "0/0/n", "0/0/n"),
        ] {
            for (settings, expected) in [
                (settings(false, false), none),
                (settings(true, false), isolated),
                (settings(false, true), shared),
                (settings(true, true), both),
            ] {
                let found = guaranteed(milli, &settings, &Preferences::default());
                assert_eq!(found, expected, "{milli}m {settings:?}");
            }
        }
    }

    #[test]
    fn guaranteed_containers_by_annotations() {
        use IsolatedCpus::{Avoid, Prefer, Require};
        for (milli, config, shared, isolated, expected) in [
            (1000, (true, true), Some(true), None, "0/1000/n"),
            (1000, (true, true), None, Some(Avoid), "0/1000/n"),
            (1000, (true, true), Some(false), None, "1/0/y"),
            (1000, (true, false), None, Some(Avoid), "1/0/n"),
            (1000, (false, false), None, Some(Prefer), "1/0/y"),
            (1500, (true, false), None, Some(Avoid), "1/500/n"),
            (2000, (false, false), None, Some(Prefer), "2/0/y"),
            (2000, (false, false), None, Some(Require), "2/0/y"),
            (2000, (false, false), Some(true), None, "0/2000/n"),
            (2000, (false, false), Some(true), Some(Prefer), "0/2000/n"),
            (2000, (false, true), Some(false), None, "2/0/n"),
            (2500, (false, false), None, Some(Prefer), "0/2500/n"),
            (2500, (false, false), Some(true), None, "0/2500/n"),
            (2500, (false, false), Some(false), None, "2/500/n"),
            (2500, (false, false), Some(false), Some(Prefer), "2/500/y"),
            (2500, (true, true), Some(false), None, "2/500/y"),
            (750, (true, false), Some(false), Some(Prefer), "0/750/n"),
        ] {
            let preferences = Preferences { isolated, shared, ..Preferences::default() };
            let found = guaranteed(milli, &settings(config.0, config.1), &preferences);
            assert_eq!(found, expected, "{milli}m {config:?} {shared:?} {isolated:?}");
        }
    }

    fn classified(qos: QosClass, namespace: &str, preferences: &Preferences) -> CpuDemand {
        let (classifier, _) = Classifier::new(&PoolsSettings::default());
        classifier.classify(&amounts(2000, Some(2000)), qos, namespace, preferences)
    }

    #[test]
    fn burstable_and_best_effort_containers_share() {
        let (classifier, _) = Classifier::new(&PoolsSettings::default());
        let burstable = |limit, preferences: &Preferences| {
            classifier.classify(&amounts(1000, limit), QosClass::Burstable, "default", preferences)
        };
        let demand = burstable(Some(1500), &Preferences::default());
        assert_eq!((demand.class, demand.full, demand.fraction_milli), (CpuClass::Shared, 0, 1000));
        assert_eq!(demand.limit, CpuLimit::Milli(1500));
        let unlimited = burstable(None, &Preferences::default());
        assert_eq!(unlimited.limit, CpuLimit::Unlimited(PoolLevel::Package));
        let level = Preferences { unlimited_burstable: Some(PoolLevel::Numa), ..Preferences::default() };
        assert_eq!(burstable(None, &level).limit, CpuLimit::Unlimited(PoolLevel::Numa));
        let demand = classified(QosClass::BestEffort, "default", &Preferences::default());
        assert_eq!((demand.class, demand.full, demand.fraction_milli), (CpuClass::Shared, 0, 0));
    }

    #[test]
    fn stronger_statements_come_first() {
        let none = Preferences::default();
        for qos in [QosClass::Guaranteed, QosClass::Burstable, QosClass::BestEffort] {
            let demand = classified(qos, "kube-system", &none);
            assert_eq!((demand.class, demand.full, demand.fraction_milli), (CpuClass::Reserved, 0, 2000));
        }
        let refuses = Preferences { reserved: Some(false), ..none.clone() };
        assert_eq!(classified(QosClass::Guaranteed, "kube-system", &refuses).class, CpuClass::Exclusive);
        let asks = Preferences { reserved: Some(true), ..none.clone() };
        assert_eq!(classified(QosClass::Guaranteed, "default", &asks).class, CpuClass::Reserved);
        let preserved = Preferences { preserve_cpu: true, ..asks };
        let demand = classified(QosClass::Guaranteed, "kube-system", &preserved);
        assert_eq!((demand.class, demand.full, demand.fraction_milli), (CpuClass::Preserved, 0, 2000));
    }

    #[test]
    fn priority_is_for_exclusive_cpus_only() {
        let settings = PoolsSettings { default_cpu_priority: CpuPriority::Low, ..PoolsSettings::default() };
        let (classifier, _) = Classifier::new(&settings);
        let of = |milli, preferences: &Preferences| {
            classifier.classify(&amounts(milli, None), QosClass::Guaranteed, "default", preferences).priority
        };
        let high = Preferences { priority: Some(CpuPriority::High), ..Preferences::default() };
        assert_eq!(of(2000, &Preferences::default()), CpuPriority::Low);
        assert_eq!(of(2000, &high), CpuPriority::High);
        assert_eq!(of(500, &high), CpuPriority::None);
    }

    #[test]
    fn reserved_namespaces_are_globs_over_the_whole_name_in_any_position() {
        for (globs, namespace, reserved) in [
            (&["foobar"][..], "foobar", true),
            (&["foobar*"], "foobar2", true),
            (&["foobar*"], "foobar-testing", true),
            (&["foobar?"], "testing", false),
            (&["foobar?"], "1foobar2", false),
            (&["foobar?"], "foobar12", false),
            (&["other", "foobar?"], "foobar1", true),
            (&["[", "{a", "foobar"], "foobar", true),
            (&["["], "kube-system", true),
            (&[], "kube-systems", false),
        ] {
            let settings = PoolsSettings {
                reserved_pool_namespaces: globs.iter().map(|glob| (*glob).to_owned()).collect(),
                ..PoolsSettings::default()
            };
            let (classifier, problems) = Classifier::new(&settings);
            assert_eq!(classifier.is_reserved(namespace), reserved, "{globs:?} {namespace}");
            let malformed = globs.iter().filter(|glob| glob.starts_with(['[', '{'])).count();
            assert_eq!(problems.len(), malformed, "{problems:?}");
        }
    }
}
