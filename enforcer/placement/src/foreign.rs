//! Annotations of other programs, and how each is treated here.
//!
//! Problem: the author of a silently ignored annotation believes that it works. Idea: one table of all known
//! keys, each with the engine that reads it or the reason why none does. Placement warns by this table, once
//! per pod, and a test keeps `docs/coming-from.md` consistent with it.
//!
//! Invariants: an annotation that another program handles itself causes no warning. Keys are untrusted text:
//! warnings show them cut and escaped.

use crate::engine_name::{HINTS, POOLS};
use std::collections::BTreeMap;

use self::AnnotationSupport::{Both, Elsewhere, Hints, NotDone, Pools};
use super::{PodRequest, pools};
use numa_topology::text::printable_within;

/// Volcano's topology policy of a pod.
pub const VOLCANO_POLICY: &str = "volcano.sh/numa-topology-policy";

/// The place that this project's scheduler has chosen for a pod; it comes with the binding.
pub const DECISION: &str = "numa-enforcer.io/placement";
/// The mark of this project's gate of the node that a pod has got; nothing here reads it.
pub const PLACED_ON: &str = "numa-enforcer.io/placed-on";
/// Annotations that the author of a pod does not write, so no warning names them.
pub(crate) const OF_SCHEDULER: [&str; 2] = [DECISION, PLACED_ON];

/// Treatment of an annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AnnotationSupport {
    /// The engine `pools` reads it.
    Pools,
    /// The engine `hints` reads it.
    Hints,
    /// Both engines read it.
    Both,
    /// No engine supports it.
    NotDone,
    /// Another program handles it; it has no effect here.
    Elsewhere,
}

/// One known annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct KnownAnnotation {
    /// The name before the families of [`FAMILIES`](pools::FAMILIES), or the whole key if it contains a dot
    /// and a slash.
    pub name: &'static str,
    /// How it is treated.
    pub fate: AnnotationSupport,
    /// Its meaning, or why it is not supported.
    pub because: &'static str,
}

const NO_BALLOONS: &str = "there are no balloons; the pools of the machine are its sockets, nodes and caches";

const fn known(name: &'static str, fate: AnnotationSupport, because: &'static str) -> KnownAnnotation {
    KnownAnnotation { name, fate, because }
}

