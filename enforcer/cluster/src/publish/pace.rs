//! When a changed object is written: the rate limit of one publisher, as a pure state machine.
//!
//! Problem: thousands of nodes write to one API server. Each write costs a commit and a message to every
//! watcher, and a burst of pods on a node is one change for a reader.
//!
//! Idea: changes are gathered for a moment, writes keep a distance, and a token bucket bounds their rate for
//! all time. A failed write is repeated with the newest state, ever more rarely.
//!
//! Invariants: of the writes that reach a server, at most `burst` plus one for each `refill` begin in any
//! interval; two begin at least `spacing` apart; one is in flight. A change is written in the end, unless a
//! later one takes its place. Time is an argument: a duration since any fixed moment.

use std::time::Duration;

use crate::backoff::Backoff;

/// Bounds of a publisher.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PaceLimits {
    /// Time in which changes are gathered into one write.
    pub debounce: Duration,
    /// Least time between the beginnings of two writes.
    pub spacing: Duration,
    /// Writes that may follow one another without waiting for the rate.
    pub burst: u32,
    /// Time in which one more write is earned.
    pub refill: Duration,
    /// First and longest time until a write is repeated that a server failed on.
    pub backoff: (Duration, Duration),
    /// Time until the next try while no server can be reached, which burdens none.
    pub unreachable: Duration,
    /// Time until a write is repeated that a server refused for a reason that time alone does not change.
    pub refused: Duration,
}

impl Default for PaceLimits {
    /// 100 ms, 500 ms, 3 writes, 0.2 writes/s, 1 to 30 s, 1 s, 60 s.
    fn default() -> Self {
        Self {
            debounce: Duration::from_millis(100),
            spacing: Duration::from_millis(500),
            burst: 3,
            refill: Duration::from_secs(5),
            backoff: (Duration::from_secs(1), Duration::from_secs(30)),
            unreachable: Duration::from_secs(1),
            refused: Duration::from_mins(1),
        }
    }
}

/// How a write ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WriteEnd {
    /// The object is as it was to be.
    Written,
    /// No server was reached.
    Unreachable,
    /// The server failed, or asked to come back after a time.
    Busy(Option<Duration>),
    /// The server refused it.
    Refused,
}

/// When to write. See the module.
#[derive(Debug, Clone)]
pub struct Pace {
    limits: PaceLimits,
    /// The earliest change that no successful write contains.
    changed_at: Option<Duration>,
    /// Not before this: jitter, and what failures ask for.
    not_before: Duration,
    /// Not before this, as the server asked.
    asked_for: Duration,
    /// When the bucket is full again.
    full_at: Duration,
    last_begin: Option<Duration>,
    in_flight: Option<InFlightWrite>,
    /// Of failures of the server in sequence.
    backoff: Backoff,
}

/// What a failed write restores.
#[derive(Debug, Clone, Copy)]
struct InFlightWrite {
    changed_at: Duration,
    full_at: Duration,
}

impl Pace {
    /// Nothing to write, and no write before `first`.
    pub fn new(limits: PaceLimits, first: Duration) -> Self {
        Self {
            backoff: Backoff::new(limits.backoff),
            limits,
            changed_at: None,
            not_before: first,
            asked_for: first,
            full_at: Duration::ZERO,
            last_begin: None,
            in_flight: None,
        }
    }

    /// Notes a change; also one that a write in flight does not contain.
    pub fn change(&mut self, now: Duration) {
        self.changed_at.get_or_insert(now);
    }

    /// Notes that there is nothing to write any more.
    pub fn withdraw(&mut self) {
        self.changed_at = None;
    }

    /// The earliest change that no successful write contains.
    pub fn waits_since(&self) -> Option<Duration> {
        let in_flight = self.in_flight.map(|write| write.changed_at);
        [in_flight, self.changed_at].into_iter().flatten().min()
    }

    /// Ends a wait at this time, but one that the server asked for.
    pub fn hasten(&mut self, at: Duration) {
        self.not_before = self.not_before.min(at.max(self.asked_for));
    }

