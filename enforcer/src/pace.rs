//! When the next turn is due, and the next look between two turns, by what was seen and told until now.
//!
//! Turns come at the configured interval. One that somebody wants comes at once, but no two of these within
//! [`APART`], however often others write; for misplaced tasks at most [`TURNS_FOR_MISPLACED`] come within an
//! interval. A look comes each [`LOOK`]; where nothing was to be seen and everything that may come tells of
//! itself, each [`QUIET_LOOK`], or with a turn that is due shortly before, which is one waking less; and when
//! something is told, but no two within [`LOOKS_APART`].
//!
//! Never: it reads a clock, waits, or looks itself. [`wait::next`](crate::wait::next) waits, the daemon
//! looks.

use std::time::{Duration, Instant};

use crate::{engine::Look, wait::Due};

/// Time between two looks while something is to be seen, or may come of which nothing tells.
pub const LOOK: Duration = Duration::from_millis(250);

/// The same while all is quiet, unless somebody wants to hear more often that the daemon is alive.
pub const QUIET_LOOK: Duration = Duration::from_secs(10);

/// Least time between the beginnings of two turns that somebody wants before they are due, however often
/// others write to cpusets that are ours to keep.
const APART: Duration = Duration::from_millis(500);

/// Turns for misplaced tasks within one interval, however often the kernel side tells of them.
const TURNS_FOR_MISPLACED: u32 = 4;

/// Least time between two looks, however much there is to look at.
const LOOKS_APART: Duration = Duration::from_millis(20);

/// What was decided about turns and looks, and what it was decided from.
#[derive(Debug, Clone, Copy)]
pub struct Pace {
    due: Due,
    /// Time between two looks while all is quiet.
    quiet_look: Duration,
    /// When the latest turn began.
    begun: Instant,
    /// Earliest time of a turn for misplaced tasks.
    early: Instant,
    /// The same of the latest that somebody wanted.
    wanted: Option<Instant>,
    /// Somebody wants the turn that is due, whether or not anything runs.
    is_wanted: bool,
    /// When the latest look was.
    looked: Instant,
    since: Since,
}

/// What happened since the latest turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Since {
    /// Nothing yet. What the turn wrote itself may be told of still, and is no news: the first look comes by
    /// itself.
    Turned,
    /// Something was told, and the look at it is due.
    Told,
    /// A look; was it quiet?
    Looked { quiet: bool },
}

