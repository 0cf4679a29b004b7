//! Conditions that the kernel does not check when DAMON or reclaim moves pages, read right before.
//!
//! Turns have an earlier reading of the cpuset. For `move_pages(2)` that is enough, because the kernel checks
//! again.

use enforcer_core::{parse::numa_stat::ByNode, workload::CgroupPath};
use numa_topology::set::NodeSet;
use rustix::fs::FileType;

use super::memory;
use crate::scratch;
use enforcer_host::{HostPath, HostRoot, cgroup::CgroupLayout};

/// A workload, now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TierFacts {
    /// Directory of its cgroup where the memory controller is.
    pub cgroup: HostPath,
    /// The cgroup, as the kernel names it.
    pub named: String,
    /// Nodes that its cpuset allows.
    pub allowed: NodeSet,
    /// The kernel's own demotion is on.
    pub kernel_demotes: bool,
    /// Cgroups below its own.
    pub cgroups_below: usize,
    /// There is swap, and it may use it.
    pub may_swap: bool,
    /// Its memory by node.
    pub memory: ByNode,
}

impl TierFacts {
    /// Reads the facts of this cgroup. The error names the unreadable file.
    pub fn read(host: &HostRoot, layout: &CgroupLayout, cgroup: &CgroupPath) -> Result<Self, String> {
        let root = layout.memory.as_ref().filter(|root| root.v2 && layout.cpuset.v2);
        let root = root.ok_or("the memory controller is not in the unified hierarchy")?;
        let dir = root.dir(cgroup);
        let path = layout.cpuset.dir(cgroup).join("cpuset.mems.effective");
        let mems = path.read_text().map_err(|error| error.to_string())?;
        let allowed =
            mems.trim().parse::<NodeSet>().map_err(|error| format!("{}: {error}", path.display()))?;
        let entries = dir.read_dir().map_err(|error| format!("listing {}: {error}", dir.display()))?;
        Ok(Self {
            named: format!("{}{cgroup}", root.mounted_cgroup.trim_end_matches('/')),
            allowed,
            kernel_demotes: scratch::is_on(host),
            cgroups_below: entries.iter().filter(|(_, kind)| *kind == FileType::Directory).count(),
            may_swap: has_swap(host) && may_swap(&dir),
            memory: memory(&dir)?,
            cgroup: dir,
        })
    }
}

/// True where that is not known.
fn has_swap(host: &HostRoot) -> bool {
    // The first line names the columns.
    host.proc.join("swaps").read_text().map_or(true, |text| text.lines().nth(1).is_some())
}

fn may_swap(cgroup: &HostPath) -> bool {
    cgroup.join("memory.swap.max").read_text().map_or(true, |text| text.trim() != "0")
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::fixture::Fixture;
    use enforcer_host::cgroup::ControllerRoot;

    fn fixture() -> Fixture {
        let mut fixture = Fixture::new(true);
        let root = ControllerRoot { mounted_cgroup: "/outer".into(), ..fixture.layout.cpuset.clone() };
        fixture.layout.memory = Some(root);
        fixture.cgroup("/a", "0", "0,2");
        fs::write(fixture.path("/a").join("cpuset.mems.effective"), "0,2\n").unwrap();
        fs::write(fixture.path("/a").join("memory.numa_stat"), "anon N0=4096 N2=8192\nfile N0=0 N2=0\n")
            .unwrap();
        fixture
    }

    #[test]
    fn it_is_read_from_the_files_of_the_moment() {
        let fixture = fixture();
        let read = || TierFacts::read(&fixture.host(), &fixture.layout, &CgroupPath::new("/a")).unwrap();
        let facts = read();
        assert_eq!((facts.named.as_str(), facts.allowed.to_string().as_str()), ("/outer/a", "0,2"));
        assert_eq!((facts.kernel_demotes, facts.cgroups_below, facts.may_swap), (false, 0, true));
        assert_eq!(facts.memory.values().map(|bytes| bytes.anon).sum::<u64>(), 12_288);

        fs::create_dir(fixture.path("/a").join("below")).unwrap();
        let numa = fixture.host().sys.join("kernel/mm/numa");
        fs::create_dir_all(numa.as_path()).unwrap();
        fs::write(numa.join("demotion_enabled").as_path(), "true\n").unwrap();
        fs::write(fixture.host().proc.join("swaps").as_path(), "Filename Type Size Used Priority\n").unwrap();
        let facts = read();
        assert_eq!((facts.kernel_demotes, facts.cgroups_below, facts.may_swap), (true, 1, false));
    }

    #[test]
    fn swap_counts_unless_the_cgroup_may_use_none() {
        let fixture = fixture();
        let swaps = "Filename Type Size Used Priority\n/dev/vda2 partition 1048572 0 -2\n";
        fs::write(fixture.host().proc.join("swaps").as_path(), swaps).unwrap();
        for (most, expected) in [("max\n", true), ("4096\n", true), ("0\n", false)] {
            fs::write(fixture.path("/a").join("memory.swap.max"), most).unwrap();
            let facts = TierFacts::read(&fixture.host(), &fixture.layout, &CgroupPath::new("/a")).unwrap();
            assert_eq!(facts.may_swap, expected, "{most:?}");
        }
    }

    #[test]
    fn what_cannot_be_read_is_an_error_with_its_name() {
        let mut fixture = fixture();
        let of = |fixture: &Fixture, path: &str| {
            TierFacts::read(&fixture.host(), &fixture.layout, &CgroupPath::new(path)).unwrap_err()
        };
        assert!(of(&fixture, "/gone").contains("/gone/cpuset.mems.effective"));
        fs::write(fixture.path("/a").join("memory.numa_stat"), "anon N0=x\n").unwrap();
        assert!(of(&fixture, "/a").contains("memory.numa_stat"));
        fixture.layout.memory = None;
        assert!(of(&fixture, "/a").contains("unified hierarchy"));
    }
}
