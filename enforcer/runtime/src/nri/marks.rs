//! Marks of other controllers on pods: the pod itself names the owner of its cpuset.
//!
//! | mark | controller |
//! |---|---|
//! | annotation `scheduling.koordinator.sh/resource-status` with a cpuset | koordlet, which applies what its scheduler chose |
//! | annotation `katalyst.kubewharf.io/qos_level` | katalyst, which pins every pod of its classes |
//! | variable `DRA_CPUSET_CLAIM` | dra-driver-cpu; the claim has these CPUs |
//!
//! The author of a pod writes its marks. A mark can only make us leave the pod alone; its values are compared
//! and shown, never set. CPUs named by a mark count as taken only if as many are requested, by the container
//! of a variable and by the pod of an annotation
//! ([`OwnershipFacts::excess`](enforcer_core::owner::OwnershipFacts::excess)): a request was granted by the
//! cluster, a mark was not.

use std::collections::BTreeMap;

use enforcer_core::{
    cluster::own_engine::{KATALYST, KOORDINATOR},
    owner::{KnownContainer, Owner, PodClaim},
};
use numa_topology::set::CpuSet;
use serde::Deserialize;

use super::{
    amounts::milli_cpus,
    api::{Container, PodSandbox},
};

/// Of dra-driver-cpu (`pkg/driver/nri_hooks.go`), with the claim's uid behind it.
const DRA: &str = "DRA_CPUSET_";

/// Longest value that is read.
const LONGEST: usize = 4 << 10;
/// Longest key of a label in bytes, with its prefix, and longest value.
const LONGEST_KEY: usize = 317;
const LONGEST_VALUE: usize = 63;
/// Most labels that are kept.
const MOST_LABELS: usize = 256;
/// Longest value that is shown, in characters.
const SHOWN: usize = 100;

#[derive(Deserialize)]
struct ResourceStatus {
    #[serde(default)]
    cpuset: String,
}

/// A container by its names, with the mark that it carries.
pub fn known(pod: &PodSandbox, container: &Container) -> KnownContainer {
    KnownContainer {
        pod_uid: pod.uid.clone(),
        namespace: pod.namespace.clone(),
        pod: pod.name.clone(),
        container: container.name.clone(),
        labels: labels(pod),
        milli_cpus: milli_cpus(container.linux.as_ref().and_then(|linux| linux.resources.as_ref())),
        pod_milli_cpus: milli_cpus(pod.linux.as_ref().and_then(|linux| linux.pod_resources.as_ref())),
        claim: claim(pod, container),
    }
}