/// All known annotations: names of the families in ascending order, then whole keys.
pub(crate) const KNOWN: &[KnownAnnotation] = &[
    known("affinity", Pools, "containers that want to be close to each other"),
    known("allow.topologyhints", Pools, "the only hints that count"),
    known("anti-affinity", Pools, "containers that want to be far apart"),
    known("balloon", NotDone, NO_BALLOONS),
    known("blockioclass", NotDone, "block I/O is not limited; the container runtime does that"),
    known("cold-start", Pools, "the time without DRAM"),
    known("cpu-class", NotDone, "CPU frequencies are not set"),
    known("cpu.preserve", Pools, "CPUs are left as they are"),
    known("deny.topologyhints", Pools, "hints that do not count"),
    known("engine", Both, "the engine that places the pod"),
    known("hide-hyperthreads", Pools, "one thread of each core"),
    known(
        "irq-affinity",
        NotDone,
        "`interrupts.mode` and `workload.interrupts` of the configuration do that",
    ),
    known("memory-type", Pools, "kinds of memory"),
    known("memory.preserve", Pools, "memory nodes are left as they are"),
    known("memory.strict", Pools, "memory is never moved for others"),
    known("options", Hints, "options of the engine `hints`"),
    known("pick-resources-by-hints", Pools, "CPUs and memory beside what the container uses"),
    known("policy", Hints, "the topology policy"),
    known("prefer-cpu-priority", Pools, "faster or slower CPUs"),
    known("prefer-isolated-cpus", Pools, "CPUs of `isolcpus=`"),
    known("prefer-reserved-cpus", Pools, "CPUs that are set aside for the system"),
    known("prefer-shared-cpus", Pools, "shared instead of exclusive CPUs"),
    known(
        "rdtclass",
        NotDone,
        "caches and memory bandwidth are not partitioned; the container runtime does that",
    ),
    known("require-isolated-cpus", Pools, "CPUs of `isolcpus=` or none"),
    known("scheduling-class", NotDone, "scheduling policies and priorities of processes are not set"),
    known("scope", Hints, "the scope of the topology policy"),
    known("strict.topologyhints", Pools, "the container is not placed outside its hints"),
    known("test.topologyhints", NotDone, "hints come from devices in the configuration alone"),
    known("topologyhints", Pools, "which kinds of hints count"),
    known("toptierlimit", NotDone, "no limit of DRAM is kept per container; `memory-type` chooses the nodes"),
    known("unlimited-burstable", Pools, "level of the pools for Burstable containers without a CPU limit"),
    known("balloon.balloons.resource-policy.nri.io", NotDone, NO_BALLOONS),
    known(VOLCANO_POLICY, Hints, "the topology policy, where `policy.numa-enforcer.io` says nothing"),
    known(
        pools::RESOURCES_KEY,
        Pools,
        "exact resources, for what the runtime does not tell; a webhook makes the copy, so `hints` passes it over \
         without a warning",
    ),
    known(
        "volcano.sh/topology-decision",
        NotDone,
        "Volcano's scheduler writes it; the daemon computes the place itself",
    ),
    known("memory-policy.nri.io", NotDone, "memory policies of processes are not set"),
    known("memory-qos.nri.io", NotDone, "`memory.high` and swap are not set"),
    known("memtierd.nri.io", NotDone, "cold pages are demoted by `memory.demotion` of the configuration"),
    known("cpu-c-states.crio.io", Elsewhere, "CRI-O sets idle states"),
    known("cpu-freq-governor.crio.io", Elsewhere, "CRI-O sets the governor"),
    known("cpu-load-balancing.crio.io", Elsewhere, "CRI-O switches load balancing off"),
    known("cpu-quota.crio.io", Elsewhere, "CRI-O switches the quota off"),
    known("irq-load-balancing.crio.io", Elsewhere, "CRI-O keeps interrupts away"),
    known("scheduling.koordinator.sh/numa-topology-spec", Elsewhere, "Koordinator's scheduler reads it"),
    known("scheduling.koordinator.sh/resource-spec", Elsewhere, "koordlet sets the CPUs"),
    known("scheduling.koordinator.sh/resource-status", Elsewhere, "koordlet's CPUs count as taken"),
    known("katalyst.kubewharf.io/cpu_enhancement", Elsewhere, "Katalyst sets the CPUs"),
    known("katalyst.kubewharf.io/memory_enhancement", Elsewhere, "Katalyst sets the memory nodes"),
    known("katalyst.kubewharf.io/qos_level", Elsewhere, "Katalyst sets the CPUs"),
];

/// Maximum number of keys that one warning names.
const NAMES_LIMIT: usize = 8;

/// Is the key a known annotation?
pub(super) fn is_known(key: &str) -> bool {
    KnownAnnotation::of(key).is_some()
}

/// The known annotation of a name below the families.
fn of_family(name: &str) -> Option<&'static KnownAnnotation> {
    KNOWN.iter().find(|known| known.name == name && !known.is_whole_key())
}

/// Maximum number of annotation bytes that are kept of one pod. Kubernetes allows 256 KiB, the pod's author
/// chooses them, and the daemon keeps them for the life of the pod and reads them again for each of its
/// containers.
pub const MOST_ANNOTATIONS: usize = 16 << 10;
/// Maximum length of a key in a warning, in characters.
const LONGEST_SHOWN: usize = 200;

/// The annotations of a pod that may have an effect, in order of their keys and up to the limit, and a
/// warning about the rest.
pub fn annotations_of_interest<'a>(
    all: impl IntoIterator<Item = (&'a String, &'a String)>,
) -> (BTreeMap<String, String>, Vec<String>) {
    let all = all.into_iter().filter(|(key, _)| is_of_interest(key));
    let sorted: BTreeMap<&String, &String> = all.collect();
    let (mut room, mut kept, mut warnings) = (MOST_ANNOTATIONS, BTreeMap::new(), Vec::new());
    for (key, value) in sorted {
        if let Some(left) = room.checked_sub(key.len() + value.len()) {
            room = left;
            kept.insert(key.clone(), value.clone());
        } else {
            let shown = printable_within(key, LONGEST_SHOWN);
            warnings.push(format!(
                "annotation {shown}: more than {MOST_ANNOTATIONS} bytes with those before it, ignored"
            ));
        }
    }
    (kept, warnings)
}

/// Can an annotation have an effect here, or require a warning that it has none?
pub fn is_of_interest(key: &str) -> bool {
    let whole = |known: &&KnownAnnotation| known.is_whole_key() && known.fate != Elsewhere;
    let is_of_family = pools::FAMILIES.iter().any(|family| key.contains(family)) && key != PLACED_ON;
    is_of_family || KNOWN.iter().filter(whole).any(|known| key == known.name || below(key, known.name))
}

