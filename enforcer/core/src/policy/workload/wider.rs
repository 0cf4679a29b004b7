//! Decides whether an entry selects everything that another entry selects.
//!
//! Invariant: a positive answer holds for all workloads; for matchers of different kinds the answer is
//! negative.

use super::{RuleSubject, WorkloadKind, WorkloadRule};
use crate::{
    policy::{covering::Effort, placement::name_glob::covers_optional},
    workload::{CgroupPath, identify},
};

impl WorkloadRule {
    /// Does every matcher of this entry match wherever those of the other match?
    pub(in crate::policy) fn is_about_all_of(&self, other: &Self, effort: &mut Effort) -> bool {
        if !effort.take_pair() {
            return false;
        }
        let cgroup = self
            .cgroup
            .as_ref()
            .is_none_or(|wide| other.cgroup.as_ref().is_some_and(|narrow| wide.covers(narrow, &mut *effort)));
        // Commands of containers count only beside these matchers.
        let is_bounded = |rule: &Self| rule.cgroup.is_some() || rule.unit.is_some();
        let trusts = self.command.is_none() || is_bounded(self) || !is_bounded(other);
        let named = [
            (&self.command, &other.command),
            (&self.namespace, &other.namespace),
            (&self.pod, &other.pod),
            (&self.container, &other.container),
        ];
        cgroup
            && trusts
            && self.labels.iter().all(|(key, value)| other.labels.get(key) == Some(value))
            && named
                .into_iter()
                .all(|(wide, narrow)| covers_optional(wide.as_ref(), narrow.as_ref(), &mut *effort))
            && (covers_optional(self.unit.as_ref(), other.unit.as_ref(), effort) || self.has_unit_of(other))
    }

    /// Is the other entry's cgroup the one of the unit that this entry names?
    fn has_unit_of(&self, other: &Self) -> bool {
        let (Some(unit), Some(glob)) = (&self.unit, &other.cgroup) else { return false };
        if !glob.is_literal() {
            return false;
        }
        let cgroup = CgroupPath::new(glob.as_str());
        let standing = WorkloadKind::from(&identify(&cgroup).origin);
        let subject = RuleSubject { cgroup: Some(&cgroup), standing, pod: None, commands: &[] };
        subject.unit().is_some_and(|name| unit.matches(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_entry_covers_what_needs_more_than_it_does() {
        let rule = |keys: &str| -> WorkloadRule {
            toml::from_str(&format!("name = 'a'\ncpus = 1\n{}", keys.replace("; ", "\n"))).unwrap()
        };
        for (earlier, later, covers) in [
            ("cgroup = '/a/*'", "cgroup = '/a/b'", true),
            ("cgroup = '/a/*'", "cgroup = '/a/b'; command = 'x'", true),
            ("cgroup = '/a/b'", "cgroup = '/a/*'", false),
            ("cgroup = '/a/*'; command = 'x'", "cgroup = '/a/b'", false),
            ("unit = 'redis*.service'", "unit = 'redis-1.service'", true),
            ("unit = 'redis.service'", "cgroup = '/system.slice/redis.service'", true),
            ("unit = 'redis.service'", "cgroup = '/system.slice/*'", false),
            ("unit = 'redis.service'", "cgroup = '/system.slice/other.service'", false),
            ("command = 'x*'", "command = 'xy'", true),
            ("command = 'x*'", "command = 'xy'; cgroup = '/a'", false),
            ("namespace = '*'", "namespace = 'db'; pod = 'a-*'", true),
            ("namespace = '*'", "pod = 'a-*'", false),
            ("namespace = '*'", "cgroup = '/kubepods.slice/**'", false),
            ("labels = { a = '1' }", "labels = { a = '1', b = '2' }", true),
            ("labels = { a = '1', b = '2' }", "labels = { a = '1' }", false),
            ("container = 'm*'", "container = 'main'; namespace = 'x'", true),
            ("cgroup = '/kubepods.slice/**'", "cgroup = '/kubepods.slice/a'; namespace = 'x'", true),
        ] {
            let found = rule(earlier).is_about_all_of(&rule(later), &mut Effort::default());
            assert_eq!(found, covers, "{earlier} before {later}");
        }
    }
}