    /// When the next write may begin. `None` while there is nothing to write, or one is in flight.
    pub fn due(&self) -> Option<Duration> {
        let changed_at = self.changed_at.filter(|_| self.in_flight.is_none())?;
        let spaced = self.last_begin.map_or(Duration::ZERO, |last| last + self.limits.spacing);
        let saved = self.limits.refill * self.limits.burst.saturating_sub(1);
        let earned = self.full_at.saturating_sub(saved);
        Some((changed_at + self.limits.debounce).max(self.not_before).max(spaced).max(earned))
    }

    /// Begins a write of the newest state, if one is due; whether it is.
    pub fn begin(&mut self, now: Duration) -> bool {
        let Some(changed_at) = self.changed_at.filter(|_| self.due().is_some_and(|due| due <= now)) else {
            return false;
        };
        self.in_flight = Some(InFlightWrite { changed_at, full_at: self.full_at });
        self.changed_at = None;
        self.last_begin = Some(now);
        self.full_at = self.full_at.max(now) + self.limits.refill;
        true
    }

    /// Notes the end of the write in flight.
    pub fn end(&mut self, now: Duration, end: WriteEnd) {
        let Some(write) = self.in_flight.take() else { return };
        if end == WriteEnd::Written {
            self.backoff.reset();
            return;
        }
        self.changed_at = Some(write.changed_at);
        let wait = match end {
            WriteEnd::Written => Duration::ZERO,
            WriteEnd::Unreachable => {
                self.full_at = write.full_at;
                self.limits.unreachable
            }
            WriteEnd::Busy(asked) => self.backoff.next_wait().max(asked.unwrap_or_default()),
            WriteEnd::Refused => self.limits.refused,
        };
        self.not_before = now + wait;
        self.asked_for = match end {
            WriteEnd::Busy(Some(asked)) => now + asked,
            _ => now,
        };
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const fn ms(milliseconds: u64) -> Duration {
        Duration::from_millis(milliseconds)
    }

    fn paced(first: Duration) -> Pace {
        Pace::new(PaceLimits::default(), first)
    }

    /// Writes as soon as it is due; when that was.
    fn write(pace: &mut Pace, end: WriteEnd) -> Duration {
        let due = pace.due().unwrap();
        assert!(pace.begin(due));
        pace.end(due, end);
        due
    }

    #[test]
    fn changes_of_a_moment_are_one_write() {
        let mut pace = paced(ms(0));
        assert_eq!(pace.due(), None);
        pace.change(ms(1000));
        pace.change(ms(1090));
        assert!(!pace.begin(ms(1099)));
        assert_eq!(write(&mut pace, WriteEnd::Written), ms(1100));
        assert_eq!(pace.due(), None);
    }

    #[test]
    fn burst_is_spaced_and_then_the_rate_holds() {
        let mut pace = paced(ms(0));
        let begun = [(); 5].map(|()| {
            pace.change(ms(0));
            write(&mut pace, WriteEnd::Written)
        });
        assert_eq!(begun, [ms(100), ms(600), ms(1100), ms(5100), ms(10_100)]);
    }

    #[test]
    fn wait_after_a_failure_ends_early_and_never_before_the_time_that_the_server_asked_for() {
        let mut pace = paced(ms(0));
        pace.change(ms(0));
        for _ in 0..4 {
            write(&mut pace, WriteEnd::Busy(None));
        }
        // Failures at 0.1, 1.1, 3.1 and 7.1 s.
        assert_eq!(pace.due(), Some(ms(15_100)));
        pace.hasten(ms(12_000));
        assert_eq!(pace.due(), Some(ms(12_000)));
        pace.hasten(ms(14_000));
        assert_eq!(pace.due(), Some(ms(12_000)), "it only ends waits");
        assert!(pace.begin(ms(12_000)));
        pace.end(ms(12_000), WriteEnd::Busy(Some(ms(9_000))));
        pace.hasten(ms(13_000));
        assert_eq!(pace.due(), Some(ms(21_000)));
        assert_eq!(pace.waits_since(), Some(ms(0)));
    }

    #[test]
    fn first_write_waits_for_the_jitter() {
        let mut pace = paced(ms(7000));
        pace.change(ms(0));
        assert_eq!(pace.due(), Some(ms(7000)));
    }

    #[test]
    fn failures_are_repeated_ever_more_rarely_and_as_the_server_asks() {
        let limits = PaceLimits { burst: 100, ..PaceLimits::default() };
        let mut pace = Pace::new(limits, ms(0));
        pace.change(ms(0));
        let mut last = write(&mut pace, WriteEnd::Busy(None));
        for waits in [1000, 2000, 4000, 8000, 16_000, 30_000, 30_000] {
            let begun = write(&mut pace, WriteEnd::Busy(None));
            assert_eq!(begun, last + ms(waits));
            last = begun;
        }
        write(&mut pace, WriteEnd::Written);
        pace.change(ms(200_000));
        let begun = write(&mut pace, WriteEnd::Busy(Some(ms(45_000))));
        assert_eq!(pace.due(), Some(begun + ms(45_000)));
    }

    #[test]
    fn change_during_a_write_is_written_after_it() {
        let mut pace = paced(ms(0));
        pace.change(ms(0));
        assert!(pace.begin(ms(100)));
        pace.change(ms(150));
        assert_eq!(pace.due(), None, "one is in flight");
        pace.end(ms(300), WriteEnd::Written);
        assert_eq!(pace.due(), Some(ms(600)));
    }

    fn ends() -> impl Strategy<Value = WriteEnd> {
        prop_oneof![
            4 => Just(WriteEnd::Written),
            1 => Just(WriteEnd::Unreachable),
            1 => proptest::option::of(0_u64..60_000).prop_map(|asked| WriteEnd::Busy(asked.map(ms))),
            1 => Just(WriteEnd::Refused),
        ]
    }

    proptest! {
        /// Changes come, writes take a time and end as they like; in the end the server works.
        #[test]
        fn writes_stay_within_the_bucket_and_the_newest_state_is_written(
            changes in proptest::collection::vec(0_u64..4000, 1..60),
            writes in proptest::collection::vec((0_u64..3000, ends()), 60),
            first in 0_u64..30_000,
        ) {
            let limits = PaceLimits::default();
            let mut pace = Pace::new(limits, ms(first));
            let mut changes = changes.into_iter().scan(ms(0), |at, wait| {
                *at += ms(wait);
                Some(*at)
            }).peekable();
            let mut writes = writes.into_iter();
            let (mut newest, mut stored, mut carried) = (0_u32, 0_u32, 0_u32);
            let mut running: Option<(Duration, Duration, WriteEnd)> = None;
            let (mut begun, mut reached) = (Vec::new(), Vec::new());
            let mut clock = ms(0);
            loop {
                let candidates = [changes.peek().copied(), running.map(|(_, end, _)| end), pace.due()];
                let Some(next) = candidates.into_iter().flatten().min() else { break };
                let now = next.max(clock);
                clock = now;
                if let Some((begin, end, how)) = running.filter(|(_, end, _)| *end <= now) {
                    running = None;
                    pace.end(end, how);
                    if how != WriteEnd::Unreachable {
                        reached.push(begin);
                    }
                    if how == WriteEnd::Written {
                        stored = carried;
                    }
                } else if changes.next_if(|at| *at <= now).is_some() {
                    newest += 1;
                    pace.change(now);
                } else if pace.begin(now) {
                    prop_assert!(now >= ms(first) && running.is_none());
                    begun.push(now);
                    carried = newest;
                    let (takes, how) = writes.next().unwrap_or((0, WriteEnd::Written));
                    running = Some((now, now + ms(takes), how));
                } else {
                    prop_assert!(false, "due, and does not begin");
                }
            }
            prop_assert_eq!(stored, newest, "the newest state is written in the end");
            for pair in begun.windows(2) {
                prop_assert!(pair[1] >= pair[0] + limits.spacing);
            }
            for (index, from) in reached.iter().enumerate() {
                for (count, to) in (1_u32..).zip(&reached[index..]) {
                    let beyond = count.saturating_sub(limits.burst);
                    prop_assert!(*to >= *from + limits.refill * beyond, "{} from {:?} to {:?}", count, from, to);
                }
            }
        }
    }
}
