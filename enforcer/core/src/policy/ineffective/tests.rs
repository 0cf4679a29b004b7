//! Settings without effect, by the other settings in the file.

use std::collections::BTreeSet;

use super::*;

const OF_PODS: &str = "[[workload]]\nname = 'a'\nnamespace = 'x'\n";
const OF_CGROUP: &str = "[[workload]]\nname = 'a'\ncgroup = '/a'\ncpus = 1\n";

fn listed(text: &str) -> Vec<Ineffective> {
    let policy: Policy = toml::from_str(text).unwrap();
    policy.validate().unwrap();
    policy.ineffective()
}

fn reason(text: &str, key: &str) -> Option<String> {
    listed(text).into_iter().find(|one| one.key == key).map(|one| one.reason)
}

#[test]
fn what_has_no_effect_is_listed_with_its_reason() {
    let kubelet = "[placement.hints]\nprofile = 'kubelet'\n";
    for (text, key, said) in [
        (
            format!("{kubelet}strict_memory_groups = false\n"),
            "placement.hints.strict_memory_groups",
            "kubelet",
        ),
        (format!("{kubelet}align_all_qos = true\n"), "placement.hints.align_all_qos", "kubelet"),
        (
            format!("{kubelet}numa_allocation_strategy = 'least-allocated'\n"),
            "placement.hints.numa_allocation_strategy",
            "lowest ids",
        ),
        (
            format!("{kubelet}policy = 'numa-manager'\n"),
            "placement.hints.policy",
            "no kubelet has the policy",
        ),
        (format!("{kubelet}policy = 'none'\n"), "placement.hints.scope", "nothing is aligned"),
        (
            format!("{kubelet}[[placement.rule]]\npolicy = 'none'\n"),
            "placement.rule[0]",
            "one policy for all",
        ),
        (format!("nri.place = true\n{kubelet}{OF_PODS}"), "workload[0]", "no kubelet reads it"),
        (kubelet.to_owned(), "placement.pools.pin_cpu", "places no pod"),
        ("mode = 'enforce'\n".into(), "mode", "no [[workload]] entry and nri.place is false, so nothing"),
        (
            "mode = 'enforce'\nnri.enabled = false\nnri.place = true\n".into(),
            "mode",
            "no [[workload]] entry and nri.enabled is false, so nothing is written",
        ),
        (
            format!("mode = 'enforce'\n{OF_CGROUP}enforce = false\n"),
            "mode",
            "every [[workload]] entry has enforce = false and nri.place is false",
        ),
        (String::new(), "placement.hints.kubelet_device_hints", "the profile kubelet alone"),
        (String::new(), "placement.hints.max_allowable_numa_nodes", "no limit"),
        (String::new(), "placement.pools.pin_memory", "engine.numa-enforcer.io: pools alone"),
        (
            "placement.engine = 'pools'\n".into(),
            "placement.hints.policy",
            "engine.numa-enforcer.io: hints alone",
        ),
        (
            "[[placement.rule]]\nnamespace = 'x'\n[[placement.rule]]\nnamespace = 'x'\npod = 'a'\n".into(),
            "placement.rule[1]",
            "placement.rule[0] is about the same pods",
        ),
        (
            "[[placement.rule]]\nengine = 'pools'\nscope = 'pod'\n".into(),
            "placement.rule[0].scope",
            "the engine of this rule is pools",
        ),
        (OF_PODS.to_owned(), "workload[0]", "without it an entry needs cpus"),
        (format!("nri.enabled = false\n{OF_PODS}cpus = 1\n"), "workload[0]", "matches nothing"),
        ("nri.enabled = false\nnri.place = true\n".into(), "nri.place", "nri.enabled is false"),
        ("nri.expose = true\n".into(), "nri.expose", "nri.place places"),
        ("sample.bpf = false\nsample.bpf_log = true\n".into(), "sample.bpf_log", "sample.bpf is false"),
        (
            "sample.bpf = false\nsample.run_time = 'switches'\n".into(),
            "sample.run_time",
            "sample.bpf is false",
        ),
        ("interval = '1m'\nidle_interval = '10s'\n".into(), "idle_interval", "shorter than interval (1m)"),
        (String::new(), "memory.demotion.idle", "memory.demotion.enabled is false"),
        ("memory.demotion.enabled = true\n".into(), "memory.demotion.enabled", "mode is observe"),
        (
            "mode = 'enforce'\nmemory.demotion.enabled = true\n".into(),
            "memory.demotion.enabled",
            "there is no such entry",
        ),
        (format!("{OF_CGROUP}demotion = true\n"), "workload[0].demotion", "mode is observe"),
        ("nri.place = true\n".into(), "nri.place", "mode is observe"),
        ("memory.widening.brake = 'freeze'\n".into(), "memory.widening.brake", "mode is observe"),
        (
            "[memory.widening]\nenabled = false\nbrake = 'freeze'\n".into(),
            "memory.widening.brake",
            "memory.widening.enabled is false",
        ),
        (
            format!("memory.widening.enabled = false\n{OF_CGROUP}strict_memory = true\n"),
            "workload[0].strict_memory",
            "memory.widening.enabled is false",
        ),
        (
            format!("{OF_CGROUP}strict_memory = true\nlower_tiers = true\n"),
            "workload[0].lower_tiers",
            "no memory node is added",
        ),
    ] {
        let found = reason(&text, key);
        assert!(found.as_ref().is_some_and(|reason| reason.contains(said)), "{text}{key}: {found:?}");
    }
}

