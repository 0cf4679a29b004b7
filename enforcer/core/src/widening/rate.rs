//! How fast a node fills up.
//!
//! Problem: one difference of two looks is noise, and an average over a second is too slow for a process that
//! fills a node within one. Idea: two averages that forget exponentially, over 100 ms and over 1 s. The
//! caller takes the larger one, so a burst counts at once, and a pause within it does not look like its end.
//!
//! Terminology. The *rate* is that at which room ([`super::NodeRoom::available`]) goes away, in bytes per
//! second; it is negative while a node empties. Whole numbers throughout: the same looks give the same rates
//! on every machine.

/// Nanoseconds of a second.
const SECOND: i128 = 1_000_000_000;
/// Times after which the two averages have forgotten most, in ns.
const QUICK: i128 = SECOND / 10;
const SLOW: i128 = SECOND;

/// Rate of a node.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Rate {
    before: Option<(u64, u64)>,
    quick: i64,
    slow: i64,
}

impl Rate {
    /// Records the room at this time, in ns. A time that is not after the last one is ignored.
    pub fn note(&mut self, now_ns: u64, room: u64) {
        let before = self.before.filter(|(at, _)| *at < now_ns);
        if before.is_none() && self.before.is_some() {
            return;
        }
        self.before = Some((now_ns, room));
        let Some((at, had)) = before else { return };
        let passed = i128::from(now_ns - at);
        let went = (i128::from(had) - i128::from(room)) * SECOND / passed;
        self.quick = blend(self.quick, went, passed, QUICK);
        self.slow = blend(self.slow, went, passed, SLOW);
    }

    /// The averages over 100 ms and over 1 s, in bytes per second.
    pub fn averages(&self) -> (i64, i64) {
        (self.quick, self.slow)
    }
}

fn blend(before: i64, now: i128, passed: i128, forgets_in: i128) -> i64 {
    let before = i128::from(before);
    let blended = before + (now - before) * passed / (passed + forgets_in);
    i64::try_from(blended).unwrap_or(if blended < 0 { i64::MIN } else { i64::MAX })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MIB: u64 = 1 << 20;

    /// The averages after looks every `every_ms` while `mib_per_s` go away, for `for_ms`.
    fn after(every_ms: u64, mib_per_s: u64, for_ms: u64) -> (i64, i64) {
        let mut rate = Rate::default();
        for at in (0..=for_ms).step_by(usize::try_from(every_ms).unwrap()) {
            rate.note(at * 1_000_000, 1000 * MIB - mib_per_s * MIB * at / 1000);
        }
        rate.averages()
    }

    #[test]
    fn a_burst_is_seen_at_once_and_a_trend_within_seconds() {
        let mib = i64::try_from(MIB).unwrap();
        let (quick, slow) = after(5, 100, 200);
        assert!(quick > 80 * mib && slow < 25 * mib, "{quick} {slow}");
        let (quick, slow) = after(100, 100, 5_000);
        assert!(quick > 99 * mib && slow > 95 * mib, "{quick} {slow}");
        assert_eq!(after(100, 0, 1_000), (0, 0));
    }

    #[test]
    fn a_clock_that_stands_or_goes_back_changes_nothing() {
        let mut rate = Rate::default();
        rate.note(100, 1_000);
        rate.note(200, 900);
        let before = rate;
        rate.note(200, 0);
        rate.note(50, 0);
        assert_eq!(rate, before);
    }

    proptest! {
        #[test]
        fn averages_lie_between_the_extremes(
            looks in proptest::collection::vec((1u64..1_000_000_000, 0u64..1 << 45), 2..40),
        ) {
            let mut rate = Rate::default();
            let (mut at, mut had, mut least, mut most) = (0, None, 0i128, 0i128);
            for (passed, room) in looks {
                at += passed;
                rate.note(at, room);
                if let Some(had) = had.replace(room) {
                    let went = (i128::from(had) - i128::from(room)) * SECOND / i128::from(passed);
                    (least, most) = (least.min(went), most.max(went));
                }
                let (quick, slow) = rate.averages();
                for average in [quick, slow] {
                    let clamp = |value: i128| value.clamp(i64::MIN.into(), i64::MAX.into());
                    prop_assert!((clamp(least)..=clamp(most)).contains(&i128::from(average)));
                }
            }
        }
    }
}
