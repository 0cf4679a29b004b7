//! Systemd unit that a cgroup belongs to, by its path.
//!
//! systemd makes a cgroup for each unit, below those of its slices. Cgroups below a service or a scope are
//! made by its processes, or by a second systemd in it (`user@1000.service`), and the system's systemd does
//! not manage them. Other processes can choose cgroup paths, so the caller has systemd confirm the result.
//! The query contains only characters that are valid in a unit name.

use std::fmt;

use super::CgroupPath;

/// Unit types that workloads run in.
const KINDS: [&str; 3] = [".service", ".scope", ".slice"];

/// Maximum length of a name (`UNIT_NAME_MAX`).
const LONGEST: usize = 255;

/// Name of a unit with its suffix: letters, digits and `:-_.\@` (systemd.unit(5)).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct UnitName(String);

impl UnitName {
    /// The name, if it is valid for a service, a scope or a slice.
    pub fn new(name: &str) -> Option<Self> {
        let stem = KINDS.iter().find_map(|kind| name.strip_suffix(kind))?;
        let known = |c: char| c.is_ascii_alphanumeric() || ":-_.\\@".contains(c);
        let fits = !stem.is_empty() && name.len() <= LONGEST && name.chars().all(known);
        fits.then(|| Self(name.to_owned()))
    }

    /// Unit that has this cgroup as its own: all its ancestors are slices.
    pub fn of_cgroup(cgroup: &CgroupPath) -> Option<Self> {
        let (above, own) = cgroup.relative().rsplit_once('/').unwrap_or(("", cgroup.relative()));
        let slices =
            above.is_empty() || above.split('/').all(|name| unescaped(name).strip_suffix(".slice").is_some());
        slices.then(|| Self::new(unescaped(own))).flatten()
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for UnitName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// systemd prefixes names that the kernel uses with `_` (`cg_escape` in its cgroup-util.c).
fn unescaped(name: &str) -> &str {
    name.strip_prefix('_').unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_systemd_made_is_a_unit_and_what_is_below_it_is_not() {
        for (path, unit) in [
            ("/system.slice/cron.service", Some("cron.service")),
            ("/system.slice/system-getty.slice/getty@tty1.service", Some("getty@tty1.service")),
            ("/system.slice/dev-disk\\x2dx.scope", Some("dev-disk\\x2dx.scope")),
            ("/system.slice/_cpuset.service", Some("cpuset.service")),
            ("/kubepods.slice/kubepods-podx.slice/cri-containerd-1.scope", Some("cri-containerd-1.scope")),
            ("/machine.slice", Some("machine.slice")),
            ("/init.scope", Some("init.scope")),
            ("/", None),
            ("/work/away", None),
            ("/work/away.service", None),
            ("/system.slice/docker.service/a.scope", None),
            ("/user.slice/user-1000.slice/user@1000.service/app.slice/x.service", None),
            ("/system.slice/a.socket", None),
            ("/system.slice/.service", None),
            ("/system.slice/a b.service", None),
            ("/system.slice/--help.service", Some("--help.service")),
            ("/system.slice/$(x).service", None),
            ("/system.slice/é.service", None),
        ] {
            let found = UnitName::of_cgroup(&CgroupPath::new(path));
            assert_eq!(found.as_ref().map(UnitName::as_str), unit, "{path}");
        }
        assert_eq!(UnitName::new(&format!("{}.service", "x".repeat(LONGEST))), None);
    }

    proptest! {
        #[test]
        fn no_path_makes_a_name_that_means_something_else(path in "(/[^\0]{0,20}){0,4}(\\.service|\\.slice)?") {
            if let Some(unit) = UnitName::of_cgroup(&CgroupPath::new(&path)) {
                let name = unit.as_str();
                prop_assert!(!name.contains(|c: char| c.is_whitespace() || c.is_control() || "/*?[=,;".contains(c)));
                prop_assert_eq!(UnitName::new(name), Some(unit.clone()));
            }
        }
    }
}
