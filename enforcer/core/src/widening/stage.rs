//! How near a workload is to the OOM killer.
//!
//! Problem: from the first sign to the kill there may be a single attempt to reclaim, 3 ms; whoever waits for certainty
//! comes too late, and whoever acts on every dip scatters memory over the machine. Idea: stages. *Calm* looks every 100 ms.
//! *Armed*, 2 s before the room is gone at the present rate or with 8 % left, looks every 5 ms and changes nothing.
//! *Widen*, half a second before or with 4 % left, adds a node. *Emergency*, when a task of the workload reclaims memory
//! itself, adds all nodes of a tier at once.
//!
//! Never: a sign of the kernel alone widens. A node full of page cache wakes its kswapd all day; a sign counts where
//! there is little room ([`super::NodeRoom::room`]) as well. The one exception is a reclaim that is tried again: the next step of the kernel is
//! the kill (`should_reclaim_retry`, `mm/page_alloc.c`).

use std::fmt;

use crate::{policy::WideningSettings, words};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Time before the end at which a workload is armed, and at which a node is added at the latest.
const ARM_BEFORE: u64 = 2 * SECOND;
const WIDEN_BEFORE: u64 = SECOND / 2;
/// Time left above which an armed one is calm again.
const RELEASE_BEFORE: u64 = 2 * ARM_BEFORE;
/// So many times as long as its own writes take at worst, a node is added before the end.
const WRITES: u64 = 10;

/// How near it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Far.
    #[default]
    Calm,
    /// Looked at closely.
    Armed,
    /// A node is added.
    Widen,
    /// All that may be added at once is.
    Emergency,
}

impl Stage {
    /// As in metrics and logs.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calm => "calm",
            Self::Armed => "armed",
            Self::Widen => "widen",
            Self::Emergency => "emergency",
        }
    }
}

/// What the kernel told since the look before, the worst of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// The kswapd of one of its nodes was woken.
    KswapdWoken,
    /// One of its tasks frees memory before getting some.
    DirectReclaim,
    /// That freed too little, and is tried again.
    ReclaimRetry,
}

/// All memory nodes of a workload together, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Sight {
    /// What can be had without reclaim.
    pub headroom: u64,
    /// That, and what reclaim can be expected to find.
    pub room: u64,
    /// What the kernel manages there.
    pub capacity: u64,
    /// Bytes per second by which the room shrinks; 0 when it does not.
    pub rate: u64,
}

impl Sight {
    /// Nanoseconds until the room is gone; `None` while it does not shrink.
    pub fn time_left_ns(&self) -> Option<u64> {
        let ns = u128::from(self.room) * u128::from(SECOND)
            / u128::from(Some(self.rate).filter(|rate| *rate > 0)?);
        Some(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for Sight {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} left of {}", words::size(self.room), words::size(self.capacity))?;
        match self.time_left_ns() {
            Some(left) => {
                write!(f, ", gone in {} ms at {} per second", left / 1_000_000, words::size(self.rate))
            }
            None => Ok(()),
        }
    }
}

/// Amounts of room at which stages change, for one capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Marks {
    widen: u64,
    arm: u64,
    release: u64,
}

impl Marks {
    /// Shares of the capacity. Where the least amount raises the first of them, the others stay above it: by a half and by
    /// as much again.
    pub(super) fn of(settings: &WideningSettings, capacity: u64) -> Self {
        let share =
            |percent: u8| u64::try_from(u128::from(capacity) * u128::from(percent) / 100).unwrap_or(u64::MAX);
        let widen = share(settings.widen_percent).max(settings.min_headroom.0);
        let arm = share(settings.arm_percent).max(widen.saturating_add(widen / 2));
        Self { widen, arm, release: share(settings.release_percent).max(widen.saturating_mul(2)) }
    }
}

