//! Decides when the next turn and the next look are due.
//!
//! Turns come at the configured interval. A requested turn comes at once, but at least [`APART`] after the
//! one before, however often others write; for misplaced tasks at most [`TURNS_FOR_MISPLACED`] come within an
//! interval. A look comes each [`LOOK`]. After a quiet look, if all events wake the daemon, the next comes
//! after [`QUIET_LOOK`], or with a turn due shortly before, which saves a wake-up. An event causes a look at
//! least [`LOOKS_APART`] after the one before.
//!
//! Invariant: this module reads no clock, waits for nothing and looks at nothing.
//! [`wait::next`](crate::wait::next) waits, the daemon looks.

use std::time::{Duration, Instant};

use crate::{engine::PolledEvents, wait::TurnDeadlines};

/// Interval of looks while there are events, or while some would not wake the daemon.
pub const LOOK: Duration = Duration::from_millis(250);

/// The same while all is quiet. Shorter if the supervisor wants signs of life more often.
pub const QUIET_LOOK: Duration = Duration::from_secs(10);

/// Least time between the begins of two requested turns, however often others write to cpusets that are ours.
const APART: Duration = Duration::from_millis(500);

/// Most turns for misplaced tasks within one interval, however often the kernel reports them.
const TURNS_FOR_MISPLACED: u32 = 4;

/// Least time between two looks.
const LOOKS_APART: Duration = Duration::from_millis(20);

/// State of the schedule.
#[derive(Debug, Clone, Copy)]
pub struct TurnSchedule {
    due: TurnDeadlines,
    /// Interval of quiet looks.
    quiet_look: Duration,
    /// Begin of the latest turn.
    begun: Instant,
    /// Earliest time of a turn for misplaced tasks.
    early: Instant,
    /// Earliest time of the next requested turn.
    wanted: Option<Instant>,
    /// The due turn was requested, so it runs even on an idle host.
    is_wanted: bool,
    /// Time of the latest look.
    looked: Instant,
    since: Since,
}

/// What happened since the latest turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    /// Nothing yet. Events of the turn's own writes may still come; they cause no look.
    Turned,
    /// An event came, and a look is due.
    Requested,
    /// A look was taken.
    Looked { quiet: bool },
}

impl TurnSchedule {
    /// A new daemon: the first turn is due.
    pub fn begin(now: Instant, quiet_look: Duration) -> Self {
        let due = TurnDeadlines { turn: now, look: now + LOOK };
        Self {
            due,
            quiet_look,
            begun: now,
            early: now,
            wanted: None,
            is_wanted: true,
            looked: now,
            since: Since::Turned,
        }
    }

    /// Times of the next turn and the next look.
    pub fn due(&self) -> TurnDeadlines {
        self.due
    }

    /// Whether events wake the daemon; not while a look is due already.
    pub fn hears(&self) -> bool {
        self.since != Since::Requested
    }

    /// Whether cpuset writes wake the daemon.
    pub fn hears_writes(&self) -> bool {
        matches!(self.since, Since::Looked { .. })
    }

    /// Whether counted events wake the daemon. If each look finds some, the looks bound their cost.
    pub fn hears_events(&self) -> bool {
        self.since == Since::Looked { quiet: true }
    }

    /// Time since the latest turn if the due one was not requested: then it may be skipped.
    pub fn unwanted(&self, now: Instant) -> Option<Duration> {
        (!self.is_wanted).then(|| now.saturating_duration_since(self.begun))
    }

    /// Requests a turn.
    pub fn want(&mut self, now: Instant) {
        self.due.turn = now;
        self.is_wanted = true;
    }

    /// Notes an event to look at.
    pub fn turn_requested(&mut self) {
        self.since = Since::Requested;
        self.due.look = self.due.look.min(self.looked + LOOKS_APART);
    }