/// Is the key one of a family with a whole name: `CLASS.memory-qos.nri.io`, `memtierd.nri.io/pod`?
fn below(key: &str, name: &str) -> bool {
    let base = key.split_once('/').map_or(key, |(base, _)| base);
    !name.contains('/') && (base == name || base.strip_suffix(name).is_some_and(|rest| rest.ends_with('.')))
}

impl KnownAnnotation {
    fn is_whole_key(&self) -> bool {
        self.name.contains('/') || self.name.rsplit('.').next() == Some("io")
    }

    /// The known annotation with this key.
    fn of(key: &str) -> Option<&'static Self> {
        pools::name_of_key(key).and_then(of_family).or_else(|| {
            let mut whole = KNOWN.iter().filter(|known| known.is_whole_key());
            whole.find(|known| key == known.name || below(key, known.name))
        })
    }
}

/// Warnings about annotations without effect on a pod that this engine places: one for unsupported
/// annotations, and one for those that the other engine reads.
pub(super) fn warnings(pod: &PodRequest, engine: &'static str, other: &'static str) -> Vec<String> {
    let mut ignored = BTreeMap::<bool, Vec<&str>>::new();
    for key in pod.annotations.keys() {
        match KnownAnnotation::of(key).map(|known| (known.name, known.fate)) {
            Some((_, NotDone)) => ignored.entry(false).or_default().push(key),
            // The copy of the resources does not come from the pod's author.
            Some((pools::RESOURCES_KEY, _)) => {}
            Some((_, Pools)) if engine == HINTS => {
                ignored.entry(true).or_default().push(key);
            }
            Some((_, Hints)) if engine == POOLS => {
                ignored.entry(true).or_default().push(key);
            }
            _ => {}
        }
    }
    let text = |(of_other, keys): (bool, Vec<&str>)| {
        let verb = if keys.len() == 1 { "is" } else { "are" };
        let shown = list_keys(&keys);
        if of_other {
            let way = format!("engine.numa-enforcer.io: {other} would place it by them");
            return format!(
                "{shown} {verb} of the engine {other}, and {engine} places the pod: ignored ({way})"
            );
        }
        let why = keys.first().and_then(|key| KnownAnnotation::of(key)).filter(|_| keys.len() == 1);
        let why = why.map(|known| format!(": {}", known.because)).unwrap_or_default();
        format!("{shown} {verb} not done here{why}, ignored")
    };
    ignored.into_iter().map(text).collect()
}

/// Warning about a pod's placement annotations under the profile `kubelet`: a kubelet reads none of them.
pub(super) fn ignored_by_kubelet(pod: &PodRequest) -> Option<String> {
    let keys = pod.annotations.keys().map(String::as_str);
    // The copy of the resources does not come from the pod's author either.
    let is_of_author = |key: &&str| *key != pools::RESOURCES_KEY && !OF_SCHEDULER.contains(key);
    let ignored: Vec<&str> = keys.filter(is_of_author).filter(|key| is_of_interest(key)).collect();
    (!ignored.is_empty()).then(|| format!("{}: the profile is kubelet, ignored", list_keys(&ignored)))
}

