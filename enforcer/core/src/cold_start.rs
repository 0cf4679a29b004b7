//! End of a start on slow memory.
//!
//! Problem: a container that starts on slow memory should get fast memory once its seldom used pages are
//! written and lie on the slow node. A fixed time is a guess: a quicker start pays for slow memory until it
//! is up, and one that needs more than the slow memory ends with the OOM killer.
//!
//! Idea: the first of several signs ends the start: its time is up; the container reports that it is ready;
//! its memory has stopped growing; hinting faults show that it keeps reading pages on slow memory; or the
//! slow memory runs short. The end is [`finish_cold_start`]: nodes are added and none is taken away, so no
//! page moves.
//!
//! Terminology. A *cold start* is described by the grant ([`numa_placement::ColdStart`]): its end, and the
//! nodes after it. Fast memory is *wanted* when hinting faults cover a tenth of the container's memory in a
//! second, twice in succession: a program that fills its memory touches every page once, and that is no sign.
//! A runtime's own process in the container may have been larger than the program is for a while, so growth
//! counts from where memory has fallen to less than half.
//!
//! Invariant: an unknown figure does not end a start. The begin time is in the grant, which outlives the
//! daemon; the observations here do not, and losing them costs a few turns. Cost: constant for each container
//! that is starting.

use std::{collections::BTreeMap, fmt, time::Duration};

use numa_placement::{Allocations, Grant, Holder, Update, finish_cold_start};

/// Time in ns within which memory must grow by a hundredth to count as growing.
const STILL_NS: u64 = 5_000_000_000;
/// Time in ns before which growth is not judged: a program that waits for its first request does not grow
/// either.
const EARLIEST_NS: u64 = 10_000_000_000;
/// Slow memory is short when less than one byte in so many is free: 8 %.
const SHORT: (u64, u64) = (8, 100);
/// Part of its memory that hinting faults must cover in a second: a tenth.
const WANTED: u64 = 10;
/// Successive looks that must show it.
const WANTED_LOOKS: u32 = 2;

/// Reason for the end of a cold start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ColdStartEnd {
    /// Its time is up.
    Time,
    /// It has reported that it is ready.
    Ready,
    /// Its memory has stopped growing.
    Still,
    /// It keeps touching its memory.
    Wanted,
    /// The slow memory runs short.
    Short,
}

impl fmt::Display for ColdStartEnd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Time => "its time is up",
            Self::Ready => "it has said that it is ready",
            Self::Still => "its memory has stopped growing",
            Self::Wanted => "it keeps touching what it has",
            Self::Short => "less than 8 % of the slow memory is free",
        })
    }
}

/// Figures of a starting container; absent ones are unknown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ColdStartLook {
    /// It has reported that it is ready.
    pub is_ready: bool,
    /// Its memory in bytes.
    pub resident_bytes: Option<u64>,
    /// Bytes that hinting faults covered in the latest second.
    pub touched_bytes_per_second: Option<u64>,
    /// Free and total bytes of its present nodes.
    pub slow: Option<(u64, u64)>,
}

/// Observations of all starting containers.
#[derive(Debug, Clone, Default)]
pub struct ColdStarts(BTreeMap<Holder, ColdStartProgress>);

#[derive(Debug, Clone, Default)]
struct ColdStartProgress {
    /// Last time at which its memory had grown, or had fallen to less than half, and its size then.
    grown: Option<(u64, u64)>,
    wanted: u32,
}

/// A cold start that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedColdStart {
    /// Holder of the grant.
    pub update: Update,
    /// Reason of the end.
    pub why: ColdStartEnd,
}

impl ColdStarts {
    /// Was no container starting at the latest look?
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks at all starting containers, at `now_ns` of a clock that continues over daemon restarts. Returns
    /// the starts that are over; and true if grants have changed, including a recorded begin.
    pub fn turn(
        &mut self,
        allocations: &mut Allocations,
        look: impl Fn(&Holder, &Grant) -> ColdStartLook,
        now_ns: u64,
    ) -> (Vec<EndedColdStart>, bool) {
        let starting = allocations.iter().filter(|(_, grant)| grant.cold_start.is_some());
        let starting: Vec<(Holder, Grant)> =
            starting.map(|(holder, grant)| (holder.clone(), grant.clone())).collect();
        self.0.retain(|holder, _| starting.iter().any(|(other, _)| other == holder));
        let (mut ended, mut changed) = (Vec::new(), false);
        for (holder, mut grant) in starting {
            let Some(start) = &mut grant.cold_start else { continue };
            let Some(began_ns) = start.began_ns.filter(|began_ns| *began_ns <= now_ns) else {
                start.began_ns = Some(now_ns);
                allocations.give(holder, grant);
                changed = true;
                continue;
            };
            let after = start.after;
            let course = self.0.entry(holder.clone()).or_default();
            let Some(why) = course.over(after, &look(&holder, &grant), began_ns, now_ns) else { continue };
            self.0.remove(&holder);
            if let Some(update) = finish_cold_start(allocations, &holder) {
                changed = true;
                ended.push(EndedColdStart { update, why });
            }
        }
        (ended, changed)
    }
}

