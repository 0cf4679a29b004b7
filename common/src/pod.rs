//! Marks the types that aya may copy to and from the kernel as bytes.

use aya::Pod;

use crate::{key::MoveKey, managed::ManagedCgroup, tally::TallyKey};

// SAFETY: `#[repr(C)]`, integers only, and without padding: the asserted offsets leave no gap.
unsafe impl Pod for MoveKey {}
// SAFETY: as above.
unsafe impl Pod for ManagedCgroup {}
// SAFETY: as above.
unsafe impl Pod for TallyKey {}
