//! Placement preferences in a container's annotations.
//!
//! Three families of keys are equivalent: `KEY.numa-enforcer.io`, `KEY.resource-policy.nri.io` and
//! `KEY.cri-resource-manager.intel.com`. The nearest scope counts: `KEY/container.NAME`, then `KEY/pod`, then
//! the bare key; in one scope the families count in this order. The deprecated
//! `cri-resource-manager.intel.com/KEY`, one value or a map from container to value, counts if there is none
//! of these.
//!
//! Settings of the container's configuration entry apply if there is no annotation.
//!
//! The key is chosen first. If its value is invalid, a warning reports it, and no other key is used: a wider
//! scope was not meant here. Annotations are untrusted text: warnings show them cut and escaped.

mod keys;
#[cfg(test)]
pub(super) mod tests;
mod values;

use std::{collections::BTreeMap, time::Duration};

pub(super) use self::keys::is_document;
pub(crate) use self::keys::mistaken_keys;
pub(super) use self::keys::shown_problem;
pub(in super::super) use self::keys::{FAMILIES, RESOURCES_KEY, name_of_key};
use self::{
    keys::{DEPRECATED, named, shown},
    values::{duration, hint_kinds, hint_patterns, memory_types, switch},
};
use super::topology_hints::HintRules;
use crate::document::{Document, FromDocument, Scalar};
use crate::{
    PodRequest, Wishes,
    settings::{CpuPriority, DeclaredClass, MemoryTypes, PoolLevel},
};

/// Maximum time without DRAM.
const LONGEST_COLD_START: Duration = Duration::from_hours(1);

/// Preferences of one container; absent without an annotation.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an annotation of its own, with the name people know"
)]
pub struct Preferences {
    /// `prefer-isolated-cpus`, `require-isolated-cpus`.
    pub isolated: Option<IsolatedCpus>,
    /// `prefer-shared-cpus`.
    pub shared: Option<bool>,
    /// `prefer-reserved-cpus`.
    pub reserved: Option<bool>,
    /// `prefer-cpu-priority`; `default` is absent.
    pub priority: Option<CpuPriority>,
    /// `unlimited-burstable`.
    pub unlimited_burstable: Option<PoolLevel>,
    /// `hide-hyperthreads`.
    pub hide_hyperthreads: bool,
    /// `pick-resources-by-hints`.
    pub pick_by_hints: bool,
    /// `memory-type`.
    pub memory_types: Option<MemoryTypes>,
    /// `cold-start`: time without DRAM.
    pub cold_start: Option<Duration>,
    /// `cpu.preserve`.
    pub preserve_cpu: bool,
    /// `memory.preserve`.
    pub preserve_memory: bool,
    /// `memory.strict`: its memory is never moved for others.
    pub strict_memory: bool,
    /// `topologyhints`, `allow.topologyhints`, `deny.topologyhints`, `strict.topologyhints`.
    pub hints: HintRules,
    /// Whether its entry declares exclusive CPUs, regardless of the class of its pod.
    pub alone: bool,
}

/// Use of isolated CPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum IsolatedCpus {
    /// No isolated CPUs.
    Avoid,
    /// Isolated CPUs if there are enough.
    Prefer,
    /// Only isolated CPUs.
    Require,
}

/// Annotations that apply to one container, by name.
struct EffectiveAnnotations<'a> {
    pod: &'a PodRequest,
    container: &'a str,
    by_name: BTreeMap<&'a str, RankedAnnotation<'a>>,
    warnings: Vec<String>,
}

/// An annotation, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct RankedAnnotation<'a> {
    /// 0: of the container, 1: of the pod, 2: bare, 3: deprecated.
    scope: u8,
    family: usize,
    key: &'a str,
}

impl Preferences {
    /// Preferences of a container by its pod's annotations, and warnings about ignored ones.
    pub fn read(pod: &PodRequest, container: &str) -> (Self, Vec<String>) {
        let mut own = EffectiveAnnotations::of(pod, container);
        let wishes = pod.container(container).map(|container| &container.wishes);
        let class = wishes.and_then(|wishes| wishes.class);
        let alone = wishes.and_then(Wishes::alone);
        let preferences = Self {
            isolated: own.isolated().or(match class {
                Some(DeclaredClass::Isolated) => Some(IsolatedCpus::Prefer),
                Some(DeclaredClass::Exclusive) => Some(IsolatedCpus::Avoid),
                Some(DeclaredClass::Shared | DeclaredClass::Reserved) | None => None,
            }),
            shared: own.switch("prefer-shared-cpus").or(alone.map(|alone| !alone)),
            reserved: own
                .switch("prefer-reserved-cpus")
                .or(class.map(|class| class == DeclaredClass::Reserved)),
            priority: own.priority(),
            unlimited_burstable: own.value(
                "unlimited-burstable",
                "system, package, die, numa or l3cache",
                |text| text.parse().ok(),
            ),
            hide_hyperthreads: own.switch("hide-hyperthreads").unwrap_or(false),
            pick_by_hints: own.switch("pick-resources-by-hints").unwrap_or(false),
            memory_types: own
                .value("memory-type", "a list of dram, pmem and hbm, or mixed", memory_types)
                .or(wishes.and_then(|wishes| wishes.memory_types)),
            cold_start: own.cold_start(),
            preserve_cpu: own.switch("cpu.preserve").unwrap_or(false),
            preserve_memory: own.switch("memory.preserve").unwrap_or(false),
            strict_memory: own.switch("memory.strict").unwrap_or(false),
            hints: own.hints(),
            alone: alone == Some(true),
        };
        let mut warnings = own.warnings;
        let cold_start =
            preferences.cold_start.filter(|_| preferences.memory_types.is_none_or(|types| types.pmem));
        if cold_start != preferences.cold_start {
            warnings.push("cold-start without pmem in memory-type, ignored".to_owned());
        }
        (Self { cold_start, ..preferences }, warnings)
    }
}

