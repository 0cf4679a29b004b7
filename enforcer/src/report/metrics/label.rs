//! Values of labels that others choose: of bounded length, and still different where they were.
//!
//! Whoever may make cgroups may make paths of 4,096 bytes, some of them in each of thousands of series. What
//! quotes and newlines would do is the encoder's business.
//!
//! A workload has one label on all of its series, its name. Names are made of cgroup paths, and whoever may make cgroups
//! may make one that is named as another: each of them then has a hash of its path behind its name, so that nobody's
//! series are hidden behind those of somebody else.

use std::{borrow::Cow, collections::BTreeMap};

use enforcer_core::{
    audit::AuditedWorkload,
    workload::{CgroupPath, Origin},
};

/// Longest value in bytes.
pub(super) const LONGEST: usize = 512;

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

/// What workloads are labelled with, by cgroup. Lone processes have no label.
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
        let shared = labels.iter().filter(|(_, name)| named.get(&***name).is_some_and(|count| *count > 1));
        let apart = |(cgroup, name): (&&'a CgroupPath, &Cow<'a, str>)| {
            (*cgroup, Cow::Owned(format!("{name}~{:016x}", fnv1a(cgroup.as_str().as_bytes()))))
        };
        let apart: Vec<_> = shared.map(apart).collect();
        labels.extend(apart);
        Self(labels)
    }

    /// The label of the workload of a cgroup; of a cgroup without one, its path.
    pub(super) fn of(&self, cgroup: &'a CgroupPath) -> Cow<'a, str> {
        self.0.get(cgroup).cloned().unwrap_or_else(|| bounded(cgroup.as_str()))
    }
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

    #[test]
    fn long_values_that_begin_alike_stay_apart() {
        let long = |last: &str| format!("/{}{last}", "a".repeat(LONGEST));
        assert_ne!(bounded(&long("1")), bounded(&long("2")));
        assert_eq!(bounded(&long("1")), bounded(&long("1")));
        assert_eq!(bounded(&"a".repeat(LONGEST)), "a".repeat(LONGEST));
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c, "the published value");
    }

    proptest! {
        #[test]
        fn no_value_is_longer_than_the_bound(value in "(a|\u{e9}|\u{10348}){0,600}") {
            let label = bounded(&value);
            prop_assert!(label.len() <= LONGEST);
            prop_assert!(value.len() > LONGEST || label == value);
        }
    }
}
