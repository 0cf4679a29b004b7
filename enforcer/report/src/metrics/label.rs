//! Values of labels that others choose: of bounded length, and still different where they were.
//!
//! A user that may create cgroups may create paths of 4,096 bytes, and each would be in thousands of series.
//! So labels are cut. The encoder escapes quotes and newlines.
//!
//! All series of a workload have one label, its name. Names come from cgroup paths, so a user that may create
//! cgroups can give two workloads the same name. Then each name is followed by a hash of its path, so that no
//! workload hides the series of another. A name that looks as if it had such a hash gets one too.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
};

use enforcer_core::{
    audit::AuditedWorkload,
    workload::{CgroupPath, Origin, printable},
};

/// Longest value in bytes.
pub(super) const LONGEST: usize = 512;

/// The same for a text from a container, with terminal escapes escaped.
pub(super) fn shown(value: &str) -> String {
    bounded(&printable(value)).into_owned()
}

/// The value itself, or its beginning and a hash of all of it.
pub(super) fn bounded(value: &str) -> Cow<'_, str> {
    if value.len() <= LONGEST {
        return Cow::Borrowed(value);
    }
    let hash = format!("~{:016x}", fnv1a(value.as_bytes()));
    let mut end = LONGEST - hash.len();
    while !value.is_char_boundary(end) {
        end -= 1;
    }
    Cow::Owned(format!("{}{hash}", &value[..end]))
}

/// Labels of workloads, by cgroup. Lone processes have no label.
pub(super) struct Labels<'a>(BTreeMap<&'a CgroupPath, Cow<'a, str>>);

impl<'a> Labels<'a> {
    pub(super) fn new(workloads: &'a [AuditedWorkload]) -> Self {
        let with_cgroup = workloads.iter().filter(|one| !matches!(one.origin, Origin::Process { .. }));
        let labels = with_cgroup.map(|one| (&one.cgroup, bounded(&one.name)));
        let mut labels: BTreeMap<_, _> = labels.collect();
        let mut named: BTreeMap<&str, usize> = BTreeMap::new();
        for name in labels.values() {
            *named.entry(name).or_default() += 1;
        }
        let is_shared = |name: &str| named.get(name).is_some_and(|count| *count > 1);
        let mut taken = BTreeSet::new();
        let mut apart = Vec::new();
        for (cgroup, name) in labels.iter().filter(|(_, name)| is_shared(name) || is_apart(name)) {
            let mut label = format!("{name}~{:016x}", fnv1a(cgroup.as_str().as_bytes()));
            // Paths with one hash can be searched for.
            while !taken.insert(label.clone()) {
                label.push('~');
            }
            apart.push((*cgroup, Cow::Owned(label)));
        }
        labels.extend(apart);
        Self(labels)
    }

    /// The label of the workload of a cgroup; of a cgroup without one, its path.
    pub(super) fn of(&self, cgroup: &'a CgroupPath) -> Cow<'a, str> {
        self.0.get(cgroup).cloned().unwrap_or_else(|| bounded(cgroup.as_str()))
    }
}

/// Does it end like a label that was set apart?
fn is_apart(name: &str) -> bool {
    let name = name.trim_end_matches('~');
    name.rsplit_once('~')
        .is_some_and(|(_, hash)| hash.len() == 16 && hash.bytes().all(|byte| byte.is_ascii_hexdigit()))
}

/// The 64-bit FNV-1a hash: the same in every version of this program.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fixture::workload;

    #[test]
    fn long_values_that_begin_alike_stay_apart() {
        let long = |last: &str| format!("/{}{last}", "a".repeat(LONGEST));
        assert_ne!(bounded(&long("1")), bounded(&long("2")));
        assert_eq!(bounded(&long("1")), bounded(&long("1")));
        assert_eq!(bounded(&"a".repeat(LONGEST)), "a".repeat(LONGEST));
        assert_eq!(shown("/a\u{1b}[31m<\"b"), "/a\\u{1b}[31m<\"b", "quotes are the encoder's business");
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c, "the published value");
    }

    fn named(name: &str, cgroup: &str) -> AuditedWorkload {
        AuditedWorkload {
            name: name.to_owned(),
            cgroup: CgroupPath::new(cgroup),
            ..workload("x", "0", "0", &[])
        }
    }

    proptest! {
        /// Whatever others are called, also as what is set apart would be.
        #[test]
        fn no_two_workloads_have_one_label(
            names in prop::collection::vec((0usize..6, prop::option::of(0usize..6)), 2..12),
        ) {
            let plain = ["a", "b", "a~", "b~0123456789abcdef", "c~0123456789abcdef~", ""];
            let path = |index: usize| format!("/x/{index}");
            let all: Vec<AuditedWorkload> = names
                .iter()
                .enumerate()
                .map(|(index, (name, copied))| {
                    let apart = |of: usize| {
                        format!("{}~{:016x}", plain[*name], fnv1a(path(of).as_bytes()))
                    };
                    named(&copied.map_or_else(|| plain[*name].to_owned(), apart), &path(index))
                })
                .collect();
            let labels = Labels::new(&all);
            let different: BTreeSet<_> = all.iter().map(|one| labels.of(&one.cgroup)).collect();
            prop_assert_eq!(different.len(), all.len());
        }

        #[test]
        fn no_value_is_longer_than_the_bound(value in "(a|\u{e9}|\u{10348}){0,600}") {
            let label = bounded(&value);
            prop_assert!(label.len() <= LONGEST);
            prop_assert!(value.len() > LONGEST || label == value);
        }
    }
}
