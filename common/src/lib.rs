//! The binary interface between the kernel side and the daemon.
//!
//! Records, map keys, counters, load-time settings and map sizes, and nothing else: no logic, no
//! allocation, no padding. Every type is `#[repr(C)]` and its layout is asserted at compile time in
//! [`abi`], because a disagreement between the two sides is not an error but wrong numbers. The C
//! side of the task iterator asserts the same numbers in `enforcer-ebpf/bpf/enforcer.h`.
//!
//! Feature `user` is the daemon's: it marks the types as plain bytes for aya.
#![no_std]

pub mod abi;
pub mod change;
pub mod counter;
pub mod event;
pub mod key;
pub mod limit;
pub mod managed;
#[cfg(feature = "user")]
mod pod;
pub mod pressure;
pub mod settings;
pub mod tally;
pub mod task;
pub mod vma;
