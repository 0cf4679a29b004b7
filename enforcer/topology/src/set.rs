//! Sets of CPUs and of NUMA nodes, and the kernel's list format that is their text.
//!
//! The list format is that of `cpulist_parse` in the kernel (`lib/bitmap.c`): decimal ids and
//! inclusive ranges separated by commas, `0-3,8,10-11`; the empty set is the empty string. A set
//! grows with its greatest member, there is no global width.
//!
//! Invariant: memory is never allocated in proportion to a number from outside: ids above [`Id::GREATEST`]
//! are refused before any allocation. A set takes at most a kilobyte for CPUs and 128 bytes for nodes,
//! whatever its text. Callers that read many sets from outside bound their number.

use std::{fmt, marker::PhantomData, str::FromStr};

use smallvec::SmallVec;
use thiserror::Error;

use crate::id::{CpuId, Id, NodeId};

/// The greatest accepted id of any kind.
pub const MAX_ID: u32 = CpuId::GREATEST;

/// A set of CPUs.
pub type CpuSet = IdSet<CpuId>;
/// A set of NUMA nodes.
pub type NodeSet = IdSet<NodeId>;

/// The sets of most machines need no allocation: those of 128 CPUs are as large as a `Vec`.
type Words = SmallVec<[u64; 2]>;

/// A set of ids, one bit each; trailing zero words are never kept, so equal sets are equal values.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdSet<T> {
    words: Words,
    of: PhantomData<T>,
}

/// Why a text is not a list of ids.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListError {
    /// An element is neither a number nor a range.
    #[error("`{0}` is not an id or a range of ids")]
    NotANumber(String),
    /// A range that ends below its start.
    #[error("range `{0}` ends before it starts")]
    Reversed(String),
    /// An id above [`Id::GREATEST`].
    #[error("id {id} is above the greatest supported id {greatest}")]
    TooLarge {
        /// The id.
        id: u64,
        /// The greatest of its kind.
        greatest: u32,
    },
}

impl<T: Id> IdSet<T> {
    /// The empty set.
    pub const fn new() -> Self {
        Self { words: Words::new_const(), of: PhantomData }
    }

    /// The set with member n if bit n % 64 of word n / 64 is set; words above [`Id::GREATEST`] are left out.
    pub fn from_words(words: &[u64]) -> Self {
        Self::of_words(words.iter().copied().take(T::GREATEST as usize / 64 + 1).collect())
    }

    /// Adds an id; true when it was not in the set. Ids above [`Id::GREATEST`] are left out.
    pub fn insert(&mut self, id: T) -> bool {
        let number = id.number();
        if number > T::GREATEST {
            return false;
        }
        let (word, bit) = Self::place(number);
        if word >= self.words.len() {
            self.words.resize(word + 1, 0);
        }
        let fresh = self.words[word] & bit == 0;
        self.words[word] |= bit;
        fresh
    }

    /// Removes an id; true when it was in the set.
    pub fn remove(&mut self, id: T) -> bool {
        let (word, bit) = Self::place(id.number());
        let Some(slot) = self.words.get_mut(word) else { return false };
        let there = *slot & bit != 0;
        *slot &= !bit;
        self.trim();
        there
    }

    /// Is the id a member?
    pub fn contains(&self, id: T) -> bool {
        let (word, bit) = Self::place(id.number());
        self.words.get(word).is_some_and(|w| w & bit != 0)
    }

    /// Number of members.
    pub fn len(&self) -> usize {
        self.words.iter().map(|word| ones(*word)).sum()
    }

    /// Members below 64 as bits: bit n is member n.
    pub fn low_word(&self) -> u64 {
        self.word(0)
    }

    /// Is it empty?
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// The smallest member.
    pub fn first(&self) -> Option<T> {
        self.iter().next()
    }

