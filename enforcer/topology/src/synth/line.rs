//! A machine in one line: `sockets:2 dies:2 nodes:1 cores:8 threads:2 memory:64GiB pmem:256GiB`.
//!
//! | word | meaning | default |
//! |---|---|---|
//! | `sockets:N` | packages | 1 |
//! | `dies:N` | dies of each package | 1 |
//! | `nodes:N` | NUMA nodes of each die | 1 |
//! | `l3:N` | last-level caches of each node | 1 |
//! | `cores:N` | cores of each node | 1 |
//! | `threads:N` | threads of each core | 1 |
//! | `memory:SIZE` | memory of each node | 16GiB |
//! | `pmem:SIZE`, `cxl:SIZE`, `hbm:SIZE` | a memory-only node of this kind for each node | none |
//! | `hugepages-SIZE:N` | huge pages of this size on each node, out of its memory | none |
//! | `isolated:LIST` | CPUs of `isolcpus=` | none |
//! | `e-cores:LIST` | CPUs of efficiency cores; the others are of performance cores | none |
//! | `fast:LIST` | CPUs with a higher base frequency than the others | none |
//!
//! Words are separated by blanks, in any order, each at most once. A person wrote the text: an error names
//! the invalid word and the expected syntax, and no machine is built that exceeds the kernel's limits.

use std::{collections::BTreeMap, str::FromStr};

use thiserror::Error;

use super::Machine;
use crate::{MemoryKind, quantity, set::CpuSet, size::ByteSize};

/// Maximum `NR_CPUS` of x86.
const CPUS_LIMIT: u64 = 8_192;
/// Nodes at `NODES_SHIFT` 10.
const NODES_LIMIT: u64 = 1_024;
/// Maximum of a factor; the product is checked together with the others.
const MOST: u32 = 65_535;
/// Memory of one node; a machine full of them still fits the address arithmetic of 64 bits.
const NODE_MEMORY_LIMIT: u64 = 1 << 50;

const WORDS: &str = "sockets, dies, nodes, l3, cores, threads, memory, pmem, cxl, hbm, hugepages-SIZE, isolated, e-cores, fast";

/// Why a line is not a machine.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum LineError {
    /// No word at all.
    #[error("no machine is described; expected something like `sockets:2 nodes:1 cores:8 memory:64GiB`")]
    Empty,
    /// A word without a colon, or with an unknown key.
    #[error("`{0}`: expected KEY:VALUE with a key of {WORDS}")]
    Unknown(String),
    /// A key that is there already.
    #[error("`{0}`: the key is there twice")]
    Twice(String),
    /// A value that the key cannot have.
    #[error("`{word}`: {problem}")]
    Value {
        /// The word.
        word: String,
        /// What is expected of it.
        problem: String,
    },
    /// Words that are valid only separately.
    #[error("{0}")]
    Together(String),
}

/// The words of a line by key.
#[derive(Default)]
struct LineWords<'a> {
    by_key: BTreeMap<&'a str, &'a str>,
}

impl FromStr for Machine {
    type Err = LineError;

    fn from_str(line: &str) -> Result<Self, LineError> {
        let mut words = LineWords::read(line)?;
        let sockets = words.count("sockets")?;
        let dies = words.count("dies")?;
        let nodes = words.count("nodes")?;
        let llcs = words.count("l3")?;
        let cores = words.count("cores")?;
        let threads = words.count("threads")?;
        let memory = words.size("memory")?.unwrap_or(16 << 30);
        let mut machine = Self::new()
            .sockets(sockets)
            .dies(dies)
            .nodes_per_socket(dies.saturating_mul(nodes))
            .llcs(llcs)
            .cores(cores)
            .threads(threads)
            .memory(memory);
        check(&machine, llcs, cores)?;
        for (key, kind) in [("pmem", MemoryKind::Pmem), ("cxl", MemoryKind::Cxl), ("hbm", MemoryKind::Hbm)] {
            if let Some(bytes) = words.size(key)? {
                machine = machine.memory_beside_each(bytes, kind);
            }
        }
        if machine.node_count() > NODES_LIMIT {
            let count = machine.node_count();
            return Err(LineError::Together(format!("{count} NUMA nodes are more than {NODES_LIMIT}")));
        }
        let cpus = machine.cpu_count();
        machine = machine
            .isolated_cpus(words.cpus("isolated", cpus)?)
            .efficiency_cpus(words.cpus("e-cores", cpus)?)
            .fast_cpus(words.cpus("fast", cpus)?);
        let mut in_hugepages = 0u64;
        for (size, count) in words.hugepages()? {
            in_hugepages = in_hugepages.saturating_add(size.saturating_mul(count));
            machine = machine.hugepages(size, count);
        }
        if in_hugepages > memory {
            let problem = "the huge pages of a node are larger than its memory";
            return Err(LineError::Together(format!("{problem}: {in_hugepages} of {memory} bytes")));
        }
        words.end()?;
        Ok(machine)
    }
}

