//! Tells aya which of these types it may copy to and from the kernel as bytes.

use aya::Pod;

use crate::{
    counter::HintFaultPages,
    key::{NodeKey, PlacementKey},
};

// SAFETY: `#[repr(C)]`, integers only, and without padding: the asserted offsets leave no gap.
unsafe impl Pod for NodeKey {}
// SAFETY: as above.
unsafe impl Pod for PlacementKey {}
// SAFETY: as above.
unsafe impl Pod for HintFaultPages {}