impl ColdStartProgress {
    fn over(
        &mut self,
        after: Duration,
        look: &ColdStartLook,
        began_ns: u64,
        now_ns: u64,
    ) -> Option<ColdStartEnd> {
        let age = now_ns - began_ns;
        let after = u64::try_from(after.as_nanos()).unwrap_or(u64::MAX);
        let is_short = look.slow.is_some_and(|(free, all)| {
            u128::from(free) * u128::from(SHORT.1) < u128::from(all) * u128::from(SHORT.0)
        });
        let is_still = self.is_still(look, now_ns) && age >= EARLIEST_NS;
        let is_wanted = self.is_wanted(look);
        [
            (age >= after, ColdStartEnd::Time),
            (is_short, ColdStartEnd::Short),
            (look.is_ready, ColdStartEnd::Ready),
            (is_still, ColdStartEnd::Still),
            (is_wanted, ColdStartEnd::Wanted),
        ]
        .into_iter()
        .find_map(|(is_over, why)| is_over.then_some(why))
    }

    fn is_still(&mut self, look: &ColdStartLook, now_ns: u64) -> bool {
        let Some(bytes) = look.resident_bytes.filter(|bytes| *bytes > 0) else { return false };
        match self.grown {
            Some((then_ns, before))
                if bytes >= before / 2 && bytes <= before.saturating_add(before / 100) =>
            {
                now_ns.saturating_sub(then_ns) >= STILL_NS
            }
            _ => {
                self.grown = Some((now_ns, bytes));
                false
            }
        }
    }