fn check(machine: &Machine, llcs: u32, cores: u32) -> Result<(), LineError> {
    // Checked first: it bounds the factors, and with them everything that is computed from them.
    let cpus = machine.cpu_count();
    if cpus > CPUS_LIMIT {
        return Err(LineError::Together(format!("{cpus} CPUs are more than {CPUS_LIMIT}")));
    }
    if llcs > cores {
        let problem = format!("l3:{llcs}: a node with {cores} cores has no more last-level caches than that");
        return Err(LineError::Together(problem));
    }
    Ok(())
}

impl<'a> LineWords<'a> {
    fn read(line: &'a str) -> Result<Self, LineError> {
        let mut words = Self::default();
        for word in line.split_whitespace() {
            let (key, value) = word.split_once(':').ok_or_else(|| LineError::Unknown(shown(word)))?;
            if words.by_key.insert(key, value).is_some() {
                return Err(LineError::Twice(shown(word)));
            }
        }
        if words.by_key.is_empty() { Err(LineError::Empty) } else { Ok(words) }
    }

    /// A factor; 1 by default.
    fn count(&mut self, key: &str) -> Result<u32, LineError> {
        let Some(value) = self.by_key.remove(key) else { return Ok(1) };
        let number = value.parse::<u32>().ok().filter(|number| (1..=MOST).contains(number));
        number.ok_or_else(|| refused(key, value, format!("a number from 1 to {MOST} is expected")))
    }

    fn size(&mut self, key: &str) -> Result<Option<u64>, LineError> {
        let Some(value) = self.by_key.remove(key) else { return Ok(None) };
        let size = value.parse::<ByteSize>().map_err(|error| refused(key, value, error.to_string()))?;
        if size.0 > NODE_MEMORY_LIMIT {
            return Err(refused(key, value, format!("more than {}", ByteSize(NODE_MEMORY_LIMIT))));
        }
        if size.0 == 0 && key != "memory" {
            return Err(refused(key, value, "a memory-only node needs memory".to_owned()));
        }
        Ok(Some(size.0))
    }

    /// CPUs that exist; none by default.
    fn cpus(&mut self, key: &str, count: u64) -> Result<CpuSet, LineError> {
        let Some(value) = self.by_key.remove(key) else { return Ok(CpuSet::new()) };
        let cpus = value
            .parse::<CpuSet>()
            .map_err(|error| refused(key, value, format!("a list of CPUs is expected: {error}")))?;
        if let Some(beyond) = cpus.iter().find(|cpu| u64::from(cpu.0) >= count) {
            return Err(refused(key, value, format!("there is no CPU {beyond}, only {count} CPUs")));
        }
        Ok(cpus)
    }

    /// Size and number of huge pages of each kind, by ascending size.
    fn hugepages(&mut self) -> Result<BTreeMap<u64, u64>, LineError> {
        let mut found = BTreeMap::new();
        let keys: Vec<&str> =
            self.by_key.keys().copied().filter(|key| key.starts_with("hugepages-")).collect();
        for key in keys {
            let value = self.by_key.remove(key).unwrap_or_default();
            let size = key
                .strip_prefix("hugepages-")
                .and_then(quantity::whole)
                .filter(|size| size.is_power_of_two() && *size >= 4096)
                .ok_or_else(|| refused(key, value, "a page size like 2Mi or 1Gi is expected".to_owned()))?;
            let count = value
                .parse::<u64>()
                .map_err(|_not_a_number| refused(key, value, "a number of pages is expected".to_owned()))?;
            if found.insert(size, count).is_some() {
                return Err(LineError::Twice(shown(&format!("{key}:{value}"))));
            }
        }
        Ok(found)
    }

