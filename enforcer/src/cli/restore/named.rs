//! Which cgroup `restore WORKLOAD` is about.
//!
//! Problem: an operator has a name from `explain`, `audit` or the configuration, and the journal has paths.
//! Idea: the search of `explain` ([`find`]) over the cgroups of the journal, so that both commands take the
//! same names. Without a daemon nothing tells names of pods and of processes; these are not found.
//! Invariant: a message quotes the name as it was typed, never a path that was made of it.

use anyhow::bail;
use enforcer_core::{
    policy::{Policy, RuleSubject as Asked, WorkloadKind},
    workload::{CgroupPath, Identity, Origin, identify},
};
use enforcer_report::decision::DecisionSubject;

use crate::cli::UsageError;
use crate::serve::{
    api::ProblemCode,
    find::{NameCandidate, find},
};

/// What a name stands for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum RestoreTarget {
    /// A cgroup that the journal has, or one above or below such a one.
    Cgroup(CgroupPath),
    /// A cgroup that was named by its path, and of which the journal has nothing.
    Path(CgroupPath),
    /// A `[[workload]]` entry with no workload in the journal.
    Unset,
}

/// Finds the cgroup of a name; `exists` tells whether a cgroup is on this host.
pub(super) fn named(
    typed: &str,
    journal: &[&CgroupPath],
    policy: &Policy,
    exists: impl Fn(&CgroupPath) -> bool,
) -> anyhow::Result<RestoreTarget> {
    if typed.split('/').any(|part| part == "..") {
        return Err(UsageError(format!("restore {typed}: `..` is in no path of a cgroup")).into());
    }
    let path = CgroupPath::new(typed);
    let is_in_journal = || journal.iter().any(|cgroup| cgroup.is_within(&path));
    if typed.starts_with('/') {
        return Ok(if is_in_journal() { RestoreTarget::Cgroup(path) } else { RestoreTarget::Path(path) });
    }
    let known: Vec<NameCandidate> = journal.iter().map(|cgroup| known(cgroup, policy)).collect();
    match find(typed, &known) {
        Ok(at) => {
            let found = journal.get(at).map_or(path, |cgroup| (*cgroup).clone());
            Ok(RestoreTarget::Cgroup(found))
        }
        Err(problem) if problem.code == ProblemCode::AmbiguousWorkload => {
            bail!("restore {typed}: {}: {}", problem.message, problem.candidates.join(", "))
        }
        Err(_) if policy.workloads.iter().any(|rule| rule.name == typed) => Ok(RestoreTarget::Unset),
        Err(_) if is_in_journal() => Ok(RestoreTarget::Cgroup(path)),
        Err(_) if exists(&path) => Ok(RestoreTarget::Path(path)),
        Err(_) => bail!(
            "restore {typed}: no workload of the journal and no cgroup has this name; name the cgroup by its \
             path (`numa-enforcer explain {typed}` shows it)"
        ),
    }
}

fn known(cgroup: &CgroupPath, policy: &Policy) -> NameCandidate {
    let Identity { name, origin, .. } = identify(cgroup);
    let asked =
        Asked { cgroup: Some(cgroup), standing: WorkloadKind::from(&origin), pod: None, commands: &[] };
    let rule = policy.rule(&asked).map(|(_, rule)| rule.name.clone());
    let container_id = match origin {
        Origin::Pod { container_id, .. } => container_id,
        Origin::Container { id, .. } => Some(id),
        _ => None,
    };
    let subject = DecisionSubject { name, cgroup: Some(cgroup.clone()), container_id, ended: false };
    NameCandidate { subject, rule, process: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn restore_takes_the_names_of_explain() {
        let id = "a".repeat(64);
        let pod = "/kubepods.slice/kubepods-pod11111111_1111_1111_1111_111111111111.slice";
        let container = format!("{pod}/cri-containerd-{id}.scope");
        let there = [
            "/system.slice/db.service",
            "/jobs/a",
            "/other/a",
            "/jobs/b",
            "/cache/1",
            "/cache/2",
            &container,
        ]
        .map(CgroupPath::new);
        let policy: Policy = toml::from_str(
            "[[workload]]\nname = 'database'\nunit = 'db.service'\ncpus = 1\n\
             [[workload]]\nname = 'job'\ncgroup = '/jobs/b'\ncpus = 1\n\
             [[workload]]\nname = 'cache'\ncgroup = '/cache/*'\ncpus = 1\n\
             [[workload]]\nname = 'idle'\ncgroup = '/idle'\ncpus = 1\n",
        )
        .unwrap();
        let cgroup = |path: &str| Ok(RestoreTarget::Cgroup(CgroupPath::new(path)));
        let path = |path: &str| Ok(RestoreTarget::Path(CgroupPath::new(path)));
        for (typed, expected) in [
            ("/jobs/a", cgroup("/jobs/a")),
            ("/jobs", cgroup("/jobs")),
            ("db.service", cgroup("/system.slice/db.service")),
            ("database", cgroup("/system.slice/db.service")),
            ("job", cgroup("/jobs/b")),
            ("b", cgroup("/jobs/b")),
            ("jobs/b", cgroup("/jobs/b")),
            ("jobs", cgroup("/jobs")),
            (&id[..8], cgroup(&container)),
            (&id, cgroup(&container)),
            ("idle", Ok(RestoreTarget::Unset)),
            ("there", path("/there")),
            ("/gone", path("/gone")),
            ("a", Err("restore a: `a` may be 2 workloads; name one of them: /jobs/a, /other/a")),
            ("cache", Err("restore cache: `cache` may be 2 workloads; name one of them: /cache/1, /cache/2")),
            (
                "gone",
                Err(
                    "restore gone: no workload of the journal and no cgroup has this name; name the cgroup by \
                     its path (`numa-enforcer explain gone` shows it)",
                ),
            ),
        ] {
            let there: Vec<&CgroupPath> = there.iter().collect();
            let found = named(typed, &there, &policy, |path| path.as_str() == "/there");
            assert_eq!(found.map_err(|error| error.to_string()), expected.map_err(str::to_owned), "{typed}");
        }
    }
    #[test]
    fn a_path_that_leads_up_is_wrong_usage() {
        for typed in ["../..", "/..", "/a/../b", ".."] {
            let Err(error) = named(typed, &[], &Policy::default(), |_| true) else { panic!("{typed}") };
            assert!(error.is::<UsageError>() && error.to_string().contains(typed), "{error}");
        }
        assert!(named("/a..b", &[], &Policy::default(), |_| true).is_ok());
    }
}