/// Labels that Kubernetes would accept: rules match no others, and a runtime without Kubernetes accepts any.
pub(super) fn labels(pod: &PodSandbox) -> BTreeMap<String, String> {
    let usual =
        pod.labels.iter().filter(|(key, value)| key.len() <= LONGEST_KEY && value.len() <= LONGEST_VALUE);
    usual.take(MOST_LABELS).map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn claim(pod: &PodSandbox, container: &Container) -> Option<PodClaim> {
    let annotation = |key: &str| pod.annotations.get(key).filter(|value| value.len() <= LONGEST);
    koordinator(annotation(KOORDINATOR))
        .or_else(|| katalyst(annotation(KATALYST)))
        .or_else(|| container.env.iter().find_map(|variable| dra(variable)))
}

fn koordinator(value: Option<&String>) -> Option<PodClaim> {
    let status: ResourceStatus = serde_json::from_slice(value?.as_bytes()).ok()?;
    let cpus = list(&status.cpuset)?;
    let evidence = format!("annotation {KOORDINATOR}: cpuset {cpus}");
    Some(PodClaim { owner: Owner::Koordlet, evidence, cpus: Some(cpus), mems: None, of_pod: true })
}

fn katalyst(value: Option<&String>) -> Option<PodClaim> {
    let level: String = value?.chars().take(SHOWN).collect();
    let evidence = format!("annotation {KATALYST}: {level}");
    Some(PodClaim { owner: Owner::Katalyst, evidence, cpus: None, mems: None, of_pod: true })
}

/// May the variable be a mark?
pub(super) fn is_mark(variable: &str) -> bool {
    variable.starts_with(DRA)
}

fn dra(variable: &str) -> Option<PodClaim> {
    let (name, value) =
        variable.strip_prefix(DRA)?.split_once('=').filter(|(_, value)| value.len() <= LONGEST)?;
    let cpus = list(value)?;
    let name: String = name.chars().take(SHOWN).collect();
    let evidence = format!("variable {DRA}{name}: {cpus}");
    Some(PodClaim { owner: Owner::DraDriver, evidence, cpus: Some(cpus), mems: None, of_pod: false })
}

/// A list that names some CPUs.
fn list(text: &str) -> Option<CpuSet> {
    text.parse().ok().filter(|cpus: &CpuSet| !cpus.is_empty())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn marked(annotations: &[(&str, &str)], env: &[&str]) -> Option<(Owner, String)> {
        let pod = PodSandbox {
            annotations: annotations.iter().map(|(key, value)| ((*key).into(), (*value).into())).collect(),
            ..PodSandbox::default()
        };
        let env = env.iter().map(|variable| (*variable).to_owned()).collect();
        let claim = claim(&pod, &Container { env, ..Container::default() })?;
        Some((claim.owner, claim.cpus.map(|cpus| cpus.to_string()).unwrap_or_default()))
    }

    #[test]
    fn labels_that_kubernetes_would_not_let_through_are_not_kept() {
        let long = "x".repeat(64);
        let mut labels: BTreeMap<String, String> =
            (0..300).map(|number| (format!("z{number}"), "v".to_owned())).collect();
        labels.extend([("app", "web"), ("big", long.as_str())].map(|(k, v)| (k.to_owned(), v.to_owned())));
        labels.insert("k".repeat(318), "v".into());
        let pod = PodSandbox { labels, ..PodSandbox::default() };
        let kept = known(&pod, &Container::default()).labels;
        assert_eq!((kept.len(), kept.get("app").map(String::as_str)), (MOST_LABELS, Some("web")));
        assert!(!kept.contains_key("big") && kept.keys().all(|key| key.len() < 10));
    }

    #[test]
    fn each_controller_is_known_by_its_mark() {
        let long = format!("DRA_CPUSET_x=0{}", ",1".repeat(LONGEST));
        for (annotations, env, expected) in [
            (
                vec![(KOORDINATOR, r#"{"cpuset":"0-3,8","numaNodeResources":[{"node":0}]}"#)],
                vec![],
                Some((Owner::Koordlet, "0-3,8")),
            ),
            // A pod that shares CPUs has no cpuset there, and koordlet pins no single one of them.
            (vec![(KOORDINATOR, r#"{"numaNodeResources":[]}"#)], vec![], None),
            (vec![(KOORDINATOR, "{")], vec![], None),
            (vec![(KATALYST, "dedicated_cores")], vec![], Some((Owner::Katalyst, ""))),
            (vec![], vec!["PATH=/bin", "DRA_CPUSET_0b5a=2-3"], Some((Owner::DraDriver, "2-3"))),
            (vec![], vec!["DRA_CPUSET_0b5a=x", "DRA_CPUSET_", "DRA_CPUSET_a="], None),
            (vec![], vec![long.as_str()], None),
            (vec![("other", "0-3")], vec!["CPUS=0"], None),
        ] {
            let expected = expected.map(|(owner, cpus)| (owner, cpus.to_owned()));
            assert_eq!(marked(&annotations, &env), expected, "{annotations:?} {env:?}");
        }
    }

    proptest! {
        #[test]
        fn any_mark_is_read_without_harm(value in ".{0,60}", variable in "DRA_CPUSET_.{0,40}") {
            let claim = marked(&[(KOORDINATOR, &value)], &[&variable]);
            if let Some((_, cpus)) = claim {
                prop_assert!(!cpus.is_empty());
            }
        }
    }
}
