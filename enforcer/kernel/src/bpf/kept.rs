//! Events of a ring that were not taken yet: bounded, the latest stay and the others are counted. Pure.

use std::collections::VecDeque;

/// Most events that are kept.
const KEPT: usize = 4_096;

/// Events of one ring.
#[derive(Debug)]
pub struct EventBuffer<T> {
    latest: VecDeque<T>,
    told: u64,
    forgotten: u64,
}

/// Events since the last call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DrainedEvents<T> {
    /// The latest events, in the order in which they were told.
    pub latest: Vec<T>,
    /// How many there were.
    pub told: u64,
    /// Those that are not among the latest.
    pub forgotten: u64,
}

impl<T> Default for EventBuffer<T> {
    fn default() -> Self {
        Self { latest: VecDeque::new(), told: 0, forgotten: 0 }
    }
}

impl<T> EventBuffer<T> {
    /// Keeps an event; an unknown record is only counted.
    pub fn add(&mut self, event: Option<T>) {
        self.told += 1;
        let full = self.latest.len() == KEPT;
        if event.is_none() || full {
            self.forgotten += 1;
        }
        if let Some(event) = event {
            if full {
                self.latest.pop_front();
            }
            self.latest.push_back(event);
        }
    }

    /// Hands over what there is.
    pub fn take(&mut self) -> DrainedEvents<T> {
        let Self { latest, told, forgotten } = std::mem::take(self);
        DrainedEvents { latest: latest.into(), told, forgotten }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_latest_are_kept_and_the_others_counted() {
        let mut kept = EventBuffer::default();
        for event in 0..KEPT + 3 {
            kept.add(Some(event));
        }
        kept.add(None);
        let told = kept.take();
        assert_eq!((told.latest.len(), told.told, told.forgotten), (KEPT, KEPT as u64 + 4, 4));
        assert_eq!((told.latest[0], kept.take().told), (3, 0));
    }
}
