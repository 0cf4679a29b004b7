//! The files of one cgroup: cpuset, memory, events, pressure.
//!
//! The cpuset and the memory controller may be in different hierarchies, and neither has to be enabled for a
//! cgroup: the cpuset of the nearest ancestor with one is then in force. An unreadable file does not count as
//! missing: no ancestor's value replaces it. Memory is never taken from an ancestor, which counts other
//! workloads too.
//!
//! Cost: eight small files per cgroup, relative to a directory that is looked up once.

use std::{
    collections::{BTreeMap, BTreeSet},
    rc::Rc,
};

use enforcer_core::{
    page_size::PageSize,
    parse::{
        ParseError,
        keyed::parse_keyed,
        numa_stat::{parse_hugetlb_numa_stat, parse_numa_stat_v1, parse_numa_stat_v2},
        pressure::parse_pressure,
        scalar,
    },
    sample::CgroupSample,
    workload::CgroupPath,
};
use numa_topology::{
    degraded::DegradedTally,
    set::{CpuSet, NodeSet},
};

use enforcer_host::{
    cgroup::{CgroupLayout, ControllerRoot},
    cgroup_dir::CgroupDir,
    cgroup_tree::vanished,
};

/// Files with sums of huge pages, beside the file that tells their nodes: pages in use, and pages in use or
/// reserved (since Linux 5.7).
struct HugepageSums {
    used: String,
    reserved: String,
}

impl HugepageSums {
    /// `hugetlb.2MB.rsvd.current`, `hugetlb.2MB.rsvd.usage_in_bytes` (`mm/hugetlb_cgroup.c`).
    fn beside(numa_stat: &str, v2: bool) -> Self {
        let size = numa_stat.trim_end_matches(".numa_stat");
        let sum = if v2 { "current" } else { "usage_in_bytes" };
        Self { used: format!("{size}.{sum}"), reserved: format!("{size}.rsvd.{sum}") }
    }
}

const EFFECT: &str = "values of the cgroup are missing";

/// Reads cgroups, and remembers the values of their ancestors.
pub(super) struct CgroupReader<'a> {
    layout: &'a CgroupLayout,
    page: PageSize,
    effective: BTreeMap<CgroupPath, EffectiveCpuset>,
    /// Names of files with huge pages by node, for sizes in use on the host.
    hugepages: Vec<String>,
    has_hugepage_files: bool,
    /// Cgroups with an unreadable file of memory by node.
    garbled: BTreeSet<CgroupPath>,
}

/// The cpuset in force for a cgroup.
#[derive(Debug, Clone, Default)]
struct EffectiveCpuset {
    cpus: Option<CpuSet>,
    mems: Option<NodeSet>,
    /// The cgroup that it comes from.
    from: Option<CgroupPath>,
    /// One of these files is unreadable.
    is_garbled: bool,
}

impl EffectiveCpuset {
    fn of(files: &mut OpenCgroupFiles<'_>) -> Self {
        let names = files.root.files();
        let cpus = files.read_value(names.cpus_effective, scalar::list);
        let mems = files.read_value(names.mems_effective, scalar::list);
        let is_garbled = cpus.is_err() || mems.is_err();
        let (cpus, mems) = (cpus.unwrap_or_default(), mems.unwrap_or_default());
        Self { cpus, mems, from: Some(files.path.clone()), is_garbled }
    }

    /// Whether it is known, or known to be unreadable.
    fn says_so(&self) -> bool {
        self.cpus.is_some() || self.mems.is_some() || self.is_garbled
    }
}

impl<'a> CgroupReader<'a> {
    pub(super) fn new(layout: &'a CgroupLayout, page: PageSize) -> Self {
        Self {
            layout,
            page,
            effective: BTreeMap::new(),
            hugepages: Vec::new(),
            has_hugepage_files: false,
            garbled: BTreeSet::new(),
        }
    }

    /// Cgroups with an unreadable file of memory by node.
    pub(super) fn into_garbled(self) -> BTreeSet<CgroupPath> {
        self.garbled
    }

    /// Counts huge pages in these files too.
    pub(super) fn with_hugepages(self, files: impl IntoIterator<Item = String>) -> Self {
        Self { hugepages: files.into_iter().collect(), ..self }
    }