    /// Checks that no word is left.
    fn end(self) -> Result<(), LineError> {
        match self.by_key.into_iter().next() {
            Some((key, value)) => Err(LineError::Unknown(shown(&format!("{key}:{value}")))),
            None => Ok(()),
        }
    }
}

fn refused(key: &str, value: &str, problem: String) -> LineError {
    LineError::Value { word: shown(&format!("{key}:{value}")), problem }
}

/// Cuts a word: it may be as long as a command line.
fn shown(word: &str) -> String {
    word.chars().take(60).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{CoreType, Topology, id::NodeId};

    fn machine(line: &str) -> Topology {
        line.parse::<Machine>().unwrap_or_else(|error| panic!("{line}: {error}")).build()
    }

    #[test]
    fn dies_and_memory_of_several_kinds() {
        let machine = machine("sockets:2 dies:2 nodes:1 cores:8 threads:2 memory:64GiB pmem:256GiB");
        assert_eq!((machine.cpus.len(), machine.nodes.len(), machine.packages.len()), (64, 8, 2));
        assert_eq!(machine.cpu_nodes().to_string(), "0-3");
        assert_eq!(machine.packages[1].nodes.to_string(), "2-3");
        assert_eq!(machine.node(NodeId(0)).unwrap().cpus.to_string(), "0-7,32-39");
        let dies: Vec<_> = [0, 8, 16, 24].map(|cpu| machine.cpus[cpu].die.unwrap()).into();
        assert_eq!(dies, [0, 1, 0, 1]);
        let pmem = machine.node(NodeId(6)).unwrap();
        assert_eq!(
            (pmem.kind, pmem.mem_total_bytes, pmem.closest_cpu_node),
            (MemoryKind::Pmem, Some(256 << 30), Some(NodeId(2)))
        );
        let distance = |from, to| machine.distance(NodeId(from), NodeId(to)).unwrap();
        assert_eq!([distance(0, 0), distance(0, 1), distance(0, 2)], [10, 12, 21]);
        assert_eq!([distance(0, 4), distance(4, 0), distance(1, 4), distance(4, 5)], [17, 17, 28, 28]);
    }

    #[test]
    fn nodes_of_one_die_are_nearer_than_those_of_the_next() {
        let machine = machine("sockets:1 dies:2 nodes:2 cores:2");
        let distance = |to| machine.distance(NodeId(0), NodeId(to)).unwrap();
        assert_eq!([distance(1), distance(2), distance(3)], [11, 12, 12]);
    }

    #[test]
    fn caches_isolated_cpus_and_huge_pages() {
        let machine =
            machine("cores:6 threads:2 l3:3 memory:4GiB hugepages-2Mi:512 hugepages-1Gi:1 isolated:5,11");
        let caches: Vec<String> = machine.llcs.iter().map(|llc| llc.cpus.to_string()).collect();
        assert_eq!(caches, ["0-1,6-7", "2-3,8-9", "4-5,10-11"]);
        assert_eq!(machine.isolated_cpus.to_string(), "5,11");
        let pages: Vec<_> = machine.nodes[0].hugepages.iter().map(|p| (p.size_bytes, p.total)).collect();
        assert_eq!(pages, [(2 << 20, 512), (1 << 30, 1)]);
    }

    #[test]
    fn kinds_of_cpus() {
        let kinds = |line| {
            let kinds = machine(line).cpu_kinds;
            let words =
                kinds.iter().map(|kind| (kind.cpus.to_string(), kind.core_type, kind.base_frequency_khz));
            words.collect::<Vec<_>>()
        };
        let (p, e) = (Some(CoreType::Performance), Some(CoreType::Efficiency));
        let (fast, slow) = (Some(3_000_000), Some(2_000_000));
        assert_eq!(kinds("cores:8"), []);
        assert_eq!(kinds("cores:8 e-cores:2-3"), [("0-1,4-7".into(), p, None), ("2-3".into(), e, None)]);
        assert_eq!(kinds("cores:8 fast:7"), [("0-6".into(), None, slow), ("7".into(), None, fast)]);
        assert_eq!(
            kinds("cores:4 e-cores:2-3 fast:0"),
            [("0".into(), p, fast), ("1".into(), p, slow), ("2-3".into(), e, slow)]
        );
        assert_eq!(machine("cores:8 e-cores:2-3 fast:1").check(), Ok(()));
    }

    #[test]
    fn every_kind_of_memory_has_its_node_beside_each() {
        let machine = machine("sockets:2 hbm:8GiB cxl:32GiB pmem:64GiB");
        let kinds: Vec<_> = machine.nodes.iter().map(|node| (node.kind, node.closest_cpu_node)).collect();
        let beside = |kind| [(kind, Some(NodeId(0))), (kind, Some(NodeId(1)))];
        assert_eq!(kinds[2..4], beside(MemoryKind::Pmem));
        assert_eq!(kinds[4..6], beside(MemoryKind::Cxl));
        assert_eq!(kinds[6..8], beside(MemoryKind::Hbm));
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (line, said) in [
            ("", "no machine is described"),
            ("  \t", "no machine is described"),
            ("sockets", "`sockets`: expected KEY:VALUE"),
            ("socket:2", "`socket:2`: expected KEY:VALUE with a key of sockets, dies"),
            ("sockets:2 sockets:2", "`sockets:2`: the key is there twice"),
            ("sockets:0", "`sockets:0`: a number from 1"),
            ("sockets:-1", "`sockets:-1`: a number from 1"),
            ("sockets:two", "`sockets:two`: a number from 1"),
            ("sockets:99999999999999999999", "a number from 1"),
            ("sockets:64 cores:200", "12800 CPUs are more than 8192"),
            ("sockets:65535 nodes:65535 cores:65535 threads:65535", "CPUs are more than 8192"),
            ("sockets:600 pmem:1GiB", "1200 NUMA nodes are more than 1024"),
            ("memory:64parsecs", "`memory:64parsecs`: `64parsecs` is not an amount of memory"),
            ("memory:2000000GiB", "`memory:2000000GiB`: more than 1PiB"),
            ("pmem:0", "`pmem:0`: a memory-only node needs memory"),
            ("cores:2 l3:3", "l3:3: a node with 2 cores"),
            ("cores:2 isolated:2", "`isolated:2`: there is no CPU 2, only 2 CPUs"),
            ("isolated:x", "`isolated:x`: a list of CPUs is expected"),
            ("cores:2 e-cores:1-2", "`e-cores:1-2`: there is no CPU 2, only 2 CPUs"),
            ("fast:1 fast:2", "`fast:2`: the key is there twice"),
            ("hugepages-3Mi:1", "`hugepages-3Mi:1`: a page size like 2Mi"),
            ("hugepages-2Mi:x", "a number of pages is expected"),
            ("hugepages-2Mi:1 hugepages-2048Ki:1", "the key is there twice"),
            ("memory:1GiB hugepages-1Gi:2", "the huge pages of a node are larger than its memory"),
        ] {
            let error = line.parse::<Machine>().unwrap_err().to_string();
            assert!(error.contains(said), "{line}: {error}");
        }
    }

    proptest! {
        #[test]
        fn any_line_is_a_machine_or_an_error(
            line in "((sockets|dies|nodes|l3|cores|threads|memory|pmem|isolated|hugepages-2Mi|x):[0-9]{0,6}(GiB)? ?){0,6}"
        ) {
            if let Ok(machine) = line.parse::<Machine>() {
                let (cpus, nodes) = (machine.cpu_count(), machine.node_count());
                prop_assert!(cpus <= CPUS_LIMIT && nodes <= NODES_LIMIT);
            }
        }

        #[test]
        fn every_cpu_has_its_place(sockets in 1u32..4, dies in 1u32..4, nodes in 1u32..4, cores in 1u32..6, threads in 1u32..4) {
            let line = format!("sockets:{sockets} dies:{dies} nodes:{nodes} cores:{cores} threads:{threads}");
            let machine = machine(&line);
            prop_assert_eq!(machine.cpus.len(), (sockets * dies * nodes * cores * threads) as usize);
            let of_nodes: usize = machine.nodes.iter().map(|node| node.cpus.len()).sum();
            let of_packages: usize = machine.packages.iter().map(|package| package.cpus.len()).sum();
            let of_caches: usize = machine.llcs.iter().map(|llc| llc.cpus.len()).sum();
            prop_assert_eq!([of_nodes, of_packages, of_caches], [machine.cpus.len(); 3]);
            for cpu in &machine.cpus {
                prop_assert_eq!(cpu.siblings.len(), threads as usize);
                prop_assert!(cpu.siblings.contains(cpu.id));
            }
        }
    }
}