/// The stage after `before`. `write_ns` is how long its writes take at worst (p99).
pub(super) fn stage(before: Stage, sight: &Sight, marks: Marks, write_ns: u64, sign: Option<Sign>) -> Stage {
    let left = sight.time_left_ns();
    let within = |ns: u64| left.is_some_and(|left| left < ns);
    let urgent = WIDEN_BEFORE.max(write_ns.saturating_mul(WRITES)).min(ARM_BEFORE);
    match sign {
        Some(Sign::ReclaimRetry) => return Stage::Emergency,
        Some(Sign::DirectReclaim) if sight.room < marks.release => return Stage::Emergency,
        Some(Sign::KswapdWoken) if sight.room < marks.arm => return Stage::Widen,
        _ => {}
    }
    if sight.room < marks.widen || within(urgent) {
        return Stage::Widen;
    }
    let near = sight.room < marks.arm || within(ARM_BEFORE) || sign.is_some();
    let still = before > Stage::Calm && (sight.room < marks.release || within(RELEASE_BEFORE));
    if near || still { Stage::Armed } else { Stage::Calm }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn sight(room_percent: u64, rate: u64) -> Sight {
        let capacity = 100 * GIB;
        Sight { headroom: room_percent * GIB, room: room_percent * GIB, capacity, rate }
    }

    fn marks() -> Marks {
        Marks::of(&WideningSettings::default(), 100 * GIB)
    }

    #[test]
    fn stages_follow_room_and_time() {
        use Stage::{Armed, Calm, Emergency, Widen};
        for (before, room, gib_per_s, sign, expected) in [
            (Calm, 50, 0, None, Calm),
            (Calm, 9, 0, None, Calm),
            (Armed, 9, 0, None, Armed),
            (Widen, 15, 0, None, Armed),
            (Armed, 17, 0, None, Calm),
            (Calm, 7, 0, None, Armed),
            (Calm, 3, 0, None, Widen),
            (Calm, 50, 26, None, Armed),
            (Armed, 50, 13, None, Armed),
            (Armed, 50, 12, None, Calm),
            (Calm, 50, 101, None, Widen),
            (Calm, 50, 0, Some(Sign::KswapdWoken), Armed),
            (Calm, 7, 0, Some(Sign::KswapdWoken), Widen),
            (Calm, 50, 0, Some(Sign::DirectReclaim), Armed),
            (Calm, 15, 0, Some(Sign::DirectReclaim), Emergency),
            (Calm, 50, 0, Some(Sign::ReclaimRetry), Emergency),
        ] {
            let found = stage(before, &sight(room, gib_per_s * GIB), marks(), 0, sign);
            assert_eq!(found, expected, "{before:?} {room} % {gib_per_s} GiB/s {sign:?}");
        }
    }

    #[test]
    fn slow_writes_widen_earlier_but_not_before_it_is_armed() {
        let of = |write_ns| stage(Stage::Calm, &sight(50, 40 * GIB), marks(), write_ns, None);
        assert_eq!(of(SECOND / 100), Stage::Armed);
        assert_eq!(of(SECOND / 5), Stage::Widen);
        assert_eq!(stage(Stage::Calm, &sight(50, 10 * GIB), marks(), u64::MAX, None), Stage::Calm);
    }

    #[test]
    fn a_small_node_is_noticed_by_its_amount() {
        let small = Marks::of(&WideningSettings::default(), 512 << 20);
        assert_eq!((small.widen, small.arm, small.release), (64 << 20, 96 << 20, 128 << 20));
    }

    proptest! {
        #[test]
        fn marks_ascend(capacity in any::<u64>(), least in 1u64..1 << 40) {
            let settings = WideningSettings {
                min_headroom: crate::policy::ByteSize(least),
                ..WideningSettings::default()
            };
            let Marks { widen, arm, release } = Marks::of(&settings, capacity);
            prop_assert!(widen >= least && widen <= arm && arm <= release);
        }

        #[test]
        fn less_room_or_a_higher_rate_is_never_calmer(
            room in 0u64..1 << 36, less in 0u64..1 << 36, rate in 0u64..1 << 40, more in 0u64..1 << 40,
            before in prop_oneof![Just(Stage::Calm), Just(Stage::Armed), Just(Stage::Widen)],
        ) {
            let of = |room, rate| {
                let sight = Sight { headroom: room, room, capacity: 100 * GIB, rate };
                stage(before, &sight, marks(), 0, None)
            };
            prop_assert!(of(room.saturating_sub(less), rate + more) >= of(room, rate));
        }
    }
}