impl Pace {
    /// Of a daemon that begins now: the first turn is due. Quiet looks are so far apart.
    pub fn begin(now: Instant, quiet_look: Duration) -> Self {
        let due = Due { turn: now, look: now + LOOK };
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

    /// When what is due.
    pub fn due(&self) -> Due {
        self.due
    }

    /// Is it heard when something is told? Not again while the look at it is due.
    pub fn hears(&self) -> bool {
        self.since != Since::Told
    }

    /// Is it heard when somebody writes a cpuset?
    pub fn hears_writes(&self) -> bool {
        matches!(self.since, Since::Looked { .. })
    }

    /// Is it heard when events come? Where there are some at each look, looks are what bounds their cost.
    pub fn hears_events(&self) -> bool {
        self.since == Since::Looked { quiet: true }
    }

    /// Time since the latest turn if nobody wants the one that is due: then it may be left out.
    pub fn unwanted(&self, now: Instant) -> Option<Duration> {
        (!self.is_wanted).then(|| now.saturating_duration_since(self.begun))
    }

    /// A turn is wanted at this time.
    pub fn want(&mut self, now: Instant) {
        self.due.turn = now;
        self.is_wanted = true;
    }

    /// Something was told that is to be looked at.
    pub fn told(&mut self) {
        self.since = Since::Told;
        self.due.look = self.due.look.min(self.looked + LOOKS_APART);
    }

    /// A look from `begun` to `now` has seen this. `wakes` is whether what tells of itself is heard.
    pub fn looked(&mut self, begun: Instant, now: Instant, seen: Look, wakes: bool) {
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

    /// A turn has lasted from `begun` to `now`. What there was to look at is told again.
    pub fn turned(&mut self, begun: Instant, now: Instant, interval: Duration) {
        *self = Self {
            due: Due { turn: begun + interval, look: now + LOOK },
            quiet_look: self.quiet_look,
            begun,
            early: begun + interval / TURNS_FOR_MISPLACED,
            wanted: if self.is_wanted { Some(begun) } else { self.wanted },
            is_wanted: false,
            looked: self.looked,
            since: Since::Turned,
        };
    }

    /// The turn that was due was left out.
    pub fn left_out(&mut self, now: Instant, interval: Duration) {
        self.due.turn = now + interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);
    const MS: Duration = Duration::from_millis(1);
    const NOTHING: Look = Look { wants_turn: false, misplaced: false, is_quiet: true };
    const EVENTS: Look = Look { wants_turn: false, misplaced: false, is_quiet: false };
    const WANTS: Look = Look { wants_turn: true, misplaced: false, is_quiet: false };
    const MISPLACED: Look = Look { wants_turn: false, misplaced: true, is_quiet: false };

    /// After a first turn that took no time.
    fn settled() -> (Instant, Pace) {
        let now = Instant::now();
        let mut pace = Pace::begin(now, QUIET_LOOK);
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
            pace.looked(now, now + MS, seen, wakes);
            assert_eq!(pace.due(), Due { turn: begun + 2 * INTERVAL, look: now + MS + next }, "{seen:?}");
            assert_eq!((pace.hears(), pace.hears_writes(), pace.hears_events()), (true, true, events));
        }
    }

    #[test]
    fn shorter_watchdog_interval_shortens_quiet_looks() {
        let now = Instant::now();
        let mut pace = Pace::begin(now, 4 * LOOK);
        pace.turned(now, now, INTERVAL);
        pace.looked(now, now, NOTHING, true);
        assert_eq!(pace.due(), Due { turn: now + INTERVAL, look: now + 4 * LOOK });
    }

    #[test]
    fn a_quiet_look_goes_with_a_turn_that_is_due_shortly_before_it() {
        for (turn, look) in [
            (INTERVAL, INTERVAL),
            (QUIET_LOOK / 2, QUIET_LOOK / 2),
            // What comes each second is no reason to look as often.
            (QUIET_LOOK * 49 / 100, QUIET_LOOK),
            (QUIET_LOOK + MS, QUIET_LOOK),
        ] {
            let now = Instant::now();
            let mut pace = Pace::begin(now, QUIET_LOOK);
            pace.turned(now, now, turn);
            pace.looked(now, now, NOTHING, true);
            assert_eq!(pace.due(), Due { turn: now + turn, look: now + look }, "{turn:?}");
        }
        let (start, mut pace) = settled();
        pace.looked(start + LOOK, start + LOOK, EVENTS, true);
        assert_eq!(pace.due().look, start + 2 * LOOK, "what is not quiet is looked at again soon");
        pace.looked(start + LOOK, start + LOOK, NOTHING, true);
        // The turn goes first, and the look comes without another waking.
        let due = start + INTERVAL;
        assert_eq!(pace.due(), Due { turn: due, look: due });
        pace.left_out(due, INTERVAL);
        assert_eq!(pace.due(), Due { turn: due + INTERVAL, look: due });
        pace.looked(due + MS, due + 2 * MS, NOTHING, true);
        assert_eq!(pace.due(), Due { turn: due + INTERVAL, look: due + INTERVAL });
    }

    #[test]
    fn what_is_told_is_looked_at_once_and_soon() {
        let (start, mut pace) = settled();
        let now = start + 100 * MS;
        pace.looked(now, now, NOTHING, true);
        pace.told();
        assert_eq!(pace.due().look, now + LOOKS_APART);
        assert!(!pace.hears() && !pace.hears_writes() && !pace.hears_events());
        // It is no earlier for being told again, and nobody is late for it.
        pace.told();
        assert_eq!(pace.due().look, now + LOOKS_APART);
    }

    #[test]
    fn what_a_turn_writes_itself_is_not_heard() {
        let (start, mut pace) = settled();
        assert!(pace.hears() && !pace.hears_writes() && !pace.hears_events());
        pace.looked(start + LOOK, start + LOOK, NOTHING, true);
        assert!(pace.hears_writes());
        pace.turned(start + INTERVAL, start + INTERVAL + MS, INTERVAL);
        assert!(!pace.hears_writes());
        assert_eq!(pace.due(), Due { turn: start + 2 * INTERVAL, look: start + INTERVAL + MS + LOOK });
    }

    #[test]
    fn requested_turns_come_at_once_but_apart() {
        let (start, mut pace) = settled();
        // The first turn was wanted, too.
        pace.looked(start + 100 * MS, start + 101 * MS, WANTS, true);
        assert_eq!(pace.due().turn, start + APART);
        let now = start + APART;
        assert_eq!(pace.unwanted(now), None);
        pace.turned(now, now + MS, INTERVAL);
        assert_eq!(pace.unwanted(now + INTERVAL), Some(INTERVAL));
        let later = now + 2 * APART;
        pace.looked(later, later + MS, WANTS, true);
        assert_eq!(pace.due().turn, later);
        // One that is due anyway is not put off.
        let (start, mut pace) = settled();
        pace.turned(start, start, 100 * MS);
        pace.looked(start + 90 * MS, start + 91 * MS, WANTS, true);
        assert_eq!(pace.due().turn, start + 100 * MS);
    }

    #[test]
    fn misplaced_tasks_bring_a_turn_forward_but_few_of_them() {
        let (start, mut pace) = settled();
        pace.looked(start + LOOK, start + LOOK, MISPLACED, true);
        let early = start + INTERVAL / TURNS_FOR_MISPLACED;
        assert_eq!((pace.due().turn, pace.unwanted(early)), (early, None));
        pace.turned(early, early, INTERVAL);
        pace.looked(early + LOOK, early + LOOK, MISPLACED, true);
        assert_eq!(pace.due().turn, early + INTERVAL / TURNS_FOR_MISPLACED);
        // One that was left out long ago does not hold it up.
        let (start, mut pace) = settled();
        pace.left_out(start + INTERVAL, INTERVAL);
        let now = start + INTERVAL + LOOK;
        pace.looked(now, now, MISPLACED, true);
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