    /// Whether any cgroup had such a file.
    pub(super) const fn has_hugepage_files(&self) -> bool {
        self.has_hugepage_files
    }

    /// Reads one cgroup, including everything `below` it where the files separate the two; `None` if it is
    /// gone.
    pub(super) fn read(
        &mut self,
        path: &CgroupPath,
        below: bool,
        degraded: &mut DegradedTally,
    ) -> Option<CgroupSample> {
        let mut files = OpenCgroupFiles::of(&self.layout.cpuset, path, degraded);
        let names = files.root.files();
        let mut sample = CgroupSample {
            cpus: files.value(names.cpus, scalar::list),
            mems: files.value(names.mems, scalar::list),
            ..CgroupSample::default()
        };
        let effective = self.effective(&mut files);
        sample.cpus_effective = effective.cpus;
        sample.mems_effective = effective.mems;
        sample.effective_garbled = effective.is_garbled;
        let known = sample.cpus_effective.is_some() || sample.mems_effective.is_some();
        sample.effective_from = effective.from.filter(|from| known && from != path);
        // The root's memory is the whole machine's.
        if let Some(memory) = self.layout.memory.as_ref().filter(|_| !path.is_root()) {
            self.memory(&mut files.beside(memory), below, &mut sample);
        }
        if let Some(hugetlb) = self.layout.hugetlb.as_ref().filter(|_| !path.is_root()) {
            self.hugetlb(&mut files.beside(hugetlb), below, &mut sample);
        }
        (sample.cpus.is_some() || sample.memory_current_bytes.is_some() || self.exists(path))
            .then_some(sample)
    }

    /// The effective cpuset from the cgroup's own files only; `None` without such files.
    pub(super) fn read_cpuset(
        &self,
        path: &CgroupPath,
        degraded: &mut DegradedTally,
    ) -> Option<CgroupSample> {
        let effective = EffectiveCpuset::of(&mut OpenCgroupFiles::of(&self.layout.cpuset, path, degraded));
        effective.says_so().then(|| CgroupSample {
            cpus_effective: effective.cpus,
            mems_effective: effective.mems,
            effective_garbled: effective.is_garbled,
            ..CgroupSample::default()
        })
    }

    /// Adds the cgroup's partition state.
    pub(super) fn read_partition(
        &self,
        path: &CgroupPath,
        cgroup: &mut CgroupSample,
        degraded: &mut DegradedTally,
    ) {
        if self.layout.cpuset.v2 {
            let mut files = OpenCgroupFiles::of(&self.layout.cpuset, path, degraded);
            cgroup.partition = files.value("cpuset.cpus.partition", str::parse);
            cgroup.cpus_exclusive = files.value("cpuset.cpus.exclusive", scalar::list);
        }
        if cgroup.cpus_exclusive.is_none() {
            let effect = "exclusive CPUs are not kept from processes that no cpuset confines";
            degraded.add("partition", path, "it wants cgroup v2 and Linux 6.7 or newer", effect);
        }
    }

    fn memory(&mut self, files: &mut OpenCgroupFiles<'_>, below: bool, sample: &mut CgroupSample) {
        let root = files.root;
        let names = root.files();
        let page = self.page;
        sample.memory_current_bytes = files.value(names.memory_current, scalar::unsigned);
        let by_node = files.read_value(names.memory_numa_stat, |text| {
            if root.v2 { parse_numa_stat_v2(text) } else { parse_numa_stat_v1(text, page, below) }
        });
        if by_node.is_err() {
            self.garbled.insert(files.path.clone());
        }
        sample.memory_by_node = by_node.unwrap_or_default();
        sample.memory_events = names.memory_events.and_then(|file| files.value(file, parse_keyed));
        sample.memory_pressure = names.memory_pressure.and_then(|file| files.value(file, parse_pressure));
    }

