//! Numbers that look random and are the same in each run (splitmix64).

/// A source of numbers.
#[derive(Debug, Clone)]
pub struct Draw(u64);

impl Draw {
    /// The source of a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number from `least` to `most`.
    pub fn between(&mut self, least: u64, most: u64) -> u64 {
        least + self.next() % (most.saturating_sub(least) + 1)
    }

    /// A position in a list of this length; 0 for an empty one.
    pub fn below(&mut self, length: usize) -> usize {
        let most = (length as u64).saturating_sub(1);
        usize::try_from(self.between(0, most)).unwrap_or(0)
    }

    /// A number with this median whose logarithm is nearly normal, with a deviation of one half.
    pub fn around(&mut self, median: u64) -> u64 {
        // The sum of twelve uniform numbers has a deviation of 1.
        let thousandths: u64 = (0..12).map(|_| self.between(0, 1_000)).sum();
        let deviations = (thousandths as f64 - 6_000.0) / 1_000.0;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a positive time far below the limit"
        )]
        let drawn = (median as f64 * (deviations / 2.0).exp()) as u64;
        drawn
    }

    /// Puts a list into another order.
    pub fn shuffle<T>(&mut self, list: &mut [T]) {
        for at in (1..list.len()).rev() {
            let other = self.below(at + 1);
            list.swap(at, other);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_within_their_bounds_and_differ_by_seed() {
        let (mut one, mut other) = (Draw::new(1), Draw::new(2));
        let drawn: Vec<u64> = (0..100).map(|_| one.between(5, 7)).collect();
        assert!((5..=7).all(|number| drawn.contains(&number)));
        assert!(drawn.iter().all(|number| (5..=7).contains(number)));
        assert_ne!(drawn, (0..100).map(|_| other.between(5, 7)).collect::<Vec<_>>());
        let mut times: Vec<u64> = (0..1_001).map(|_| one.around(1_000)).collect();
        times.sort_unstable();
        assert!((900..1_100).contains(&times[500]), "{}", times[500]);
        let mut list: Vec<u32> = (0..50).collect();
        one.shuffle(&mut list);
        assert_ne!(list, (0..50).collect::<Vec<_>>());
        list.sort_unstable();
        assert_eq!(list, (0..50).collect::<Vec<_>>());
    }
}
