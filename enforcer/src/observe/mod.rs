//! What is happening now: the sources of a `Sample`.
#[cfg(feature = "bpf")]
pub mod bpf;