impl<'a> EffectiveAnnotations<'a> {
    fn of(pod: &'a PodRequest, container: &'a str) -> Self {
        let mut by_name = BTreeMap::<&str, RankedAnnotation<'_>>::new();
        for key in pod.annotations.keys() {
            let (base, about) =
                key.split_once('/').map_or((key.as_str(), None), |(b, about)| (b, Some(about)));
            let (name, scope, family) = match (named(base), about) {
                (Some((name, family)), None) => (name, 2, family),
                (Some((name, family)), Some("pod")) => (name, 1, family),
                (Some((name, family)), Some(about))
                    if about.strip_prefix("container.") == Some(container) =>
                {
                    (name, 0, family)
                }
                (None, Some(name)) if base == FAMILIES[2] && DEPRECATED.contains(&name) => (name, 3, 2),
                _ => continue,
            };
            let found = RankedAnnotation { scope, family, key };
            by_name.entry(name).and_modify(|best| *best = found.min(*best)).or_insert(found);
        }
        Self { pod, container, by_name, warnings: Vec::new() }
    }

    /// Parses the value of a name; an invalid one is reported.
    fn value<T>(&mut self, name: &str, expected: &str, read: impl Fn(&str) -> Option<T>) -> Option<T> {
        let found = *self.by_name.get(name)?;
        if found.scope == DEPRECATED_SCOPE {
            let Scalar(text) = self.of_document(found)?;
            return self.read(found.key, &text, expected, read);
        }
        let text = self.pod.annotations.get(found.key)?;
        self.read(found.key, text, expected, read)
    }

    fn read<T>(
        &mut self,
        key: &str,
        text: &str,
        expected: &str,
        read: impl Fn(&str) -> Option<T>,
    ) -> Option<T> {
        let value = read(text.trim());
        if value.is_none() {
            let warning =
                format!("annotation {} = {}: {expected} expected, ignored", shown(key), shown(text));
            self.warnings.push(warning);
        }
        value
    }

    /// Typed value of a document; of the deprecated form, which may be a map from container to value, the
    /// container's value.
    fn of_document<T: FromDocument>(&mut self, found: RankedAnnotation<'_>) -> Option<T> {
        let document = self.pod.documents.get(found.key)?;
        let read = document.as_ref().map_err(Clone::clone).and_then(|document| match document {
            Document::Map(by_container) if found.scope == DEPRECATED_SCOPE => {
                by_container.get(self.container).map(Document::read).transpose()
            }
            document => document.read().map(Some),
        });
        read.unwrap_or_else(|problem| {
            self.warnings.push(format!("annotation {}: {}, ignored", shown(found.key), shown(&problem)));
            None
        })
    }

    fn switch(&mut self, name: &str) -> Option<bool> {
        self.value(name, "true or false", switch)
    }

    /// `default` is the same as no annotation.
    fn priority(&mut self) -> Option<CpuPriority> {
        let expected = "high, normal, low, none or default";
        let read = |text: &str| if text == "default" { Some(None) } else { text.parse().ok().map(Some) };
        self.value("prefer-cpu-priority", expected, read).flatten()
    }

    /// Within one scope a requirement takes precedence, otherwise the nearer scope.
    fn isolated(&mut self) -> Option<IsolatedCpus> {
        let scope = |own: &Self, name| own.by_name.get(name).map(|found| found.scope);
        let (of_prefer, of_require) =
            (scope(self, "prefer-isolated-cpus"), scope(self, "require-isolated-cpus"));
        let prefer = self.switch("prefer-isolated-cpus");
        let require = self.switch("require-isolated-cpus");
        match (prefer, require) {
            (Some(_), Some(true)) if of_prefer >= of_require => Some(IsolatedCpus::Require),
            (None, Some(true)) => Some(IsolatedCpus::Require),
            (Some(true), _) => Some(IsolatedCpus::Prefer),
            (Some(false), _) => Some(IsolatedCpus::Avoid),
            (None, _) => None,
        }
    }

    fn cold_start(&mut self) -> Option<Duration> {
        let found = *self.by_name.get("cold-start")?;
        let ColdStartValue { duration: Scalar(text) } = self.of_document(found)?;
        self.read(found.key, &text, "a duration of at most 1h", |text| {
            duration(text).filter(|time| !time.is_zero() && *time <= LONGEST_COLD_START)
        })
    }

    fn hints(&mut self) -> HintRules {
        let expected = "true, false, all, none, or a list of mounts, devices and pod-resources";
        let kinds = self.value("topologyhints", expected, hint_kinds);
        let strict = self.switch("strict.topologyhints").unwrap_or(false);
        let expected = "a list of at most 64 KIND:PREFIX or KIND:GLOB";
        let allow = self.value("allow.topologyhints", expected, hint_patterns).unwrap_or_default();
        let deny = self.value("deny.topologyhints", expected, hint_patterns).unwrap_or_default();
        HintRules { kinds: kinds.unwrap_or_else(|| HintRules::default().kinds), allow, deny, strict }
    }
}

/// Scope of the deprecated form.
const DEPRECATED_SCOPE: u8 = 3;

/// The value of `cold-start`.
#[derive(Debug)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Deserialize),
    serde(deny_unknown_fields, expecting = "a map like {duration: 60s}")
)]
struct ColdStartValue {
    duration: Scalar,
}
