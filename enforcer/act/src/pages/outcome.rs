//! What moving pages came to, and what that means for the steps behind it.

use std::{collections::BTreeMap, io};

use enforcer_core::{plan::OutcomeResult, residue::Residue};
use numa_topology::{id::NodeId, set::NodeSet};
use rustix::io::Errno;

use super::budget::Spent;
use crate::step_effect::{Next, StepEffect};

/// What a step of moving pages came to.
#[derive(Debug, Default)]
pub struct PageMoveReport {
    /// Bytes that are now on the wanted node.
    pub moved_bytes: u64,
    /// Bytes that were found on the nodes to be left and are still there, by error number (0: none
    /// was given).
    pub left_bytes: BTreeMap<i32, u64>,
    /// Processes that could not be worked on, with the cause; not those that are gone.
    pub refused: Vec<(u32, String)>,
    /// Processes with a reused id, with the bytes that the last call asked for. Nothing of that call is
    /// counted, as it may have moved pages of the new process.
    pub reused: BTreeMap<u32, u64>,
    /// Processes that were worked on.
    pub processes: u32,
    /// The budget ended before everything was seen.
    pub interrupted: Option<MoveInterruption>,
    /// What is still there when everything was done, by where the pages are.
    pub residue: Residue,
    /// The processes could not be listed.
    pub error: Option<String>,
}

/// What is not done when the budget ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MoveInterruption {
    /// Which limit.
    pub because: Spent,
    /// Bytes on the nodes to be left in the process that was being worked on, as `numa_maps` counts them.
    pub bytes: u64,
    /// Processes that were not looked at.
    pub processes: usize,
}

impl PageMoveReport {
    /// As the effect of a step: what was moved, and what is left and why.
    pub fn into_effect(self, from: &NodeSet, to: NodeId) -> StepEffect {
        let text = self.describe(from, to);
        let nothing_done = self.processes == 0 && !self.refused.is_empty();
        let complete = (self.left_bytes.is_empty() || self.left_are_files_of_many())
            && self.refused.is_empty()
            && self.reused.is_empty()
            && self.interrupted.is_none();
        if complete && !self.left_bytes.is_empty() {
            tracing::debug!("{text}");
        }
        let (result, next) = if self.error.is_some() || nothing_done {
            (OutcomeResult::Failed { error: text }, Next::RollBack)
        } else if complete {
            (OutcomeResult::Applied { read_back: text }, Next::Continue)
        } else {
            let wanted = format!("all pages of nodes {from} on node {to}");
            match self.interrupted {
                Some(_) => (OutcomeResult::Unfinished { read_back: text }, Next::Pause),
                // What does not move now is left to the kernel when the memory set is narrowed.
                None => (OutcomeResult::Differs { wanted, read_back: text }, Next::Continue),
            }
        };
        StepEffect { result, undo: Vec::new(), next }
    }

    /// Is all that stayed mapped files of several programs, such as libraries? Nearly every container has
    /// some. They are not memory of one workload, and no process may move them.
    fn left_are_files_of_many(&self) -> bool {
        let shared = |code: &i32| *code == Errno::ACCESS.raw_os_error();
        self.left_bytes.keys().all(shared) && self.residue.shares_files_alone()
    }

    /// What was to be moved and is still where it was, and why.
    pub fn left(&self) -> Vec<String> {
        let mut parts = Vec::new();
        for (code, bytes) in &self.left_bytes {
            parts.push(format!("{bytes} bytes left: {}", why_left(*code)));
        }
        if let Some((pid, error)) = self.refused.first() {
            parts.push(format!("{} processes refused, first {pid}: {error}", self.refused.len()));
        }
        for (pid, bytes) in &self.reused {
            parts.push(format!(
                "process {pid} ended and its number was given to another one: {bytes} bytes of the call that \
                 was under way are not counted"
            ));
        }
        parts
    }

    fn describe(&self, from: &NodeSet, to: NodeId) -> String {
        if let Some(error) = &self.error {
            return error.clone();
        }
        let mut parts = vec![format!(
            "{} bytes of {} processes moved from nodes {from} to node {to}",
            self.moved_bytes, self.processes
        )];
        parts.extend(self.left());
        for (reason, bytes) in self.residue.by_reason() {
            parts.push(format!("{bytes} bytes still there: {}", reason.words()));
        }
        if let Some(MoveInterruption { because, bytes, processes }) = &self.interrupted {
            parts.push(format!("{because}: {bytes} bytes and {processes} processes are still to be done"));
        }
        parts.join("; ")
    }
}

