//! Offers that list their sets of nodes one by one, narrow ones first.

use super::{Mask, MaskHint};
use crate::nodes::{MAX_ENUMERATED_NODES, by_width};

/// Hints for the sets that suffice, among those that would suffice on an empty machine; those as narrow as an
/// empty machine would allow are preferred. `does` is never true for a set that would not suffice.
pub(super) fn list(
    nodes: usize,
    would_do: impl Fn(Mask) -> bool,
    does: impl Fn(Mask) -> bool,
) -> Vec<MaskHint> {
    let mut width = None;
    let mut hints = Vec::new();
    for mask in by_width(nodes.min(MAX_ENUMERATED_NODES)) {
        if width.is_none() && would_do(mask) {
            width = Some(mask.count_ones());
        }
        if width.is_some() && does(mask) {
            hints.push(MaskHint { mask: Some(mask), preferred: width == Some(mask.count_ones()), score: 0 });
        }
    }
    hints
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_narrowest_that_would_do_is_preferred_even_if_it_does_not() {
        let hints = list(3, |_| true, |mask| mask & 0b110 == 0b110);
        let masks: Vec<_> = hints.iter().map(|hint| (hint.mask, hint.preferred)).collect();
        assert_eq!(masks, [(Some(0b110), false), (Some(0b111), false)]);
        assert!(list(3, |_| false, |_| false).is_empty());
        assert!(list(0, |_| true, |_| true).is_empty());
    }
}
