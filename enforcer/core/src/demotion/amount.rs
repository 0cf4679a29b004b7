//! How much one round moves down.
//!
//! Problem: a request for more than the cold bytes takes the hot set too, and a wrong round costs twice: the
//! pages come back, and were slow meanwhile.
//!
//! Idea: the least of the cold bytes, of what the lower tier can take, and of the rate. The amount is halved
//! when recently moved bytes return, with a rest that doubles; some right rounds undo one halving.
//!
//! Terminology. *Returned* bytes were moved down and are wanted back: hot there, or promoted by the kernel.
//! *Lately* moved bytes count a sixteenth less with each round: pages come back some rounds after they left.
//! A process that wakes up once touches a few pages that were rightly taken for cold. These are weighed
//! against all bytes below as well, because otherwise each would be a mistake in a calm time in which nothing
//! goes down.
//!
//! Invariant: the amount is never more than the cold bytes. Time is an argument.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::IntoStaticStr;

/// Part of the target's memory that stays free: a tenth.
const KEPT_FREE: u64 = 10;
/// A round is wrong if one of so many recently moved bytes has returned.
const WRONG: u64 = 20;
/// Part of all bytes below that counts as moved lately.
const SETTLED: u64 = 16;
/// Recently moved bytes count this part less with each round.
const FADES: u64 = 16;
/// Limit of the halvings.
const MOST: u32 = 6;
/// Right rounds that undo one halving.
const RIGHT: u32 = 3;

/// Memory of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeMemory {
    /// Total bytes.
    pub total: u64,
    /// Bytes that are available ([`crate::node_room::NodeRoom::available`]).
    pub available: u64,
}

/// Bytes that a node can take.
pub(super) fn headroom(room: &NodeMemory) -> u64 {
    room.available.saturating_sub(room.total / KEPT_FREE)
}

/// The bound that decided the amount.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[derive(IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum AmountBound {
    /// All cold bytes are moved.
    Cold,
    /// A second source has found fewer cold bytes.
    Estimate,
    /// A tenth of the lower tier stays free.
    Headroom,
    /// The rate in bytes per second.
    Rate,
    /// Pages of earlier rounds have returned.
    BackOff,
}

/// Limits of a round.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RoundLimits {
    /// Cold bytes.
    pub cold: u64,
    /// Cold bytes by a second source; absent without one.
    pub estimate: Option<u64>,
    /// Room of the target node.
    pub room: NodeMemory,
    /// Bytes that the rate allows since the last round.
    pub rate: u64,
}

/// Backoff after wrong rounds.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DemotionBackoff {
    halvings: u32,
    right: u32,
    rest_until_ns: u64,
    lately: u64,
}

impl DemotionBackoff {
    /// Number of halvings.
    pub fn halvings(&self) -> u32 {
        self.halvings
    }

    /// Bytes of a round at `now_ns`, and the bound that decided.
    pub fn amount(&self, supply: &RoundLimits, now_ns: u64) -> (u64, AmountBound) {
        if now_ns < self.rest_until_ns {
            return (0, AmountBound::BackOff);
        }
        let headroom = headroom(&supply.room);
        let bounds = [
            (supply.cold, AmountBound::Cold),
            (supply.estimate.unwrap_or(u64::MAX), AmountBound::Estimate),
            (headroom, AmountBound::Headroom),
            (supply.rate, AmountBound::Rate),
        ];
        let (bytes, bound) =
            bounds.into_iter().min_by_key(|(bytes, _)| *bytes).unwrap_or((0, AmountBound::Cold));
        match bytes >> self.halvings {
            less if less < bytes => (less, AmountBound::BackOff),
            same => (same, bound),
        }
    }

