//! NUMA balancing fields of `/proc/PID/task/TID/sched` (`proc_sched_show_task` in `kernel/sched/debug.c`; a
//! kernel without `CONFIG_SCHED_DEBUG` has no such file).
//!
//! The file is meant for people and has changed often, so unknown lines are skipped.

use std::collections::BTreeMap;

use super::{ParseError, scalar};
use numa_topology::{id::NodeId, set::NodeSet};

/// Maximum number of node lines kept: no kernel has more nodes.
const NODES: usize = 1_024;

/// NUMA balancing state of a thread; `None` on a kernel without NUMA balancing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskSched {
    /// `numa_preferred_nid`: the preferred node; -1 is `Some(None)`.
    pub preferred_node: Option<Option<NodeId>>,
    /// `total_numa_faults`.
    pub faults: Option<u64>,
    /// `numa_faults node=N task_private=A task_shared=B`: the sum of both. Nodes without faults are left out.
    pub faults_by_node: Option<BTreeMap<NodeId, u64>>,
}

impl TaskSched {
    /// Parses a known line and skips others.
    pub fn add_line(&mut self, line: &str) -> Result<(), ParseError> {
        if let Some(faults) = line.strip_prefix("numa_faults node=") {
            return self.add_node(faults);
        }
        match line.split_once(':').map(|(name, value)| (name.trim_end(), value)) {
            Some(("numa_preferred_nid", node)) => {
                self.preferred_node = Some(u32::try_from(scalar::signed(node)?).ok().map(NodeId));
            }
            Some(("total_numa_faults", count)) => self.faults = Some(scalar::unsigned(count)?),
            _ => {}
        }
        Ok(())
    }

    fn add_node(&mut self, words: &str) -> Result<(), ParseError> {
        let mut words = words.split_ascii_whitespace();
        let nodes: NodeSet = scalar::list(words.next().unwrap_or_default())?;
        let mut nodes = nodes.iter();
        let (Some(node), None) = (nodes.next(), nodes.next()) else {
            return Err(ParseError::new("a node of sched", &words.collect::<String>()));
        };
        let mut pages = 0u64;
        for word in words {
            if let Some(("task_private" | "task_shared", count)) = word.split_once('=') {
                pages = pages.saturating_add(scalar::unsigned(count)?);
            }
        }
        let by_node = self.faults_by_node.get_or_insert_default();
        if pages > 0 && by_node.len() < NODES {
            by_node.insert(node, pages);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn read(text: &str) -> Result<TaskSched, ParseError> {
        let mut sched = TaskSched::default();
        text.lines().try_for_each(|line| sched.add_line(line)).map(|()| sched)
    }

    const LINES: &str = "\
a: b) (7, #threads: 1)
-------------------------------------------------------------------
se.exec_start                                :          8231.123456
mm->numa_scan_seq                            :                    4
numa_pages_migrated                          :                10248
numa_preferred_nid                           :                    1
total_numa_faults                            :                20676
current_node=1, numa_group_id=0
numa_faults node=0 task_private=60 task_shared=7 group_private=1 group_shared=2
numa_faults node=1 task_private=20609 task_shared=0 group_private=3 group_shared=4
numa_faults node=2 task_private=0 task_shared=0 group_private=0 group_shared=0
";

    #[test]
    fn takes_the_faults_of_the_task_and_not_of_its_group() {
        let sched = read(LINES).unwrap();
        assert_eq!((sched.preferred_node, sched.faults), (Some(Some(NodeId(1))), Some(20_676)));
        assert_eq!(sched.faults_by_node, Some([(NodeId(0), 67), (NodeId(1), 20_609)].into()));
    }

    #[test]
    fn no_preference_is_known_and_no_balancing_is_not() {
        assert_eq!(read("numa_preferred_nid : -1").unwrap().preferred_node, Some(None));
        assert_eq!(read("se.exec_start : 1.5\n").unwrap(), TaskSched::default());
        let none = "numa_faults node=0 task_private=0 task_shared=0 group_private=0 group_shared=0";
        assert_eq!(read(none).unwrap().faults_by_node, Some(BTreeMap::new()));
    }

    #[test]
    fn refuses_nonsense() {
        for line in [
            "numa_preferred_nid : x",
            "total_numa_faults : -1",
            "numa_faults node=",
            "numa_faults node=0-1 task_private=1",
            "numa_faults node=999999999 task_private=1",
            "numa_faults node=0 task_private=many",
        ] {
            assert!(read(line).is_err(), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_a_sched_or_an_error(text in any::<String>(), node in "[0-9,-]{0,6}", count in "[0-9]{0,22}") {
            let _ = read(&text);
            let _ = read(&format!("numa_faults node={node} task_private={count} task_shared={count}"));
        }
    }
}
