//! Values of labels that this program chooses, all of them: docs/metrics.md lists them, and a scrape has no
//! other.
//!
//! Values from outside (names, cgroups, node numbers) are not here. Where a type has the values, a test
//! compares the list with it.

use enforcer_core::{
    cluster::{
        extender::{AnswerGroup, BindCallEnd},
        gate::GateEnd,
    },
    finding::Severity,
    memory_policy::PolicyMode,
    model::TrafficSource,
    owner::Owner,
    plan::{Action, OutcomeResult},
    policy::DemotionBackend,
    sample::{CpusetFile, PageMoveReason, PressureKind},
    turn::RefusalCause,
    widening::{ReclaimSource, WideningRefusal},
};
use strum::VariantNames;

/// A label, and every value that it has in a family.
pub(super) type Values = (&'static str, &'static [&'static str]);

pub(super) const MEMORY: Values = ("memory", &["local", "remote"]);
pub(super) const TRAFFIC_SOURCE: Values = ("source", TrafficSource::VARIANTS);
pub(super) const QOS: Values = ("qos", &["guaranteed", "burstable", "best-effort"]);
pub(super) const SEVERITY: Values = ("severity", Severity::VARIANTS);
pub(super) const OWNER: Values = ("owner", Owner::VARIANTS);
pub(super) const ALLOCATION: Values = ("kind", &["hit", "miss", "foreign", "interleave", "local", "other"]);
pub(super) const CLAIM_CPUS: Values = ("state", &["capacity", "exclusive", "shared"]);
pub(super) const CLAIM_MEMORY: Values = ("state", &["capacity", "promised"]);
pub(super) const CLAIM_CALL: Values = ("result", &["ok", "error"]);
pub(super) const PRESSURE: Values = ("kind", PressureKind::VARIANTS);
pub(super) const ACTION: Values = ("action", Action::VARIANTS);
pub(super) const STEP_RESULT: Values = ("result", OutcomeResult::VARIANTS);
pub(super) const DRIFT: Values = ("result", &["repaired", "failed", "left-alone"]);
pub(super) const RING: Values = ("result", &["told", "forgotten", "ring-full", "limited"]);
pub(super) const EVENT_RESULT: Values = ("result", &["written", "dropped"]);
pub(super) const PREDICTION_OUTCOME: Values = ("outcome", &["right", "wrong", "unchecked"]);
pub(super) const APPLIED: Values = ("result", &["applied", "failed"]);
pub(super) const MOVED: Values = ("result", &["moved", "failed"]);
pub(super) const MOVE_CAUSE: Values = ("cause", PageMoveReason::VARIANTS);
pub(super) const SKIP_CAUSE: Values = ("cause", &["one-node", "unsuitable", "passed"]);
pub(super) const KILL_CAUSE: Values = ("cause", &["memory-nodes", "memory-limit"]);
pub(super) const RELIEF_CAUSE: Values = ("cause", ReclaimSource::VARIANTS);
pub(super) const REFUSED: Values = ("cause", RefusalCause::VARIANTS);
pub(super) const REFUSAL: Values = ("reason", WideningRefusal::VARIANTS);
pub(super) const LOST: Values = ("reason", &["map-full", "unknown-cpu", "unknown-cgroup", "unwatched"]);
pub(super) const BY: Values = ("by", &["own", "elsewhere"]);
pub(super) const STEP: Values = ("step", &["moved", "swapped", "stuck"]);
pub(super) const FILE: Values = ("file", CpusetFile::VARIANTS);
pub(super) const SCOPE: Values = ("scope", &["task", "range"]);
pub(super) const POLICY_MODE: Values = ("mode", PolicyMode::VARIANTS);
pub(super) const STAGE: Values = ("stage", &["widen", "emergency"]);
pub(super) const QUANTILE: Values = ("quantile", &["0.5", "0.99"]);
pub(super) const CALL: Values =
    ("call", &["synchronize", "create", "update", "stop", "started", "removed", "pod-removed"]);
pub(super) const DIRECTION: Values = ("direction", &["down", "up"]);
pub(super) const COLD_SOURCE: Values = ("source", &["damon", "referenced", "lru-gen"]);
pub(super) const TIER_SOURCE: Values = ("source", &["damon", "referenced", "kernel"]);
pub(super) const BACKEND: Values = ("backend", DemotionBackend::VARIANTS);
pub(super) const OUTCOME: Values = ("outcome", &["begun", "held", "reverted", "stays", "given-up"]);
pub(super) const VERB: Values = ("verb", &["filter", "prioritize", "bind"]);
pub(super) const BIND_VERB: Values = ("verb", &["filter", "bind"]);
pub(super) const CALL_CAUSE: Values = ("cause", &["not-ready", "faulty", "too-many"]);
pub(super) const ANSWER: Values = ("outcome", AnswerGroup::VARIANTS);
pub(super) const BIND_END: Values = ("end", BindCallEnd::VARIANTS);
pub(super) const NODE_STATE: Values = ("state", &["exact", "unknown", "unpublished"]);
pub(super) const GATED_STATE: Values = ("state", &["gated", "placed", "late", "unread", "refused"]);
pub(super) const GATE_END: Values = ("end", GateEnd::NAMES);
pub(super) const COLLECTION: Values = ("collection", &["nodes", "states", "pods", "leases"]);

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use enforcer_core::{named::Named as _, widening::PressureLevel};
    use schemars::{JsonSchema, schema_for};

    use super::{
        super::{
            family::{Family, FamilyOf, Scrape},
            sections,
        },
        *,
    };

    /// Labels with values from outside, or from what the host has.
    const OPEN: [&str; 13] = [
        "workload",
        "cgroup",
        "namespace",
        "pod",
        "container",
        "policy",
        "numa_node",
        "src_numa",
        "dst_numa",
        "program",
        "version",
        "commit",
        // docs/runbook.md has them, and a test of its own.
        "feature",
    ];

    /// Every name of a value of an enumeration: those without fields are strings, the others have a tag.
    fn variants<T: JsonSchema>() -> BTreeSet<String> {
        fn names(schema: &serde_json::Value, found: &mut BTreeSet<String>) {
            match schema {
                serde_json::Value::Object(of) => {
                    for (key, value) in of {
                        match (key.as_str(), value) {
                            ("const", serde_json::Value::String(name)) => {
                                found.insert(name.clone());
                            }
                            ("enum", serde_json::Value::Array(all)) => {
                                found.extend(all.iter().filter_map(|name| Some(name.as_str()?.to_owned())));
                            }
                            ("$defs", _) => {}
                            (_, value) => names(value, found),
                        }
                    }
                }
                serde_json::Value::Array(all) => all.iter().for_each(|one| names(one, found)),
                _ => {}
            }
        }
        let mut found = BTreeSet::new();
        names(schema_for!(T).as_value(), &mut found);
        found
    }

    #[test]
    fn what_a_type_has_is_listed() {
        for ((label, listed), has) in [
            (TRAFFIC_SOURCE, variants::<TrafficSource>()),
            (SEVERITY, variants::<Severity>()),
            (OWNER, variants::<Owner>()),
            (PRESSURE, variants::<PressureKind>()),
            (MOVE_CAUSE, variants::<PageMoveReason>()),
            (POLICY_MODE, variants::<PolicyMode>()),
            (FILE, variants::<CpusetFile>()),
            (BACKEND, variants::<DemotionBackend>()),
            (ACTION, variants::<Action>()),
            (REFUSED, variants::<RefusalCause>()),
            (STEP_RESULT, variants::<OutcomeResult>()),
        ] {
            assert_eq!(listed.iter().map(|name| (*name).to_owned()).collect::<BTreeSet<_>>(), has, "{label}");
        }
        assert_eq!(
            REFUSAL.1,
            [WideningRefusal::Strict, WideningRefusal::MemoryLimit, WideningRefusal::NoNode]
                .map(|one| one.name())
        );
        assert_eq!(
            RELIEF_CAUSE.1,
            [ReclaimSource::Bound, ReclaimSource::Neighbour, ReclaimSource::Cold].map(|one| one.name())
        );
        assert_eq!(STAGE.1, [PressureLevel::Widen, PressureLevel::Emergency].map(|one| one.name()));
    }

    #[test]
    fn every_label_is_open_or_lists_its_values() {
        for family in sections::every() {
            for label in &family.labels {
                assert_ne!(
                    OPEN.contains(label),
                    family.values_of(label).is_some(),
                    "{label} of {}",
                    family.name
                );
            }
            for (label, values) in family.values {
                assert!(family.labels.contains(label), "{label} of {}", family.name);
                let different: BTreeSet<_> = values.iter().collect();
                assert_eq!(different.len(), values.len(), "{label} of {}", family.name);
            }
        }
    }

    #[test]
    #[should_panic(expected = "is not listed")]
    fn a_value_that_is_not_listed_fails_where_it_is_put() {
        const EVENTS: FamilyOf<2> =
            Family::counter("events_total", ["numa_node", "kind"], "Events.").of(&[PRESSURE]);
        Scrape::default().put(&EVENTS, &["0", "unheard-of"], Some(1.0));
    }
}
