//! The records, map keys and settings that the kernel side and the daemon share.
#![no_std]
