//! Precedence of annotations, and their values.

use super::*;
use crate::{
    ContainerRequest, QosClass,
    pools::{documents, topology_hints::HintKind},
    samples,
};

pub(crate) fn pod(annotations: &[(&str, &str)]) -> PodRequest {
    let annotations: BTreeMap<String, String> =
        annotations.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect();
    let container = |name: &str| ContainerRequest { name: name.into(), ..ContainerRequest::default() };
    PodRequest {
        qos: QosClass::Guaranteed,
        documents: documents(&annotations, |text| serde_json::from_str(text)),
        annotations,
        ..samples::pod("p", ["c1", "c2", "c3", "c4", "c5"].map(container).to_vec())
    }
}

/// Preferences, without any warning.
fn read(annotations: &[(&str, &str)]) -> Preferences {
    let (preferences, warnings) = Preferences::read(&pod(annotations), "c1");
    assert_eq!(warnings, Vec::<String>::new());
    preferences
}

/// The warning about one ignored annotation.
fn refused(key: &str, value: &str) -> String {
    let (preferences, warnings) = Preferences::read(&pod(&[(key, value)]), "c1");
    assert_eq!(preferences, Preferences::default(), "{key} = {value}");
    assert_eq!(warnings.len(), 1, "{key} = {value}: {warnings:?}");
    warnings[0].clone()
}

#[test]
fn the_nearest_scope_counts_in_every_family() {
    for family in FAMILIES {
        let key = |scope: &str| format!("prefer-shared-cpus.{family}{scope}");
        let (bare, of_pod, own, other) = (key(""), key("/pod"), key("/container.c1"), key("/container.c2"));
        let shared = |annotations: &[(&String, &str)]| {
            let all: Vec<_> = annotations.iter().map(|(key, value)| (key.as_str(), *value)).collect();
            read(&all).shared
        };
        assert_eq!(shared(&[(&bare, "true")]), Some(true));
        assert_eq!(shared(&[(&bare, "true"), (&of_pod, "false")]), Some(false));
        assert_eq!(shared(&[(&bare, "true"), (&of_pod, "false"), (&own, "true")]), Some(true));
        assert_eq!(shared(&[(&other, "true")]), None);
    }
}

#[test]
fn in_one_scope_our_family_counts_first_and_a_nearer_scope_more_than_a_family() {
    let [ours, nri, cri] = FAMILIES.map(|family| format!("prefer-shared-cpus.{family}/pod"));
    assert_eq!(read(&[(&ours, "true"), (&nri, "false"), (&cri, "false")]).shared, Some(true));
    assert_eq!(read(&[(&nri, "true"), (&cri, "false")]).shared, Some(true));
    let near = "prefer-shared-cpus.cri-resource-manager.intel.com/container.c1";
    assert_eq!(read(&[(&ours, "true"), (near, "false")]).shared, Some(false));
}

