//! Findings about workloads to which this daemon has added memory nodes.
//!
//! Such a workload may have memory far from its CPUs, because without the added node the OOM killer would
//! have acted. So each finding about its memory says that the daemon added the node, and why. A difference to
//! its declaration is only a note, because the daemon keeps it there. No remedy takes the node away while the
//! workload's own nodes are full.

use super::{Finding, Rule, Severity};
use crate::{turn::Widened, words};

/// These findings, with the added nodes named in those that they cause.
pub fn with_added(mut findings: Vec<Finding>, widened: &Widened) -> Vec<Finding> {
    for finding in &mut findings {
        let about_memory = matches!(
            finding.rule,
            Rule::CpusetMismatch | Rule::RemoteResidency | Rule::RemoteTraffic | Rule::Drift
        );
        let Some(added) = widened.get(&finding.object).filter(|_| about_memory) else { continue };
        finding.summary = format!(
            "{}; numa-enforcer added {} to it because its own memory was nearly full",
            finding.summary,
            words::nodes(added)
        );
        if matches!(finding.rule, Rule::Drift | Rule::CpusetMismatch) {
            finding.severity = Severity::Info;
        }
        finding.remedy = None;
        finding.obstacle = Some(
            "numa-enforcer gives it back by itself when there is room; `numa-enforcer explain` says what it waits for"
                .into(),
        );
    }
    findings
}

#[cfg(test)]
mod tests {
    use crate::{
        finding::{Severity, with_added},
        scene::Scene,
        turn::Widened,
        workload::CgroupPath,
    };
    use numa_topology::synth::Machine;

    #[test]
    fn what_was_added_is_no_misalignment_of_its_own() {
        let scene = Scene::new(Machine::new().sockets(2).threads(1).build())
            .workload("/a", "0-1", "0-1")
            .memory("/a", &[(0, 300, 0), (1, 100, 0)])
            .declared("/a", 2, None)
            .workload("/b", "0-1", "0-1");
        let before = scene.findings();
        let of = |path: &str| before.iter().filter(|one| one.object == CgroupPath::new(path)).count();
        assert!(of("/a") >= 2 && of("/b") >= 1, "{before:?}");
        let after = with_added(before.clone(), &[(CgroupPath::new("/a"), "1".parse().unwrap())].into());
        for (before, after) in before.iter().zip(&after) {
            let is_ours = after.object == CgroupPath::new("/a");
            assert_eq!(after.summary.contains("numa-enforcer added node 1"), is_ours, "{after:?}");
            assert_eq!(after.obstacle.as_ref().is_some_and(|why| why.contains("by itself")), is_ours);
            assert!(!is_ours || after.remedy.is_none());
            assert!(after.severity <= before.severity && after.id == before.id);
            assert!(!is_ours || !after.id.starts_with("drift") || after.severity == Severity::Info);
        }
        assert_eq!(with_added(before.clone(), &Widened::new()), before);
    }
}
