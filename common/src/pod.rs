//! Marks the types that aya may copy to and from the kernel as bytes.

use aya::Pod;

use crate::{
    counter::{Accesses, HintFaultPages, Moves, RunTimeCounts, Sent},
    key::MoveKey,
    managed::ManagedCgroup,
    tally::{TallyCounts, TallyKey},
};

// SAFETY: `#[repr(C)]`, integers only, and without padding: the asserted offsets leave no gap.
unsafe impl Pod for MoveKey {}
// SAFETY: as above.
unsafe impl Pod for ManagedCgroup {}
// SAFETY: as above.
unsafe impl Pod for Moves {}
// SAFETY: as above.
unsafe impl Pod for Sent {}
// SAFETY: as above.
unsafe impl Pod for RunTimeCounts {}
// SAFETY: as above.
unsafe impl Pod for HintFaultPages {}
// SAFETY: as above.
unsafe impl Pod for Accesses {}
// SAFETY: as above.
unsafe impl Pod for TallyKey {}
// SAFETY: as above.
unsafe impl Pod for TallyCounts {}