    /// Notes a look from `begun` to `now` and its result. `wakes` tells whether events wake the daemon.
    pub fn polled(&mut self, begun: Instant, now: Instant, seen: PolledEvents, wakes: bool) {
        self.looked = begun;
        if seen.wants_turn {
            let apart = self.wanted.map_or(begun, |wanted| begun.max(wanted + APART));
            self.due.turn = self.due.turn.min(apart);
            self.is_wanted = true;
        }
        if seen.misplaced {
            self.due.turn = self.due.turn.min(begun.max(self.early));
            self.is_wanted = true;
        }
        let quiet = seen.is_quiet && wakes;
        self.since = Since::Looked { quiet };
        self.due.look = now + if quiet { self.quiet_look } else { LOOK };
        if quiet && (now + self.quiet_look / 2..self.due.look).contains(&self.due.turn) {
            self.due.look = self.due.turn;
        }
    }

    /// Notes a turn from `begun` to `now`. Later events are reported again.
    pub fn turned(&mut self, begun: Instant, now: Instant, interval: Duration) {
        *self = Self {
            due: TurnDeadlines { turn: begun + interval, look: now + LOOK },
            quiet_look: self.quiet_look,
            begun,
            early: begun + interval / TURNS_FOR_MISPLACED,
            wanted: if self.is_wanted { Some(begun) } else { self.wanted },
            is_wanted: false,
            looked: self.looked,
            since: Since::Turned,
        };
    }

    /// Notes that the due turn was skipped.
    pub fn left_out(&mut self, now: Instant, interval: Duration) {
        self.due.turn = now + interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);
    const MS: Duration = Duration::from_millis(1);
    const NOTHING: PolledEvents = PolledEvents { wants_turn: false, misplaced: false, is_quiet: true };
    const EVENTS: PolledEvents = PolledEvents { wants_turn: false, misplaced: false, is_quiet: false };
    const WANTS: PolledEvents = PolledEvents { wants_turn: true, misplaced: false, is_quiet: false };
    const MISPLACED: PolledEvents = PolledEvents { wants_turn: false, misplaced: true, is_quiet: false };

    /// After a first turn that took no time.
    fn settled() -> (Instant, TurnSchedule) {
        let now = Instant::now();
        let mut pace = TurnSchedule::begin(now, QUIET_LOOK);
        assert_eq!(
            (pace.due().turn, pace.unwanted(now)),
            (now, None),
            "the first is due, and never left out"
        );
        pace.turned(now, now, INTERVAL);
        (now, pace)
    }

    #[test]
    fn looks_are_rare_while_all_is_quiet_and_what_comes_is_heard() {
        let (start, mut pace) = settled();
        let begun = start + INTERVAL;
        pace.left_out(begun, 2 * INTERVAL);
        for (seen, wakes, next, events) in
            [(NOTHING, true, QUIET_LOOK, true), (EVENTS, true, LOOK, false), (NOTHING, false, LOOK, false)]
        {
            let now = begun + MS;
            pace.polled(now, now + MS, seen, wakes);
            assert_eq!(
                pace.due(),
                TurnDeadlines { turn: begun + 2 * INTERVAL, look: now + MS + next },
                "{seen:?}"
            );
            assert_eq!((pace.hears(), pace.hears_writes(), pace.hears_events()), (true, true, events));
        }
    }

    #[test]
    fn shorter_watchdog_interval_shortens_quiet_looks() {
        let now = Instant::now();
        let mut pace = TurnSchedule::begin(now, 4 * LOOK);
        pace.turned(now, now, INTERVAL);
        pace.polled(now, now, NOTHING, true);
        assert_eq!(pace.due(), TurnDeadlines { turn: now + INTERVAL, look: now + 4 * LOOK });
    }

    #[test]
    fn a_quiet_look_goes_with_a_turn_that_is_due_shortly_before_it() {
        for (turn, look) in [
            (INTERVAL, INTERVAL),
            (QUIET_LOOK / 2, QUIET_LOOK / 2),
            // Events once a second do not shorten the interval.
            (QUIET_LOOK * 49 / 100, QUIET_LOOK),
            (QUIET_LOOK + MS, QUIET_LOOK),
        ] {
            let now = Instant::now();
            let mut pace = TurnSchedule::begin(now, QUIET_LOOK);
            pace.turned(now, now, turn);
            pace.polled(now, now, NOTHING, true);
            assert_eq!(pace.due(), TurnDeadlines { turn: now + turn, look: now + look }, "{turn:?}");
        }
        let (start, mut pace) = settled();
        pace.polled(start + LOOK, start + LOOK, EVENTS, true);
        assert_eq!(pace.due().look, start + 2 * LOOK, "what is not quiet is looked at again soon");
        pace.polled(start + LOOK, start + LOOK, NOTHING, true);
        // The turn goes first, and the look comes without another wake-up.
        let due = start + INTERVAL;
        assert_eq!(pace.due(), TurnDeadlines { turn: due, look: due });
        pace.left_out(due, INTERVAL);
        assert_eq!(pace.due(), TurnDeadlines { turn: due + INTERVAL, look: due });
        pace.polled(due + MS, due + 2 * MS, NOTHING, true);
        assert_eq!(pace.due(), TurnDeadlines { turn: due + INTERVAL, look: due + INTERVAL });
    }

