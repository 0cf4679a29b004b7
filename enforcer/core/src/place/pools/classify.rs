//! Which CPUs a container is meant to have.
//!
//! Problem: from its `QoS` class, its CPU request, its namespace, its annotations and the settings,
//! a container belongs into one of five groups: *preserved* (nothing is pinned), *reserved* (those set
//! aside for the system), *shared*, *exclusive*, or *mixed* (some alone, the rest together with others).
//! Idea: ask from the strongest statement to the weakest; the first that applies decides.
//!
//! | | container | opted in to shared CPUs | otherwise |
//! |---|---|---|---|
//! | 1 | `cpu.preserve` | | preserved |
//! | 2 | `prefer-reserved-cpus` | | reserved |
//! | 3 | in a reserved namespace, unless `prefer-reserved-cpus` says no | | reserved |
//! | 4 | not Guaranteed, or less than one CPU | | shared |
//! | 5 | Guaranteed, one to two CPUs | shared | one exclusive, the rest shared; isolated by default |
//! | 6 | Guaranteed, two or more, a whole number | shared | all exclusive; isolated by annotation only |
//! | 7 | Guaranteed, two or more, with a fraction | shared | the same as 5, but only where the annotation says no to shared CPUs |
//!
//! Must never let one malformed glob of a reserved namespace disable the others.

use globset::{GlobBuilder, GlobMatcher};

use super::{
    annotations::{IsolatedCpus, Preferences},
    request::Amounts,
};
use crate::{
    place::CpuClass,
    policy::placement::{CpuPriority, PoolLevel, PoolsSettings},
    workload::QosClass,
};

/// The namespace that is always reserved.
const SYSTEM_NAMESPACE: &str = "kube-system";

/// What a container is to get of CPUs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CpuDemand {
    /// Its group: shared, exclusive, mixed, reserved or preserved. Whether exclusive CPUs are isolated
    /// ones is only known when they are taken.
    pub class: CpuClass,
    /// Whole CPUs that nobody else is to have.
    pub full: u64,
    /// CPU time together with others, in thousandths of a CPU; of the preserved only accounted.
    pub fraction_milli: u64,
    /// How far a Burstable container may go beyond that.
    pub limit: CpuLimit,
    /// Are the exclusive CPUs isolated ones?
    pub isolate: Isolate,
    /// Which exclusive CPUs are taken first.
    pub priority: CpuPriority,
    /// Which rule decided.
    pub because: &'static str,
}

/// CPU time that a container may use at most.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum CpuLimit {
    /// No more than what it was promised.
    #[default]
    Request,
    /// Thousandths of a CPU.
    Milli(u64),
    /// All of a pool of this level.
    Unlimited(PoolLevel),
}

/// Use of the CPUs of `isolcpus=` for exclusive ones.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Isolate {
    /// Ordinary ones.
    #[default]
    No,
    /// Isolated ones where there are enough.
    Prefer,
    /// Isolated ones or none.
    Require,
}

/// Puts containers into their groups.
#[derive(Debug, Clone)]
pub struct Classifier {
    reserved_namespaces: Vec<GlobMatcher>,
    prefer_isolated: bool,
    prefer_shared: bool,
    priority: CpuPriority,
    unlimited_burstable: PoolLevel,
}

impl Classifier {
    /// By these settings; and what is wrong with those of its globs that are left out.
    pub fn new(settings: &PoolsSettings) -> (Self, Vec<String>) {
        let mut problems = Vec::new();
        let mut reserved_namespaces = Vec::new();
        for text in &settings.reserved_pool_namespaces {
            match GlobBuilder::new(text).literal_separator(true).backslash_escape(true).build() {
                Ok(glob) => reserved_namespaces.push(glob.compile_matcher()),
                Err(error) => {
                    problems.push(format!("placement.pools.reserved_pool_namespaces: {text:?}: {error}"));
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

    /// What a container of this class and namespace is to get.
    pub fn classify(
        &self,
        amounts: &Amounts,
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
