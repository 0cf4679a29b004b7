//! Makes names unique that several workloads have.
//!
//! Problem: names come from cgroup paths and container runtimes, so two workloads may have the same one and
//! look alike in a list. Idea: a name that occurs more than once is followed by what differs: the process id,
//! the beginning of the container's id, or the part of the cgroup's path that the others do not have. A
//! unique name stays as it is. The module is pure. Its texts are unescaped: the caller escapes and cuts them.

use std::collections::{BTreeMap, BTreeSet};

use enforcer_core::{
    audit::AuditedWorkload,
    workload::{CgroupPath, Origin},
};

/// Characters of a container's id that people are used to see at least.
const SHORT: usize = 8;

/// The identifying facts of a workload.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NamedWorkload<'a> {
    pub(crate) name: &'a str,
    pub(crate) cgroup: &'a CgroupPath,
    pub(crate) origin: &'a Origin,
}

impl<'a> From<&'a AuditedWorkload> for NamedWorkload<'a> {
    fn from(AuditedWorkload { name, cgroup, origin, .. }: &'a AuditedWorkload) -> Self {
        Self { name, cgroup, origin }
    }
}

impl<'a> NamedWorkload<'a> {
    /// Id that the container runtime uses.
    fn id(&self) -> Option<&'a str> {
        match self.origin {
            Origin::Pod { container_id, .. } => container_id.as_deref(),
            Origin::Container { id, .. } => Some(id),
            _ => None,
        }
    }

    fn pid(&self) -> Option<String> {
        match self.origin {
            Origin::Process { pid, .. } => Some(format!("process {pid}")),
            _ => None,
        }
    }
}