/// What the kernel says of a page that it did not move, by what it left as its status. It is 0 of one that is
/// elsewhere, and no [`Errno`] then: making one of it panics.
fn why_left(code: i32) -> String {
    let is = |errno: Errno| code == errno.raw_os_error();
    match code {
        0 => "no reason given".to_owned(),
        _ if is(Errno::ACCESS) => "mapped by several processes".to_owned(),
        _ if is(Errno::BUSY) => "busy".to_owned(),
        _ if is(Errno::NOMEM) => "no room on the node".to_owned(),
        _ => io::Error::from_raw_os_error(code).to_string(),
    }
}

#[cfg(test)]
mod tests {
    use enforcer_core::parse::numa_maps::Mapping;

    use super::*;

    #[test]
    fn whatever_the_kernel_says_of_a_page_has_words() {
        for (code, words) in [
            (0, "no reason given"),
            (Errno::ACCESS.raw_os_error(), "mapped by several processes"),
            (Errno::BUSY.raw_os_error(), "busy"),
            (Errno::NOMEM.raw_os_error(), "no room on the node"),
            (Errno::IO.raw_os_error(), "Input/output error (os error 5)"),
            (-1, "(os error -1)"),
            (70_000, "(os error 70000)"),
            (i32::MIN, "os error"),
        ] {
            let left_bytes = BTreeMap::from([(code, 4096)]);
            let report = PageMoveReport { left_bytes, processes: 1, ..PageMoveReport::default() };
            let left = report.left().join("; ");
            assert!(left.starts_with("4096 bytes left: ") && left.contains(words), "{code}: {left}");
            // The whole way, too: the daemon ends with a panic.
            assert!(matches!(
                report.into_effect(&NodeSet::new(), NodeId(1)).result,
                OutcomeResult::Differs { .. }
            ));
        }
    }

    #[test]
    fn a_move_that_the_budget_ends_is_unfinished_and_goes_on() {
        let interrupted = Some(MoveInterruption { because: Spent::Bytes, bytes: 4096, processes: 1 });
        let report = PageMoveReport { interrupted, processes: 1, ..PageMoveReport::default() };
        let effect = report.into_effect(&"0".parse().unwrap(), NodeId(1));
        assert!(matches!(effect.result, OutcomeResult::Unfinished { .. }), "{:?}", effect.result);
        assert!(matches!(effect.next, Next::Pause));
    }

    #[test]
    fn libraries_that_stay_are_no_difference_and_shared_memory_that_stays_is_one() {
        const LIBRARY: &str = "1000 default file=/lib/c.so mapped=9 mapmax=30 N0=2 kernelpagesize_kB=4";
        const SHARED: &str = "2000 default file=/dev/shm/x dirty=3 mapmax=4 N0=3 kernelpagesize_kB=4";
        let (access, busy) = (Errno::ACCESS.raw_os_error(), Errno::BUSY.raw_os_error());
        let from: NodeSet = "0".parse().unwrap();
        for (code, lines, differs) in [
            (access, &[LIBRARY][..], false),
            (access, &[LIBRARY, SHARED], true),
            (access, &[SHARED], true),
            (busy, &[LIBRARY], true),
            // What is there could not be read.
            (access, &[], true),
        ] {
            let mut residue = Residue::default();
            for line in lines {
                residue.add(&Mapping::parse(line).unwrap(), &from);
            }
            let left_bytes = BTreeMap::from([(code, 8192)]);
            let report = PageMoveReport { left_bytes, residue, processes: 1, ..PageMoveReport::default() };
            let (result, text) = match report.into_effect(&from, NodeId(1)).result {
                OutcomeResult::Differs { read_back, .. } => (true, read_back),
                OutcomeResult::Applied { read_back } => (false, read_back),
                other => panic!("{other:?}"),
            };
            assert_eq!(result, differs, "{code} {lines:?}");
            assert!(text.contains("8192 bytes left: "), "{text}");
        }
    }
}
