//! Turns that come before they are due, while it is found out whether a workload is to be moved.
//!
//! Problem: a misplaced workload is moved when enough was seen of it and a further turn carries the move out;
//! at the configured interval that takes three turns. Idea: a turn that begins a move is followed by the next
//! one at once, and a turn that leaves a workload undecided by one as soon as a further sample can tell.
//!
//! Invariant: a workload asks for at most [`MAX_ASKED`] early turns, until it is decided or no longer far
//! from its memory. A quiet host with a misplaced workload that does not run is not sampled more often for
//! it.

use std::{collections::BTreeMap, time::Duration};

use enforcer_core::{rebalance::NextTurn, workload::CgroupPath};

/// Early turns for which one workload asks in a row.
const MAX_ASKED: u8 = 4;

/// Time in which a workload that runs leaves enough observations: 25 clock ticks on one CPU.
const SAMPLE: Duration = Duration::from_millis(250);

/// What was asked for after the latest turns.
#[derive(Debug, Default)]
pub(super) struct EarlyTurns {
    /// How often each undecided workload has asked.
    asked: BTreeMap<CgroupPath, u8>,
    wanted: Option<Duration>,
}

impl EarlyTurns {
    /// Takes what a turn asks of the next one.
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

    /// Time after which the next turn should come; `None` where it comes when it is due.
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
        // Another one has its own tries.
        early.after(next(false, &["/a", "/b"]));
        assert_eq!(early.wanted(), Some(SAMPLE));
        early.after(next(false, &[]));
        early.after(next(false, &["/a"]));
        assert_eq!(early.wanted(), Some(SAMPLE));
    }
}