    /// Records a round that moved `down` bytes; `returned` of the `below` bytes before it were wanted back.
    /// Pages are cold after `idle`.
    pub fn note(&mut self, down: u64, below: u64, returned: u64, idle: Duration, now_ns: u64) {
        let trusted = self.lately.max(below / SETTLED);
        self.lately = (self.lately - self.lately / FADES).saturating_add(down);
        if returned > 0 && returned.saturating_mul(WRONG) >= trusted {
            self.right = 0;
            if now_ns < self.rest_until_ns {
                // The rest of an earlier return.
                return;
            }
            let rest = idle.saturating_mul(1 << self.halvings);
            self.halvings = (self.halvings + 1).min(MOST);
            self.rest_until_ns = now_ns.saturating_add(u64::try_from(rest.as_nanos()).unwrap_or(u64::MAX));
        } else if down > 0 && self.halvings > 0 {
            self.right += 1;
            if self.right >= RIGHT {
                (self.right, self.halvings) = (0, self.halvings - 1);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;
    const IDLE: Duration = Duration::from_secs(5);
    const SECOND: u64 = 1_000_000_000;

    fn supply(cold: u64, estimate: Option<u64>, free: u64, rate: u64) -> RoundLimits {
        let room = NodeMemory { total: 500 * MIB, available: free * MIB };
        RoundLimits { cold: cold * MIB, estimate: estimate.map(|bytes| bytes * MIB), room, rate: rate * MIB }
    }

    #[test]
    fn the_least_of_all_bounds_decides() {
        for (supply, expected) in [
            (supply(100, None, 400, 200), (100, AmountBound::Cold)),
            (supply(100, Some(60), 400, 200), (60, AmountBound::Estimate)),
            (supply(100, Some(160), 90, 200), (40, AmountBound::Headroom)),
            (supply(100, None, 40, 200), (0, AmountBound::Headroom)),
            (supply(100, None, 400, 10), (10, AmountBound::Rate)),
            (supply(0, None, 400, 10), (0, AmountBound::Cold)),
        ] {
            let (bytes, bound) = DemotionBackoff::default().amount(&supply, 0);
            assert_eq!((bytes / MIB, bound), expected, "{supply:?}");
        }
    }

    #[test]
    fn what_is_wanted_back_halves_the_next_round_and_right_ones_undo_it() {
        let plenty = supply(100, None, 400, 200);
        let mut trust = DemotionBackoff::default();
        trust.note(100 * MIB, 0, 0, IDLE, 0);
        trust.note(0, 100 * MIB, 4 * MIB, IDLE, 0);
        assert_eq!(trust.halvings(), 0, "a few pages do not make a round wrong");
        trust.note(0, 100 * MIB, 60 * MIB, IDLE, 0);
        assert_eq!(trust.amount(&plenty, SECOND), (0, AmountBound::BackOff), "it rests");
        assert_eq!(trust.amount(&plenty, 5 * SECOND), (50 * MIB, AmountBound::BackOff));
        trust.note(50 * MIB, 90 * MIB, 50 * MIB, IDLE, 5 * SECOND);
        assert_eq!(trust.amount(&plenty, 14 * SECOND), (0, AmountBound::BackOff), "for twice as long");
        assert_eq!(trust.amount(&plenty, 15 * SECOND), (25 * MIB, AmountBound::BackOff));
        for (round, halvings) in [2, 2, 1, 1, 1, 0, 0].into_iter().enumerate() {
            trust.note(MIB, 0, 0, IDLE, 20 * SECOND);
            assert_eq!(trust.halvings(), halvings, "round {round}");
        }
        trust.note(0, 0, 0, IDLE, 20 * SECOND);
        assert_eq!(trust.amount(&plenty, 20 * SECOND), (100 * MIB, AmountBound::Cold));
    }

    #[test]
    fn a_few_pages_that_wake_up_in_a_calm_time_are_no_mistake_and_the_working_set_of_an_hour_ago_is() {
        let mut trust = DemotionBackoff::default();
        trust.note(132 * MIB, 0, 0, IDLE, 0);
        for round in 0..1000 {
            trust.note(0, 132 * MIB, 16 << 10, IDLE, round * SECOND);
        }
        assert_eq!(trust.halvings(), 0);
        trust.note(0, 132 * MIB, 20 * MIB, IDLE, 1000 * SECOND);
        assert_eq!(trust.halvings(), 1);
        // Much that went down long ago does not hide that half of what goes down now comes back.
        let mut trust = DemotionBackoff::default();
        trust.note(10_000 * MIB, 0, 0, IDLE, 0);
        for round in 0..200 {
            trust.note(0, 10_000 * MIB, 0, IDLE, round * SECOND);
        }
        trust.note(100 * MIB, 10_000 * MIB, 0, IDLE, 201 * SECOND);
        trust.note(0, 10_100 * MIB, 50 * MIB, IDLE, 202 * SECOND);
        assert_eq!(trust.halvings(), 1);
    }

    proptest! {
        #[test]
        fn never_more_than_is_cold_nor_than_any_other_bound(
            cold in any::<u64>(), estimate in prop::option::of(any::<u64>()), total in any::<u64>(),
            free in any::<u64>(), rate in any::<u64>(), now in any::<u64>(),
            rounds in prop::collection::vec(any::<[u64; 4]>(), 0..12),
        ) {
            let mut trust = DemotionBackoff::default();
            for [down, below, returned, at] in rounds {
                trust.note(down, below, returned, IDLE, at);
                prop_assert!(trust.halvings() <= MOST);
            }
            let supply = RoundLimits { cold, estimate, room: NodeMemory { total, available: free }, rate };
            let (bytes, _) = trust.amount(&supply, now);
            prop_assert!(bytes <= cold && bytes <= rate && bytes <= estimate.unwrap_or(u64::MAX));
            prop_assert!(bytes == 0 || free - bytes >= total / KEPT_FREE);
        }

        /// After any number of wrong rounds, a time without any restores the full amount.
        #[test]
        fn trust_comes_back(wrong in 1usize..20) {
            let mut trust = DemotionBackoff::default();
            for round in 0..wrong as u64 {
                trust.note(1, 1, 1, IDLE, round * 1000 * SECOND);
            }
            prop_assert!(trust.halvings() > 0);
            for _ in 0..MOST * RIGHT {
                trust.note(1, 0, 0, IDLE, 0);
            }
            prop_assert_eq!(trust.halvings(), 0);
        }
    }
}
