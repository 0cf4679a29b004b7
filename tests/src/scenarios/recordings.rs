//! Of which scenarios a recording is kept (tests/fixtures/recordings), and why of the others none is.
//!
//! Every scenario with the product has a recording, or is in [`UNKEPT`] with the reason. What recordings say
//! is for `kept_recordings_give_the_same_plans` (enforcer/tests/product/replay.rs), which takes each of them.

use std::{collections::BTreeMap, fs, path::Path};

use super::{ALL, named};
use crate::product::KEPT;

/// Most bytes of all together: each clone of the repository has them, and each renewal once more.
const ALL_KEPT: u64 = 4 << 20;

/// Reasons, and the scenarios without a recording for each.
const UNKEPT: [(&str, &[&str]); 8] = [
    ("runs the product of another architecture", &["arm64-smoke"]),
    (
        "runs no daemon, but audits",
        &[
            "audit-misaligned",
            "audit-remedies",
            "audit-remedies-room",
            "degrade-balancing-off",
            "degrade-fentry-refused",
            "degrade-lockdown",
            "degrade-no-btf",
            "degrade-no-cap-bpf",
            "degrade-no-cap-perfmon",
            "degrade-no-fentry",
            "degrade-shipped-privileges",
            "eyes-traffic",
            "eyes-traffic-4s",
            "eyes-what-needs-what",
        ],
    ),
    ("is about what its daemon publishes, which no recording has", &["node-published"]),
    ("is about calls of a kubelet, which no recording has", &["node-claimed"]),
    ("is about interrupts, which no recording has", &["correct-interrupts"]),
    ("its daemon takes one turn, in which nothing can be done", &["degrade-one-node"]),
    ("its daemon is killed in its first turn, before that is recorded", &["correct-restore-after-kill"]),
    (
        "plays only by name, and decides what the recording of another shows, or more than can be kept",
        &[
            "audit-large",
            "correct-late",
            "degrade-answered-pins",
            "degrade-lockdown-integrity",
            "degrade-others-pins",
            "eyes-forty",
            "eyes-traffic-kinds",
            "node-cold-start",
            "node-cold-start-ready",
            "node-deadlock",
            "node-idle",
            "node-lifecycles",
            "node-resources",
            "package-deb",
            "package-image",
            "rebalance-peers",
            "systemd-placement",
            "systemd-undone",
            "systemd-unit",
            "tiers-backends",
            "tiers-cpuset",
            "widen-back",
            "widen-before-oom-1",
            "widen-brake-high",
            "widen-brake-killed",
            "widen-cold-relief",
            "widen-exposed",
            "widen-full-speed",
            "widen-head-of-line",
            "widen-matrix",
            "widen-order",
            "widen-strict-relief",
            "widen-where-it-may",
        ],
    ),
];

/// Size of each recording, by the name of its scenario.
fn kept() -> BTreeMap<String, u64> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fixtures/recordings");
    let files = fs::read_dir(folder).unwrap().map(Result::unwrap);
    let names = files.map(|file| (file.file_name().into_string().unwrap(), file));
    let recordings = names.filter(|(name, _)| name != "README.md").map(|(name, file)| {
        let scenario = name.strip_suffix(".rec").unwrap_or_else(|| panic!("{name} is no recording"));
        (scenario.to_owned(), file.metadata().unwrap().len())
    });
    recordings.collect()
}

#[test]
fn every_recording_is_of_a_scenario_and_every_scenario_has_one_or_a_reason() {
    let kept = kept();
    let reasons: Vec<(&str, &str)> = UNKEPT
        .iter()
        .flat_map(|(reason, scenarios)| scenarios.iter().map(move |scenario| (*scenario, *reason)))
        .collect();
    let reason_of = |name: &str| reasons.iter().find(|(scenario, _)| *scenario == name);
    let mut wrong = Vec::new();
    for name in kept.keys() {
        if !named(name).is_some_and(|scenario| scenario.needs_product) {
            wrong.push(format!("{name}.rec: no scenario of that name runs the product"));
        }
        if let Some((_, reason)) = reason_of(name) {
            wrong.push(format!("{name}.rec is kept, and UNKEPT says why it is not: {reason}"));
        }
    }
    for scenario in ALL.iter().filter(|scenario| scenario.needs_product) {
        if !kept.contains_key(scenario.name) && reason_of(scenario.name).is_none() {
            wrong.push(format!("{} has no recording, and UNKEPT does not say why", scenario.name));
        }
    }
    for (scenario, reason) in &reasons {
        if !named(scenario).is_some_and(|scenario| scenario.needs_product) {
            wrong.push(format!("UNKEPT names {scenario}, of which no recording is missed: {reason}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn recordings_stay_small_enough_to_be_kept() {
    let kept = kept();
    let large: Vec<_> = kept.iter().filter(|(_, bytes)| **bytes > KEPT).collect();
    assert!(large.is_empty(), "above {KEPT} bytes: {large:?}");
    let all: u64 = kept.values().sum();
    assert!(all <= ALL_KEPT, "{all} bytes are above {ALL_KEPT}");
}