/// `annotation a`, `annotations a, b and 3 more`.
fn list_keys(keys: &[&str]) -> String {
    let word = if keys.len() == 1 { "annotation" } else { "annotations" };
    let shown: Vec<String> = keys.iter().take(NAMES_LIMIT).map(|key| printable_within(key, 80)).collect();
    let more = keys.len().saturating_sub(NAMES_LIMIT);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{word} {}{more}", shown.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples;

    #[test]
    fn a_kubelet_reads_no_annotation_about_placement() {
        let told = |keys: &[&str]| {
            let mut pod = samples::pod("p", vec![samples::container("c", 1000, 0)]);
            pod.annotations = keys.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect();
            ignored_by_kubelet(&pod)
        };
        assert_eq!(told(&["example.com/owner", "cpu-quota.crio.io", pools::RESOURCES_KEY]), None);
        for key in [
            "policy.numa-enforcer.io",
            "polcy.numa-enforcer.io",
            "memory-type.resource-policy.nri.io/pod",
            VOLCANO_POLICY,
        ] {
            assert_eq!(told(&[key]), Some(format!("annotation {key}: the profile is kubelet, ignored")));
        }
        assert_eq!(
            told(&[VOLCANO_POLICY, "options.numa-enforcer.io"]),
            Some(format!(
                "annotations options.numa-enforcer.io, {VOLCANO_POLICY}: the profile is kubelet, ignored"
            ))
        );
    }

    fn of(annotations: &[&str], engine: &'static str, other: &'static str) -> Vec<String> {
        let mut pod = samples::pod("p", vec![samples::container("c", 1000, 0)]);
        pod.annotations = annotations.iter().map(|key| ((*key).to_owned(), "x".to_owned())).collect();
        warnings(&pod, engine, other)
    }

    #[test]
    fn one_warning_names_what_the_other_engine_reads() {
        let keys = [
            "memory-type.numa-enforcer.io",
            "cold-start.resource-policy.nri.io/pod",
            "resource-policy.nri.io/affinity",
            "cri-resource-manager.intel.com/prefer-shared-cpus",
            "policy.numa-enforcer.io",
            "engine.numa-enforcer.io",
            "example.com/owner",
            pools::RESOURCES_KEY,
        ];
        assert_eq!(
            of(&keys, "hints", "pools"),
            ["annotations cold-start.resource-policy.nri.io/pod, \
              cri-resource-manager.intel.com/prefer-shared-cpus, memory-type.numa-enforcer.io, \
              resource-policy.nri.io/affinity are of the engine pools, and hints places the pod: ignored \
              (engine.numa-enforcer.io: pools would place it by them)"]
        );
        assert_eq!(
            of(&keys, "pools", "hints"),
            ["annotation policy.numa-enforcer.io is of the engine hints, and pools places the pod: ignored \
              (engine.numa-enforcer.io: hints would place it by them)"]
        );
        assert_eq!(of(&["example.com/owner"], "hints", "pools"), Vec::<String>::new());
    }

    #[test]
    fn what_nothing_here_does_is_said_with_any_engine() {
        for (engine, other) in [("hints", "pools"), ("pools", "hints")] {
            assert_eq!(
                of(&["cpu-class.resource-policy.nri.io/pod"], engine, other),
                [
                    "annotation cpu-class.resource-policy.nri.io/pod is not done here: CPU frequencies are not \
                  set, ignored"
                ]
            );
            let several = ["rdtclass.cri-resource-manager.intel.com", "class.memory-qos.nri.io"];
            assert_eq!(
                of(&several, engine, other),
                [
                    "annotations class.memory-qos.nri.io, rdtclass.cri-resource-manager.intel.com are not done \
                  here, ignored"
                ]
            );
        }
        assert_eq!(of(&["cpu-quota.crio.io"], "hints", "pools"), Vec::<String>::new(), "CRI-O does it");
        for (key, why) in [
            ("policy.memory-policy.nri.io", "memory policies of processes are not set"),
            ("class.memory-policy.nri.io/container.c", "memory policies of processes are not set"),
            (
                "volcano.sh/topology-decision",
                "Volcano's scheduler writes it; the daemon computes the place itself",
            ),
        ] {
            for (engine, other) in [("hints", "pools"), ("pools", "hints")] {
                let warning = format!("annotation {key} is not done here: {why}, ignored");
                assert_eq!(of(&[key], engine, other), [warning], "{engine}");
            }
        }
        for key in [
            "balloon.balloons.resource-policy.nri.io",
            "balloon.balloons.resource-policy.nri.io/pod",
            "balloon.balloons.resource-policy.nri.io/container.c",
        ] {
            assert_eq!(
                of(&[key], "pools", "hints"),
                [format!("annotation {key} is not done here: {NO_BALLOONS}, ignored")]
            );
            let mut pod = samples::pod("p", vec![samples::container("c", 1000, 0)]);
            pod.annotations.insert(key.to_owned(), "x".to_owned());
            assert_eq!(pools::annotations::mistaken_keys(&pod), Vec::<String>::new(), "{key}");
        }
    }

    #[test]
    fn a_key_is_of_interest_when_it_counts_or_is_warned_of() {
        for (key, wanted) in [
            (VOLCANO_POLICY, true),
            (pools::RESOURCES_KEY, true),
            ("memory-type.numa-enforcer.io/pod", true),
            ("class.memory-qos.nri.io", true),
            ("policy.memory-policy.nri.io/pod", true),
            ("volcano.sh/topology-decision", true),
            ("volcano.sh/queue-name", false),
            ("cpu-quota.crio.io", false),
            ("example.com/owner", false),
        ] {
            assert_eq!(is_of_interest(key), wanted, "{key}");
        }
    }

    #[test]
    fn the_page_for_newcomers_has_every_known_annotation_as_the_table_has_it() {
        let page = include_str!("../../../docs/coming-from.md");
        for KnownAnnotation { name, fate, because } in KNOWN {
            let by = match fate {
                AnnotationSupport::Pools => "engine `pools`",
                AnnotationSupport::Hints => "engine `hints`",
                AnnotationSupport::Both => "both engines",
                AnnotationSupport::NotDone => "not done",
                AnnotationSupport::Elsewhere => "left to its program",
            };
            let line = format!("| `{name}` | {by} | {because} |");
            assert!(page.contains(&line), "docs/coming-from.md lacks: {line}");
        }
    }

    /// Subjects with a feature of their own: no page says that they are not done.
    const DONE: [&str; 8] = [
        "interrupt",
        "NodeResourceTopology",
        "Numatopology",
        "resource allocation",
        "claims are not",
        "interleave",
        "preferred-many",
        "memory policies of processes",
    ];

    #[test]
    fn no_page_for_newcomers_denies_what_exists() {
        for page in [
            include_str!("../../../docs/coming-from-kubelet.md"),
            include_str!("../../../docs/coming-from-nri-plugins.md"),
            include_str!("../../../docs/coming-from-numad.md"),
            include_str!("../../../docs/coming-from-volcano.md"),
        ] {
            let denied = page.lines().filter(|line| line.starts_with('|') && line.contains("| not done"));
            let denied: Vec<&str> = denied.collect();
            assert!(!denied.is_empty(), "the pages have such rows");
            for row in denied {
                let found = DONE.iter().find(|subject| row.contains(**subject));
                assert_eq!(found, None, "{row}");
            }
        }
    }

    /// What stands between backticks in a text.
    fn quoted(text: &str) -> impl Iterator<Item = &str> {
        text.split('`').skip(1).step_by(2)
    }

    /// Domains below which other programs have annotations.
    const FOREIGN_DOMAINS: [&str; 7] = [
        "nri.io",
        "crio.io",
        "cri-resource-manager.intel.com",
        "volcano.sh",
        "koordinator.sh",
        "katalyst.kubewharf.io",
        "noderesource.dev",
    ];

    #[test]
    fn every_foreign_annotation_that_a_page_names_is_in_the_table() {
        let pages = [
            include_str!("../../../docs/coming-from.md"),
            include_str!("../../../docs/coming-from-kubelet.md"),
            include_str!("../../../docs/coming-from-nri-plugins.md"),
            include_str!("../../../docs/coming-from-numad.md"),
            include_str!("../../../docs/coming-from-volcano.md"),
            include_str!("../../../docs/placement.md"),
            include_str!("../../../docs/plan.md"),
        ];
        let mut checked = 0;
        for key in pages.into_iter().flat_map(quoted) {
            let (base, is_below) = key.split_once('/').map_or((key, false), |(base, _)| (base, true));
            let is_domain = |domain: &str| {
                base == domain || base.strip_suffix(domain).is_some_and(|rest| rest.ends_with('.'))
            };
            // `KEY.` stands for any name, and groups of an API (`batch.volcano.sh`) are no annotations.
            let is_pattern = key.contains(|c: char| c.is_ascii_uppercase() || c.is_whitespace());
            let is_group = !is_below && base.ends_with("volcano.sh");
            if !FOREIGN_DOMAINS.into_iter().any(is_domain) || is_pattern || is_group {
                continue;
            }
            assert!(KnownAnnotation::of(key).is_some(), "{key}");
            checked += 1;
        }
        assert!(checked > 15, "{checked} annotations were found");
    }

    #[test]
    fn the_groups_of_the_page_for_nri_plugins_are_those_of_the_table() {
        let page = include_str!("../../../docs/coming-from-nri-plugins.md");
        for (row, fate, is_of_group) in [
            ("| the engine `pools` reads them |", Pools, None),
            ("| not done, with a warning of the pod |", NotDone, Some(false)),
            ("| of the engine `hints` |", Hints, Some(false)),
        ] {
            let cells = page.lines().find_map(|line| line.strip_prefix(row)).expect(row);
            let mut named: Vec<&str> = quoted(cells).filter(|key| *key != "numa-enforcer.io").collect();
            let of_table = KNOWN.iter().filter(|known| known.fate == fate);
            let of_table =
                of_table.filter(|known| is_of_group.is_none_or(|whole| known.is_whole_key() == whole));
            let mut listed: Vec<&str> = of_table.map(|known| known.name).collect();
            named.sort_unstable();
            listed.sort_unstable();
            assert_eq!(named, listed, "{row}");
        }
    }
}
