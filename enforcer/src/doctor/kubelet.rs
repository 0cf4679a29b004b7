//! The kubelet's state files and its podresources socket: whether the grants of its static managers are
//! known.

use enforcer_core::policy::KubeletSettings;

use enforcer_report::checks::Check;
use enforcer_runtime::kubelet::{KubeletSnapshot, in_use, read_snapshot};

/// Without a kubelet there is a single line.
pub(super) fn checks(settings: &KubeletSettings) -> Vec<Check> {
    let found = in_use(settings);
    rows(&found, &read_snapshot(&found))
}

fn rows(settings: &KubeletSettings, seen: &KubeletSnapshot) -> Vec<Check> {
    let root = settings.root_dir.display();
    if *seen == KubeletSnapshot::default() {
        let detail = format!("no state file in {root}, no socket {}", settings.podresources.display());
        return vec![Check::absent(
            "kubelet",
            detail,
            "only on nodes of a cluster; where it is elsewhere, set [kubelet] and name the file by --config",
        )];
    }
    let problem = |source: &str| seen.degraded.iter().find(|one| one.source == source);
    let file = |name: &str, source: &str, policy: Option<&String>| match (problem(source), policy) {
        (Some(problem), _) => Check::degraded(
            name,
            problem.reason.clone(),
            "containers of pods are left alone until it can be read; a kubelet that restarts refuses it too",
        ),
        (None, Some(policy)) => Check::ok(name, format!("policy {} in {root}", policy.escape_debug())),
        (None, None) => Check::absent(name, format!("no file in {root}"), "older kubelets have none of it"),
    };
    let (cpus, memory, devices) = seen.counts();
    let socket = if let Some(problem) = problem("kubelet:podresources") {
        Check::degraded(
            "kubelet-podresources",
            problem.reason.clone(),
            "the kubelet listens there while it runs; in a container, mount the directory of the socket",
        )
    } else {
        let allocatable = seen.allocatable.as_ref().map_or_else(
            || "it does not say what may be given away".to_owned(),
            |all| format!("CPUs {} may be given away", all.cpus),
        );
        let given = format!("given: CPUs {cpus}, memory {memory}, devices {devices} times");
        Check::ok("kubelet-podresources", format!("{allocatable}; {given}"))
    };
    vec![
        file("kubelet-cpu-state", "kubelet:cpu-state", seen.kubelet.cpu_policy.as_ref()),
        file("kubelet-memory-state", "kubelet:memory-state", seen.kubelet.memory_policy.as_ref()),
        socket,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use enforcer_report::checks::Status;

    fn rows(files: &[(&str, &str)]) -> Vec<(String, Status, String)> {
        let dir = tempfile::tempdir().unwrap();
        for (name, text) in files {
            std::fs::write(dir.path().join(name), text).unwrap();
        }
        let podresources = dir.path().join("kubelet.sock");
        let settings = KubeletSettings { enabled: true, root_dir: dir.path().to_owned(), podresources };
        checks(&settings).into_iter().map(|check| (check.name, check.status, check.detail)).collect()
    }

    #[test]
    fn each_source_has_a_line_and_none_of_them_where_there_is_no_kubelet() {
        let none = rows(&[]);
        assert_eq!((none.len(), none[0].0.as_str(), none[0].1), (1, "kubelet", Status::Absent));
        let good = r#"{"policyName":"none","defaultCpuSet":"","checksum":1353318690}"#;
        let found = rows(&[("cpu_manager_state", good), ("memory_manager_state", "{")]);
        let short: Vec<(&str, Status)> =
            found.iter().map(|(name, status, _)| (name.as_str(), *status)).collect();
        assert_eq!(
            short,
            [
                ("kubelet-cpu-state", Status::Ok),
                ("kubelet-memory-state", Status::Degraded),
                ("kubelet-podresources", Status::Degraded)
            ]
        );
        assert!(found[0].2.starts_with("policy none in "), "{found:?}");
        assert!(found[2].2.contains("kubelet.sock"), "{found:?}");
    }
}
