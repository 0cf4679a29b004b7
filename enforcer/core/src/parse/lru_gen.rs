//! `lru_gen` of debugfs: number of pages of each cgroup and node by the time of their last use
//! (Documentation/admin-guide/mm/multigen_lru.rst).
//!
//! The age of a generation is the time since its birth; its pages were in use then and not since. The file
//! shows how many pages are cold, not which. A scan of the page tables creates a generation, so the figures
//! are only as recent as the last scan.

use std::time::Duration;

use crate::workload::CgroupPath;
use numa_topology::id::NodeId;

/// Pages of one generation of one cgroup on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Generation {
    /// The node.
    pub node: NodeId,
    /// Number of the generation; grows.
    pub number: u64,
    /// Time since its birth.
    pub age: Duration,
    /// Anonymous pages.
    pub anon: u64,
    /// Pages of files.
    pub file: u64,
}

/// A cgroup with its generations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Generations {
    /// The kernel's number of the memory cgroup, for commands to age it.
    pub memcg: u64,
    /// Generations in the order of the file.
    pub all: Vec<Generation>,
}

/// Maximum number of generations kept of one cgroup: four on each of the kernel's 1,024 nodes.
const LIMIT: usize = 4 * 1024;

impl Generations {
    /// Generations of a cgroup and its descendants; empty if the text does not have them. Malformed lines are
    /// skipped.
    pub fn within(text: &str, cgroup: &CgroupPath) -> Vec<Self> {
        let mut found: Vec<Self> = Vec::new();
        let (mut inside, mut node) = (false, None);
        for line in text.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("memcg") => {
                    let memcg = words.next().and_then(|word| word.parse().ok());
                    // The path is the rest of the line: it may contain spaces.
                    let path = line.find('/').and_then(|at| line.get(at..)).map(CgroupPath::new);
                    let memcg = memcg.filter(|_| path.is_some_and(|path| path.is_within(cgroup)));
                    (inside, node) = (memcg.is_some(), None);
                    found.extend(memcg.map(|memcg| Self { memcg, all: Vec::new() }));
                }
                Some("node") => node = words.next().and_then(|word| word.parse().ok()).map(NodeId),
                Some(number) => {
                    let Some((found, node)) = found.last_mut().filter(|_| inside).zip(node) else { continue };
                    if let Some(generation) = generation(number, words, node)
                        && found.all.len() < LIMIT
                    {
                        found.all.push(generation);
                    }
                }
                None => {}
            }
        }
        found
    }

    /// Pages on a node that were last in use at least `idle` ago.
    pub fn cold_pages(&self, node: NodeId, idle: Duration) -> u64 {
        let cold = self.all.iter().filter(|one| one.node == node && one.age >= idle);
        cold.fold(0, |sum, one| sum.saturating_add(one.anon).saturating_add(one.file))
    }

    /// The youngest generation of a node, from which the kernel can be asked to age.
    pub fn youngest(&self, node: NodeId) -> Option<Generation> {
        self.all.iter().filter(|one| one.node == node).max_by_key(|one| one.number).copied()
    }
}

/// `seq age_in_ms anon file`; a count can be negative for a moment, until several CPUs have merged theirs.
fn generation<'a>(
    number: &str,
    mut words: impl Iterator<Item = &'a str>,
    node: NodeId,
) -> Option<Generation> {
    let number = number.parse().ok()?;
    let mut next = || words.next()?.parse::<i64>().ok().map(|value| u64::try_from(value).unwrap_or(0));
    let (age, anon, file) = (next()?, next()?, next()?);
    Some(Generation { node, number, age: Duration::from_millis(age), anon, file })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const TEXT: &str = "memcg     1 /
 node     0
          0     209713        205        2094
          1      17017          0           0
memcg    52 /work/cold
 node     0
          3       9000      35849          10
          4        500       5124           1
 node     2
          3       9000         -1          7
memcg    53 /work/cold/below it
 node     0
          1       1000          3          4
";

    fn within(path: &str) -> Vec<Generations> {
        Generations::within(TEXT, &CgroupPath::new(path))
    }

    #[test]
    fn cold_pages_are_those_of_old_generations_on_the_node() {
        let found = within("/work/cold");
        assert_eq!(found.iter().map(|one| one.memcg).collect::<Vec<_>>(), [52, 53]);
        let cold = &found[0];
        let idle = Duration::from_secs(5);
        assert_eq!((cold.cold_pages(NodeId(0), idle), cold.cold_pages(NodeId(2), idle)), (35_859, 7));
        assert_eq!(cold.cold_pages(NodeId(0), Duration::from_secs(10)), 0);
        assert_eq!(cold.youngest(NodeId(0)).map(|one| one.number), Some(4));
        assert_eq!(cold.youngest(NodeId(1)), None);
        assert_eq!(within("/work/cold/below it")[0].all.len(), 1);
        assert_eq!(within("/").len(), 3);
        assert!(within("/work/col").is_empty());
    }

    proptest! {
        #[test]
        fn any_text_will_do(text in any::<String>(), noise in "(memcg +[0-9]{0,3} /a|node [0-9]{0,12}| [0-9]{1,25} -?[0-9]{1,4} [0-9]{1,4} [0-9]\n){0,20}") {
            for text in [text, noise] {
                let _ = Generations::within(&text, &CgroupPath::new("/a"));
            }
        }
    }
}
