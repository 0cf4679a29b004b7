//! Settings without effect, by what the file says beside them.

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