    fn is_wanted(&mut self, look: &ColdStartLook) -> bool {
        let touched = look.touched_bytes_per_second.zip(look.resident_bytes);
        let wanted = touched.is_some_and(|(touched, all)| all > 0 && touched >= all / WANTED);
        self.wanted = if wanted { self.wanted + 1 } else { 0 };
        self.wanted >= WANTED_LOOKS
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use numa_placement::{ColdStart, PodName};

    const SECOND: u64 = 1_000_000_000;
    const MIB: u64 = 1 << 20;

    fn holder() -> Holder {
        Holder::new(PodName::new("default", "p"), "c".into())
    }

    fn starting(after: u64) -> Allocations {
        let mut allocations = Allocations::default();
        let cold_start =
            ColdStart { after: Duration::from_secs(after), mems: "0".parse().unwrap(), began_ns: None };
        allocations.give(
            holder(),
            Grant {
                mems: "4".parse().unwrap(),
                cold_start: Some(cold_start),
                pin_mems: true,
                ..Grant::default()
            },
        );
        allocations
    }

    /// Second and reason of the end, with looks a second apart.
    fn course(after: u64, looks: impl Iterator<Item = ColdStartLook>) -> Option<(u64, ColdStartEnd)> {
        let (mut allocations, mut starts) = (starting(after), ColdStarts::default());
        looks.zip(100u64..).find_map(|(look, second)| {
            let (ended, _) = starts.turn(&mut allocations, |_, _| look, second * SECOND);
            let ended = ended.into_iter().next()?;
            assert_eq!(ended.update.mems.unwrap().to_string(), "0,4");
            assert_eq!(
                starts.turn(&mut allocations, |_, _| look, second * SECOND),
                (Vec::new(), false),
                "once"
            );
            Some((second - 100, ended.why))
        })
    }

    fn grows(second: u64) -> ColdStartLook {
        ColdStartLook { resident_bytes: Some((second + 1) * 10 * MIB), ..ColdStartLook::default() }
    }

    fn ends(after: u64, look: impl Fn(u64) -> ColdStartLook) -> Option<(u64, ColdStartEnd)> {
        course(after, (0..1000).map(look))
    }

    #[test]
    fn what_was_there_before_the_program_does_not_hide_that_it_grows() {
        let after = |runtime: u64, program: fn(u64) -> u64| {
            ends(60, |second| ColdStartLook {
                resident_bytes: Some(second.checked_sub(3).map_or(runtime, program) * MIB),
                ..ColdStartLook::default()
            })
        };
        assert_eq!(after(30, |second| 1 + second), Some((60, ColdStartEnd::Time)));
        // Memory that is given back and taken again is no growth.
        assert_eq!(after(30, |second| 20 + second % 2 * 10), Some((10, ColdStartEnd::Still)));
    }

    #[test]
    fn the_first_sign_ends_it() {
        assert_eq!(ends(60, grows), Some((60, ColdStartEnd::Time)));
        assert_eq!(
            ends(60, |_| ColdStartLook::default()),
            Some((60, ColdStartEnd::Time)),
            "nothing else is known"
        );
        let short = |second: u64| ColdStartLook { slow: Some((100 - second.min(100), 100)), ..grows(second) };
        assert_eq!(ends(600, short), Some((93, ColdStartEnd::Short)));
        let still = |second: u64| grows(second.min(20));
        assert_eq!(ends(600, still), Some((25, ColdStartEnd::Still)));
        let nothing = |_| ColdStartLook { resident_bytes: Some(0), ..ColdStartLook::default() };
        assert_eq!(ends(60, nothing), Some((60, ColdStartEnd::Time)), "nothing cannot have stopped growing");
        let at_once = |_| ColdStartLook { resident_bytes: Some(MIB), ..ColdStartLook::default() };
        assert_eq!(ends(60, at_once), Some((10, ColdStartEnd::Still)), "it may only wait to be asked");
        let says = |second: u64| ColdStartLook { is_ready: second >= 3, ..grows(second) };
        assert_eq!(ends(60, says), Some((3, ColdStartEnd::Ready)), "whatever its memory does");
        assert_eq!(ends(2, says), Some((2, ColdStartEnd::Time)));
    }

    #[test]
    fn to_fill_memory_is_not_to_want_it_elsewhere() {
        let touches = |second: u64, touched: u64| ColdStartLook {
            touched_bytes_per_second: Some(touched * MIB),
            ..ColdStartLook { resident_bytes: Some((100 + second * 10) * MIB), ..ColdStartLook::default() }
        };
        assert_eq!(ends(50, |second| touches(second, 9)), Some((50, ColdStartEnd::Time)));
        let wanted = |second: u64| touches(second, if second == 12 || second > 14 { 90 } else { 0 });
        assert_eq!(ends(600, wanted), Some((16, ColdStartEnd::Wanted)), "not at the first time");
    }

    #[test]
    fn beginning_outlives_its_watcher() {
        let mut allocations = starting(60);
        let nothing = |_: &Holder, _: &Grant| ColdStartLook::default();
        let turn = |allocations: &mut Allocations, second: u64| {
            ColdStarts::default().turn(allocations, nothing, second * SECOND)
        };
        assert_eq!(turn(&mut allocations, 100), (Vec::new(), true));
        assert_eq!(turn(&mut allocations, 159), (Vec::new(), false));
        let (ended, changed) = turn(&mut allocations, 160);
        assert_eq!((ended.len(), changed), (1, true));
        // The clock has begun anew since: so does the time.
        let mut allocations = starting(60);
        turn(&mut allocations, 100);
        assert_eq!(turn(&mut allocations, 5), (Vec::new(), true));
        assert_eq!(turn(&mut allocations, 65).0.len(), 1);
    }

    proptest! {
        /// Every start ends, at the latest when its time is up, and never without a sign.
        #[test]
        fn it_ends_once_and_in_time(
            after in 1u64..100,
            looks in prop::collection::vec(
                (prop::bool::weighted(0.01), prop::option::of(0u64..1 << 40), prop::option::of(0u64..1 << 40),
                 prop::option::of((0u64..1 << 40, 0u64..1 << 40))),
                100..101,
            ),
        ) {
            let looks = looks.into_iter().map(|(is_ready, resident_bytes, touched_bytes_per_second, slow)| {
                ColdStartLook { is_ready, resident_bytes, touched_bytes_per_second, slow }
            });
            let (second, why) = course(after, looks).unwrap();
            prop_assert!(second <= after && (why != ColdStartEnd::Time || second == after));
        }
    }
}