#[test]
fn all_other_keys_of_a_section_that_is_off_are_listed() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../docs/schema/config.schema.json")).unwrap();
    for (section, table) in [
        ("metrics", "MetricsSettings"),
        ("nri", "NriSettings"),
        ("kubelet", "KubeletSettings"),
        ("control", "ControlSettings"),
        ("memory.widening", "WideningSettings"),
        ("memory.demotion", "DemotionSettings"),
    ] {
        let found = listed(&format!("[{section}]\nenabled = false\n"));
        let has = |key: &str| found.iter().any(|one| one.key == format!("{section}.{key}"));
        let keys = schema["$defs"][table]["properties"].as_object().unwrap().keys();
        // `/live` and `/ready` have their own listener.
        for key in keys.filter(|key| !["enabled", "probes"].contains(&key.as_str())) {
            assert!(has(key), "{section}.{key} is not listed: {found:?}");
        }
        assert!(!has("enabled") && !has("probes"), "{section}: {found:?}");
    }
}

#[test]
fn entries_that_are_left_alone_say_what_of_them_counts_for_nothing() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../docs/schema/config.schema.json")).unwrap();
    let matchers = ["name", "cgroup", "unit", "command", "namespace", "pod", "container", "labels"];
    let heard = ["enforce", "demotion"];
    let text = "[[workload]]\nname = 'a'\ncgroup = '/a'\nenforce = false\nstrict_memory = true\n";
    let found = listed(text);
    for key in schema["$defs"]["WorkloadRule"]["properties"].as_object().unwrap().keys() {
        let is_listed = found.iter().any(|one| one.key == format!("workload[0].{key}"));
        let counts = matchers.contains(&key.as_str()) || heard.contains(&key.as_str());
        assert_eq!(is_listed, !counts, "{key}: {found:?}");
    }
    let below = format!("{text}[[workload]]\nname = 'b'\ncgroup = '/a/b'\ncpus = 1\n");
    assert_eq!(reason(&below, "workload[0].self_placement"), None);
    assert_eq!(reason(&text.replace("memory = true", "memory = false"), "workload[0].strict_memory"), None);
}

#[test]
fn an_entry_behind_a_wider_one_has_no_effect() {
    let entry = |name: &str, keys: &str| format!("[[workload]]\nname = '{name}'\ncpus = 1\n{keys}\n");
    let wide = entry("a", "cgroup = '/a/*'");
    let found = reason(&format!("{wide}{}", entry("b", "cgroup = '/a/b'")), "workload[1]");
    let said = "no effect: [[workload]] \"a\" comes first and matches everything that \"b\" matches";
    assert_eq!(found.as_deref(), Some(said));
    for later in ["cgroup = '/b/a'", "cgroup = '/a/b/c'", "command = 'x'"] {
        assert_eq!(reason(&format!("{wide}{}", entry("b", later)), "workload[1]"), None, "{later}");
    }
    assert_eq!(reason(&format!("{}{wide}", entry("b", "cgroup = '/a/b'")), "workload[1]"), None);
    let rules = "[[placement.rule]]\nnamespace = 'kube-*'\n[[placement.rule]]\nnamespace = 'kube-system'\n";
    assert!(reason(rules, "placement.rule[1]").is_some());
}

#[test]
fn many_entries_are_compared_within_bounds() {
    let entry = |index: usize| {
        format!("[[workload]]\nname = 'n{index}'\ncpus = 1\ncgroup = '/{index}*{}b'\n", "*a".repeat(40))
    };
    let text: String = (0..4).map(entry).chain([entry(0)]).collect();
    let is_listed = |effort: &mut Effort| {
        let policy: Policy = toml::from_str(&text).unwrap();
        policy
            .ineffective_within(effort)
            .iter()
            .any(|one| one.key == "workload[4]" && one.reason.contains("\"n0\" comes first"))
    };
    assert!(is_listed(&mut Effort::default()), "the last entry repeats the first");
    let mut little = Effort::of(100);
    assert!(!is_listed(&mut little), "all comparisons share one effort");
    assert!(!little.take_pair(), "it is used up");
}

