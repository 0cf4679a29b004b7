//! The gate in front of every write to the host; a pause closes it.
//!
//! A writer enters before it writes, or is refused. A pause does not interrupt a plan: the writer inside
//! finishes, and the caller that paused can wait until the gate is empty. A pause with an end expires at the
//! first look after it.
//!
//! The gate belongs to this process. A requested pause outlives it
//! ([`PauseRecord`](enforcer_act::journal::PauseRecord)), and the next daemon continues it. The end of a
//! daemon closes the gate too, and is not recorded.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use tokio::{sync::watch, time::timeout};

use enforcer_report::status::Paused;

/// Handle to the gate; clones share it.
#[derive(Debug, Clone)]
pub struct Gate(Arc<watch::Sender<Passage>>);

#[derive(Debug, Clone, Copy, Default)]
struct Passage {
    pause: Option<ActivePause>,
    /// Number of writers inside.
    inside: u32,
}

/// Begin of the pause, and its end if it has one.
#[derive(Debug, Clone, Copy)]
struct ActivePause {
    since: Instant,
    until: Option<Instant>,
}

impl ActivePause {
    fn holds(&self, now: Instant) -> bool {
        self.until.is_none_or(|until| now < until)
    }
}

/// A writer is inside the gate until this is dropped.
#[derive(Debug)]
pub struct GatePass(Gate);

impl Default for Gate {
    fn default() -> Self {
        Self(Arc::new(watch::Sender::new(Passage::default())))
    }
}

impl Gate {
    /// Closes the gate for `length`, or until [`Self::open`]. Replaces a pause in force.
    pub fn close(&self, length: Option<Duration>) {
        let now = Instant::now();
        self.0.send_modify(|passage| {
            let before = passage.pause.filter(|pause| pause.holds(now));
            let since = before.map_or(now, |pause| pause.since);
            // A time beyond the range of the clock has no end.
            passage.pause =
                Some(ActivePause { since, until: length.and_then(|length| now.checked_add(length)) });
        });
    }

    /// Closes it for the rest of a pause that has `lasted` already.
    pub fn close_for_rest(&self, lasted: Duration, left: Option<Duration>) {
        let now = Instant::now();
        let since = now.checked_sub(lasted).unwrap_or(now);
        let until = left.and_then(|left| now.checked_add(left));
        self.0.send_modify(|passage| passage.pause = Some(ActivePause { since, until }));
    }

    /// Opens the gate. Returns whether it was closed.
    pub fn open(&self) -> bool {
        let mut was = false;
        self.0.send_modify(|passage| {
            was = passage.pause.take().is_some_and(|pause| pause.holds(Instant::now()));
        });
        was
    }

    /// Whether a pause has expired since the last call.
    pub fn ended(&self) -> bool {
        let now = Instant::now();
        self.0.send_if_modified(|passage| passage.pause.take_if(|pause| !pause.holds(now)).is_some())
    }

    /// The pause in force.
    pub fn paused(&self) -> Option<Paused> {
        let now = Instant::now();
        let pause = self.0.borrow().pause.filter(|pause| pause.holds(now))?;
        Some(Paused {
            for_seconds: now.saturating_duration_since(pause.since).as_secs(),
            left_seconds: pause.until.map(|until| left(until.saturating_duration_since(now))),
        })
    }

    /// Enters, if the gate is open.
    pub fn enter(&self) -> Option<GatePass> {
        let mut entered = false;
        self.0.send_modify(|passage| {
            if passage.pause.is_none_or(|pause| !pause.holds(Instant::now())) {
                passage.inside = passage.inside.saturating_add(1);
                entered = true;
            }
        });
        entered.then(|| GatePass(self.clone()))
    }

    /// Waits at most `longest` until no writer is inside. Returns whether the gate is empty.
    pub async fn settled(&self, longest: Duration) -> bool {
        let mut passage = self.0.subscribe();
        timeout(longest, passage.wait_for(|passage| passage.inside == 0)).await.is_ok_and(|seen| seen.is_ok())
    }
}

impl Drop for GatePass {
    fn drop(&mut self) {
        self.0.0.send_modify(|passage| passage.inside = passage.inside.saturating_sub(1));
    }
}

/// Whole seconds, rounded up: a pause in force has at least one left.
fn left(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_refuses_writers_until_it_is_over() {
        let gate = Gate::default();
        assert_eq!((gate.paused(), gate.enter().is_some()), (None, true));
        gate.close(None);
        assert_eq!(gate.paused(), Some(Paused { for_seconds: 0, left_seconds: None }));
        assert!(gate.enter().is_none());
        assert!(gate.open());
        assert_eq!((gate.open(), gate.paused(), gate.enter().is_some()), (false, None, true));
    }

    #[test]
    fn a_pause_with_an_end_is_over_by_itself() {
        let gate = Gate::default();
        gate.close(Some(Duration::from_hours(1)));
        assert_eq!(gate.paused().unwrap().left_seconds, Some(3600));
        // The later pause counts, even if it is shorter.
        gate.close(Some(Duration::from_millis(20)));
        assert!(gate.enter().is_none());
        std::thread::sleep(Duration::from_millis(25));
        assert_eq!((gate.paused(), gate.enter().is_some()), (None, true));
        assert_eq!((gate.ended(), gate.ended(), gate.open()), (true, false, false), "told once");
        gate.close(Some(Duration::from_millis(1)));
        std::thread::sleep(Duration::from_millis(5));
        assert_eq!((gate.open(), gate.ended()), (false, false), "opened by a caller, so it did not expire");
        gate.close(Some(Duration::MAX));
        assert!(!gate.ended());
        assert_eq!(gate.paused().unwrap().left_seconds, None);
        gate.close_for_rest(Duration::from_millis(1), Some(Duration::from_mins(1)));
        assert_eq!(gate.paused().unwrap().left_seconds, Some(60));
    }

    #[tokio::test]
    async fn the_pausing_caller_waits_until_the_gate_is_empty() {
        let gate = Gate::default();
        let (turn, pages) = (gate.enter().unwrap(), gate.enter().unwrap());
        gate.close(None);
        drop(turn);
        assert!(!gate.settled(Duration::from_millis(5)).await);
        let waiting = gate.clone();
        let settled = tokio::spawn(async move { waiting.settled(Duration::from_mins(1)).await });
        tokio::task::yield_now().await;
        drop(pages);
        assert!(settled.await.unwrap());
    }
}