    /// Adds huge pages, whether or not the other memory is known.
    fn hugetlb(&mut self, files: &mut OpenCgroupFiles<'_>, below: bool, sample: &mut CgroupSample) {
        let v2 = files.root.v2;
        for file in &self.hugepages {
            let sums = HugepageSums::beside(file, v2);
            let by_node = files.value(file, |text| {
                // v1 lists the cgroup alone first (`hugetlb_cgroup_read_numa_stat`).
                let with_below = text.lines().find_map(|line| line.strip_prefix("hierarchical_"));
                parse_hugetlb_numa_stat(with_below.filter(|_| below).unwrap_or(text))
            });
            let sum =
                |bytes: &BTreeMap<_, u64>| bytes.values().fold(0u64, |sum, bytes| sum.saturating_add(*bytes));
            // Like the reserved pages, this includes everything below the cgroup.
            let used = files.value(&sums.used, scalar::unsigned).or_else(|| by_node.as_ref().map(sum));
            let all = files.value(&sums.reserved, scalar::unsigned);
            if let Some((all, used)) = all.zip(used) {
                sample.hugetlb_reserved.insert(file.clone(), all.saturating_sub(used));
            }
            let Some(bytes) = by_node else { continue };
            self.has_hugepage_files = true;
            // Without the sum of huge pages the total would be too low.
            if let Some(by_node) = &mut sample.memory_by_node {
                for (node, bytes) in &bytes {
                    let there = by_node.entry(*node).or_default();
                    there.anon = there.anon.saturating_add(*bytes);
                }
            }
            sample.hugetlb_by_file.insert(file.clone(), bytes);
        }
    }

    /// The cpuset in force: the cgroup's own files, or those of the nearest ancestor with files.
    fn effective(&mut self, files: &mut OpenCgroupFiles<'_>) -> EffectiveCpuset {
        let mut passed = Vec::new();
        let mut at = Some(files.path.clone());
        let mut found = EffectiveCpuset::default();
        while let Some(here) = at {
            if let Some(known) = self.effective.get(&here) {
                found = known.clone();
                break;
            }
            found = if here == *files.path {
                EffectiveCpuset::of(files)
            } else {
                EffectiveCpuset::of(&mut OpenCgroupFiles::of(&self.layout.cpuset, &here, files.degraded))
            };
            at = here.parent();
            passed.push(here);
            if found.says_so() {
                break;
            }
        }
        for here in passed {
            self.effective.insert(here, found.clone());
        }
        found
    }

    fn exists(&self, path: &CgroupPath) -> bool {
        let layout = self.layout;
        let others = [&layout.memory, &layout.systemd].into_iter().flatten().map(|root| root.dir(path));
        let unified = layout.unified.iter().map(|root| root.join(path.relative()));
        std::iter::once(layout.cpuset.dir(path)).chain(others).chain(unified).any(|dir| dir.is_dir())
    }
}

/// The files of one cgroup in one hierarchy.
struct OpenCgroupFiles<'a> {
    root: &'a ControllerRoot,
    path: &'a CgroupPath,
    dir: Rc<CgroupDir>,
    degraded: &'a mut DegradedTally,
}

impl<'a> OpenCgroupFiles<'a> {
    fn of(root: &'a ControllerRoot, path: &'a CgroupPath, degraded: &'a mut DegradedTally) -> Self {
        Self { root, path, dir: Rc::new(CgroupDir::open(root.dir(path))), degraded }
    }

    /// The same cgroup's files in another hierarchy, which may be the same one.
    fn beside<'b>(&'b mut self, root: &'b ControllerRoot) -> OpenCgroupFiles<'b> {
        if root.path != self.root.path {
            return OpenCgroupFiles::of(root, self.path, self.degraded);
        }
        OpenCgroupFiles { root, path: self.path, dir: Rc::clone(&self.dir), degraded: self.degraded }
    }

    /// A file's value; `None` if the file is missing or unreadable.
    fn value<T>(&mut self, file: &str, parse: impl FnOnce(&str) -> Result<T, ParseError>) -> Option<T> {
        self.read_value(file, parse).unwrap_or_default()
    }