#[test]
fn values_that_are_known() {
    let value = |key: &str, value: &str| read(&[(&format!("{key}.resource-policy.nri.io"), value)]);
    for (text, on) in
        [("true", true), ("T", true), ("1", true), ("false", false), (" False ", false), ("0", false)]
    {
        assert_eq!(value("prefer-reserved-cpus", text).reserved, Some(on), "{text}");
    }
    assert!(value("hide-hyperthreads", "true").hide_hyperthreads);
    assert!(value("pick-resources-by-hints", "true").pick_by_hints);
    assert!(value("cpu.preserve", "true").preserve_cpu);
    assert!(value("memory.preserve", "true").preserve_memory);
    assert!(value("memory.strict", "true").strict_memory);
    assert_eq!(value("prefer-cpu-priority", "high").priority, Some(CpuPriority::High));
    assert_eq!(value("prefer-cpu-priority", "none").priority, Some(CpuPriority::None));
    assert_eq!(value("prefer-cpu-priority", "default").priority, None);
    assert_eq!(value("unlimited-burstable", "socket").unlimited_burstable, Some(PoolLevel::Package));
    assert_eq!(value("unlimited-burstable", "l3cache").unlimited_burstable, Some(PoolLevel::L3Cache));
    let types = |dram, pmem, hbm| Some(MemoryTypes { dram, pmem, hbm });
    assert_eq!(value("memory-type", "dram, hbm").memory_types, types(true, false, true));
    assert_eq!(value("memory-type", "PMEM").memory_types, types(false, true, false));
    assert_eq!(value("memory-type", "mixed").memory_types, types(true, true, true));
    let cold = |text: &str| value("cold-start", &format!(r#"{{"duration": "{text}"}}"#)).cold_start;
    assert_eq!(cold("60s"), Some(Duration::from_mins(1)));
    assert_eq!(cold("1m30s"), Some(Duration::from_secs(90)));
    assert_eq!(cold("1h"), Some(Duration::from_hours(1)));
}

#[test]
fn what_is_not_known_is_reported_and_ignored() {
    for (key, value) in [
        ("prefer-shared-cpus", "yes"),
        ("prefer-shared-cpus", ""),
        ("require-isolated-cpus", "certainly"),
        ("prefer-cpu-priority", "urgent"),
        ("unlimited-burstable", "rack"),
        ("memory-type", "dram,optane"),
        ("memory-type", ""),
        ("cold-start", r#"{"duration": "2h"}"#),
        ("cold-start", r#"{"duration": "0s"}"#),
        ("cold-start", r#"{"duration": "60"}"#),
        ("cold-start", r#"{"duration": "1h1"}"#),
        ("cold-start", r#"{"duration": "99999999999999999999h"}"#),
        ("cold-start", "{}"),
        ("cold-start", "{"),
        ("topologyhints", "clouds"),
        ("strict.topologyhints", "very"),
        ("allow.topologyhints", "mount:/x["),
    ] {
        let key = format!("{key}.resource-policy.nri.io/container.c1");
        let warning = refused(&key, value);
        assert!(
            warning.starts_with(&format!("annotation {key}")) && warning.ends_with("ignored"),
            "{warning}"
        );
    }
    let long = refused("memory-type.numa-enforcer.io", &"x\u{1b}".repeat(100_000));
    assert!(long.len() < 800 && !long.contains('\u{1b}'), "{long}");
}

#[test]
fn a_bad_value_does_not_let_a_wider_scope_decide() {
    let (preferences, warnings) = Preferences::read(
        &pod(&[
            ("prefer-shared-cpus.resource-policy.nri.io/pod", "true"),
            ("prefer-shared-cpus.resource-policy.nri.io/container.c1", "maybe"),
        ]),
        "c1",
    );
    assert_eq!(preferences.shared, None);
    assert_eq!(
        warnings,
        [
            "annotation prefer-shared-cpus.resource-policy.nri.io/container.c1 = maybe: true or false expected, ignored"
        ]
    );
}

#[test]
fn a_requirement_of_isolated_cpus_counts_unless_the_nearer_scope_only_prefers() {
    let own = |annotations: &[(&str, &str)]| {
        let keys: Vec<String> =
            annotations.iter().map(|(key, _)| key.replacen('/', ".resource-policy.nri.io/", 1)).collect();
        let all: Vec<_> =
            keys.iter().zip(annotations).map(|(key, (_, value))| (key.as_str(), *value)).collect();
        read(&all).isolated
    };
    let (prefer, require) = ("prefer-isolated-cpus/pod", "require-isolated-cpus/pod");
    let (near_prefer, near_require) =
        ("prefer-isolated-cpus/container.c1", "require-isolated-cpus/container.c1");
    for (annotations, wish) in [
        (&[(require, "true")][..], Some(IsolatedCpus::Require)),
        (&[(require, "true"), (prefer, "false")], Some(IsolatedCpus::Require)),
        (&[(require, "true"), (near_prefer, "true")], Some(IsolatedCpus::Prefer)),
        (&[(require, "true"), (near_prefer, "false")], Some(IsolatedCpus::Avoid)),
        (&[(near_require, "true"), (prefer, "false")], Some(IsolatedCpus::Require)),
        (&[(require, "false"), (prefer, "true")], Some(IsolatedCpus::Prefer)),
        (&[(require, "false")], None),
        (&[(prefer, "false")], Some(IsolatedCpus::Avoid)),
    ] {
        assert_eq!(own(annotations), wish, "{annotations:?}");
    }
}

#[test]
fn the_deprecated_form_counts_where_the_new_one_is_absent() {
    let old = |name: &str| format!("cri-resource-manager.intel.com/{name}");
    assert_eq!(read(&[(&old("prefer-shared-cpus"), "true")]).shared, Some(true));
    assert_eq!(read(&[(&old("prefer-shared-cpus"), r#"{"c1": true, "c2": false}"#)]).shared, Some(true));
    assert_eq!(read(&[(&old("prefer-shared-cpus"), r#"{"c2": true}"#)]).shared, None);
    let types = read(&[(&old("memory-type"), r#"{"c1": "dram,pmem"}"#)]).memory_types;
    assert_eq!(types, Some(MemoryTypes { dram: true, pmem: true, hbm: false }));
    let cold = read(&[(&old("cold-start"), r#"{"c1": {"duration": "10s"}}"#)]).cold_start;
    assert_eq!(cold, Some(Duration::from_secs(10)));
    let new = "prefer-shared-cpus.cri-resource-manager.intel.com";
    assert_eq!(read(&[(&old("prefer-shared-cpus"), "true"), (new, "false")]).shared, Some(false));
    let warning = refused(&old("prefer-isolated-cpus"), r#"{"c1": "so so"}"#);
    assert!(warning.contains("= so so: true or false expected"), "{warning}");
    let warning = refused(&old("prefer-isolated-cpus"), r#"{"c1": [1]}"#);
    assert!(warning.contains("a list or a map where one value is meant"), "{warning}");
}

#[test]
fn a_cold_start_needs_slow_memory() {
    let annotations =
        [("cold-start.numa-enforcer.io", r#"{"duration": "5s"}"#), ("memory-type.numa-enforcer.io", "dram")];
    let (preferences, warnings) = Preferences::read(&pod(&annotations), "c1");
    assert_eq!(preferences.cold_start, None);
    assert_eq!(warnings, ["cold-start without pmem in memory-type, ignored"]);
}

#[test]
fn hints_are_chosen_by_kind_and_place() {
    let key = |name: &str| format!("{name}topologyhints.resource-policy.nri.io");
    let kinds = |text: &str| read(&[(&key(""), text)]).hints.kinds.into_iter().collect::<Vec<_>>();
    let all = [HintKind::Mounts, HintKind::Devices, HintKind::PodResources];
    assert_eq!(kinds("true"), all);
    assert_eq!(kinds("all"), all);
    assert_eq!(kinds("false"), []);
    assert_eq!(kinds("none"), []);
    assert_eq!(kinds("devices,pod-resources"), all[1..]);
    let rules =
        read(&[(&key("allow."), "- \"mount:/x\"\n- device:/dev/sd*"), (&key("strict."), "true")]).hints;
    assert_eq!(rules.allow.len(), 2);
    assert!(rules.strict);
}

#[test]
fn mistaken_keys_are_named_once() {
    let warnings = mistaken_keys(&pod(&[
        ("prefer-shared-cpu.resource-policy.nri.io", "true"),
        ("prefer-shared-cpus.resource-policy.nri.io/container.c9", "true"),
        ("prefer-shared-cpus.numa-enforcer.io/pods", "true"),
        ("prefer-shared-cpus.numa-enforcer.io/container.c1", "true"),
        ("rdtclass.cri-resource-manager.intel.com/pod", "gold"),
        ("policy.numa-enforcer.io/container.c9", "restricted"),
        ("resource-policy.nri.io/affinty", "{}"),
        ("resource-policy.nri.io/prefer-shared-cpus", "true"),
        ("resource-policy.nri.io/anti-affinity", "{}"),
        ("cri-resource-manager.intel.com/prefer-shared-cpus", "true"),
        ("kubectl.kubernetes.io/last-applied-configuration", "{}"),
        ("numa-enforcer.io/placement", "{}"),
        ("numa-enforcer.io/placed-on", "{}"),
    ]));
    assert_eq!(
        warnings,
        [
            "annotation prefer-shared-cpu.resource-policy.nri.io: there is no such key, ignored",
            "annotation prefer-shared-cpus.numa-enforcer.io/pods: /pod or /container.NAME is expected behind the slash, ignored",
            "annotation prefer-shared-cpus.resource-policy.nri.io/container.c9: the pod has no such container, ignored",
            "annotation resource-policy.nri.io/affinty: there is no such key, ignored",
            "annotation resource-policy.nri.io/prefer-shared-cpus: there is no such key, ignored",
        ]
    );
}