    /// The members in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = T> + '_ {
        self.words.iter().zip(0u32..).flat_map(|(&word, index)| {
            let rest = std::iter::successors(Some(word), |rest| Some(rest & rest.wrapping_sub(1)));
            rest.take_while(|rest| *rest != 0)
                .map(move |rest| T::from_number(index * 64 + rest.trailing_zeros()))
        })
    }

    /// Members of either set.
    #[must_use]
    pub fn union(&self, other: &Self) -> Self {
        let width = self.words.len().max(other.words.len());
        Self::of_words((0..width).map(|i| self.word(i) | other.word(i)).collect())
    }

    /// Members of both sets.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        Self::of_words(self.words.iter().zip(&other.words).map(|(a, b)| a & b).collect())
    }

    /// Members of this set that are not in the other.
    #[must_use]
    pub fn difference(&self, other: &Self) -> Self {
        Self::of_words((0..self.words.len()).map(|i| self.word(i) & !other.word(i)).collect())
    }

    /// Adds the members of the other; allocates only when that one is wider.
    pub fn extend(&mut self, other: &Self) {
        if other.words.len() > self.words.len() {
            self.words.resize(other.words.len(), 0);
        }
        self.words.iter_mut().zip(&other.words).for_each(|(a, b)| *a |= b);
    }

    /// Number of members that are in the other as well; allocates nothing.
    pub fn common(&self, other: &Self) -> usize {
        self.words.iter().zip(&other.words).map(|(a, b)| ones(a & b)).sum()
    }

    /// Number of members that are not in the other; allocates nothing.
    pub fn apart(&self, other: &Self) -> usize {
        let others = other.words.iter().copied().chain(std::iter::repeat(0));
        self.words.iter().zip(others).map(|(own, other)| ones(own & !other)).sum()
    }

    /// Is every member of this set in the other?
    pub fn is_subset(&self, other: &Self) -> bool {
        // From the end, where neither has zero words: for distant sets the first comparison decides.
        self.words.len() <= other.words.len()
            && self.words.iter().zip(&other.words).rev().all(|(own, other)| own & !other == 0)
    }

    /// Have the two sets no member in common?
    pub fn is_disjoint(&self, other: &Self) -> bool {
        self.words.iter().zip(&other.words).all(|(a, b)| a & b == 0)
    }

    /// Both ends included; word by word, so that a long text of wide ranges stays cheap.
    fn insert_range(&mut self, first: u32, last: u32) {
        let (first_word, last_word) = (Self::place(first).0, Self::place(last).0);
        if last_word >= self.words.len() {
            self.words.resize(last_word + 1, 0);
        }
        for index in first_word..=last_word {
            let low = if index == first_word { u64::MAX << (first % 64) } else { u64::MAX };
            let high = if index == last_word { u64::MAX >> (63 - last % 64) } else { u64::MAX };
            self.words[index] |= low & high;
        }
    }

    fn place(number: u32) -> (usize, u64) {
        ((number / 64) as usize, 1 << (number % 64))
    }

    fn word(&self, index: usize) -> u64 {
        self.words.get(index).copied().unwrap_or(0)
    }

    fn of_words(words: Words) -> Self {
        let mut set = Self { words, of: PhantomData };
        set.trim();
        set
    }

    fn trim(&mut self) {
        while self.words.last() == Some(&0) {
            self.words.pop();
        }
    }
}

/// Number of bits. Most words of most sets are zero, and counting takes a dozen steps if the target processor
/// is not known to have an instruction for it.
#[inline]
fn ones(word: u64) -> usize {
    if word == 0 { 0 } else { word.count_ones() as usize }
}

impl<T: Id> Default for IdSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T: Id> FromIterator<T> for IdSet<T> {
    fn from_iter<I: IntoIterator<Item = T>>(ids: I) -> Self {
        let mut set = Self::new();
        for id in ids {
            set.insert(id);
        }
        set
    }
}

impl<T: Id> FromStr for IdSet<T> {
    type Err = ListError;

    /// Reads the kernel's list format; surrounding white space and empty elements are accepted, as
    /// the kernel accepts them.
    fn from_str(text: &str) -> Result<Self, ListError> {
        let mut set = Self::new();
        for element in text.trim().split(',').map(str::trim).filter(|e| !e.is_empty()) {
            let (first, last) = match element.split_once('-') {
                Some((first, last)) => (number::<T>(first, element)?, number::<T>(last, element)?),
                None => (number::<T>(element, element)?, number::<T>(element, element)?),
            };
            if last < first {
                return Err(ListError::Reversed(element.to_owned()));
            }
            set.insert_range(first, last);
        }
        Ok(set)
    }
}

fn number<T: Id>(digits: &str, element: &str) -> Result<u32, ListError> {
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return Err(ListError::NotANumber(element.to_owned()));
    }
    // Only digits, so the number can only be too large.
    let id = digits.parse().unwrap_or(u64::MAX);
    let known = u32::try_from(id).ok().filter(|id| *id <= T::GREATEST);
    known.ok_or(ListError::TooLarge { id, greatest: T::GREATEST })
}

