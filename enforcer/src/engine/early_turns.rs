//! Early turns while the daemon finds out whether to move a workload.
//!
//! Problem: a misplaced workload is moved after enough observations, and a further turn carries the move out.
//! At the configured interval that takes three turns. Idea: a turn that begins a move is followed by the next
//! at once. A turn that leaves a workload undecided is followed as soon as a further sample can tell.
//!
//! Invariant: a workload asks for at most [`MAX_ASKED`] early turns, until it is decided or near its memory.
//! A misplaced workload that does not run causes no extra samples.

use std::{collections::BTreeMap, time::Duration};

use enforcer_core::{rebalance::NextTurn, workload::CgroupPath};

/// Most early turns in a row for one workload.
const MAX_ASKED: u8 = 4;

/// Time in which a running workload leaves enough observations: 25 clock ticks on one CPU.
const SAMPLE: Duration = Duration::from_millis(250);

/// Requests after the latest turns.
#[derive(Debug, Default)]
pub(super) struct EarlyTurns {
    /// Number of requests of each undecided workload.
    asked: BTreeMap<CgroupPath, u8>,
    wanted: Option<Duration>,
}

impl EarlyTurns {
    /// Takes a turn's request for the next one.
    pub(super) fn after(&mut self, next: NextTurn) {
        let NextTurn { carries_out, undecided } = next;
        self.asked.retain(|cgroup, _| undecided.contains(cgroup));
        let mut asks = false;
        for cgroup in undecided {
            let times = self.asked.entry(cgroup).or_default();
            if *times < MAX_ASKED {
                *times += 1;
                asks = true;
            }
        }
        self.wanted = match (carries_out, asks) {
            (true, _) => Some(Duration::ZERO),
            (false, true) => Some(SAMPLE),
            (false, false) => None,
        };
    }

    /// Time until the next turn; `None` at the regular interval.
    pub(super) const fn wanted(&self) -> Option<Duration> {
        self.wanted
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn next(carries_out: bool, undecided: &[&str]) -> NextTurn {
        let undecided = undecided.iter().map(|path| CgroupPath::new(path)).collect::<BTreeSet<_>>();
        NextTurn { carries_out, undecided }
    }

    #[test]
    fn a_move_is_carried_out_at_once_and_an_undecided_workload_sampled_soon() {
        let mut early = EarlyTurns::default();
        assert_eq!(early.wanted(), None);
        early.after(next(false, &["/a"]));
        assert_eq!(early.wanted(), Some(SAMPLE));
        early.after(next(true, &["/a"]));
        assert_eq!(early.wanted(), Some(Duration::ZERO));
        early.after(next(false, &[]));
        assert_eq!(early.wanted(), None);
    }

    #[test]
    fn a_workload_asks_a_few_times_and_again_after_it_was_decided() {
        let mut early = EarlyTurns::default();
        for turn in 0..10 {
            early.after(next(false, &["/a"]));
            assert_eq!(early.wanted().is_some(), turn < MAX_ASKED, "{turn}");
        }
        // Each workload has its own tries.
        early.after(next(false, &["/a", "/b"]));
        assert_eq!(early.wanted(), Some(SAMPLE));
        early.after(next(false, &[]));
        early.after(next(false, &["/a"]));
        assert_eq!(early.wanted(), Some(SAMPLE));
    }
}