#[test]
fn what_has_an_effect_is_not_listed() {
    let kubelet = "[placement.hints]\nprofile = 'kubelet'\n";
    for (text, key) in [
        (format!("{kubelet}strict_memory_groups = true\n"), "placement.hints.strict_memory_groups"),
        (format!("{kubelet}align_all_qos = false\n"), "placement.hints.align_all_qos"),
        (format!("{kubelet}policy = 'restricted'\n"), "placement.hints.policy"),
        (kubelet.to_owned(), "placement.hints.kubelet_device_hints"),
        (format!("nri.place = true\n{kubelet}{OF_CGROUP}"), "workload[0]"),
        (format!("{kubelet}{OF_CGROUP}engine = 'pools'\n"), "placement.pools.pin_cpu"),
        (format!("nri.place = true\n{OF_PODS}"), "workload[0]"),
        (format!("{OF_PODS}cpus = 1\n"), "workload[0]"),
        (format!("{OF_PODS}enforce = false\n"), "workload[0]"),
        ("placement.engine = 'pools'\n".into(), "placement.pools.pin_memory"),
        ("[[placement.rule]]\nengine = 'pools'\n".into(), "placement.pools.pin_memory"),
        ("[[placement.rule]]\nnamespace = 'x'\n[[placement.rule]]\npod = 'a'\n".into(), "placement.rule[1]"),
        (format!("{OF_CGROUP}demotion = true\n"), "memory.demotion.idle"),
        (
            format!("mode = 'enforce'\n{OF_CGROUP}[memory.demotion]\nenabled = true\n"),
            "memory.demotion.enabled",
        ),
        ("mode = 'enforce'\nnri.place = true\n".into(), "nri.place"),
        ("metrics.enabled = false\nmetrics.probes = '127.0.0.1:1'\n".into(), "metrics.probes"),
        ("nri.place = true\nnri.expose = true\n".into(), "nri.expose"),
        ("interval = '1m'\nidle_interval = '1m'\n".into(), "idle_interval"),
    ] {
        assert_eq!(reason(&text, key), None, "{text}{key}");
    }
}

#[test]
fn every_listed_key_is_one_of_the_configuration() {
    let schema: serde_json::Value =
        serde_json::from_str(include_str!("../../../../../docs/schema/config.schema.json")).unwrap();
    let of = |table: &serde_json::Value| -> BTreeSet<String> {
        table["properties"].as_object().into_iter().flatten().map(|(key, _)| key.clone()).collect()
    };
    let tables = schema["$defs"].as_object().unwrap().values();
    let known: BTreeSet<String> = tables.chain([&schema]).flat_map(of).collect();
    for text in [
        "placement.hints.profile = 'kubelet'\nplacement.hints.policy = 'none'\n[[placement.rule]]\nscope = 'pod'\n",
        "placement.engine = 'pools'\n",
        "",
    ] {
        for one in listed(text) {
            for part in one.key.split('.') {
                let name = part.split('[').next().unwrap();
                assert!(known.contains(name), "{one}");
            }
        }
    }
}

#[test]
fn a_kubelet_has_no_pools() {
    let policy: Policy =
        toml::from_str("placement.engine = 'pools'\nplacement.hints.profile = 'kubelet'\n").unwrap();
    let error = policy.validate().unwrap_err();
    assert_eq!(error.key, "placement.hints.profile");
    assert!(error.to_string().contains("no kubelet has the engine pools"), "{error}");
}

#[test]
fn enforce_mode_with_something_to_enforce_has_an_effect() {
    for text in [
        String::new(),
        "mode = 'enforce'\nnri.place = true\n".to_owned(),
        format!("mode = 'enforce'\n{OF_CGROUP}"),
        format!("mode = 'enforce'\n{OF_CGROUP}enforce = false\ndemotion = true\n"),
    ] {
        assert_eq!(reason(&text, "mode"), None, "{text}");
    }
}

#[test]
fn a_flag_is_named_instead_of_the_setting_that_it_has_changed() {
    let off =
        listed("metrics.enabled = false\n").into_iter().find(|one| one.key == "metrics.listen").unwrap();
    let flag = |key: &str| (key == "metrics.enabled").then(|| "--metrics-listen off".to_owned());
    assert_eq!(off.reason_with(flag), "no effect: --metrics-listen off");
    assert_eq!(off.reason_with(|_| None), "no effect: metrics.enabled is false");
}
