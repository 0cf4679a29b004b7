//! How near a workload is to the OOM killer.
//!
//! Problem: between the first sign and the kill there may be a single attempt to reclaim, 3 ms. Waiting for
//! certainty is too late, and acting on every dip scatters memory over the machine. Idea: stages. *Calm*
//! looks seldom. *Armed*, 2 s before the room is gone at the present rate or with 8 % left, looks every 5 ms
//! and changes nothing. *Widen*, half a second before or with 4 % left, adds a node. *Emergency*, when a task
//! of the workload reclaims memory itself, adds all nodes of a tier at once.
//!
//! Invariant: a sign of the kernel alone does not widen. A node full of page cache wakes its kswapd all day,
//! so a sign counts only together with little room ([`super::NodeRoom::available`]). A repeated reclaim is
//! the kernel's last step before the kill (`should_reclaim_retry`, `mm/page_alloc.c`): it counts together
//! with little free memory, whatever reclaim might find.

use std::fmt;
use strum::IntoStaticStr;

use crate::{policy::WideningSettings, words};

/// Nanoseconds of a second.
const SECOND: u64 = 1_000_000_000;
/// Time before the end at which a workload is armed, and at which a node is added at the latest.
const ARM_BEFORE: u64 = 2 * SECOND;
const WIDEN_BEFORE: u64 = SECOND / 2;
/// Limit of how often the marks of a workload are raised: to a little more than three times.
const MOST_RAISES: u8 = 3;
/// A node is added this many times the longest duration of its writes before the end.
const WRITES: u64 = 10;

/// How near a workload is to the end of its room.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum PressureLevel {
    /// Far; looks are seldom.
    #[default]
    Calm,
    /// Near; looks are frequent.
    Armed,
    /// One node is added.
    Widen,
    /// All nodes of a tier are added at once.
    Emergency,
}

/// The worst event that the kernel reported since the look before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum PressureSign {
    /// The kswapd of one of its nodes was woken.
    KswapdWoken,
    /// One of its tasks reclaims memory before it gets some.
    DirectReclaim,
    /// That reclaim freed too little and is repeated.
    ReclaimRetry,
}

/// All memory nodes of a workload together, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeSetHeadroom {
    /// Free without reclaim.
    pub headroom: u64,
    /// Free memory, and memory that reclaim is expected to find.
    pub room: u64,
    /// Memory that the kernel manages there.
    pub capacity: u64,
    /// Bytes per second by which the room shrinks; 0 when it does not.
    pub rate: u64,
}

impl NodeSetHeadroom {
    /// Nanoseconds until the room is gone; `None` while it does not shrink.
    pub fn time_left_ns(&self) -> Option<u64> {
        let ns = u128::from(self.room) * u128::from(SECOND)
            / u128::from(Some(self.rate).filter(|rate| *rate > 0)?);
        Some(u64::try_from(ns).unwrap_or(u64::MAX))
    }
}

impl fmt::Display for NodeSetHeadroom {
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
pub(super) struct PressureMarks {
    widen: u64,
    arm: u64,
    release: u64,
    /// Nanoseconds before the end.
    widen_before: u64,
    arm_before: u64,
}

impl PressureMarks {
    /// Marks as shares of the capacity. If the least amount raises the first mark, the others stay above it
    /// by half and by as much again.
    pub(super) fn of(settings: &WideningSettings, capacity: u64) -> Self {
        let share =
            |percent: u8| u64::try_from(u128::from(capacity) * u128::from(percent) / 100).unwrap_or(u64::MAX);
        let widen = share(settings.widen_percent).max(settings.min_headroom.0);
        let arm = share(settings.arm_percent).max(widen.saturating_add(widen / 2));
        let release = share(settings.release_percent).max(widen.saturating_mul(2));
        Self { widen, arm, release, widen_before: WIDEN_BEFORE, arm_before: ARM_BEFORE }
    }

    /// Marks raised by half, `times` times, for a workload that was killed although it was widened; at most
    /// half of the capacity.
    pub(super) fn raised(self, times: u8, capacity: u64) -> Self {
        let up = |mark: u64| mark.saturating_add(mark / 2);
        let most = capacity / 2;
        (0..times.min(MOST_RAISES)).fold(self, |marks, _| Self {
            // What is above that already stays.
            widen: up(marks.widen).min(most).max(marks.widen),
            arm: up(marks.arm).min(most).max(marks.arm),
            release: up(marks.release).min(most).max(marks.release),
            widen_before: up(marks.widen_before),
            arm_before: up(marks.arm_before),
        })
    }

    /// Bytes that may still go before the stage is armed.
    pub(super) fn spare(self, room: u64) -> u64 {
        room.saturating_sub(self.arm)
    }

    /// Is the room below the mark of the stage armed?
    pub(super) fn is_short(self, room: u64) -> bool {
        room < self.arm
    }