    #[test]
    fn what_is_told_is_looked_at_once_and_soon() {
        let (start, mut pace) = settled();
        let now = start + 100 * MS;
        pace.polled(now, now, NOTHING, true);
        pace.turn_requested();
        assert_eq!(pace.due().look, now + LOOKS_APART);
        assert!(!pace.hears() && !pace.hears_writes() && !pace.hears_events());
        // A repeated event makes it neither earlier nor later.
        pace.turn_requested();
        assert_eq!(pace.due().look, now + LOOKS_APART);
    }

    #[test]
    fn what_a_turn_writes_itself_is_not_heard() {
        let (start, mut pace) = settled();
        assert!(pace.hears() && !pace.hears_writes() && !pace.hears_events());
        pace.polled(start + LOOK, start + LOOK, NOTHING, true);
        assert!(pace.hears_writes());
        pace.turned(start + INTERVAL, start + INTERVAL + MS, INTERVAL);
        assert!(!pace.hears_writes());
        assert_eq!(
            pace.due(),
            TurnDeadlines { turn: start + 2 * INTERVAL, look: start + INTERVAL + MS + LOOK }
        );
    }

    #[test]
    fn requested_turns_come_at_once_but_apart() {
        let (start, mut pace) = settled();
        // The first turn was requested, too.
        pace.polled(start + 100 * MS, start + 101 * MS, WANTS, true);
        assert_eq!(pace.due().turn, start + APART);
        let now = start + APART;
        assert_eq!(pace.unwanted(now), None);
        pace.turned(now, now + MS, INTERVAL);
        assert_eq!(pace.unwanted(now + INTERVAL), Some(INTERVAL));
        let later = now + 2 * APART;
        pace.polled(later, later + MS, WANTS, true);
        assert_eq!(pace.due().turn, later);
        // A regular turn is not put off.
        let (start, mut pace) = settled();
        pace.turned(start, start, 100 * MS);
        pace.polled(start + 90 * MS, start + 91 * MS, WANTS, true);
        assert_eq!(pace.due().turn, start + 100 * MS);
    }

    #[test]
    fn misplaced_tasks_bring_a_turn_forward_but_few_of_them() {
        let (start, mut pace) = settled();
        pace.polled(start + LOOK, start + LOOK, MISPLACED, true);
        let early = start + INTERVAL / TURNS_FOR_MISPLACED;
        assert_eq!((pace.due().turn, pace.unwanted(early)), (early, None));
        pace.turned(early, early, INTERVAL);
        pace.polled(early + LOOK, early + LOOK, MISPLACED, true);
        assert_eq!(pace.due().turn, early + INTERVAL / TURNS_FOR_MISPLACED);
        // A turn skipped long ago does not delay it.
        let (start, mut pace) = settled();
        pace.left_out(start + INTERVAL, INTERVAL);
        let now = start + INTERVAL + LOOK;
        pace.polled(now, now, MISPLACED, true);
        assert_eq!(pace.due().turn, now);
    }

    #[test]
    fn a_turn_that_is_left_out_is_due_again_an_interval_later() {
        let (start, mut pace) = settled();
        let now = start + INTERVAL;
        pace.left_out(now, INTERVAL);
        assert_eq!(pace.due().turn, now + INTERVAL);
        assert_eq!(pace.unwanted(now + INTERVAL), Some(2 * INTERVAL), "it is the time since the latest one");
        pace.want(now + MS);
        assert_eq!((pace.due().turn, pace.unwanted(now + MS)), (now + MS, None));
    }
}
