//! Values of maps, word by word.
//!
//! Problem: a reference into a map promises that nothing else writes its target. The daemon and programs on
//! other CPUs do. On this CPU, interrupts do, and another task where this one is preempted: programs at
//! trampolines may be, since Linux 5.11 (they disable migration only). From 5.12 on the kernel does not start
//! the same program once more on that CPU (`prog->active` in kernel/bpf/trampoline.c; the program's fdinfo
//! counts such runs as `recursion_misses`), but it starts others, which add to the same words.
//!
//! Idea: a value is a raw pointer that is only read and written by whole words, each with one volatile or
//! atomic access. Every function here is safe, because no reference to plain memory is ever made and no place
//! outside of the value is reached: [`Value::word`] is checked at compile time.
//!
//! Invariants: a [`Value`] points to a live value of a map. The kernel keeps the map while a program runs.
//! An element of a preallocated hash that is removed meanwhile stays memory of the map, but the kernel gives
//! it to another key at once: what is read or counted then may be that key's. It is one event, and it is
//! counted for the wrong workload or not at all.

use core::arch::asm;

/// A value of a map.
pub struct Value<V>(*mut V);

impl<V> Clone for Value<V> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<V> Copy for Value<V> {}

impl<V> Value<V> {
    /// The value that a look-up returned.
    ///
    /// # Safety
    ///
    /// `value` points to a value of a map, of the map's type.
    #[inline(always)]
    pub const unsafe fn new(value: *mut V) -> Self {
        Self(value)
    }

    /// The 64-bit word at an offset, that of a field.
    #[inline(always)]
    pub fn word<const OFFSET: usize>(self) -> Word {
        const { assert!(OFFSET.is_multiple_of(8) && OFFSET + 8 <= size_of::<V>()) }
        // SAFETY: the offset is inside of the value, which is live.
        Word(unsafe { self.0.byte_add(OFFSET) }.cast())
    }

    /// The 32-bit word at an offset.
    #[inline(always)]
    pub fn half<const OFFSET: usize>(self) -> u32 {
        const { assert!(OFFSET.is_multiple_of(4) && OFFSET + 4 <= size_of::<V>()) }
        // SAFETY: as in `word`. A volatile access of one aligned word is one load, whatever stores meanwhile.
        unsafe { self.0.byte_add(OFFSET).cast::<u32>().read_volatile() }
    }

    /// A word of the row of `N` words at an offset. The index is masked to the row, which has a power of two
    /// of words: that is the form that the verifier understands.
    #[inline(always)]
    pub fn of_row<const OFFSET: usize, const N: usize>(self, index: usize) -> Word {
        const { assert!(N.is_power_of_two() && OFFSET.is_multiple_of(8) && OFFSET + 8 * N <= size_of::<V>()) }
        // SAFETY: the row is inside of the value, and the index inside of the row.
        Word(unsafe { self.0.byte_add(OFFSET).cast::<u64>().add(index & (N - 1)) })
    }
}

/// A word of a value; the header says what else may write it.
#[derive(Clone, Copy)]
pub struct Word(*mut u64);

impl Word {
    /// Its present value.
    #[inline(always)]
    pub fn get(self) -> u64 {
        // SAFETY: the word is inside of a live value and aligned; see the header for what else stores there.
        unsafe { self.0.read_volatile() }
    }

    /// Writes another value.
    #[inline(always)]
    pub fn set(self, word: u64) {
        // SAFETY: as in `get`.
        unsafe { self.0.write_volatile(word) }
    }

    /// Adds to a word of this CPU, in a program that nothing interrupts that adds to the same word: it runs
    /// with interrupts disabled, or in an NMI.
    #[inline(always)]
    pub fn add(self, more: u64) {
        self.set(self.get().wrapping_add(more));
    }

    /// Adds to a word that other programs, or other runs of this one, may change meanwhile.
    #[inline(always)]
    pub fn add_atomically(self, more: u64) {
        // `core` has no atomic addition for this target. This one, without a result, is in every kernel.
        // SAFETY: the word is inside of a live value and aligned; nothing else is read or written.
        unsafe {
            asm!(
                "lock *(u64 *)({word} + 0) += {more}",
                word = in(reg) self.0,
                more = in(reg) more,
                options(nostack),
            );
        }
    }
}