    /// Bytes that are missing until the stage is calm again.
    pub(super) fn missing(self, room: u64) -> u64 {
        self.release.saturating_sub(room)
    }
}

/// The stage after `before`. `write_ns` is the longest duration of its writes (p99).
pub(super) fn stage(
    before: PressureLevel,
    sight: &NodeSetHeadroom,
    marks: PressureMarks,
    write_ns: u64,
    sign: Option<PressureSign>,
) -> PressureLevel {
    let left = sight.time_left_ns();
    let within = |ns: u64| left.is_some_and(|left| left < ns);
    let urgent = marks.widen_before.max(write_ns.saturating_mul(WRITES)).min(marks.arm_before);
    match sign {
        Some(PressureSign::ReclaimRetry) if sight.headroom < marks.release => {
            return PressureLevel::Emergency;
        }
        Some(PressureSign::DirectReclaim) if sight.room < marks.release => return PressureLevel::Emergency,
        Some(PressureSign::KswapdWoken) if sight.room < marks.arm => return PressureLevel::Widen,
        _ => {}
    }
    if sight.room < marks.widen || within(urgent) {
        return PressureLevel::Widen;
    }
    let near = sight.room < marks.arm || within(marks.arm_before) || sign.is_some();
    let still = before > PressureLevel::Calm
        && (sight.room < marks.release || within(marks.arm_before.saturating_mul(2)));
    if near || still { PressureLevel::Armed } else { PressureLevel::Calm }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const GIB: u64 = 1 << 30;

    fn sight(room_percent: u64, rate: u64) -> NodeSetHeadroom {
        let capacity = 100 * GIB;
        NodeSetHeadroom { headroom: room_percent * GIB, room: room_percent * GIB, capacity, rate }
    }

    /// 4, 8 and 16 GiB.
    fn marks() -> PressureMarks {
        PressureMarks::of(&WideningSettings::default(), 100 * GIB)
    }

    #[test]
    fn stages_follow_room_and_time() {
        use PressureLevel::{Armed, Calm, Emergency, Widen};
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
            (Calm, 50, 0, Some(PressureSign::KswapdWoken), Armed),
            (Calm, 7, 0, Some(PressureSign::KswapdWoken), Widen),
            (Calm, 50, 0, Some(PressureSign::DirectReclaim), Armed),
            (Calm, 15, 0, Some(PressureSign::DirectReclaim), Emergency),
            (Calm, 15, 0, Some(PressureSign::ReclaimRetry), Emergency),
            // Free memory that it may use and does not is no shortage of nodes: the task is bound to some of
            // them.
            (Calm, 50, 0, Some(PressureSign::ReclaimRetry), Armed),
        ] {
            let found = stage(before, &sight(room, gib_per_s * GIB), marks(), 0, sign);
            assert_eq!(found, expected, "{before:?} {room} % {gib_per_s} GiB/s {sign:?}");
        }
    }

    #[test]
    fn what_reclaim_could_find_is_not_counted_on_when_it_is_tried_again() {
        let sight = NodeSetHeadroom { headroom: 2 * GIB, ..sight(50, 0) };
        let after = |sign| stage(PressureLevel::Calm, &sight, marks(), 0, Some(sign));
        assert_eq!(
            (after(PressureSign::DirectReclaim), after(PressureSign::ReclaimRetry)),
            (PressureLevel::Armed, PressureLevel::Emergency)
        );
    }

    #[test]
    fn slow_writes_widen_earlier_but_not_before_it_is_armed() {
        let of = |write_ns| stage(PressureLevel::Calm, &sight(50, 40 * GIB), marks(), write_ns, None);
        assert_eq!(of(SECOND / 100), PressureLevel::Armed);
        assert_eq!(of(SECOND / 5), PressureLevel::Widen);
        assert_eq!(
            stage(PressureLevel::Calm, &sight(50, 10 * GIB), marks(), u64::MAX, None),
            PressureLevel::Calm
        );
    }

    #[test]
    fn after_a_kill_a_node_is_added_earlier_and_there_is_an_end_to_that() {
        let of = |times| marks().raised(times, 100 * GIB);
        assert_eq!((of(1).widen, of(1).arm, of(1).release), (6 * GIB, 12 * GIB, 24 * GIB));
        assert_eq!((of(2).widen, of(9).widen, of(9).release), (9 * GIB, of(3).widen, 50 * GIB));
        let sight = sight(50, 80 * GIB);
        let after = |times| stage(PressureLevel::Calm, &sight, of(times), 0, None);
        assert_eq!((after(0), after(1)), (PressureLevel::Armed, PressureLevel::Widen), "and earlier in time");
    }

    #[test]
    fn a_small_node_is_noticed_by_its_amount() {
        let small = PressureMarks::of(&WideningSettings::default(), 512 << 20);
        assert_eq!((small.widen, small.arm, small.release), (64 << 20, 96 << 20, 128 << 20));
    }

    proptest! {
        #[test]
        fn marks_ascend(capacity in any::<u64>(), least in 1u64..1 << 40) {
            let settings = WideningSettings {
                min_headroom: crate::policy::ByteSize(least),
                ..WideningSettings::default()
            };
            let PressureMarks { widen, arm, release, .. } = PressureMarks::of(&settings, capacity);
            prop_assert!(widen >= least && widen <= arm && arm <= release);
            let mut before = PressureMarks::of(&settings, capacity);
            for times in 1..6 {
                let now = PressureMarks::of(&settings, capacity).raised(times, capacity);
                prop_assert!(now.widen >= before.widen && now.widen <= now.arm && now.arm <= now.release);
                prop_assert!(now.release <= before.release.max(capacity / 2));
                before = now;
            }
        }

        #[test]
        fn less_room_or_a_higher_rate_is_never_calmer(
            room in 0u64..1 << 36, less in 0u64..1 << 36, rate in 0u64..1 << 40, more in 0u64..1 << 40,
            before in prop_oneof![Just(PressureLevel::Calm), Just(PressureLevel::Armed), Just(PressureLevel::Widen)],
        ) {
            let of = |room, rate| {
                let sight = NodeSetHeadroom { headroom: room, room, capacity: 100 * GIB, rate };
                stage(before, &sight, marks(), 0, None)
            };
            prop_assert!(of(room.saturating_sub(less), rate + more) >= of(room, rate));
        }
    }
}