/// Text to add to the name of each, in order; `None` for a unique name.
pub(crate) fn distinct<'a>(workloads: impl IntoIterator<Item = NamedWorkload<'a>>) -> Vec<Option<String>> {
    let mut by_name: BTreeMap<&str, Vec<(usize, NamedWorkload<'a>)>> = BTreeMap::new();
    let mut number = 0;
    for (place, one) in workloads.into_iter().enumerate() {
        by_name.entry(one.name).or_default().push((place, one));
        number = place + 1;
    }
    let mut behind = vec![None; number];
    for same in by_name.into_values().filter(|same| same.len() > 1) {
        let named: Vec<_> = same.iter().map(|(_, one)| *one).collect();
        for ((place, _), differs) in same.iter().zip(differences(&named)) {
            if let Some(behind) = behind.get_mut(*place) {
                *behind = Some(differs);
            }
        }
    }
    behind
}

/// A name, and behind it what tells it from others of the name.
pub(crate) fn called(name: &str, distinct: Option<&str>) -> String {
    distinct.map_or_else(|| name.to_owned(), |distinct| format!("{name} ({distinct})"))
}

/// A different text for each.
fn differences(same: &[NamedWorkload<'_>]) -> Vec<String> {
    let pids: Option<Vec<String>> = same.iter().map(NamedWorkload::pid).collect();
    let ids: Option<Vec<&str>> = same.iter().map(NamedWorkload::id).collect();
    let ids = ids.filter(|ids| differ(ids)).map(|ids| short(&ids));
    pids.filter(|pids| differ(pids)).or(ids).unwrap_or_else(|| paths(same))
}

fn differ<T: Ord>(all: &[T]) -> bool {
    all.iter().collect::<BTreeSet<_>>().len() == all.len()
}

/// As many characters of each as it takes.
fn short(ids: &[&str]) -> Vec<String> {
    let beginnings =
        |length: usize| -> Vec<String> { ids.iter().map(|id| id.chars().take(length).collect()).collect() };
    let longest = ids.iter().map(|id| id.chars().count()).max().unwrap_or(0);
    let enough = (SHORT..longest).map(beginnings).find(|short| differ(short));
    enough.unwrap_or_else(|| beginnings(longest))
}

/// The part of each path between the common beginning and the common end; the whole path where that is empty.
fn paths(same: &[NamedWorkload<'_>]) -> Vec<String> {
    let split: Vec<Vec<&str>> = same.iter().map(|one| one.cgroup.as_str().split('/').collect()).collect();
    let least = split.iter().map(Vec::len).min().unwrap_or(0);
    let alike = |at: &dyn Fn(&[&str]) -> Option<String>| {
        let mut all = split.iter().map(|parts| at(parts));
        let first = all.next();
        all.all(|one| Some(one) == first)
    };
    let front = (0..least).take_while(|n| alike(&|parts| parts.get(*n).map(ToString::to_string))).count();
    let back = (0..least - front)
        .take_while(|n| alike(&|parts| parts.iter().rev().nth(*n).map(ToString::to_string)))
        .count();
    let between = |(parts, one): (&Vec<&str>, &NamedWorkload<'_>)| {
        let middle = parts.get(front..parts.len() - back).unwrap_or_default().join("/");
        if middle.is_empty() { one.cgroup.as_str().to_owned() } else { middle }
    };
    split.iter().zip(same).map(between).collect()
}

#[cfg(test)]
mod tests {
    use enforcer_core::workload::Runtime;
    use proptest::prelude::*;

    use super::*;

    fn told(all: &[(&str, &str, Origin)]) -> Vec<Option<String>> {
        let cgroups: Vec<_> = all.iter().map(|(_, cgroup, _)| CgroupPath::new(cgroup)).collect();
        let named = all.iter().zip(&cgroups).map(|((name, _, origin), cgroup)| NamedWorkload {
            name,
            cgroup,
            origin,
        });
        distinct(named)
    }

    fn container(id: &str) -> Origin {
        Origin::Container { id: id.to_owned(), runtime: Runtime::Docker }
    }

    #[test]
    fn what_differs_stands_behind_names_that_are_there_twice() {
        let plain = Origin::Cgroup;
        let process = |pid| Origin::Process { pid, command: "db".into() };
        for (all, behind) in [
            (vec![("a", "/a", plain.clone()), ("b", "/b", plain.clone())], vec![None, None]),
            (
                vec![
                    ("db", "/x/one/db", plain.clone()),
                    ("web", "/w", plain.clone()),
                    ("db", "/x/two/db", plain.clone()),
                ],
                vec![Some("one"), None, Some("two")],
            ),
            (
                vec![
                    ("db", "/c/0123456789abcdef", container("0123456789abcdef")),
                    ("db", "/c/fedcba9876543210", container("fedcba9876543210")),
                ],
                vec![Some("01234567"), Some("fedcba98")],
            ),
            (
                vec![("db", "/1", container("0123456789a")), ("db", "/2", container("0123456789b"))],
                vec![Some("0123456789a"), Some("0123456789b")],
            ),
            (
                vec![("db", "/", process(7)), ("db", "/", process(8))],
                vec![Some("process 7"), Some("process 8")],
            ),
            (
                vec![
                    ("db", "/a/b", plain.clone()),
                    ("db", "/a/x/b", plain.clone()),
                    ("db", "/a/x/x/b", container("1")),
                ],
                vec![Some("/a/b"), Some("x"), Some("x/x")],
            ),
        ] {
            assert_eq!(told(&all), behind.into_iter().map(|one| one.map(str::to_owned)).collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn no_two_look_alike(paths in prop::collection::btree_set("(/[ab]{1,2}){1,4}", 1..9), containers in any::<bool>()) {
            let all: Vec<_> = paths
                .iter()
                .map(|path| ("x", path.as_str(), if containers { container(path) } else { Origin::Cgroup }))
                .collect();
            let behind = told(&all);
            prop_assert!(differ(&behind), "{behind:?}");
            prop_assert_eq!(behind.iter().all(Option::is_some), all.len() > 1);
        }
    }
}