    /// The same; an error marks a file that exists and is unreadable, which is reported.
    fn read_value<T>(
        &mut self,
        file: &str,
        parse: impl FnOnce(&str) -> Result<T, ParseError>,
    ) -> Result<Option<T>, Garbled> {
        let text = match self.dir.read(file) {
            Ok(text) => text,
            Err(error) => {
                // PSI files of a kernel that was booted with psi=0 give EOPNOTSUPP.
                if vanished(&error.cause) || error.cause.kind() == std::io::ErrorKind::Unsupported {
                    return Ok(None);
                }
                self.degraded.add("cgroup", self.path, error, EFFECT);
                return Err(Garbled);
            }
        };
        parse(&text).map(Some).map_err(|error| {
            let path = self.dir.path().join(file);
            let reason = format_args!("{}: {error}", path.display());
            self.degraded.add("cgroup", self.path, reason, EFFECT);
            Garbled
        })
    }
}

/// A file exists and is unreadable.
#[derive(Debug)]
struct Garbled;

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use numa_topology::id::NodeId;
    use tempfile::TempDir;

    use super::*;
    use enforcer_host::HostRoot;

    fn tree(files: &[(&str, &str)]) -> (TempDir, CgroupLayout) {
        let dir = TempDir::new().unwrap();
        for (file, text) in files {
            let path = dir.path().join("sys/fs/cgroup").join(file);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let layout = CgroupLayout::read(&HostRoot::captured(dir.path())).unwrap();
        (dir, layout)
    }

    fn read(layout: &CgroupLayout, path: &str, below: bool) -> (Option<CgroupSample>, Vec<String>) {
        let mut degraded = DegradedTally::default();
        let mut reader = CgroupReader::new(layout, PageSize::SMALLEST);
        let sample = reader.read(&CgroupPath::new(path), below, &mut degraded);
        (sample, degraded.into_entries().into_iter().map(|entry| entry.reason).collect())
    }

    const V2: &[(&str, &str)] = &[
        ("cgroup.controllers", ""),
        ("cpuset.cpus.effective", "0-7\n"),
        ("cpuset.mems.effective", "0-1\n"),
        ("memory.numa_stat", "anon N0=1\n"),
        ("a/cpuset.cpus", "4-7\n"),
        ("a/cpuset.cpus.effective", "4-6\n"),
        ("a/cpuset.mems", "\n"),
        ("a/cpuset.mems.effective", "0-1\n"),
        ("a/memory.current", "8192\n"),
        ("a/memory.numa_stat", "anon N0=4096 N1=0\nfile N0=0 N1=4096\n"),
        ("a/memory.events", "low 0\noom_kill 2\n"),
        ("a/memory.pressure", "some avg10=0.10 avg60=0.00 avg300=0.00 total=9\n"),
        ("plain/x/cgroup.procs", "1\n"),
    ];

    #[test]
    fn reads_everything_of_v2() {
        let (_dir, layout) = tree(V2);
        let (sample, degraded) = read(&layout, "/a", false);
        let sample = sample.unwrap();
        assert_eq!(sample.cpus.unwrap().to_string(), "4-7");
        assert_eq!(sample.cpus_effective.unwrap().to_string(), "4-6");
        assert_eq!(sample.effective_from, None);
        assert!(sample.mems.unwrap().is_empty());
        assert_eq!(sample.mems_effective.unwrap().to_string(), "0-1");
        assert_eq!(sample.memory_current_bytes, Some(8192));
        assert_eq!(sample.memory_by_node.unwrap()[&NodeId(1)].file, 4096);
        assert_eq!(sample.memory_events.unwrap()["oom_kill"], 2);
        assert_eq!(sample.memory_pressure.unwrap().some.total_us, 9);
        assert!(degraded.is_empty());
    }

    #[test]
    fn without_controllers_the_cpuset_above_is_in_force_and_the_memory_unknown() {
        let (_dir, layout) = tree(V2);
        let (sample, degraded) = read(&layout, "/plain/x", false);
        let sample = sample.unwrap();
        assert_eq!((sample.cpus, sample.memory_by_node), (None, None));
        assert_eq!(sample.effective_from, Some(CgroupPath::root()), "its own files are not there");
        assert_eq!(sample.cpus_effective.unwrap().to_string(), "0-7");
        assert!(degraded.is_empty());
    }

    #[test]
    fn the_roots_memory_is_not_a_workloads() {
        let (_dir, layout) = tree(V2);
        let sample = read(&layout, "/", false).0.unwrap();
        assert_eq!(
            (sample.cpus_effective.unwrap().to_string().as_str(), sample.memory_by_node),
            ("0-7", None)
        );
    }

    #[test]
    fn reads_v1_from_two_hierarchies() {
        let (_dir, layout) = tree(&[
            ("cpuset/cpuset.cpus", "0-7\n"),
            ("cpuset/cpuset.effective_cpus", "0-7\n"),
            ("cpuset/cpuset.effective_mems", "0\n"),
            ("memory/vm/memory.usage_in_bytes", "4096\n"),
            ("memory/vm/memory.numa_stat", "anon=1 N0=1\nhierarchical_anon=3 N0=3\n"),
        ]);
        let (sample, _) = read(&layout, "/vm", false);
        let sample = sample.unwrap();
        assert_eq!((sample.cpus, sample.cpus_effective.unwrap().to_string().as_str()), (None, "0-7"));
        assert_eq!(sample.memory_by_node.unwrap()[&NodeId(0)].anon, 4096);
        let whole = read(&layout, "/vm", true).0.unwrap();
        assert_eq!(whole.memory_by_node.unwrap()[&NodeId(0)].anon, 3 * 4096);
    }

    #[test]
    fn a_cgroup_that_is_gone_is_none() {
        let (_dir, layout) = tree(V2);
        let (sample, degraded) = read(&layout, "/gone", false);
        assert_eq!((sample, degraded.len()), (None, 0));
    }

    #[test]
    fn nonsense_names_file_and_value_and_costs_that_value_alone() {
        let (_dir, layout) = tree(&[
            ("cgroup.controllers", ""),
            ("b/cpuset.cpus", "3-1\n"),
            ("b/memory.current", "12\n"),
            ("b/memory.numa_stat", "anon N0=\n"),
        ]);
        let (sample, degraded) = read(&layout, "/b", false);
        let sample = sample.unwrap();
        assert_eq!((sample.cpus, sample.memory_current_bytes, sample.memory_by_node), (None, Some(12), None));
        assert!(
            degraded.iter().any(|reason| reason.contains("b/cpuset.cpus") && reason.contains("3-1")),
            "{degraded:?}"
        );
        assert!(degraded.iter().any(|reason| reason.contains("N0=")), "{degraded:?}");
    }

    #[test]
    fn what_is_in_force_is_not_taken_from_above_where_its_own_file_is_of_no_use() {
        let (_dir, layout) = tree(&[
            ("cgroup.controllers", ""),
            ("cpuset.cpus.effective", "0-7\n"),
            ("cpuset.mems.effective", "0-1\n"),
            ("b/cpuset.cpus.effective", "3-1\n"),
            ("b/cpuset.mems.effective", "1\n"),
            ("b/below/cgroup.procs", ""),
            ("c/cpuset.cpus.effective", "x\n"),
        ]);
        for (path, mems) in [("/b", Some("1")), ("/b/below", Some("1")), ("/c", None)] {
            let (sample, degraded) = read(&layout, path, false);
            let sample = sample.unwrap();
            assert!(sample.effective_garbled, "{path}");
            assert_eq!(sample.cpus_effective, None, "{path}");
            assert_eq!(sample.mems_effective.map(|mems| mems.to_string()).as_deref(), mems, "{path}");
            assert!(degraded.iter().any(|reason| reason.contains("cpuset.cpus.effective")), "{degraded:?}");
        }
        let mut degraded = DegradedTally::default();
        let above =
            CgroupReader::new(&layout, PageSize::SMALLEST).read_cpuset(&CgroupPath::new("/c"), &mut degraded);
        assert!(above.unwrap().effective_garbled);
    }

    #[test]
    fn an_unreadable_file_is_degraded_by_path() {
        let (dir, layout) = tree(&[("cgroup.controllers", ""), ("b/cpuset.cpus", "0\n")]);
        fs::create_dir_all(dir.path().join("sys/fs/cgroup/b/memory.current")).unwrap();
        let (sample, degraded) = read(&layout, "/b", false);
        assert_eq!(sample.unwrap().memory_current_bytes, None);
        assert!(degraded[0].contains(&Path::new("b/memory.current").display().to_string()), "{degraded:?}");
    }
}
