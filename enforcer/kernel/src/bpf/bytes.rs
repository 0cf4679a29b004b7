//! Numbers out of what the kernel wrote: in this machine's byte order, `None` past the end. Pure.

/// The 16 bits that begin at a byte.
pub(super) fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|two| u16::from_ne_bytes(*two))
}

/// The 32 bits that begin at a byte.
pub(super) fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|four| u32::from_ne_bytes(*four))
}

/// The 64 bits that begin at a byte.
pub(super) fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|eight| u64::from_ne_bytes(*eight))
}
