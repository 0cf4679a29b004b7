//! Tells aya which of these types it may copy to and from the kernel as bytes.

use aya::Pod;

use crate::{
    counter::{Accesses, HintFaultPages, Moves, RunTime},
    key::MoveKey,
    managed::ManagedCgroup,
};

// SAFETY: `#[repr(C)]`, integers only, and without padding: the asserted offsets leave no gap.
unsafe impl Pod for MoveKey {}
// SAFETY: as above.
unsafe impl Pod for ManagedCgroup {}
// SAFETY: as above.
unsafe impl Pod for Moves {}
// SAFETY: as above.
unsafe impl Pod for RunTime {}
// SAFETY: as above.
unsafe impl Pod for HintFaultPages {}
// SAFETY: as above.
unsafe impl Pod for Accesses {}
