//! What a touching program has done so far.

use serde::{Deserialize, Serialize};

/// Since its start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Touches of memory on the node of the CPU.
    pub local: u64,
    /// Touches of memory on another node.
    pub remote: u64,
    /// Times that a thread put itself on a CPU of another node.
    pub moves: u64,
    /// Times that the kernel moved its threads to another CPU, as it says itself (`se.nr_migrations`).
    pub kernel_moves: u64,
}

impl Counts {
    /// The remote share of the touches.
    pub fn remote_ratio(self) -> Option<f64> {
        let all = self.local + self.remote;
        #[expect(clippy::cast_precision_loss, reason = "a ratio needs no more than 52 bits of either count")]
        (all > 0).then(|| self.remote as f64 / all as f64)
    }

    /// What was done after an earlier look.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        Self {
            local: self.local - earlier.local,
            remote: self.remote - earlier.remote,
            moves: self.moves - earlier.moves,
            kernel_moves: self.kernel_moves - earlier.kernel_moves,
        }
    }

    /// What two programs have done.
    #[must_use]
    pub fn and(self, other: Self) -> Self {
        Self {
            local: self.local + other.local,
            remote: self.remote + other.remote,
            moves: self.moves + other.moves,
            kernel_moves: self.kernel_moves + other.kernel_moves,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ratio_is_of_what_was_done_meanwhile() {
        let before = Counts { local: 100, remote: 0, moves: 1, kernel_moves: 1 };
        let after = Counts { local: 109, remote: 1, moves: 3, kernel_moves: 4 };
        let meanwhile = after.since(before);
        assert_eq!(meanwhile.remote_ratio(), Some(0.1));
        assert_eq!((meanwhile.moves, meanwhile.kernel_moves), (2, 3));
        assert_eq!(meanwhile.and(before), after);
        assert_eq!(Counts::default().remote_ratio(), None);
    }
}