impl<T: Id> fmt::Display for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut ids = self.iter().map(Id::number).peekable();
        let mut separator = "";
        while let Some(first) = ids.next() {
            let mut last = first;
            while let Some(next) = ids.next_if_eq(&(last + 1)) {
                last = next;
            }
            if first == last {
                write!(f, "{separator}{first}")?;
            } else {
                write!(f, "{separator}{first}-{last}")?;
            }
            separator = ",";
        }
        Ok(())
    }
}

impl<T: Id> fmt::Debug for IdSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{{{self}}}")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cpus(text: &str) -> CpuSet {
        text.parse().unwrap()
    }

    #[test]
    fn reads_and_writes_the_kernel_list_format() {
        for (text, written) in [
            ("", ""),
            ("\n", ""),
            ("0", "0"),
            ("0-3\n", "0-3"),
            ("3,1,2", "1-3"),
            ("0,2,4-6,64-65", "0,2,4-6,64-65"),
            ("5-5", "5"),
            ("0,,1", "0-1"),
        ] {
            assert_eq!(cpus(text).to_string(), written, "{text:?}");
        }
    }

    #[test]
    fn refuses_what_is_not_a_list() {
        let error = |text: &str| text.parse::<CpuSet>().unwrap_err();
        assert_eq!(error("3-1"), ListError::Reversed("3-1".into()));
        let too_large = |id, greatest| ListError::TooLarge { id, greatest };
        assert_eq!(error("0-999999999"), too_large(999_999_999, 8_191));
        assert_eq!(error("0-99999999999999999999999"), too_large(u64::MAX, 8_191));
        assert_eq!(error("8192"), too_large(8_192, 8_191));
        assert_eq!("1024".parse::<NodeSet>().unwrap_err(), too_large(1_024, 1_023));
        assert_eq!(error("a"), ListError::NotANumber("a".into()));
        assert_eq!(error("+1"), ListError::NotANumber("+1".into()));
        assert_eq!(error("1-2-3"), ListError::NotANumber("1-2-3".into()));
        assert_eq!(error("-1"), ListError::NotANumber("-1".into()));
    }

    #[test]
    fn no_text_makes_a_set_larger_than_a_kernel_s() {
        assert_eq!(cpus("0,8191").words.len(), 128);
        let mut nodes: NodeSet = "1023".parse().unwrap();
        assert_eq!((nodes.words.len(), nodes.insert(NodeId(1_024))), (16, false));
        assert_eq!(NodeSet::from_words(&[1; 100]).words.len(), 16);
    }

    fn any_set() -> impl Strategy<Value = CpuSet> {
        proptest::collection::btree_set(0u32..300, 0..40).prop_map(|ids| ids.into_iter().map(CpuId).collect())
    }

    proptest! {
        #[test]
        fn text_round_trips(set in any_set()) {
            prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
        }

        #[test]
        fn algebra_agrees_with_membership(a in any_set(), b in any_set()) {
            for id in (0..300).map(CpuId) {
                prop_assert_eq!(a.union(&b).contains(id), a.contains(id) || b.contains(id));
                prop_assert_eq!(a.intersection(&b).contains(id), a.contains(id) && b.contains(id));
                prop_assert_eq!(a.difference(&b).contains(id), a.contains(id) && !b.contains(id));
            }
            prop_assert_eq!(a.is_subset(&b), a.difference(&b).is_empty());
            prop_assert_eq!(a.is_disjoint(&b), a.intersection(&b).is_empty());
            prop_assert_eq!(a.len(), a.iter().count());
        }

        #[test]
        fn a_range_holds_its_ids_and_no_others(first in 0u32..300, length in 0u32..300) {
            let set = cpus(&format!("{first}-{}", first + length));
            prop_assert!(set.iter().map(|id| id.0).eq(first..=first + length));
        }

        #[test]
        fn removing_undoes_inserting(mut set in any_set(), id in 0u32..400) {
            let before = set.clone();
            if set.insert(CpuId(id)) {
                prop_assert!(set.remove(CpuId(id)));
            }
            prop_assert_eq!(set, before);
        }

        #[test]
        fn any_text_is_a_set_or_an_error(text in "[0-9,\\- a\n]{0,40}") {
            if let Ok(set) = text.parse::<CpuSet>() {
                prop_assert_eq!(set.to_string().parse::<CpuSet>().unwrap(), set);
            }
        }
    }
}
